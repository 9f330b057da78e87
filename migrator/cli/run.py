"""`run`: batches are copied."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from migrator import bootstrap
from migrator.adapters.output.progress import open_progress
from migrator.bootstrap.deltas import deltas_of
from migrator.bootstrap.governing import governing_of
from migrator.bootstrap.hosts import reached
from migrator.bootstrap.probing import probe_world
from migrator.bootstrap.streams import brick_guard, driving, lanes_of
from migrator.cli.context import open_site, run_to_end, verb
from migrator.cli.invocation import Invocation
from migrator.cli.options import SIZE_NOT_ZERO, batches, chosen_batches, chosen_trees, users
from migrator.cli.present import present
from migrator.domain.errors import ExitCode
from migrator.domain.run import RetryPolicy, RunRequest, RunStopped, RunSummary
from migrator.ports.progress import Progress
from migrator.stages.run import choose_plan, run_batches

if TYPE_CHECKING:
    from migrator.adapters.output.document import Document


@click.command("run")
@batches
@users
@click.option("--recopy", is_flag=True, help="Send every file again, even if size and times match.")
@click.option("-n", "--dry-run", is_flag=True, help="Make the same decisions, change nothing.")
@click.option(
    "-j", "--jobs", "--np", "jobs", type=click.IntRange(1, 256), help="Streams per host (default: site.toml)."
)
@click.option(
    "--bwlimit", type=SIZE_NOT_ZERO, metavar="SIZE", help="Bytes per second for all streams together, e.g. 200MiB."
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "rsync", "direct", "fpsync", "parsyncfp2"]),
    help="Engine (default: site.toml).",
)
@click.option(
    "--deltas",
    type=click.IntRange(0, 1000),
    metavar="N",
    help="Maximum number of delta passes; 0: seed pass only (default: [transfer] max_delta_passes).",
)
@verb
def run_command(
    invocation: Invocation,
    *,
    numbers: Sequence[int],
    every: bool,
    plan_name: str | None,
    users: Sequence[str],
    dry_run: bool,
    recopy: bool,
    jobs: int | None,
    bwlimit: int | None,
    engine: str | None,
    deltas: int | None,
) -> ExitCode:
    """Copy batches with parallel streams: a seed pass, then delta passes. The same command resumes.

    With --user: a delta pass over these users' trees, after the seed pass of their batch.
    """
    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    transfer = site.transfer
    with wiring.ledger(read_only=dry_run) as ledger, wiring.source() as source:
        known = ledger.site.read()
        documents = wiring.plans(known.site_id if known else None)
        plan, _ = documents.read(choose_plan(ledger, plan_name))
        by_batch = chosen_trees(plan, users) if users else None
        request = RunRequest(
            plan=plan.name,
            batches=chosen_batches(plan, numbers, every=every) if by_batch is None else tuple(by_batch),
            trees=None if by_batch is None else frozenset(tree.path for some in by_batch.values() for tree in some),
            jobs=jobs or transfer.jobs,
            pid=os.getpid(),
            dry_run=dry_run,
            recopy=recopy,
            engine=engine or transfer.engine,
            only_bricks=site.source.via == "bricks",
            lease_s=transfer.lease_s,
            bwlimit_bytes_per_s=bwlimit or transfer.bwlimit_bytes_per_s,
            retry=RetryPolicy(),
            stall_timeout_s=transfer.stall_timeout_s,
            sample_interval_s=transfer.sample_interval_s,
            reserve_bytes=transfer.reserve_bytes,
            inodes_free=site.target.inodes_free,
            stripe=site.target.stripe,
        )
        with wiring.target(known.capabilities if known else None) as target, wiring.target_moves() as moves:

            async def work(shown: Progress) -> RunSummary:
                async with (
                    reached(site) as hosts,
                    lanes_of(
                        site, source, known, jobs=jobs, engine=request.engine, ahead=not dry_run, hosts=hosts
                    ) as lanes,
                ):
                    return await run_batches(
                        request,
                        source=source,
                        target=target,
                        lanes=lanes,
                        bricks=brick_guard(source),
                        driving=driving(site, request.engine),
                        chunk_lists=wiring.chunk_lists(),
                        documents=documents,
                        ledger=ledger,
                        locks=wiring.locks(),
                        progress=shown,
                        clock=wiring.clock,
                        tokens=bootstrap.new_token,
                        files=wiring.run_files(),
                        activity=wiring.activity(),
                        blocking=wiring.blocking(),
                        hooks=wiring.hooks(),
                        storage=wiring.storage_targets(),
                        probes=probe_world(wiring, ledger),
                        governing=governing_of(wiring, ledger, hosts),
                        deltas=deltas_of(
                            wiring,
                            source,
                            moves=moves,
                            ledger=ledger,
                            progress=shown,
                            hosts=hosts,
                            engine=request.engine,
                            at_most=_at_most(deltas, transfer.max_delta_passes, users),
                        ),
                    )

            try:
                # What is printed while the live view stands is drawn over by it.
                with open_progress(sys.stderr, wiring.clock) as shown:
                    summary = run_to_end(work(shown), when_interrupted="the same command goes on where it was")
            except RunStopped as stopped:
                if not invocation.as_json:
                    present(invocation, stopped.summary, _as_document)
                raise
    present(invocation, summary, _as_document)
    return summary.exit_code


def _at_most(deltas: int | None, configured: int, users: Sequence[str]) -> int:
    """How many delta passes: of single users nobody predicts when they are worth while, so one unless more are asked for."""
    if deltas is not None:
        return deltas
    return min(configured, 1) if users else configured


def _as_document(summary: RunSummary) -> "Document":
    from migrator.adapters.output.record_document import run_document  # noqa: PLC0415

    return run_document(summary)
