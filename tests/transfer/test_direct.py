"""The engine of our own, confined: whole trees as rsync would have copied them, bricks, bad input and failing file systems."""

import dataclasses
import errno
import os
import struct
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.catalog.model import ListedPath
from migrator.core.states import ChunkKind
from migrator.core.units import MIB
from migrator.gluster.model import BrickRules
from migrator.lab.model import OddFiles
from migrator.transfer.model import AttemptVerdict, FileProblem, FileProblemKind, StopReason, StreamCounters
from migrator.transfer.rules_leftovers import copy_name, marks_name, part_name
from tests.conftest import MakeXfs
from tests.support.beegfs_like import BEEGFS_CAPABILITIES, STRICT_CAPABILITIES, beegfs_like, missing_for_fuse
from tests.support.native_builds import SANITIZED, built
from tests.support.snapshots import names_of, snapshot
from tests.support.streams import Streams, engine_of, make_trees
from tests.support.xfs import XfsMount
from tests.transfer.native_copy import SEED, direct_engine, engine_named, listed, run_copy

pytestmark = pytest.mark.needs_root

TREE = b"home/odd"


def test_onto_a_target_that_keeps_less(
    odd_tree: tuple[Path, OddFiles], scratch: Path, make_xfs: MakeXfs, xfs_source: XfsMount
) -> None:
    if reason := missing_for_fuse():
        pytest.skip(reason)
    tree, _ = odd_tree
    for size in (245, 246):
        os.setxattr(tree / "odd", b"user.".ljust(size, b"n"), b"1")
    backing = make_xfs()
    rsync = engine_of()
    with beegfs_like(backing.path, strict=True) as mounted:
        (ours, theirs) = make_trees(mounted / "ours", mounted / "theirs", tree=TREE)
        made = Streams(direct_engine(), xfs_source.path, mounted / "ours", STRICT_CAPABILITIES)
        directories, others = names_of(os.fsencode(tree))
        fitting = [TREE + b"/" + name for name in others if len(name) <= rsync.longest_name_bytes]
        folders = [TREE + b"/" + name for name in directories if len(name) <= rsync.longest_name_bytes]
        order = ((folders, ChunkKind.DIRECTORIES), (fitting, ChunkKind.FILES), (folders, ChunkKind.DIRECTORY_TIMES))
        by_rsync = Streams(rsync, xfs_source.path, mounted / "theirs", STRICT_CAPABILITIES)
        bad: set[bytes] = set()
        for paths, kind in order:
            ran = made.run(paths, tree=TREE, kind=kind)
            assert ran.outcome.verdict is AttemptVerdict.DONE, ran
            bad |= {suspect.path for suspect in ran.outcome.suspects}
            ran = by_rsync.run(paths, tree=TREE, kind=kind)
            assert kind is ChunkKind.FILES or not ran.outcome.suspects
        here, there = snapshot(os.fsencode(ours)), snapshot(os.fsencode(theirs))
        assert {name: here.get(name) for name in here | there if here.get(name) != there.get(name)} == {}
        assert not bad


@pytest.mark.guarantee("kill-9")
@pytest.mark.parametrize("name", ["direct", "rsync"])
def test_each_file_is_synced_before_it_gets_its_name_if_one_sync_does_not_reach_the_disks(
    scratch: Path, make_xfs: MakeXfs, xfs_source: XfsMount, name: str
) -> None:
    if reason := missing_for_fuse():
        pytest.skip(reason)
    backing = make_xfs()
    engine = engine_named(name)
    with beegfs_like(backing.path) as mounted:
        (source,) = make_trees(xfs_source.path, tree=TREE)
        for number in range(4):
            (source / f"{number}").write_bytes(os.urandom(number * 200_000))
        names = [TREE + b"/%d" % number for number in range(4)]
        unsynced = backing.path / "renamed-unsynced"
        for keeps in (BEEGFS_CAPABILITIES, replace(BEEGFS_CAPABILITIES, syncfs_reaches_disks=True)):
            into = f"{keeps.syncfs_reaches_disks}"
            make_trees(mounted / into, tree=TREE)
            ran = Streams(engine, xfs_source.path, mounted / into, keeps).run(names, tree=TREE)
            assert ran.outcome.verdict is AttemptVerdict.DONE, ran
            assert unsynced.exists() == keeps.syncfs_reaches_disks
        assert sorted(unsynced.read_bytes().split()) != []


