"""The program is killed before its k-th call of anything, again and again; the same command brings it to its end."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.core.states import BatchState, ChunkKind, ChunkState
from tests.support.fake_streams import Fault
from tests.support.kills import Death
from tests.support.records import rows_of
from tests.support.run_world import ALICE, BOB, LIST, World, listed, small_world

BAD = ALICE + b"/sub/f01"
GONE = BOB + b"/sub/f02"
ACROSS = BOB + b"/across"


def make(directory: Path) -> World:
    world = small_world(directory, files=4, per_chunk=2, trees=(ALICE, BOB))
    world.source.add(ACROSS, same_as=ALICE + b"/sub/f00")
    world.lists.add(LIST, ChunkKind.LINKS, BOB, [listed(ACROSS, 0, 1, ALICE + b"/sub/f00")])
    world.source.remove(GONE)
    world.streams.faults[BAD] = Fault("bad")
    world.streams.faults[ALICE + b"/sub/f03"] = Fault("crash", times=4)
    return world


def run_until_death(world: World, left: int) -> None:
    death = Death(left)
    world.streams.before_path = lambda _: death.tick()
    world.run_until(death)
    world.streams.before_path = lambda _: None


def done_paths(world: World, directory: Path) -> set[bytes]:
    """What the ledger says is done."""
    query = "SELECT list_path, number FROM chunks WHERE state = 'done' AND kind = 'files'"
    done = rows_of(directory / "ledger.db", query)
    return {row.path for list_path, number in done for row in world.lists.paths(list_path or LIST, number)}


@pytest.mark.exhaustive
@pytest.mark.guarantee("kill-9")
@given(deaths=st.lists(st.integers(min_value=1, max_value=440), min_size=1, max_size=3))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_killed_anywhere_the_same_command_goes_on(deaths: list[int]) -> None:
    with tempfile.TemporaryDirectory(prefix="migrator-killed-") as directory:
        world = make(Path(directory))
        try:
            for left in deaths:
                finished = done_paths(world, Path(directory))
                streams = len(world.streams.streams)
                run_until_death(world, left)
                again = {path for _, paths in world.streams.streams[streams:] for path in paths}
                assert not finished & again
            finished = done_paths(world, Path(directory))
            streams = len(world.streams.streams)
            summary = asyncio.run(world.run())
            again = {
                path for kind, paths in world.streams.streams[streams:] for path in paths if kind is ChunkKind.FILES
            }
            assert not finished & again
            assert world.is_copied(BAD)
            assert [problem.path for problem in world.attention] == [BAD]
            assert world.vanished == 1
            assert frozenset({ALICE + b"/sub/f00", ACROSS}) in world.target.groups()
            assert (summary.exit_code, world.batch_state) == (3, BatchState.SEEDED)
            assert not world.ledger.passes.unfinished_attempts()
            assert not world.ledger.passes.totals(1).chunks.get(ChunkState.RUNNING)
        finally:
            world.ledger.close()


def test_the_deaths_reach_through_the_whole_run(tmp_path: Path) -> None:
    world = make(tmp_path)
    death = Death(10**9)
    world.streams.before_path = lambda _: death.tick()
    asyncio.run(world.run(death))
    world.ledger.close()
    assert 200 < 10**9 - death.left < 440
