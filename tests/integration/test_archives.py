"""Archives of real files: written, read back, put back, and read by plain tar and zstd."""

import asyncio
import errno
import itertools
import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from migrator.adapters.filesystems.archive_folders import HeldFolder
from migrator.domain.archives import (
    ArchiveLimits,
    ArchiveState,
    LeftOut,
    LeftOutReason,
    archive_directory,
    is_archive_path,
    same_file,
)
from migrator.domain.cutover import CutoverNotes, CutoverState, CutoverStep
from migrator.domain.cutover_seen import Act
from migrator.domain.errors import ExitCode, MigratorError, Refused, UsageError
from migrator.domain.reap import ReapRow
from migrator.domain.storage_targets import CapacityPool
from migrator.domain.tree import UserTree
from migrator.ports.archives import OpenMember
from migrator.stages.reap import archive
from migrator.stages.reap import restore as restoring
from tests.archive_world import HOSTILE, TREE, World, archive_world, changed, make_odd_tree, write
from tests.integration.test_storage_outages import Storage
from tests.snapshots import snapshot

pytestmark = pytest.mark.needs_root


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with archive_world(tmp_path) as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "elsewhere"
    made.mkdir()
    return made


def restored_tree(place: Path) -> bytes:
    return os.fsencode(place) + b"/" + TREE


def test_twenty_thousand_tiny_files_become_some_inodes_and_come_back_exactly(world: World, place: Path) -> None:
    for number in range(20_000):
        write(
            world.tree + b"/%03d/%d" % (number % 200, number),
            b"%d" % number * (number % 40),
            mode=0o400 + number % 64,
            mtime_ns=1_000_000_000_000_000_000 + number * 1_000_000_001,
        )
        if number % 100 == 0:
            os.setxattr(world.tree + b"/%03d/%d" % (number % 200, number), b"user.number", b"%d" % number)
    before = snapshot(world.tree, directories=False)
    done = world.archive(world.rows(), limits=ArchiveLimits(max_members=7_000))
    assert (done.archives, done.members, dict(done.left_out)) == (3, 20_000, {})
    assert sorted(os.listdir(world.archives)) == [
        f"00000{number}.{kind}" for number in (1, 2, 3) for kind in ("parquet", "tar.zst")
    ]
    restored = world.restore(b".", to=place)
    assert (restored.restored, restored.not_restored) == (20_000, 0)
    assert snapshot(restored_tree(place), directories=False) == before
    assert snapshot(world.tree, directories=False) == before


def test_everything_odd_comes_back_exactly(world: World, place: Path) -> None:
    make_odd_tree(world.tree)
    before = snapshot(world.tree, directories=False)
    done = world.archive(world.rows())
    assert (done.archives, done.members, dict(done.left_out)) == (1, len(before), {})
    assert world.restore(b"", to=place).restored == len(before)
    assert snapshot(restored_tree(place), directories=False) == before
    restored = os.stat(restored_tree(place) + b"/sparse")
    assert restored.st_blocks * 512 < restored.st_size


def test_access_times_come_back_too(world: World, place: Path) -> None:
    write(world.tree + b"/file")
    before = os.stat(world.tree + b"/file").st_atime_ns
    world.archive(world.rows())
    world.restore(b"file", to=place)
    assert os.stat(world.tree + b"/file").st_atime_ns == before
    assert os.stat(restored_tree(place) + b"/file").st_atime_ns == before


