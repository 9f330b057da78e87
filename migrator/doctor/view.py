"""The document that shows the settings of hosts and the advice for them."""

from collections.abc import Iterator

from migrator.core.units import first_of, several
from migrator.doctor.model import TuningFinding, TuningReport
from migrator.render import document as doc

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
