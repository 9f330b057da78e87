"""The steps of the cutover or rollback of one tree. Every step can be repeated: it does what is missing."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from migrator.catalog.database import connect_ahead
from migrator.catalog.model import VerificationRecord
from migrator.core.entry import Entry
from migrator.core.errors import LedgerCorrupt, MigratorError, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.tasks import result_or_none
from migrator.core.units import format_size, several
from migrator.cutover import model, rules, rules_freezes, rules_states, rules_tops, rules_writers
from migrator.cutover.call import ActiveSession, CutoverDone, CutoverPlace
from migrator.cutover.model_calls import CutoverEnding, CutoverOutcome
from migrator.cutover.model_snapshot import LinkState, TreeSnapshot
from migrator.cutover.records import parts_of_freeze
from migrator.cutover.retained_source import final_catalog, retain_source
from migrator.cutover.rules import BACK, FORWARD, POSITIONS
from migrator.cutover.rules_freezes import FreezePart
from migrator.cutover.rules_tops import FrozenTop
from migrator.cutover.snapshot import take_snapshot
from migrator.cutover.tree_archives import assign_archives
from migrator.fs.ports import FileSystem
from migrator.hooks.calls import HookRefused, HookSkipped
from migrator.hooks.model import HookEvent, HookFacts, HookState, HookStep
from migrator.operations.engine import (
    INTERRUPTED,
    Around,
    DeferredCancellation,
    Done,
    OperationEngine,
    Procedure,
    StepEvents,
    Stuck,
    TimeLimit,
)
from migrator.operations.model import Finished, Halt
from migrator.plan.limits import set_confirmed
from migrator.site.rules_links import link_path, naming_problem
from migrator.transfer.delta.final import note_equal
from migrator.transfer.guards import mounts_changed

if TYPE_CHECKING:
    from migrator.cutover.records import CutoverRecords


SEARCHES = 2
"""For writers, in a freeze: before the final pass, and before the switch."""


HOOKED = {
    step: hooked
    for direction in (FORWARD, BACK)
    for step, hooked in (
        (direction.freeze, HookStep.FREEZE),
        (direction.switch, HookStep.SWITCH),
        (direction.thaw, HookStep.THAW),
        (direction.revert, HookStep.THAW),
    )
}
"""The steps around which hooks are called; the final pass calls the hooks of passes."""

_BACK = frozenset(
    {
        BACK.freeze,
        BACK.switch,
        BACK.thaw,
        BACK.revert,
    }
)
_STAYS = frozenset({model.CutoverStep.REVERT, model.CutoverStep.ROLLBACK_REVERT})
"""Thaws of a user who is not moved."""

_BEFORE_SWITCH = {
    model.CutoverState.SWITCHING: LinkState.SOURCE,
    model.CutoverState.SWITCHING_BACK: LinkState.TARGET,
}
"""The side to which the path leads if a hook has refused to switch it."""

_LIMITED = frozenset(
    {
        FORWARD.freeze,
        FORWARD.copy,
        FORWARD.verify,
        FORWARD.switch,
    }
)
"""Steps that end at the limit of a freeze: those of a cutover, until the path is switched."""

_DATABASES = 5
"""Of the final pass (its scan, the comparison) and of the verification (its scan, the join, the manifest)."""


@dataclass(slots=True, kw_only=True)
class TreeCutover(Procedure[model.CutoverRecord, TreeSnapshot]):
    """Moves one tree to the state that the command asks for: cut over, or (`back`) rolled back.

    A cancellation counts as a failure of the current step: before the switch it thaws the user without moving them,
    after the switch the move is completed.
    """

    events = StepEvents(
        done=EventKind.CUTOVER_STEP, failed=EventKind.CUTOVER_FAILED, aborting=EventKind.CUTOVER_REVERTING
    )

    session: ActiveSession
    cancellation: DeferredCancellation = field(default_factory=DeferredCancellation)
    _turned: bool = False
    _not_switched: bool = False

    @property
    def records(self) -> "CutoverRecords":
        return self.session.ledger.cutovers

    async def drive(self, record: model.CutoverRecord) -> CutoverOutcome:
        """Drive the tree from its current state. Raises LockHeld."""
        ended = await OperationEngine(self, self.session).drive(record)
        match ended.reason:
            case Finished() as step:
                return self._finished(ended.record, step)
            case Halt() as step:
                return self._halted(ended.record, step)
            case Stuck():
                return self._stuck(ended.record)
            case _:
                assert_never(ended.reason)

    async def snapshot(self, record: model.CutoverRecord) -> TreeSnapshot:
        seen = await take_snapshot(self.session, record)
        left_s = self._left_s(record)
        return seen if left_s is None or left_s > 0 else replace(seen, too_long=self._too_long(record))

    def time_limit(self, record: model.CutoverRecord, act: model.CutoverAct) -> TimeLimit | None:
        # Only the hook knows whether it has switched the path: it is not interrupted.
        by_hook = act.step is model.CutoverStep.SWITCH and self.session.call.links is None
        left_s = None if by_hook or act.step not in _LIMITED else self._left_s(record)
        return None if left_s is None else TimeLimit(timeout_s=max(left_s, 0.0), reason=partial(self._too_long, record))

    def _too_long(self, record: model.CutoverRecord) -> str:
        return rules_freezes.limit_problem(self._parts_s(record), limit_s=self.session.call.request.max_freeze_s)

    def _left_s(self, record: model.CutoverRecord) -> float | None:
        """The seconds until a freeze has to end; None if there is no limit: after the switch, of a rollback, and where
        the command accepts any.
        """
        direction, _ = POSITIONS.get(record.state, (None, None))
        if direction is not FORWARD or record.frozen_at_s is None or self.session.call.request.accept_freeze:
            return None
        return record.frozen_at_s + self.session.call.request.max_freeze_s - self.session.now_s()

    def _parts_s(self, record: model.CutoverRecord) -> Mapping[FreezePart, float]:
        return parts_of_freeze(self.session.ledger, record, now_s=self.session.now_s())

    def next_step(self, record: model.CutoverRecord, seen: TreeSnapshot) -> model.Step:
        # A rollback that was given up after it had turned does not begin again.
        self._turned = self._turned or rules.turned_back(record.state)
        if self._not_switched and seen.link is LinkState.BY_HOOK:
            seen = replace(seen, link=_BEFORE_SWITCH.get(record.state, seen.link))
        return (
            rules.begin_rollback(record, seen)
            if self.session.call.request.back and not self._turned
            else rules.next_step(record, seen)
        )

    def after_failure(
        self, record: model.CutoverRecord, act: model.CutoverAct, error: Exception, *, resumed: bool
    ) -> None:
        """Raise nothing: a user who may be frozen must be moved on or back."""
        del record
        # After a resume, a hook's refusal does not show whether the hook call of the killed run made the switch.
        if not resumed and isinstance(error, HookRefused | HookSkipped):
            self._not_switched = self._not_switched or HOOKED.get(act.step) is HookStep.SWITCH

    async def around(self, act: model.CutoverAct, record: model.CutoverRecord) -> Around | None:
        hooked = HOOKED.get(act.step)
        if hooked is None:
            return None
        place = CutoverPlace(step=hooked, record=record, back=act.step in _BACK)
        if act.seen_done and self.cancellation.requested:
            # The operator has waited for hooks long enough: thawing the user comes first.
            message = f"hooks that are still owed after {place.hooked.words} were not called: {INTERRUPTED}; the next call does"
            self.session.emit(EventKind.HOOK_FAILED, Severity.WARNING, record.subject(), message)
            return None

        return Around(
            step=place.hooked,
            before=lambda: self.facts(place, HookEvent.PRE, record, act),
            after=lambda: self.facts(place, HookEvent.POST, record, act),
            stoppable=hooked is not HookStep.THAW,
        )

    def facts(
        self, place: CutoverPlace, event: HookEvent, record: model.CutoverRecord, act: model.CutoverAct
    ) -> HookFacts:
        """The facts for hooks on one side of a step. A rollback goes from the target to the source."""
        session = self.session
        usage = next((one for one in session.plan.ranking if one.tree.path == record.tree.path), None)
        old, new = session.paths(record.tree.path)
        link, links = record.notes.link, session.call.links
        if link is None and links is not None and not naming_problem(links.place.link, record.tree):
            link = link_path(links.place.link, record.tree)  # before it is in the ledger
        stays, thaws = act.step in _STAYS, place.step is HookStep.THAW
        # Prediction and measurement belong to the cutover.
        frozen_s = None if place.back else record.freeze_s
        if frozen_s is None and thaws and record.frozen_at_s is not None and not place.back:
            frozen_s = max(session.now_s() - record.frozen_at_s, 0.0)
        return HookFacts(
            run_id=session.invocation.run_id,
            plan=record.plan,
            batch=record.batch,
            trees=(record.tree,),
            user=record.tree.user,
            link=None if links is None else link,
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

    def _finished(self, record: model.CutoverRecord, step: Finished) -> CutoverOutcome:
        good = (
            {model.CutoverState.ROLLED_BACK, model.CutoverState.REVERTED}
            if self.session.call.request.back
            else model.SETTLED_STATES
        )
        # A rollback that was given up leaves the user on the target, which is what `cutover` asks for.
        moved = record.state in good
        message = step.words
        if self.session.call.request.back and not moved:
            message += f": {record.failure or 'no reason was recorded'}"
        if not self.session.call.request.back and (frozen := rules_freezes.describe_freeze(record)):
            message += f". {frozen}"
        if not self.session.call.request.back and (late := record.notes.late) is not None:
            message += f" {late.words}."
        if moved:
            self.session.emit(EventKind.CUTOVER_FINISHED, Severity.INFO, record.subject(), message)
        else:
            # The reason was reported when it was given up.
            where = f"{record.tree.user} works {rules_states.describe_state(record.state)}"
            self.session.emit(EventKind.CUTOVER_GIVEN_UP, Severity.WARNING, record.subject(), where)
        hint = "" if moved else "fix that, then run the same command again"
        outcome = rules_states.outcome_of(
            record, CutoverEnding.MOVED if moved else CutoverEnding.GIVEN_UP, message, hint=hint
        )
        return replace(outcome, predicted_freeze_s=record.predicted_freeze_s, freeze_parts_s=self._parts_s(record))

    def _halted(self, record: model.CutoverRecord, step: Halt) -> CutoverOutcome:
        message = f"{record.tree.user} is not touched ({rules_states.describe_state(record.state)}): {step.words}"
        self.session.emit(EventKind.CUTOVER_HALTED, Severity.ERROR, record.subject(), message)
        return rules_states.outcome_of(record, CutoverEnding.HALTED, message, hint=step.hint)

    def _stuck(self, record: model.CutoverRecord) -> CutoverOutcome:
        message = f"{record.tree.user} is {rules_states.describe_state(record.state)}: {record.failure}"
        self.session.emit(EventKind.CUTOVER_HALTED, Severity.ERROR, record.subject(), message)
        hint = "fix that, then run the same command again: it resumes"
        return rules_states.outcome_of(record, CutoverEnding.STUCK, message, hint=hint)

    # Steps.

    async def prepare(
        self, record: model.CutoverRecord, act: model.CutoverAct, seen: TreeSnapshot
    ) -> model.CutoverNotes:
        """The facts to record before a step begins: how to thaw the tops that it freezes, what it verifies and
        switches, and which passes and verifications in the ledger are older.

        A top is read only before its freeze begins: later it may be the frozen one. Raises Refused if the path would be
        switched while a mount is not the expected one.
        """
        session, tree, step = self.session, record.tree.path, act.step
        world = session.call
        if step is model.CutoverStep.FREEZE and record.state is not model.CutoverState.FREEZING:
            top = await session.blocking(lambda: world.freezer.read_top(tree))
            passes, proofs = session.numbers(record, back=False)
            await self._back_up_ledger(record, "target")
            return model.CutoverNotes(frozen_top=rules_tops.write_top(top), passes_before=passes, proofs_before=proofs)
        if step is model.CutoverStep.ROLLBACK_FREEZE and record.state is not model.CutoverState.ROLLBACK_FREEZING:
            top = await self._target_top(record)
            passes, proofs = await session.blocking(lambda: session.numbers(record, back=True))
            await self._back_up_ledger(record, "source")
            return model.CutoverNotes(
                frozen_target_top=rules_tops.write_top(top), passes_before=passes, proofs_before=proofs
            )
        # A proof that is found complete is newer than what was recorded before it.
        if step is model.CutoverStep.VERIFY:
            # A killed call may have left a pass that the record does not mention.
            final = None if seen.copied is None else seen.copied.id
            newest = None if act.seen_done else session.numbers(record, back=False)[1]
            return model.CutoverNotes(final_pass_id=final, proofs_before=newest)
        if step is model.CutoverStep.ROLLBACK_VERIFY:
            changes = await session.blocking(lambda: world.rollbacks.changes(record))
            _, newest = await session.blocking(lambda: session.numbers(record, back=True))
            return model.CutoverNotes(target_changes=changes, proofs_before=None if act.seen_done else newest)
        if step in (model.CutoverStep.SWITCH, model.CutoverStep.SWITCH_BACK) and not act.seen_done:
            await self._check_mounts()
        if step is model.CutoverStep.SWITCH and not act.seen_done:
            await self._check_acls(record)
        if step is model.CutoverStep.SWITCH and world.links is not None:
            return model.CutoverNotes(link=link_path(world.links.place.link, record.tree))
        return model.NO_CUTOVER_NOTES

    async def _back_up_ledger(self, record: model.CutoverRecord, side: str) -> None:
        """Before the freeze: copying the ledger of a large site takes seconds. Raises MigratorError: the user is not frozen then."""
        await asyncio.to_thread(self.session.call.backup, f"before-{record.own_name}-to-the-{side}")

    async def _check_mounts(self) -> None:
        """Raise Refused if the mounts are not those that were verified, as after a reboot between a killed call and
        this one.
        """
        run, site, timeout_s = self.session.ports, self.session.site, self.session.call.request.run.stall_timeout_s
        problems = (*await mounts_changed(run, site, timeout_s),)
        if problems:
            raise Refused(
                f"the path is not switched: {'; '.join(problems)}",
                cause="a file system was unmounted, or another one is mounted in its place",
                hint="see `migrator doctor`, then run the same command again",
            )

    async def _check_acls(self, record: model.CutoverRecord) -> None:
        """Raise Refused for a default ACL that was set after the preflight checks."""
        problems = await self.session.acl_problems(record.tree, final_catalog(self.session, record))
        if problems is None:
            raise Refused("the path is not switched: the default ACLs of the tree are unknown")
        if problems:
            raise Refused(f"the path is not switched: {'; '.join(problems)}")

    async def perform(self, act: model.CutoverAct, record: model.CutoverRecord) -> CutoverDone:
        """Make one step. A step that is found done was made by a killed call that did not record it; the kill may have
        come between the top and the archives.
        """
        session, tree, user, notes, step = self.session, record.tree.path, record.tree.user, record.notes, act.step
        world, run = session.call, session.ports
        if act.seen_done:
            if step in (model.CutoverStep.FREEZE, model.CutoverStep.ROLLBACK_FREEZE):
                await self._settle(run.source if step is model.CutoverStep.FREEZE else run.target)
            if step in (model.CutoverStep.THAW, model.CutoverStep.ROLLBACK_REVERT, model.CutoverStep.ROLLBACK_FREEZE):
                await self._assign_archives(tree, to_user=step is not model.CutoverStep.ROLLBACK_FREEZE)
            found = session.ledger.verifications.of_tree(record.plan, record.batch, tree)
            newest = found[-1] if step is model.CutoverStep.VERIFY and found else None
            return Done(notes=_verified_notes(newest) if newest else None, message="an earlier call has done it")
        match step:
            case model.CutoverStep.FREEZE:
                top = _noted(notes.frozen_top)
                await session.blocking(lambda: world.freezer.freeze(tree, top))
                world.source_writers.begin([tree], count=SEARCHES)
                open_databases = partial(connect_ahead, world.migration.scratch, count=_DATABASES)
                await asyncio.gather(self._settle(run.source), asyncio.to_thread(open_databases))
                return Done(message="its top is closed on the source")
            case model.CutoverStep.FINAL_PASS:
                return await self._final_passes(record)
            case model.CutoverStep.VERIFY:
                with world.migration.verifying(session.plan, record.batch, (tree,)) as verification:
                    verified = await verification.run()
                return Done(notes=_verified_notes(verified), message=_describe_verification(verified))
            case model.CutoverStep.SWITCH:
                return await self._switch(record, back=False)
            case model.CutoverStep.SWITCH_BACK:
                await note_equal(run, world.migration.deltas, session.plan, session.batch_of(record.tree, record.batch))
                return await self._switch(record, back=True)
            case model.CutoverStep.THAW:
                source, clock_ns = await self._present(run.source, tree), await self._target_clock_ns()
                await self._open_target(tree, rules_tops.as_before(source, _noted(notes.frozen_top)))
                return Done(notes=model.CutoverNotes(target_thawed_ns=clock_ns), message=f"{user} works on the target")
            case model.CutoverStep.RETAIN:
                done = await retain_source(session, record)
                # After late writes, which it may refuse; the user works on the target already and does not wait.
                for severity, message in await set_confirmed(session.ledger, run.storage, tree):
                    self.session.emit(EventKind.QUOTA_LIMIT, severity, record.subject(), message)
                return done
            case model.CutoverStep.REVERT:
                if notes.frozen_top is not None:
                    before = rules_tops.read_top(notes.frozen_top)
                    await session.blocking(lambda: world.freezer.thaw(tree, before))
                return Done(message=f"{user} works on the source, as before")
            case model.CutoverStep.ROLLBACK_FREEZE:
                await session.blocking(lambda: world.trees.close_tree(tree))
                await self._assign_archives(tree, to_user=False)
                await self._settle(run.target)
                return Done(message="its top is closed on the target")
            case model.CutoverStep.CARRY_BACK:
                changes = await world.rollbacks.carry(record)
                message = f"{several(changes.files, 'file')} with {format_size(changes.size_bytes)} carried back, "
                message += f"{several(changes.gone, 'path')} taken away"
                return Done(notes=model.CutoverNotes(target_changes=changes), message=message)
            case model.CutoverStep.ROLLBACK_VERIFY:
                return Done(message=_describe_verification(await world.rollbacks.compare(record)))
            case model.CutoverStep.ROLLBACK_THAW:
                await self._open_source(record)
                return Done(message=f"{user} works on the source again")
            case model.CutoverStep.ROLLBACK_REVERT:
                target, clock_ns = await self._present(run.target, tree), await self._target_clock_ns()
                await self._open_target(tree, rules_tops.as_before(target, _noted(notes.frozen_target_top)))
                return Done(
                    notes=model.CutoverNotes(target_thawed_again_ns=clock_ns),
                    message=f"{user} works on the target, as before",
                )
            case model.CutoverStep.PURGE:
                raise ValueError(step)

    async def _final_passes(self, record: model.CutoverRecord) -> CutoverDone:
        session, files, size_bytes, made_id = self.session, 0, 0, None
        async for summary, made in session.final_passes(record.tree, record.batch):
            files, size_bytes, made_id = files + summary.files, size_bytes + summary.size_bytes, made.id
        message = f"{several(files, 'file')} with {format_size(size_bytes)} copied by the final pass"
        return Done(notes=model.CutoverNotes(final_pass_id=made_id), message=message)

    async def _switch(self, record: model.CutoverRecord, *, back: bool) -> CutoverDone:
        world, side = self.session.call, "source" if back else "target"
        if world.links is None:
            return Done(message=f"the pre-switch hooks have switched the path to the {side}")
        links = world.links
        # Hooks have been called since the last snapshot, and may have taken long.
        await self._check_mounts()
        source, target = self.session.paths(record.tree.path)
        old, new = (target, source) if back else (source, target)
        await self.session.blocking(lambda: links.switch(record.tree, expected_old=old, new=new))
        return Done(message=f"the path leads to the {side}: {show(new)}")

    async def _open_target(self, tree: bytes, like: Entry) -> None:
        await self.session.blocking(lambda: self.session.call.trees.open_tree(tree, like))
        await self._assign_archives(tree, to_user=True)

    async def _target_clock_ns(self) -> int | None:
        """The time by the clock of the target; None if it is unknown, which is no reason to keep a user frozen."""
        return await result_or_none(self.session.blocking(self.session.ports.target.clock_ns))

    async def _open_source(self, record: model.CutoverRecord) -> None:
        session, tree = self.session, record.tree.path
        source, target = [await self._present(side, tree) for side in (session.ports.source, session.ports.target)]
        like = rules_tops.carried_top(
            source,
            target,
            source_before=_noted(record.notes.frozen_top),
            target_before=_noted(record.notes.frozen_target_top),
            capabilities=session.capabilities,
        )
        await session.blocking(lambda: session.call.source_trees.open_tree(tree, like))

    async def _assign_archives(self, tree: bytes, *, to_user: bool) -> None:
        await self.session.blocking(lambda: assign_archives(self.session, tree, to_user=to_user))

    async def _settle(self, side: FileSystem) -> None:
        """Wait until no client passes a closed top by its cache. A client opens names below a top that it has looked up
        before without checking the top, for as long as the `entry-timeout` of its mount.
        """
        identity = await self.session.blocking(side.identity)
        await self.session.ports.clock.sleep(
            rules_writers.settle_s(identity.filesystem, self.session.call.request.settle_s)
        )

    async def _target_top(self, record: model.CutoverRecord) -> FrozenTop:
        """How to thaw a user on the target: the top as it is, or as a thaw would make it if it was never opened."""
        run, tree = self.session.ports, record.tree.path
        target = await self._present(run.target, tree)
        if not rules_tops.is_closed(target, uid=os.geteuid(), gid=os.getegid()):
            return rules_tops.top_of(target)
        wanted = self.session.wanted_top(record, await self._present(run.source, tree), target)
        if wanted is None:
            raise MigratorError(f"the attributes of the open top of {record.tree.user} on the target are unknown")
        return wanted

    async def _present(self, side: FileSystem, tree: bytes) -> Entry:
        found = await self.session.entry(side, tree)
        if found is None:
            name = "source" if side is self.session.ports.source else "target"
            raise Refused(
                f"the tree {show(tree)} is not on the {name}",
                hint="see `migrator doctor`, and find out who has moved it away",
            )
        return found


def _noted(text: str | None) -> FrozenTop:
    if text is None:
        raise LedgerCorrupt(
            "the ledger has no record of the top to thaw",
            hint="restore the ledger from its backup, or give the top directory its owner and mode by hand",
        )
    return rules_tops.read_top(text)


def _verified_notes(found: VerificationRecord) -> model.CutoverNotes:
    return model.CutoverNotes(verification_id=found.id, manifest=found.manifest)


def _describe_verification(found: VerificationRecord) -> str:
    if not found.whole:
        return f"not whole: {'; '.join(found.reasons)}"
    differences = sum(found.differences.values())
    return f"{several(found.paths, 'path')} compared; " + (
        several(differences, "difference") if differences else "all equal"
    )
