"""`report`: status, history, forecast and proofs. Reads the ledger only."""

import os
from collections.abc import Callable
from pathlib import Path

import click
from msgspec.structs import replace

from migrator import app
from migrator.cli.call import details_option, open_wiring, plan_option, present, run_shown, run_to_end, verb
from migrator.cli.global_options import GlobalOptions
from migrator.core.durable import write_durably
from migrator.core.errors import ExitCode, MigratorError, Refused, UsageError
from migrator.notices.model import USERS
from migrator.operations.run_files import CallPorts
from migrator.plan.usage import kept_usage
from migrator.render.document import Document
from migrator.render.log import MESSAGES
from migrator.render.text import to_json, to_markdown
from migrator.report.kept_reports import REPORT_JSON, KeptReports, read_earlier
from migrator.report.model import ReportFacts
from migrator.report.report import read_report, require_report_hooks, send_report
from migrator.report.status import forecast_settings
from migrator.report.view import report_document

_ROWS_ON_TERMINAL = 20


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
    help="Compare with this report.json or its directory (default: the report that was sent last).",
)
@click.option(
    "--baseline", is_flag=True, help="Make the dates of this report the promise that all later reports compare with."
)
@click.option("--pdf", is_flag=True, help="Also write report.pdf; needs Chromium.")
@click.option(
    "--send",
    is_flag=True,
    help="Pass the report to the hooks of post-report.d.",
)
@verb
def report_command(
    global_options: GlobalOptions,
    *,
    plan_name: str | None,
    details: bool,
    output: Path | None,
    since: Path | None,
    baseline: bool,
    pdf: bool,
    send: bool,
) -> ExitCode:
    """Report for management: progress, history, forecast, proofs."""
    if pdf and output is None and not send:
        raise UsageError("--pdf requires --output", hint="add --output DIRECTORY")
    wiring = open_wiring(global_options)
    if send:
        run_to_end(require_report_hooks(wiring.hooks(), wiring.blocking))
    now_s = wiring.clock.now_s()
    kept = KeptReports(directory=wiring.site.site.state_dir / "reports")
    with wiring.ledger(read_only=True) as ledger:
        against = kept.comparisons(now_s=now_s)
        if since is not None:
            against = replace(against, earlier=read_earlier(since))
        facts = read_report(
            ledger,
            wiring.plans(None),
            now_s=now_s,
            plan=plan_name,
            holders=wiring.locks().holders,
            against=against,
            usage=kept_usage(wiring.site.site.state_dir),
            settings=forecast_settings(wiring.site),
        )
    if baseline and (facts.status.plan is None or facts.status.forecast is None):
        raise Refused(
            "this report cannot be the promise: it has no expected end of copying",
            cause="too little was copied, or nothing is left to copy",
            hint="repeat the command when `migrator status` shows an expected end; until then the first plan is the promise",
        )
    place = _keep(kept, facts, asked=baseline or send or output is not None)
    if baseline:
        if place is None:
            raise MigratorError(
                "later reports cannot compare with this one", hint="free disk space, then run the same command again"
            )
        kept.mark_baseline(place)
        MESSAGES.info("migrator: later reports compare with the dates of this one")
    directory = output or (kept.place(facts) if send else None)
    if directory is not None:
        written = [
            *_write(directory, facts, report_document(facts), pdf=pdf),
            *_write_notices(wiring, directory, facts),
        ]
        MESSAGES.info("migrator: wrote %s to %s", ", ".join(written), directory)
    present(
        global_options,
        facts,
        lambda facts: report_document(facts, rows=_ROWS_ON_TERMINAL),
        more="" if details else "migrator report --details, or --output DIRECTORY for files",
    )
    if directory is None or not send:
        return ExitCode.DONE
    code = _send(wiring, directory, facts)
    if code is ExitCode.DONE and place is not None:
        kept.mark_sent(place)
    return code


def _keep(kept: KeptReports, facts: ReportFacts, *, asked: bool) -> Path | None:
    """Keep the report for later ones to compare with. A failure costs only that: the report itself is shown."""
    try:
        return kept.keep(facts, asked=asked)
    except OSError as error:
        MESSAGES.warning("migrator: the report cannot be kept in %s: %s", kept.directory, error.strerror)
        return None


def _write(directory: Path, facts: ReportFacts, document: Document, *, pdf: bool) -> list[str]:
    # Loaded here because the template engine takes long to load.
    from migrator.render.html import print_pdf, to_html  # noqa: PLC0415
    from migrator.report.view import to_csv  # noqa: PLC0415

    forms: dict[str, Callable[[], str]] = {
        "report.html": lambda: to_html(document),
        "report.md": lambda: to_markdown(document),
        "report.csv": lambda: to_csv(facts),
        REPORT_JSON: lambda: to_json(facts),
    }
    with MigratorError.of_files(f"the report cannot be written to {directory}", hint="name another directory"):
        directory.mkdir(parents=True, exist_ok=True)
        for name, make in forms.items():
            write_durably(directory / name, make().encode())
    if pdf:
        page = (directory / "report.html").resolve()
        with MigratorError.of_files(f"the report cannot be written to {directory}", hint="name another directory"):
            run_to_end(print_pdf(app.processes(), page, directory / "report.pdf"))
    else:
        # A PDF of an earlier report would be taken for this one.
        (directory / "report.pdf").unlink(missing_ok=True)
    return [*forms, *(["report.pdf"] if pdf else [])]


def _write_notices(wiring: app.Wiring, directory: Path, facts: ReportFacts) -> list[str]:
    from migrator.notices.files import read_facts, write_notices  # noqa: PLC0415 - loads the template engine, as above

    if facts.status.site is None:
        return []  # before `init`
    with wiring.ledger(read_only=True) as ledger:
        notice_facts = read_facts(ledger, facts.status, facts.plan, wiring.notice_place(ledger))
    with MigratorError.of_files(f"notices to users cannot be written to {directory}", hint="name another directory"):
        return write_notices(directory, notice_facts)


def _send(wiring: app.Wiring, directory: Path, facts: ReportFacts) -> ExitCode:
    plan = None if facts.status.plan is None else facts.status.plan.name
    with wiring.ledger() as ledger:
        problem = run_shown(
            wiring,
            lambda shown: send_report(
                CallPorts(**wiring.operation_ports(ledger, shown)),
                os.fsencode(directory.resolve()),
                plan,
                notices=os.fsencode(directory.resolve() / USERS),
                pid=os.getpid(),
            ),
            when_interrupted=f"the report is in {directory}; run the same command again to send it",
        )
    if problem:
        MESSAGES.error("migrator: the report in %s was not sent: %s", directory, problem)
        return ExitCode.FAILED
    return ExitCode.DONE
