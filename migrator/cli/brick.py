"""The bricks of the volume: `brick list`."""

import asyncio
from typing import TYPE_CHECKING

import click

from migrator import bootstrap
from migrator.bootstrap.bricks import brick_usage, open_volume
from migrator.cli.context import open_site, run_to_end, verb
from migrator.cli.invocation import Invocation
from migrator.cli.present import present
from migrator.domain.brick_list import BrickListing
from migrator.domain.errors import ExitCode
from migrator.stages.bricks.list import list_bricks

if TYPE_CHECKING:
    from migrator.adapters.output.document import Document


@click.group("brick")
def brick() -> None:
    """The bricks of the Gluster volume: what there is, and who uses it."""


@brick.command("list")
@click.option("--user", "user", metavar="NAME", help="Only what this user has on each brick.")
@verb
def list_command(invocation: Invocation, user: str | None) -> ExitCode:
    """Every brick with its room, state and users, running tasks, and the version's known faults; looks only."""
    wiring = bootstrap.Wiring(open_site(invocation))
    with open_volume(wiring) as volume:

        async def listed() -> BrickListing:
            # glusterd is asked through a command that starts while the ledger is read.
            volume.begin()
            with await asyncio.to_thread(wiring.ledger, read_only=True) as ledger:
                catalog = await asyncio.to_thread(ledger.scans.latest)
            return await list_bricks(volume, catalog=catalog, usage=lambda: brick_usage(wiring), user=user)

        listing = run_to_end(listed(), when_interrupted="run the command again")
    present(invocation, listing, _as_document)
    return ExitCode.DONE


def _as_document(listing: BrickListing) -> "Document":
    from migrator.adapters.output.brick_document import brick_document  # noqa: PLC0415

    return brick_document(listing)
