"""What every walker of bricks finds, what it cannot read, and which copies lack something (as GlusterFS 10.3 marks them)."""

import asyncio
import errno
import os
import random
import shutil
import struct
import subprocess
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from migrator.catalog.copy_digests import read_lines
from migrator.core.units import MIB
from migrator.fs.beneath import Root, held
from migrator.fs.reading import digest_of
from migrator.gluster import far_blamed
from migrator.gluster.model import Brick, PlaceSeen
from migrator.gluster.probes import blamed_in_set, probe_new_places, probe_places
from migrator.lab.model import OddKind
from migrator.lab.odd import odd_files
from tests.conftest import MakeXfs
from tests.gluster.walks import Walk
from tests.support.hand_brick import GFID, LINKTO, MDATA, HandBrick, mdata
from tests.support.one_host import OneHost
from tests.support.volumes import brick as brick_of
from tests.support.volumes import volume
from tests.support.xfs import run_tool

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


def test_gluster_leftovers_in_the_way_of_data_are_classified(brick: HandBrick, walk: Walk) -> None:
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
    # An audit names what is left.
    audited = walk(brick.root, own=True)
    assert audited.end is not None
    assert (sorted(problem.path for problem in audited.ask), audited.end.marked) == ([b"ambiguous", b"filling"], 0)
    marked = walk(brick.root, more=["--marks"])
    assert {(problem.path, problem.operation) for problem in marked.marked} == {
        (b"filling", "link-with-content"),
        (b"migrating", "migration"),
        (b"migrating-and-empty", "migration"),
    }
    assert marked.rows == walked.rows
    # The mount of several subvolumes takes both bits for Gluster's own, on files alone.
    several = walk(brick.root, distributed=True)
    assert several.rows[b"setgid-and-sticky-of-its-own"]["mode"] == 0o755
    assert several.end is not None
    assert several.end.hidden_marks == 1
    others = walked.rows.keys() - {b"setgid-and-sticky-of-its-own"}
    assert all(several.rows[path]["mode"] == walked.rows[path]["mode"] for path in others)


@pytest.mark.parametrize("times", ["mdata", "file"])
def test_digests_have_the_facts_that_rows_have(
    brick: HandBrick, walk: Walk, walker_argv: list[str], times: str
) -> None:
    (brick.root / "home/odd").mkdir(parents=True)
    (brick.root / "home/other").mkdir()
    odd_files(
        os.fsencode(brick.root / "home/odd"), neighbour=os.fsencode(brick.root / "home/other"), source_mount=b"/m"
    )
    brick.file("large", random.Random(1).randbytes(3 * MIB + 5))
    brick.file("migrating", b"data", mode=0o3644, linkto=True)
    brick.file("link", b"", mode=0o1000, linkto=True)
    brick.adopt()
    rows = walk(brick.root, times=times).rows
    brick.file("without a gfid")
    names = [*rows, b"link", b"without a gfid", b"gone/or never there"]
    argv = [
        *walker_argv,
        "digest",
        "--tree",
        str(brick.root),
        "--brick",
        *(["--times", "mdata"] if times == "mdata" else []),
    ]
    listed = b"".join(b":" + name + b"\0" for name in names)
    done = subprocess.run(argv, input=listed, capture_output=True, check=True)
    found = {names[row.pop("place")]: row for row in read_lines(done.stdout).to_pylist()}
    files = {path: row for path, row in rows.items() if row["type"] == "file" and path != b"migrating"}
    assert sum(line.startswith(b"D ") for line in done.stdout.splitlines()) == len(found)
    digests = {path: row.pop("digest") for path, row in found.items()}
    assert found == {
        path: {name: row[name] for name in ("ino", "size", "mtime_ns", "ctime_ns")} for path, row in files.items()
    }
    with Root(os.fsencode(brick.root)) as root:
        for path, digest in digests.items():
            with held(root.open(path, os.O_RDONLY)) as fd:
                assert bytes.fromhex(digest.decode()) == digest_of(fd, "xxh3_128", path).value


def test_entries_placed_past_gluster_are_strange_and_not_looked_up(brick: HandBrick, walk: Walk) -> None:
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


def test_the_programs_own_files_in_the_root_are_listed_on_request(brick: HandBrick, walk: Walk) -> None:
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