def test_gnu_tar_and_zstd_extract_an_archive_exactly(world: World, place: Path) -> None:
    make_odd_tree(world.tree)
    world.archive(world.rows(), limits=ArchiveLimits(max_members=10))
    for file in sorted(world.archives.glob("*.tar.zst")):
        subprocess.run(["zstd", "--test", "-q", str(file)], check=True)
        subprocess.run(
            ["tar", "--zstd", "--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-xpf", str(file)],
            cwd=place,
            check=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    apart = {b"links/first", b"links/second"}
    before, after = (
        {name: facts for name, facts in snapshot(tree, directories=False).items() if name not in apart}
        for tree in (world.tree, os.fsencode(place))
    )
    assert after == before


def test_gnu_tar_makes_links_within_an_archive(world: World, place: Path) -> None:
    first = write(world.tree + b"/first", b"of two names")
    os.link(first, world.tree + b"/second")
    world.archive(world.rows())
    subprocess.run(["tar", "--zstd", "-xpf", str(world.archives / "000001.tar.zst")], cwd=place, check=True)
    assert snapshot(os.fsencode(place)) == snapshot(world.tree)


def test_the_index_says_what_is_where(world: World) -> None:
    make_odd_tree(world.tree)
    rows = world.rows()
    world.archive(rows)
    index = pq.read_table(world.archives / "000001.parquet").to_pylist()
    assert {TREE + b"/" + row["path"] for row in index} == {row.path for row in rows}
    tar = subprocess.run(
        ["zstd", "-dcq", str(world.archives / "000001.tar.zst")], check=True, capture_output=True
    ).stdout
    for row in index:
        if row["type"] == "file":
            with open(world.tree + b"/" + row["path"], "rb") as file:
                assert tar[row["data_offset"] : row["data_offset"] + row["size"]] == file.read()


def test_archives_are_closed_until_they_are_handed_over(world: World) -> None:
    write(world.tree + b"/file")
    world.archive(world.rows())
    facts = [os.stat(path) for path in (world.archives, *world.archives.iterdir())]
    assert [(one.st_uid, stat.S_IMODE(one.st_mode)) for one in facts] == [(0, 0o700), (0, 0o600), (0, 0o600)]
    world.folders.hand_over(TREE, uid=1001, gid=1002)
    world.folders.hand_over(TREE, uid=1001, gid=1002)
    facts = [os.stat(path) for path in (world.archives, *world.archives.iterdir())]
    assert [(one.st_uid, one.st_gid, stat.S_IMODE(one.st_mode)) for one in facts] == [
        (1001, 1002, 0o500),
        (1001, 1002, 0o400),
        (1001, 1002, 0o400),
    ]
    assert list(world.proven.of_block(TREE, [TREE + b"/file"])) == [TREE + b"/file"]
    world.folders.take_back(TREE)
    facts = [os.stat(path) for path in (world.archives, *world.archives.iterdir())]
    assert [(one.st_uid, stat.S_IMODE(one.st_mode)) for one in facts] == [(0, 0o700), (0, 0o600), (0, 0o600)]
    world.folders.hand_over(b"home/nobody", uid=1, gid=1)


def test_what_changed_since_the_list_or_vanished_is_left_out(world: World) -> None:
    for name in (b"stays", b"changed", b"gone", b"replaced"):
        write(world.tree + b"/" + name)
    rows = world.rows()
    os.chmod(world.tree + b"/changed", 0o600)  # noqa: PTH101 (the path is bytes)
    os.unlink(world.tree + b"/gone")  # noqa: PTH108 (the path is bytes)
    os.unlink(world.tree + b"/replaced")  # noqa: PTH108 (the path is bytes)
    os.symlink(b"stays", world.tree + b"/replaced")  # noqa: PTH211 (the path is bytes)
    done = world.archive(rows)
    assert dict(done.left_out) == {"changed": 2, "vanished": 1}
    assert {one.path: one.reason for one in done.examples} == {
        TREE + b"/changed": LeftOutReason.CHANGED,
        TREE + b"/replaced": LeftOutReason.CHANGED,
        TREE + b"/gone": LeftOutReason.VANISHED,
    }
    assert archive.exit_code([done]) is ExitCode.DONE
    assert list(world.proven.of_block(TREE, [row.path for row in rows])) == [TREE + b"/stays"]


def test_what_changed_a_moment_ago_is_left_out(world: World) -> None:
    write(world.tree + b"/fresh")
    done = world.archive(world.rows(), settle_s=3600)
    assert (done.members, dict(done.left_out)) == (0, {"fresh": 1})
    assert archive.exit_code([done]) is ExitCode.ATTENTION
    assert os.listdir(world.archives) == []


class ChangingMember:
    """A file that is written to when half of it has been read."""

    def __init__(self, member: OpenMember, path: bytes) -> None:
        self._member = member
        self._path = path
        self.entry = member.entry
        self.is_checked = member.is_checked

    def pieces(self) -> Iterator[bytes]:
        for number, piece in enumerate(self._member.pieces()):
            yield piece
            if number == 0:
                with open(self._path, "r+b") as file:
                    file.write(b"changed")

    def finish(self) -> bytes | LeftOut | None:
        return self._member.finish()

    def close(self) -> None:
        self._member.close()


class ChangingSource:
    def __init__(self, world: World) -> None:
        self._members = world.archiving(()).members
        self._root = os.fsencode(world.source_path)

    def open(self, row: ReapRow, *, settled_before_ns: int) -> OpenMember | LeftOut:
        opened = self._members.open(row, settled_before_ns=settled_before_ns)
        if isinstance(opened, LeftOut) or b"changing" not in row.path:
            return opened
        return ChangingMember(opened, self._root + b"/" + row.path)


def test_a_large_file_that_changes_while_it_is_packed_leaves_no_trace(world: World, place: Path) -> None:
    for name in (b"a", b"b changing", b"c", b"d changing", b"e"):
        write(world.tree + b"/" + name, os.urandom(9_000_000 if b"changing" in name else 1000))
    rows = world.rows()
    world.members = ChangingSource(world)
    done = world.archive(rows)
    assert (done.members, dict(done.left_out)) == (3, {"changed": 2})
    listed = subprocess.run(
        ["tar", "--zstd", "-tf", str(world.archives / "000001.tar.zst")], check=True, capture_output=True
    ).stdout
    assert listed.split() == [b"a", b"c", b"e"]
    assert world.restore(b".", to=place).restored == 3
    whole = snapshot(world.tree)
    assert snapshot(restored_tree(place)) == {name: whole[name] for name in (b"a", b"c", b"e")}


def test_archived_files_are_not_archived_again_but_changed_ones_are(world: World, place: Path) -> None:
    for number in range(30):
        write(world.tree + b"/%d" % number, b"old")
    rows = world.rows()
    world.archive(rows)
    again = world.archive(rows)
    assert (again.archives, again.already) == (0, 30)
    write(world.tree + b"/7", b"new content")
    after = world.archive(world.rows())
    assert (after.archives, after.members, after.already) == (1, 1, 29)
    found = world.proven.of_block(TREE, [TREE + b"/7", TREE + b"/8"])
    assert {path: member.archive for path, member in found.items()} == {TREE + b"/7": 2, TREE + b"/8": 1}
    for path, member in found.items():
        entry = world.source.look(path)
        assert entry is not None
        assert same_file(member, entry)
    world.restore(b".", to=place)
    assert snapshot(restored_tree(place)) == snapshot(world.tree)


def test_a_block_asks_for_what_is_archived_with_its_digest(world: World) -> None:
    make_odd_tree(world.tree)
    world.archive(world.rows(), limits=ArchiveLimits(max_members=7))
    paths = [row.path for row in world.rows()]
    found = world.proven.of_block(TREE, [*paths, TREE, TREE + b"/not there", b"home/alicex/empty"])
    assert set(found) == set(paths)
    for path, member in found.items():
        if member.entry.type.value == "file":
            assert member.digest == world.source.digest(path, "xxh3_128").value
        entry = world.source.look(path)
        assert entry is not None
        assert same_file(member, entry)
        assert member.entry.xattrs == entry.xattrs


def test_the_limit_of_content_ends_an_archive(world: World) -> None:
    for number, size in enumerate((600, 600, 5000, 10, 10)):
        write(world.tree + b"/%d" % number, b"x" * size)
    done = world.archive(world.rows(), limits=ArchiveLimits(max_bytes=1000))
    assert (done.archives, done.members) == (4, 5)
    assert [one.written.content_bytes for one in world.ledger.archives.of_tree(TREE)] == [600, 600, 5000, 20]


def test_a_flipped_bit_is_found_by_reading_back_and_nothing_is_restored_from_it(world: World, place: Path) -> None:
    for number in range(200):
        write(world.tree + b"/%d" % number, os.urandom(2000))
    world.archive(world.rows())
    file = world.archives / "000001.tar.zst"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))
    [record] = world.ledger.archives.of_tree(TREE)
    with (
        world.folders.open(TREE) as folder,
        folder.open(b"000001.tar.zst") as stored,
        folder.open(b"000001.parquet") as i,
    ):
        assert "not the one that was written" in world.format.read_back(record, stored, i)
    done = world.restore(b".", to=place)
    assert 0 < done.not_restored < 200
    assert "is not the one that was written" in done.examples[0].reason
    assert restoring.exit_code([done]) is ExitCode.ATTENTION
    source = snapshot(world.tree)
    restored = snapshot(restored_tree(place))
    assert len(restored) == done.restored
    assert all(source[name] == facts for name, facts in restored.items())


