"""The facts for the checks before a freeze."""

import asyncio
import os
from collections.abc import Sequence

from msgspec import Struct

from migrator.beegfs.rules import OwnerNeed, room_to_work
from migrator.beegfs.tool import read_quotas, read_storage
from migrator.core.entry import UserTree
from migrator.core.errors import MigratorError
from migrator.core.events import EventKind, FindingStatus, Severity
from migrator.core.paths import is_beneath, show
from migrator.core.states import PassKind
from migrator.core.tasks import result_or_none
from migrator.cutover import (
    rules_preflight,
    rules_writers,
)
from migrator.cutover.call import ActiveSession, CutoverSession
from migrator.cutover.steps import SEARCHES
from migrator.cutover.tree_archives import lacking_archives
from migrator.hooks.calls import find_hooks
from migrator.plan.rules_forecast import choose_cost
from migrator.site.rules_guards import capacity_problems, health_problems
from migrator.site.rules_links import check_switch_hooks, leads_elsewhere
from migrator.transfer.bases import covers
from migrator.transfer.convergence import check_of_trees, facts_of_passes
from migrator.transfer.guards import mounts_changed, storage_problems
from migrator.transfer.model import FileProblemKind, PassRecord
from migrator.transfer.rules_convergence import load_factor, predict, predict_after_pass
from migrator.transfer.run import moves_of


