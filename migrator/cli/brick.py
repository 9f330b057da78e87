"""`brick list`, `drain`, `stop`, `status`, `add`, `retire`."""

import asyncio
import os
import posixpath
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem
from msgspec.structs import replace

from migrator import app
from migrator.app.bricks import addition_ports, drain_ports, host_versions, open_volume, retirement_ports
from migrator.bricks.add.add import add_bricks, forget_addition
from migrator.bricks.add.model import AdditionRequest, AdditionSide, Wish
from migrator.bricks.add.view import addition_document
from migrator.bricks.drain.drain import drain_bricks, stop_drain
from migrator.bricks.drain.model import DrainRequest
from migrator.bricks.drain.view import drain_document
from migrator.bricks.list import list_bricks
from migrator.bricks.model import BrickListing, BrickRequest
from migrator.bricks.moves import BRICKS_LOCK
from migrator.bricks.retire.model import RetireRequest
from migrator.bricks.retire.retire import retire_volume
from migrator.bricks.retire.view import retirement_document
from migrator.bricks.status import read_bricks
from migrator.bricks.view import brick_document
from migrator.bricks.view_status import brick_standings_document
from migrator.cli.call import open_site, open_wiring, present, run_stage, run_to_end, verb
from migrator.cli.completion import complete_bricks, complete_users
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode, UsageError
from migrator.core.progress import Progress
from migrator.gluster.volume import GlusterSource
from migrator.operations.run_files import CallPorts
from migrator.render.document import Document
from migrator.site.config import Site

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger

Request = TypeVar("Request", bound=BrickRequest | RetireRequest)
Ports = TypeVar("Ports", bound=CallPorts)
Summary = TypeVar("Summary")

# --- `brick list`, `brick drain`, `brick stop`, `brick status`


class BrickName(click.ParamType[str]):
    """The name of a brick as Gluster writes it: `//`, `.`, `..` and a trailing `/` of its path are resolved."""

    name = "brick"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name."""
        del param, ctx
        host, colon, path = value.partition(":/")
        return host + colon + posixpath.normpath(f"/{path}").lstrip("/") if colon else value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Bricks of the newest scan, and of drains."""
        return complete_bricks(ctx, param, incomplete)


@click.group("brick")
def brick() -> None:
    """List, drain, add and retire the bricks of the Gluster volume."""


@brick.command("list")
@click.option("--user", "user", metavar="NAME", shell_complete=complete_users, help="Show only the use by this user.")
@verb
def list_command(global_options: GlobalOptions, user: str | None) -> ExitCode:
    """List bricks with room, state and users, running tasks, and known faults that apply to the volume."""
    wiring = open_wiring(global_options)
    with open_volume(wiring) as volume:

        async def listed() -> BrickListing:
            # The gluster command runs while the ledger is read.
            volume.begin()
            with await asyncio.to_thread(wiring.ledger, read_only=True) as ledger:
                catalog = await asyncio.to_thread(ledger.scans.latest)
            async with host_versions(wiring) as versions:
                return await list_bricks(
                    volume, catalog=catalog, usage=lambda: wiring.catalog_reads(ledger), versions=versions, user=user
                )

        listing = run_to_end(listed(), when_interrupted="run the command again")
    return present(global_options, listing, brick_document)


@brick.command("drain")
@click.argument("bricks", metavar="BRICK...", nargs=-1, required=True, type=BrickName())
@click.option("-n", "--dry-run", is_flag=True, help="Run the preflight checks and change nothing.")
@click.option("--no-commit", is_flag=True, help="End after the audit; the drained bricks stay in the volume.")
@click.option(
    "--accept-open-files",
    is_flag=True,
    help="Drain although files on the bricks are open, or may be open.",
)
@click.option(
    "--accept-retained",
    is_flag=True,
    help="Drain although sources of users on the target lie on these bricks.",
)
@click.option(
    "--confirm",
    metavar="WORD",
    help="Word printed by --dry-run; allows the pre-wipe hooks to wipe the bricks after the commit.",
)
@verb
def drain_command(
    global_options: GlobalOptions,
    *,
    bricks: Sequence[str],
    dry_run: bool,
    no_commit: bool,
    accept_open_files: bool,
    accept_retained: bool,
    confirm: str | None,
) -> ExitCode:
    """Remove the bricks of one subvolume: move their files away, audit, commit.

    Gluster continues if this command ends; the same command resumes.
    """
    request = DrainRequest(
        bricks=tuple(bricks),
        pid=os.getpid(),
        dry_run=dry_run,
        commit=not no_commit,
        confirm=confirm,
        accept_open_files=accept_open_files,
        accept_retained=accept_retained,
    )
    return _drain(global_options, request, back=False)