def test_a_big_file_in_ranges_shared_by_streams(xfs_source: XfsMount, xfs_target: XfsMount) -> None:
    source, target = make_trees(xfs_source.path, xfs_target.path, tree=TREE)
    content = os.urandom(3 * MIB)
    with (source / "big").open("wb") as file:
        file.write(content)
        file.seek(9 * MIB)
        file.write(content)
        file.truncate(16 * MIB + 5)
    (source / "big").chmod(0o640)
    os.chown(source / "big", 1234, 1235)
    os.setxattr(source / "big", "user.mine", b"1")
    seen = (source / "big").stat()
    whole = ListedPath(path=TREE + b"/big", size_bytes=0, file_size_bytes=seen.st_size, mtime_ns=seen.st_mtime_ns)
    ranges = [
        whole._replace(range_offset_bytes=at, range_length_bytes=min(4 * MIB, seen.st_size - at))
        for at in range(0, seen.st_size, 4 * MIB)
    ]
    for kind, rows in (*((ChunkKind.RANGES, [one]) for one in reversed(ranges)), (ChunkKind.RANGED_FILES, [whole])):
        outcome = Streams(direct_engine(), xfs_source.path, xfs_target.path).run(rows, tree=TREE, kind=kind).outcome
        assert (outcome.verdict, outcome.suspects) == (AttemptVerdict.DONE, ())
    assert outcome.counters == StreamCounters(files=1), "the content came by ranges"
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))
    assert (target / "big").stat().st_blocks <= seen.st_blocks


@pytest.fixture
def sides(scratch: Path) -> tuple[Path, Path, Streams]:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    return source, target, Streams(direct_engine(), scratch / "s", scratch / "t")


@pytest.mark.parametrize(
    "names",
    [b":", b"file\0", b":/etc/passwd\0", b":../file\0", b":a/../b\0", b":a//b\0", b":.\0", b":a/\0", b":\0", b"\0",
     b"q1:file\0", b"s:file\0", b"s-1:file\0", b"o99999999999999999999,n1:file\0", b":no end",
     b":" + b"n" * 256 + b"\0", b"r1:file\0", b"m:file\0"],
)  # fmt: skip
@pytest.mark.parametrize("flags", [(), SANITIZED])
def test_a_malformed_list_is_refused_as_a_whole(scratch: Path, names: bytes, flags: tuple[str, ...]) -> None:
    (scratch / "s").mkdir()
    (scratch / "t").mkdir()
    (scratch / "s" / "good").write_text("good")
    done = run_copy(scratch / "s", scratch / "t", listed(b"good") + names, flags=flags)
    assert done.returncode == 65
    assert b"malformed" in done.stderr
    assert not list((scratch / "t").iterdir())


def test_odd_names_under_the_sanitizers(odd_tree: tuple[Path, object], xfs_target: XfsMount) -> None:
    tree, _ = odd_tree
    directories, others = names_of(os.fsencode(tree))
    target = xfs_target.path / "t"
    target.mkdir()
    told: list[set[bytes]] = []
    options = ("--digest", "--own-names", "--fsync")
    for kind, names in (("directories", directories), ("files", others), ("directory-times", directories)):
        for _ in range(2):
            done = run_copy(tree, target, listed(*names), *options, kind=kind, flags=SANITIZED)
            assert (done.returncode, done.stderr) == (0, b"")
            assert b"F " not in done.stdout
            told.append({line for line in done.stdout.split(b"\n") if line.startswith(b"D ")})
    digest = [str(built(*SANITIZED)), "digest", "--tree", str(tree)]
    digested = subprocess.run(digest, input=listed(*others), capture_output=True, check=True).stdout
    of_all = {line for line in digested.split(b"\n") if line.startswith(b"D ")}
    # The second copy of the files may find that they are there, and then it reads nothing.
    assert (told[2], told[3] - of_all, {*told[0], *told[1], *told[4], *told[5]}) == (of_all, set(), set())
    assert {name: facts[:8] for name, facts in snapshot(os.fsencode(target)).items()} == {
        name: facts[:8] for name, facts in snapshot(os.fsencode(tree)).items()
    }


