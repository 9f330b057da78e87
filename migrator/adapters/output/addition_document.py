"""What an addition of bricks came to."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.document import Block, Document, Section, facts, figure, paragraph, table, text, wide
from migrator.adapters.output.wording import NONE, when
from migrator.domain.addition import AdditionSide
from migrator.domain.addition_run import AdditionEnding, AdditionSummary
from migrator.domain.addition_seen import NewPlace
from migrator.domain.addition_standing import AdditionStanding
from migrator.domain.directory_owners import ListedDirectory
from migrator.domain.paths import show
from migrator.domain.units import format_count, format_duration, format_rate, format_size, several

_DIRECTORIES = 50


def addition_document(summary: AdditionSummary) -> Document:
    """The whole of it."""
    title = "Adding bricks, dry run" if summary.dry_run else "Adding bricks"
    return Document(title=title, subtitle="", sections=(Section(title="", blocks=tuple(_blocks(summary))),))


def addition_table(additions: Sequence[AdditionStanding]) -> Block:
    """How far every addition is."""
    columns = [
        wide("bricks"),
        text("to"),
        text("state"),
        text("since"),
        figure("size"),
        figure("looked at"),
        figure("moved"),
        figure("bytes"),
        figure("failures"),
        figure("skipped"),
        figure("rate"),
        figure("time left"),
        text("last look"),
    ]
    return table("", columns, [_standing(one) for one in additions])


def directory_tables(directories: Sequence[ListedDirectory]) -> Iterator[Block]:
    """Directories that lost owner or mode on the way to new bricks and wait for people, if there are any."""
    if directories:
        columns = [wide("directory"), wide("why it waits"), wide("what puts it right")]
        rows = [(show(one.path), one.reason, one.command) for one in directories]
        yield table("Directories that wait for somebody", columns, rows, limit=_DIRECTORIES)


def _standing(one: AdditionStanding) -> tuple[str, ...]:
    instead = "" if one.instead_of is None else f" in {_place(one.instead_of, one.bricks)}"
    return (
        ", ".join(one.bricks) + instead,
        f"the {one.side.value}",
        one.state.value,
        when(one.since_s),
        NONE if one.size_bytes is None else format_size(one.size_bytes),
        format_count(one.lookups) + ("" if one.files is None else f" of {format_count(one.files)}"),
        format_count(one.moved_files),
        format_size(one.moved_bytes),
        format_count(one.failures),
        format_count(one.skipped),
        NONE if one.bytes_per_s is None else format_rate(one.bytes_per_s),
        NONE if one.left_s is None else format_duration(one.left_s),
        when(one.looked_at_s),
    )


def _place(instead_of: str, bricks: Sequence[str]) -> str:
    """Whose place a brick takes."""
    return "its own place" if instead_of in bricks else f"the place of {instead_of}"


def _blocks(summary: AdditionSummary) -> Iterator[Block]:
    bad = summary.ending in (AdditionEnding.HALTED, AdditionEnding.STUCK, AdditionEnding.DOUBTED)
    yield paragraph(summary.words, alert=bad)
    for reason in summary.reasons:
        yield paragraph(reason, alert=True)
    if summary.hint:
        yield paragraph(summary.hint)
    pairs = [("bricks", ", ".join(summary.bricks)), ("to", f"the {summary.side.value}"), ("state", summary.state.value)]
    if summary.instead_of is not None:
        pairs.append(("in", _place(summary.instead_of, summary.bricks)))
    if summary.size_bytes is not None:
        pairs.append(("size", format_size(summary.size_bytes)))
    if summary.moved_files or summary.failures or summary.skipped:
        pairs.append(("moved", f"{several(summary.moved_files, 'file')}, {format_size(summary.moved_bytes)}"))
        pairs.append(("failures", format_count(summary.failures)))
        pairs.append(("skipped", format_count(summary.skipped)))
    yield facts(pairs)
    yield from directory_tables(summary.directories)
    # What the target has been given is mounted elsewhere by then.
    given = summary.side is AdditionSide.TARGET and summary.ending is AdditionEnding.DONE
    if summary.places and not given:
        columns = [
            wide("brick"),
            text("mounted at"),
            text("device"),
            text("file system"),
            figure("size"),
            wide("holds"),
        ]
        yield table("", columns, [_row(place) for place in summary.places])


def _row(place: NewPlace) -> tuple[str, ...]:
    if place.unread:
        return (place.name, NONE, NONE, NONE, NONE, f"not known: {place.unread}")
    holds = ", ".join(place.entries) or ("marks of a brick" if place.stale else "nothing")
    return (
        place.name,
        place.mount if place.own else f"{place.mount} (not its own)",
        place.device or NONE,
        place.filesystem or NONE,
        NONE if place.total_bytes is None else format_size(place.total_bytes),
        holds,
    )
