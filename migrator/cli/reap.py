"""`reap`: old and tiny files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrator import bootstrap
from migrator.cli.context import open_site, run_to_end, verb
from migrator.cli.invocation import Invocation
from migrator.cli.options import chosen_batches, chosen_trees, plan_option
from migrator.cli.person import who
from migrator.cli.present import present
from migrator.cli.reap_archive import archive_command, restore_command
from migrator.domain.errors import ExitCode
from migrator.domain.reap import ReapReport, ReapRow, Released
from migrator.domain.tree import UserTree
from migrator.ports.ledger import Ledger
from migrator.stages.reap.listing import ListRequest, list_reaped
from migrator.stages.reap.release import ReleaseRequest, release
from migrator.stages.run import latest_plan

if TYPE_CHECKING:
    from migrator.adapters.output.document import Document


@click.group("reap")
def reap() -> None:
    """List, archive, restore and release old and tiny files."""


@reap.command("list")
@click.option("--user", "users", multiple=True, metavar="NAME", help="Only this user; repeatable.")
@click.option("--user-batch", "numbers", type=int, multiple=True, metavar="N", help="Only this batch; repeatable.")
@plan_option
@click.option(
    "--csv",
    "csv_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write all files to this CSV file.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write one file per user to this directory.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "csv"]),
    default="text",
    show_default=True,
    help="Content of --out: a text to send, or a list of the files.",
)
@verb
def list_command(
    invocation: Invocation,
    *,
    users: Sequence[str],
    numbers: Sequence[int],
    plan_name: str | None,
    csv_file: Path | None,
    out: Path | None,
    form: str,
) -> ExitCode:
    """List per user what the rules of [reap] match in the newest catalog, and what that saves."""
    from migrator.adapters.output.reap_reports import ReapCsv, UserFiles, write_texts  # noqa: PLC0415

    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    whole = ReapCsv(csv_file) if csv_file else None
    single = UserFiles(out) if out and form == "csv" else None
    with wiring.ledger(read_only=True) as ledger, wiring.source() as source:
        request = ListRequest(
            users=tuple(users) or None, trees=_trees_of_batches(wiring, ledger, plan_name, numbers) if numbers else None
        )
        problem = run_to_end(wiring.atime_problem(source), when_interrupted="run the command again")

        def add(tree: UserTree, rows: Sequence[ReapRow]) -> None:
            for files in (whole, single):
                if files is not None:
                    files.add(tree, rows)

        report = list_reaped(
            request,
            site=site,
            catalogs=wiring.catalog_queries(),
            ledger=ledger,
            atime_problem=problem,
            now_s=wiring.clock.now_s(),
            rows=add if whole or single else None,
        )
    if whole is not None:
        whole.close()
    if out is not None and form == "text":
        write_texts(out, report)
    present(invocation, report, _report_document)
    return ExitCode.DONE


@reap.command("release")
@click.argument("paths", nargs=-1, metavar="PATH...")
@click.option("--user", "user", required=True, metavar="NAME", help="Owner of the files.")
@click.option("--glob", "globs", multiple=True, metavar="GLOB", help="Glob below the user's trees; repeatable.")
@plan_option
@click.option("--confirm-loss", is_flag=True, help="Confirm that the purge deletes these files for good.")
@verb
def release_command(
    invocation: Invocation,
    *,
    paths: Sequence[str],
    user: str,
    globs: Sequence[str],
    plan_name: str | None,
    confirm_loss: bool,
) -> ExitCode:
    """Allow the purge to delete skipped files of a user.

    A PATH (from the source's root) includes everything below it.
    """
    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    with wiring.ledger() as ledger:
        known = ledger.site.read()
        plan, _ = wiring.plans(known.site_id if known else None).read(plan_name or latest_plan(ledger))
        trees = [tree.path for found in chosen_trees(plan, [user]).values() for tree in found]
        released = release(
            ReleaseRequest(
                user=user,
                paths=tuple(map(os.fsencode, paths)),
                globs=tuple(map(os.fsencode, globs)),
                by=who(),
                confirmed=confirm_loss,
            ),
            plan=plan,
            trees=trees,
            lists=wiring.reap_lists(),
            ledger=ledger,
            now_s=wiring.clock.now_s(),
        )
    present(invocation, released, _released_document)
    return ExitCode.DONE


def _trees_of_batches(
    wiring: bootstrap.Wiring, ledger: Ledger, plan_name: str | None, numbers: Sequence[int]
) -> frozenset[bytes]:
    known = ledger.site.read()
    plan, _ = wiring.plans(known.site_id if known else None).read(plan_name or latest_plan(ledger))
    chosen = chosen_batches(plan, numbers, every=False)
    return frozenset(tree.path for batch in plan.batches if batch.number in chosen for tree in batch.trees)


def _report_document(report: ReapReport) -> "Document":
    from migrator.adapters.output.reap_document import reap_report_document  # noqa: PLC0415

    return reap_report_document(report)


def _released_document(released: Released) -> "Document":
    from migrator.adapters.output.reap_document import released_document  # noqa: PLC0415

    return released_document(released)


reap.add_command(archive_command)
reap.add_command(restore_command)
