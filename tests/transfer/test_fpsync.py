"""The real fpsync as a driver, over XFS: what it brings, what it leaves out, and how it is ended and begun again."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from migrator.core.errors import ToolFailed
from migrator.core.states import AttemptState, ChunkState
from migrator.core.units import KIB
from migrator.lab.model import OddFiles
from migrator.transfer.engines.drivers import Fpsync, locate_fpsync
from migrator.transfer.model import StopReason
from migrator.transfer.passes import doubtful_trees
from tests.support.snapshots import snapshot
from tests.support.xfs import XfsMount
from tests.transfer.driver_world import DriverWorld

pytestmark = pytest.mark.needs_root

TREE = b"home/alice"
ODD = b"home/odd"
SLOW = 24 * KIB
"""Bytes per second of a driver that is ended in the middle: it must be at work for some seconds."""


def programs() -> Sequence[bytes]:
    try:
        return locate_fpsync()
    except ToolFailed as error:
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.fixture
def driver() -> Fpsync:
    return Fpsync(programs(), privileged=True)


def fill(tree: Path, *, files: int, size_bytes: int = 100) -> None:
    """Files in a few directories; every tenth has a second name in a directory that is read at another time."""
    (tree / "linked").mkdir(parents=True)
    for number in range(files):
        above = tree / f"d{number % 5}"
        above.mkdir(exist_ok=True)
        file = above / f"f{number:04d}"
        file.write_bytes(os.urandom(8) + b"x" * size_bytes)
        if number % 10 == 0:
            (tree / "linked" / f"l{number:04d}").hardlink_to(file)


@pytest.fixture
def world(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount, driver: Fpsync) -> DriverWorld:
    fill(xfs_source.path / "home" / "alice", files=400)
    return DriverWorld(scratch, xfs_source.path, xfs_target.path, driver)


def equal_but(world: DriverWorld) -> dict[bytes, object]:
    """What differs between both sides, of what a stream can take."""
    here, there = (snapshot(os.fsencode(tree)) for tree in (world.source_tree, world.target_tree))
    return {name: (here[name], there.get(name)) for name in sorted(world.fitting()) if here[name] != there.get(name)}


def test_a_tree_is_brought_and_what_was_split_is_linked_by_the_look_that_follows(world: DriverWorld) -> None:
    asyncio.run(world.drive())
    assert world.chunk.state is ChunkState.DONE
    assert world.synced == 1
    (attempt,) = world.attempts
    assert (attempt.state, attempt.exit_code, attempt.engine) == (AttemptState.SUCCEEDED, 0, "fpsync")
    assert not list((world.directory / "drivers").rglob("part.*")), "its lists are not kept"
    assert world.target_tree.stat().st_mode & 0o777 == 0o700, "the tree's root stays closed"
    first, second = (world.target_tree / name for name in ("d0/f0000", "linked/l0000"))
    split = [number for number in range(0, 400, 10) if not same_file(world.target_tree, number)]
    assert split, "hard links over parts are what it cannot do"
    assert attempt.counters.files == 400 + len(split)
    assert first.read_bytes() == second.read_bytes()
    rest = world.copy_rest()
    assert rest[1].outcome.counters.size_bytes == 0, "nothing has to be sent again"
    assert equal_but(world) == {}


def same_file(tree: Path, number: int) -> bool:
    return (tree / f"d{number % 5}" / f"f{number:04d}").samefile(tree / "linked" / f"l{number:04d}")


def test_odd_files_do_no_harm(
    scratch: Path, odd_tree: tuple[Path, OddFiles], xfs_source: XfsMount, xfs_target: XfsMount, driver: Fpsync
) -> None:
    before = snapshot(os.fsencode(odd_tree[0]))
    world = DriverWorld(scratch, xfs_source.path, xfs_target.path, driver, tree=ODD, part_files=7)
    asyncio.run(world.drive())
    assert world.under_way.stop_found is None
    assert snapshot(os.fsencode(odd_tree[0])) == before, "the source was changed"
    arrived = snapshot(os.fsencode(world.target_tree))
    assert any(b"\n" in name for name in arrived), "names with newlines are no trouble for it"
    world.copy_rest()
    assert equal_but(world) == {}


def crawled(world: DriverWorld) -> bool:
    return any((world.directory / "drivers").rglob("fp_done"))


async def until_streams_work(world: DriverWorld, task: "asyncio.Task[object]") -> None:
    """The crawl has ended, and rsyncs are at work."""
    while not (crawled(world) and world.living(b"rsync")):
        assert not task.done(), task
        await asyncio.sleep(0.02)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rebooted", [False, True])
def test_ended_in_the_middle_it_is_begun_again(world: DriverWorld, *, rebooted: bool) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(world.drive(bwlimit_bytes_per_s=SLOW))
        await until_streams_work(world, task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert not world.living()
    assert world.chunk.state is ChunkState.PENDING
    assert [attempt.state for attempt in world.attempts] == [AttemptState.INTERRUPTED]
    assert doubtful_trees(world.under_way) == {TREE}
    if rebooted:
        world.boot_id = "another"
    asyncio.run(world.drive())
    again = world.attempts[1]
    assert again.state is AttemptState.SUCCEEDED
    assert (" -I " in again.argv[again.argv.index("-o") + 1]) is rebooted
    assert (again.counters.files >= 400) is rebooted, "what had arrived is sent again after another boot alone"
    assert doubtful_trees(world.under_way) == frozenset()
    world.copy_rest()
    assert equal_but(world) == {}
    assert not list(world.target_tree.rglob(".*.??????"))


def test_a_missing_program_stops_it(world: DriverWorld) -> None:
    with pytest.raises(ToolFailed, match="fpsync was not found"):
        locate_fpsync(path="/nowhere")
    world.driver = Fpsync([b"/usr/bin/no-fpsync", *programs()[1:]], privileged=True)
    asyncio.run(world.drive())
    assert world.under_way.stop_found is not None
    assert world.under_way.stop_found[0] is StopReason.TOOL_MISSING
    world.driver = Fpsync([*programs()[:2], b"/usr/bin/no-rsync"], privileged=True)
    asyncio.run(world.drive())
    assert world.under_way.stop_found[0] is StopReason.TOOL_MISSING, world.under_way.stop_found
