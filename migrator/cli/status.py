"""`status`: how far it is. It reads the ledger and disturbs nothing."""

import sys
from time import monotonic

import click

from migrator import app
from migrator.cli.call import Duration, open_site, plan_option, present, verb
from migrator.cli.invocation import Invocation
from migrator.core.errors import ExitCode, MigratorError, UsageError
from migrator.report.status import read_status
from migrator.report.view_status import status_document

_LEAST_INTERVAL_S = 0.2


@click.command("status")
@plan_option
@click.option("--watch", is_flag=True, help="Refresh until q or Ctrl-C; plain lines without a terminal.")
@click.option(
    "--interval",
    "interval_s",
    type=Duration(least_s=_LEAST_INTERVAL_S),
    default="2s",
    show_default=True,
    help="With --watch: refresh interval.",
)
@verb
def status_command(invocation: Invocation, plan_name: str | None, watch: bool, interval_s: float) -> ExitCode:
    """Show the current progress; may run at any time."""
    if watch and invocation.as_json:
        raise UsageError(
            "--watch excludes --json", hint="migrator status --json prints one document, as often as it is called"
        )
    wiring = app.Wiring(open_site(invocation))
    if watch:
        return _watch(wiring, plan_name, interval_s)
    with wiring.ledger(read_only=True) as ledger:
        status = read_status(ledger, now_s=wiring.clock.now_s(), plan=plan_name, is_gone=app.process_is_gone)
    present(invocation, status, status_document)
    return ExitCode.DONE


def _watch(wiring: app.Wiring, plan_name: str | None, interval_s: float) -> ExitCode:
    # What draws on a terminal is loaded only where it is asked for.
    from migrator.report.view_watch import open_watch  # noqa: PLC0415
    from migrator.report.watch import pause_s, read_watch  # noqa: PLC0415

    with wiring.ledger(read_only=True) as ledger:
        facts = read_watch(ledger, now_s=wiring.clock.now_s(), plan=plan_name, is_gone=app.process_is_gone)
        with open_watch(sys.stdout) as view:
            problem, look_s = "", 0.0
            while True:
                view.show(facts, problem)
                if not view.wait(pause_s(interval_s, look_s)):
                    return ExitCode.DONE
                began_s = monotonic()
                try:
                    facts = read_watch(
                        ledger,
                        now_s=wiring.clock.now_s(),
                        plan=plan_name,
                        is_gone=app.process_is_gone,
                        before=facts,
                    )
                    problem = ""
                except MigratorError as error:
                    problem = f"not read anew: {error.message}"
                look_s = monotonic() - began_s
