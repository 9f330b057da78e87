"""Calling the hooks that a call which was cut off still owes after steps of an attempt that has ended."""

from collections.abc import Iterator
from dataclasses import replace

from migrator.domain.cutover import CutoverRecord, CutoverState, CutoverStep
from migrator.domain.cutover_seen import Act
from migrator.domain.hooks import HookEvent, HookState, HookStep
from migrator.stages.cutover.machine import TreeMachine
from migrator.stages.hooking import CutoverPlace


async def call_owed(machine: TreeMachine, record: CutoverRecord) -> None:
    """Call the `post` hooks of every step of an attempt whose calls have not come to their end. Nobody is frozen by it any
    more, so they may take their time. May be called again; mostly there is nothing to do.
    """
    hooking = machine.cutting.hooking
    for place, step, done in _steps(record):
        if hooking.owes(place):
            act = Act(step=step, intent=record.state, result=record.state)
            facts = machine.facts(place, HookEvent.POST, record, act)
            await hooking.catch_up_step(place, facts if done else replace(facts, state=HookState.FAILED))


def _steps(record: CutoverRecord) -> Iterator[tuple[CutoverPlace, CutoverStep, bool]]:
    """The steps that hooks are called around, in order, and whether each was done."""
    states = record.times.keys()
    given_up, back = record.state is CutoverState.REVERTED, record.state is CutoverState.ROLLED_BACK
    for hooked, step, there, done in (
        (HookStep.FREEZE, CutoverStep.FREEZE, True, CutoverState.FROZEN),
        (HookStep.SWITCH, CutoverStep.SWITCH, True, CutoverState.SWITCHED),
        (HookStep.THAW, CutoverStep.REVERT if given_up else CutoverStep.THAW, True, None),
        (HookStep.FREEZE, CutoverStep.ROLLBACK_FREEZE, False, CutoverState.ROLLBACK_FROZEN),
        (HookStep.SWITCH, CutoverStep.SWITCH_BACK, False, CutoverState.SWITCHED_BACK),
        (HookStep.THAW, CutoverStep.ROLLBACK_THAW if back else CutoverStep.ROLLBACK_REVERT, False, None),
    ):
        place = CutoverPlace(step=hooked, record=record, back=not there)
        yield place, step, done is None or done in states
