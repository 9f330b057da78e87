"""`cutover` and `rollback`: move users to the target, or back to the source."""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

import click

from migrator import app
from migrator.app.cutover import cutover_world
from migrator.app.transfer import pass_engine, run_request
from migrator.cli.call import Choice, choices, chosen_trees, name_plans, open_site, present, run_stage, verb
from migrator.cli.invocation import Invocation
from migrator.cli.verify import SAMPLE_SEED
from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode
from migrator.cutover.model import CutoverRequest, CutoverSummary
from migrator.cutover.stage import ByBatch, CutoverCall, attempts_of_users
from migrator.cutover.steps import CutoverWorld
from migrator.plan.model import Plan
from migrator.transfer.bases import active_plan
from migrator.verify.model import DigestPolicy

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger


@click.command("cutover")
@choices
@click.option("-n", "--dry-run", is_flag=True, help="Run the preflight checks, show predicted freezes, change nothing.")
@click.option(
    "--accept-freeze",
    is_flag=True,
    help="Accept a predicted freeze above [cutover] max_freeze, or an unknown one.",
)
@verb
def cutover_command(
    invocation: Invocation,
    *,
    choice: Choice,
    dry_run: bool,
    accept_freeze: bool,
) -> ExitCode:
    """Move users one after the other: freeze, final pass, verify, switch, thaw.

    A failure before the switch thaws the user on the source. The same command resumes after a kill.
    """
    return _move(invocation, choice, dry_run=dry_run, accept_freeze=accept_freeze)


@click.command("rollback")
@choices
@click.option("-n", "--dry-run", is_flag=True, help="Show the first step; change nothing.")
@click.option(
    "--overwrite-source",
    is_flag=True,
    help="Roll back although the kept source was changed; those changes go to its trash.",
)
@verb
def rollback_command(
    invocation: Invocation,
    *,
    choice: Choice,
    dry_run: bool,
    overwrite_source: bool,
) -> ExitCode:
    """Move users back to the source with their later changes, until the source is purged.

    Before the switch it aborts the cutover.
    """
    return _move(invocation, choice, dry_run=dry_run, overwrite_source=overwrite_source, back=True)


def _move(
    invocation: Invocation,
    choice: Choice,
    *,
    dry_run: bool,
    back: bool = False,
    accept_freeze: bool = False,
    overwrite_source: bool = False,
) -> ExitCode:
    site = open_site(invocation)
    wiring = app.Wiring(site)
    policy = DigestPolicy(algorithm=site.verify.digest, share=site.verify.sample, seed=SAMPLE_SEED)
    with wiring.ledger(read_only=dry_run) as ledger:
        plan = wiring.plan(ledger, choice.plan_name or active_plan(ledger))
        chosen = _chosen(ledger, plan, choice, back=back)
        name_plans(ledger, chosen)
        summaries: list[CutoverSummary] = []
        opened = partial(cutover_world, wiring, ledger, policy=policy, ahead=not dry_run)
        for name, trees in chosen.items():
            request = CutoverRequest(
                trees=trees,
                run=run_request(site, name, tuple(trees), engine=pass_engine(site), dry_run=dry_run),
                vouched=site.cutover.freeze == "hook",
                max_freeze_s=site.cutover.max_freeze_s,
                settle_s=site.cutover.settle_s,
                accept_freeze=accept_freeze,
                wants_backup=site.cutover.wait_for_backup,
                require_rollback=site.cutover.require_rollback,
                overwrite_source=overwrite_source,
                back=back,
            )

            async def make(world: CutoverWorld, request: CutoverRequest = request) -> CutoverSummary:
                return await CutoverCall(request=request, world=world).make()

            summaries.append(run_stage(wiring, opened, make))
    whole = CutoverSummary(
        plan=", ".join(one.plan for one in summaries),
        back=back,
        dry_run=dry_run,
        outcomes=tuple(outcome for one in summaries for outcome in one.outcomes),
    )
    return present(invocation, whole, "cutover.view:moving_document")


def _chosen(ledger: "Ledger", plan: Plan, choice: Choice, *, back: bool) -> Mapping[str, ByBatch]:
    """The chosen trees by plan. A cutover that has begun keeps its own plan unless one is named; other trees of the same users
    are added unless they go `back`. Raises UsageError.
    """
    names = choice.users
    if not names:
        return {plan.name: choice.trees(plan)}
    begun = {} if choice.plan_name is not None else attempts_of_users(ledger, names)
    met = {tree.path: tree.user for trees in begun.values() for some in trees.values() for tree in some}
    users_met = set(met.values())
    others = [name for name in names if name not in users_met]
    if not back:
        planned = {tree.user for batch in plan.batches for tree in batch.trees}
        others += [name for name in names if name in users_met & planned]
    found: dict[str, dict[int, tuple[UserTree, ...]]] = {one: dict(trees) for one, trees in begun.items()}
    for batch, trees in (chosen_trees(plan, others) if others else {}).items():
        if left := tuple(tree for tree in trees if tree.path not in met):
            by_batch = found.setdefault(plan.name, {})
            by_batch[batch] = (*by_batch.get(batch, ()), *left)
    return found