def test_times_that_cannot_be_told_are_problems(brick: HandBrick, walk: Walk) -> None:
    for name in ("short", "version", "nanoseconds", "far", "early", "good"):
        brick.file(name)
    brick.adopt()
    good = mdata(-1, -2_000_000_001, 3)
    values = {
        "short": good[:-1],
        "version": b"\2" + good[1:],
        "nanoseconds": good[:-8] + struct.pack(">Q", 1_000_000_000),
        "far": struct.pack(">BQ6q", 1, 0, *[2**62, 0] * 3),
        "early": struct.pack(">BQ6q", 1, 0, *[-(2**62), 5] * 3),
        "good": good,
    }
    for name, value in values.items():
        os.setxattr(brick.root / name, MDATA, value)
    walked = walk(brick.root)
    row = walked.rows[b"good"]
    assert (row["ctime_ns"], row["mtime_ns"], row["atime_ns"]) == (-1, -2_000_000_001, 3)
    for name in ("short", "version", "nanoseconds"):
        assert walked.rows[name.encode()]["mtime_ns"] == (brick.root / name).stat().st_mtime_ns
    assert walked.rows[b"far"]["mtime_ns"] == 2**63 - 1
    assert walked.rows[b"early"]["mtime_ns"] == -(2**63)
    unknown = "trusted.glusterfs.mdata has a form that is not known"
    assert sorted((problem.path, problem.operation, problem.reason) for problem in walked.failed) == [
        (b"nanoseconds", "times", unknown),
        (b"short", "times", unknown),
        (b"version", "times", unknown),
    ]


def test_a_mount_point_beneath_is_reported_and_not_entered(brick: HandBrick, walk: Walk) -> None:
    other, bound = brick.root / "home" / "other file system", brick.root / "home" / "bound"
    other.mkdir(parents=True)
    bound.mkdir()
    brick.file("home/elsewhere/inside")
    brick.adopt()
    with ExitStack() as stack:
        for place, argv in (
            (other, ("-t", "tmpfs", "none")),
            (bound, ("--bind", str(brick.root / "home" / "elsewhere"))),
        ):
            run_tool("mount", *argv, str(place))
            stack.callback(run_tool, "umount", str(place))
        (other / "foreign").write_text("x")
        walked = walk(brick.root)
    assert set(walked.rows) == {b"home", b"home/elsewhere", b"home/elsewhere/inside"}
    assert {(problem.path, problem.errno) for problem in walked.failed} == {
        (b"home/bound", errno.EXDEV),
        (b"home/other file system", errno.EXDEV),
    }


def test_a_root_that_is_no_bricks_is_refused(brick: HandBrick, walk: Walk) -> None:
    brick.file("file")
    brick.adopt()
    for spoil in (
        lambda: (brick.root / ".glusterfs").rename(brick.root / "moved"),
        lambda: os.removexattr(brick.root, "trusted.glusterfs.volume-id"),
    ):
        spoil()
        walked = walk(brick.root)
        assert (walked.exit_code, walked.rows, walked.end) == (3, {}, None)
        assert "is its file system mounted?" in walked.stderr
    assert walked.hello is not None
    assert (walked.hello.volume_id, walked.hello.root_gfid) == (None, bytes(15) + b"\1")


