"""`report`: the status with its history and its proofs. It reads the ledger and disturbs nothing."""

from pathlib import Path

import click

from migrator import bootstrap
from migrator.adapters.output.document import Document
from migrator.adapters.output.json_form import to_json
from migrator.adapters.output.markdown import to_markdown
from migrator.adapters.output.report_document import report_document
from migrator.cli.context import open_site, verb
from migrator.cli.invocation import Invocation
from migrator.cli.options import plan_option
from migrator.cli.present import present
from migrator.domain.errors import ExitCode, MigratorError
from migrator.domain.report import ReportFacts
from migrator.stages.report import read_report

_ROWS_ON_TERMINAL = 20


@click.command("report")
@plan_option
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    help="Also write report.html, report.md and report.json into this directory.",
)
@verb
def report_command(invocation: Invocation, plan_name: str | None, output: Path | None) -> ExitCode:
    """The status with its history and its proofs, for management."""
    wiring = bootstrap.Wiring(open_site(invocation))
    with wiring.ledger(read_only=True) as ledger:
        facts = read_report(
            ledger,
            wiring.plans(None),
            now_s=wiring.clock.now_s(),
            plan=plan_name,
            is_gone=bootstrap.process_is_gone,
        )
    if output is not None:
        _write(output, facts, report_document(facts))
    present(invocation, facts, lambda facts: report_document(facts, rows=_ROWS_ON_TERMINAL))
    if output is not None:
        click.echo(f"migrator: wrote report.html, report.md and report.json to {output}", err=True)
    return ExitCode.DONE


def _write(directory: Path, facts: ReportFacts, document: Document) -> None:
    # With its template engine, the form that takes the longest to load; only this option asks for it.
    from migrator.adapters.output.html import to_html  # noqa: PLC0415

    forms = {"report.html": to_html(document), "report.md": to_markdown(document), "report.json": to_json(facts)}
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in forms.items():
            (directory / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise MigratorError(
            f"the report cannot be written to {directory}: {error.strerror}", hint="name another directory"
        ) from error
