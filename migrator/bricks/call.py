"""One call of a verb on bricks: its ports, its run in the ledger, its events, its hooks, and the engine it drives."""

import dataclasses
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar, assert_never

from msgspec import Struct
from msgspec.structs import replace

from migrator.bricks.add.model import AdditionState
from migrator.bricks.drain.model import DrainStep
from migrator.bricks.model import BrickOperation, BrickRequest, BrickStanding, CallSummary, Ending
from migrator.bricks.progress import TaskSample, lost_after_s, lost_processes, stalled_hosts
from migrator.bricks.records import BrickLedger
from migrator.bricks.retire.model import RetireRequest
from migrator.bricks.shared import NO_THROTTLE, Throttle, ThrottleRules, look_everywhere
from migrator.bricks.shields import Shields
from migrator.bricks.volume import parts_missing
from migrator.core.errors import ExitCode, Interrupted, MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.progress import DrainProgress
from migrator.core.units import several
from migrator.gluster.changes import GlusterVolumeCommands
from migrator.gluster.model import TaskProgress, VolumeState
from migrator.hooks.model import HookFacts, HookState, HookStep
from migrator.hooks.stage import HookedStep, StepHooks
from migrator.ledger.call import say
from migrator.ledger.model import SiteRecord
from migrator.operations.engine import OperationEnd, OperationEngine, Procedure, Snapshot, StepPorts, Stuck, reason_of
from migrator.operations.model import Act, Finished, Halt, StepRecord, StepResult
from migrator.operations.run_files import CallPorts

Summary = TypeVar("Summary", bound=CallSummary)
Bricks = TypeVar("Bricks", bound=BrickOperation[Any, Any])

BRICKS_LOCK = "drain"
"""Held by drains and additions: only one runs at a time, because each moves files that the other checks. Gluster may
continue a drain without a call.
"""


