"""Batches, passes, streams and limits for people."""

from collections.abc import Iterator, Sequence

from migrator.core.paths import show
from migrator.core.states import BatchState, ChunkState, PassKind, PassState
from migrator.core.units import format_count, format_duration, format_rate, format_size, several
from migrator.core.windows import WindowStanding
from migrator.cutover.model import SETTLED_STATES, CutoverFacts
from migrator.delta.model import ChangeKind, Changes
from migrator.render.document import (
    NONE,
    Block,
    Document,
    Section,
    clean,
    facts,
    figure,
    paragraph,
    paths,
    percent,
    table,
    text,
    verified_words,
    when,
)
from migrator.report.model import BatchFacts, PassFacts, StreamSum, TreeFacts, TreeState, percent_of
from migrator.transfer.model import (
    ConvergenceOutcome,
    DeltaSummary,
    Gate,
    GoverningFacts,
    GovernorRecord,
    Limits,
    Prediction,
)
from migrator.transfer.rules import BY, added_up
from migrator.verify.model import VerificationRecord

# The delta passes of one run over a batch.


_COLUMNS: Sequence[tuple[str, tuple[ChangeKind, ...]]] = (
    ("new", (ChangeKind.NEW,)),
    ("changed", (ChangeKind.GROWN, ChangeKind.REWRITTEN, ChangeKind.ATTRIBUTES)),
    ("renamed", (ChangeKind.RENAMED,)),
    ("vanished", (ChangeKind.VANISHED,)),
    ("sent to be sure", (ChangeKind.UNSETTLED,)),
)


def delta_blocks(deltas: Sequence[DeltaSummary]) -> Iterator[Block]:
    """The changes, what each pass sent, and the decision after the last one; nothing without passes."""
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
    """The delta passes that a dry run does not show."""
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


# Convergence of every batch: what changes, and how long a freeze would take.


OUTCOMES = {
    ConvergenceOutcome.GO_ON: "goes on",
    ConvergenceOutcome.CONVERGED: "converged",
    ConvergenceOutcome.NO_LONGER_SHRINKS: "no longer shrinks",
    ConvergenceOutcome.LIMIT_OF_PASSES: "limit of passes reached",
    ConvergenceOutcome.NOTHING_CHANGED: "nothing changed",
}


def convergence_blocks(batches: Sequence[BatchFacts]) -> Iterator[Block]:
    """Delta passes of every batch that has any, and the last prediction; nothing without passes."""
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
    yield table("How long a freeze would take", columns, [_convergence_row(batch) for batch in shown])
    yield paragraph(
        "The freeze is that of users who are frozen right after the pass: a final pass with a margin, and its "
        "verification. Where time has passed since, another delta pass has to go before it."
    )


def _deltas_made(batch: BatchFacts) -> int:
    return sum(one.kind is PassKind.DELTA and one.state is PassState.DONE for one in batch.passes)


def _convergence_row(batch: BatchFacts) -> tuple[str, ...]:
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
    """The tree with the most changed bytes, and its share."""
    if not found.trees:
        return NONE
    heaviest = found.trees[0]
    total = sum(tree.bytes_per_h for tree in found.trees)
    share = f" ({percent(100.0 * heaviest.bytes_per_h / total)})" if total > 0 else ""
    return f"{show(heaviest.tree)}{share}"


# Progress of batches and their user trees, pass by pass.


WHY_DIFFERENCES = (
    "A batch counts as verified when no path differs. As long as users work on the source, what they change after "
    "their files were copied is a difference: that is expected until the cutover."
)


def batch_blocks(batches: Sequence[BatchFacts]) -> Iterator[Block]:
    """Progress and predictions of every batch, and the equal paths of the newest verifications."""
    yield batch_table(batches)
    if any(entry.kind is not PassKind.SEED for batch in batches for entry in batch.passes):
        yield pass_table(batches)
    yield from convergence_blocks(batches)
    differing = [
        batch.verification for batch in batches if batch.verification and any(batch.verification.differences.values())
    ]
    for record in differing:
        yield paragraph(
            f"Batch {record.batch}: {equal_words(record)}. All differences: {record.differences_file or NONE}"
        )
    if differing:
        yield paragraph(WHY_DIFFERENCES)


def equal_words(record: VerificationRecord) -> str:
    """How many of the compared paths are equal."""
    share = percent(percent_of(record.equal_paths, record.paths))
    return f"{format_count(record.equal_paths)} of {several(record.paths, 'path')} equal ({share})"


