"""`backup`: a backup of the target, which somebody else has made, is written down."""

from collections.abc import Sequence

import click

from migrator import bootstrap
from migrator.adapters.output.document import Document, Section, paragraph
from migrator.adapters.output.wording import when
from migrator.cli.announce import Moment
from migrator.cli.context import open_site, verb
from migrator.cli.invocation import Invocation
from migrator.cli.options import batches, chosen_batches, chosen_trees, users
from migrator.cli.present import present
from migrator.domain.backup import BackupTold
from migrator.domain.errors import ExitCode, UsageError
from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.units import several
from migrator.stages.cutover import attempts_of_users
from migrator.stages.run import latest_plan


@click.command("backup")
@batches
@users
@click.option(
    "--began",
    "began_at_s",
    type=Moment(),
    required=True,
    metavar="TIME",
    help="Begin of the backup, e.g. '2030-01-31 19:00'; UTC unless it ends with an offset such as +01:00.",
)
@click.option("--note", default="", metavar="TEXT", help="Name or place of the backup.")
@verb
def backup_command(
    invocation: Invocation,
    *,
    numbers: Sequence[int],
    every: bool,
    users: Sequence[str],
    plan_name: str | None,
    began_at_s: float,
    note: str,
) -> ExitCode:
    """Record a backup of user trees on the target, for [cutover] wait_for_backup.

    Makes no backup. It counts only if it began after the last delta pass ended.
    """
    site = open_site(invocation)
    wiring = bootstrap.Wiring(site)
    now_s = wiring.clock.now_s()
    if began_at_s > now_s:
        raise UsageError("the backup begins in the future", hint="tell of it when it has been made")
    with wiring.ledger() as ledger:
        known = ledger.site.read()
        plan, _ = wiring.plans(known.site_id if known else None).read(plan_name or latest_plan(ledger))
        if users:
            # Those who work on the target already are in no later plan.
            begun = {} if plan_name else attempts_of_users(ledger, users)
            moved = [tree for by_batch in begun.values() for some in by_batch.values() for tree in some]
            others = [name for name in users if name not in {tree.user for tree in moved}]
            planned = chosen_trees(plan, others) if others else {}
            trees = (*moved, *(tree for some in planned.values() for tree in some))
        else:
            wanted = chosen_batches(plan, numbers, every=every)
            trees = tuple(tree for batch in plan.batches if batch.number in wanted for tree in batch.trees)
        ledger.target_backups.record([tree.path for tree in trees], at_s=began_at_s, note=note)
        message = f"a backup of {several(len(trees), 'user tree')} on the target began at {when(began_at_s)}"
        ledger.events.add(
            Event(
                at_s=now_s,
                kind=EventKind.BACKUP_TOLD,
                severity=Severity.INFO,
                subject=f"plan {plan.name}",
                message=f"{message}: {note}" if note else message,
            )
        )
    present(invocation, BackupTold(trees=trees, began_at_s=began_at_s, note=note), _as_document)
    return ExitCode.DONE


def _as_document(told: BackupTold) -> Document:
    users = ", ".join(sorted({tree.user for tree in told.trees}))
    words = (
        f"Written down for {several(len(told.trees), 'user tree')}, of {users}." if told.trees else "Nobody was meant."
    )
    section = Section(title="A backup of the target", blocks=(paragraph(words),))
    return Document(title="Backup", subtitle=when(told.began_at_s), sections=(section,))