def test_archives_are_read_again_before_what_they_hold_is_deleted(world: World) -> None:
    for number in range(3):
        write(world.tree + b"/%d" % number)
    world.archive(world.rows(), limits=ArchiveLimits(max_members=1))
    assert not world.proven.problems(TREE)
    file = world.archives / "000002.tar.zst"
    content = bytearray(file.read_bytes())
    content[-20] ^= 1
    file.write_bytes(bytes(content))
    (world.archives / "000003.tar.zst").unlink()
    assert [one.partition(":")[0] for one in world.proven.problems(TREE)] == [
        "archive 2 of home/alice",
        "archive 3 of home/alice",
    ]


def test_a_directory_of_that_name_on_the_source_refuses(world: World) -> None:
    write(world.tree + b"/file")
    write(world.tree + b"/.migrator-archive/000001.tar.zst")
    with pytest.raises(Refused, match="on the source"):
        world.archive(world.rows([b"file"]))
    assert os.listdir(world.target_path) == []


@pytest.mark.parametrize("state", [CutoverState.FREEZING, CutoverState.REVERTED])
def test_a_tree_in_a_cutover_is_left_alone(world: World, state: CutoverState) -> None:
    write(world.tree + b"/file")
    world.archive(world.rows())
    write(world.tree + b"/late")
    cutovers = world.ledger.cutovers
    user = UserTree(path=TREE, user="alice")
    begun = cutovers.plan(plan="plan", batch=1, tree=user, predicted_freeze_s=None, at_s=1.0)
    act = Act(step=CutoverStep.FREEZE, intent=CutoverState.FREEZING, result=CutoverState.FROZEN)
    step = cutovers.intend(begun.id, act, at_s=2.0, notes=CutoverNotes(frozen_top="as it was"))
    if state is CutoverState.REVERTED:
        cutovers.fail(step, "no", at_s=3.0)
        revert = Act(step=CutoverStep.REVERT, intent=CutoverState.REVERTING, result=CutoverState.REVERTED, reason="no")
        cutovers.finish(cutovers.intend(begun.id, revert, at_s=4.0), CutoverState.REVERTED, at_s=5.0)
        assert world.archive(world.rows()).members == 1
        return
    done = world.archive(world.rows())
    assert (done.members, "freezing" in done.skipped) == (0, True)
    with pytest.raises(Refused, match="nothing is restored"):
        world.restore(b"file")


