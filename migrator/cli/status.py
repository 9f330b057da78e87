"""`status`: the current progress. Reads the ledger only."""

import sys
from functools import cache

import click
from msgspec.structs import replace

from migrator import app
from migrator.bricks.status import shield_blockers
from migrator.cli.call import details_option, duration, open_wiring, plan_option, present, verb
from migrator.cli.global_options import GlobalOptions
from migrator.core.errors import ExitCode, UsageError
from migrator.report.status import forecast_settings, read_status
from migrator.report.view_status import status_document

_LEAST_INTERVAL_S = 0.2


@click.command("status")
@plan_option
@details_option
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C; plain lines without a terminal.")
@click.option(
    "--interval",
    "interval_s",
    type=duration(_LEAST_INTERVAL_S),
    default="2s",
    show_default=True,
    help="With --watch: refresh interval.",
)
@verb
def status_command(
    global_options: GlobalOptions, *, plan_name: str | None, details: bool, watch: bool, interval_s: float
) -> ExitCode:
    """Show the current progress; may run at any time."""
    if watch and global_options.as_json:
        raise UsageError(
            "--watch excludes --json",
            hint="--watch and --json exclude each other: call `migrator status --json` repeatedly",
        )
    wiring = open_wiring(global_options)
    if watch:
        return _watch(wiring, plan_name, interval_s)
    with wiring.ledger(read_only=True) as ledger:
        status = read_status(
            ledger,
            now_s=wiring.clock.now_s(),
            plan=plan_name,
            holders=wiring.locks().holders,
            read_plan=wiring.plans(None).read,
            settings=forecast_settings(wiring.site),
        )
    shields = shield_blockers(wiring.site.shields_dir, status.drains, status.additions)
    status = replace(status, require_archive=wiring.site.cutover.require_archive, blocked=(*status.blocked, *shields))
    return present(global_options, status, status_document, more="" if details else "migrator status --details")


def _watch(wiring: app.Wiring, plan_name: str | None, interval_s: float) -> ExitCode:
    # Loaded here because only --watch needs it.
    from migrator.report.view_watch import watch  # noqa: PLC0415
    from migrator.report.watch import snapshots  # noqa: PLC0415

    with wiring.ledger(read_only=True) as ledger:
        # A plan is never overwritten, and takes a second to read if it has thousands of users.
        found = snapshots(
            ledger,
            wiring.clock,
            interval_s,
            plan=plan_name,
            holders=wiring.locks().holders,
            read_plan=cache(wiring.plans(None).read),
            settings=forecast_settings(wiring.site),
        )
        watch(sys.stdout, found)
    return ExitCode.DONE
