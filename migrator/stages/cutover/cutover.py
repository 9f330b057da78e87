"""The entry of the verbs `cutover` and `rollback`: one user after the other, each with a freeze as short as can be."""

import asyncio
from dataclasses import dataclass

from migrator.decide.cutover_words import state_words
from migrator.domain.cutover_run import CutoverRequest, CutoverSummary, TreeOutcome
from migrator.domain.errors import ExitCode, Interrupted, MigratorError
from migrator.domain.plan import Plan
from migrator.domain.site import TargetCapabilities
from migrator.ports.hooks import Hooks
from migrator.ports.locks import Locks
from migrator.ports.run_files import RunFiles
from migrator.ports.site import SiteRecord
from migrator.stages.cutover.beginning import Beginning
from migrator.stages.cutover.context import OWN_STEPS, CutoverWorld, Cutting, Sight
from migrator.stages.cutover.guarding import Guarding
from migrator.stages.cutover.machine import TreeMachine
from migrator.stages.cutover.seeing import Looker
from migrator.stages.recorded_run import heartbeat
from migrator.stages.run.context import LOG, Invocation, World
from migrator.stages.run.copying import Copying
from migrator.stages.run.guards import read_plan
from migrator.stages.run.hooking import Hooking
from migrator.stages.run.recovery import recover
from migrator.stages.run.run import VERB as RUN_LOCK


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverCall:
    """One call of `cutover`, or (`back`) of `rollback`: what is asked, and everything outside the program.

    Users are moved for good, or back to the source with what they changed on the target as long as that was not purged. What
    a call that was killed has left is gone on with, or given up, by the same call.
    """

    request: CutoverRequest
    run: World
    world: CutoverWorld
    locks: Locks
    files: RunFiles
    hooks: Hooks | None
    back: bool = False

    async def make(self) -> CutoverSummary:
        """One user after the other. One who cannot be moved is thawed where he was, and does not keep the others from it.

        Cancelling gives up the one who is frozen (after the switch he is brought on), and leaves the others; then
        Interrupted is raised. Raises UsageError, Refused, LockHeld, LedgerCorrupt too.
        """
        plan, site = read_plan(self.run, self.request.run)
        if self.request.dry_run:
            return await self._preview(plan, site)
        users = ", ".join(tree.user for trees in self.request.trees.values() for tree in trees)
        purpose = f"{self._verb} of {users}"
        run = self.run
        with self.locks.hold(RUN_LOCK, purpose), self.files.open(self._verb, run.clock.now_s()) as directory:
            # The latest run, of whatever verb, may have left streams and calls of hooks.
            earlier = run.ledger.runs.latest()
            run_id = run.ledger.runs.start(
                verb=self._verb, pid=self.request.run.pid, at_s=run.clock.now_s(), directory=directory.path
            )
            invocation = Invocation(world=run, request=self.request.run, run_id=run_id, directory=directory)
            exit_code, summary = ExitCode.FAILED, None
            try:
                async with heartbeat(
                    run.ledger.runs, run.clock, run_id, interval_s=self.request.run.heartbeat_interval_s
                ):
                    cutting = self._cutting(plan, site, invocation)
                    await cutting.hooking.begin(OWN_STEPS)
                    await recover(invocation, site, heard_at_s=earlier.heartbeat_at_s if earlier else 0.0)
                    summary = await self._all_trees(cutting)
                exit_code = summary.exit_code
            except asyncio.CancelledError:
                told = self._with_frozen(self._interrupted())
                exit_code = told.exit_code
                raise told from None
            except MigratorError as error:
                told = self._with_frozen(error)
                exit_code = told.exit_code
                LOG.error("%s", told.message, extra={"hint": told.hint})
                raise told from error
            finally:
                self._finish(run_id, exit_code, failing=summary is None)
        return summary

    @property
    def _verb(self) -> str:
        return "rollback" if self.back else "cutover"

    async def _all_trees(self, cutting: Cutting) -> CutoverSummary:
        looker = Looker(sight=cutting, capabilities=await self._capabilities(cutting))
        beginning = Beginning(guarding=Guarding(sight=cutting, looker=looker))
        outcomes: list[TreeOutcome] = []
        for batch, trees in self.request.trees.items():
            for tree in trees:
                machine = TreeMachine.of(cutting, looker, back=self.back)
                begin = beginning.roll_back if self.back else beginning.cut_over
                outcomes.append(await begin(machine, tree, batch))
                if machine.interrupted:
                    raise self._interrupted(outcomes[-1])
        return self._summary(cutting, outcomes)

    async def _preview(self, plan: Plan, site: SiteRecord) -> CutoverSummary:
        """The very decisions, and no change: neither of the file systems nor of the ledger, nor the lock."""
        sight = Sight(world=self.world, request=self.request, run=self.run, plan=plan, site=site, hooks=self.hooks)
        looker = Looker(sight=sight, capabilities=site.capabilities or TargetCapabilities())
        beginning = Beginning(guarding=Guarding(sight=sight, looker=looker))
        preview = beginning.preview_back if self.back else beginning.preview
        outcomes = [await preview(tree, batch) for batch, trees in self.request.trees.items() for tree in trees]
        return self._summary(sight, outcomes)

    def _summary(self, sight: Sight, outcomes: list[TreeOutcome]) -> CutoverSummary:
        return CutoverSummary(
            plan=sight.plan.name, back=self.back, dry_run=self.request.dry_run, outcomes=tuple(outcomes)
        )

    @staticmethod
    async def _capabilities(cutting: Cutting) -> TargetCapabilities:
        first = cutting.plan.batches[0]
        return await Copying(
            invocation=cutting.invocation, plan=cutting.plan, site=cutting.site, batch=first
        ).capabilities()

    def _cutting(self, plan: Plan, site: SiteRecord, invocation: Invocation) -> Cutting:
        run = self.run
        return Cutting(
            world=self.world,
            request=self.request,
            run=run,
            plan=plan,
            site=site,
            hooks=self.hooks,
            invocation=invocation,
            verb=self._verb,
            hooking=Hooking(invocation=invocation, hooks=self.hooks, plan=plan, site=site),
        )

    def _finish(self, run_id: int, exit_code: ExitCode, *, failing: bool) -> None:
        """Write down how the call ended. A ledger that cannot be written must not hide what was to be said of a failure."""
        run = self.run
        try:
            run.ledger.runs.finish(run_id, run.clock.now_s(), exit_code.value)
        except MigratorError as error:
            if not failing:
                raise self._with_frozen(error) from error

    def _with_frozen(self, error: MigratorError) -> MigratorError:
        """What stopped the call, with the users who may be frozen by it or by an earlier one: that is never left unsaid."""
        try:
            frozen = self.run.ledger.cutovers.under_way()
        except MigratorError:
            return error
        if not frozen:
            return error
        users = ", ".join(f"{one.tree.user} may be frozen ({state_words(one.state)})" for one in frozen)
        again = "give the same command again, or `migrator rollback`, for each of them"
        return MigratorError(
            f"{error.message}; {users}", cause=error.cause, hint=f"{error.hint}; {again}" if error.hint else again
        )

    def _interrupted(self, last: TreeOutcome | None = None) -> Interrupted:
        words = f"the {self._verb} was interrupted"
        return Interrupted(
            f"{words}: {last.words}" if last else f"{words}: nobody was frozen by it",
            hint="the same command goes on with those that are left",
        )