def test_a_damaged_or_missing_index_refuses(world: World, place: Path) -> None:
    write(world.tree + b"/file")
    world.archive(world.rows())
    index = world.archives / "000001.parquet"
    content = bytearray(index.read_bytes())
    content[20] ^= 1
    index.write_bytes(bytes(content))
    with pytest.raises(Refused, match="not the one that was written"):
        world.restore(b"file", to=place)
    with pytest.raises(Refused):
        world.proven.of_block(TREE, [TREE + b"/file"])
    index.unlink()
    with pytest.raises(Refused):
        world.restore(b"file", to=place)


@pytest.mark.parametrize("lost", ["000001.parquet", "000001.tar.zst"])
def test_what_was_lost_before_the_switch_is_archived_again(world: World, place: Path, lost: str) -> None:
    write(world.tree + b"/file")
    world.archive(world.rows())
    (world.archives / lost).unlink()
    done = world.archive(world.rows())
    assert (done.archives, done.members, done.already) == (1, 1, 0)
    assert [one.state for one in world.ledger.archives.of_tree(TREE)] == [ArchiveState.VOID, ArchiveState.PROVEN]
    assert sorted(os.listdir(world.archives)) == ["000002.parquet", "000002.tar.zst"]
    assert world.restore(b"file", to=place).restored == 1


