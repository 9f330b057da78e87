"""The engine of tracked operations: snapshot, decide, write the intent, act, write the result, and again.

Each kind brings its snapshot of the world, its rules and its acts. Only the engine writes steps to the ledger, calls the site's
hooks around steps, and handles interruptions and failures of steps. After a kill, `drive` resumes from the record alone.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from msgspec import Struct

from migrator.core.clock import Clock
from migrator.core.errors import Interrupted, MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import Blocking, task_group
from migrator.hooks.model import HookFacts
from migrator.hooks.stage import Check, HookedStep, StepHooks
from migrator.ledger.locks import Locks
from migrator.operations.model import Act, Finished, Halt, Notes, Record, State, Step

if TYPE_CHECKING:
    from migrator.operations.records import OperationStore

Snapshot = TypeVar("Snapshot")
Outcome = TypeVar("Outcome")

LOG = logging.getLogger(__name__)

_NOTE_TIMEOUT_S = 60.0
"""Longer than the journal itself waits for the target."""

LOOKS = 3
"""How often a failed snapshot is retried before it counts."""

INTERRUPTED = "it was interrupted"


class Done(Struct, Generic[State, Notes], frozen=True, kw_only=True):
    """How a step ended: notes for the record, and a sentence about it. `result` None: that of the act."""

    words: str = ""
    notes: Notes | None = None
    result: State | None = None


class Events(Struct, frozen=True, kw_only=True):
    """The events of a kind: a step was done or failed."""

    step: EventKind
    failed: EventKind


class Around(Struct, frozen=True, kw_only=True):
    """The hooks of one step: `before` gives the facts for `pre` hooks, `after` those for `post` hooks. If not `stoppable`, hooks
    cannot prevent the step. `check` is made right before each `pre` hook, and raises Refused.
    """

    step: HookedStep
    before: Callable[[], HookFacts]
    after: Callable[[], HookFacts]
    stoppable: bool = True
    check: Check | None = None


class StepPorts(Protocol):
    """The part of every kind's world that the engine touches. `locks` note each step in the journal of the site."""

    @property
    def clock(self) -> Clock: ...

    @property
    def locks(self) -> Locks: ...

    @property
    def blocking(self) -> Blocking: ...


