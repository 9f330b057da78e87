"""Archives of old and tiny files: what they hold, what comes back, and what keeps one from counting."""

import asyncio
import errno
import itertools
import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.beegfs.model import CapacityPool
from migrator.core.entry import Entry, UserTree
from migrator.core.errors import ExitCode, MigratorError, Refused, UsageError
from migrator.cutover.model import CutoverState
from migrator.fs.kinds.table import KINDS
from migrator.fs.reading import PosixSource
from migrator.fs.rules_owners import owner_map
from migrator.hosts.process import LocalProcesses
from migrator.reap import archive, files
from migrator.reap import model as reap
from migrator.reap import restore as restoring
from migrator.reap.files import HeldFolder, MemberReader, MountedArchiveFolders, OpenMember
from migrator.reap.model import ArchiveLimits, ArchiveState, LeftOut, ReapRow
from migrator.site.filesystem import FileSystemCommand
from tests.beegfs.test_storage_outages import Storage
from tests.reap.archive_world import (
    ALGORITHM,
    TREE,
    World,
    flip_bit,
    make_odd_tree,
    restored_tree,
    write,
)
from tests.support.operations import FREEZE, REVERT, TOPS, act, do, plan_cutover
from tests.support.snapshots import snapshot

pytestmark = pytest.mark.needs_root


def test_archives_are_closed_until_they_are_handed_over(world: World) -> None:
    def owners() -> list[tuple[int, int, int]]:
        facts = (os.stat(path) for path in (world.archives, *world.archives.iterdir()))
        return [(one.st_uid, one.st_gid, stat.S_IMODE(one.st_mode)) for one in facts]

    write(world.tree + b"/file")
    world.archive(world.rows())
    assert owners() == [(0, 0, 0o700), (0, 0, 0o600), (0, 0, 0o600)]
    for _ in range(2):
        world.folders.hand_over(TREE, uid=1001, gid=1002)
    assert owners() == [(1001, 1002, 0o500), (1001, 1002, 0o400), (1001, 1002, 0o400)]
    assert list(world.proven.of_block(TREE, [TREE + b"/file"])) == [TREE + b"/file"]
    world.folders.take_back(TREE)
    assert owners() == [(0, 0, 0o700), (0, 0, 0o600), (0, 0, 0o600)]
    world.folders.hand_over(b"home/nobody", uid=1, gid=1)
    mapped = MountedArchiveFolders(world.target.root, 7, owners=owner_map([(1001, 2001)], [(1002, 2002)]))
    mapped.hand_over(TREE, uid=1001, gid=1002)
    assert owners() == [(2001, 2002, 0o500), (2001, 2002, 0o400), (2001, 2002, 0o400)]


def test_files_are_restored_with_the_numbers_of_the_target(world: World) -> None:
    write(world.tree + b"/docs/a")
    os.chown(world.tree + b"/docs/a", 1001, 1002)
    world.archive(world.rows())
    world.owners = owner_map([(1001, 2001)], [(1002, 2002)])
    assert world.restore(b"docs").restored == 1
    for path in (b"/docs", b"/docs/a"):
        facts = os.stat(world.copy + path)
        assert (facts.st_uid, facts.st_gid) == (2001, 2002)


def test_files_are_archived_where_inode_numbers_are_not_trusted(world: World) -> None:
    """Their entries have devices that are made up."""
    source = PosixSource(os.fsencode(world.source_path), FileSystemCommand(KINDS["eos"], b"/", LocalProcesses()))
    world.members = MemberReader(source, algorithm=ALGORITHM)
    write(world.tree + b"/small")
    write(world.tree + b"/large", b"x" * (files.HELD_BYTES + 1))
    assert (world.archive(world.rows()).left_out, len(list(world.archives.iterdir()))) == ({}, 2)
    source.close()


def test_files_changed_or_deleted_since_the_list_are_left_out(world: World) -> None:
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
        TREE + b"/changed": reap.LeftOutReason.CHANGED,
        TREE + b"/replaced": reap.LeftOutReason.CHANGED,
        TREE + b"/gone": reap.LeftOutReason.VANISHED,
    }
    assert archive.exit_code([done]) is ExitCode.DONE
    assert list(world.proven.of_block(TREE, [row.path for row in rows])) == [TREE + b"/stays"]
    write(world.tree + b"/fresh")
    done = world.archive(world.rows([b"fresh"]), settle_s=3600)
    assert (done.members, dict(done.left_out)) == (0, {"fresh": 1})
    assert sorted(os.listdir(world.archives)) == ["000001.parquet", "000001.tar.zst"]
    assert archive.exit_code([done]) is ExitCode.ATTENTION