@brick.command("stop")
@click.argument("bricks", metavar="BRICK...", nargs=-1, required=True, type=BrickName())
@click.option("-n", "--dry-run", is_flag=True, help="Show the first step; change nothing.")
@verb
def stop_command(global_options: GlobalOptions, *, bricks: Sequence[str], dry_run: bool) -> ExitCode:
    """Abort a drain that is not committed, and restore the directory layout."""
    return _drain(global_options, DrainRequest(bricks=tuple(bricks), pid=os.getpid(), dry_run=dry_run), back=True)


@brick.command("status")
@verb
def status_command(global_options: GlobalOptions) -> ExitCode:
    """Show the progress of drains and additions from the ledger, also if glusterd is down."""
    with open_wiring(global_options).ledger(read_only=True) as ledger:
        return present(global_options, read_bricks(ledger), brick_standings_document)


def _drain(global_options: GlobalOptions, request: DrainRequest, *, back: bool) -> ExitCode:
    site = open_site(global_options)
    request = replace(request, poll_s=site.drain.poll_s, stall_s=site.drain.stall_s)
    return _run(
        global_options,
        site,
        request,
        drain_ports,
        entry=stop_drain if back else drain_bricks,
        document=drain_document,
    )


def _run(
    global_options: GlobalOptions,
    site: Site,
    request: Request,
    opened: Callable[[app.Wiring, GlusterSource, "MigrationLedger", Progress], AbstractAsyncContextManager[Ports]],
    *,
    entry: Callable[[Request, Ports], Coroutine[Any, Any, Summary]],
    document: Callable[[Summary], Document],
) -> ExitCode:
    """Call the entry of a verb with its ports, and show the summary."""
    wiring = app.Wiring(site)
    with open_volume(wiring) as volume, wiring.ledger(read_only=request.dry_run) as ledger:
        summary = run_stage(wiring, partial(opened, wiring, volume, ledger), partial(entry, request))
    return present(global_options, summary, document)


# --- `brick add`


_new_bricks = click.argument("bricks", metavar="HOST:/PATH...", nargs=-1, required=True, type=BrickName())
_side = partial(click.option, "--to", "side", type=click.Choice([side.value for side in AdditionSide]), required=True)


@brick.command("add")
@_new_bricks
@_side(help="Side that gets the bricks; your pre-attach hooks add them to the target.")
@click.option(
    "--instead-of",
    metavar="BRICK",
    type=BrickName(),
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
    global_options: GlobalOptions,
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
            hint="omit them, or use --to source",
        )
    if (take_back or once_more) and instead_of not in bricks:
        raise UsageError(
            "--take-back and --once-more are for the exchange of a disk in its place",
            hint="name the brick twice: migrator brick add BRICK --to source --instead-of BRICK",
        )
    site = open_site(global_options)
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
    return _run(global_options, site, request, addition_ports, entry=add_bricks, document=addition_document)


@brick.command("forget")
@_new_bricks
@_side(help="Side that was to get the bricks.")
@click.option(
    "--accept-hooks",
    is_flag=True,
    help="Forget it although pre-add hooks were called; their changes on the host stay.",
)
@verb
def forget_command(global_options: GlobalOptions, *, bricks: Sequence[str], side: str, accept_hooks: bool) -> ExitCode:
    """Forget an addition that was a mistake, as long as it has changed neither the volume nor the target."""
    wiring = open_wiring(global_options)
    with wiring.ledger() as ledger, wiring.locks().hold("brick forget", BRICKS_LOCK):
        forget_addition(bricks, AdditionSide(side), ledger, accept_hooks=accept_hooks, at_s=wiring.clock.now_s())
        return present(global_options, read_bricks(ledger), brick_standings_document)


# --- `brick retire`


@brick.command("retire")
@click.option(
    "-n", "--dry-run", is_flag=True, help="Run the preflight checks against the newest catalog; change nothing."
)
@click.option("--confirm", metavar="VOLUME", help="Name of the volume; required to stop it.")
@verb
def retire_command(global_options: GlobalOptions, *, dry_run: bool, confirm: str | None) -> ExitCode:
    """Stop the source volume after proving that everything in it is on the target.

    Scans the source first. Deletes nothing; `gluster volume delete` is left to you.
    """
    request = RetireRequest(pid=os.getpid(), confirm=confirm, dry_run=dry_run)
    return _run(
        global_options,
        open_site(global_options),
        request,
        retirement_ports,
        entry=retire_volume,
        document=retirement_document,
    )
