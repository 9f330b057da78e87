"""Carrying out the steps of a cutover. Every step may be carried out again: it does what is missing."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from migrator.decide.cutover_tops import as_before, is_closed, read_top, top_of, write_top
from migrator.decide.freezing import has_clients_elsewhere
from migrator.decide.switching import top_before
from migrator.domain.cutover import NO_NOTES, CutoverNotes, CutoverRecord, CutoverState, CutoverStep
from migrator.domain.cutover_seen import Act
from migrator.domain.entry import Entry
from migrator.domain.errors import LedgerCorrupt, MigratorError, Refused
from migrator.domain.freezing import FrozenTop
from migrator.domain.paths import show
from migrator.domain.run import BatchSummary
from migrator.domain.states import PassKind
from migrator.domain.units import format_size, several
from migrator.domain.verification import VerificationRecord
from migrator.ports.filesystem import FileSystem
from migrator.stages.cutover.archives import TreeArchives
from migrator.stages.cutover.context import Cutting
from migrator.stages.cutover.seeing import Looker
from migrator.stages.run.bases import pass_number
from migrator.stages.run.delta import DeltaPass
from migrator.stages.run.equal_sides import note_equal
from migrator.stages.run.guards import mount_findings
from migrator.stages.run.pass_moves import only_not_renamed

_MOST_PASSES = 3
"""In one freeze."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a step left: what is to be added to the record, and a sentence about it."""

    notes: CutoverNotes = NO_NOTES
    words: str = ""


class StepFailed(MigratorError):
    """A step came to no good end."""