def test_a_full_target_stops_everything_and_leaves_nothing_half(scratch: Path, tiny_xfs: XfsMount) -> None:
    source, target = make_trees(scratch / "s", tiny_xfs.path, tree=TREE)
    (source / "a").write_text("fits")
    (source / "b").write_bytes(os.urandom(60 << 20))
    (source / "c").write_text("fits")
    ran = Streams(direct_engine(), scratch / "s", tiny_xfs.path).run(
        [TREE + b"/" + name for name in (b"a", b"b", b"c")], tree=TREE
    )
    assert (ran.outcome.verdict, ran.outcome.stop) == (AttemptVerdict.STOP, StopReason.TARGET_FULL)
    assert "home/odd/b: write failed on the target" in ran.outcome.message
    assert not ran.outcome.suspects
    assert {path.name for path in target.iterdir()} == {"a"}


@pytest.mark.parametrize("in_flight", ["1", "2", "16", "200"])
def test_however_many_are_in_flight_the_same_arrives(scratch: Path, in_flight: str) -> None:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    for number in range(60):
        directory = source / f"d{number % 7}"
        directory.mkdir(exist_ok=True)
        (directory / f"f{number}").write_bytes(os.urandom(number * 1000))
        os.setxattr(directory / f"f{number}", "user.number", b"%d" % number)
        (directory / f"link{number}").symlink_to(f"f{number}")
    for number in range(0, 60, 5):
        (source / "d3" / f"other-{number}").hardlink_to(source / f"d{number % 7}" / f"f{number}")
    directories, others = names_of(os.fsencode(source))
    names = [*others, b"d1/gone", b"d2/gone"]
    inodes = [(source / os.fsdecode(name)).lstat() if name in others else None for name in names]
    records = b"".join(
        (b"l%d" % facts.st_ino if facts and facts.st_nlink > 1 else b"") + b":" + name + b"\0"
        for name, facts in zip(names, inodes, strict=True)
    )
    assert run_copy(source, target, listed(*directories), kind="directories").returncode == 0
    done = run_copy(source, target, records, "--digest", "--in-flight", in_flight)
    assert (done.returncode, done.stderr) == (0, b"")
    lines = done.stdout.splitlines()
    vanished = {names[int(line.split()[1])] for line in lines if line.startswith(b"F")}
    assert vanished == {b"d1/gone", b"d2/gone"}
    digested = [int(line.split()[1]) for line in lines if line.startswith(b"D")]
    assert len(digested) == len(set(digested)) == 60, "of each file once: the other names are links to it"
    assert lines[-1].split()[1] == b"%d" % len(others)
    times = run_copy(source, target, listed(*directories), "--in-flight", in_flight, kind="directory-times")
    assert times.returncode == 0
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))


def test_a_full_target_leaves_nothing_half_of_what_is_in_flight(scratch: Path, tiny_xfs: XfsMount) -> None:
    source, target = make_trees(scratch / "s", tiny_xfs.path, tree=TREE)
    for number in range(40):
        (source / f"{number}").write_bytes(os.urandom(4 << 20))
    ran = Streams(direct_engine(), scratch / "s", tiny_xfs.path).run(
        [TREE + b"/%d" % number for number in range(40)], tree=TREE
    )
    assert (ran.outcome.verdict, ran.outcome.stop) == (AttemptVerdict.STOP, StopReason.TARGET_FULL)
    assert not ran.outcome.suspects
    assert all(path.read_bytes() == (source / path.name).read_bytes() for path in target.iterdir())


def test_entries_in_the_way_are_replaced_or_reported(sides: tuple[Path, Path, Streams]) -> None:
    source, target, streams = sides
    for name in ("over-empty", "over-full", "over-link"):
        (source / name).write_text("file")
    (source / "link").symlink_to("x")
    (target / "over-empty").mkdir()
    (target / "over-full").mkdir()
    (target / "over-full" / "kept").write_text("kept")
    (target / "over-link").symlink_to("/etc/passwd")
    (target / "link").write_text("a file")
    (source / "directory").mkdir()
    (target / "directory").write_text("a file")
    ran = streams.run([TREE + b"/" + path.name.encode() for path in source.iterdir()], tree=TREE)
    assert ran.outcome.verdict is AttemptVerdict.DONE
    (bad,) = ran.outcome.suspects
    assert (bad.path, bad.kind, bad.errno) == (TREE + b"/over-full", FileProblemKind.BAD, errno.ENOTEMPTY)
    assert (target / "over-full" / "kept").read_text() == "kept"
    assert (target / "over-empty").read_text() == (target / "over-link").read_text() == "file"
    assert not (target / "over-link").is_symlink()
    assert (target / "link").is_symlink()
    assert (target / "directory").is_dir()
    assert Path("/etc/passwd").read_text() != "file"


