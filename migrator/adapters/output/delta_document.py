"""The delta passes of one run over a batch, as a table."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.document import Block, figure, paragraph, table, text
from migrator.adapters.output.wording import NONE
from migrator.domain.changes import ChangeKind, Changes
from migrator.domain.run import DeltaSummary
from migrator.domain.units import format_count, format_duration, format_size, several

_COLUMNS: Sequence[tuple[str, tuple[ChangeKind, ...]]] = (
    ("new", (ChangeKind.NEW,)),
    ("changed", (ChangeKind.GROWN, ChangeKind.REWRITTEN, ChangeKind.ATTRIBUTES)),
    ("renamed", (ChangeKind.RENAMED,)),
    ("vanished", (ChangeKind.VANISHED,)),
    ("sent to be sure", (ChangeKind.UNSETTLED,)),
)


def delta_blocks(deltas: Sequence[DeltaSummary]) -> Iterator[Block]:
    """What had changed, what each pass sent, and what was decided after the last one; nothing where there is none."""
    if not deltas:
        return
    columns = [
        text("pass"),
        *(figure(title) for title, _ in _COLUMNS),
        figure("files sent"),
        figure("bytes sent"),
        figure("scan and comparison"),
        figure("pass took"),
        figure("freeze now"),
    ]
    yield table("Delta passes", columns, [_row(delta) for delta in deltas])
    for delta in deltas:
        if delta.sentence:
            yield paragraph(_capital(delta.sentence))


def follow_words(at_most: int) -> str:
    """That delta passes would follow what a dry run shows."""
    return (
        f"After that, {several(at_most, 'delta pass', 'delta passes')} at most would follow, for what users change. They are "
        "not previewed: each begins with a scan of the source."
    )


def _row(delta: DeltaSummary) -> tuple[str, ...]:
    return (
        str(delta.number),
        *(_count(delta.changes, kinds) for _, kinds in _COLUMNS),
        format_count(delta.files),
        format_size(delta.size_bytes),
        format_duration(delta.scan_s),
        format_duration(delta.elapsed_s),
        NONE if delta.freeze_s is None else format_duration(delta.freeze_s),
    )


def _count(changes: Changes | None, kinds: Sequence[ChangeKind]) -> str:
    return NONE if changes is None else format_count(sum(changes.tally(kind).paths for kind in kinds))


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