class BrickWorld(CallPorts, frozen=True, kw_only=True):
    """The ports that every verb has. `back_up` copies the ledger under a name (blocking)."""

    ledger: BrickLedger
    volume: GlusterVolumeCommands
    back_up: Callable[[str], None]
    throttle: ThrottleRules = NO_THROTTLE
    shields: Shields | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickCall(ABC):
    """One call of a verb. `run_id` and `directory` are None in a dry run, which writes nothing and calls no hook.
    `steps` are those around which its hooks are called.
    """

    log: ClassVar[logging.Logger]
    steps: ClassVar[tuple[HookStep, ...]]

    world: BrickWorld
    request: BrickRequest | RetireRequest
    site: SiteRecord
    run_id: int | None = None
    directory: str | None = None

    def now_s(self) -> float:
        return self.world.clock.now_s()

    def say(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """Emit an event: on the screen, in the log and, except in a dry run, in the ledger."""
        say(self.world, kind, severity, subject, message, run_id=self.run_id, log=self.log)

    def hooking(self) -> StepHooks:
        """Return the caller of the hooks. A dry run must not call them."""
        if self.run_id is None:
            raise AssertionError("a dry run calls no hook")
        return StepHooks(ports=self.world, hooks=self.world.hooks, run_id=self.run_id, say=self.say)

    def facts(self, record: Any, **facts: Any) -> HookFacts:  # noqa: ANN401 - a record, and fields of the facts
        """Return the facts for a hook."""
        return HookFacts(run_id=self.run_id or 0, started_at_s=self.now_s(), **self.facts_of(record) | facts)

    @abstractmethod
    def facts_of(self, record: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return the facts for a hook that the record has."""

    async def recorded(
        self,
        verb: str,
        purpose: str,
        work: Callable[[Self], Awaitable[Summary]],
        *,
        locks: Sequence[str] = (BRICKS_LOCK,),
    ) -> Summary:
        """Work with the locks, a run directory, an entry in the ledger, and a heartbeat, after a check of the hooks."""
        world = self.world
        with ExitStack() as held:
            held.enter_context(world.locks.hold(purpose, *locks))
            pid = self.request.pid
            async with world.files.recorded(world.ledger, world.clock, verb=verb, pid=pid, log=self.log) as run:
                call = dataclasses.replace(self, run_id=run.id, directory=run.directory.path)
                await call.hooking().begin(self.steps)
                summary = await work(call)
                run.exit_code = summary.exit_code
                return summary


@dataclass(slots=True, kw_only=True)
class BrickLooker:
    """Takes the snapshots for one call. Changes nothing, and an unreadable fact never raises.

    `not_whole_s` is the last time at which this call saw a part of the volume missing; at first, the time at which the
    call began. A rebalance process may have been waiting for that part.
    """

    call: BrickCall
    not_whole_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.not_whole_s = self.call.now_s()

    def note_missing(self, state: VolumeState) -> None:
        """Remember whether a part of the volume is missing now."""
        if parts_missing(state):
            self.not_whole_s = self.call.now_s()

    def standstill(
        self, samples: Sequence[TaskSample], task_id: str, progress: TaskProgress | None, request: BrickRequest
    ) -> tuple[str, str]:
        """Return why a task counts as stalled, and why its rebalance process counts as lost."""
        now_s, names = self.call.now_s(), {} if progress is None else progress.names
        still = stalled_hosts(samples, task_id=task_id, now_s=now_s, limit_s=request.stall_s, names=names)
        lost_s = lost_after_s(request.poll_s)
        lost = lost_processes(
            samples, task_id=task_id, since_s=self.not_whole_s, now_s=now_s, limit_s=lost_s, names=names
        )
        return still, lost


@dataclass(slots=True, kw_only=True)
class BrickMachine(Procedure[Bricks, Snapshot], Generic[Bricks, Snapshot, Summary]):
    """Drives a drain or an addition. `back`: the call is to revert it."""

    halting: ClassVar[EventKind]
    doubting: ClassVar[EventKind]
    unreported: ClassVar[frozenset[Any]]
    """States in which nothing has failed: at most, preflight checks have refused the start."""
    failed_steps: ClassVar[tuple[HookStep, HookStep]]
    """The step that hooks are told to have failed, on the way there and while it is reverted."""

    call: BrickCall
    back: bool = False
    throttle: Throttle = field(init=False)
    _doubted: str = ""

    def __post_init__(self) -> None:
        self.throttle = Throttle(call=self.call, records=self.records)

    @abstractmethod
    def summary(self, record: Bricks, ending: Ending, words: str, hint: str = "") -> Summary:
        """Return the summary, with the facts of this process."""

    @abstractmethod
    def reverted(self, record: Bricks) -> bool:
        """Return whether the operation is being reverted, or was."""

    @abstractmethod
    async def resume(self, record: Bricks) -> Bricks:
        """Clear what earlier calls have left, before the first step."""

    async def end(self, record: Bricks) -> None:
        """Call the hooks that are owed when nothing is left to do, or the operation cannot continue now."""
        del record

    @abstractmethod
    async def finished(self, record: Bricks, step: Finished) -> Summary:
        """Return the summary when no step is left."""

    @property
    def ports(self) -> StepPorts:
        return self.call.world

    @property
    def poll_s(self) -> float:
        return self.call.request.poll_s

    @property
    def hooks(self) -> StepHooks:
        return self.call.hooking()

    def emit(self, kind: EventKind, severity: Severity, record: Bricks, message: str) -> None:
        self.call.say(kind, severity, record.subject, message)

    def way_out(self, record: Bricks, seen: Snapshot) -> str:
        """Return what an admin has to do about a failed step."""
        del record, seen
        return "solve that"

    def shown(self, record: Bricks) -> str:
        return record.shown_bricks

    def doubt(self, record: Bricks, words: str) -> None:
        """Warn, unless the last warning was the same. Empty words: the doubt has cleared."""
        if words not in ("", self._doubted):
            self.emit(self.doubting, Severity.WARNING, record, words)
        self._doubted = words

    async def throttled(self, record: Bricks, change: Callable[[Any], Awaitable[object]]) -> None:
        """Change the throttle; a failure is only reported. The next call restores options that remain changed."""
        try:
            await change(record)
        except MigratorError as error:
            self.doubt(record, f"the throttle could not be changed: {error.message}")

    def show(self, found: BrickStanding, step: str, elapsed_s: float, *, totals: bool = True) -> None:
        """Show the progress. Without `totals` it is not known how many files will be moved."""
        self.call.world.progress.show(
            DrainProgress(
                bricks=found.bricks,
                step=step,
                elapsed_s=elapsed_s,
                files=found.moved_files,
                size_bytes=found.moved_bytes,
                total_files=found.files if totals else None,
                total_bytes=found.size_bytes if totals else None,
                failures=found.failures,
                skipped=found.skipped,
                files_per_s=found.files_per_s,
                bytes_per_s=found.bytes_per_s,
                left_s=found.left_s,
            )
        )

    async def look_everywhere(self, record: Bricks) -> None:
        """Make clients look up a name on all bricks, before layouts change. May be called again. Raises ToolFailed."""
        words = await look_everywhere(self.call.world.volume)
        if words:
            self.emit(EventKind.OPTION_SET, Severity.WARNING, record, words)

    async def shield(self) -> str:
        """Keep files that are moved from getting the default ACL of their directory. Return a summary as text. Needs the
        lock of the volume: no verification may begin before it and end after `unshield`. May be called again. Raises
        MigratorError.
        """
        world = self.call.world
        if world.shields is None:
            return ""
        state, _ = await world.volume.state_and_tasks()
        found = await world.shields.put_on(state)
        return f"; {several(found, 'file')} shielded from default ACLs meanwhile" if found else ""

    async def unshield(self, record: Bricks, *, begins: bool = False) -> None:
        """Remove shields, also those that killed calls have left, unless Gluster moves files or is about to; `begins`: the
        rebalance of an addition, which sets them again. A failure is only reported: the next step or call tries again, and
        no scan is whole until then.
        """
        world = self.call.world
        if world.shields is None or not world.shields.on or world.ledger.drains.under_way():
            return
        if not begins and self.records.read(record.id).state is AdditionState.BALANCING:
            return
        try:
            state, tasks = await world.volume.state_and_tasks()
            # A host without bricks, such as one that was drained and switched off, holds no file.
            if all(brick.online for brick in state.bricks) and not any(task.unfinished for task in tasks):
                await world.shields.take_off(state)
        except (MigratorError, OSError, TimeoutError) as error:
            self.doubt(record, f"shields stay on files: {reason_of(error)}")

    async def bring(self, record: Bricks) -> Summary:
        """Drive the operation from its current state. Raises Interrupted, LockHeld, HookSkipped, Refused."""
        await self._tell_failure(record, None)
        record = await self.resume(record)
        try:
            summary = await self._summarized(await OperationEngine(self).drive(record))
            await self.unshield(record)
        except Interrupted:
            raise
        except MigratorError:
            await self._tell_failure(self.records.read(record.id), None)
            raise
        await self._tell_failure(self.records.read(record.id), summary)
        return summary

    def previewed(self, record: Bricks, step: Act[Any, Any] | Halt | Finished) -> Summary:
        """Return the summary of a dry run in which this would be the first step."""
        if isinstance(step, Halt):
            return self.why_halted(record, step)
        if isinstance(step, Finished):
            return self.summary(record, Ending.DONE, step.words)
        words = f"it would begin with: {step.step.value}" + (f" ({step.reason})" if step.reason else "")
        return self.summary(record, Ending.PLANNED, words)

    async def _summarized(self, ended: OperationEnd[Bricks, Snapshot]) -> Summary:
        match ended.reason:
            case Finished() as step:
                await self.end(ended.record)
                return await self.finished(ended.record, step)
            case Halt() as step:
                await self.end(ended.record)
                return self._halted(ended.record, step)
            case Stuck():
                return self._stuck(ended.record, ended.snapshot)
            case _:
                assert_never(ended.reason)

    def _halted(self, record: Bricks, step: Halt) -> Summary:
        self.emit(self.halting, Severity.ERROR, record, "; ".join((step.words, *step.reasons)))
        return self.why_halted(record, step)

    def why_halted(self, record: Bricks, step: Halt) -> Summary:
        """Return the summary of a halted operation."""
        return replace(self.summary(record, Ending.HALTED, step.words, step.hint), reasons=step.reasons)

    def _stuck(self, record: Bricks, seen: Snapshot) -> Summary:
        words = f"{record.shown_bricks} is {record.state.value}: {record.failure}"
        self.emit(self.halting, Severity.ERROR, record, words)
        hint = f"{self.way_out(record, seen)}, then run the same command again: it resumes"
        return self.summary(record, Ending.STUCK, words, hint)

    async def _tell_failure(self, record: Bricks, ended: CallSummary | None) -> None:
        """Call the hooks that report a failure, once per failure. `ended` is None when the call begins, or ended by an
        exception. May be called again.
        """
        if record.state in self.unreported:
            return
        if self.back and not self.reverted(record):
            # A refused stop is no failure of the operation.
            ended = None
        failure = failure_of(self.records.steps(record.id), record, ended)
        if failure is None:
            return
        step = HookedStep(
            step=HookStep.FAIL,
            # The step at which the operation failed identifies a failure.
            key=f"{record.kind} {record.id}: failure at step {failure.step_id}",
            subject=record.subject,
            words=f"the failure of the {record.subject}",
        )
        failed = self.failed_steps[self.reverted(record)]
        facts = self.call.facts(record, state=HookState.FAILED, failed=failed, reason=failure.reason)
        hooking = self.hooks
        await (hooking.once if failure.certain else hooking.catch_up)(step, facts)


# Failures that hooks report, each once. Pure.
#
# They may page an admin, so a call does not report failures that it repairs by itself. It checks at its beginning, for
# a failure that a killed call could not report, and at its end.


class AttemptFailure(Struct, frozen=True, kw_only=True):
    """A failure that an admin must look at. `step_id` is the step of the attempt that identifies it: without a later
    step it is the same failure. With `certain` False it counts as a failure only if a report of it had begun.
    """

    step_id: int
    reason: str
    certain: bool


def failure_of(
    steps: Sequence[StepRecord[Any]], record: BrickOperation[Any, Any], ended: CallSummary | None
) -> AttemptFailure | None:
    """Return the failure to report, from the end of a call (None: the call begins, or ended by an exception). `steps`
    has all steps of the attempt, oldest first. The step and the state of an abort have the same names in drains and
    additions.
    """
    given_up = [step.id for step in steps if step.step == DrainStep.GIVE_UP.value]
    if record.state.value == "failed" and given_up:
        return AttemptFailure(step_id=given_up[-1], reason=record.failure, certain=True)
    if not steps:
        return None
    last = steps[-1]
    if ended is not None:
        if ended.exit_code not in (ExitCode.REFUSED, ExitCode.FAILED):
            return None
        return AttemptFailure(step_id=last.id, reason="; ".join((ended.words, *ended.reasons)), certain=True)
    failed = last.message if last.result is StepResult.FAILED else ""
    reason = failed or "an earlier call has halted; `migrator status` has its last words"
    return AttemptFailure(step_id=last.id, reason=reason, certain=False)
