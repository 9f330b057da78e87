"""`purge`: free the source of users who work on the target."""

import os
from collections.abc import Coroutine
from functools import partial
from typing import Any

import click

from migrator.app.cutover import purge_ports
from migrator.app.hosts import beside_probes
from migrator.cli.call import Choice, choices, name_plans, open_wiring, present, run_stage, trees_moved, verb
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode
from migrator.purge.call import PurgePorts
from migrator.purge.model import PurgeRequest, PurgeSummary
from migrator.purge.purge import purge
from migrator.purge.view import purge_document
from migrator.transfer.bases import active_plan


@click.command("purge")
@choices
@click.option("-n", "--dry-run", is_flag=True, help="Make the same decisions, change nothing, print the checksum.")
@click.option(
    "--confirm",
    metavar="CHECKSUM",
    help="Checksum printed by --dry-run, or its first 12 characters; required to remove anything.",
)
@click.option("-j", "--jobs", "--np", "jobs", type=click.IntRange(1, 256), default=4, help="Threads (default: 4).")
@verb
def purge_command(
    global_options: GlobalOptions,
    *,
    choice: Choice,
    dry_run: bool,
    confirm: str | None,
    jobs: int,
) -> ExitCode:
    """Free the source of users who have worked on the target for [cutover] retain; needs proof of every file.

    Removal is final: use --dry-run first. The same command resumes after a kill. --all also covers users whom earlier plans
    have moved.
    """
    wiring = open_wiring(global_options)
    site = wiring.site
    with wiring.ledger(read_only=dry_run) as ledger, wiring.source() as source:
        plan = wiring.plan(ledger, choice.plan_name or active_plan(ledger))
        trees = trees_moved(ledger, plan, choice)
        name_plans(ledger, trees)
        request = PurgeRequest(
            trees=tuple(tree for by_batch in trees.values() for some in by_batch.values() for tree in some),
            pid=os.getpid(),
            named=bool(choice.users),
            confirm=confirm,
            dry_run=dry_run,
            reread=site.cutover.reread != "never",
            vouched=site.cutover.freeze == "hook",
            wants_backup=site.cutover.wait_for_backup,
            require_archive=site.cutover.require_archive,
            retain_s=site.cutover.retain_s,
            max_shrink=site.transfer.max_shrink,
            names_per_s=site.cutover.purge_rate,
            max_latency_s=site.governor.max_latency_s,
            workers=jobs,
        )
        with wiring.target(ledger.site.read()) as target:

            def stage(world: PurgePorts) -> Coroutine[Any, Any, PurgeSummary]:
                # A dry run changes nothing, so it makes no probes either.
                work = purge(request, world)
                return work if dry_run else beside_probes(wiring, ledger, work)

            summary = run_stage(wiring, partial(purge_ports, wiring, source, target, ledger), stage)
    return present(global_options, summary, purge_document)
