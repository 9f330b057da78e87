"""The main job: `scan`, `plan`, `run`, `verify`."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

import click

from migrator import bootstrap
from migrator.adapters.output.plan_document import plan_document
from migrator.adapters.output.progress import open_progress
from migrator.adapters.output.record_document import catalog_document, run_document, verification_document
from migrator.cli.context import Invocation, open_site, run_to_end, verb
from migrator.cli.options import SHARE, SIZE_NOT_ZERO, batches
from migrator.cli.present import present, present_all
from migrator.config.site import Site
from migrator.decide.trees import parse_user_map
from migrator.domain.errors import ExitCode, UsageError
from migrator.domain.plan import Order, Plan
from migrator.domain.run import RetryPolicy, RunRequest, RunStopped, RunSummary
from migrator.domain.verification import DigestPolicy, VerificationRecord
from migrator.ports.progress import Progress
from migrator.stages.plan import PlanRequest, make_plan
from migrator.stages.run import choose_plan, latest_plan, run_batches
from migrator.stages.scan import ScanRequest, scan
from migrator.stages.verify import VerifyRequest, exit_code, verify

_SAMPLE_SEED = 1
"""Which files a sample of digests takes depends on their paths and this; the manifest says it."""


def _chosen(plan: Plan, numbers: Sequence[int], *, every: bool) -> tuple[int, ...]:
    existing = tuple(batch.number for batch in plan.batches)
    if every:
        return existing
    if not numbers:
        raise UsageError("which batches?", hint="give --user-batch N (it may be repeated), or --all")
    unknown = [number for number in numbers if number not in existing]
    if unknown:
        raise UsageError(
            f"plan {plan.name} has no batch {', '.join(map(str, unknown))}",
            hint=f"it has batches {existing[0]} to {existing[-1]}: see `migrator status`"
            if existing
            else "it has no batches at all",
        )
    return tuple(numbers)


@click.command("scan")
@click.option("--via", type=click.Choice(["auto", "mount"]), help="Which way to read the source (default: site.toml).")
@click.option(
    "-j", "--jobs", "--np", "jobs", type=click.IntRange(1, 256), default=8, show_default=True, help="Workers."
)
@click.option("--restart", is_flag=True, help="Begin anew where an unfinished scan would be gone on with.")
@verb
def scan_command(invocation: Invocation, via: str | None, jobs: int, restart: bool) -> ExitCode:
    """Walk the source into a new catalog; a killed scan goes on where it was."""
    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    request = ScanRequest(
        trees=site.users.trees,
        exclude=site.users.exclude,
        users=_users(site),
        via=via or site.source.via,
        workers=jobs,
        restart=restart,
    )
    with (
        wiring.ledger() as ledger,
        wiring.locks().hold("scan", "scan"),
        wiring.source() as source,
        open_progress(sys.stderr, wiring.clock) as shown,
    ):
        record = run_to_end(
            scan(
                request,
                source=source,
                ledger=ledger,
                catalogs=wiring.catalogs(),
                progress=shown,
                clock=wiring.clock,
            ),
            when_interrupted="run `migrator scan` again: it goes on where it was",
        )
    present(invocation, record, catalog_document(record))
    return ExitCode.DONE if record.whole else ExitCode.ATTENTION


def _users(site: Site) -> dict[bytes, str]:
    """The owner map, where there is one."""
    if site.users.map is None:
        return {}
    try:
        return parse_user_map(site.users.map.read_bytes())
    except OSError as error:
        raise UsageError(
            f"the owner map {site.users.map} cannot be read: {error.strerror}",
            hint="put [users] map right in site.toml, or leave it out",
        ) from error


@click.command("plan")
@click.option(
    "--order",
    type=click.Choice([order.value for order in Order]),
    default=Order.HEAVIEST.value,
    show_default=True,
    help="Which users go first.",
)
@click.option("--name", metavar="NAME", help="The plan's name (default: the next free plan-NNNN).")
@click.option("--catalog", metavar="NAME", help="The catalog to plan from (default: the latest finished one).")
@click.option("-f", "--chunk-files", type=click.IntRange(1), help="Files in a chunk at most (default: site.toml).")
@click.option(
    "-s", "--chunk-size", type=SIZE_NOT_ZERO, help="Bytes in a chunk at most, as in 4GiB (default: site.toml)."
)
@click.option(
    "--accept-unknown-inodes", is_flag=True, help="Plan although the target does not tell how many files it can take."
)
@verb
def plan_command(
    invocation: Invocation,
    *,
    order: str,
    name: str | None,
    catalog: str | None,
    chunk_files: int | None,
    chunk_size: int | None,
    accept_unknown_inodes: bool,
) -> ExitCode:
    """Rank users, make batches and chunks, check the target, forecast; write plans/NAME.json."""
    site = _with_chunks(open_site(invocation), chunk_files, chunk_size)
    wiring = bootstrap.Wiring(site)
    request = PlanRequest(name=name, catalog=catalog, order=Order(order), accept_unknown_inodes=accept_unknown_inodes)
    with wiring.ledger() as ledger, wiring.source() as source, wiring.target() as target:
        known = ledger.site.read()
        quotas = run_to_end(source.quotas(), when_interrupted="run the command again")
        result = make_plan(
            request,
            site=site,
            catalogs=wiring.catalog_queries(),
            documents=wiring.plans(known.site_id if known else None),
            lists=wiring.chunk_lists(),
            ledger=ledger,
            quotas=quotas,
            capacity=target.capacity(),
            clock=wiring.clock,
        )
    present(invocation, result, plan_document(result.plan))
    if not invocation.as_json:
        click.echo(f"\nWritten to {result.path} (checksum {result.checksum[:16]}).")
    return ExitCode.DONE


def _with_chunks(site: Site, chunk_files: int | None, chunk_size_bytes: int | None) -> Site:
    transfer = site.transfer
    if chunk_files is not None:
        transfer = replace(transfer, chunk_files=chunk_files)
    if chunk_size_bytes is not None:
        transfer = replace(transfer, chunk_size_bytes=chunk_size_bytes)
    return replace(site, transfer=transfer)


@click.command("run")
@batches
@click.option(
    "--recopy", is_flag=True, help="Send every file again, also where size and times on the target are right already."
)
@click.option("-n", "--dry-run", is_flag=True, help="Take the very decisions of a run, and change nothing.")
@click.option("-j", "--jobs", "--np", "jobs", type=click.IntRange(1, 256), help="Streams (default: site.toml).")
@click.option(
    "--bwlimit", type=SIZE_NOT_ZERO, metavar="SIZE", help="Bytes per second for all streams together, as in 200MiB."
)
@click.option("--engine", metavar="NAME", help="The program that copies (default: site.toml; this version: rsync).")
@verb
def run_command(
    invocation: Invocation,
    *,
    numbers: Sequence[int],
    every: bool,
    plan_name: str | None,
    dry_run: bool,
    recopy: bool,
    jobs: int | None,
    bwlimit: int | None,
    engine: str | None,
) -> ExitCode:
    """Copy batches with parallel streams; the same command goes on where a stopped or killed one was."""
    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    transfer = site.transfer
    with wiring.ledger(read_only=dry_run) as ledger, wiring.source() as source:
        known = ledger.site.read()
        documents = wiring.plans(known.site_id if known else None)
        plan, _ = documents.read(choose_plan(ledger, plan_name))
        request = RunRequest(
            plan=plan.name,
            batches=_chosen(plan, numbers, every=every),
            jobs=jobs or transfer.jobs,
            pid=os.getpid(),
            dry_run=dry_run,
            recopy=recopy,
            bwlimit_bytes_per_s=bwlimit or transfer.bwlimit_bytes_per_s,
            retry=RetryPolicy(tries=transfer.tries),
            stall_timeout_s=transfer.stall_timeout_s,
            sample_interval_s=transfer.sample_interval_s,
            reserve_bytes=transfer.reserve_bytes,
            inodes_free=site.target.inodes_free,
        )
        with wiring.target(known.capabilities if known else None) as target:

            async def work(shown: Progress) -> RunSummary:
                return await run_batches(
                    request,
                    source=source,
                    target=target,
                    engine=await wiring.engine(engine or transfer.engine),
                    executor=wiring.executor(),
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
                )

            try:
                # What is printed while the live view stands is drawn over by it.
                with open_progress(sys.stderr, wiring.clock) as shown:
                    summary = run_to_end(work(shown), when_interrupted="the same command goes on where it was")
            except RunStopped as stopped:
                if not invocation.as_json:
                    present(invocation, stopped.summary, run_document(stopped.summary))
                raise
    present(invocation, summary, run_document(summary))
    return summary.exit_code


@click.command("verify")
@batches
@click.option(
    "--sample",
    type=SHARE,
    metavar="SHARE",
    help="Share of files whose content is read, as in 5% or 0.05 (default: site.toml).",
)
@click.option("-j", "--jobs", "--np", "jobs", type=click.IntRange(1, 256), help="Workers (default: site.toml).")
@verb
def verify_command(
    invocation: Invocation,
    *,
    numbers: Sequence[int],
    every: bool,
    plan_name: str | None,
    sample: float | None,
    jobs: int | None,
) -> ExitCode:
    """Compare both sides of batches, content included, and write the manifest of what arrived.

    A verification that is interrupted keeps nothing of its batch: the same command starts that batch over.
    """
    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    policy = DigestPolicy(
        algorithm=site.verify.digest, share=site.verify.sample if sample is None else sample, seed=_SAMPLE_SEED
    )
    records: list[VerificationRecord] = []
    with (
        wiring.ledger() as ledger,
        wiring.locks().hold("run", "verify"),
        open_progress(sys.stderr, wiring.clock) as shown,
    ):
        known = ledger.site.read()
        plan, _ = wiring.plans(known.site_id if known else None).read(plan_name or latest_plan(ledger))
        for number in _chosen(plan, numbers, every=every):
            with wiring.source() as source, wiring.target(known.capabilities if known else None) as target:
                request = VerifyRequest(plan=plan, batch=number, policy=policy, workers=jobs or site.verify.workers)
                records.append(
                    run_to_end(
                        verify(
                            request,
                            source=source,
                            target=target,
                            manifests=wiring.manifests(),
                            ledger=ledger,
                            progress=shown,
                            clock=wiring.clock,
                        ),
                        when_interrupted="this batch's verification starts over: give the command again",
                    )
                )
    present_all(invocation, records, [verification_document(record) for record in records])
    return max((exit_code(record) for record in records), default=ExitCode.DONE)


COMMANDS = (scan_command, plan_command, run_command, verify_command)
