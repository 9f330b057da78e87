"""What every walker of bricks finds: the same suite for the release, and for the program under sanitizers."""

import os
from typing import Any
from uuid import UUID

import pytest

from migrator.lab.model import OddKind
from migrator.lab.odd import odd_files
from tests.gluster.walks import Walk
from tests.support.hand_brick import GFID, LINKTO, HandBrick

pytestmark = pytest.mark.needs_root


def without_atime(rows: dict[bytes, dict[str, Any]], brick: HandBrick) -> dict[bytes, dict[str, Any]]:
    """A directory's and a symlink's own time of access may change with every look."""
    with_times = {brick.gfids[inode] for inode in brick.times}
    return {
        path: {**row, "atime_ns": 0}
        if row["type"] in ("directory", "symlink") and row["gfid"] not in with_times
        else row
        for path, row in rows.items()
    }


def test_everything_odd_is_a_row_as_stat_and_the_attributes_have_it(brick: HandBrick, walk: Walk) -> None:
    home = brick.root / "home"
    for name in ("odd", "other", "empty"):
        (home / name).mkdir(parents=True)
    odd = odd_files(os.fsencode(home / "odd"), neighbour=os.fsencode(home / "other"), source_mount=b"/somewhere")
    assert max(map(len, odd.paths[OddKind.DEEP_PATH])) > 4096
    (brick.root / ".migrator-sentinel").write_text("site")
    (home / ".migrator-sentinel").write_text("a user's own")
    (brick.root / ".migrator-purge/cutover-000001").mkdir(parents=True)
    (home / ".migrator-purge").mkdir()
    (brick.root / ".migrator-bench").mkdir()
    (brick.root / ".migrator-bench/file").touch()
    (brick.root / ".migrator-probe").mkdir()
    (brick.root / ".migrator-probe/entry-00").touch()
    (home / ".migrator-probe").mkdir()
    (brick.root / ".glusterfs-anonymous-inode-0000").mkdir()
    (home / ".glusterfs-anonymous-inode-0000").mkdir()
    os.setxattr(home / "empty", "user.big", b"v" * 60_000)
    os.setxattr(home / "empty", "trusted.md5sum", b"somebody's")
    os.setxattr(home / "empty", "trusted.glusterfs.quota.size", b"Gluster's")
    brick.adopt()
    trees = (b"home/other", b"home/odd", b"home/no-such")
    for times in ("mdata", "file"):
        walked = walk(brick.root, trees=trees, times=times, block_rows=64)
        assert (walked.exit_code, walked.stderr, walked.failed, walked.ask) == (0, "", [], [])
        expected = brick.rows(trees, from_mdata=times == "mdata")
        if times == "file":
            brick.times.clear()
        assert without_atime(walked.rows, brick) == without_atime(expected, brick)
        assert max(walked.blocks) == 64
        assert walked.end is not None
        kinds = [row["type"] for row in walked.rows.values()]
        assert (walked.end.rows, walked.end.directories) == (
            len(kinds) - kinds.count("directory"),
            kinds.count("directory"),
        )
        assert walked.end.vanished == walked.end.migrating == walked.end.filling_links == walked.end.problems == 0
    assert {row["tree"] for row in walked.rows.values()} == {None, *trees[:2]}
    assert walked.rows[b"home/empty"]["xattr_kinds"] == 1 | 32
    assert b"home/odd/odd/name-glusterfs/.glusterfs/00/00/00000000-0000-0000-0000-000000000001" in walked.rows


def test_what_gluster_left_in_the_way_of_data(brick: HandBrick, walk: Walk) -> None:
    brick.file("link", b"", mode=0o1000, linkto=True)
    brick.file("filling", b"half of it", mode=0o1000, linkto=True)
    brick.file("sticky-but-data", b"data", mode=0o1000)
    brick.file("stale", b"data", mode=0o644, linkto=True)
    brick.file("migrating", b"data", mode=0o3644, linkto=True)
    brick.file("migrating-and-empty", b"", mode=0o3644, linkto=True)
    brick.file("setgid-and-sticky-of-its-own", b"data", mode=0o3755)
    brick.file("setgid-and-stale", b"data", mode=0o2755, linkto=True)
    brick.file("ambiguous", b"", mode=0o644, linkto=True)
    (brick.root / "sticky").mkdir(mode=0o1000)
    (brick.root / "sticky").chmod(0o1000)
    os.setxattr(brick.root / "sticky", LINKTO, b"on a directory it means nothing\0")
    brick.adopt()
    walked = walk(brick.root)
    assert walked.hello is not None
    assert (walked.hello.volume_id, walked.hello.device) == (str(UUID(int=1)), brick.root.stat().st_dev)
    assert {path: row["mode"] for path, row in walked.rows.items()} == {
        b"sticky-but-data": 0o1000,
        b"stale": 0o644,
        b"migrating": 0o644,
        b"migrating-and-empty": 0o644,
        b"setgid-and-sticky-of-its-own": 0o3755,
        b"setgid-and-stale": 0o2755,
        b"sticky": 0o1000,
    }
    assert [(problem.path, problem.operation, problem.errno) for problem in walked.ask] == [
        (b"ambiguous", "ask-the-mount", None)
    ]
    assert walked.end is not None
    assert (walked.end.migrating, walked.end.filling_links, walked.end.ask_the_mount) == (2, 1, 1)
    assert walked.failed == []
    assert walked.end.hidden_marks == 0
    # The mount of several subvolumes takes both bits for Gluster's own, on files alone.
    several = walk(brick.root, distributed=True)
    assert several.rows[b"setgid-and-sticky-of-its-own"]["mode"] == 0o755
    assert several.end is not None
    assert several.end.hidden_marks == 1
    others = walked.rows.keys() - {b"setgid-and-sticky-of-its-own"}
    assert all(several.rows[path]["mode"] == walked.rows[path]["mode"] for path in others)


