"""The engine of tracked operations: snapshot, decide, write the intent, act, write the result, and again.

A `Procedure` is one kind of operation in one call of a verb: its snapshot of the world, its rules and its acts. Only the
engine writes steps to the ledger, calls the site's hooks around steps, and handles interruptions and failures of steps.
After a kill, `drive` resumes from the record alone.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from migrator.core.clock import Clock
from migrator.core.errors import Interrupted, MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import Blocking, task_group
from migrator.hooks.calls import Check, HookedStep, StepHooks
from migrator.hooks.model import HookFacts
from migrator.ledger.locks import Locks
from migrator.operations.model import Act, Finished, Halt, Notes, Record, State

if TYPE_CHECKING:
    from migrator.operations.records import OperationStore

Snapshot = TypeVar("Snapshot")

LOG = logging.getLogger(__name__)

_NOTE_TIMEOUT_S = 60.0
"""Longer than the journal itself waits for the target."""

SNAPSHOT_RETRIES = 3
"""How often a snapshot that is not conclusive is repeated before its halt counts."""

INTERRUPTED = "it was interrupted"

# What a procedure gives to the engine, and gets from it.


class Done(Struct, Generic[State, Notes], frozen=True, kw_only=True):
    """How a step ended: notes for the record, and a message for people. `result` None: that of the act."""

    message: str = ""
    notes: Notes | None = None
    result: State | None = None


class Stuck(Struct, frozen=True):
    """The last step failed, and the next one would be the same. The record has the reason."""


class OperationEnd(Struct, Generic[Record, Snapshot], frozen=True, kw_only=True):
    """How a call left an operation, with its record and the last snapshot."""

    record: Record
    snapshot: Snapshot
    reason: Finished | Halt | Stuck


class StepEvents(Struct, frozen=True, kw_only=True):
    """The events of a kind: a step was done, failed, or aborts the operation."""

    done: EventKind
    failed: EventKind
    aborting: EventKind


class Around(Struct, frozen=True, kw_only=True):
    """The hooks of one step: `before` gives the facts for `pre` hooks, `after` those for `post` hooks. If not `stoppable`, hooks
    cannot prevent the step. `check` is made right before each `pre` hook, and raises Refused.
    """

    step: HookedStep
    before: Callable[[], HookFacts]
    after: Callable[[], HookFacts]
    stoppable: bool = True
    check: Check | None = None


class TimeLimit(Struct, frozen=True, kw_only=True):
    """The most seconds that a step may take now. A step that takes longer fails with this reason."""

    timeout_s: float
    reason: Callable[[], str]


@dataclass(slots=True)
class DeferredCancellation:
    """With one, a cancellation counts as a failure of the current step, and the operation is still completed or reverted.
    Without one, the call ends, and the same command resumes.
    """

    requested: bool = False

    def defer(self) -> None:
        """Absorb the cancellation of the current task, and remember it."""
        self.requested = True
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()


class StepPorts(Protocol):
    """`locks` note each step in the journal of the site."""

    @property
    def clock(self) -> Clock: ...

    @property
    def locks(self) -> Locks: ...

    @property
    def blocking(self) -> Blocking: ...


class StepCall(Protocol):
    """The call of a verb, with the part of it that the engine uses."""

    @property
    def ports(self) -> StepPorts: ...

    @property
    def hooks(self) -> StepHooks:
        """Calls the hooks that `around` names."""

    def emit(self, kind: EventKind, severity: Severity, subject: str, message: str, /) -> None:
        """Emit an event."""


@dataclass(slots=True, kw_only=True)
class Procedure(ABC, Generic[Record, Snapshot]):
    """One kind of operation, in one call of a verb."""

    events: ClassVar[StepEvents]
    waits: ClassVar[frozenset[Any]] = frozenset()
    """Steps that only wait for Gluster: an interruption is not a failure of these."""

    step_locks: ExitStack = field(default_factory=ExitStack)
    """Locks and open files of the current step; closed after it, unless `release` keeps them, and when the call ends."""
    cancellation: DeferredCancellation | None = None

    @property
    @abstractmethod
    def records(self) -> "OperationStore[Record, Any, Any, Any]":
        """The operations of this kind in the ledger."""

    @abstractmethod
    async def snapshot(self, record: Record) -> Snapshot:
        """Read the facts that decide the next step. Changes nothing."""

    @abstractmethod
    def next_step(self, record: Record, snapshot: Snapshot) -> Act[Any, Any] | Halt | Finished:
        """The next step of this call."""

    @abstractmethod
    async def perform(self, act: Act[Any, Any], record: Record) -> Done[Any, Any]:
        """Make a step. It can be repeated after a crash. Raises MigratorError, OSError, TimeoutError."""

    # What a kind may override.

    async def prepare(self, record: Record, act: Act[Any, Any], snapshot: Snapshot) -> Any:  # noqa: ANN401 - notes of the kind
        """Before the intent: acquire locks, call hooks that are checks, and return facts to write with the intent."""
        del record, act, snapshot
        return None

    async def around(self, act: Act[Any, Any], record: Record) -> Around | None:
        """The hooks around a step."""
        del act, record
        return None

    def time_limit(self, record: Record, act: Act[Any, Any]) -> TimeLimit | None:
        """The limit of a step; None: there is none."""
        del record, act
        return None

    def release(self, act: Act[Any, Any]) -> None:
        """Release the locks of a step."""
        del act
        self.step_locks.pop_all().close()

    def after_failure(self, record: Record, act: Act[Any, Any], error: Exception, *, resumed: bool) -> None:
        """After the failure of a step is written. May raise the error again: a retry does not help if a hook or a check refused.
        `resumed`: an earlier call had begun the same step.
        """
        del record, act, resumed
        if isinstance(error, MigratorError) and error.exit_code is not MigratorError.exit_code:
            raise error

    def repeats_snapshot(self, record: Record, halt: Halt, snapshot: Snapshot, *, tries: int, waited_s: float) -> bool:
        """True to take another snapshot before a halt counts; `tries` were repeated since the last step."""
        del record, snapshot, waited_s
        return halt.look_again and tries < SNAPSHOT_RETRIES


# The loop.


@dataclass(frozen=True, slots=True)
class OperationEngine(Generic[Record, Snapshot]):
    """Drives an operation by its procedure, with `poll_s` between snapshots that are not conclusive."""

    procedure: Procedure[Record, Snapshot]
    call: StepCall
    poll_s: float = 0.0

    async def drive(self, record: Record) -> OperationEnd[Record, Snapshot]:
        """Drive the operation from its current state. Raises what steps raise, Interrupted, LockHeld."""
        with self.procedure.step_locks:
            return await self._drive(record)

    async def _drive(self, record: Record) -> OperationEnd[Record, Snapshot]:
        procedure, clock = self.procedure, self.call.ports.clock
        failed: tuple[Any, bool] | None = None
        tries, since_s = 0, clock.monotonic_s()
        while True:
            try:
                snapshot = await procedure.snapshot(record)
            except asyncio.CancelledError as error:
                self._defer(error)
                continue
            step = procedure.next_step(record, snapshot)
            if isinstance(step, Halt):
                waited_s = clock.monotonic_s() - since_s
                if not procedure.repeats_snapshot(record, step, snapshot, tries=tries, waited_s=waited_s):
                    return OperationEnd(record=record, snapshot=snapshot, reason=step)
                tries += 1
                await clock.sleep(self.poll_s)
                continue
            if isinstance(step, Finished):
                return OperationEnd(record=record, snapshot=snapshot, reason=step)
            # A failed step that a new snapshot shows as done counts as another step: only its hooks are missing.
            if failed == (step.step, step.seen_done):
                return OperationEnd(record=record, snapshot=snapshot, reason=Stuck())
            record, succeeded = await self._step(record, step, snapshot)
            procedure.release(step)
            failed = None if succeeded else (step.step, step.seen_done)
            tries, since_s = 0, clock.monotonic_s()

    async def _step(self, record: Record, act: Act[Any, Any], snapshot: Snapshot) -> tuple[Record, bool]:
        """Make one step. Returns the record, and whether the step succeeded."""
        procedure, records = self.procedure, self.procedure.records
        try:
            notes = await procedure.prepare(record, act, snapshot)
        except (MigratorError, OSError, TimeoutError) as error:
            if procedure.cancellation is None:
                raise
            return self._not_begun(record, act, reason_of(error)), False
        except asyncio.CancelledError as error:
            self._defer(error)
            return self._not_begun(record, act, INTERRUPTED), False
        if act.reason:
            self.call.emit(
                procedure.events.aborting, Severity.WARNING, record.subject(), f"{act.step.value}: {act.reason}"
            )
        step_id = records.intend(record.id, act, at_s=self._now_s(), notes=notes)
        resumed, record = record.state is act.intent, records.read(record.id)
        time_limit = procedure.time_limit(record, act)
        timeout = asyncio.timeout(None if time_limit is None else time_limit.timeout_s)
        try:
            async with timeout, task_group() as group:
                group.create_task(self._note(record, act))
                done = await self._carry_out(record, act)
        except (asyncio.CancelledError, Interrupted) as error:
            if time_limit is not None and timeout.expired() and isinstance(error, Interrupted):
                # Work that the limit has cancelled may end with a message of its own.
                return self._failed(record, step_id, act, time_limit.reason()), False
            if procedure.cancellation is None:
                raise self._interrupted(record, step_id, act) from error
            if isinstance(error, asyncio.CancelledError):
                procedure.cancellation.defer()
                return self._failed(record, step_id, act, INTERRUPTED), False
            # The cancelled work may have its own message.
            procedure.cancellation.requested = True
            return self._failed(record, step_id, act, reason_of(error)), False
        except (MigratorError, OSError, TimeoutError) as error:
            expired = time_limit is not None and timeout.expired()
            reason = time_limit.reason() if time_limit is not None and expired else reason_of(error)
            record = self._failed(record, step_id, act, reason)
            procedure.after_failure(record, act, error, resumed=resumed)
            return record, False
        state = act.result if done.result is None else done.result
        record = records.finish(step_id, state, at_s=self._now_s(), notes=done.notes, message=done.message)
        if done.message or act.step not in procedure.waits:
            message = f"{act.step.value}: {done.message}" if done.message else act.step.value
            self.call.emit(procedure.events.done, Severity.INFO, record.subject(), message)
        return record, True

    async def _note(self, record: Record, act: Act[Any, Any]) -> None:
        """Note a step in the journal after its intent and before its result, so that a copy of the ledger from before it is
        recognized. The step does not wait for it, since a user may be frozen meanwhile. That this ledger is the newest one was
        checked with the locks of the call: from then on nothing about the journal stops a step, because a frozen user has to be
        thawed.
        """
        ports = self.call.ports
        if act.step in self.procedure.waits:
            return
        entry = f"{record.subject()}: {act.step.value}"
        try:
            await ports.blocking(partial(ports.locks.note, entry), timeout_s=_NOTE_TIMEOUT_S)
        except (MigratorError, TimeoutError) as error:
            LOG.warning("the step is not in the journal: %s: %s", entry, reason_of(error))

    async def _carry_out(self, record: Record, act: Act[Any, Any]) -> Done[Any, Any]:
        procedure = self.procedure
        around = await procedure.around(act, record)
        if around is None:
            return await procedure.perform(act, record)
        hooks = self.call.hooks
        if act.seen_done:
            await hooks.catch_up(around.step, around.after())
            return await procedure.perform(act, record)
        return await hooks.around(
            around.step,
            lambda: procedure.perform(act, record),
            facts=around.before(),
            after=lambda _, __: around.after(),
            stoppable=around.stoppable,
            check=around.check,
        )

    def _interrupted(self, record: Record, step_id: int, act: Act[Any, Any]) -> Interrupted:
        """Record an interruption, and return the error that ends the call."""
        records, waits = self.procedure.records, act.step in self.procedure.waits
        if waits:
            message = "the command ended, and Gluster continues"
            records.finish(step_id, act.intent, at_s=self._now_s(), message=message)
        else:
            records.fail(step_id, INTERRUPTED, at_s=self._now_s())
        more = ". Gluster continues by itself" if waits else ""
        message = f"{record.subject()}: {act.step.value} was interrupted{more}"
        return Interrupted(message, hint="the same command resumes it")

    def _not_begun(self, record: Record, act: Act[Any, Any], reason: str) -> Record:
        """Record a step that could not begin, with the reason. The state does not change."""
        same: Act[Any, Any] = Act(step=act.step, intent=record.state, result=act.result, reason=act.reason)
        step_id = self.procedure.records.intend(record.id, same, at_s=self._now_s())
        return self._failed(record, step_id, act, reason)

    def _failed(self, record: Record, step_id: int, act: Act[Any, Any], reason: str) -> Record:
        procedure = self.procedure
        message = f"{act.step.value} failed: {reason}"
        self.call.emit(procedure.events.failed, Severity.ERROR, record.subject(), message)
        return procedure.records.fail(step_id, reason, at_s=self._now_s())

    def _defer(self, error: asyncio.CancelledError) -> None:
        """Absorb a cancellation, or raise it again if the procedure does not defer any."""
        if self.procedure.cancellation is None:
            raise error
        self.procedure.cancellation.defer()

    def _now_s(self) -> float:
        return self.call.ports.clock.now_s()


def reason_of(error: BaseException) -> str:
    """Why a step failed, for people."""
    if isinstance(error, MigratorError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error) or "no answer"
    return "no answer"
