"""`report`: status, history, forecast and proofs. Reads the ledger only."""

import os
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click

from migrator import app
from migrator.cli.call import details_option, open_wiring, plan_option, present, run_shown, run_to_end, verb
from migrator.cli.invocation import Invocation
from migrator.core.durable import write_durably
from migrator.core.errors import ExitCode, MigratorError, UsageError
from migrator.operations.run_files import CallPorts
from migrator.plan.usage import kept_usage
from migrator.render.document import Document
from migrator.render.text import to_json, to_markdown
from migrator.report.model import EarlierReport, ReportFacts
from migrator.report.report import read_earlier, read_report, require_report_hooks, send_report
from migrator.report.view import report_document

_ROWS_ON_TERMINAL = 20
_JSON = "report.json"
_SENT = "sent"


@click.command("report")
@plan_option
@details_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write report.html, .md, .csv and .json to this directory.",
)
@click.option(
    "--since",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    help="Compare with an earlier report.json or its directory (default: the one in --output; "
    "with --send alone the one that it sent last).",
)
@click.option("--pdf", is_flag=True, help="Also write report.pdf; needs Chromium.")
@click.option(
    "--send",
    is_flag=True,
    help="Pass the report to the hooks of post-report.d; without --output it is kept in the state directory.",
)
@verb
def report_command(
    invocation: Invocation,
    *,
    plan_name: str | None,
    details: bool,
    output: Path | None,
    since: Path | None,
    pdf: bool,
    send: bool,
) -> ExitCode:
    """Report for management: progress, history, forecast, proofs."""
    if pdf and output is None and not send:
        raise UsageError("--pdf needs a place for the file", hint="name a directory with --output")
    wiring = open_wiring(invocation)
    if send:
        run_to_end(require_report_hooks(wiring.hooks(), wiring.blocking))
    now_s = wiring.clock.now_s()
    kept = wiring.site.site.state_dir / "reports"
    with wiring.ledger(read_only=True) as ledger:
        facts = read_report(
            ledger,
            wiring.plans(None),
            now_s=now_s,
            plan=plan_name,
            holders=wiring.locks().holders,
            earlier=_earlier(since, output or (_last(kept) if send else None)),
            usage=kept_usage(wiring.site.site.state_dir),
        )
    directory = output or (kept / _name(now_s) if send else None)
    if directory is not None:
        written = _write(directory, facts, report_document(facts), pdf=pdf)
        click.echo(f"migrator: wrote {', '.join(written)} to {directory}", err=True)
    present(
        invocation,
        facts,
        lambda facts: report_document(facts, rows=_ROWS_ON_TERMINAL),
        more="" if details else "migrator report --details, or --output DIRECTORY for files",
    )
    if directory is None or not send:
        return ExitCode.DONE
    code = _send(wiring, directory, facts)
    if code is ExitCode.DONE and output is None:
        with suppress(FileNotFoundError):  # a hook may move the report away
            (directory / _SENT).touch()
    return code


def _earlier(since: Path | None, directory: Path | None) -> EarlierReport | None:
    """The report to compare with: `since`, which must be a report, otherwise the one in `directory` if there is one."""
    place = since or directory
    if place is None or (since is None and not (place / _JSON).exists()):
        return None
    try:
        return read_earlier(place)
    except UsageError:
        if since is not None:
            raise
        return None


def _name(at_s: float) -> str:
    at = datetime.fromtimestamp(at_s, UTC)
    # To the millisecond, so that names are unique and sort by time.
    return f"{at:%Y%m%dT%H%M%S}.{at.microsecond // 1000:03d}Z"


def _last(kept: Path) -> Path | None:
    """The newest report that all hooks took."""
    newest = max(kept.glob(f"*Z/{_SENT}"), default=None)
    return None if newest is None else newest.parent


def _write(directory: Path, facts: ReportFacts, document: Document, *, pdf: bool) -> list[str]:
    # Loaded here because the template engine takes long to load.
    from migrator.render.html import print_pdf, to_html  # noqa: PLC0415
    from migrator.report.view import to_csv  # noqa: PLC0415

    forms: dict[str, Callable[[], str]] = {
        "report.html": lambda: to_html(document),
        "report.md": lambda: to_markdown(document),
        "report.csv": lambda: to_csv(facts),
        _JSON: lambda: to_json(facts),
    }
    with MigratorError.of_files(f"the report cannot be written to {directory}", hint="name another directory"):
        directory.mkdir(parents=True, exist_ok=True)
        for name, make in forms.items():
            write_durably(directory / name, make().encode())
    if pdf:
        page = (directory / "report.html").resolve()
        run_to_end(print_pdf(app.processes(), page, directory / "report.pdf"))
    else:
        # A PDF of an earlier report would be taken for this one.
        (directory / "report.pdf").unlink(missing_ok=True)
    return [*forms, *(["report.pdf"] if pdf else [])]


def _send(wiring: app.Wiring, directory: Path, facts: ReportFacts) -> ExitCode:
    plan = None if facts.status.plan is None else facts.status.plan.name
    with wiring.ledger() as ledger:
        problem = run_shown(
            wiring,
            lambda shown: send_report(
                CallPorts(**wiring.operation_ports(ledger, shown)),
                os.fsencode(directory.resolve()),
                plan,
                pid=os.getpid(),
            ),
            when_interrupted=f"the report lies in {directory}; run the same command again to send it",
        )
    if problem:
        click.echo(f"migrator: the report in {directory} was not sent: {problem}", err=True)
        return ExitCode.FAILED
    return ExitCode.DONE
