"""`reap list`, `policy`, `release`, `archive`, `restore`."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrator.app import Wiring
from migrator.app.cutover import archiving_world, restoring_world
from migrator.app.hosts import beside_probes
from migrator.cli import call
from migrator.cli.completion import complete_users
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode, Refused, UsageError
from migrator.ledger.locks import VOLUME, of_tree
from migrator.reap import archive, restore
from migrator.reap.listing import list_reaped, release, write_policy
from migrator.reap.model import ArchiveLimits, TreeArchived
from migrator.reap.robinhood import read_policy
from migrator.reap.view import archived_document, reap_report_document, released_document, restored_document
from migrator.render.progress import open_progress
from migrator.render.text import to_json
from migrator.site.guards import current_identity
from migrator.site.rules_guards import mount_problems
from migrator.transfer.bases import active_plan, choose_plan

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger


_owner = click.option(
    "--user", "user", required=True, metavar="NAME", shell_complete=complete_users, help="Owner of the files."
)


@click.group("reap")
def reap() -> None:
    """List, archive, restore and release old and tiny files."""


# --- `reap list`, `reap release`


@reap.command("list")
@click.option(
    "--user",
    "users",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_users,
    help="Only this user; repeatable.",
)
@click.option(
    "--csv",
    "csv_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write all files to this CSV file.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write one text per user to this directory, to send.",
)
@call.verb
def list_command(
    global_options: GlobalOptions,
    *,
    users: Sequence[str],
    csv_file: Path | None,
    out: Path | None,
) -> ExitCode:
    """List per user what the rules of [reap] match in the newest catalog, and what that saves."""
    from migrator.reap.view import ReapCsv, write_texts  # noqa: PLC0415

    wiring = call.open_wiring(global_options)
    site = wiring.site
    files = ReapCsv(csv_file) if csv_file else None
    with wiring.ledger(read_only=True) as ledger, wiring.source() as source:
        problem = call.run_to_end(wiring.atime_problem(source), when_interrupted="run the command again")
        report = list_reaped(
            users=users,
            site=site,
            catalogs=wiring.catalog_queries(ledger),
            ledger=ledger,
            atime_problem=problem,
            now_s=wiring.clock.now_s(),
            rows=files.add if files else None,
        )
    if out is not None:
        write_texts(out, report)
    return call.present(global_options, report, reap_report_document)


@reap.command("policy")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--policy", metavar="NAME", help="Policy to read, if FILE defines several.")
@call.verb
def policy_command(global_options: GlobalOptions, *, file: Path | None, policy: str | None) -> ExitCode:
    """Print the rules of [reap] as the scope of a Robinhood policy, or the policy in FILE as [reap].

    Conditions that the other side cannot express are refused by name. Nothing is written.
    """
    wiring = call.open_wiring(global_options)
    if file is not None:
        try:
            content = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{file} cannot be read: {error}") from error
        text = read_policy(content, policy, wiring.source_root)
    else:
        with wiring.ledger(read_only=True) as ledger:
            text = write_policy(
                site=wiring.site,
                catalogs=wiring.catalog_queries(ledger),
                ledger=ledger,
                root=wiring.source_root,
                now_s=wiring.clock.now_s(),
            )
    click.echo(to_json({"text": text}) if global_options.as_json else text, nl=False)
    return ExitCode.DONE


@reap.command("release")
@click.argument("paths", nargs=-1, metavar="PATH...")
@_owner
@click.option("--glob", "globs", multiple=True, metavar="GLOB", help="Glob below the user's trees; repeatable.")
@call.plan_option
@click.option("--confirm-loss", is_flag=True, help="Confirm that the purge deletes these files for good.")
@call.verb
def release_command(
    global_options: GlobalOptions,
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
    wiring = call.open_wiring(global_options)
    with wiring.ledger() as ledger:
        trees = _trees_of(wiring, ledger, user, plan_name)
        released = release(
            user,
            paths=tuple(map(os.fsencode, paths)),
            globs=tuple(map(os.fsencode, globs)),
            by=call.who(),
            confirmed=confirm_loss,
            trees=[(wiring.plan(ledger, name), some) for name, some in trees.items()],
            lists=wiring.reap_lists(),
            ledger=ledger,
            now_s=wiring.clock.now_s(),
        )
    return call.present(global_options, released, released_document)


def _trees_of(
    wiring: Wiring, ledger: "MigrationLedger", user: str, plan_name: str | None
) -> Mapping[str, Sequence[bytes]]:
    """The trees of a user by plan, named on standard error. Raises UsageError, Refused."""
    plan = wiring.plan(ledger, plan_name or active_plan(ledger))
    found = (
        call.trees_of_users(ledger, plan, [user]) if plan_name is None else {plan.name: call.chosen_trees(plan, [user])}
    )
    call.name_plans(ledger, found)
    return {name: [tree.path for trees in by_batch.values() for tree in trees] for name, by_batch in found.items()}


# --- `reap archive`, `reap restore`


@reap.command("archive")
@call.choices
@call.verb
def archive_command(
    global_options: GlobalOptions,
    *,
    choice: call.Choice,
) -> ExitCode:
    """Pack the files that the plan archives into archives on the target.

    Each archive is read back before it counts. The same command resumes.
    """
    wiring = call.open_wiring(global_options)
    site = wiring.site
    done: list[TreeArchived] = []
    limits = ArchiveLimits(max_bytes=site.reap.archive_size_bytes, max_members=site.reap.archive_files)
    with (
        wiring.ledger() as ledger,
        open_progress(sys.stderr, wiring.clock) as shown,
    ):
        plan = call.open_plan(wiring, ledger, choose_plan(ledger, choice.plan_name))
        for number, trees in choice.trees(plan).items():
            request = archive.ArchiveRequest(plan=plan.name, batch=number, trees=trees, limits=limits)
            locks = wiring.locks().hold("reap archive", *(of_tree(tree.path) for tree in trees), shared=(VOLUME,))
            with locks, wiring.source() as source, wiring.target(ledger.site.read()) as target:
                world = archiving_world(wiring, plan, source, target, ledger=ledger, progress=shown)
                done += call.run_to_end(beside_probes(wiring, ledger, archive.archive_trees(request, world)))
    call.present(global_options, done, archived_document)
    return archive.exit_code(done)


@reap.command("restore")
@click.argument("patterns", nargs=-1, required=True, metavar="PATH|GLOB...")
@_owner
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Restore below this directory (default: original places on the target).",
)
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@call.plan_option
@call.verb
def restore_command(
    global_options: GlobalOptions,
    *,
    patterns: Sequence[str],
    user: str,
    to: Path | None,
    overwrite: bool,
    plan_name: str | None,
) -> ExitCode:
    """Restore archived files with content and all attributes.

    Paths and globs are relative to the user's trees, or begin with the path of one: `letters/2014` with its content, or
    `*.log` anywhere.
    """
    wiring = call.open_wiring(global_options)
    with wiring.ledger() as ledger, open_progress(sys.stderr, wiring.clock) as shown:
        known = ledger.site.read()
        by_plan = _trees_of(wiring, ledger, user, plan_name)
        request = restore.RestoreRequest(
            trees=tuple(path for paths in by_plan.values() for path in paths),
            patterns=tuple(pattern.encode("utf-8", "surrogateescape") for pattern in patterns),
            in_place=to is None,
            overwrite=overwrite,
        )
        capabilities = known.capabilities if known else None
        with wiring.target(known) as target:
            now = current_identity(target)
        if problems := mount_problems(known.target if known else None, now, where="the target"):
            raise Refused(
                "nothing is restored: " + "; ".join(problems), hint="mount the target, check with `migrator doctor`"
            )
        world = restoring_world(wiring, to=to, capabilities=capabilities, ledger=ledger, progress=shown)
        done = call.run_to_end(
            beside_probes(wiring, ledger, restore.restore(request, world)),
            when_interrupted="restored files stay; the same command restores the rest",
        )
    call.present(global_options, done, restored_document)
    return restore.exit_code(done)
