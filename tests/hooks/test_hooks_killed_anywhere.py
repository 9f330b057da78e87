"""Hooks over fakes: the program is killed before its k-th call of anything, and hooks that cannot be looked at or ended."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.errors import Refused
from migrator.hooks.model import HookCall, HookStep
from tests.hooks.fake_hooks import FakeHooks, hook
from tests.support.kills import Death, Killed
from tests.support.records import rows_of
from tests.support.run_world import World, in_loop, small_world

STEPS = (HookStep.BATCH, HookStep.PASS)
PRE, POST = ["pre-batch.d/10-x", "pre-pass.d/10-x"], ["post-pass.d/10-x", "post-batch.d/10-x"]


@pytest.fixture
def hooks() -> FakeHooks:
    return FakeHooks(dict.fromkeys((*PRE, *POST), 0))


@pytest.fixture
def world(tmp_path: Path, hooks: FakeHooks) -> Iterator[World]:
    made = small_world(tmp_path, files=2)
    made.hooks = hooks
    yield made
    made.ledger.close()


def run_until_death(world: World, hooks: FakeHooks, left: int) -> bool:
    """Whether the death came before the end of the run."""
    death = Death(left)

    def in_call(call: HookCall) -> None:
        assert call.token in [one.token for one in world.ledger.hooks.unfinished(STEPS)]
        death.tick()

    hooks.in_call = in_call
    try:
        asyncio.run(world.run(death))
    except BaseExceptionGroup as group:
        if not group.subgroup(Killed):
            raise
    except Killed:
        pass
    finally:
        hooks.in_call = lambda _: None
        world.streams.alive.clear()
    return death.happened


@pytest.mark.guarantee("hooks")
@pytest.mark.parametrize("first", [1, 4])
def test_killed_anywhere_no_hook_is_forgotten(tmp_path: Path, hooks: FakeHooks, first: int) -> None:
    left, died = first, True
    while died:
        directory = tmp_path / str(left)
        directory.mkdir()
        world = small_world(directory, files=2)
        world.hooks = hooks
        try:
            hooks.calls.clear()
            died = run_until_death(world, hooks, left)
            streams, before = len(world.streams.streams), len(hooks.calls)
            asyncio.run(world.run())
            assert world.is_copied()
            stages = [call.split()[0] for call in hooks.calls]
            # The guards were asked before anything was copied, in each run that copied.
            if len(world.streams.streams) > streams:
                assert stages[before : before + 2] == PRE
            done = [call.split()[0] for call in hooks.calls if call.endswith(" done:")]
            assert list(dict.fromkeys(done)) == POST
            ended = rows_of(
                directory / "ledger.db",
                "SELECT count(*) FROM hook_calls WHERE outcome = 'go-on' GROUP BY step_id, stage",
            )
            assert {count for (count,) in ended} == {1}
            assert rows_of(directory / "ledger.db", "SELECT count(*) FROM hook_steps WHERE closed_at_s IS NULL") == [
                (0,)
            ]
            assert not world.ledger.hooks.unfinished(STEPS)
            before = len(hooks.calls)
            asyncio.run(world.run())
            assert len(hooks.calls) == before
        finally:
            world.ledger.close()
        left += 7
    assert left > 40


@in_loop
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), TimeoutError()])
async def test_hooks_that_cannot_be_looked_at_are_refused(world: World, hooks: FakeHooks, error: OSError) -> None:
    def fail() -> None:
        raise error

    hooks.before_find = fail
    for dry_run in (True, False):
        with pytest.raises(Refused, match="cannot be looked at"):
            await world.run(dry_run=dry_run)
    assert not world.streams.streams


@in_loop
async def test_a_hook_of_an_earlier_run_that_cannot_be_ended_is_not_called_beside_itself(
    world: World, hooks: FakeHooks
) -> None:
    await world.run()
    calls, records = len(hooks.calls), world.ledger.hooks
    step = records.open_step(run_id=1, step=HookStep.BATCH, subject="left by a killed run", at_s=1.0)
    records.intend(step_id=step.id, hook=hook(PRE[0]), token="left", at_s=1.0)
    hooks.unended = True
    with pytest.raises(Refused, match="10-x of an earlier run cannot be ended"):
        await world.run()
    assert len(records.unfinished(STEPS)) == 1
    hooks.unended = False
    await world.run()
    assert len(records.unfinished(STEPS)) == 0
    assert len(hooks.calls) == calls
