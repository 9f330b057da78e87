"""Archives of real files: what goes into them, what is left out, and what their index says."""

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.entry import Entry
from migrator.core.errors import ExitCode
from migrator.reap import archive, files
from migrator.reap import model as reap
from migrator.reap.files import OpenMember
from tests.reap.archive_world import (
    TREE,
    World,
    restored_tree,
    write,
)
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
    assert [one.written.content_bytes for one in world.ledger.archives.of_tree(TREE)] == [600, 600, 5000, 20]