def batch_table(batches: Sequence[BatchFacts]) -> Block:
    """Progress of every batch."""
    columns = [
        figure("batch"),
        text("state"),
        figure("users"),
        figure("bytes"),
        figure("left"),
        figure("done, %"),
        figure("files"),
        figure("files left"),
        figure("chunks left"),
        figure("bad files"),
        text("verified"),
    ]
    return table("", columns, [_batch_row(batch) for batch in batches])


def _batch_row(batch: BatchFacts) -> tuple[str, ...]:
    waiting = sum(batch.chunks.get(state, 0) for state in (ChunkState.PENDING, ChunkState.RUNNING, ChunkState.FAILED))
    tally = batch.tally
    return (
        str(batch.number),
        _batch_state(batch),
        format_count(tally.total_users),
        format_size(tally.total_bytes),
        format_size(tally.left_bytes),
        percent(tally.percent_bytes),
        format_count(tally.total_files),
        format_count(tally.left_files),
        format_count(waiting),
        format_count(batch.attention.bad),
        _verdict(batch.verification),
    )


def _batch_state(batch: BatchFacts) -> str:
    if batch.state is BatchState.VERIFIED:
        return verified_words(batch.verification.percent_content if batch.verification else None)
    if batch.state in (BatchState.SEEDED, BatchState.CONVERGING) and (
        batch.attention.bad or batch.chunks.get(ChunkState.FAILED, 0)
    ):
        return f"{batch.state.value}, needs attention"
    if batch.passes and batch.passes[-1].state is PassState.STOPPED:
        return f"{batch.state.value}, stopped"
    return batch.state.value


def pass_table(batches: Sequence[BatchFacts]) -> Block:
    """Every pass and its purpose."""
    columns = [
        figure("batch"),
        text("pass"),
        text("state"),
        text("began"),
        text("ended"),
        figure("scan took"),
        figure("files"),
        figure("bytes"),
        figure("renamed"),
        figure("vanished"),
    ]
    return table("Passes", columns, [_pass_row(entry) for batch in batches for entry in batch.passes])


def _pass_row(entry: PassFacts) -> tuple[str, ...]:
    moved = [ChangeKind.RENAMED, ChangeKind.VANISHED]
    return (
        str(entry.batch),
        entry.kind.value if entry.kind is PassKind.SEED else f"{entry.kind.value} {entry.number}",
        entry.state.value,
        when(entry.started_at_s),
        when(entry.finished_at_s),
        NONE if entry.scan_s is None else format_duration(entry.scan_s),
        format_count(entry.total_files),
        format_size(entry.total_bytes),
        *(NONE if entry.changes is None else format_count(entry.changes[kind].paths) for kind in moved),
    )


def _verdict(verification: VerificationRecord | None) -> str:
    if verification is None:
        return NONE
    differences = sum(verification.differences.values())
    if differences:
        return f"{several(differences, 'difference')}, {equal_words(verification)}"
    return when(verification.finished_at_s) if verification.whole else "not whole"


def tree_table(
    trees: Sequence[TreeFacts], batches: Sequence[BatchFacts], cutovers: Sequence[CutoverFacts], *, limit: int | None
) -> Block:
    """Progress of every user tree, in the plan's order of weight. A moved user is shown as such, without the progress of the
    copy.
    """
    by_number = {batch.number: batch for batch in batches}
    moved = {one.tree.path for one in cutovers if one.state in SETTLED_STATES}
    columns = [
        figure("rank"),
        paths("user"),
        paths("tree"),
        figure("batch"),
        text("state"),
        figure("bytes"),
        figure("left"),
        figure("done, %"),
        figure("files"),
        figure("files left"),
    ]
    rows = (
        (
            str(tree.rank),
            tree.tree.user,
            show(tree.tree.path),
            str(tree.batch),
            "moved" if tree.tree.path in moved else _tree_state(tree, by_number.get(tree.batch)),
            format_size(tree.tally.total_bytes),
            format_size(tree.tally.left_bytes),
            percent(tree.tally.percent_bytes),
            format_count(tree.tally.total_files),
            format_count(tree.tally.left_files),
        )
        for tree in trees
    )
    return table("", columns, rows, limit=limit)


def _tree_state(tree: TreeFacts, batch: BatchFacts | None) -> str:
    if tree.state is TreeState.VERIFIED:
        record = batch.verification if batch is not None else None
        return verified_words(record.percent_content if record is not None else None)
    if tree.state is TreeState.ATTENTION:
        left = tree.tally.left_files
        return f"copied, {several(left, 'file needs', 'files need')} attention" if left else "copied, needs attention"
    if tree.state is TreeState.COPYING and batch is not None and batch.passes:
        return tree.state.value if batch.passes[-1].state is PassState.RUNNING else "stopped"
    return tree.state.value


# What the governor allows, and what people have set.