@dataclass(slots=True, kw_only=True)
class Engine(ABC, Generic[Record, Snapshot, State, Step, Notes, Outcome]):
    """Drives one operation, in one call of a verb. Each kind is a subclass.

    If `shielded`, a cancellation counts as a failure of the step, the operation is still completed or reverted, and
    `interrupted` is set. Otherwise the call ends, and the same command resumes.
    """

    shielded: bool = False
    interrupted: bool = False
    locks: ExitStack = field(default_factory=ExitStack)
    """Locks of the current step; released after it, unless `release` keeps them."""

    events: ClassVar[Events]
    """The events of this kind."""
    waits: ClassVar[frozenset[Any]] = frozenset()
    """Steps that only wait for Gluster: an interruption is not a failure of these."""

    # What each kind implements.

    @property
    @abstractmethod
    def records(self) -> "OperationStore[Record, State, Step, Notes]":
        """The operations of this kind in the ledger."""

    @property
    @abstractmethod
    def ports(self) -> StepPorts:
        """What the engine itself touches."""

    @property
    def clock(self) -> Clock:
        """The time."""
        return self.ports.clock

    @abstractmethod
    async def snapshot(self, record: Record) -> Snapshot:
        """Read the facts that decide the next step. Changes nothing."""

    @abstractmethod
    def next_step(self, record: Record, seen: Snapshot) -> Act[Step, State] | Halt | Finished:
        """The next step of this call."""

    @property
    @abstractmethod
    def acts(self) -> Mapping[Step, Callable[[Any, Record], Awaitable[Done[State, Notes]]]]:
        """What each step does. Each can be repeated after a crash. They raise MigratorError, OSError, TimeoutError."""

    @abstractmethod
    def say(self, kind: EventKind, severity: Severity, record: Record, message: str) -> None:
        """Emit an event about an operation."""

    @abstractmethod
    async def finished(self, record: Record, step: Finished) -> Outcome:
        """Returns the outcome when no step is left."""

    @abstractmethod
    async def halted(self, record: Record, step: Halt) -> Outcome:
        """Returns the outcome when the operation cannot continue now."""

    @abstractmethod
    def stuck(self, record: Record, seen: Snapshot, /) -> Outcome:
        """Returns the outcome when a step failed and the next step would be the same."""

    # What a kind may override.

    @property
    def poll_s(self) -> float:
        """The interval between snapshots while the engine waits."""
        return 0.0

    def hooking(self) -> StepHooks | None:
        """Calls the hooks; None if there are none."""
        return None

    async def around(self, act: Act[Step, State], record: Record, /) -> Around | None:
        """The hooks around a step."""
        del act, record
        return None

    def looks_again(self, record: Record, step: Halt, seen: Snapshot, *, looks: int, waited_s: float) -> bool:
        """Whether to take another snapshot before a halt counts; `looks` were taken since the last step."""
        del record, seen, waited_s
        return step.look_again and looks < LOOKS

    def limit_s(self, record: Record, act: Act[Step, State]) -> float | None:
        """The most seconds that a step may take now. A step that takes longer fails; None: there is no limit."""
        del record, act
        return None

    def over_limit(self, record: Record) -> str:
        """The reason for a step that took longer than its limit."""
        raise NotImplementedError(record)

    def ends_before(self, record: Record, act: Act[Step, State]) -> Outcome | None:
        """The outcome if this call must not make the next step."""
        del record, act
        return None

    async def prepare(self, record: Record, act: Act[Step, State], seen: Snapshot, /) -> Notes | None:
        """Before the intent: acquire locks, call hooks that are checks, and collect facts to write with the intent."""
        del record, act, seen
        return None

    def release(self, act: Act[Step, State]) -> None:
        """Release the locks of a step."""
        del act
        self.locks.pop_all().close()

    def announce(self, record: Record, act: Act[Step, State]) -> None:
        """Emit an event that a step aborts the operation."""
        self.say(self.events.failed, Severity.WARNING, record, f"{act.step.value}: {act.reason}")

    def failing(self, record: Record, act: Act[Step, State], error: Exception, *, resumed: bool) -> None:
        """After the failure of a step is written. May raise the error again: a retry does not help if a hook or a check refused.
        `resumed`: an earlier call had begun the same step.
        """
        del record, act, resumed
        if isinstance(error, MigratorError) and error.exit_code is not MigratorError.exit_code:
            raise error

    def shown(self, record: Record) -> str:
        """The subject of an operation, for messages."""
        return str(record.id)

    # The loop.

    async def drive(self, record: Record) -> Outcome:
        """Drive the operation from its current state. Raises what steps raise, Interrupted, LockHeld."""
        with self.locks:
            return await self._drive(record)

    async def _drive(self, record: Record) -> Outcome:
        failed: tuple[Step, bool] | None = None
        looks, since_s = 0, self.clock.monotonic_s()
        while True:
            try:
                seen = await self.snapshot(record)
            except asyncio.CancelledError:
                if not self.shielded:
                    raise
                self.note_cancelled()
                continue
            step = self.next_step(record, seen)
            if isinstance(step, Halt):
                waited_s = self.clock.monotonic_s() - since_s
                if not self.looks_again(record, step, seen, looks=looks, waited_s=waited_s):
                    return await self.halted(record, step)
                looks += 1
                await self.clock.sleep(self.poll_s)
                continue
            if isinstance(step, Finished):
                return await self.finished(record, step)
            # A failed step that a new snapshot shows as done counts as another step: only its hooks are missing.
            if failed == (step.step, step.seen_done):
                return self.stuck(record, seen)
            ended = self.ends_before(record, step)
            if ended is not None:
                return ended
            record, went_well = await self._step(record, step, seen)
            self.release(step)
            failed = None if went_well else (step.step, step.seen_done)
            looks, since_s = 0, self.clock.monotonic_s()

    async def _step(self, record: Record, act: Act[Step, State], seen: Snapshot) -> tuple[Record, bool]:
        """Make one step. Returns the record, and whether the step succeeded."""
        records = self.records
        try:
            notes = await self.prepare(record, act, seen)
        except (MigratorError, OSError, TimeoutError) as error:
            if not self.shielded:
                raise
            return self._not_begun(record, act, reason_of(error)), False
        except asyncio.CancelledError:
            if not self.shielded:
                raise
            self.note_cancelled()
            return self._not_begun(record, act, INTERRUPTED), False
        if act.reason:
            self.announce(record, act)
        step_id = records.intend(record.id, act, at_s=self.clock.now_s(), notes=notes)
        resumed, record = record.state is act.intent, records.read(record.id)
        limit = asyncio.timeout(self.limit_s(record, act))
        try:
            async with limit, task_group() as group:
                group.create_task(self._note(record, act))
                done = await self._carry_out(record, act)
        except (asyncio.CancelledError, Interrupted) as error:
            if limit.expired() and isinstance(error, Interrupted):
                # Work that the limit has cancelled may end with a message of its own.
                return self._failed(record, step_id, act, self.over_limit(record)), False
            if not self.shielded:
                self._interrupt(step_id, act)
                goes_on = " Gluster continues by itself." if act.step in self.waits else ""
                raise Interrupted(
                    f"interrupted while {self.shown(record)} was {act.intent.value}.{goes_on}",
                    hint="the same command resumes it",
                ) from error
            if isinstance(error, asyncio.CancelledError):
                self.note_cancelled()
                return self._failed(record, step_id, act, INTERRUPTED), False
            # The cancelled work may have its own message.
            self.interrupted = True
            return self._failed(record, step_id, act, reason_of(error)), False
        except (MigratorError, OSError, TimeoutError) as error:
            record = self._failed(
                record, step_id, act, self.over_limit(record) if limit.expired() else reason_of(error)
            )
            self.failing(record, act, error, resumed=resumed)
            return record, False
        state = act.result if done.result is None else done.result
        record = records.finish(step_id, state, at_s=self.clock.now_s(), notes=done.notes, message=done.words)
        if done.words or act.step not in self.waits:
            words = f"{act.step.value}: {done.words}" if done.words else act.step.value
            self.say(self.events.step, Severity.INFO, record, words)
        return record, True

    async def _note(self, record: Record, act: Act[Step, State]) -> None:
        """Note a step in the journal after its intent and before its result, so that a copy of the ledger from before it is
        recognized. The step does not wait for it, since a user may be frozen meanwhile. That this ledger is the newest one was
        checked with the locks of the call: from then on nothing about the journal stops a step, because a frozen user has to be
        thawed.
        """
        if act.step in self.waits:
            return
        try:
            note = partial(self.ports.locks.note, f"{self.shown(record)}: {act.step.value}")
            await self.ports.blocking(note, timeout_s=_NOTE_TIMEOUT_S)
        except (MigratorError, TimeoutError) as error:
            LOG.warning("step %s of %s is not in the journal: %s", act.step.value, self.shown(record), reason_of(error))

    async def _carry_out(self, record: Record, act: Act[Step, State]) -> Done[State, Notes]:
        work, hooking = self.acts[act.step], self.hooking()
        around = None if hooking is None else await self.around(act, record)
        if hooking is None or around is None:
            return await work(act, record)
        if act.seen_done:
            await hooking.catch_up(around.step, around.after())
            return await work(act, record)
        return await hooking.around(
            around.step,
            lambda: work(act, record),
            facts=around.before(),
            after=lambda _, __: around.after(),
            stoppable=around.stoppable,
            check=around.check,
        )

    def _interrupt(self, step_id: int, act: Act[Step, State]) -> None:
        at_s = self.clock.now_s()
        if act.step in self.waits:
            self.records.finish(step_id, act.intent, at_s=at_s, message="the command ended, and Gluster continues")
        else:
            self.records.fail(step_id, INTERRUPTED, at_s=at_s)

    def _not_begun(self, record: Record, act: Act[Step, State], reason: str) -> Record:
        """Record a step that could not begin, with the reason. The state does not change."""
        same: Any = Act(step=act.step, intent=record.state, result=act.result, reason=act.reason)
        step_id = self.records.intend(record.id, same, at_s=self.clock.now_s())
        return self._failed(record, step_id, act, reason)

    def _failed(self, record: Record, step_id: int, act: Act[Step, State], reason: str) -> Record:
        self.say(self.events.failed, Severity.ERROR, record, f"{act.step.value} failed: {reason}")
        return self.records.fail(step_id, reason, at_s=self.clock.now_s())

    def note_cancelled(self) -> None:
        """Absorb a cancellation, and remember it in `interrupted`."""
        self.interrupted = True
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()


def reason_of(error: BaseException) -> str:
    """Why a step failed, for people."""
    if isinstance(error, MigratorError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error) or "no answer"
    return "no answer"