def test_what_was_put_there_past_gluster_is_strange_and_nobody_is_asked_for_it(brick: HandBrick, walk: Walk) -> None:
    brick.file("directory/known")
    brick.adopt()
    brick.file("directory/unknown")
    brick.file("placed/inside")
    brick.file("ambiguous", b"", linkto=True)
    brick.file("short")
    os.setxattr(brick.root / "short", GFID, b"too short")
    walked = walk(brick.root)
    assert set(walked.rows) == {b"directory", b"directory/known"}
    strange = {b"directory/unknown", b"placed", b"placed/inside", b"ambiguous", b"short"}
    assert {problem.path for problem in walked.strange} == strange
    assert (walked.ask, walked.failed) == ([], [])
    assert walked.end is not None
    assert (walked.end.strange, walked.end.ask_the_mount, walked.end.problems) == (5, 0, 5)


def test_wide_and_deep_trees_are_whole_with_any_number_of_workers(brick: HandBrick, walk: Walk) -> None:
    for number in range(1500):
        (brick.root / "wide" / f"directory-{number}" / "beneath").mkdir(parents=True)
    for number in range(12_000):
        os.close(os.open(brick.root / "wide" / f"{number:0200}", os.O_CREAT | os.O_WRONLY))
    fd = os.open(brick.root, os.O_RDONLY)
    for level in range(600):
        for name in ("x", "deeper"):
            os.mkdir(name, dir_fd=fd)
        below = os.open("deeper", os.O_RDONLY, dir_fd=fd)
        os.close(os.open(f"file-{level}", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
        os.close(fd)
        fd = below
    os.close(fd)
    brick.adopt()
    expected = without_atime(brick.rows((b"wide",)), brick)
    for workers in (1, 2, 7):
        walked = walk(brick.root, trees=[b"wide"], workers=workers)
        assert (walked.exit_code, walked.failed) == (0, [])
        assert without_atime(walked.rows, brick) == expected


def test_of_some_trees_alone_nothing_else_is_looked_at(brick: HandBrick, walk: Walk) -> None:
    trees = (b"home/a/deep/x", b"home/a-b", b"home/\xff\nodd", b"top", b"home/no-such", b"home/is-a-file/y")
    inside = trees[:4]
    for tree in inside:
        for name in ("file", ".migrator-sentinel", "home/a/deep/x/file", "top/file"):
            brick.file(os.fsdecode(tree) + "/" + name)
    for name in (
        *("outside", "home/file", "home/is-a-file", "home/a/file", "home/a/deep/y/file", "home/a/deep/xx/file"),
        *("home/a-bc/file", "home/a-/file", "home/a.b/file", "home/ab/file", "topmost/file", "to/file", "hom/a-b/file"),
        *("home/top/file", "a-b/file", "a/deep/x/file"),
    ):
        brick.file(name)
    (brick.root / ".migrator-sentinel").write_text("site")
    os.link(brick.root / "home" / "a" / "file", brick.root / "home" / "a-b" / "another name of it")
    brick.adopt()
    # A walk of the whole brick would ask the mount about it.
    os.removexattr(brick.root / "home" / "file", GFID)
    ways = {b"home", b"home/a", b"home/a/deep", b"home/is-a-file"}
    for workers in (1, 3):
        walked = walk(brick.root, trees=trees, only_trees=True, workers=workers, block_rows=7)
        assert (walked.exit_code, walked.stderr, walked.failed, walked.ask) == (0, "", [], [])
        expected = {
            path: row
            for path, row in brick.rows(trees).items()
            if path in ways or any(path == tree or path.startswith(tree + b"/") for tree in inside)
        }
        assert without_atime(walked.rows, brick) == without_atime(expected, brick)
        assert {path for path, row in walked.rows.items() if row["tree"] is None} == ways
        assert walked.rows[b"home/a-b/another name of it"]["nlink"] == 2
    nothing = walk(brick.root, only_trees=True)
    assert (nothing.exit_code, nothing.rows, nothing.failed, nothing.ask) == (0, {}, [], [])
    assert nothing.end is not None


def test_what_the_program_keeps_in_the_root_is_listed_where_that_is_asked_for(brick: HandBrick, walk: Walk) -> None:
    own = {
        b".migrator-sentinel",
        b".migrator-purge/cutover-000001/kept",
        b".migrator-bench/file",
        b".migrator-probe/entry-00",
    }
    for path in (*own, b"home/file"):
        brick.file(os.fsdecode(path))
    brick.file(".glusterfs-anonymous-inode-0000/file")
    brick.adopt()
    for number, path in enumerate(sorted(own)):
        os.setxattr(brick.root / os.fsdecode(path), GFID, number.to_bytes(16, "big"))
    for asked in (False, True):
        walked = walk(brick.root, own=asked)
        files = {path for path, row in walked.rows.items() if row["type"] != "directory"}
        assert files == {b"home/file"} | (own if asked else set())