class Preflight(Struct, frozen=True, kw_only=True):
    """The preflight checks of a call. They change nothing."""

    session: CutoverSession

    async def problems(self, tree: UserTree, batch: int, *, predicted_freeze_s: float | None) -> tuple[str, ...]:
        """Every failed check, as a sentence."""
        session, ledger = self.session, self.session.ledger
        plan = ledger.plans.read(session.plan.name)
        state = plan.batches.get(batch) if plan else None
        newest = self._newest_pass(tree, batch)
        failed_chunks, bad_files = (0, 0) if newest is None else self._failed(tree, newest)
        chosen = {one.path for trees in session.call.request.trees.values() for one in trees}
        closed = rules_preflight.window_problem(session.call.request.times, session.now_s())
        paused = () if ledger.controls.now().hold is None else ("the migration is paused: `migrator resume` ends that",)
        capacity = await self._capacity()
        problems = rules_preflight.cutover_problems(
            tree,
            session.call.request,
            batch=batch,
            state=state,
            before=ledger.cutovers.latest(tree.path),
            beside=[
                one
                for one in ledger.cutovers.under_way()
                if (one.plan, one.batch) == (session.plan.name, batch) and one.tree.path not in chosen
            ],
            failed_chunks=failed_chunks,
            bad_files=bad_files,
            predicted_freeze_s=predicted_freeze_s,
            lacks_backup=session.lacks_backup(tree.path, batch),
            checked={
                f"the tree {show(tree.path)} on the target": await self._top(
                    tree, copied=state in (None, *rules_preflight.READY)
                ),
                f"the path of {tree.user}": await self._link(tree),
                "the room on the target": capacity,
                "the mounts": await self._mounts(),
                "the freeze": await self._freeze(tree),
                f"the default ACLs of {tree.user}": await session.acl_problems(
                    tree, session.plan.catalog if newest is None else newest.catalog
                ),
                # No time limit: looking up many files takes long, and no user is frozen yet.
                f"the archives of {tree.user}": await asyncio.to_thread(lacking_archives, session, tree),
            },
        )
        # While servers are down, reading quotas would block.
        limits = await self._limits(tree) if capacity == () else ()
        return (*paused, *((closed,) if closed else ()), *problems, *limits)

    def predicted_freeze_s(self, tree: UserTree, batch: int, *, after_pass: bool) -> float | None:
        """The predicted freeze of the user now, or after a pass that begins now; None if no delta pass has covered their
        tree. Blocking.
        """
        session, ledger = self.session, self.session.ledger
        found = (predict_after_pass if after_pass else predict)(
            facts_of_passes(ledger, session.plan.name, batch, lambda one: moves_of(session.call.migration.deltas, one)),
            tree=tree.path,
            at_s=session.now_s(),
            cost=choose_cost(ledger.samples.measured_cost(), session.ports.streams),
            check=check_of_trees(ledger, session.plan, batch, [tree.path], session.call.policy),
        )
        return None if found is None else found.freeze_s

    async def predicted_under_load(self, tree: UserTree, batch: int) -> tuple[float | None, float]:
        """The predicted freeze of the user with everything around the final pass, and how many times as long work takes
        now as during the passes; the prediction includes that.
        """
        session = self.session
        *before_s, now_s = await asyncio.to_thread(self._scans_s, tree, batch)
        load = load_factor(before_s, now_s)
        predicted_s = await asyncio.to_thread(self.predicted_freeze_s, tree, batch, after_pass=False)
        if predicted_s is None:
            return None, load
        # A freeze also waits for client caches, and searches for writers.
        began_s = session.ports.clock.monotonic_s()
        await result_or_none(session.call.source_writers((tree.path,)))
        search_s = session.ports.clock.monotonic_s() - began_s
        identity = await result_or_none(session.blocking(session.ports.source.identity))
        asked_s = session.call.request.settle_s
        settle_s = 0.0 if identity is None else rules_writers.settle_s(identity.filesystem, asked_s)
        return load * predicted_s + settle_s + SEARCHES * search_s, load

    def _scans_s(self, tree: UserTree, batch: int) -> Sequence[float]:
        """How long the scans of the passes over the tree took, except that of the plan. Blocking."""
        ledger = self.session.ledger
        scans = {scan.name: scan for scan in ledger.scans.all()}
        passes = ledger.passes.of_batch(self.session.plan.name, batch)
        covering = (one for one in passes if one.kind is not PassKind.SEED and covers(ledger.passes, one, (tree.path,)))
        found = [scans[one.catalog] for one in covering if one.catalog in scans]
        return [max((one.finished_at_s or one.started_at_s) - one.started_at_s, 0.0) for one in found]

    def _failed(self, tree: UserTree, newest: PassRecord) -> tuple[int, int]:
        """The numbers of chunks and files of the tree that failed in the newest pass over it. Files that changed or
        moved during that pass do not count: the final pass sends them.
        """
        passes = self.session.ledger.passes
        bad = [one for one in passes.attention(newest.id) if one.kind is FileProblemKind.BAD]
        return (
            sum(chunk.tree == tree.path for chunk in passes.failed(newest.id)),
            sum(is_beneath(one.path, tree.path) for one in bad),
        )

    def _newest_pass(self, tree: UserTree, batch: int) -> PassRecord | None:
        """The newest seed or delta pass over the tree."""
        passes = self.session.ledger.passes
        found = (
            one
            for one in reversed(passes.of_batch(self.session.plan.name, batch))
            if one.kind is not PassKind.FINAL and covers(passes, one, (tree.path,))
        )
        return next(found, None)

    async def _top(self, tree: UserTree, *, copied: bool) -> tuple[str, ...] | None:
        try:
            top = await self.session.entry(self.session.ports.target, tree.path)
        except OSError:
            return None
        # A batch that is not copied yet already reports that the tree is missing.
        return (
            rules_preflight.not_closed(tree, top, uid=os.geteuid(), gid=os.getegid())
            if copied or top is not None
            else ()
        )

    async def _link(self, tree: UserTree) -> tuple[str, ...] | None:
        links = self.session.call.links
        if links is None:
            found = await result_or_none(find_hooks(self.session.call.hooks, self.session.ports.blocking))
            if found is None:
                return None
            by_hook = self.session.call.request.switch_by_hook
            missing = [one for one in check_switch_hooks(found, by_hook=by_hook) if one.status is not FindingStatus.OK]
            return tuple(f"{one.message}: {one.fix}" for one in missing)
        source, _ = self.session.paths(tree.path)

        def read() -> tuple[str, ...]:
            found = links.read_link(tree)
            problem = links.problem(found) or leads_elsewhere(found, (os.path.realpath(source),))
            return () if problem is None else (f"{problem.message}: {problem.fix}",)

        try:
            return await self.session.blocking(read)
        except MigratorError as error:
            return (error.message,)
        except OSError:
            return None

    async def _capacity(self) -> tuple[str, ...] | None:
        run = self.session.call.request.run
        capacity = await result_or_none(self.session.blocking(self.session.ports.target.capacity))
        if capacity is None:
            return None
        storage = await read_storage(self.session.ports.storage, patient=True)
        room = capacity_problems(storage.room(capacity), 0, 0, run.inodes_free, run.reserve_bytes)
        return (*room, *storage_problems(storage, run))

    async def _limits(self, tree: UserTree) -> tuple[str, ...]:
        """Quotas on the target that would stop the user from writing; empty if they cannot be read."""
        session = self.session
        owned = max(
            (one for one in session.plan.owners if one.tree == tree.path),
            key=lambda one: (one.size_bytes, one.files),
            default=None,
        )
        if owned is None:
            return ()
        owner = OwnerNeed(uid=owned.uid, users=(tree.user,))
        quotas = await read_quotas(session.ports.storage, session.ports.target.root, [owner.uid])
        room = room_to_work([owner], quotas.quotas)
        if isinstance(session, ActiveSession):
            for warning in room.warnings:
                session.emit(EventKind.QUOTA_NEAR, Severity.WARNING, tree.user, warning)
        return room.problems

    async def _mounts(self) -> tuple[str, ...]:
        world, site, timeout_s = self.session.ports, self.session.site, self.session.call.request.run.stall_timeout_s
        health = await world.source.health()
        return (
            *await mounts_changed(world, site, timeout_s),
            *health_problems(health, health),
        )

    async def _freeze(self, tree: UserTree) -> tuple[str, ...] | None:
        found = await result_or_none(find_hooks(self.session.call.hooks, self.session.ports.blocking))
        top = await result_or_none(self.session.blocking(lambda: self.session.call.freezer.read_top(tree.path)))
        unseen = await self.session.search_gaps(self.session.call.source_writers, (tree.path,))
        if found is None or top is None or unseen is None:
            return None
        if self.session.call.unseen_writers is not None and not self.session.call.request.vouched:
            unseen += tuple(
                f"the search for writers is incomplete: {one}" for one in await self.session.call.unseen_writers()
            )
        before = self.session.ledger.cutovers.latest(tree.path)
        problems = (
            None if before is not None and before.under_way else rules_preflight.closed_already(top),
            rules_preflight.missing_freeze_hook(found.hooks) if self.session.call.request.vouched else None,
            *unseen,
        )
        return tuple(one for one in problems if one is not None)
