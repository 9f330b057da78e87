"""The bricks of the volume: `brick list`, `brick drain`, `brick stop`, `brick status`."""

import asyncio
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from migrator import bootstrap
from migrator.adapters.output.progress import open_progress
from migrator.bootstrap.bricks import brick_usage, host_versions, open_volume
from migrator.cli.context import open_site, run_to_end, verb
from migrator.cli.invocation import Invocation
from migrator.cli.present import present
from migrator.domain.addition_standing import BrickStandings
from migrator.domain.brick_list import BrickListing
from migrator.domain.drain_run import DrainRequest, DrainSummary
from migrator.domain.errors import ExitCode
from migrator.ports.progress import Progress
from migrator.stages.brick_standings import read_bricks
from migrator.stages.bricks.drain import drain_bricks, stop_drain
from migrator.stages.bricks.list import list_bricks

if TYPE_CHECKING:
    from migrator.adapters.output.document import Document


@click.group("brick")
def brick() -> None:
    """List, drain, add and retire the bricks of the Gluster volume."""


@brick.command("list")
@click.option("--user", "user", metavar="NAME", help="Show only the use by this user.")
@verb
def list_command(invocation: Invocation, user: str | None) -> ExitCode:
    """List bricks with room, state and users, running tasks, and known faults of this GlusterFS version."""
    wiring = bootstrap.Wiring(open_site(invocation))
    with open_volume(wiring) as volume:

        async def listed() -> BrickListing:
            # glusterd is asked through a command that starts while the ledger is read.
            volume.begin()
            with await asyncio.to_thread(wiring.ledger, read_only=True) as ledger:
                catalog = await asyncio.to_thread(ledger.scans.latest)
            async with host_versions(wiring) as versions:
                return await list_bricks(
                    volume, catalog=catalog, usage=lambda: brick_usage(wiring), versions=versions, user=user
                )

        listing = run_to_end(listed(), when_interrupted="run the command again")
    present(invocation, listing, _as_document)
    return ExitCode.DONE


def _as_document(listing: BrickListing) -> "Document":
    from migrator.adapters.output.brick_document import brick_document  # noqa: PLC0415

    return brick_document(listing)


@brick.command("drain")
@click.argument("bricks", metavar="BRICK...", nargs=-1, required=True)
@click.option("-n", "--dry-run", is_flag=True, help="Run the preflight checks and change nothing.")
@click.option("--no-commit", is_flag=True, help="End after the audit; the drained bricks stay in the volume.")
@click.option(
    "--accept-open-files",
    is_flag=True,
    help="Drain although files are open on the bricks, or although that is unknown.",
)
@click.option(
    "--accept-retained",
    is_flag=True,
    help="Drain although the schedule purges sources on these bricks first.",
)
@click.option(
    "--recover",
    is_flag=True,
    help="Copy leftovers on the bricks back through the mount, if they are not open and the copy is proven equal.",
)
@click.option(
    "--confirm",
    metavar="WORD",
    help="Word printed by --dry-run; allows the pre-wipe hooks to wipe the bricks after the commit.",
)
@verb
def drain_command(
    invocation: Invocation,
    *,
    bricks: Sequence[str],
    dry_run: bool,
    no_commit: bool,
    accept_open_files: bool,
    accept_retained: bool,
    recover: bool,
    confirm: str | None,
) -> ExitCode:
    """Remove the bricks of one subvolume: move their files away, audit, commit.

    Gluster continues if this command ends; the same command resumes.
    """
    return _drain(
        invocation,
        bricks,
        dry_run=dry_run,
        commit=not no_commit,
        accept_open_files=accept_open_files,
        confirm=confirm,
        back=False,
        accept_retained=accept_retained,
        recover=recover,
    )


@brick.command("stop")
@click.argument("bricks", metavar="BRICK...", nargs=-1, required=True)
@click.option("-n", "--dry-run", is_flag=True, help="Show the first step; change nothing.")
@verb
def stop_command(invocation: Invocation, *, bricks: Sequence[str], dry_run: bool) -> ExitCode:
    """Abort a drain that is not committed, and restore the directory layout."""
    return _drain(invocation, bricks, dry_run=dry_run, commit=True, accept_open_files=False, confirm=None, back=True)


@brick.command("status")
@verb
def status_command(invocation: Invocation) -> ExitCode:
    """Show the progress of drains and additions from the ledger, also if glusterd is down."""
    wiring = bootstrap.Wiring(open_site(invocation))
    with wiring.ledger(read_only=True) as ledger:
        bricks = read_bricks(ledger)
    present(invocation, bricks, _as_standings_document)
    return ExitCode.DONE


def _drain(
    invocation: Invocation,
    bricks: Sequence[str],
    *,
    dry_run: bool,
    commit: bool,
    accept_open_files: bool,
    confirm: str | None,
    back: bool,
    accept_retained: bool = False,
    recover: bool = False,
) -> ExitCode:
    from migrator.bootstrap.draining import drain_world  # noqa: PLC0415 - what only drains need

    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    request = DrainRequest(
        bricks=tuple(bricks),
        pid=os.getpid(),
        dry_run=dry_run,
        commit=commit,
        confirm=confirm,
        accept_open_files=accept_open_files,
        accept_retained=accept_retained,
        recover=recover,
        poll_s=site.drain.poll_s,
        stall_s=site.drain.stall_s,
    )
    with open_volume(wiring) as volume, wiring.ledger(read_only=dry_run) as ledger:

        async def work(shown: Progress) -> DrainSummary:
            async with drain_world(wiring, volume, ledger, shown) as world:
                return await (stop_drain if back else drain_bricks)(request, world)

        with open_progress(sys.stderr, wiring.clock) as shown:
            summary = run_to_end(
                work(shown), when_interrupted="the same command goes on; what Gluster has begun goes on by itself"
            )
    present(invocation, summary, _as_drain_document)
    return summary.exit_code


def _as_drain_document(summary: DrainSummary) -> "Document":
    from migrator.adapters.output.drain_document import drain_document  # noqa: PLC0415

    return drain_document(summary)


def _as_standings_document(bricks: BrickStandings) -> "Document":
    from migrator.adapters.output.drain_document import brick_standings_document  # noqa: PLC0415

    return brick_standings_document(bricks)
