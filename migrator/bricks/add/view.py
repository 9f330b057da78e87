"""Documents of additions."""

from collections.abc import Iterator, Sequence

from migrator.bricks.add.model import AdditionSide, AdditionStanding, AdditionSummary
from migrator.bricks.model import CallEnding
from migrator.bricks.view_cells import progress_cells, size_text
from migrator.core.paths import show
from migrator.core.units import format_count, format_size, several
from migrator.gluster.model import ListedDirectory, NewPlace
from migrator.render import document
from migrator.render.document import figure, text, wide

_DIRECTORIES = 50


def addition_document(summary: AdditionSummary) -> document.Document:
    """Show the full result of an addition."""
    return document.page("Adding bricks, dry run" if summary.dry_run else "Adding bricks", ("", _blocks(summary)))


def _place(instead_of: str, bricks: Sequence[str]) -> str:
    """Name the brick that the new one replaces."""
    return "its own place" if instead_of in bricks else f"the place of {instead_of}"


def _new_bricks(one: AdditionStanding) -> str:
    instead = "" if one.instead_of is None else f" in {_place(one.instead_of, one.bricks)}"
    return ", ".join(one.bricks) + instead


def _examined(one: AdditionStanding) -> str:
    return format_count(one.lookups) + ("" if one.files is None else f" of {format_count(one.files)}")


_ADDITION: document.Cells[AdditionStanding] = (
    (wide("bricks"), _new_bricks),
    (text("to"), lambda one: f"the {one.side.value}"),
    (text("state"), lambda one: one.state.value),
    (text("since"), lambda one: document.when(one.since_s)),
    (figure("size"), lambda one: size_text(one.size_bytes)),
    (figure("examined"), _examined),
    (figure("moved"), lambda one: format_count(one.moved_files)),
    (figure("bytes"), lambda one: format_size(one.moved_bytes)),
    *progress_cells("last poll"),
)


def addition_table(additions: Sequence[AdditionStanding]) -> document.Block:
    """Show the progress of each addition."""
    return document.records("", _ADDITION, additions)


def directory_tables(directories: Sequence[ListedDirectory]) -> Iterator[document.Block]:
    """Show directories that lost owner or mode on new bricks and wait for an admin, if any."""
    if directories:
        columns = [wide("directory"), wide("reason"), wide("command")]
        rows = [(show(one.path), one.reason, one.command) for one in directories]
        yield document.table("Directories that wait for an admin", columns, rows, limit=_DIRECTORIES)


def _blocks(summary: AdditionSummary) -> Iterator[document.Block]:
    bad = summary.ending in (CallEnding.HALTED, CallEnding.STUCK, CallEnding.DOUBTED)
    yield document.paragraph(summary.words, alert=bad)
    for reason in summary.reasons:
        yield document.paragraph(reason, alert=True)
    if summary.hint:
        yield document.paragraph(summary.hint)
    pairs = [("bricks", ", ".join(summary.bricks)), ("to", f"the {summary.side.value}"), ("state", summary.state.value)]
    if summary.instead_of is not None:
        pairs.append(("in", _place(summary.instead_of, summary.bricks)))
    if summary.size_bytes is not None:
        pairs.append(("size", format_size(summary.size_bytes)))
    if summary.moved_files or summary.failures or summary.skipped:
        pairs.append(("moved", f"{several(summary.moved_files, 'file')}, {format_size(summary.moved_bytes)}"))
        pairs.append(("failures", format_count(summary.failures)))
        pairs.append(("skipped", format_count(summary.skipped)))
    yield document.facts(pairs)
    yield from directory_tables(summary.directories)
    # By then the target's new bricks are mounted elsewhere.
    given = summary.side is AdditionSide.TARGET and summary.ending is CallEnding.DONE
    if summary.places and not given:
        columns = [wide("brick"), *map(text, ("mounted at", "device", "file system")), figure("size"), wide("holds")]
        yield document.table("", columns, [_place_row(place) for place in summary.places])


def _place_row(place: NewPlace) -> tuple[str, ...]:
    if place.unread:
        return (place.name, *(document.NONE,) * 4, f"unknown: {place.unread}")
    holds = ", ".join(place.entries) or ("marks of a brick" if place.stale else "nothing")
    return (
        place.name,
        place.mount if place.own else f"{place.mount} (not its own)",
        place.device or document.NONE,
        place.filesystem or document.NONE,
        size_text(place.total_bytes),
        holds,
    )
