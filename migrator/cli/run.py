"""`run`, `tune`, `pause`, `resume`."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from migrator import app
from migrator.app.hosts import connecting, probe_world, window_standings
from migrator.app.transfer import deltas_of, run_request, run_world
from migrator.cli import call
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode, UsageError
from migrator.core.progress import Progress
from migrator.fs.ports import SourceFileSystem
from migrator.hosts.site import SiteHosts
from migrator.report.view_records import run_document
from migrator.site.model import DRIVERS, needs_rsync
from migrator.transfer.bases import choose_plan
from migrator.transfer.model_governor import GoverningFacts, Limits
from migrator.transfer.model_runs import RunRequest, RunStopped, RunSummary
from migrator.transfer.run import run_batches
from migrator.transfer.tuning import Tuning
from migrator.transfer.view import governing_document

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger

# --- `run`


@click.command("run")
@call.choices
@click.option("--recopy", is_flag=True, help="Seed pass: send every file, even if size and times are equal.")
@click.option("-n", "--dry-run", is_flag=True, help="Make the same decisions, change nothing.")
@click.option(
    "-j", "--jobs", "--np", "jobs", type=click.IntRange(1, 256), help="Streams per host (default: site.toml)."
)
@click.option(
    "--bwlimit", type=call.SIZE_NOT_ZERO, metavar="SIZE", help="Bytes per second for all streams together, e.g. 200MiB."
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
@call.verb
def run_command(
    global_options: GlobalOptions,
    *,
    choice: call.Choice,
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
    site = call.open_site(global_options)
    wiring = app.Wiring(site)
    transfer = site.transfer
    named = engine or transfer.engine
    if transfer.rewrite_links and needs_rsync(named):
        raise UsageError(
            f"engine {named} does not rewrite symlinks, as [transfer] rewrite_links demands",
            hint="run without --engine",
        )

    def requested(ledger: "MigrationLedger") -> RunRequest:
        plan = call.open_plan(wiring, ledger, choose_plan(ledger, choice.plan_name))
        by_batch = choice.trees(plan)
        batches = tuple(by_batch) if choice.users else choice.batches(plan)
        return replace(
            run_request(site, plan.name, batches, engine=named, dry_run=dry_run, jobs=jobs),
            trees=frozenset(tree.path for some in by_batch.values() for tree in some) if choice.users else None,
            recopy=recopy,
            layout=site.target.layout_rules,
        )

    async def work(shown: Progress) -> RunSummary:
        with wiring.source() as source:
            async with connecting(site, source, ahead=not dry_run and named not in DRIVERS) as hosts:
                # The ledger is loaded while the hosts are being connected.
                with await asyncio.to_thread(wiring.ledger, read_only=dry_run) as ledger:
                    return await run(shown, source, hosts, ledger)

    async def run(shown: Progress, source: SourceFileSystem, hosts: SiteHosts, ledger: "MigrationLedger") -> RunSummary:
        request, at_most = requested(ledger), _at_most(deltas, transfer.max_delta_passes, choice.users)
        with wiring.target(ledger.site.read()) as target, wiring.target_moves() as moves:
            ports = run_world(
                wiring,
                source,
                target,
                hosts=hosts,
                ledger=ledger,
                progress=shown,
                engine=named,
                jobs=jobs,
                bwlimit_bytes_per_s=bwlimit,
            )
            async with ports as world:
                return await run_batches(
                    request,
                    world,
                    files=wiring.run_files(),
                    hooks=wiring.hooks(),
                    probes=probe_world(wiring, ledger),
                    deltas=deltas_of(wiring, world, hosts=hosts, moves=moves, at_most=at_most) if at_most else None,
                )

    try:
        summary = call.run_shown(wiring, work)
    except RunStopped as stopped:
        if not global_options.as_json:
            call.present(global_options, stopped.summary, run_document)
        raise
    return call.present(global_options, summary, run_document)


def _at_most(deltas: int | None, configured: int, users: Sequence[str]) -> int:
    """How many delta passes. The default for single users is one, because there is no prediction for them."""
    if deltas is not None:
        return deltas
    return min(configured, 1) if users else configured


# --- `tune`, `pause`, `resume`


_LEAST_LATENCY_S = 0.001


@click.command("tune")
@click.option("-j", "--jobs", "--np", "jobs", type=click.IntRange(1, 1024), help="Maximum streams per host.")
@click.option(
    "--bwlimit", type=call.SIZE_NOT_ZERO, metavar="SIZE", help="Bytes per second for all streams together, e.g. 200MiB."
)
@click.option(
    "--max-latency",
    type=call.duration(_LEAST_LATENCY_S),
    metavar="TIME",
    help="Latency of small operations above which streams are reduced, e.g. 50ms.",
)
@click.option("--max-load", type=call.Figure(min=0.0), help="Load of a host above which its streams are reduced.")
@click.option("--reset", is_flag=True, help="Drop earlier settings of `tune`.")
@call.verb
def tune_command(
    global_options: GlobalOptions,
    *,
    jobs: int | None,
    bwlimit: int | None,
    max_latency: float | None,
    max_load: float | None,
    reset: bool,
) -> ExitCode:
    """Change limits of a running migration; they apply to chunks that start from now on.

    They override site.toml and the command line for all runs until `--reset`. Without options it shows the limits.
    """
    limits = Limits(jobs=jobs, bwlimit_bytes_per_s=bwlimit, max_latency_s=max_latency, max_load=max_load)
    only_shown = limits.nothing and not reset
    return _tune(
        global_options,
        lambda tuning: tuning.facts() if only_shown else tuning.tune(limits, reset=reset),
        read_only=only_shown,
    )


@click.command("pause")
@click.option("--reason", default="", metavar="TEXT", help="Reason, shown by status.")
@call.verb
def pause_command(global_options: GlobalOptions, *, reason: str) -> ExitCode:
    """Start no more chunks, passes and cutovers until `resume`; running ones finish."""
    return _tune(global_options, lambda tuning: tuning.pause(reason))


@click.command("resume")
@call.verb
def resume_command(global_options: GlobalOptions) -> ExitCode:
    """Continue after `pause`."""
    return _tune(global_options, lambda tuning: tuning.resume())


def _tune(
    global_options: GlobalOptions, act: Callable[[Tuning], GoverningFacts], *, read_only: bool = False
) -> ExitCode:
    site = call.open_site(global_options)
    wiring = app.Wiring(site)
    with wiring.ledger(read_only=read_only) as ledger:
        tuning = Tuning(
            ledger=ledger,
            clock=wiring.clock,
            by=call.who(),
            given=Limits(
                jobs=site.transfer.jobs,
                bwlimit_bytes_per_s=site.transfer.bwlimit_bytes_per_s,
                max_latency_s=site.governor.max_latency_s,
                max_load=site.governor.max_load,
            ),
            windows=partial(window_standings, site),
            holders=wiring.locks().holders,
        )
        shown = act(tuning)
    return call.present(global_options, shown, governing_document)
