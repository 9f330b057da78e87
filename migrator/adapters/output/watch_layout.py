"""Lines of exactly so many cells: what `status --watch` is laid out with. Pure; a cell is a place of a terminal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from rich.cells import cell_len, get_character_cell_size

from migrator.adapters.output.document import clean

LABEL_CELLS = 11
"""What stands left of every part: its name, and how many of its lines are not shown."""

_GAP = 2
_LEAST_FLEXIBLE = 10
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(frozen=True, slots=True)
class Span:
    """Text in one style; whatever is no printable character is escaped when it is made."""

    text: str
    style: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", clean(self.text))

    @property
    def cells(self) -> int:
        """Its width on a terminal."""
        return cell_len(self.text)


Line = tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column of a part. Where room is scarce those with the greatest `drop` are left out first, as long as the `flexible`
    ones would get less than their `least`; then these are cut in their middle; those with 1 are left out where even that
    is not enough, and those with 0 never.
    """

    right: bool = False
    flexible: bool = False
    least: int = _LEAST_FLEXIBLE
    drop: int = 0


class Rank(IntEnum):
    """Who gets lines first in a small window."""

    RUN = 0
    COPIED = 1
    RATE = 2
    LEFT = 3
    WAITS = 4
    STREAMS = 5
    ALLOWED = 6
    BRICKS = 7
    BATCHES = 8
    USERS = 9
    VERIFIED = 10
    PROBES = 11
    EVENTS = 12
    RESTING_BRICKS = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some lines under one name. In a small window it gets `least` of them, after those of a lower `rank`."""

    label: str
    lines: tuple[Line, ...]
    rank: Rank
    least: int = 1
    style: str = ""


def text_of(line: Line) -> str:
    """A line without styles."""
    return "".join(span.text for span in line)


def cells_of(line: Line) -> int:
    """The width of a line."""
    return sum(span.cells for span in line)


def cut(text: str, cells: int) -> str:
    """Text of at most so many cells; what is too much is taken from its middle, because names differ at their ends."""
    if cell_len(text) <= cells:
        return text
    if cells <= 0:
        return ""
    kept = cells - 1
    return _head(text, kept - kept // 2) + _ELLIPSIS + _head(text[::-1], kept // 2)[::-1]


def _head(text: str, cells: int) -> str:
    used = 0
    for place, character in enumerate(text):
        used += get_character_cell_size(character)
        if used > cells:
            return text[:place]
    return text


def fitted(line: Line, width: int) -> Line:
    """A line in at most so many cells: what stands beyond is cut off, and an ellipsis says so."""
    if cells_of(line) <= width:
        return line
    shown: list[Span] = []
    left = width - 1
    for span in line:
        if left <= 0:
            break
        head = _head(span.text, left)
        shown.append(Span(head, span.style))
        left -= cell_len(head)
        if head != span.text:
            break
    return (*shown, Span(_ELLIPSIS)) if width > 0 else ()


def padded(line: Line, width: int) -> Line:
    """A line in exactly so many cells."""
    shown = fitted(line, width)
    return (*shown, Span(" " * (width - cells_of(shown))))


def sides(left: Line, right: Line, width: int) -> Line:
    """Two ends of one line; the left one is cut where both do not fit."""
    room = max(width - cells_of(right) - _GAP, 0)
    return fitted((*padded(left, room), Span(" " * _GAP), *right), width)


def grid(fields: Sequence[Field], rows: Sequence[Sequence[Span]], width: int) -> tuple[Line, ...]:
    """Rows with their cells one below the other, in at most so many cells."""
    needed = [max((row[number].cells for row in rows), default=0) for number in range(len(fields))]
    shown = [number for number, cells in enumerate(needed) if cells]
    for last, most in ((2, None), (1, _LEAST_FLEXIBLE)):
        least = [
            min(cells, most or field.least) if field.flexible else cells
            for field, cells in zip(fields, needed, strict=True)
        ]
        while _total(least, shown) > width and (droppable := [at for at in shown if fields[at].drop >= last]):
            shown.remove(max(droppable, key=lambda at: fields[at].drop))
    widths = list(needed)
    while _total(widths, shown) > width:
        flexible = [at for at in shown if widths[at] > least[at]]
        if not flexible:
            break
        widths[max(flexible, key=lambda at: widths[at])] -= 1
    return tuple(fitted(_row(fields, row, shown, widths), width) for row in rows)


def _total(widths: Sequence[int], shown: Sequence[int]) -> int:
    return sum(widths[at] for at in shown) + _GAP * max(len(shown) - 1, 0)


def _row(fields: Sequence[Field], row: Sequence[Span], shown: Sequence[int], widths: Sequence[int]) -> Line:
    spans: list[Span] = []
    for place, at in enumerate(shown):
        text = cut(row[at].text, widths[at]) if fields[at].flexible else row[at].text
        blank = Span(" " * max(widths[at] - cell_len(text), 0))
        cell = Span(text, row[at].style)
        spans += [blank, cell] if fields[at].right else [cell, blank]
        if place < len(shown) - 1:
            spans.append(Span(" " * _GAP))
    return tuple(spans)


def arranged(
    parts: Sequence[Part], width: int, height: int, *, dense: bool = False
) -> tuple[tuple[Line, ...], tuple[str, ...]]:
    """Parts one below the other in their order, in at most so many lines, and the names of those that found no room.

    Unless it is to be `dense`, blank lines between the parts use what is left where every line of every part fits.
    """
    given = _given([part for part in parts if part.lines], height)
    shown = [(part, given[part.label]) for part in parts if given.get(part.label)]
    left_out = tuple(part.label for part in parts if part.lines and not given.get(part.label))
    spare = height - sum(count for _, count in shown)
    airy = not dense and spare >= len(shown) - 1 and all(count == len(part.lines) for part, count in shown)
    lines: list[Line] = []
    for place, (part, count) in enumerate(shown):
        if airy and place:
            lines.append(())
        lines.extend(_labelled(part, count, width))
    return tuple(lines), left_out


def _given(parts: Sequence[Part], height: int) -> dict[str, int]:
    """How many lines each part gets: their least by rank, then one more each by turns."""
    given: dict[str, int] = {}
    left = height
    by_rank = sorted(parts, key=lambda part: part.rank)
    for part in by_rank:
        given[part.label] = min(part.least, len(part.lines), left)
        left -= given[part.label]
    hungry = by_rank
    while left > 0 and hungry:
        hungry = [part for part in hungry if given[part.label] < len(part.lines)]
        for part in hungry[:left]:
            given[part.label] += 1
            left -= 1
    return given


def _labelled(part: Part, count: int, width: int) -> Iterator[Line]:
    hidden = len(part.lines) - count
    for place, line in enumerate(part.lines[:count]):
        label = Span(part.label, part.style or "dim") if place == 0 else Span("")
        if hidden and place and place == count - 1:
            label = Span(f"+{hidden} more", "dim")
        yield (*padded((label,), LABEL_CELLS), *fitted(line, max(width - LABEL_CELLS, 0)))


def beside(left: Sequence[Line], right: Sequence[Line], left_width: int) -> Iterator[Line]:
    """Two columns with a rule between them."""
    for place in range(max(len(left), len(right))):
        one = left[place] if place < len(left) else ()
        other = right[place] if place < len(right) else ()
        yield (*padded(one, left_width), Span(" \N{BOX DRAWINGS LIGHT VERTICAL} ", "dim"), *other)
