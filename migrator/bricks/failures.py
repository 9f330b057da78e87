"""Hooks that report a failure of a drain or an addition, once per failure.

They may page an admin, so a call does not report failures that it repairs by itself. It checks at its beginning, for a
failure that a killed call could not report, and at its end.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from migrator.bricks.model import FAILED_STATE, GIVE_UP_STEP, BrickOperation, CallSummary
from migrator.core.errors import ExitCode, Interrupted, MigratorError
from migrator.hooks.calls import HookedStep
from migrator.hooks.model import HookState, HookStep
from migrator.operations.call import Call
from migrator.operations.model import StepRecord, StepResult

if TYPE_CHECKING:
    from migrator.operations.records import OperationStore

Summary = TypeVar("Summary", bound=CallSummary)
BrickRecord = TypeVar("BrickRecord", bound=BrickOperation[Any, Any])


class AttemptFailure(Struct, frozen=True, kw_only=True):
    """A failure that an admin must look at. `step_id` is the step of the attempt that identifies it: without a later
    step it is the same failure. With `certain` False it counts as a failure only if a report of it had begun.
    """

    step_id: int
    reason: str
    certain: bool


def failure_of(
    steps: Sequence[StepRecord[Any]], record: BrickOperation[Any, Any], summary: CallSummary | None
) -> AttemptFailure | None:
    """Return the failure to report. `summary` is None if the call begins, or ended by an exception. `steps` has all steps
    of the attempt, oldest first.
    """
    given_up = [step.id for step in steps if step.step == GIVE_UP_STEP]
    if record.state == FAILED_STATE and given_up:
        return AttemptFailure(step_id=given_up[-1], reason=record.failure, certain=True)
    if not steps:
        return None
    last = steps[-1]
    if summary is not None:
        if summary.exit_code not in (ExitCode.REFUSED, ExitCode.FAILED):
            return None
        return AttemptFailure(step_id=last.id, reason="; ".join((summary.words, *summary.reasons)), certain=True)
    failed = last.message if last.result is StepResult.FAILED else ""
    reason = failed or "an earlier call has halted; `migrator status` shows its last message"
    return AttemptFailure(step_id=last.id, reason=reason, certain=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureHooks(Generic[BrickRecord]):
    """Calls these hooks around the work of one call. `reverts`: the call is to revert the operation."""

    call: Call[Any, Any]
    records: "OperationStore[BrickRecord, Any, Any, Any]"
    reverts: bool

    async def around(self, record: BrickRecord, work: Callable[[], Awaitable[Summary]]) -> Summary:
        """Work on an operation, and report its failures. Raises what the work raises, and what hooks raise."""
        await self._report(record, None)
        try:
            summary = await work()
        except Interrupted:
            raise
        except MigratorError:
            await self._report(self.records.read(record.id), None)
            raise
        await self._report(self.records.read(record.id), summary)
        return summary

    async def _report(self, record: BrickRecord, summary: CallSummary | None) -> None:
        """Report a failure that was not reported. May be called again."""
        if not record.can_fail():
            return
        if self.reverts and not record.is_reverted():
            # A refused stop is no failure of the operation.
            summary = None
        failure = failure_of(self.records.steps(record.id), record, summary)
        if failure is None:
            return
        step = HookedStep(
            step=HookStep.FAIL,
            # The step at which the operation failed identifies a failure.
            key=f"{record.kind} {record.id}: failure at step {failure.step_id}",
            subject=record.subject(),
            words=f"the failure of the {record.subject()}",
        )
        facts = self.call.hook_facts(
            record.hook_facts(), state=HookState.FAILED, failed=record.failed_hook_step(), reason=failure.reason
        )
        hooks = self.call.hooks
        await (hooks.once if failure.certain else hooks.catch_up)(step, facts)
