"""Freeing the source of one tree: guards, a look at everything, and then its end."""

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from migrator.decide.purge import purge_act, shrink_problem
from migrator.domain.cutover import NO_NOTES, CutoverNotes, CutoverRecord, CutoverState, PurgeSum
from migrator.domain.errors import MigratorError, Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.hooks import HookFacts, HookState, HookStep
from migrator.domain.paths import join, show
from migrator.domain.purge import PURGE_NAME, TREE_NAME, Position, TreeOutcome, TreePurge, purge_place
from migrator.domain.site import TargetCapabilities
from migrator.domain.units import format_size, several
from migrator.domain.verification import VerificationRecord
from migrator.ports.purging import TreeProofs
from migrator.ports.site import SiteRecord
from migrator.stages.hooking import CutoverPlace, StepHooks
from migrator.stages.purge.context import Call, Placed, in_thread
from migrator.stages.purge.examining import Examination, where_it_lies
from migrator.stages.purge.judging import Judge
from migrator.stages.purge.pace import Pace
from migrator.stages.purge.reaped import Skipped, archive_problems, archive_sizes, open_words, released_words
from migrator.stages.purge.removal import Removal, kept_words
from migrator.stages.purge.survey import Found, Survey


class PurgeOfTree:
    """One tree. Every step may be stopped or killed: another one goes on from what it finds."""

    def __init__(
        self,
        call: Call,
        *,
        site: SiteRecord,
        capabilities: TargetCapabilities,
        record: CutoverRecord,
        proof: VerificationRecord | None,
        carried: tuple[VerificationRecord, ...] | None,
        hooking: StepHooks | None,
        pace: Pace,
    ) -> None:
        self._call = call
        self._world = call.world
        self._capabilities = capabilities
        self._record = record
        self._proof = proof
        self._carried = carried
        self._hooking = hooking
        self._pace = pace
        self._examination = Examination(call, site, record, proof)

    async def run(self) -> TreePurge:
        """Free it, or say what speaks against it. Raises what stops the whole purge."""
        position = await self._examination.position()
        if position is Position.GONE and self._record.state is CutoverState.PURGING:
            return await self._finish_gone()
        placed = where_it_lies(self._record, position)
        manifest = None if self._proof is None else self._proof.manifest
        if manifest is None:
            return await self._refuse_early(position, placed)
        rows = await in_thread(lambda: self._world.skipped(self._record))
        opened = self._world.manifest.open(
            manifest,
            self._record.tree.path,
            archives=archive_sizes(self._world.ledger, self._record.tree),
            skipped=rows,
            newer=[one.manifest or "" for one in self._carried or ()],
        )
        try:
            proofs = await in_thread(opened.__enter__)
        except Refused:
            return await self._refuse_early(position, placed)
        try:
            return await self._judge_and_free(position, placed, proofs)
        finally:
            opened.__exit__(None, None, None)

    async def _refuse_early(self, position: Position | None, placed: Placed) -> TreePurge:
        before = await self._examination.health()
        return self._refused(await self._examination.problems(position, placed, None, before))

    async def _finish_gone(self) -> TreePurge:
        """A purge that was killed when nothing was left but to say so. What is on another mount would look the same."""
        if reasons := await self._examination.outside_problems():
            return self._refused(reasons)
        if self._call.request.dry_run:
            return self._result(TreeOutcome.WOULD_PURGE, words="nothing of it is left on the source")
        return await self._hooked(self._finish)

    async def _judge_and_free(self, position: Position | None, placed: Placed, proofs: TreeProofs) -> TreePurge:
        examination = self._examination
        before = await examination.health()
        total = await in_thread(proofs.total)
        if reasons := await examination.problems(position, placed, total, before):
            return self._refused(reasons)
        if reasons := await in_thread(lambda: archive_problems(self._world.archived(), self._record.tree)):
            return self._refused(reasons)
        found: Found | None = None
        if position is Position.IN_PLACE or self._call.request.dry_run:
            found = await self._survey(placed, proofs, total.names)
            if refusal := await self._speaks_against(found, placed, proofs):
                return refusal
            if reasons := await examination.outside_problems(before):
                return self._refused(reasons)
            if self._call.request.dry_run:
                words = f"may be freed{released_words(found.released)}"
                return self._with(found, proofs, self._result(TreeOutcome.WOULD_PURGE, words=words))
        return await self._hooked(lambda: self._free(placed, proofs, found, total.names))

    def _skipped(self, placed: Placed, proofs: TreeProofs) -> Skipped:
        return Skipped(self._record.tree, proofs.skipped, self._world.ledger.releases, closed=placed.moved)

    async def _survey(self, placed: Placed, proofs: TreeProofs, names: int) -> Found:
        top = await in_thread(lambda: self._world.source.look(placed.at))
        if top is None:
            raise Refused(
                f"{show(placed.at)} has gone from the source just now",
                cause="somebody moved or removed it",
                hint="find out who did, then run the same command again",
            )
        survey = Survey(
            self._call,
            placed,
            self._world.source,
            proofs,
            judge=self._judge(placed),
            skipped=self._skipped(placed, proofs),
        )
        return await survey.run(top, user=self._record.tree.user, total=names)

    async def _speaks_against(self, found: Found, placed: Placed, proofs: TreeProofs) -> TreePurge | None:
        if found.open_paths and not placed.moved:
            lacking = found.open_paths - found.skipped
            reasons = open_words(
                self._record.tree,
                lacking,
                found.skipped,
                carried=self._carried is not None,
                verified=bool(self._carried),
            )
            return self._with(found, proofs, self._refused(reasons))
        lost = shrink_problem(
            self._record.tree, gone=found.gone, names=found.names, max_shrink=self._call.request.max_shrink
        )
        if lost is not None:
            return self._with(found, proofs, self._refused((lost,)))
        return None

    async def _free(self, placed: Placed, proofs: TreeProofs, found: Found | None, names: int) -> TreePurge:
        tree, world, record = self._record.tree, self._world, self._record
        whole, outside = (record.notes.purge, 0) if found is None else found.sum(proofs)
        await in_thread(lambda: world.back_up(f"purge-{record.own_name}"))
        notes = NO_NOTES if found is None else CutoverNotes(purge=whole)
        step = world.ledger.cutovers.intend(record.id, purge_act(), at_s=world.clock.now_s(), notes=notes)
        try:
            closed = await self._put(placed)
            self._say(
                Severity.INFO,
                EventKind.PURGE_STARTED,
                f"the source of {tree.user} is being freed: {self._sum_words(whole)}",
            )
            removed = await self._remove(closed, proofs, names)
        except MigratorError as error:
            world.ledger.cutovers.fail(step, error.message, at_s=world.clock.now_s())
            raise
        if removed.open_paths:
            words = kept_words(removed, closed)
            world.ledger.cutovers.fail(step, words, at_s=world.clock.now_s())
            self._say(Severity.WARNING, EventKind.PURGE_KEPT, f"the source of {tree.user} is not free: {words}")
            result = self._result(TreeOutcome.KEPT, words=words, sum=whole)
        else:
            await self._put_away(closed)
            message = f"the source of {tree.user} is free: {self._sum_words(whole)}{released_words(removed.released)}"
            world.ledger.cutovers.finish(step, CutoverState.PURGED, at_s=world.clock.now_s(), message=message)
            self._say(Severity.INFO, EventKind.PURGE_FINISHED, message)
            result = self._result(TreeOutcome.PURGED, words=message, sum=whole)
        return replace(
            result,
            removed=removed.removed,
            read_again=removed.read_again + (found.read_again if found else 0),
            changed=found.changed if found else 0,
            gone=found.gone if found else 0,
            outside=outside,
            open_paths=removed.open_paths,
            findings=removed.listed,
            kept_in=closed.at if removed.open_paths else None,
        )

    async def _put(self, placed: Placed) -> Placed:
        """Move the tree to where only root gets to, and look for whoever has something of it open once more."""
        tree, place = self._record.tree.path, purge_place(self._record)
        closed = Placed(tree=tree, at=join(place, TREE_NAME))
        if not placed.moved:
            top = await in_thread(lambda: self._world.source.look(tree))
            if top is None:
                raise self._stopped(f"{show(tree)} has gone from the source just now")
            try:
                await in_thread(lambda: self._world.places.put(tree, place, ino=top.ino))
            except OSError as error:
                raise self._stopped(
                    f"{show(tree)} cannot be moved to {show(place)}: {error.strerror or error}"
                ) from error
            if reasons := await self._examination.writing(closed.at):
                raise self._stopped("; ".join(reasons))
        return closed

    async def _remove(self, closed: Placed, proofs: TreeProofs, names: int) -> Found:
        async def watch() -> None:
            if reasons := await self._examination.outside_problems():
                raise self._stopped("; ".join(reasons))

        removal = Removal(
            self._call,
            closed,
            source=self._world.source,
            places=self._world.places,
            proofs=proofs,
            judge=self._judge(closed),
            skipped=self._skipped(closed, proofs),
            pace=self._pace,
            watch=watch,
        )
        found = await removal.run(user=self._record.tree.user, total=names)
        await watch()
        return found

    async def _put_away(self, closed: Placed) -> None:
        places = self._world.places
        try:
            if await in_thread(lambda: places.stands(closed.at)):
                raise self._stopped(f"{show(closed.at)} is still there, although everything in it is gone")
            await in_thread(lambda: places.remove_directory(purge_place(self._record)))
            await in_thread(places.flush)
            # That of all places goes with the last of them.
            with suppress(OSError):
                await in_thread(lambda: places.remove_directory(PURGE_NAME))
        except OSError as error:
            raise self._stopped(f"the end of the purge cannot be seen: {error.strerror or error}") from error

    async def _finish(self) -> TreePurge:
        ledger, clock = self._world.ledger, self._world.clock
        step = ledger.cutovers.intend(self._record.id, purge_act(), at_s=clock.now_s())
        await self._put_away(where_it_lies(self._record, Position.CLOSED))
        message = f"the source of {self._record.tree.user} is free: {self._sum_words(self._record.notes.purge)}"
        ledger.cutovers.finish(step, CutoverState.PURGED, at_s=clock.now_s(), message=message)
        self._say(Severity.INFO, EventKind.PURGE_FINISHED, message)
        return self._result(TreeOutcome.PURGED, words=message, sum=self._record.notes.purge)

    async def catch_up(self) -> None:
        """Call the hooks that a killed purge still owes after a tree that is purged."""
        if self._hooking is not None:
            facts = replace(self._facts(), state=HookState.DONE)
            await self._hooking.catch_up(self._step.hooked, facts)

    async def _hooked(self, work: Callable[[], Awaitable[TreePurge]]) -> TreePurge:
        if self._hooking is None:
            return await work()
        return await self._hooking.around(self._step.hooked, work, facts=self._facts(), after=_after)

    @property
    def _step(self) -> CutoverPlace:
        return CutoverPlace(step=HookStep.PURGE, record=self._record)

    def _facts(self) -> HookFacts:
        record, world = self._record, self._world
        return HookFacts(
            run_id=self._call.run_id or 0,
            plan=record.plan,
            batch=record.batch,
            trees=(record.tree,),
            user=record.tree.user,
            link=record.notes.link,
            old_path=join(world.source.root, record.tree.path),
            new_path=join(world.target.root, record.tree.path),
            started_at_s=world.clock.now_s(),
        )

    def _judge(self, placed: Placed) -> Judge:
        again_s = self._record.times[CutoverState.THAWED]
        let_in_s = self._record.thawed_at_s
        return Judge(
            placed,
            self._world.source,
            self._world.target,
            capabilities=self._capabilities,
            let_in_s=again_s if let_in_s is None else let_in_s,
            let_in_again_s=again_s,
            closed_uid=os.geteuid(),
            reread=self._call.request.reread,
        )

    def _result(self, outcome: TreeOutcome, *, words: str = "", sum: PurgeSum | None = None) -> TreePurge:  # noqa: A002
        return TreePurge(tree=self._record.tree, outcome=outcome, words=words, sum=sum)

    def _refused(self, reasons: Sequence[str]) -> TreePurge:
        self._say(
            Severity.ERROR,
            EventKind.GUARD_REFUSED,
            f"the source of {self._record.tree.user} stays: {'; '.join(reasons)}",
        )
        return replace(self._result(TreeOutcome.REFUSED, words="a guard speaks against it"), reasons=tuple(reasons))

    def _with(self, found: Found | None, proofs: TreeProofs, result: TreePurge) -> TreePurge:
        if found is None:
            return result
        whole, outside = found.sum(proofs)
        return replace(
            result,
            sum=whole,
            read_again=found.read_again,
            changed=found.changed,
            gone=found.gone,
            outside=outside,
            open_paths=found.open_paths,
            findings=found.listed,
        )

    def _say(self, severity: Severity, kind: EventKind, message: str) -> None:
        self._call.say(kind, severity, self._record.tree.user, message)

    def _stopped(self, why: str) -> Refused:
        return Refused(
            f"the purge of {self._record.tree.user} was stopped: {why}",
            cause="what has to hold before something is removed does not hold any more",
            hint="put it right, then run the same command again: it goes on where it was",
        )

    @staticmethod
    def _sum_words(whole: PurgeSum | None) -> str:
        if whole is None:
            return "how much is not known"
        return f"{format_size(whole.size_bytes)} in {several(whole.names, 'name')}, {several(whole.inodes, 'inode')}"


async def _after(facts: HookFacts, result: TreePurge) -> HookFacts:
    state = HookState.DONE if result.outcome is TreeOutcome.PURGED else HookState.FAILED
    whole = result.sum
    if whole is None:
        return replace(facts, state=state)
    return replace(facts, state=state, files=whole.names, size_bytes=whole.size_bytes)