def test_leftovers_are_replaced_and_never_written_to(sides: tuple[Path, Path, Streams]) -> None:
    source, target, streams = sides
    names = [b"file", b"n" * 255, b"\xff\n", b"gone"]
    for name in names[:-1]:
        Path(os.fsdecode(os.path.join(os.fsencode(source), name))).write_text("new")
    precious = target / "precious"
    precious.write_text("precious")
    for name in names:
        (target / os.fsdecode(copy_name(name, SEED))).hardlink_to(precious)
    (target / os.fsdecode(part_name(b"gone", SEED))).write_text("part")
    streams.recopy = True
    ran = streams.run([TREE + b"/" + name for name in names], tree=TREE)
    assert [suspect.kind for suspect in ran.outcome.suspects] == [FileProblemKind.VANISHED]
    assert precious.read_text() == "precious"
    assert sorted(os.listdir(os.fsencode(target))) == sorted([*names[:-1], b"precious"])


def test_without_root_it_does_what_it_may(scratch: Path) -> None:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    (source / "file").write_text("content")
    (source / "closed").mkdir()
    (source / "closed" / "inner").write_text("inner")
    (source / "closed").chmod(0o555)
    os.chown(target, 1234, 1234)
    built()
    streams = Streams(direct_engine(privileged=False), scratch / "s", scratch / "t", as_uid=1234)
    for kind, names in (
        (ChunkKind.DIRECTORIES, [b"closed"]),
        (ChunkKind.FILES, [b"file", b"closed/inner"]),
        (ChunkKind.DIRECTORY_TIMES, [b"closed"]),
    ):
        ran = streams.run([TREE + b"/" + name for name in names], tree=TREE, kind=kind)
        assert (ran.outcome.verdict, ran.outcome.suspects) == (AttemptVerdict.DONE, ())
    assert (target / "closed" / "inner").read_text() == "inner"
    assert (target / "closed").stat().st_mode & 0o7777 == 0o555
    assert (target / "file").stat().st_uid == 1234


MDATA = "trusted.glusterfs.mdata"
LINKTO = "trusted.glusterfs.dht.linkto"
MTIME_NS = 1_234_567_890_123_456_789
ATIME_NS = 1_700_000_000_000_000_002
BEFORE_1970_NS = -1_500_000_001
BRICK = BrickRules(times_from_mdata=True, distributed=True)


def mdata(mtime_ns: int) -> bytes:
    """The attribute's value: version, flags, then ctime, mtime and atime."""
    pair = divmod(mtime_ns, 1_000_000_000)
    return struct.pack(">BQ6q", 1, 7, 1_700_000_000, 1, *pair, *divmod(ATIME_NS, 1_000_000_000))


def on_brick(path: Path, *, mtime_ns: int | None = MTIME_NS, link_to: bool = False) -> None:
    """Give a path what Gluster keeps on a brick."""
    os.setxattr(path, "trusted.gfid", os.urandom(16), follow_symlinks=False)
    if mtime_ns is not None:
        os.setxattr(path, MDATA, mdata(mtime_ns), follow_symlinks=False)
    if link_to:
        os.setxattr(path, LINKTO, b"vol1-client-5\0")


def suspects_of(found: tuple[FileProblem, ...]) -> dict[bytes, FileProblemKind]:
    return {problem.path.rpartition(b"/")[2]: problem.kind for problem in found}


@pytest.fixture
def brick_sides(xfs_source: XfsMount, xfs_target: XfsMount) -> tuple[Path, Path, Streams]:
    source, target = make_trees(xfs_source.path, xfs_target.path, tree=TREE)
    return source, target, Streams(direct_engine(), xfs_source.path, xfs_target.path, brick=BRICK)


def full(*names: str) -> list[bytes]:
    return [TREE + b"/" + name.encode() for name in names]


@pytest.mark.parametrize(("distributed", "mode"), [(True, 0o755), (False, 0o3755)])
def test_bits_that_the_mount_hides_stay_behind(
    xfs_source: XfsMount, xfs_target: XfsMount, distributed: bool, mode: int
) -> None:
    source, target = make_trees(xfs_source.path, xfs_target.path, tree=TREE)
    rules = BrickRules(times_from_mdata=True, distributed=distributed)
    streams = Streams(direct_engine(), xfs_source.path, xfs_target.path, brick=rules)
    for name in ("both", "one"):
        (source / name).write_text("content")
        on_brick(source / name)
    (source / "both").chmod(0o3755)
    (source / "one").chmod(0o2755)
    for _ in range(2):
        assert not streams.run(full("both", "one"), tree=TREE).outcome.suspects
        assert [(target / name).stat().st_mode & 0o7777 for name in ("both", "one")] == [mode, 0o2755]


