"""What retiring the source volume came to."""

from collections.abc import Iterator

from migrator.adapters.output.document import (
    Block,
    Document,
    Facts,
    Section,
    facts,
    figure,
    paragraph,
    paths,
    table,
    text,
)
from migrator.adapters.output.wording import when
from migrator.domain.paths import show
from migrator.domain.retirement import (
    CoverFound,
    PathSum,
    RetireEnding,
    RetirementRecord,
    RetirementState,
    RetirementSummary,
    UncoveredKind,
)
from migrator.domain.units import format_count, format_size

_KINDS = {
    UncoveredKind.OUTSIDE: "in no user tree",
    UncoveredKind.NOT_MOVED: "of users who were not cut over",
    UncoveredKind.UNPROVEN: "in trees whose manifest does not count",
    UncoveredKind.NEW: "not in the manifest of their tree",
    UncoveredKind.CHANGED: "changed since the verification",
    UncoveredKind.CONTENT: "without a proof of their content",
}
_STATES = {
    RetirementState.RETIRING: "it was about to be stopped: the same command goes on",
    RetirementState.STOPPING: "it was just about to be stopped: the same command goes on",
    RetirementState.RETIRED: "retired: stopped for good",
    RetirementState.GIVEN_UP: "not retired: the attempt was given up",
}


def retirement_document(summary: RetirementSummary) -> Document:
    """The whole of it."""
    title = "Retiring the volume, dry run" if summary.dry_run else "Retiring the volume"
    return Document(title=title, subtitle=summary.volume, sections=(Section(title="", blocks=tuple(_blocks(summary))),))


def retirement_facts(record: RetirementRecord) -> Facts:
    """How an attempt stands, for whoever reports."""
    pairs = [
        ("volume", record.volume),
        ("state", _STATES[record.state]),
        ("begun", when(record.intended_at_s)),
        ("ended", when(record.ended_at_s)),
        ("proven on the target", f"{format_count(record.files)} paths, {format_size(record.size_bytes)}"),
    ]
    if record.failure:
        pairs.append(("why", record.failure))
    return facts(pairs)


def _blocks(summary: RetirementSummary) -> Iterator[Block]:
    yield paragraph(summary.words, alert=summary.ending is RetireEnding.HALTED)
    for reason in summary.reasons:
        yield paragraph(reason, alert=True)
    if summary.cover is not None:
        yield from _cover(summary.cover)
    if summary.hint:
        yield paragraph(f"Next: {summary.hint}." if summary.ending is RetireEnding.HALTED else f"Note: {summary.hint}.")


def _cover(cover: CoverFound) -> Iterator[Block]:
    yield facts(
        [
            ("catalog", f"{cover.catalog}, begun {when(cover.catalog_at_s)}"),
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
    yield table("Not proven to be on the target", [text("which"), figure("paths"), figure("bytes")], rows)
    listed = [(show(one.path), one.words) for one in cover.examples]
    note = "" if cover.list_file is None else f"All of them, percent-escaped: {cover.list_file}"
    yield table("The first of each kind", [paths("path"), paths("why")], listed, note=note)


def _sum(found: PathSum) -> str:
    return f"{format_count(found.paths)} paths, {format_size(found.size_bytes)}"
