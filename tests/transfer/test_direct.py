"""Whole trees through the engine of our own, confined, as a pass does it: as rsync would have copied them."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.states import ChunkKind
from migrator.core.units import MIB
from migrator.fs.model import TargetCapabilities
from migrator.hosts.process import LocalProcesses
from migrator.lab.model import OddFiles
from migrator.plan.model import ListedPath
from migrator.transfer.executors import LocalExecutor
from migrator.transfer.model import Outcome, StreamCounters, Verdict
from migrator.transfer.ports import ChunkWork
from tests.conftest import MakeXfs
from tests.support.beegfs_like import BEEGFS_CAPABILITIES, beegfs_like, missing_for_fuse
from tests.support.native_builds import placing
from tests.support.snapshots import names_of, snapshot
from tests.support.streams import Streams, copy_tree, engine_of, make_trees
from tests.support.xfs import XfsMount
from tests.transfer.native_copy import direct_engine

pytestmark = pytest.mark.needs_root

TREE = b"home/odd"


def test_every_odd_file_arrives_whatever_the_length_of_its_path(
    odd_tree: tuple[Path, OddFiles], xfs_target: XfsMount, xfs_source: XfsMount
) -> None:
    tree, _ = odd_tree
    (target,) = make_trees(xfs_target.path, tree=TREE)
    streams = Streams(direct_engine(), xfs_source.path, xfs_target.path)
    before = snapshot(os.fsencode(tree))
    copy_tree(streams, tree, tree=TREE)
    assert snapshot(os.fsencode(tree)) == before, "the source was changed"
    assert snapshot(os.fsencode(target)) == before


def test_onto_a_target_that_keeps_less(
    odd_tree: tuple[Path, OddFiles], scratch: Path, make_xfs: MakeXfs, xfs_source: XfsMount
) -> None:
    if reason := missing_for_fuse():
        pytest.skip(reason)
    tree, _ = odd_tree
    backing = make_xfs()
    rsync = engine_of()
    with beegfs_like(backing.path) as mounted:
        (ours, theirs) = make_trees(mounted / "ours", mounted / "theirs", tree=TREE)
        made = Streams(direct_engine(), xfs_source.path, mounted / "ours", BEEGFS_CAPABILITIES)
        directories, others = names_of(os.fsencode(tree))
        fitting = [TREE + b"/" + name for name in others if rsync.fits(TREE, TREE + b"/" + name)]
        folders = [TREE + b"/" + name for name in directories if rsync.fits(TREE, TREE + b"/" + name)]
        order = ((folders, ChunkKind.DIRECTORIES), (fitting, ChunkKind.FILES), (folders, ChunkKind.DIRECTORY_TIMES))
        by_rsync = Streams(rsync, xfs_source.path, mounted / "theirs", BEEGFS_CAPABILITIES)
        bad: set[bytes] = set()
        for paths, kind in order:
            ran = made.run(paths, tree=TREE, kind=kind)
            assert ran.outcome.verdict is Verdict.DONE, ran
            bad |= {suspect.path for suspect in ran.outcome.suspects}
            by_rsync.run(paths, tree=TREE, kind=kind)
        here, there = snapshot(os.fsencode(ours)), snapshot(os.fsencode(theirs))
        assert {name: here.get(name) for name in here | there if here.get(name) != there.get(name)} == {}
        assert not bad


@pytest.mark.guarantee("kill-9")
@pytest.mark.parametrize("name", ["direct", "rsync"])
def test_where_one_sync_does_not_reach_the_disks_each_file_is_synced_before_it_gets_its_name(
    scratch: Path, make_xfs: MakeXfs, xfs_source: XfsMount, name: str
) -> None:
    if reason := missing_for_fuse():
        pytest.skip(reason)
    backing = make_xfs()
    engine = direct_engine() if name == "direct" else engine_of()
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
            assert ran.outcome.verdict is Verdict.DONE, ran
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
        replace(whole, range_offset_bytes=at, range_length_bytes=min(4 * MIB, seen.st_size - at))
        for at in range(0, seen.st_size, 4 * MIB)
    ]
    for kind, listed in (*((ChunkKind.RANGES, [one]) for one in reversed(ranges)), (ChunkKind.RANGED_FILES, [whole])):
        outcome = asyncio.run(copied(xfs_source.root, xfs_target.root, kind, listed))
        assert (outcome.verdict, outcome.suspects) == (Verdict.DONE, ())
    assert outcome.counters == StreamCounters(files=1), "the content came by ranges"
    assert snapshot(os.fsencode(source)) == snapshot(os.fsencode(target))
    assert (target / "big").stat().st_blocks <= seen.st_blocks


async def copied(source_root: bytes, target_root: bytes, kind: ChunkKind, listed: Sequence[ListedPath]) -> Outcome:
    """One chunk of these very rows, confined."""
    executor = LocalExecutor(LocalProcesses(), source_root=source_root, target_root=target_root, compiled=placing())
    work = ChunkWork(kind=kind, tree=TREE, paths=listed, capabilities=TargetCapabilities())
    engine, view = direct_engine(), executor.view(TREE)
    reader = engine.reader(work, view)
    try:
        completed = await executor.execute(
            engine.command(work, view),
            program=engine.program,
            tree=TREE,
            on_start=lambda _: None,
            on_stdout=reader.stdout,
            on_stderr=reader.stderr,
        )
    finally:
        await executor.close()
    return reader.outcome(completed)
