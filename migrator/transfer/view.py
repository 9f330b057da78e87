"""Batches, passes, streams and limits for display."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from migrator.catalog.model import VerificationRecord
from migrator.core.paths import show
from migrator.core.states import BatchState, ChunkState, PassKind, PassState
from migrator.core.units import format_count, format_duration, format_rate, format_size, percent_of, several
from migrator.core.windows import WindowStanding
from migrator.render import document as doc
from migrator.render.document import NONE, Block, clean, figure, paragraph, paths, percent, text, verified_words, when
from migrator.report.model import BatchFacts, PassFacts, TreeFacts, TreeState
from migrator.transfer import model as transfer
from migrator.transfer.delta.model import ChangeKind, Changes
from migrator.transfer.model import StreamSum
from migrator.transfer.rules import BY, added_up

T = TypeVar("T")
# The delta passes of one run over a batch.


def _count(changes: Changes | None, *kinds: ChangeKind) -> str:
    return NONE if changes is None else format_count(sum(changes.tally(kind).paths for kind in kinds))


def _shown(value: T | None, words: Callable[[T], str]) -> str:
    return NONE if value is None else words(value)


_DELTA: doc.Cells[transfer.DeltaSummary] = (
    (text("pass"), lambda one: str(one.number)),
    (figure("new"), lambda one: _count(one.changes, ChangeKind.NEW)),
    (
        figure("changed"),
        lambda one: _count(one.changes, ChangeKind.GROWN, ChangeKind.REWRITTEN, ChangeKind.ATTRIBUTES),
    ),
    (figure("renamed"), lambda one: _count(one.changes, ChangeKind.RENAMED)),
    (figure("vanished"), lambda one: _count(one.changes, ChangeKind.VANISHED)),
    (figure("sent to be sure"), lambda one: _count(one.changes, ChangeKind.UNSETTLED)),
    (figure("files sent"), lambda one: format_count(one.files)),
    (figure("bytes sent"), lambda one: format_size(one.size_bytes)),
    (figure("scan and comparison"), lambda one: format_duration(one.scan_s)),
    (figure("pass took"), lambda one: format_duration(one.elapsed_s)),
    (figure("freeze now"), lambda one: _shown(one.freeze_s, format_duration)),
)


def delta_blocks(deltas: Sequence[transfer.DeltaSummary]) -> Iterator[Block]:
    """The changes, the data sent by each pass, and the decision after the last one; empty without passes."""
    if deltas:
        yield doc.records("Delta passes", _DELTA, deltas)
    for delta in deltas:
        if delta.sentence:
            yield paragraph(delta.sentence[:1].upper() + delta.sentence[1:])


def follow_words(at_most: int) -> str:
    """The delta passes that a dry run does not examine."""
    return (
        f"After that, {several(at_most, 'delta pass', 'delta passes')} at most would follow, for what users change. They are "
        "not previewed: each begins with a scan of the source."
    )


# Convergence of every batch: the changes, and the expected duration of a freeze.


OUTCOMES = {
    transfer.ConvergenceOutcome.GO_ON: "goes on",
    transfer.ConvergenceOutcome.CONVERGED: "converged",
    transfer.ConvergenceOutcome.NO_LONGER_SHRINKS: "no longer shrinks",
    transfer.ConvergenceOutcome.LIMIT_OF_PASSES: "limit of passes reached",
    transfer.ConvergenceOutcome.NOTHING_CHANGED: "nothing changed",
}


def _of_record(shown: Callable[[transfer.ConvergenceRecord], str]) -> Callable[[BatchFacts], str]:
    return lambda batch: NONE if batch.convergence is None else shown(batch.convergence)


_CONVERGENCE: doc.Cells[BatchFacts] = (
    (figure("batch"), lambda batch: str(batch.number)),
    (figure("delta passes"), lambda batch: format_count(_deltas_made(batch))),
    (text("last decision"), _of_record(lambda one: OUTCOMES[one.outcome])),
    (text("as of"), _of_record(lambda one: when(one.at_s))),
    (figure("files/h changing"), _of_record(lambda one: f"{one.prediction.churn_files_per_h:,.1f}")),
    (figure("bytes/h changing"), _of_record(lambda one: format_size(one.prediction.churn_bytes_per_h))),
    (paths("most of them in"), _of_record(lambda one: _most(one.prediction))),
    (figure("next pass"), _of_record(lambda one: format_duration(one.prediction.next_pass_s))),
    (figure("freeze"), _of_record(lambda one: format_duration(one.prediction.freeze_s))),
    (figure("wanted, at most"), _of_record(lambda one: format_duration(one.max_freeze_s))),
)


def convergence_blocks(batches: Sequence[BatchFacts]) -> Iterator[Block]:
    """Delta passes of every batch that has any, and the last prediction; empty without passes."""
    shown = [batch for batch in batches if batch.convergence is not None or _deltas_made(batch)]
    if not shown:
        return
    yield doc.records("How long a freeze would take", _CONVERGENCE, shown)
    yield paragraph(
        "The freeze is that of users who are frozen right after the pass: a final pass with a margin, and its "
        "verification. Where time has passed since, another delta pass has to go before it."
    )


def _deltas_made(batch: BatchFacts) -> int:
    return sum(one.kind is PassKind.DELTA and one.state is PassState.DONE for one in batch.passes)


def _most(found: transfer.Prediction) -> str:
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


def _left(batch: BatchFacts) -> int:
    return sum(batch.chunks.get(state, 0) for state in (ChunkState.PENDING, ChunkState.RUNNING, ChunkState.FAILED))


_PROGRESS: doc.Cells[BatchFacts | TreeFacts] = (
    (figure("bytes"), lambda one: format_size(one.tally.total_bytes)),
    (figure("left"), lambda one: format_size(one.tally.left_bytes)),
    (figure("done, %"), lambda one: percent(one.tally.percent_bytes)),
    (figure("files"), lambda one: format_count(one.tally.total_files)),
    (figure("files left"), lambda one: format_count(one.tally.left_files)),
)

_PASS: doc.Cells[PassFacts] = (
    (figure("batch"), lambda one: str(one.batch)),
    (text("pass"), lambda one: one.kind.value if one.kind is PassKind.SEED else f"{one.kind.value} {one.number}"),
    (text("state"), lambda one: one.state.value),
    (text("began"), lambda one: when(one.started_at_s)),
    (text("ended"), lambda one: when(one.finished_at_s)),
    (figure("scan took"), lambda one: _shown(one.scan_s, format_duration)),
    (figure("files"), lambda one: format_count(one.total_files)),
    (figure("bytes"), lambda one: format_size(one.total_bytes)),
    (figure("renamed"), lambda one: _changed(one, ChangeKind.RENAMED)),
    (figure("vanished"), lambda one: _changed(one, ChangeKind.VANISHED)),
)


def _changed(one: PassFacts, kind: ChangeKind) -> str:
    return NONE if one.changes is None else format_count(one.changes[kind].paths)


def batch_blocks(batches: Sequence[BatchFacts]) -> Iterator[Block]:
    """Progress and predictions of every batch, and the equal paths of the newest verifications."""
    yield doc.records("", _BATCH, batches)
    if any(entry.kind is not PassKind.SEED for batch in batches for entry in batch.passes):
        yield doc.records("Passes", _PASS, [entry for batch in batches for entry in batch.passes])
    yield from convergence_blocks(batches)
    differing = [
        batch.verification for batch in batches if batch.verification and any(batch.verification.differences.values())
    ]
    for record in differing:
        yield paragraph(
            f"Batch {record.batch}: {_equal_words(record)}. All differences: {record.differences_file or NONE}"
        )
    if differing:
        yield paragraph(WHY_DIFFERENCES)


def _equal_words(record: VerificationRecord) -> str:
    """The number of equal paths among the compared ones."""
    share = percent(percent_of(record.equal_paths, record.paths))
    return f"{format_count(record.equal_paths)} of {several(record.paths, 'path')} equal ({share})"


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


def _verdict(verification: VerificationRecord | None) -> str:
    if verification is None:
        return NONE
    differences = sum(verification.differences.values())
    if differences:
        return f"{several(differences, 'difference')}, {_equal_words(verification)}"
    return when(verification.finished_at_s) if verification.whole else "not whole"


_BATCH: doc.Cells[BatchFacts] = (
    (figure("batch"), lambda batch: str(batch.number)),
    (text("state"), _batch_state),
    (figure("users"), lambda batch: format_count(batch.tally.total_users)),
    *_PROGRESS,
    (figure("chunks left"), lambda batch: format_count(_left(batch))),
    (figure("bad files"), lambda batch: format_count(batch.attention.bad)),
    (text("verified"), lambda batch: _verdict(batch.verification)),
)


def tree_table(trees: Sequence[TreeFacts], batches: Sequence[BatchFacts], plan: str, *, limit: int | None) -> Block:
    """Progress of every user tree, by weight; `batches` are those of the plan."""
    by_number = {batch.number: batch for batch in batches}
    cells: doc.Cells[TreeFacts] = (
        (figure("rank"), lambda tree: str(tree.rank)),
        (paths("user"), lambda tree: tree.tree.user),
        (paths("tree"), lambda tree: show(tree.tree.path)),
        (figure("batch"), lambda tree: str(tree.batch) if tree.plan == plan else f"{tree.batch} of {tree.plan}"),
        (text("state"), lambda tree: _tree_state(tree, by_number.get(tree.batch) if tree.plan == plan else None)),
        *_PROGRESS,
    )
    return doc.records("", cells, trees, limit=limit)


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


# The allowance of the governor, and the operators' settings.


def governing_document(governing: transfer.GoverningFacts) -> doc.Document:
    """The answer to `tune`, `pause` and `resume`."""
    blocks = (*governing_blocks(governing), *_limits(governing), *_windows(governing))
    return doc.page("Limits", ("What is in force", blocks))


def governing_blocks(governing: transfer.GoverningFacts) -> Iterator[Block]:
    """The operators' settings, and the allowance of the governor in the present run."""
    hold, tuned, record = governing.controls.hold, governing.controls.tuned, governing.governor
    if hold is not None:
        why = f": {clean(hold.reason)}" if hold.reason else ""
        yield paragraph(f"Paused by {clean(hold.by)} since {when(hold.since_s)}{why}. No chunk is begun.")
    if record is not None and governing.at_work:
        if record.gate is not transfer.Gate.PAUSED:
            yield paragraph(_now(record))
        elif hold is None:
            yield paragraph("It was paused; the run goes on within seconds.")
        if record.gate is transfer.Gate.OPEN and len(record.hosts) > 1:
            loads = {one.host: one.load for one in governing.loads}
            yield doc.facts([(clean(host), _on_host(streams, loads.get(host))) for host, streams in record.hosts])
    if tuned is not None:
        yield paragraph(f"Tuned by {clean(tuned.by)} since {when(tuned.since_s)}.")


