"""The document that shows the settings of hosts and the advice for them."""

from collections.abc import Iterator

from msgspec.structs import replace

from migrator.core.units import first_of, several
from migrator.doctor.model import ConfigurationCheck, TuningFinding, TuningReport
from migrator.render import document as doc
from migrator.report.view_status import finding_document

_SHOWN = 8


def tuning_document(report: TuningReport) -> doc.Document:
    """Dangerous settings, then advice, then what is unknown."""
    dangerous = [one for one in report.findings if one.dangerous]
    others = [one for one in report.findings if not one.dangerous]
    verdict = (
        f"{several(len(dangerous), 'dangerous setting')}, {len(others):,} with other advice; "
        f"{several(report.compared, 'setting')} compared, {len(report.unknown):,} unknown."
    )
    return doc.page(
        "Tuning",
        ("Dangerous settings", _blocks(dangerous)),
        ("Advice", _blocks(others)),
        ("Unknown", _unknown(report)),
        subtitle=verdict,
    )


def configuration_document(check: ConfigurationCheck, *, details: bool) -> doc.Document:
    """The findings, and the settings that differ from their defaults; with `details` all settings."""
    findings = finding_document(check.findings)
    shown = [one for one in check.settings if details or not one.is_default]
    columns = [doc.text("section"), doc.text("key"), doc.paths("value"), doc.wide("meaning")]
    rows = [(one.section, one.key, one.value or doc.NONE, one.meaning) for one in shown]
    title = "Settings" if details else "Settings other than the defaults (--details: all)"
    settings = doc.sections((title, [doc.table("", columns, rows)]))
    return replace(findings, title="Configuration", sections=(*findings.sections, *settings))


def _blocks(findings: list[TuningFinding]) -> Iterator[doc.Block]:
    for one in findings:
        value = one.value or "not set"
        yield doc.facts(
            [
                (one.key, f"{value}; advised: {one.advised}"),
                ("where", first_of(one.places, _SHOWN, mark=";")),
                ("by", f"{one.by}; {one.when}"),
                ("why", one.why),
                ("risk", one.risk),
            ]
        )


def _unknown(report: TuningReport) -> Iterator[doc.Block]:
    for problem in report.problems:
        yield doc.paragraph(problem, alert=True)
    if report.unknown:
        yield doc.paragraph(first_of(report.unknown, _SHOWN, mark=";"))