@pytest.mark.guarantee("gluster-attributes")
def test_times_are_the_volume_s_and_its_attributes_stay_behind(brick_sides: tuple[Path, Path, Streams]) -> None:
    source, target, streams = brick_sides
    (source / "file").write_text("content")
    (source / "old").write_text("content")
    (source / "without").write_text("content")
    (source / "link").symlink_to("nowhere")
    os.mkfifo(source / "fifo")
    (source / "directory").mkdir()
    for name in ("file", "link", "fifo", "directory"):
        on_brick(source / name)
    on_brick(source / "old", mtime_ns=BEFORE_1970_NS)
    on_brick(source / "without", mtime_ns=None)
    os.setxattr(source / "file", "user.mine", b"1")
    names = ("file", "old", "without", "link", "fifo")
    assert not streams.run(full("directory"), tree=TREE, kind=ChunkKind.DIRECTORIES).outcome.suspects
    assert not streams.run(full(*names), tree=TREE).outcome.suspects
    assert not streams.run(full("directory"), tree=TREE, kind=ChunkKind.DIRECTORY_TIMES).outcome.suspects
    times = {name: (target / name).lstat().st_mtime_ns for name in (*names, "directory")}
    expected = dict.fromkeys((*names, "directory"), MTIME_NS)
    assert times == expected | {"old": BEFORE_1970_NS, "without": (source / "without").stat().st_mtime_ns}
    # The copies of a replica set differ in the time of a file without the attribute: that of the scanned one counts.
    listed = [ListedPath(path=path, size_bytes=7, mtime_ns=5) for path in full("without", "file")]
    assert not dataclasses.replace(streams, recopy=True).run(listed, tree=TREE).outcome.suspects
    assert [(target / name).stat().st_mtime_ns for name in ("without", "file")] == [5, MTIME_NS]
    assert os.listxattr(target / "file") == ["user.mine"]
    carrying = dataclasses.replace(streams, engine=replace(direct_engine(), atimes=True), recopy=True)
    assert not carrying.run(full("file"), tree=TREE).outcome.suspects
    assert (target / "file").stat().st_atime_ns == ATIME_NS
    for name in ("link", "fifo", "directory"):
        assert not os.listxattr(target / name, follow_symlinks=False)


def test_link_files_overwrite_nothing(brick_sides: tuple[Path, Path, Streams]) -> None:
    source, target, streams = brick_sides
    modes = {"link-to": 0o1000, "moving": 0o3644, "unclear": 0o644}
    for name, mode in modes.items():
        (source / name).write_text("half" if name == "moving" else "")
        (source / name).chmod(mode)
        on_brick(source / name, link_to=True)
        (target / name).write_text("whole")
    # A stale attribute on a file with content means nothing, nor does the mode alone.
    for name, mode in {"stale": 0o644, "sticky": 0o1000}.items():
        (source / name).write_text("content")
        (source / name).chmod(mode)
        on_brick(source / name, link_to=name == "stale")
    ran = streams.run(full(*modes, "stale", "sticky"), tree=TREE)
    assert ran.outcome.verdict is AttemptVerdict.DONE
    assert suspects_of(ran.outcome.suspects) == {name.encode(): FileProblemKind.MOVED for name in modes}
    assert {(target / name).read_text() for name in modes} == {"whole"}
    assert (target / "stale").read_text() == (target / "sticky").read_text() == "content"
    assert {path.name for path in target.iterdir()} == {*modes, "stale", "sticky"}


def test_a_file_of_a_user_that_another_brick_has_is_never_in_the_way(scratch: Path) -> None:
    """A brick has only a part of a directory's files: that a name is free there proves nothing."""
    brick, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    (brick / "file").write_text("new")
    of_others = [os.fsdecode(copy_name(b"file", seed)) for seed in (0, 1, SEED + 1)]
    of_others += [os.fsdecode(part_name(b"file", 0)), os.fsdecode(marks_name(b"file", 0))]
    for name in of_others:
        (target / name).write_text("of the user, and on another brick")
    run_copy(brick, target, listed(b"file"), "--recopy")
    assert sorted(os.listdir(target)) == sorted(["file", *of_others])
    assert {(target / name).read_text() for name in of_others} == {"of the user, and on another brick"}
