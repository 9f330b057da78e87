"""The bricks of the volume: `brick add`, beside what `migrator.cli.brick` has."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from migrator import bootstrap
from migrator.adapters.output.progress import open_progress
from migrator.bootstrap.adding import addition_world
from migrator.bootstrap.bricks import open_volume
from migrator.cli.brick import brick
from migrator.cli.context import open_site, run_to_end, verb
from migrator.cli.invocation import Invocation
from migrator.cli.present import present
from migrator.domain.addition import AdditionSide
from migrator.domain.addition_run import AdditionRequest, AdditionSummary
from migrator.domain.addition_seen import Wish
from migrator.domain.errors import ExitCode, UsageError
from migrator.ports.progress import Progress
from migrator.stages.bricks.add import add_bricks

if TYPE_CHECKING:
    from migrator.adapters.output.document import Document

__all__ = ["add_command", "brick"]


@brick.command("add")
@click.argument("bricks", metavar="HOST:/PATH...", nargs=-1, required=True)
@click.option(
    "--to",
    "side",
    type=click.Choice([side.value for side in AdditionSide]),
    required=True,
    help="Where the bricks go; for the target your pre-add hooks do it.",
)
@click.option(
    "--instead-of",
    metavar="BRICK",
    help="Replace this brick of a replica volume; the same name replaces its disk.",
)
@click.option(
    "--take-back",
    is_flag=True,
    help="Abort the replacement of a disk: use the old one again.",
)
@click.option("--once-more", is_flag=True, help="Replace the disk again after a finished replacement.")
@click.option("-n", "--dry-run", is_flag=True, help="Run the preflight checks and change nothing.")
@click.option("--no-rebalance", is_flag=True, help="End after the fix-layout; move no files.")
@click.option(
    "--accept-unlike",
    is_flag=True,
    help="Accept bricks that differ in size or file system.",
)
@verb
def add_command(
    invocation: Invocation,
    *,
    bricks: Sequence[str],
    side: str,
    instead_of: str | None,
    take_back: bool,
    once_more: bool,
    dry_run: bool,
    no_rebalance: bool,
    accept_unlike: bool,
) -> ExitCode:
    """Add bricks with new file systems to the source volume (whole sets) or to the target.

    Gluster continues if this command ends; the same command resumes.
    """
    to = AdditionSide(side)
    if to is AdditionSide.TARGET and (instead_of is not None or no_rebalance):
        raise UsageError(
            "--instead-of and --no-rebalance are for bricks of the source",
            hint="leave them out, or give the bricks to the source: --to source",
        )
    if (take_back or once_more) and instead_of not in bricks:
        raise UsageError(
            "--take-back and --once-more are for the exchange of a disk in its place",
            hint="name the brick twice: migrator brick add BRICK --to source --instead-of BRICK",
        )
    site = open_site(invocation)
    request = AdditionRequest(
        bricks=tuple(bricks),
        side=to,
        pid=os.getpid(),
        instead_of=instead_of,
        wish=Wish(rebalance=not no_rebalance, accept_unlike=accept_unlike, take_back=take_back),
        once_more=once_more,
        dry_run=dry_run,
        poll_s=site.drain.poll_s,
        stall_s=site.drain.stall_s,
    )
    wiring = bootstrap.Wiring(site)
    with wiring.ledger(read_only=dry_run) as ledger, open_volume(wiring) as volume:

        async def work(shown: Progress) -> AdditionSummary:
            async with addition_world(wiring, volume, ledger, shown) as world:
                return await add_bricks(request, world)

        with open_progress(sys.stderr, wiring.clock) as shown:
            summary = run_to_end(work(shown), when_interrupted="the same command goes on where it was")
    present(invocation, summary, _as_document)
    return summary.exit_code


def _as_document(summary: AdditionSummary) -> "Document":
    from migrator.adapters.output.addition_document import addition_document  # noqa: PLC0415

    return addition_document(summary)