def test_an_archive_that_cannot_be_read_back_does_not_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write(world.tree + b"/file")
    real_publish = HeldFolder.publish

    def flip(self: HeldFolder, names: Iterable[bytes]) -> None:
        real_publish(self, names)
        file = world.archives / "000001.tar.zst"
        content = bytearray(file.read_bytes())
        content[-5] ^= 1
        file.write_bytes(bytes(content))

    monkeypatch.setattr(HeldFolder, "publish", flip)
    with pytest.raises(MigratorError, match="could not be read back"):
        world.archive(world.rows())
    assert [one.state for one in world.ledger.archives.of_tree(TREE)] == [ArchiveState.VOID]
    assert os.listdir(world.archives) == []
    assert not world.proven.of_block(TREE, [TREE + b"/file"])
    monkeypatch.undo()
    assert world.archive(world.rows()).members == 1


class CancellingSource:
    """Calls something back when the member with a number is opened."""

    def __init__(self, world: World, number: int, call: Callable[[], object]) -> None:
        self._members = world.archiving(()).members
        self._left = itertools.count(-number)
        self._call = call

    def open(self, row: ReapRow, *, settled_before_ns: int) -> OpenMember | LeftOut:
        if next(self._left) == 0:
            self._call()
        return self._members.open(row, settled_before_ns=settled_before_ns)


@pytest.mark.parametrize("number", [1, 200, 399])
def test_an_interrupted_call_leaves_no_parts_and_is_gone_on_with(world: World, number: int) -> None:
    for name in range(400):
        write(world.tree + b"/%d" % name, b"x" * 300)
    rows = world.rows()

    async def interrupted() -> None:
        loop = asyncio.get_running_loop()
        limits = ArchiveLimits(max_members=100)
        request = archive.ArchiveRequest(
            plan="plan", batch=1, trees=(UserTree(path=TREE, user="alice"),), limits=limits, settle_s=0.0
        )
        working = replace(
            world.archiving(rows),
            members=CancellingSource(world, number, lambda: loop.call_soon_threadsafe(task.cancel)),
        )
        task = asyncio.ensure_future(archive.archive_trees(request, working))
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(interrupted())
    assert not [name for name in os.listdir(world.archives) if name.endswith(".part")]
    done = world.archive(rows)
    assert done.members + done.already == 400


