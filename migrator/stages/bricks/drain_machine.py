"""Bringing bricks through the steps of a drain: look, decide, write the intent, act, write the result, look again."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from migrator.decide.drain import begin_again, begin_stop, next_step, taken_back
from migrator.decide.drain_facts import broke_off, can_recover, only_few_failed
from migrator.decide.drain_preflight import health_problems
from migrator.decide.drain_silence import silent_hosts, way_out
from migrator.decide.drain_standing import standing, wipe_word
from migrator.domain.drain import OUT_STATES, DrainRecord, DrainState, DrainStep
from migrator.domain.drain_run import DrainEnding, DrainSummary
from migrator.domain.drain_seen import Act, DrainSeen, Finished, Halt, Step
from migrator.domain.errors import Interrupted, LockHeld, MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.stages.bricks.drain_acting import Done, DrainActor
from migrator.stages.bricks.drain_context import DrainCall
from migrator.stages.bricks.drain_hooking import DrainHooks
from migrator.stages.bricks.drain_seeing import DrainLooker

_LOOKS = 3
_LOOKS_S = 10.0
"""A look that fails is made again so often, and for so long, before it counts: glusterd answers nothing while another
command has the volume.
"""

_SETTLE_S = 60.0
"""So long bricks and hosts may take to be up after a reboot, before a drain that broke off by it, or cannot be told of, waits
for people.
"""

_AGAIN = 3
"""So often one call begins a drain anew by itself."""

RUN_LOCK = "run"
"""Of everything that writes to either side: held only while a drain is begun, and from its last audit to its commit."""

_WAITS = frozenset({DrainStep.WATCH, DrainStep.SETTLE})
"""What Gluster does by itself: nothing has failed when nobody watches any more."""


@dataclass(slots=True, kw_only=True)
class DrainMachine:
    """Brings bricks out of the volume, or (`back`) back into it."""

    call: DrainCall
    looker: DrainLooker
    actor: DrainActor
    hooks: DrainHooks
    back: bool = False
    _locked: bool = False
    _begun: bool = False
    _again: int = 0
    _locks: ExitStack = field(default_factory=ExitStack)

    async def bring(self, record: DrainRecord) -> DrainSummary:
        """From wherever it is. Raises Interrupted, LockHeld, HookSkipped, Refused."""
        await self.hooks.tell_failure(record, None, back=self.back)
        if not self.back:
            await self.hooks.goes_on(record)
        try:
            with self._locks:
                summary = await self._bring(record)
        except Interrupted:
            raise
        except MigratorError:
            await self._tell_failure(record, None)
            raise
        await self._tell_failure(record, summary)
        return summary

    async def _tell_failure(self, record: DrainRecord, ended: DrainSummary | None) -> None:
        """At the end of the call: what it has put right itself is told to nobody."""
        await self.hooks.tell_failure(self.call.world.ledger.drains.read(record.id), ended, back=self.back)

    async def _bring(self, record: DrainRecord) -> DrainSummary:
        failed: DrainStep | None = None
        looks, since_s = 0, self.call.world.clock.monotonic_s()
        while True:
            hand_over = await self._hands_over(record)
            seen = await self.looker.see(record, hand_over=hand_over)
            step = self.decide(record, seen, hand_over=hand_over)
            if isinstance(step, Halt) and self._tries_again(record, seen):
                self._again += 1
                step = begin_again(record, seen)
            waited_s = self.call.world.clock.monotonic_s() - since_s
            if isinstance(step, Halt) and self._looks_again(record, step, seen, looks=looks, waited_s=waited_s):
                looks += 1
                await self.call.world.clock.sleep(self.call.request.poll_s)
                continue
            if isinstance(step, Finished):
                return await self._finished(record, step)
            if isinstance(step, Halt):
                return await self._halted(record, step)
            if failed is step.step:
                return self._stuck(record, seen)
            if step.step is DrainStep.COMMIT and not step.seen_done and not self.call.request.commit:
                return self._waits(record)
            # What follows a recovery is decided as at the beginning: a drain that had failed is gone on with.
            looks, self._begun = 0, step.step is not DrainStep.RECOVER
            await self._lock(record, step)
            record, went_well = await self._act(record, step, seen)
            since_s = self.call.world.clock.monotonic_s()
            failed = None if went_well else step.step
            if step.step not in (DrainStep.AUDIT, DrainStep.COMMIT):
                self._unlock()

    def decide(self, record: DrainRecord, seen: DrainSeen, *, hand_over: bool = False) -> Step:
        """What is done next by this call."""
        if self.back:
            return next_step(record, seen) if taken_back(record.state) else begin_stop(record, seen)
        if record.state is DrainState.FAILED and (not self._begun or can_recover(seen)):
            return begin_again(record, seen)
        return next_step(record, seen, hand_over=hand_over)

    def _tries_again(self, record: DrainRecord, seen: DrainSeen) -> bool:
        """Whether this call begins a drain anew that has failed under it, which people would do as well: nothing speaks
        against it, and Gluster could move all but a few files, broke off, has lost the process that moves files, or tells no
        counters of a host that is up. A new task looks at what is left only.
        """
        # What a recovery has left alone waits for people: Gluster has failed on it, and would again.
        if self.back or self.actor.left_alone or record.state is not DrainState.FAILED or self._again >= _AGAIN:
            return False
        # Where the counters are refused, so is a stop.
        silent = bool(seen.silent) and seen.progress is not None
        return seen.preflight == () and (only_few_failed(seen) or broke_off(seen) or bool(seen.lost) or silent)

    def _looks_again(self, record: DrainRecord, step: Halt, seen: DrainSeen, *, looks: int, waited_s: float) -> bool:
        """Whether the next look may say something else by itself: one failed, or what broke a drain off is coming up again."""
        if step.look_again:
            return looks < _LOOKS or waited_s < (_SETTLE_S if self.looker.host_was_away else _LOOKS_S)
        if self.back or record.state is not DrainState.FAILED or not self.looker.host_was_away or seen.state is None:
            return False
        settles = bool(seen.preflight) and set(seen.preflight or ()) <= set(health_problems(seen.state))
        return settles and broke_off(seen) and self._again < _AGAIN and waited_s < _SETTLE_S

    async def _hands_over(self, record: DrainRecord) -> bool:
        """Whether a brick that is out is wiped and given away: where that was allowed, and there are hooks for it."""
        if self.back or record.state not in OUT_STATES or self.call.request.confirm != self.word(record):
            return False
        return await self.looker.goes_on(record)

    def word(self, record: DrainRecord) -> str:
        """The word that allows it."""
        return wipe_word(self.call.site.site_id, record.volume_id, record.bricks)

    async def _lock(self, record: DrainRecord, act: Act) -> None:
        """Passes must not read bricks while a drain begins, nor see the volume change at its commit."""
        commits = act.step is DrainStep.AUDIT and self.call.request.commit and record.state not in OUT_STATES
        begins = act.step in (DrainStep.START, DrainStep.RECOVER) and not act.seen_done
        if self._locked or not (commits or begins or (act.step is DrainStep.COMMIT and not act.seen_done)):
            return
        told = False
        while True:
            try:
                self._locks.enter_context(self.call.world.locks.hold(RUN_LOCK, f"drain of {record.shown_bricks}"))
            except LockHeld as error:
                if begins:
                    raise
                if not told:
                    words = f"the commit waits: {error.message}"
                    self.call.say(EventKind.DRAIN_DOUBTED, Severity.WARNING, _subject(record), words)
                told = True
                await self.call.world.clock.sleep(self.call.request.poll_s)
            else:
                self._locked = True
                return

    def _unlock(self) -> None:
        self._locks.pop_all().close()
        self._locked = False

    async def _act(self, record: DrainRecord, act: Act, seen: DrainSeen) -> tuple[DrainRecord, bool]:
        """The record afterwards, and whether the step came to its end."""
        drains, call = self.call.world.ledger.drains, self.call
        notes = await self.actor.notes_before(act, record, seen)
        if act.step in (DrainStep.WIPE, DrainStep.HAND_OVER):
            await self.hooks.end(record)
        if act.step is DrainStep.START and record.state is DrainState.PREFLIGHT:
            await self.hooks.ask(record)
        if act.step is DrainStep.STOP and self.back and not taken_back(record.state):
            await self.hooks.ask_back(record)
        if act.reason:
            call.say(EventKind.DRAIN_FAILED, Severity.WARNING, _subject(record), f"{act.step.value}: {act.reason}")
        step_id = drains.intend(record.id, act, at_s=call.now_s(), notes=notes)
        record = drains.read(record.id)
        try:
            done = await self.actor.carry_out(act, record)
        except (asyncio.CancelledError, Interrupted) as error:
            if act.step in _WAITS:
                drains.finish(step_id, act.intent, at_s=call.now_s(), message="the command ended, and Gluster goes on")
            else:
                drains.fail(step_id, "it was interrupted", at_s=call.now_s())
            raise _interrupted(record, act) from error
        except (MigratorError, OSError, TimeoutError) as error:
            reason = _reason(error)
            call.say(EventKind.DRAIN_FAILED, Severity.ERROR, _subject(record), f"{act.step.value} failed: {reason}")
            record = drains.fail(step_id, reason, at_s=call.now_s())
            if isinstance(error, MigratorError) and error.exit_code is not MigratorError.exit_code:
                # A hook or a guard said no: that is no failure of the step.
                raise
            return record, False
        return self._record(step_id, act, done), True

    def _record(self, step_id: int, act: Act, done: Done) -> DrainRecord:
        state = act.result if done.result is None else done.result
        call = self.call
        record = call.world.ledger.drains.finish(
            step_id, state, at_s=call.now_s(), notes=done.notes, message=done.words
        )
        words = f"{act.step.value}: {done.words}" if done.words else act.step.value
        call.say(EventKind.DRAIN_STEP, Severity.INFO, _subject(record), words)
        return record

    async def _finished(self, record: DrainRecord, step: Finished) -> DrainSummary:
        out = record.state in OUT_STATES
        await self.hooks.end(record)
        words, hint, confirm = step.words, "", None
        if out and record.state is not DrainState.HANDED_OVER:
            words, hint, confirm = await self._way_on(record, step.words)
        self.call.say(EventKind.DRAIN_FINISHED, Severity.INFO, _subject(record), words)
        ending = DrainEnding.DONE if out else DrainEnding.TAKEN_BACK
        return replace(self.summary(record, ending, words, hint), confirm=confirm)

    async def _way_on(self, record: DrainRecord, words: str) -> tuple[str, str, str | None]:
        """What can be done with bricks that are out and were not given away."""
        if not await self.looker.goes_on(record):
            step = "hand-over" if record.state in (DrainState.WIPED, DrainState.HANDING_OVER) else "wipe"
            return f"{words}; there is no pre-{step} hook, so that is left to you", "", None
        word = self.word(record)
        return words, f"to have your hooks go on with it: the same command with --confirm {word}", word

    async def _halted(self, record: DrainRecord, step: Halt) -> DrainSummary:
        if record.state in OUT_STATES:
            await self.hooks.end(record)
        words = "; ".join((step.words, *step.reasons))
        self.call.say(EventKind.DRAIN_HALTED, Severity.ERROR, _subject(record), words)
        return self.halted(record, step)

    def halted(self, record: DrainRecord, step: Halt) -> DrainSummary:
        """Why it does not go on."""
        return replace(self.summary(record, DrainEnding.HALTED, step.words, step.hint), reasons=step.reasons)

    def _stuck(self, record: DrainRecord, seen: DrainSeen) -> DrainSummary:
        words = f"{record.shown_bricks} is {record.state.value}: {record.failure}"
        self.call.say(EventKind.DRAIN_HALTED, Severity.ERROR, _subject(record), words)
        hosts = silent_hosts(record, seen)
        right = way_out(record, hosts) if hosts else "put that right"
        hint = f"{right}, then run the same command again: it goes on from there"
        return self.summary(record, DrainEnding.STUCK, words, hint)

    def _waits(self, record: DrainRecord) -> DrainSummary:
        words = f"{record.shown_bricks} is drained, and nothing is left on it; it was not to be committed"
        return self.summary(
            record, DrainEnding.WAITS, words, "to take it out of the volume: the same without --no-commit"
        )

    def summary(self, record: DrainRecord, ending: DrainEnding, words: str, hint: str = "") -> DrainSummary:
        """The result, with all that this process knows."""
        audit, check = self.looker.audit or self.looker.named, self.looker.check
        return DrainSummary(
            volume=record.volume,
            bricks=record.bricks,
            back=self.back,
            dry_run=self.call.run_id is None,
            ending=ending,
            words=words,
            hint=hint,
            left_behind=() if audit is None else audit.examples,
            left_file=None if audit is None else audit.list_file,
            standing=standing(record, self.call.world.ledger.drains.samples(record.id)),
            check=check,
        )


def _subject(record: DrainRecord) -> str:
    return f"drain of {record.shown_bricks}"


def _interrupted(record: DrainRecord, act: Act) -> Interrupted:
    goes_on = " Gluster goes on by itself." if act.step in _WAITS else ""
    return Interrupted(
        f"interrupted while {record.shown_bricks} was {act.intent.value}.{goes_on}",
        hint="the same command goes on with it; `migrator brick status` shows how far it is",
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, MigratorError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error) or "no answer"
    return "no answer"
