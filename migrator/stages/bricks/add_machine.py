"""Bringing bricks through the steps of an addition: look, decide, write the intent, act, write the result, look again."""

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from migrator.decide.addition import begin_again, next_step
from migrator.domain.addition import ENDED_STATES, AdditionRecord, AdditionState, AdditionStep
from migrator.domain.addition_run import AdditionEnding, AdditionSummary
from migrator.domain.addition_seen import Act, AdditionSeen, Finished, Halt, Step
from migrator.domain.errors import Interrupted, MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.units import several
from migrator.stages.bricks.add_acting import AdditionActor
from migrator.stages.bricks.add_context import AdditionCall, subject_of
from migrator.stages.bricks.add_directories import look_at_listed
from migrator.stages.bricks.add_seeing import AdditionLooker

_LOOKS = 3
"""A look that fails is made again so often before it counts."""

RUN_LOCK = "run"
"""Of everything that writes to either side: held while the brick list changes."""

_CHANGES = frozenset({AdditionStep.RESET, AdditionStep.ADD, AdditionStep.TAKE_BACK})

_WAITS = frozenset({AdditionStep.WATCH, AdditionStep.HEAL})
"""What Gluster does by itself: nothing has failed when nobody watches any more."""


@dataclass(slots=True, kw_only=True)
class AdditionMachine:
    """Brings bricks into a file system."""

    call: AdditionCall
    looker: AdditionLooker
    actor: AdditionActor = field(init=False)
    _begun: bool = False

    def __post_init__(self) -> None:
        self.actor = AdditionActor(call=self.call, looker=self.looker)

    async def bring(self, record: AdditionRecord) -> AdditionSummary:
        """From wherever it is. Raises Interrupted, LockHeld, HookSkipped, Refused."""
        await self.call.tell_failure(record, None)
        summary = await self._bring(record)
        await self.call.tell_failure(self.call.world.ledger.additions.read(record.id), summary)
        return summary

    async def _bring(self, record: AdditionRecord) -> AdditionSummary:
        failed: AdditionStep | None = None
        looks = 0
        if record.state in ENDED_STATES:
            record = await look_at_listed(self.call, record)
        while True:
            step = self.decide(record, await self.looker.see(record))
            if isinstance(step, Halt) and step.look_again and looks < _LOOKS:
                looks += 1
                await self.call.world.clock.sleep(self.call.request.poll_s)
                continue
            if isinstance(step, Finished):
                self.call.say(EventKind.ADDITION_FINISHED, Severity.INFO, subject_of(record), step.words)
                return self._finished(record, step.words)
            if isinstance(step, Halt):
                words = "; ".join((step.words, *step.reasons))
                self.call.say(EventKind.ADDITION_HALTED, Severity.ERROR, subject_of(record), words)
                return self.halted(record, step)
            if failed is step.step:
                return self._stuck(record)
            self._begun, looks = True, 0
            record, went_well = await self._act(record, step)
            failed = None if went_well else step.step

    def decide(self, record: AdditionRecord, seen: AdditionSeen) -> Step:
        """What is done next by this call."""
        wish = self.call.request.wish
        if record.state is AdditionState.FAILED and not self._begun:
            return begin_again(record, seen, wish)
        return next_step(record, seen, wish)

    async def _act(self, record: AdditionRecord, act: Act) -> tuple[AdditionRecord, bool]:
        """The record afterwards, and whether the step came to its end."""
        additions, call = self.call.world.ledger.additions, self.call
        if act.reason:
            call.say(EventKind.ADDITION_FAILED, Severity.WARNING, subject_of(record), act.reason)
        changes = act.step in _CHANGES and not act.seen_done
        purpose = f"addition of {record.shown_bricks}"
        with call.world.locks.hold(RUN_LOCK, purpose) if changes else nullcontext():
            notes = await self.actor.notes_before(act, record)
            step_id = additions.intend(record.id, act, at_s=call.now_s(), notes=notes)
            record = additions.read(record.id)
            try:
                done = await self.actor.carry_out(act, record)
            except (asyncio.CancelledError, Interrupted) as error:
                if act.step in _WAITS:
                    additions.finish(
                        step_id, act.intent, at_s=call.now_s(), message="the command ended, and Gluster goes on"
                    )
                else:
                    additions.fail(step_id, "it was interrupted", at_s=call.now_s())
                raise _interrupted(record, act) from error
            except (MigratorError, OSError, TimeoutError) as error:
                reason = _reason(error)
                said = f"{act.step.value} failed: {reason}"
                call.say(EventKind.ADDITION_FAILED, Severity.ERROR, subject_of(record), said)
                record = additions.fail(step_id, reason, at_s=call.now_s())
                if isinstance(error, MigratorError) and error.exit_code is not MigratorError.exit_code:
                    # A hook or a guard said no: that is no failure of the step.
                    raise
                return record, False
        record = additions.finish(step_id, act.result, at_s=call.now_s(), notes=done.notes, message=done.words)
        if act.step is not AdditionStep.WATCH:
            words = f"{act.step.value}: {done.words}" if done.words else act.step.value
            call.say(EventKind.ADDITION_STEP, Severity.INFO, subject_of(record), words)
        return record, True

    def halted(self, record: AdditionRecord, step: Halt) -> AdditionSummary:
        """Why it does not go on."""
        return self.summary(record, AdditionEnding.HALTED, step.words, step.hint, reasons=step.reasons)

    def _finished(self, record: AdditionRecord, words: str) -> AdditionSummary:
        summary = self.summary(record, AdditionEnding.DONE, words)
        if summary.failures:
            left = f"{several(summary.failures, 'file')} could not be moved, and stay where they are"
            summary = replace(summary, words=f"{words}; {left}")
        if not self.actor.doubts:
            return summary
        hint = (
            "look at these paths on the bricks and through the mount, put them right, then `migrator scan --via bricks`"
        )
        return replace(summary, ending=AdditionEnding.DOUBTED, hint=hint, reasons=self.actor.doubts)

    def _stuck(self, record: AdditionRecord) -> AdditionSummary:
        words = f"{record.shown_bricks} is {record.state.value}: {record.failure}"
        self.call.say(EventKind.ADDITION_HALTED, Severity.ERROR, subject_of(record), words)
        hint = "put that right, then run the same command again: it goes on from there"
        return self.summary(record, AdditionEnding.STUCK, words, hint)

    def summary(
        self,
        record: AdditionRecord,
        ending: AdditionEnding,
        words: str,
        hint: str = "",
        *,
        reasons: tuple[str, ...] = (),
    ) -> AdditionSummary:
        """The result, with all that this process knows."""
        samples = self.call.world.ledger.additions.samples(record.id)
        moving = [one for one in samples if one.files or one.skipped or one.failures]
        last = {one.host: one for one in samples if moving and one.task_id == moving[-1].task_id}
        return AdditionSummary(
            side=record.side,
            volume=record.volume,
            bricks=record.bricks,
            instead_of=record.instead_of,
            dry_run=self.call.run_id is None,
            ending=ending,
            state=record.state,
            words=words,
            hint=hint,
            reasons=reasons,
            places=tuple(self.looker.places.values()),
            size_bytes=record.notes.size_bytes,
            moved_files=sum(one.files for one in last.values()),
            moved_bytes=sum(one.size_bytes for one in last.values()),
            failures=sum(one.failures for one in last.values()),
            skipped=sum(one.skipped for one in last.values()),
            directories=record.notes.directories or (),
        )


def _interrupted(record: AdditionRecord, act: Act) -> Interrupted:
    goes_on = " Gluster goes on by itself." if act.step in _WAITS else ""
    return Interrupted(
        f"interrupted while {record.shown_bricks} was {act.intent.value}.{goes_on}",
        hint="the same command goes on with it",
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, MigratorError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error) or "no answer"
    return "no answer"
