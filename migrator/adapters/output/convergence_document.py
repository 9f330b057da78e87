"""How far delta passes have brought every batch: what changes, and how long a freeze would take."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.document import Block, figure, paragraph, paths, table, text
from migrator.adapters.output.wording import NONE, percent, when
from migrator.domain.convergence import Outcome, Prediction
from migrator.domain.paths import show
from migrator.domain.report import BatchFacts
from migrator.domain.states import PassKind, PassState
from migrator.domain.units import format_count, format_duration, format_size

OUTCOMES = {
    Outcome.GO_ON: "goes on",
    Outcome.CONVERGED: "converged",
    Outcome.NO_LONGER_SHRINKS: "no longer shrinks",
    Outcome.LIMIT_OF_PASSES: "limit of passes reached",
    Outcome.NOTHING_CHANGED: "nothing changed",
}


def convergence_blocks(batches: Sequence[BatchFacts]) -> Iterator[Block]:
    """The delta passes of every batch that has any, and what the last one let expect; nothing where there are none."""
    shown = [batch for batch in batches if batch.convergence is not None or _deltas_made(batch)]
    if not shown:
        return
    columns = [
        figure("batch"),
        figure("delta passes"),
        text("last decision"),
        text("as of"),
        figure("files/h changing"),
        figure("bytes/h changing"),
        paths("most of them in"),
        figure("next pass"),
        figure("freeze"),
        figure("wanted, at most"),
    ]
    yield table("How long a freeze would take", columns, [_row(batch) for batch in shown])
    yield paragraph(
        "The freeze is that of users who are frozen right after the pass: a final pass with a margin, and its "
        "verification. Where time has passed since, another delta pass has to go before it."
    )


def _deltas_made(batch: BatchFacts) -> int:
    return sum(one.kind is PassKind.DELTA and one.state is PassState.DONE for one in batch.passes)


def _row(batch: BatchFacts) -> tuple[str, ...]:
    made = format_count(_deltas_made(batch))
    record = batch.convergence
    if record is None:
        return (str(batch.number), made, *[NONE] * 8)
    found = record.prediction
    return (
        str(batch.number),
        made,
        OUTCOMES[record.outcome],
        when(record.at_s),
        f"{found.churn_files_per_h:,.1f}",
        format_size(found.churn_bytes_per_h),
        _most(found),
        format_duration(found.next_pass_s),
        format_duration(found.freeze_s),
        format_duration(record.max_freeze_s),
    )


def _most(found: Prediction) -> str:
    """The tree that most bytes change in, with its share."""
    if not found.trees:
        return NONE
    heaviest = found.trees[0]
    total = sum(tree.bytes_per_h for tree in found.trees)
    share = f" ({percent(100.0 * heaviest.bytes_per_h / total)})" if total > 0 else ""
    return f"{show(heaviest.tree)}{share}"
