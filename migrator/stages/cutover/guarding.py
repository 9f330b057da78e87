"""Asking, before a user is frozen, whatever can be known to go wrong later."""

import asyncio
import os
from dataclasses import dataclass, replace

from migrator.decide.cutover_guards import cutover_problems
from migrator.decide.cutover_tops import is_closed
from migrator.decide.forecast import choose_cost
from migrator.decide.freezing import closed_already, missing_freeze_hook
from migrator.decide.site_guards import capacity_problems, health_problems
from migrator.decide.switching import check_switch_hooks, leads_elsewhere, link_problem
from migrator.decide.target_quotas import OwnerNeed, room_to_work
from migrator.decide.tree_forecast import predict_freeze
from migrator.domain.cutover import CutoverRecord, CutoverState
from migrator.domain.cutover_seen import TargetTop
from migrator.domain.errors import MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.finding import FindingStatus
from migrator.domain.hooks import HooksFound
from migrator.domain.paths import is_beneath
from migrator.domain.states import PassKind
from migrator.domain.transfer import FileProblemKind
from migrator.domain.tree import UserTree
from migrator.stages.cutover.archives import TreeArchives
from migrator.stages.cutover.context import Cutting, Sight
from migrator.stages.cutover.seeing import Looker
from migrator.stages.hooking import find_hooks
from migrator.stages.run.bases import covers
from migrator.stages.run.batch import moves_of
from migrator.stages.run.convergence import facts_of_passes
from migrator.stages.run.freeze_check import check_of_trees
from migrator.stages.run.guards import mount_findings, storage_problems
from migrator.stages.storage_looks import look_at_storage
from migrator.stages.target_quotas import look_at_quotas


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarding:
    """Looks at everything that has to hold before one tree is cut over."""

    sight: Sight
    looker: Looker

    async def problems(self, tree: UserTree, batch: int, *, predicted_freeze_s: float | None) -> tuple[str, ...]:
        """Every reason against freezing the user of a tree."""
        sight, ledger = self.sight, self.sight.ledger
        record = _as_planned(sight, tree, batch)
        plan = ledger.plans.read(sight.plan.name)
        failed_chunks, bad_files = self._failed(tree, batch)
        request = sight.request
        chosen = {one.path for trees in request.trees.values() for one in trees}
        paused = (
            None if ledger.controls.now().hold is None else "the migration is paused: `migrator resume` lets it go on"
        )
        capacity = await self._capacity()
        problems = cutover_problems(
            tree,
            plan=sight.plan.name,
            batch=batch,
            state=plan.batches.get(batch) if plan else None,
            before=ledger.cutovers.latest(tree.path),
            elsewhere=[one for one in ledger.cutovers.under_way() if one.tree.path not in chosen],
            failed_chunks=failed_chunks,
            bad_files=bad_files,
            predicted_freeze_s=predicted_freeze_s,
            max_freeze_s=request.max_freeze_s,
            freeze_accepted=request.accept_freeze,
            target_top=await self._top(record),
            backup=await self.looker.backup(record),
            link=await self._link(tree),
            capacity=capacity,
            mounts=await self._mounts(),
            freeze=await self._freeze(record),
            lacking_archives=await self._lacking(tree),
        )
        if capacity == ():
            # Servers that are down would be waited for.
            problems = (*problems, *await self._limits(tree, record))
        return problems if paused is None else (paused, *problems)

    def predicted_freeze_s(self, tree: UserTree, batch: int) -> float | None:
        """How long the user would be frozen now; None where no delta pass went over his tree. Blocking."""
        sight, ledger = self.sight, self.sight.ledger
        lanes = sight.run.lanes.all
        return predict_freeze(
            facts_of_passes(ledger, sight.plan.name, batch, lambda one: moves_of(sight.world.deltas, one)),
            tree.path,
            at_s=sight.now_s(),
            cost=choose_cost(ledger.samples.measured_cost(), max(sum(lane.jobs for lane in lanes), 1)),
            check=check_of_trees(ledger, sight.plan, batch, [tree.path], sight.world.policy),
        )

    def _failed(self, tree: UserTree, batch: int) -> tuple[int, int]:
        """Chunks and files of the tree that the newest pass over it could not bring. What only changed or moved meanwhile
        is what a final pass is for.
        """
        passes = self.sight.ledger.passes
        newest = next(
            (
                one
                for one in reversed(passes.of_batch(self.sight.plan.name, batch))
                if one.kind is not PassKind.FINAL and covers(passes, one, (tree.path,))
            ),
            None,
        )
        if newest is None:
            return 0, 0
        bad = [one for one in passes.attention(newest.id) if one.kind is FileProblemKind.BAD]
        return (
            sum(chunk.tree == tree.path for chunk in passes.failed(newest.id)),
            sum(is_beneath(one.path, tree.path) for one in bad),
        )

    async def _top(self, record: CutoverRecord) -> TargetTop:
        try:
            entry = await self.looker.target_entry(record)
        except OSError:
            return TargetTop.UNKNOWN
        if entry is None:
            return TargetTop.MISSING
        return TargetTop.CLOSED if is_closed(entry, uid=os.geteuid(), gid=os.getegid()) else TargetTop.OPEN

    async def _link(self, tree: UserTree) -> tuple[str, ...] | None:
        world = self.sight.world
        links, place = world.links, world.place
        if links is None or place is None:
            found = await self._hooks()
            if found is None:
                return None
            missing = [one for one in check_switch_hooks(found) if one.status is not FindingStatus.OK]
            return tuple(f"{one.message}: {one.fix}" for one in missing)
        source, _ = self.sight.paths(tree.path)

        def look() -> tuple[str, ...]:
            found = links.read_link(tree.user)
            roots = replace(
                place, source_root=os.path.realpath(place.source_root), target_root=os.path.realpath(place.target_root)
            )
            problem = link_problem(found, roots, os.geteuid()) or leads_elsewhere(found, (os.path.realpath(source),))
            return () if problem is None else (f"{problem.message}: {problem.fix}",)

        try:
            return await self.sight.blocking(look)
        except MigratorError as error:
            return (error.message,)
        except OSError:
            return None

    async def _capacity(self) -> tuple[str, ...] | None:
        run = self.sight.request.run
        try:
            capacity = await self.sight.blocking(self.sight.run.target.capacity)
        except OSError:
            return None
        storage = await look_at_storage(self.sight.run.storage)
        room = capacity_problems(storage.room(capacity), 0, 0, run.inodes_free, run.reserve_bytes)
        return (*room, *storage_problems(storage, run))

    async def _limits(self, tree: UserTree, record: CutoverRecord) -> tuple[str, ...]:
        """Why the user could not write on the target: his limits there. Where they cannot be asked nothing is known of any."""
        sight = self.sight
        owned = max(
            (one for one in sight.plan.owners if one.tree == tree.path),
            key=lambda one: (one.size_bytes, one.files),
            default=None,
        )
        if owned is None:
            return ()
        owner = OwnerNeed(uid=owned.uid, users=(tree.user,))
        look = await look_at_quotas(sight.run.storage, sight.run.target.root, [owner.uid])
        words = room_to_work([owner], look.quotas)
        if isinstance(sight, Cutting):
            for warning in words.warnings:
                sight.say(EventKind.QUOTA_NEAR, Severity.WARNING, record, warning)
        return words.problems

    async def _mounts(self) -> tuple[str, ...]:
        world, site, timeout_s = self.sight.run, self.sight.site, self.sight.request.run.stall_timeout_s
        health = await world.source.health()
        return (
            *await mount_findings(world, world.source, site.source, timeout_s),
            *await mount_findings(world, world.target, site.target, timeout_s),
            *health_problems(health, health),
        )

    async def _freeze(self, record: CutoverRecord) -> tuple[str, ...] | None:
        found = await self._hooks()
        try:
            top = await self.sight.blocking(lambda: self.sight.world.freezer.read_top(record.tree.path))
        except OSError:
            return None
        unseen = await self.looker.unseen(record, back=False)
        if found is None or unseen is None:
            return None
        problems = (closed_already(top), missing_freeze_hook(self.sight.request.freeze, found.hooks), *unseen)
        return tuple(one for one in problems if one is not None)

    async def _lacking(self, tree: UserTree) -> int | str | None:
        # No time limit: a look at many files takes long, and nobody is frozen yet.
        return await asyncio.to_thread(TreeArchives(sight=self.sight, tree=tree.path).lacking)

    async def _hooks(self) -> HooksFound | None:
        hooks = self.sight.hooks
        if hooks is None:
            return HooksFound()
        try:
            return await find_hooks(hooks, self.sight.run.blocking)
        except MigratorError:
            return None


def _as_planned(sight: Sight, tree: UserTree, batch: int) -> CutoverRecord:
    """The attempt that would be made."""
    now_s = sight.now_s()
    return CutoverRecord(
        id=0,
        plan=sight.plan.name,
        batch=batch,
        tree=tree,
        attempt=0,
        state=CutoverState.PLANNED,
        times={CutoverState.PLANNED: now_s},
        predicted_freeze_s=None,
    )