Deed = Callable[[CutoverRecord], Awaitable[Done]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Carries out single steps at one tree. All raise MigratorError or OSError."""

    cutting: Cutting
    looker: Looker

    @property
    def deeds(self) -> Mapping[CutoverStep, Deed]:
        """What each step does."""
        return {
            CutoverStep.FREEZE: self._freeze,
            CutoverStep.FINAL_PASS: self._final_pass,
            CutoverStep.VERIFY: self._verify,
            CutoverStep.SWITCH: self._switch,
            CutoverStep.THAW: self._thaw,
            CutoverStep.RETAIN: self._retain,
            CutoverStep.REVERT: self._revert,
            CutoverStep.ROLLBACK_FREEZE: self._rollback_freeze,
            CutoverStep.CARRY_BACK: self._carry_back,
            CutoverStep.ROLLBACK_VERIFY: self._rollback_verify,
            CutoverStep.SWITCH_BACK: self._switch_back,
            CutoverStep.ROLLBACK_THAW: self._rollback_thaw,
            CutoverStep.ROLLBACK_REVERT: self._rollback_revert,
        }

    async def notes_before(self, act: Act, record: CutoverRecord) -> CutoverNotes:
        """What has to be written down before a step begins: how to thaw whom it freezes, what is verified, what is switched,
        and what of the ledger is older. A top is read before its freeze has begun, and never afterwards: then it may be the
        frozen one. Raises Refused where a mount is not the expected one and the path would be switched.
        """
        world, tree, step = self.cutting.world, record.tree.path, act.step
        if step is CutoverStep.FREEZE and record.state is not CutoverState.FREEZING:
            top = await self.cutting.blocking(lambda: world.freezer.read_top(tree))
            ledger = self.cutting.ledger
            return CutoverNotes(
                frozen_top=write_top(top),
                passes_before=max((one.id for one in ledger.passes.over_tree(tree)), default=0),
                proofs_before=ledger.verifications.newest_id(),
            )
        if step is CutoverStep.ROLLBACK_FREEZE and record.state is not CutoverState.ROLLBACK_FREEZING:
            copied, proof = await self.cutting.blocking(lambda: world.back.seen(record))
            return CutoverNotes(
                frozen_target_top=write_top(await self._target_top(record)),
                passes_before=0 if copied is None else copied.id,
                proofs_before=0 if proof is None else proof.id,
            )
        if step in (CutoverStep.VERIFY, CutoverStep.ROLLBACK_VERIFY):
            return await self._notes_before_verify(act, record)
        if step in (CutoverStep.SWITCH, CutoverStep.SWITCH_BACK) and not act.seen_done:
            await self._check_mounts()
        if step is CutoverStep.SWITCH and world.links is not None:
            links = world.links
            found = await self.cutting.blocking(lambda: links.read_link(record.tree.user))
            _, new = self.cutting.paths(tree)
            return CutoverNotes(link=found.path, link_before=found.text, link_after=new)
        return NO_NOTES

    async def _notes_before_verify(self, act: Act, record: CutoverRecord) -> CutoverNotes:
        back = self.cutting.world.back
        if act.step is CutoverStep.VERIFY:
            # A call that was killed may have left a pass, and no word of it in the record.
            made = self.looker.final_pass(record)
            notes = CutoverNotes(final_pass_id=None if made is None else made.id)
            newest = self.cutting.ledger.verifications.newest_id()
        else:
            notes = CutoverNotes(target_changes=await self.cutting.blocking(lambda: back.changes(record)))
            _, proof = await self.cutting.blocking(lambda: back.seen(record))
            newest = 0 if proof is None else proof.id
        # One that is found to be done was newer than what was written down before it.
        return notes if act.seen_done else replace(notes, proofs_before=newest)

    async def _check_mounts(self) -> None:
        """A call that was killed may be gone on with after a reboot: what is mounted now need not be what was verified."""
        run, site, timeout_s = self.cutting.run, self.cutting.site, self.cutting.request.run.stall_timeout_s
        problems = (
            *await mount_findings(run, run.source, site.source, timeout_s),
            *await mount_findings(run, run.target, site.target, timeout_s),
        )
        if problems:
            raise Refused(
                f"the path is not switched: {'; '.join(problems)}",
                cause="a file system was unmounted, or another one is mounted in its place",
                hint="see `migrator doctor`, then run the same command again",
            )

    async def done_before(self, step: CutoverStep, record: CutoverRecord) -> Done:
        """What a step has left that was done by a call which did not come to write it down. That may have been killed between
        the top and the archives.
        """
        words = "it was done before"
        if step in (CutoverStep.THAW, CutoverStep.ROLLBACK_REVERT):
            await self.cutting.blocking(self._archives(record).hand_over)
        if step is CutoverStep.ROLLBACK_FREEZE:
            await self.cutting.blocking(self._archives(record).take_back)
        found = self.looker.verification(record) if step is CutoverStep.VERIFY else None
        return Done(words=words) if found is None else Done(notes=_verified_notes(found), words=words)

    async def _freeze(self, record: CutoverRecord) -> Done:
        top = _noted(record.notes.frozen_top)
        await self.cutting.blocking(lambda: self.cutting.world.freezer.freeze(record.tree.path, top))
        await self._settle(self.cutting.run.source)
        return Done(words="its top is closed on the source")

    async def _final_pass(self, record: CutoverRecord) -> Done:
        """Again where paths could not be renamed on the target, because they were not there as before (a rollback has renamed
        them already): the next pass sends them. What changed meanwhile is another matter, and stops the switch.
        """
        passes, files, size_bytes = self.cutting.ledger.passes, 0, 0
        for _ in range(_MOST_PASSES):
            summary, made = await self._one_final_pass(record)
            files, size_bytes = files + summary.files, size_bytes + summary.size_bytes
            if not only_not_renamed(passes, made):
                break
        return Done(
            notes=CutoverNotes(final_pass_id=made),
            words=f"{several(files, 'file')} with {format_size(size_bytes)} brought by the final pass",
        )

    async def _one_final_pass(self, record: CutoverRecord) -> tuple[BatchSummary, int]:
        """What it brought, and its number in the ledger."""
        cutting = self.cutting
        batch, ledger = cutting.batch_of(record), cutting.ledger
        number = pass_number(ledger.passes, cutting.plan, batch, PassKind.FINAL)
        final = DeltaPass(
            invocation=cutting.invocation,
            plan=cutting.plan,
            site=cutting.site,
            batch=batch,
            deltas=cutting.world.deltas,
            kind=PassKind.FINAL,
        )
        summary = await cutting.hooking.around_pass(batch, PassKind.FINAL, final.run, idle=False, number=number)
        if summary.skipped:
            raise StepFailed(summary.skipped)
        if summary.stopped is not None:
            raise StepFailed(f"the final pass stopped: {summary.stopped.message}", hint=summary.stopped.hint)
        made = ledger.passes.find(cutting.plan.name, batch.number, PassKind.FINAL)
        if made is None:
            raise LedgerCorrupt("the ledger has lost the final pass", hint="run the same command again")
        return summary, made.id

    async def _verify(self, record: CutoverRecord) -> Done:
        found = await self.cutting.world.verify(self.cutting.plan, record.batch, record.tree.path)
        return Done(notes=_verified_notes(found), words=_verified_words(found))

    async def _switch(self, record: CutoverRecord) -> Done:
        source, target = self.cutting.paths(record.tree.path)
        return await self._exchange(record, source, target, "target")

    async def _switch_back(self, record: CutoverRecord) -> Done:
        cutting = self.cutting
        await note_equal(cutting.run, cutting.world.deltas, cutting.plan, cutting.batch_of(record))
        source, target = cutting.paths(record.tree.path)
        return await self._exchange(record, target, source, "source")

    async def _exchange(self, record: CutoverRecord, old: bytes, new: bytes, side: str) -> Done:
        world, user = self.cutting.world, record.tree.user
        await asyncio.to_thread(world.backup, f"before-{record.own_name}-to-the-{side}")
        if world.links is None:
            return Done(words=f"the pre-switch hooks have said that the path leads to the {side}")
        links = world.links
        # Hooks were called since the last look, and may have taken long.
        await self._check_mounts()
        await self.cutting.blocking(lambda: links.switch(user, expected_old=old, new=new))
        return Done(words=f"the path leads to the {side}: {show(new)}")

    async def _thaw(self, record: CutoverRecord) -> Done:
        source = await self._present(record, on_source=True)
        like = top_before(source, _noted(record.notes.frozen_top))
        trees, tree = self.cutting.world.trees, record.tree.path
        await self.cutting.blocking(lambda: trees.open_tree(tree, like))
        await self.cutting.blocking(self._archives(record).hand_over)
        return Done(words=f"{record.tree.user} works on the target")

    async def _retain(self, record: CutoverRecord) -> Done:  # noqa: ARG002 - every step is told the record
        return Done(words="the source is kept as it was when it was frozen")

    async def _revert(self, record: CutoverRecord) -> Done:
        noted = record.notes.frozen_top
        if noted is not None:
            top = _noted(noted)
            await self.cutting.blocking(lambda: self.cutting.world.freezer.thaw(record.tree.path, top))
        return Done(words=f"{record.tree.user} works on the source, as before")

    async def _rollback_freeze(self, record: CutoverRecord) -> Done:
        trees, tree = self.cutting.world.trees, record.tree.path
        await self.cutting.blocking(lambda: trees.close_tree(tree))
        await self.cutting.blocking(self._archives(record).take_back)
        await self._settle(self.cutting.run.target)
        return Done(words="its top is closed on the target")

    async def _carry_back(self, record: CutoverRecord) -> Done:
        carried = await self.cutting.world.back.carry(record)
        changes = carried.changes
        return Done(
            notes=CutoverNotes(target_changes=changes),
            words=f"{several(changes.files, 'file')} with {format_size(changes.size_bytes)} carried back, "
            f"{several(changes.gone, 'path')} taken away",
        )

    async def _rollback_verify(self, record: CutoverRecord) -> Done:
        proof = await self.cutting.world.back.verify(record)
        return Done(words="all equal" if proof.whole and not proof.differences else "; ".join(proof.reasons))

    async def _rollback_thaw(self, record: CutoverRecord) -> Done:
        world, tree = self.cutting.world, record.tree.path
        before, there = _noted(record.notes.frozen_top), _noted(record.notes.frozen_target_top)

        def thaw() -> None:
            world.source_trees.open_tree(tree, world.back.top(record, source_before=before, target_before=there))

        await self.cutting.blocking(thaw)
        return Done(words=f"{record.tree.user} works on the source again")

    async def _rollback_revert(self, record: CutoverRecord) -> Done:
        target = await self._present(record, on_source=False)
        like = as_before(target, _noted(record.notes.frozen_target_top))
        trees, tree = self.cutting.world.trees, record.tree.path
        await self.cutting.blocking(lambda: trees.open_tree(tree, like))
        await self.cutting.blocking(self._archives(record).hand_over)
        return Done(words=f"{record.tree.user} works on the target, as before")

    def _archives(self, record: CutoverRecord) -> TreeArchives:
        return TreeArchives(sight=self.cutting, tree=record.tree.path)

    async def _settle(self, side: FileSystem) -> None:
        """Wait until no client passes a closed top any more by what it remembers of it: names below it that it has looked
        up before are opened without a look at the top, for as long as its mount's `entry-timeout` says.
        """
        identity = await self.cutting.blocking(side.identity)
        if has_clients_elsewhere(identity.filesystem):
            await self.cutting.run.clock.sleep(self.cutting.request.settle_s)

    async def _target_top(self, record: CutoverRecord) -> FrozenTop:
        """How to thaw a user on the target: as his top is; where it was never opened, as a thaw would have made it."""
        target = await self._present(record, on_source=False)
        if not is_closed(target, uid=os.geteuid(), gid=os.getegid()):
            return top_of(target)
        wanted = self.looker.wanted_top(record, await self._present(record, on_source=True), target)
        if wanted is None:
            raise StepFailed(f"how {record.tree.user} is thawed on the target is not known")
        return wanted

    async def _present(self, record: CutoverRecord, *, on_source: bool) -> Entry:
        looker = self.looker
        found = await (looker.source_entry(record) if on_source else looker.target_entry(record))
        if found is None:
            raise Refused(
                f"the tree {show(record.tree.path)} is not on the {'source' if on_source else 'target'}",
                hint="see `migrator doctor`, and who has moved it away",
            )
        return found


def _noted(text: str | None) -> FrozenTop:
    if text is None:
        raise LedgerCorrupt(
            "how a user is thawed is not written down",
            hint="bring the ledger back from its backup, or give the top directory its owner and mode by hand",
        )
    return read_top(text)


def _verified_notes(found: VerificationRecord) -> CutoverNotes:
    return CutoverNotes(verification_id=found.id, manifest=found.manifest)


def _verified_words(found: VerificationRecord) -> str:
    differences = sum(found.differences.values())
    if not found.whole:
        return f"not whole: {'; '.join(found.reasons)}"
    return f"{several(found.paths, 'path')} compared; " + (
        several(differences, "difference") if differences else "all equal"
    )
