"""`announce` and `backup`."""

import os
from datetime import UTC, datetime

import click

from migrator.cli.call import Choice, choices, open_plan, open_wiring, present, run_shown, trees_of_users, verb
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.units import several
from migrator.cutover.announce import AnnouncePorts, AnnounceRequest, announce
from migrator.cutover.model_announce import RecordedBackup
from migrator.cutover.view import announce_document
from migrator.render.document import Document, page, paragraph, when
from migrator.report.status import read_status
from migrator.transfer.bases import active_plan

# --- `announce`


class Moment(click.ParamType[float]):
    """A time: `2030-01-31 19:00`, in UTC where no offset is given."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            moment = datetime.fromisoformat(str(value))
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time: write '2030-01-31 19:00' or '2030-01-31 19:00+01:00'", param, ctx)


@click.command("announce")
@choices
@click.option(
    "--begins",
    "begins_at_s",
    type=Moment(),
    required=True,
    metavar="TIME",
    help="Begin of the move, e.g. '2030-01-31 19:00'; UTC unless it ends with an offset such as +01:00.",
)
@click.option("--again", is_flag=True, help="Also announce to users who have already received the same time.")
@click.option("-n", "--dry-run", is_flag=True, help="Print the announcements; call no hook.")
@verb
def announce_command(
    global_options: GlobalOptions,
    *,
    choice: Choice,
    begins_at_s: float,
    again: bool,
    dry_run: bool,
) -> ExitCode:
    """Announce the move to users: calls the hooks of post-announce.d for each."""
    # Loaded here because the template engine takes long to load.
    from migrator.notices.files import AnnouncedNotices, read_facts  # noqa: PLC0415

    wiring = open_wiring(global_options)
    site = wiring.site
    with wiring.ledger(read_only=dry_run) as ledger:
        plan = open_plan(wiring, ledger, choice.plan_name or active_plan(ledger))
        request = AnnounceRequest(
            plan=plan.name,
            trees=choice.trees(plan),
            begins_at_s=begins_at_s,
            link=wiring.switched_link,
            times=site.cutover.times,
            pid=os.getpid(),
            dry_run=dry_run,
            again=again,
        )
        status = read_status(ledger, now_s=wiring.clock.now_s(), plan=plan.name)
        facts = read_facts(ledger, status, plan, wiring.notice_place(ledger))
        notices = AnnouncedNotices(site.site.state_dir / "notices", facts)
        summary = run_shown(
            wiring,
            lambda shown: announce(request, AnnouncePorts(**wiring.operation_ports(ledger, shown)), notices),
            when_interrupted="run the same command again for the users without an announcement",
        )
    return present(global_options, summary, announce_document)


# --- `backup`


@click.command("backup")
@choices
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
    global_options: GlobalOptions,
    *,
    choice: Choice,
    began_at_s: float,
    note: str,
) -> ExitCode:
    """Record a backup of user trees on the target, for [cutover] wait_for_backup.

    Makes no backup. It counts only if it began after the last delta pass ended.
    """
    wiring = open_wiring(global_options)
    now_s = wiring.clock.now_s()
    if began_at_s > now_s:
        raise UsageError("the backup begins in the future", hint="record it when it is finished")
    with wiring.ledger() as ledger:
        plan = open_plan(wiring, ledger, choice.plan_name or active_plan(ledger))
        chosen = (
            trees_of_users(ledger, plan, choice.users)
            if choice.users and not choice.plan_name
            else {plan.name: choice.trees(plan)}
        )
        trees = tuple(tree for by_batch in chosen.values() for some in by_batch.values() for tree in some)
        ledger.backups.record([tree.path for tree in trees], at_s=began_at_s, note=note)
        message = f"a backup of {several(len(trees), 'user tree')} on the target began at {when(began_at_s)}"
        message = f"{message}: {note}" if note else message
        ledger.events.note(now_s, EventKind.BACKUP_REPORTED, Severity.INFO, f"plan {plan.name}", message)
    return present(global_options, RecordedBackup(trees=trees, began_at_s=began_at_s, note=note), _as_document)


def _as_document(backup: RecordedBackup) -> Document:
    users = ", ".join(sorted({tree.user for tree in backup.trees}))
    words = (
        f"Recorded for {several(len(backup.trees), 'user tree')}, of {users}."
        if backup.trees
        else "No user tree is affected."
    )
    return page("Backup", ("A backup of the target", [paragraph(words)]), subtitle=when(backup.began_at_s))
