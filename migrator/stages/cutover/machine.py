"""Bringing one tree through its steps: look, decide, write the intent, act, write the result, look again."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, replace

from migrator.decide.cutover import begin_rollback, next_step, turned_back
from migrator.decide.cutover_words import cutover_facts, freeze_words, state_words
from migrator.decide.switching import link_path, user_problem
from migrator.domain.cutover import SETTLED_STATES, CutoverNotes, CutoverRecord, CutoverState, CutoverStep
from migrator.domain.cutover_run import Ending, TreeOutcome
from migrator.domain.cutover_seen import Act, Finished, Halt, LinkSeen, Seen, Step
from migrator.domain.errors import Interrupted, MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.hooks import HookEvent, HookFacts, HookState, HookStep
from migrator.stages.cutover.acting import Actor, Done
from migrator.stages.cutover.context import Cutting
from migrator.stages.cutover.seeing import Looker
from migrator.stages.hooking import CutoverPlace, HookRefused, HookSkipped

_HOOKED = {
    CutoverStep.FREEZE: HookStep.FREEZE,
    CutoverStep.SWITCH: HookStep.SWITCH,
    CutoverStep.THAW: HookStep.THAW,
    CutoverStep.REVERT: HookStep.THAW,
    CutoverStep.ROLLBACK_FREEZE: HookStep.FREEZE,
    CutoverStep.SWITCH_BACK: HookStep.SWITCH,
    CutoverStep.ROLLBACK_THAW: HookStep.THAW,
    CutoverStep.ROLLBACK_REVERT: HookStep.THAW,
}
"""Around which steps hooks are called; the final pass has those of passes."""

_BACK = frozenset(
    {
        CutoverStep.ROLLBACK_FREEZE,
        CutoverStep.SWITCH_BACK,
        CutoverStep.ROLLBACK_THAW,
        CutoverStep.ROLLBACK_REVERT,
    }
)
_STAYS = frozenset({CutoverStep.REVERT, CutoverStep.ROLLBACK_REVERT})
"""Thaws of a user who stays where he was."""

_BEFORE_SWITCH = {CutoverState.SWITCHING: LinkSeen.SOURCE, CutoverState.SWITCHING_BACK: LinkSeen.TARGET}
"""Where the path leads that a hook has refused to switch."""

_INTERRUPTED = "it was interrupted"


@dataclass(slots=True, kw_only=True)
class TreeMachine:
    """Brings one tree to where the command wants it: cut over, or (`back`) rolled back.

    Being cancelled counts as a failure of the step under way: before the switch the user is thawed where he was, after it
    he is brought on. `interrupted` says so afterwards.
    """

    cutting: Cutting
    looker: Looker
    actor: Actor
    back: bool = False
    interrupted: bool = False
    _turned: bool = False
    _not_switched: bool = False

    @classmethod
    def of(cls, cutting: Cutting, looker: Looker, *, back: bool) -> "TreeMachine":
        """A machine for one tree."""
        return cls(cutting=cutting, looker=looker, actor=Actor(cutting=cutting, looker=looker), back=back)

    async def bring(self, record: CutoverRecord) -> TreeOutcome:
        """From wherever the tree is. May be called again at any time."""
        failed: tuple[CutoverStep, bool] | None = None
        while True:
            seen = await self._uncancelled(self.looker.see(record))
            if seen is None:
                continue
            step = self._decide(record, seen)
            if isinstance(step, Finished):
                return self._finished(record, step)
            if isinstance(step, Halt):
                return self._halted(record, step)
            # A step that is found to be done all the same is another one: only its hooks are owed.
            if failed == (step.step, step.seen_done):
                return self._stuck(record)
            record, went_well = await self._act(record, step)
            failed = None if went_well else (step.step, step.seen_done)

    def _decide(self, record: CutoverRecord, seen: Seen) -> Step:
        # Once it has turned, a rollback that had to be given up does not begin again.
        self._turned = self._turned or turned_back(record.state)
        if self._not_switched and seen.link is LinkSeen.UNTOLD:
            seen = replace(seen, link=_BEFORE_SWITCH.get(record.state, seen.link))
        return begin_rollback(record, seen) if self.back and not self._turned else next_step(record, seen)

    async def _act(self, record: CutoverRecord, act: Act) -> tuple[CutoverRecord, bool]:
        """The record afterwards, and whether the step came to its end."""
        cutovers, cutting = self.cutting.ledger.cutovers, self.cutting
        notes = await self._notes(record, act)
        if isinstance(notes, str):
            # Nothing was begun: the reason is kept with the step that could not be.
            step_id = cutovers.intend(record.id, replace(act, intent=record.state), at_s=cutting.now_s())
            return self._failed(record, step_id, act, notes), False
        if act.reason:
            cutting.say(EventKind.CUTOVER_REVERTING, Severity.WARNING, record, f"given up: {act.reason}")
        step_id = cutovers.intend(record.id, act, at_s=cutting.now_s(), notes=notes)
        begun_before, record = record.state is act.intent, cutovers.read(record.id)
        try:
            done = await self._carry_out(record, act)
        except asyncio.CancelledError:
            self.note_cancelled()
            return self._failed(record, step_id, act, _INTERRUPTED), False
        except (MigratorError, OSError, TimeoutError) as error:
            # What is cancelled may say so in words of its own.
            self.interrupted = self.interrupted or isinstance(error, Interrupted)
            # What a hook says that was called before, by a call that was killed, tells nothing of what that one did.
            if not begun_before and isinstance(error, HookRefused | HookSkipped):
                self._not_switched = self._not_switched or _HOOKED.get(act.step) is HookStep.SWITCH
            return self._failed(record, step_id, act, _reason(error)), False
        record = cutovers.finish(step_id, act.result, at_s=cutting.now_s(), notes=done.notes, message=done.words)
        words = f"{act.step.value}: {done.words}" if done.words else act.step.value
        cutting.say(EventKind.CUTOVER_STEP, Severity.INFO, record, words)
        return record, True

    async def _notes(self, record: CutoverRecord, act: Act) -> CutoverNotes | str:
        try:
            return await self.actor.notes_before(act, record)
        except (MigratorError, OSError, TimeoutError) as error:
            return _reason(error)
        except asyncio.CancelledError:
            self.note_cancelled()
            return _INTERRUPTED

    async def _carry_out(self, record: CutoverRecord, act: Act) -> Done:
        hooked = _HOOKED.get(act.step)
        if hooked is None:
            if act.seen_done:
                return await self.actor.done_before(act.step, record)
            return await self.actor.deeds[act.step](record)
        place = CutoverPlace(step=hooked, record=record, back=act.step in _BACK)
        if act.seen_done and self.interrupted:
            # The operator has waited for hooks long enough: the user comes first.
            message = f"hooks that are still owed after {place.hooked.words} were not called: {_INTERRUPTED}; the next call does"
            self.cutting.say(EventKind.HOOK_FAILED, Severity.WARNING, record, message)
            return await self.actor.done_before(act.step, record)
        if act.seen_done:
            facts = self.facts(place, HookEvent.POST, record, act)
            await self.cutting.hooking.catch_up_step(place, facts)
            return await self.actor.done_before(act.step, record)

        async def after(_: HookFacts, done: Done) -> HookFacts:  # noqa: ARG001 - the hooks' signature
            return self.facts(place, HookEvent.POST, record, act)

        return await self.cutting.hooking.around_step(
            place,
            lambda: self.actor.deeds[act.step](record),
            facts=self.facts(place, HookEvent.PRE, record, act),
            after=after,
            stoppable=hooked is not HookStep.THAW,
        )

    def facts(self, place: CutoverPlace, event: HookEvent, record: CutoverRecord, act: Act) -> HookFacts:
        """What hooks on one side of a step are told. A rollback goes from the target to the source."""
        cutting = self.cutting
        usage = cutting.usage(record.tree.path)
        old, new = cutting.paths(record.tree.path)
        link, place_of_links = record.notes.link, cutting.world.place
        if link is None and place_of_links is not None and not user_problem(record.tree.user):
            link = link_path(place_of_links.link, record.tree.user)  # before it is in the ledger
        stays, thaws = act.step in _STAYS, place.step is HookStep.THAW
        # What was predicted and measured is of the way there.
        frozen_s = None if place.back else record.freeze_s
        if frozen_s is None and thaws and record.frozen_at_s is not None and not place.back:
            frozen_s = max(cutting.now_s() - record.frozen_at_s, 0.0)
        return HookFacts(
            run_id=cutting.invocation.run_id,
            plan=record.plan,
            batch=record.batch,
            trees=(record.tree,),
            user=record.tree.user,
            link=link if cutting.world.links is not None else None,
            old_path=new if place.back else old,
            new_path=old if place.back else new,
            back=place.back,
            freeze_s=None if place.back else record.predicted_freeze_s,
            frozen_s=frozen_s,
            moved=not stays if thaws else None,
            reason=record.failure if stays else None,
            files=usage.files if usage else 0,
            size_bytes=usage.size_bytes if usage else 0,
            state=HookState.DONE if event is HookEvent.POST else "",
            started_at_s=record.since_s,
        )

    def _failed(self, record: CutoverRecord, step_id: int, act: Act, reason: str) -> CutoverRecord:
        self.cutting.say(EventKind.CUTOVER_FAILED, Severity.ERROR, record, f"{act.step.value} failed: {reason}")
        return self.cutting.ledger.cutovers.fail(step_id, reason, at_s=self.cutting.now_s())

    async def _uncancelled(self, work: Awaitable[Seen]) -> Seen | None:
        """A look; None where it was cut off by a cancellation, which is remembered."""
        try:
            return await work
        except asyncio.CancelledError:
            self.note_cancelled()
            return None

    def note_cancelled(self) -> None:
        """A cancellation that arrives now is taken as done, and remembered."""
        self.interrupted = True
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()

    def _finished(self, record: CutoverRecord, step: Finished) -> TreeOutcome:
        good = {CutoverState.ROLLED_BACK, CutoverState.REVERTED} if self.back else SETTLED_STATES
        # A rollback that was given up leaves the user on the target: to `cutover` he is there all the same.
        moved = record.state in good
        words = step.words
        if self.back and not moved:
            words += f": {record.failure or 'no reason was recorded'}"
        if record.freeze_s is not None and not self.back:
            words += f". {freeze_words(record)}"
        kind = EventKind.CUTOVER_FINISHED if moved else EventKind.CUTOVER_GIVEN_UP
        self.cutting.say(kind, Severity.INFO if moved else Severity.WARNING, record, words)
        return TreeOutcome(
            tree=record.tree,
            batch=record.batch,
            ending=Ending.MOVED if moved else Ending.GIVEN_UP,
            cutover=cutover_facts(record),
            words=words,
            hint="" if moved else "put that right, then run the same command again",
            predicted_freeze_s=record.predicted_freeze_s,
        )

    def _halted(self, record: CutoverRecord, step: Halt) -> TreeOutcome:
        words = f"{record.tree.user} is left as he is ({state_words(record.state)}): {step.words}"
        self.cutting.say(EventKind.CUTOVER_HALTED, Severity.ERROR, record, words)
        return TreeOutcome(
            tree=record.tree,
            batch=record.batch,
            ending=Ending.HALTED,
            cutover=cutover_facts(record),
            words=words,
            hint=step.hint,
        )

    def _stuck(self, record: CutoverRecord) -> TreeOutcome:
        words = f"{record.tree.user} is {state_words(record.state)}: {record.failure}"
        self.cutting.say(EventKind.CUTOVER_HALTED, Severity.ERROR, record, words)
        return TreeOutcome(
            tree=record.tree,
            batch=record.batch,
            ending=Ending.STUCK,
            cutover=cutover_facts(record),
            words=words,
            hint="put that right, then run the same command again: it goes on from there",
        )


def _reason(error: BaseException) -> str:
    if isinstance(error, MigratorError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "no answer"
