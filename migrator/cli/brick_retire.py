"""The bricks of the volume: `brick retire`, beside what `migrator.cli.brick` has."""

import os
import sys
from typing import TYPE_CHECKING

import click

from migrator import bootstrap
from migrator.adapters.output.progress import open_progress
from migrator.bootstrap.bricks import open_volume
from migrator.cli.brick_add import brick
from migrator.cli.context import open_site, run_to_end, verb
from migrator.cli.invocation import Invocation
from migrator.cli.present import present
from migrator.domain.errors import ExitCode
from migrator.domain.retirement import RetirementSummary, RetireRequest
from migrator.ports.progress import Progress

if TYPE_CHECKING:
    from migrator.adapters.output.document import Document

__all__ = ["brick", "retire_command"]


@brick.command("retire")
@click.option(
    "-n", "--dry-run", is_flag=True, help="Run the preflight checks against the newest catalog; change nothing."
)
@click.option("--confirm", metavar="VOLUME", help="Name of the volume; required to stop it.")
@verb
def retire_command(invocation: Invocation, *, dry_run: bool, confirm: str | None) -> ExitCode:
    """Stop the source volume after proving that everything in it is on the target.

    Scans the source first. Deletes nothing; `gluster volume delete` is left to you.
    """
    # What only a retirement needs.
    from migrator.bootstrap.retiring import retirement_world  # noqa: PLC0415
    from migrator.stages.bricks.retire import retire_volume  # noqa: PLC0415

    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    request = RetireRequest(pid=os.getpid(), confirm=confirm, dry_run=dry_run)
    with open_volume(wiring) as volume, wiring.ledger(read_only=dry_run) as ledger:

        async def work(shown: Progress) -> RetirementSummary:
            async with retirement_world(wiring, volume, ledger, shown) as world:
                return await retire_volume(request, world)

        with open_progress(sys.stderr, wiring.clock) as shown:
            summary = run_to_end(work(shown), when_interrupted="the same command goes on where it was")
    present(invocation, summary, _as_document)
    return summary.exit_code


def _as_document(summary: RetirementSummary) -> "Document":
    from migrator.adapters.output.retirement_document import retirement_document  # noqa: PLC0415

    return retirement_document(summary)