def _now(record: transfer.GovernorRecord) -> str:
    reason = clean(record.reason)
    if record.gate is transfer.Gate.OUTSIDE_WINDOWS:
        return f"No chunk is begun until {when(record.until_s)}: {reason}."
    limit = record.bwlimit_bytes_per_s
    together = "" if limit is None else f", {format_rate(limit)} together"
    return f"{several(record.streams, 'stream')} of {record.most} may be at work{together}: {reason}."


def _limits(governing: transfer.GoverningFacts) -> Iterator[Block]:
    given = governing.given or transfer.Limits()
    tuned = governing.controls.tuned.limits if governing.controls.tuned is not None else transfer.Limits()
    rows = [
        ("streams on each host", *(_shown(one.jobs, "{:g}".format) for one in (given, tuned))),
        ("all streams together", *(_shown(one.bwlimit_bytes_per_s, format_rate) for one in (given, tuned))),
        (
            "latency of small operations",
            *(_shown(one.max_latency_s, lambda limit_s: f"{1000.0 * limit_s:,.0f} ms") for one in (given, tuned)),
        ),
        ("load of a host", *(_shown(one.max_load, "{:g}".format) for one in (given, tuned))),
    ]
    yield doc.table("", [text("limit"), text("site.toml"), text("tuned")], rows)


