"""Documents of retirements."""

from collections.abc import Iterator

from migrator.bricks.model import CallEnding
from migrator.bricks.retire import model
from migrator.core.paths import show
from migrator.core.units import format_count, format_size
from migrator.render import document
from migrator.render.document import figure, paths, text

_KINDS = {
    model.UncoveredKind.OUTSIDE: "in no user tree",
    model.UncoveredKind.NOT_MOVED: "of users who were not cut over",
    model.UncoveredKind.UNPROVEN: "in trees whose manifest does not count",
    model.UncoveredKind.NEW: "not in the manifest of their tree",
    model.UncoveredKind.CHANGED: "changed since the verification",
    model.UncoveredKind.CONTENT: "without a proof of their content",
}
_STATES = {
    model.RetirementState.RETIRING: "it was about to be stopped: the same command resumes",
    model.RetirementState.STOPPING: "it was just about to be stopped: the same command resumes",
    model.RetirementState.RETIRED: "retired: stopped for good",
    model.RetirementState.GIVEN_UP: "not retired: the attempt was given up",
}


def retirement_document(summary: model.RetirementSummary) -> document.Document:
    """Show the full result of a retirement."""
    title = "Retiring the volume, dry run" if summary.dry_run else "Retiring the volume"
    return document.page(title, ("", _blocks(summary)), subtitle=summary.volume)


def retirement_facts(record: model.Retirement) -> document.NamedValues:
    """Return the state of an attempt, for reports."""
    pairs = [
        ("volume", record.volume),
        ("state", _STATES[record.state]),
        ("begun", document.when(record.times[model.RetirementState.RETIRING])),
        ("ended", document.when(None if record.state in model.UNDER_WAY else record.since_s)),
        ("proven on the target", f"{format_count(record.files)} paths, {format_size(record.size_bytes)}"),
    ]
    if record.failure:
        pairs.append(("why", record.failure))
    return document.facts(pairs)


def _blocks(summary: model.RetirementSummary) -> Iterator[document.Block]:
    yield document.paragraph(summary.words, alert=summary.ending is CallEnding.HALTED)
    for reason in summary.reasons:
        yield document.paragraph(reason, alert=True)
    if summary.cover is not None:
        yield from _cover(summary.cover)
    if summary.hint:
        yield document.paragraph(
            f"Next: {summary.hint}." if summary.ending is CallEnding.HALTED else f"Note: {summary.hint}."
        )


def _cover(cover: model.CoverFound) -> Iterator[document.Block]:
    yield document.facts(
        [
            ("catalog", f"{cover.catalog}, begun {document.when(cover.catalog_at_s)}"),
            ("proven", _sum(cover.proven)),
            ("of these read again", _sum(cover.read)),
            ("this program's own", _sum(cover.own)),
        ]
    )
    if not cover.uncovered:
        return
    rows = [
        (_KINDS[kind], format_count(one.paths), format_size(one.size_bytes)) for kind, one in cover.uncovered.items()
    ]
    yield document.table(
        "Not proven to be on the target",
        [text("which"), figure("paths"), figure("bytes")],
        rows,
    )
    listed = [(show(one.path), one.words) for one in cover.examples]
    note = "" if cover.list_file is None else f"All of them, percent-escaped: {cover.list_file}"
    yield document.table("The first of each kind", [paths("path"), paths("why")], listed, note=note)


def _sum(found: model.PathSum) -> str:
    return f"{format_count(found.paths)} paths, {format_size(found.size_bytes)}"
