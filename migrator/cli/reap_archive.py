"""`reap archive` and `reap restore`: archives of old and tiny files, and the way back out of them."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from migrator import bootstrap
from migrator.adapters.output.progress import open_progress
from migrator.bootstrap.archiving import archiving_world, restoring_world
from migrator.bootstrap.probing import beside_probes
from migrator.cli.context import open_site, run_to_end, verb
from migrator.cli.invocation import Invocation
from migrator.cli.options import batches, chosen_batches, chosen_trees, plan_option, users
from migrator.cli.present import present
from migrator.decide.site_guards import mount_problems
from migrator.domain.archives import ArchiveLimits, Restored, TreeArchived
from migrator.domain.errors import ExitCode, Refused, UsageError
from migrator.domain.paths import percent_unescape, show
from migrator.domain.plan import Plan
from migrator.domain.tree import UserTree
from migrator.ports.filesystem import FileSystem
from migrator.ports.site import SiteRecord
from migrator.stages.reap import archive, restore
from migrator.stages.run import choose_plan

if TYPE_CHECKING:
    from migrator.adapters.output.document import Document


@click.command("archive")
@users
@batches
@verb
def archive_command(
    invocation: Invocation,
    *,
    numbers: Sequence[int],
    every: bool,
    users: Sequence[str],
    plan_name: str | None,
) -> ExitCode:
    """Pack the files that the plan archives into archives on the target.

    Each archive is read back before it counts. The same command resumes.
    """
    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    done: list[TreeArchived] = []
    limits = ArchiveLimits(max_bytes=site.reap.archive_size_bytes, max_members=site.reap.archive_files)
    with (
        wiring.ledger() as ledger,
        wiring.locks().hold("run", "reap archive"),
        open_progress(sys.stderr, wiring.clock) as shown,
    ):
        known = ledger.site.read()
        plan, _ = wiring.plans(known.site_id if known else None).read(choose_plan(ledger, plan_name))
        for number, trees in _trees(plan, numbers, users, every=every).items():
            request = archive.ArchiveRequest(plan=plan.name, batch=number, trees=tuple(trees), limits=limits)
            with wiring.source() as source, wiring.target(known.capabilities if known else None) as target:
                world = archiving_world(wiring, plan, source, target, ledger=ledger, progress=shown)
                done += run_to_end(
                    beside_probes(wiring, ledger, archive.archive_trees(request, world)),
                    when_interrupted="the same command goes on where it was",
                )
    present(invocation, done, _archived_document)
    return archive.exit_code(done)


@click.command("restore")
@click.argument("patterns", nargs=-1, required=True, metavar="PATH|GLOB...")
@click.option("--user", "user", metavar="NAME", help="All trees of this user.")
@click.option("--tree", "tree", metavar="PATH", help="One tree by its path.")
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Restore below this directory (default: original places on the target).",
)
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@plan_option
@verb
def restore_command(
    invocation: Invocation,
    *,
    patterns: Sequence[str],
    user: str | None,
    tree: str | None,
    to: Path | None,
    overwrite: bool,
    plan_name: str | None,
) -> ExitCode:
    """Restore archived files with content and all attributes.

    Paths and globs are relative to the user's tree: `letters/2014` with its content, or `*.log` anywhere.
    """
    if (user is None) == (tree is None):
        raise UsageError("whose files?", hint="give --user NAME or --tree PATH, one of them")
    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    with wiring.ledger() as ledger, open_progress(sys.stderr, wiring.clock) as shown:
        known = ledger.site.read()
        plan, _ = wiring.plans(known.site_id if known else None).read(choose_plan(ledger, plan_name))
        request = restore.RestoreRequest(
            trees=_trees_of(plan, user, tree),
            patterns=tuple(pattern.encode("utf-8", "surrogateescape") for pattern in patterns),
            in_place=to is None,
            overwrite=overwrite,
        )
        capabilities = known.capabilities if known else None
        with wiring.target(capabilities) as target:
            _check_target(known, target)
        world = restoring_world(wiring, to=to, capabilities=capabilities, ledger=ledger, progress=shown)
        done = run_to_end(
            beside_probes(wiring, ledger, restore.restore(request, world)),
            when_interrupted="what was restored stays; the same command restores the rest",
        )
    present(invocation, done, _restored_document)
    return restore.exit_code(done)


def _trees(
    plan: Plan, numbers: Sequence[int], users: Sequence[str], *, every: bool
) -> Mapping[int, Sequence[UserTree]]:
    if users:
        return chosen_trees(plan, users)
    chosen = chosen_batches(plan, numbers, every=every)
    return {batch.number: batch.trees for batch in plan.batches if batch.number in chosen}


def _trees_of(plan: Plan, user: str | None, tree: str | None) -> tuple[bytes, ...]:
    if user is not None:
        return tuple(one.path for trees in chosen_trees(plan, [user]).values() for one in trees)
    known = [one.path for batch in plan.batches for one in batch.trees]
    found = [path for path in known if tree in (show(path), path.decode("utf-8", "surrogateescape"))]
    found = found or [path for path in known if path == percent_unescape(tree or "")]
    if not found:
        raise UsageError(f"plan {plan.name} has no tree {tree}", hint="see `migrator status`")
    return tuple(found)


def _check_target(known: SiteRecord | None, target: FileSystem) -> None:
    try:
        now = target.identity()
    except OSError:
        now = None
    if problems := mount_problems(known.target if known else None, now, where="the target"):
        raise Refused(
            "nothing is restored: " + "; ".join(problems), hint="mount the target, check with `migrator doctor`"
        )


def _archived_document(trees: Sequence[TreeArchived]) -> "Document":
    from migrator.adapters.output.archive_document import archived_document  # noqa: PLC0415

    return archived_document(trees)


def _restored_document(trees: Sequence[Restored]) -> "Document":
    from migrator.adapters.output.archive_document import restored_document  # noqa: PLC0415

    return restored_document(trees)
