"""Real hooks around the steps of a cutover: what stops which, what they are told, and who calls what is owed."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.errors import Refused, ToolFailed
from migrator.hooks.model import Hook, HookEvent, HookOutcome, HookStep
from migrator.hooks.stage import HookedStep, HookRefused, HookSkipped
from tests.hooks.step_hooks import HookedCutover, hooked_cutover
from tests.support.run_site import wait_for
from tests.support.run_world import in_loop

CUTOVER = (HookStep.FREEZE, HookStep.SWITCH, HookStep.THAW)


@pytest.fixture
def cutover(scratch: Path) -> Iterator[HookedCutover]:
    with hooked_cutover(scratch) as made:
        yield made


@in_loop
async def test_hooks_enclose_a_step_and_get_the_facts_of_their_side(cutover: HookedCutover) -> None:
    for where in ("pre-freeze.d/10-a", "pre-freeze.d/20-b", "post-freeze.d/10-a", "post-freeze.d/20-b"):
        cutover.hook(where)
    assert await cutover.around(HookStep.FREEZE) == "worked"
    assert cutover.calls() == [
        "pre-freeze.d/10-a alice::before",
        "pre-freeze.d/20-b alice::before",
        "freeze",
        "post-freeze.d/20-b alice:done:worked after",
        "post-freeze.d/10-a alice:done:worked after",
    ]
    assert cutover.warnings() == []
    # Steps without hooks leave nothing in the ledger that somebody could owe.
    assert await cutover.around(HookStep.SWITCH) == "worked"
    assert cutover.calls() == ["switch"]
    for step in (HookStep.FREEZE, HookStep.SWITCH):
        assert cutover.ledger.hooks.open_since(step, cutover.place(step).hooked.key) is None


@pytest.mark.parametrize(("code", "kind", "state"), [(62, HookSkipped, "skipped"), (1, HookRefused, "refused")])
def test_a_pre_hook_stops_a_step(cutover: HookedCutover, code: int, kind: type[Refused], state: str) -> None:
    for where in ("pre-switch.d/10-a", "pre-switch.d/30-c", "post-switch.d/10-a", "post-switch.d/30-c"):
        cutover.hook(where)
    cutover.hook("pre-switch.d/20-no", f"echo not today; exit {code}")
    with pytest.raises(Refused, match=r"pre-switch.d/20-no .*not today") as raised:
        asyncio.run(cutover.around(HookStep.SWITCH))
    assert type(raised.value) is kind
    assert cutover.calls() == [
        "pre-switch.d/10-a alice::before",
        "pre-switch.d/20-no alice::before",
        f"post-switch.d/10-a alice:{state}:before",
    ]
    (said,) = cutover.warnings()
    assert said.startswith(f"hook-{state}: alice: cutover: the switch of alice is ")
    cutover.hook("pre-switch.d/20-no")
    assert asyncio.run(cutover.around(HookStep.SWITCH)) == "worked"


@pytest.mark.parametrize("code", [62, 1])
@in_loop
async def test_nothing_stops_a_thaw(cutover: HookedCutover, code: int) -> None:
    for where in ("pre-thaw.d/10-a", "pre-thaw.d/30-c", "post-thaw.d/10-a"):
        cutover.hook(where)
    cutover.hook("pre-thaw.d/20-no", f"echo not today; exit {code}")
    assert await cutover.around(HookStep.THAW, stoppable=False) == "worked"
    assert cutover.calls() == [
        "pre-thaw.d/10-a alice::before",
        "pre-thaw.d/20-no alice::before",
        "pre-thaw.d/30-c alice::before",
        "thaw",
        "post-thaw.d/10-a alice:done:worked after",
    ]
    (said,) = cutover.warnings()
    assert "the hook pre-thaw.d/20-no before the thaw of alice failed" in said
    assert f"exit code {code}: not today" in said


@in_loop
async def test_hooks_that_may_not_be_called_stop_no_thaw_and_are_owed_after_it(cutover: HookedCutover) -> None:
    spoiled = cutover.hook("post-thaw.d/10-a", mode=0o777)
    with pytest.raises(Refused, match="can be written by others"):
        await cutover.around(HookStep.FREEZE)
    assert cutover.calls() == []
    assert await cutover.around(HookStep.THAW, stoppable=False) == "worked"
    assert cutover.calls() == ["thaw"]
    for said in cutover.warnings():
        assert "no hook was called around the thaw of alice" in said
    spoiled.chmod(0o755)
    place = cutover.place(HookStep.THAW).hooked
    for _ in range(2):
        await cutover.calling.catch_up(place, cutover.facts("owed"))
    assert cutover.calls() == ["post-thaw.d/10-a alice:done:owed"]


@pytest.mark.parametrize(("error", "state"), [(Refused("no"), "refused"), (ToolFailed("broken"), "failed")])
@in_loop
async def test_hooks_after_a_step_that_failed_are_told_its_state(
    cutover: HookedCutover, error: Exception, state: str
) -> None:
    cutover.hook("post-freeze.d/10-a")
    with pytest.raises(type(error)):
        await cutover.around(HookStep.FREEZE, fails=error)
    assert cutover.calls() == ["freeze", f"post-freeze.d/10-a alice:{state}:before"]


@in_loop
async def test_what_a_killed_run_owes_is_called_once_and_what_had_ended_is_not(cutover: HookedCutover) -> None:
    for where in ("post-thaw.d/10-a", "post-thaw.d/20-b"):
        cutover.hook(where)
    step = cutover.place(HookStep.THAW).hooked
    records = cutover.ledger.hooks
    opened = records.open_step(run_id=cutover.run_id, step=step.step, subject=step.key, at_s=2.0)
    stage = step.stage(HookEvent.POST)
    calls = [
        records.intend(step_id=opened.id, hook=Hook(stage=stage, name=name, path=b"/" + name), token=token, at_s=3.0)
        for name, token in ((b"20-b", "ended"), (b"10-a", "killed"))
    ]
    records.finish(calls[0], at_s=4.0, exit_code=0, outcome=HookOutcome.GO_ON, output=b"")
    await cutover.calling.begin(CUTOVER)
    # Neither another step of this attempt, nor the same one of its rollback, nor of another attempt.
    other = replace(cutover.record, id=cutover.record.id + 1)
    for place in (
        cutover.place(HookStep.FREEZE),
        cutover.place(HookStep.THAW, back=True),
        replace(cutover.place(HookStep.THAW), record=other),
    ):
        await cutover.calling.catch_up(place.hooked, cutover.facts())
    assert cutover.calls() == []
    for _ in range(2):
        await cutover.calling.catch_up(step, cutover.facts("after"))
    assert cutover.calls() == ["post-thaw.d/10-a alice:done:after"]


@in_loop
async def test_a_step_that_is_cancelled_stays_open(cutover: HookedCutover) -> None:
    cutover.hook("pre-freeze.d/10-slow", "sleep 1000")
    cutover.hook("post-freeze.d/10-slow")
    task = asyncio.create_task(cutover.around(HookStep.FREEZE))
    await asyncio.to_thread(wait_for, cutover.calls_file.exists, "the hook is at work")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cutover.calls() == ["pre-freeze.d/10-slow alice::before"]
    assert cutover.ledger.hooks.open_since(HookStep.FREEZE, cutover.place(HookStep.FREEZE).hooked.key) is not None
    assert list(cutover.ledger.hooks.unfinished(CUTOVER)) == []


def test_what_a_killed_cutover_left_running_is_ended_by_who_makes_its_steps(cutover: HookedCutover) -> None:
    cutover.hook("pre-freeze.d/10-a")
    step = cutover.place(HookStep.FREEZE).hooked
    records = cutover.ledger.hooks
    opened = records.open_step(run_id=cutover.run_id, step=step.step, subject=step.key, at_s=2.0)
    hook = Hook(stage=step.stage(HookEvent.PRE), name=b"10-a", path=b"/10-a")
    records.intend(step_id=opened.id, hook=hook, token="left-over", at_s=3.0)
    left = subprocess.Popen(["sleep", "1000"], env={**os.environ, "MIGRATOR_TOKEN": "left-over"})
    try:
        asyncio.run(cutover.calling.begin((HookStep.BATCH, HookStep.PASS)))
        assert left.poll() is None
        asyncio.run(cutover.calling.begin(CUTOVER))
        wait_for(lambda: left.poll() is not None, "the hook that was left is ended")
    finally:
        left.kill()
        left.wait()
    assert list(records.unfinished(CUTOVER)) == []
    assert [kind.value for kind, *_ in cutover.said] == ["hook-interrupted"]


@in_loop
async def test_a_killed_telling_asks_its_guards_again_and_tells_nobody_twice(cutover: HookedCutover) -> None:
    for where in ("pre-announce.d/10-a", "post-announce.d/10-a", "post-announce.d/20-b"):
        cutover.hook(where)
    step = HookedStep(step=HookStep.ANNOUNCE, key="plan: announced", subject="alice: announce", words="telling alice")
    records = cutover.ledger.hooks
    opened = records.open_step(run_id=cutover.run_id, step=step.step, subject=step.key, at_s=2.0)
    hook = Hook(stage=step.stage(HookEvent.POST), name=b"20-b", path=b"/20-b")
    call = records.intend(step_id=opened.id, hook=hook, token="ended", at_s=3.0)
    records.finish(call, at_s=4.0, exit_code=0, outcome=HookOutcome.GO_ON, output=b"")
    assert await cutover.calling.tell(step, cutover.facts("soon"))
    assert cutover.calls() == ["pre-announce.d/10-a alice::soon", "post-announce.d/10-a alice:done:soon"]
    latest = records.latest(step.step, step.key)
    assert latest is not None
    assert (latest.id > opened.id, latest.state) == (True, "done")