def test_a_target_that_fails_is_said_and_what_is_finished_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in range(10):
        write(world.tree + b"/%d" % name)
    rows = world.rows()
    real_create = HeldFolder.create

    def full(self: HeldFolder, name: bytes) -> object:
        if name.startswith(b"000003"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_create(self, name)

    monkeypatch.setattr(HeldFolder, "create", full)
    with pytest.raises(MigratorError, match="No space left"):
        world.archive(rows, limits=ArchiveLimits(max_members=3))
    world.storage = Storage(change=lambda one: replace(one, pool=CapacityPool.LOW) if one.number == 201 else one)
    with pytest.raises(MigratorError, match=r"No space left.*target_201"):
        world.archive(rows, limits=ArchiveLimits(max_members=3))
    monkeypatch.undo()
    done = world.archive(rows, limits=ArchiveLimits(max_members=3))
    assert (done.already, done.members) == (6, 4)


def test_something_else_in_an_archives_place_refuses(world: World, place: Path) -> None:
    write(world.tree + b"/file")
    world.archive(world.rows())
    (world.archives / "000001.tar.zst").unlink()
    os.mkfifo(world.archives / "000001.tar.zst")
    with pytest.raises(Refused, match="cannot be read"):
        world.restore(b"file", to=place)
    assert world.proven.problems(TREE) == ["archive 1 of home/alice: it cannot be read: not a regular file"]
    (world.archives / "000001.parquet").unlink()
    (world.archives / "000001.parquet").symlink_to("/etc/passwd")
    with pytest.raises(Refused, match="cannot be read"):
        world.restore(b"file", to=place)


def test_files_that_the_ledger_does_not_know_are_not_touched(world: World) -> None:
    write(world.tree + b"/file")
    world.target.make_parents(TREE, [])
    with world.folders.make(TREE):
        pass
    (world.archives / "000005.tar.zst").write_bytes(b"of another ledger")
    (world.archives / "000004.tar.zst.part").write_bytes(b"cut off")
    (world.archives / "readme").write_bytes(b"a note")
    world.archive(world.rows())
    assert sorted(os.listdir(world.archives)) == ["000005.tar.zst", "000006.parquet", "000006.tar.zst", "readme"]


def test_a_directory_that_is_not_roots_alone_refuses(world: World) -> None:
    write(world.tree + b"/file")
    world.archives.mkdir(parents=True, mode=0o755)
    with pytest.raises(Refused, match="not a directory of root's alone"):
        world.archive(world.rows())
    world.archives.rmdir()
    world.archives.symlink_to(world.source_path)
    with pytest.raises(Refused, match="it is no directory"):
        world.archive(world.rows())


def test_what_is_there_is_not_overwritten_unless_asked_for(world: World) -> None:
    write(world.tree + b"/docs/a", b"archived")
    write(world.tree + b"/docs/b", b"archived too")
    world.archive(world.rows())
    write(world.copy + b"/docs/a", b"of the user")
    done = world.restore(b"docs")
    assert (done.restored, done.not_restored) == (1, 1)
    assert "--overwrite" in done.examples[0].reason
    with open(world.copy + b"/docs/a", "rb") as file:
        assert file.read() == b"of the user"
    done = world.restore(b"docs", overwrite=True)
    assert (done.restored, done.not_restored) == (2, 0)
    archived = {name: facts for name, facts in snapshot(world.copy).items() if name.startswith(b"docs/")}
    assert archived == {name: facts for name, facts in snapshot(world.tree).items() if name.startswith(b"docs/")}


def test_links_are_links_again_also_over_what_is_there(world: World) -> None:
    first = write(world.tree + b"/first", b"of two names")
    os.link(first, world.tree + b"/second")
    world.archive(world.rows())
    for _ in range(2):
        assert world.restore(b"first", b"second", overwrite=True).restored == 2
        assert os.stat(world.copy + b"/first").st_ino == os.stat(world.copy + b"/second").st_ino
        assert sorted(os.listdir(world.copy)) == [b".migrator-archive", b"first", b"second"]
    os.unlink(world.copy + b"/first")  # noqa: PTH108 (the path is bytes)
    os.unlink(world.copy + b"/second")  # noqa: PTH108 (the path is bytes)
    assert world.restore(b"second").restored == 1
    with open(world.copy + b"/second", "rb") as file:
        assert file.read() == b"of two names"


def test_symlinks_and_files_in_the_way_are_refused(world: World, place: Path) -> None:
    write(world.tree + b"/docs/a")
    write(world.tree + b"/notes/b")
    world.archive(world.rows())
    os.symlink(os.fsencode(place), world.copy + b"/docs")  # noqa: PTH211 (the path is bytes)
    write(world.copy + b"/notes")
    done = world.restore(b".", overwrite=True)
    assert (done.restored, done.not_restored) == (0, 2)
    assert all("in the way" in one.reason for one in done.examples)
    assert list(place.iterdir()) == []


def test_missing_directories_are_made_for_the_owner_alone(world: World) -> None:
    write(world.tree + b"/deep/er/file")
    world.archive(world.rows())
    world.restore(b"deep/er/file")
    for name in (b"/deep", b"/deep/er"):
        made = os.stat(world.copy + name)
        assert (made.st_uid, made.st_gid, stat.S_IMODE(made.st_mode)) == (1001, 1002, 0o700)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (b"docs/a.txt", {b"docs/a.txt"}),
        (b"docs", {b"docs/a.txt", b"docs/deep/b.txt", b"docs/star*"}),
        (TREE + b"/docs/a.txt", {b"docs/a.txt"}),
        (TREE + b"/docs/*.txt", {b"docs/a.txt"}),
        (TREE, {b"docs/a.txt", b"docs/deep/b.txt", b"docs/star*", b"c.txt", b"a"}),
        (b"docs/", {b"docs/a.txt", b"docs/deep/b.txt", b"docs/star*"}),
        (b"*.txt", {b"docs/a.txt", b"docs/deep/b.txt", b"c.txt"}),
        (b"docs/*.txt", {b"docs/a.txt"}),
        (b"docs/star*", {b"docs/star*"}),
        (b"d*", {b"docs/a.txt", b"docs/deep/b.txt", b"docs/star*"}),
    ],
)
def test_paths_and_globs(world: World, place: Path, pattern: bytes, names: set[bytes]) -> None:
    for name in (b"docs/a.txt", b"docs/deep/b.txt", b"docs/star*", b"c.txt", b"a"):
        write(world.tree + b"/" + name)
    world.archive(world.rows())
    world.restore(pattern, to=place)
    assert set(snapshot(restored_tree(place), directories=False)) == names


