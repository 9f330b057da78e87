"""`cutover` and `rollback`: move users to the target, or back to the source."""

from functools import partial

import click

from migrator import app
from migrator.app.cutover import cutover_call
from migrator.app.transfer import pass_engine, run_request
from migrator.cli.call import (
    Choice,
    choices,
    name_plans,
    open_site,
    present,
    run_stage,
    trees_moved,
    trees_of_users,
    verb,
)
from migrator.cli.global_options import GlobalOptions
from migrator.cli.verify import SAMPLE_SEED
from migrator.core.errors import ExitCode
from migrator.cutover.cutover import move_users
from migrator.cutover.model_calls import CutoverRequest, CutoverSummary
from migrator.cutover.view import moving_document
from migrator.fs.model import DigestPolicy
from migrator.transfer.bases import active_plan


@click.command("cutover")
@choices
@click.option("-n", "--dry-run", is_flag=True, help="Run the preflight checks, show predicted freezes, change nothing.")
@click.option(
    "--accept-freeze",
    is_flag=True,
    help="Accept a freeze longer than [cutover] max_freeze, or without a prediction.",
)
@verb
def cutover_command(
    global_options: GlobalOptions,
    *,
    choice: Choice,
    dry_run: bool,
    accept_freeze: bool,
) -> ExitCode:
    """Move users one after the other: freeze, final pass, verify, switch, thaw.

    A failure before the switch thaws the user on the source. The same command resumes after a kill.
    """
    return _move(global_options, choice, dry_run=dry_run, accept_freeze=accept_freeze)


@click.command("rollback")
@choices
@click.option("-n", "--dry-run", is_flag=True, help="Show the first step; change nothing.")
@click.option(
    "--overwrite-source",
    is_flag=True,
    help="Roll back although the source was changed since the cutover; those changes go to its trash.",
)
@verb
def rollback_command(
    global_options: GlobalOptions,
    *,
    choice: Choice,
    dry_run: bool,
    overwrite_source: bool,
) -> ExitCode:
    """Move users back to the source with their later changes, until the source is purged.

    Before the switch it aborts the cutover. --all also covers users whom earlier plans have moved.
    """
    return _move(global_options, choice, dry_run=dry_run, overwrite_source=overwrite_source, back=True)


def _move(
    global_options: GlobalOptions,
    choice: Choice,
    *,
    dry_run: bool,
    back: bool = False,
    accept_freeze: bool = False,
    overwrite_source: bool = False,
) -> ExitCode:
    site = open_site(global_options)
    wiring = app.Wiring(site)
    policy = DigestPolicy(algorithm=site.verify.digest, share=site.verify.sample, seed=SAMPLE_SEED)
    with wiring.ledger(read_only=dry_run) as ledger:
        plan = wiring.plan(ledger, choice.plan_name or active_plan(ledger))
        if back:
            chosen = trees_moved(ledger, plan, choice)
        elif choice.users and choice.plan_name is None:
            chosen = trees_of_users(ledger, plan, choice.users)
        else:
            chosen = {plan.name: choice.trees(plan)}
        name_plans(ledger, chosen)
        summaries: list[CutoverSummary] = []
        for name, trees in chosen.items():
            request = CutoverRequest(
                trees=trees,
                run=run_request(site, name, tuple(trees), engine=pass_engine(site), dry_run=dry_run),
                vouched=site.cutover.freeze == "hook",
                switch_by_hook=site.cutover.switch == "hook",
                times=site.cutover.times,
                max_freeze_s=site.cutover.max_freeze_s,
                settle_s=site.cutover.settle_s,
                accept_freeze=accept_freeze,
                wants_backup=site.cutover.wait_for_backup,
                require_rollback=site.cutover.require_rollback,
                require_acl_inheritance=site.cutover.require_acl_inheritance,
                overwrite_source=overwrite_source,
                back=back,
            )
            opened = partial(cutover_call, wiring, ledger, request=request, policy=policy)
            summaries.append(run_stage(wiring, opened, move_users))
    whole = CutoverSummary(
        plan=", ".join(one.plan for one in summaries),
        back=back,
        dry_run=dry_run,
        outcomes=tuple(outcome for one in summaries for outcome in one.outcomes),
    )
    return present(global_options, whole, moving_document)