def failures_by_strace(call: str, injected: str) -> list[str]:
    """Makes calls of a program fail; where strace is."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    return ["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:{injected}"]


# The leak sanitizer traces its own process, and so does strace.
not_sanitized = pytest.mark.parametrize("walker_argv", ["native"], indirect=True)


@not_sanitized
@pytest.mark.parametrize(
    "case",
    [("llistxattr", "xattrs", b"d/file"), ("readlink", "readlink", b"d/link"), ("fchdir", "open", b"d/file")],
    ids=lambda case: case[0],
)
def test_an_error_is_a_row_of_its_own_and_the_walk_goes_on(
    brick: HandBrick, walk: Walk, case: tuple[str, str, bytes]
) -> None:
    call, operation, lost = case
    brick.file("d/file")
    (brick.root / "d" / "link").symlink_to("file")
    brick.adopt()
    # Every call of its kind fails: only what needs none is left.
    walked = walk(brick.root, workers=1, wrapper=failures_by_strace(call, "error=EIO"))
    assert walked.exit_code == 0
    assert walked.end is not None
    assert lost not in walked.rows
    assert {(problem.operation, problem.errno, problem.reason) for problem in walked.failed} >= {
        (operation, errno.EIO, os.strerror(errno.EIO))
    }
    assert walked.end.problems == len(walked.failed)


@not_sanitized
def test_an_entry_that_gluster_is_creating_is_read_again(brick: HandBrick, walk: Walk) -> None:
    """As between the two calls by which a brick makes a file: it has its gfid only at the second look."""
    brick.file("new")
    brick.adopt()
    walked = walk(brick.root, workers=1, wrapper=failures_by_strace("llistxattr", "retval=0:when=1"))
    assert walked.end is not None
    assert (set(walked.rows), walked.strange, walked.failed) == ({b"new"}, [], [])
    walked = walk(brick.root, workers=1, wrapper=failures_by_strace("llistxattr", "retval=0"))
    assert [problem.path for problem in walked.strange] == [b"new"]


@not_sanitized
def test_a_vanished_entry_is_counted_and_is_no_problem(brick: HandBrick, walk: Walk) -> None:
    for number in range(5):
        brick.file(f"file-{number}")
    brick.adopt()
    walked = walk(brick.root, workers=1, wrapper=failures_by_strace("llistxattr", "error=ENOENT:when=2+2"))
    assert walked.end is not None
    assert (walked.failed, walked.end.vanished, len(walked.rows)) == ([], 2, 3)


def test_a_wrong_call_is_refused_with_words(brick: HandBrick, walker_argv: list[str]) -> None:
    right = ["walk", "--brick", str(brick.root), "--times", "mdata"]
    for argv, given in (
        (["walk"], b""),
        ([*right[:-1], "guessed"], b""),
        ([*right, "--workers", "0"], b""),
        ([*right, "--workers", "x"], b""),
        ([*right, "--block-rows", "-1"], b""),
        ([*right, "more"], b""),
        ([*right, "--unknown"], b""),
        ([*right, "--only-trees=home"], b""),
        ([*right, "--only-trees"], b"home/cut"),
        (right, b"home/cut"),
    ):
        done = subprocess.run([*walker_argv, *argv], input=given, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (2, b""), argv
        assert done.stderr
    gone = subprocess.run(
        [*walker_argv, *right[:2], "/no/such", *right[3:]], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert (gone.returncode, gone.stdout) == (1, b"")
    assert b"/no/such: No such file or directory" in gone.stderr


CLIENTS = {b"vol1-client-0": "gl1:/srv/b", b"vol1-client-7": "gl2:/srv/b", b"vol1-client-2": "gl3:/srv/b"}
DATA, ENTRY, NOTHING = b"\0\0\0\1" + bytes(8), bytes(8) + b"\0\0\0\2", bytes(12)


def waits(brick: HandBrick, path: Path, pending: dict[str, bytes]) -> str:
    """Have an entry wait to be healed, as Gluster does: in the index by its identity, and on itself what which copy lacks."""
    gfid = str(uuid.uuid4())
    store = brick.root / ".glusterfs" / gfid[:2] / gfid[2:4]
    store.mkdir(parents=True)
    if path.is_dir() and not path.is_symlink():
        (store / gfid).symlink_to(f"../../00/00/{uuid.UUID(int=1)}/{path.name}")
    else:
        os.link(path, store / gfid, follow_symlinks=False)
    for name, value in pending.items():
        os.setxattr(path, f"trusted.afr.{name}", value, follow_symlinks=False)
    (brick.root / ".glusterfs/indices/xattrop" / gfid).touch()
    return gfid


def blamed(brick: HandBrick) -> dict[str, int]:
    return far_blamed.blamed(os.fsencode(brick.root), CLIENTS, "gl1:/srv/b")


def test_missed_changes_of_each_copy_are_counted_by_entry(brick: HandBrick) -> None:
    root = brick.root / ".glusterfs" / "00" / "00"
    root.mkdir(parents=True)
    (root / str(uuid.UUID(int=1))).symlink_to("../../..")
    (brick.root / ".glusterfs/indices/xattrop" / f"xattrop-{uuid.uuid4()}").touch()
    assert blamed(brick) == {}
    (brick.root / "home").mkdir()
    (brick.root / "a").write_text("a")
    (brick.root / "b").write_text("b")
    # A symlink of a user: what it leads to is nobody's copy.
    (brick.root / "outside").mkdir()
    os.setxattr(brick.root / "outside", "trusted.afr.vol1-client-2", DATA)
    (brick.root / "link").symlink_to("outside")
    waits(brick, brick.root / "home", {"vol1-client-0": ENTRY, "vol1-client-2": NOTHING})
    waits(brick, brick.root / "a", {"vol1-client-0": DATA, "vol1-client-7": DATA})
    waits(brick, brick.root / "b", {"dirty": DATA})
    waits(brick, brick.root / "link", {"vol1-client-0": DATA})
    gone = waits(brick, brick.root / "a", {})
    (brick.root / ".glusterfs" / gone[:2] / gone[2:4] / gone).unlink()
    assert blamed(brick) == {"gl1:/srv/b": 3, "gl2:/srv/b": 1}


def test_a_copy_that_glusterd_does_not_know_is_no_answer(brick: HandBrick) -> None:
    (brick.root / "a").write_text("a")
    waits(brick, brick.root / "a", {"vol1-client-5": DATA})
    with pytest.raises(ValueError, match="knows no brick vol1-client-5"):
        blamed(brick)


def test_names_of_copies_are_those_that_glusterd_keeps(tmp_path: Path) -> None:
    kept = tmp_path / "vol1" / "bricks"
    kept.mkdir(parents=True)
    for client, name in CLIENTS.items():
        host, _, path = name.partition(":")
        lines = [f"hostname={host}", f"path={path}", "listen-port=0", f"brick-id={client.decode()}", "mount_dir=/b"]
        (kept / name.replace("/", "-")).write_text("\n".join([*lines, ""]))
    assert far_blamed.clients_of("vol1", str(tmp_path)) == CLIENTS


def test_nobody_knows_where_a_brick_that_is_up_does_not_tell(brick: HandBrick) -> None:
    path = os.fsencode(brick.root)
    down = [brick_of(f"gl{number}:/b", path=path, online=False) for number in (1, 2, 3)]
    facts = {"volume": "a-volume-of-no-glusterd", "volume_id": str(uuid.UUID(int=brick.seed)), "replica_count": 3}
    state = volume(*down, **facts)
    assert asyncio.run(blamed_in_set(OneHost(), state, "gl1:/b")) == {}
    asked = replace(state, bricks=(down[0], replace(down[1], online=True), down[2]))
    assert asyncio.run(blamed_in_set(OneHost(), asked, "gl1:/b")) is None
    assert asyncio.run(blamed_in_set(OneHost(), state, "gl9:/b")) is None


def test_a_file_system_is_told_by_its_uuid(make_xfs: MakeXfs) -> None:
    """Not by its device, which may have another file system tomorrow."""
    mount = make_xfs()
    told = subprocess.run(["xfs_admin", "-u", mount.device], capture_output=True, check=True, text=True).stdout.split()[
        -1
    ]
    name = f"gl1:{mount.path}/data"
    assert asyncio.run(probe_new_places(OneHost(), [name]))[name].filesystem_id == told.replace("-", "")


def test_the_content_of_a_former_brick_is_reported(make_xfs: MakeXfs) -> None:
    mount = make_xfs()
    path, volume_id = mount.path / "bricks" / "data", str(uuid.UUID(int=7))
    brick = Brick(name=f"gl1:{path}", host="gl1", path=os.fsencode(path), online=None)

    def place() -> PlaceSeen:
        return asyncio.run(probe_places(OneHost(), [brick], volume_id=volume_id))[brick.name]

    assert place() is PlaceSeen.EMPTY
    path.parent.mkdir()
    assert place() is PlaceSeen.UNMOUNTED, "as where the mount point of the brick is a directory of another file system"
    path.mkdir()
    assert place() is PlaceSeen.EMPTY
    (mount.path / "lost+found").mkdir()
    assert place() is PlaceSeen.EMPTY
    for other in (mount.path / "other", path / "file", path / ".glusterfs"):
        other.mkdir()
        assert place() is PlaceSeen.OTHER
        other.rmdir()
    os.setxattr(path, "trusted.glusterfs.volume-id", uuid.UUID(int=8).bytes)
    assert place() is PlaceSeen.OTHER
    os.setxattr(path, "trusted.glusterfs.volume-id", uuid.UUID(int=7).bytes)
    assert place() is PlaceSeen.BRICK