def test_a_name_that_is_not_archived_is_said(world: World, place: Path) -> None:
    write(world.tree + b"/file")
    world.archive(world.rows())
    with pytest.raises(UsageError, match="nothing that is archived"):
        world.restore(b"fil", b"*.txt", to=place)


def test_another_mount_refuses_before_anything_is_written(world: World) -> None:
    write(world.tree + b"/file")
    site = world.ledger.site.read()
    assert site is not None
    world.ledger.site.update_identities(site.source, replace(site.target, root_ino=1))
    with pytest.raises(Refused, match="nothing is archived"):
        world.archive(world.rows())
    assert os.listdir(world.target_path) == []


def test_rows_that_never_were_are_left_out(world: World) -> None:
    write(world.tree + b"/file")
    done = world.archive([changed(row) for row in world.rows()])
    assert dict(done.left_out) == {"changed": 1}


def test_paths_of_archives_are_known(world: World) -> None:
    assert is_archive_path(TREE, archive_directory(TREE))
    assert is_archive_path(TREE, TREE + b"/.migrator-archive/000001.tar.zst")
    assert not is_archive_path(TREE, TREE + b"/.migrator-archives")
    assert not is_archive_path(TREE, TREE + b"/docs/.migrator-archive")
    assert len(HOSTILE) == len(set(HOSTILE))