def _windows(governing: transfer.GoverningFacts) -> Iterator[Block]:
    """The open windows, and the start of the next one."""
    if governing.windows is None:
        return
    if not governing.windows:
        yield paragraph("There are no windows: chunks may be begun at any time.")
        return
    yield doc.records("Windows", _WINDOW, governing.windows)
    if not any(window.holds for window in governing.windows):
        begins = [(one.changes_at_s, one.changes) for one in governing.windows if one.changes_at_s is not None]
        if begins:
            yield paragraph(f"Outside of all windows: no chunk is begun before {min(begins)[1]}.")


def _standing(window: WindowStanding) -> str:
    if window.changes_at_s is None:
        return "holds at all times" if window.holds else "never holds"
    return f"{'holds until' if window.holds else 'begins'} {window.changes}"


_WINDOW: doc.Cells[WindowStanding] = (
    (text("window"), lambda window: window.when),
    (text("streams on each host"), lambda window: _shown(window.jobs, "{:g}".format)),
    (text("all streams together"), lambda window: _shown(window.bwlimit_bytes_per_s, format_rate)),
    (text("now"), _standing),
)


def _on_host(streams: int, load: float | None) -> str:
    return several(streams, "stream") + ("" if load is None else f", load {load:.1f}")


# Copies by streams, grouped by size of files, host, brick and engine.


_ROWS = 40
"""Maximum rows of a report; its JSON has all bricks."""


def stream_blocks(sums: Sequence[StreamSum]) -> Iterator[Block]:
    """One table, or nothing without sums."""
    cells: doc.Cells[tuple[str, str, StreamSum]] = (
        (text("by"), lambda row: row[0]),
        (text("which"), lambda row: clean(row[1])),
        (figure("files"), lambda row: format_count(row[2].files)),
        (figure("bytes"), lambda row: format_size(row[2].size_bytes)),
        (figure("a stream"), lambda row: format_rate(row[2].bytes_per_s)),
        (figure("files/s a stream"), lambda row: f"{row[2].files_per_s:,.1f}"),
    )
    rows = [(by, name, one) for by in BY for name, one in added_up(sums, by)[:_ROWS]]
    if rows:
        yield doc.records("What streams brought", cells, rows, note="Chunks that arrived, of all plans.")