def governing_document(governing: GoverningFacts) -> Document:
    """The answer to `tune`, `pause` and `resume`."""
    blocks = (*governing_blocks(governing), *_limits(governing), *_windows(governing))
    return Document(title="Limits", subtitle="", sections=(Section(title="What is in force", blocks=blocks),))


def governing_blocks(governing: GoverningFacts) -> Iterator[Block]:
    """What people have set, and what the governor allows the present run."""
    hold, tuned, record = governing.controls.hold, governing.controls.tuned, governing.governor
    if hold is not None:
        why = f": {clean(hold.reason)}" if hold.reason else ""
        yield paragraph(f"Paused by {clean(hold.by)} since {when(hold.since_s)}{why}. No chunk is begun.")
    if record is not None and governing.at_work:
        if record.gate is not Gate.PAUSED:
            yield paragraph(_now(record))
        elif hold is None:
            yield paragraph("It was paused; the run goes on within seconds.")
        if record.gate is Gate.OPEN and len(record.hosts) > 1:
            loads = {one.host: one.load for one in governing.loads}
            yield facts([(clean(host), _on_host(streams, loads.get(host))) for host, streams in record.hosts])
    if tuned is not None:
        yield paragraph(f"Tuned by {clean(tuned.by)} since {when(tuned.since_s)}.")


def _now(record: GovernorRecord) -> str:
    reason = clean(record.reason)
    if record.gate is Gate.OUTSIDE_WINDOWS:
        return f"No chunk is begun until {when(record.until_s)}: {reason}."
    limit = record.bwlimit_bytes_per_s
    together = "" if limit is None else f", {format_rate(limit)} together"
    return f"{several(record.streams, 'stream')} of {record.most} may be at work{together}: {reason}."


def _limits(governing: GoverningFacts) -> Iterator[Block]:
    given = governing.given or Limits()
    tuned = governing.controls.tuned.limits if governing.controls.tuned is not None else Limits()
    rows = [
        ("streams on each host", _number(given.jobs), _number(tuned.jobs)),
        ("all streams together", _rate(given.bwlimit_bytes_per_s), _rate(tuned.bwlimit_bytes_per_s)),
        ("latency of small operations", _milliseconds(given.max_latency_s), _milliseconds(tuned.max_latency_s)),
        ("load of a host", _number(given.max_load), _number(tuned.max_load)),
    ]
    yield table("", [text("limit"), text("site.toml"), text("tuned")], rows)


def _windows(governing: GoverningFacts) -> Iterator[Block]:
    """The open windows, and the start of the next one."""
    if governing.windows is None:
        return
    if not governing.windows:
        yield paragraph("There are no windows: chunks may be begun at any time.")
        return
    columns = [text("window"), text("streams on each host"), text("all streams together"), text("now")]
    rows = [
        (window.when, _number(window.jobs), _rate(window.bwlimit_bytes_per_s), _standing(window))
        for window in governing.windows
    ]
    yield table("Windows", columns, rows)
    if not any(window.holds for window in governing.windows):
        begins = [(one.changes_at_s, one.changes) for one in governing.windows if one.changes_at_s is not None]
        if begins:
            yield paragraph(f"Outside of all windows: no chunk is begun before {min(begins)[1]}.")


def _standing(window: WindowStanding) -> str:
    if window.changes_at_s is None:
        return "holds at all times" if window.holds else "never holds"
    return f"{'holds until' if window.holds else 'begins'} {window.changes}"


def _on_host(streams: int, load: float | None) -> str:
    return several(streams, "stream") + ("" if load is None else f", load {load:.1f}")


def _number(number: float | None) -> str:
    return NONE if number is None else f"{number:g}"


def _rate(bytes_per_s: int | None) -> str:
    return NONE if bytes_per_s is None else format_rate(bytes_per_s)


def _milliseconds(duration_s: float | None) -> str:
    return NONE if duration_s is None else f"{1000.0 * duration_s:,.0f} ms"


# What streams copied, by size of files, host, brick and engine.


_ROWS = 40
"""Rows of a report; its JSON has all bricks."""


def stream_blocks(sums: Sequence[StreamSum]) -> Iterator[Block]:
    """One table, or nothing."""
    rows = [
        (
            by,
            clean(name),
            format_count(one.files),
            format_size(one.size_bytes),
            format_rate(one.bytes_per_s),
            f"{one.files_per_s:,.1f}",
        )
        for by in BY
        for name, one in added_up(sums, by)[:_ROWS]
    ]
    if rows:
        columns = [
            text("by"),
            text("which"),
            figure("files"),
            figure("bytes"),
            figure("a stream"),
            figure("files/s a stream"),
        ]
        yield table("What streams brought", columns, rows, note="Chunks that arrived, of all plans.")