class ChangingMember(OpenMember):
    """A large file that is written to when some of it has been read."""

    def pieces(self) -> Iterator[bytes]:
        for number, piece in enumerate(super().pieces()):
            yield piece
            if number == 0:
                with open(f"/proc/self/fd/{self._fd}", "r+b") as file:
                    file.write(b"changed")


def test_a_large_file_that_changes_while_it_is_packed_leaves_no_trace(
    world: World, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (b"a", b"b changing", b"c", b"d changing", b"e"):
        write(world.tree + b"/" + name, os.urandom(9_000_000 if b"changing" in name else 1000))
    rows = world.rows()

    def member(entry: Entry, fd: int, algorithm: str) -> OpenMember:
        return (ChangingMember if b"changing" in entry.path else OpenMember)(entry, fd, algorithm)

    monkeypatch.setattr(files, "OpenMember", member)
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
        assert reap.same_file(member, entry)
    world.restore(b".", to=place)
    assert snapshot(restored_tree(place)) == snapshot(world.tree)


def test_the_limit_of_content_ends_an_archive(world: World) -> None:
    for number, size in enumerate((600, 600, 5000, 10, 10)):
        write(world.tree + b"/%d" % number, b"x" * size)
    done = world.archive(world.rows(), limits=reap.ArchiveLimits(max_bytes=1000))
    assert (done.archives, done.members) == (4, 5)
    assert [one.written.content_bytes for one in world.ledger.archives.of_tree(TREE)] == [
        600,
        600,
        5000,
        20,
    ]


def test_everything_odd_comes_back_exactly(world: World, place: Path) -> None:
    make_odd_tree(world.tree)
    os.setxattr(world.tree + b"/attributes", b"user.\xff=%", b"\xfe\n21 hdrcharset=x\n")
    before = snapshot(world.tree, directories=False)
    done = world.archive(world.rows())
    assert (done.archives, done.members, dict(done.left_out)) == (1, len(before), {})
    listed = ["tar", "--zstd", "-tf", str(world.archives / "000001.tar.zst")]
    subprocess.run(listed, check=True, capture_output=True)
    assert world.restore(b"", to=place).restored == len(before)
    assert snapshot(restored_tree(place), directories=False) == before
    restored = os.stat(restored_tree(place) + b"/sparse")
    assert restored.st_blocks * 512 < restored.st_size
    # Access times, which a snapshot leaves out, are neither changed on the source.
    for tree in (world.tree, restored_tree(place)):
        assert os.stat(tree + b"/before-1970").st_atime_ns == -499_999_993


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
    assert snapshot(os.fsencode(place), directories=False) == snapshot(world.tree, directories=False)


def test_existing_files_are_overwritten_only_on_request(world: World) -> None:
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
    with pytest.raises(UsageError, match="nothing that is archived"):
        world.restore(b"a.tx", b"*.tx", to=place)


def test_a_flipped_bit_is_found_by_reading_back_and_nothing_is_restored_from_it(world: World, place: Path) -> None:
    for number in range(200):
        write(world.tree + b"/%d" % number, os.urandom(2000))
    world.archive(world.rows())
    file = world.archives / "000001.tar.zst"
    flip_bit(file, file.stat().st_size // 2)
    assert "not the one that was written" in world.proven.problems(TREE)[0]
    done = world.restore(b".", to=place)
    assert 0 < done.not_restored < 200
    assert "is not the one that was written" in done.examples[0].reason
    assert restoring.exit_code([done]) is ExitCode.ATTENTION
    source = snapshot(world.tree)
    restored = snapshot(restored_tree(place))
    assert len(restored) == done.restored
    assert all(source[name] == facts for name, facts in restored.items())


@pytest.mark.guarantee("archives")
def test_archives_are_read_again_before_what_they_hold_is_deleted(world: World) -> None:
    for number in range(3):
        write(world.tree + b"/%d" % number)
    world.archive(world.rows(), limits=ArchiveLimits(max_members=1))
    assert not world.proven.problems(TREE)
    flip_bit(world.archives / "000002.tar.zst", -20)
    (world.archives / "000003.tar.zst").unlink()
    assert [one.partition(":")[0] for one in world.proven.problems(TREE)] == [
        "archive 2 of home/alice",
        "archive 3 of home/alice",
    ]


def test_a_directory_of_that_name_on_the_source_refuses(world: World) -> None:
    write(world.tree + b"/file")
    write(os.fsencode(world.source_path) + b"/" + world.folders.path(TREE) + b"/000001.tar.zst")
    with pytest.raises(Refused, match="on the source"):
        world.archive(world.rows([b"file"]))
    assert os.listdir(world.target_path) == []


@pytest.mark.parametrize("state", [CutoverState.FREEZING, CutoverState.REVERTED])
def test_a_tree_in_a_cutover_is_left_alone(world: World, state: CutoverState) -> None:
    write(world.tree + b"/file")
    world.archive(world.rows())
    write(world.tree + b"/late")
    cutovers = world.ledger.cutovers
    begun = plan_cutover(world.ledger, name="plan", tree=UserTree(path=TREE, user="alice"))
    step = cutovers.intend(begun.id, act(FREEZE), at_s=2.0, notes=TOPS)
    if state is CutoverState.REVERTED:
        do(cutovers, cutovers.fail(step, "no", at_s=3.0), REVERT, reason="no")
        assert world.archive(world.rows()).members == 1
        return
    done = world.archive(world.rows())
    assert (done.members, "freezing" in done.skipped) == (0, True)
    with pytest.raises(Refused, match="nothing is restored"):
        world.restore(b"file")


def test_a_damaged_or_missing_index_and_something_else_in_an_archives_place_refuse(world: World, place: Path) -> None:
    write(world.tree + b"/file")
    world.archive(world.rows())
    index, packed = world.archives / "000001.parquet", world.archives / "000001.tar.zst"
    flip_bit(index, 20)
    for ask in (lambda: world.restore(b"file", to=place), lambda: world.proven.of_block(TREE, [TREE + b"/file"])):
        with pytest.raises(Refused, match="not the one that was written"):
            ask()
    flip_bit(index, 20)
    packed.unlink()
    os.mkfifo(packed)
    with pytest.raises(Refused, match="cannot be read"):
        world.restore(b"file", to=place)
    assert world.proven.problems(TREE) == ["archive 1 of home/alice: it cannot be read: not a regular file"]
    index.unlink()
    with pytest.raises(Refused, match="cannot be read"):
        world.restore(b"file", to=place)
    index.symlink_to("/etc/passwd")
    with pytest.raises(Refused, match="cannot be read"):
        world.restore(b"file", to=place)


@pytest.mark.parametrize("lost", ["000001.parquet", "000001.tar.zst"])
def test_archives_lost_before_the_switch_are_written_again(world: World, place: Path, lost: str) -> None:
    write(world.tree + b"/file")
    world.archive(world.rows())
    (world.archives / lost).unlink()
    done = world.archive(world.rows())
    assert (done.archives, done.members, done.already) == (1, 1, 0)
    assert [one.state for one in world.ledger.archives.of_tree(TREE)] == [
        ArchiveState.VOID,
        ArchiveState.PROVEN,
    ]
    assert sorted(os.listdir(world.archives)) == ["000002.parquet", "000002.tar.zst"]
    assert world.restore(b"file", to=place).restored == 1


@pytest.mark.guarantee("archives")
def test_an_archive_that_cannot_be_read_back_does_not_count(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    write(world.tree + b"/file")
    real_publish = HeldFolder.publish

    def flip(self: HeldFolder, names: Iterable[bytes]) -> None:
        real_publish(self, names)
        flip_bit(world.archives / "000001.tar.zst", -5)

    monkeypatch.setattr(HeldFolder, "publish", flip)
    with pytest.raises(MigratorError, match="could not be read back"):
        world.archive(world.rows())
    assert [one.state for one in world.ledger.archives.of_tree(TREE)] == [ArchiveState.VOID]
    assert os.listdir(world.archives) == []
    assert not world.proven.of_block(TREE, [TREE + b"/file"])
    monkeypatch.undo()
    assert world.archive(world.rows()).members == 1


class CancellingReader(MemberReader):
    """Calls something back when the member with a number is opened."""

    def __init__(self, world: World, number: int, call: Callable[[], object]) -> None:
        super().__init__(world.source, algorithm=ALGORITHM)
        self._left = itertools.count(-number)
        self._call = call

    def open(self, row: ReapRow, *, settled_before_ns: int) -> OpenMember | LeftOut:
        if next(self._left) == 0:
            self._call()
        return super().open(row, settled_before_ns=settled_before_ns)


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
            members=CancellingReader(world, number, lambda: loop.call_soon_threadsafe(task.cancel)),
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


def test_another_mount_refuses_before_anything_is_written(world: World) -> None:
    write(world.tree + b"/file")
    site = world.ledger.site.read()
    assert site is not None
    world.ledger.site.update_identities(site.source, replace(site.target, root_ino=1))
    with pytest.raises(Refused, match="nothing is archived"):
        world.archive(world.rows())
    assert os.listdir(world.target_path) == []
