"""Batches, their passes and user trees for display."""

from collections.abc import Callable, Iterator, Sequence

from migrator.catalog.model import VerificationRecord
from migrator.core.paths import show
from migrator.core.states import BatchState, ChunkState, PassKind, PassState
from migrator.core.units import format_count, format_duration, format_size, percent_of, several
from migrator.render import document as doc
from migrator.render.document import NONE, Block, figure, format_verified_share, paragraph, paths, percent, text, when
from migrator.report.model import BatchStatus, PassStatus, TreeState, TreeStatus
from migrator.transfer.delta.model import ChangeKind
from migrator.transfer.model_convergence import ConvergenceOutcome, ConvergenceRecord, Prediction

# Convergence of every batch: the changes, and the expected duration of a freeze.


OUTCOMES = {
    ConvergenceOutcome.GO_ON: "continues",
    ConvergenceOutcome.CONVERGED: "converged",
    ConvergenceOutcome.NO_LONGER_SHRINKS: "no longer shrinks",
    ConvergenceOutcome.LIMIT_OF_PASSES: "limit of passes reached",
    ConvergenceOutcome.NOTHING_CHANGED: "nothing changed",
}


def _of_record(shown: Callable[[ConvergenceRecord], str]) -> Callable[[BatchStatus], str]:
    return lambda batch: NONE if batch.convergence is None else shown(batch.convergence)


_CONVERGENCE: doc.Cells[BatchStatus] = (
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


def convergence_blocks(batches: Sequence[BatchStatus]) -> Iterator[Block]:
    """Delta passes of every batch that has any, and the last prediction; empty without passes."""
    shown = [batch for batch in batches if batch.convergence is not None or _deltas_made(batch)]
    if not shown:
        return
    yield doc.records("Predicted freeze", _CONVERGENCE, shown)
    yield paragraph(
        "The freeze is that of users who are frozen right after the pass: a final pass with a margin, and its "
        "verification. Where time has passed since, another delta pass has to go before it."
    )


def _deltas_made(batch: BatchStatus) -> int:
    return sum(one.kind is PassKind.DELTA and one.state is PassState.DONE for one in batch.passes)


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


def _left(batch: BatchStatus) -> int:
    return sum(batch.chunks.get(state, 0) for state in (ChunkState.PENDING, ChunkState.RUNNING, ChunkState.FAILED))


_PROGRESS: doc.Cells[BatchStatus | TreeStatus] = (
    (figure("bytes"), lambda one: format_size(one.tally.total_bytes)),
    (figure("left"), lambda one: format_size(one.tally.left_bytes)),
    (figure("done, %"), lambda one: percent(one.tally.percent_bytes)),
    (figure("files"), lambda one: format_count(one.tally.total_files)),
    (figure("files left"), lambda one: format_count(one.tally.left_files)),
)

_PASS: doc.Cells[PassStatus] = (
    (figure("batch"), lambda one: str(one.batch)),
    (text("pass"), lambda one: one.kind.value if one.kind is PassKind.SEED else f"{one.kind.value} {one.number}"),
    (text("state"), lambda one: one.state.value),
    (text("began"), lambda one: when(one.started_at_s)),
    (text("ended"), lambda one: when(one.finished_at_s)),
    (figure("scan took"), lambda one: NONE if one.scan_s is None else format_duration(one.scan_s)),
    (figure("files"), lambda one: format_count(one.total_files)),
    (figure("bytes"), lambda one: format_size(one.total_bytes)),
    (figure("renamed"), lambda one: _changed(one, ChangeKind.RENAMED)),
    (figure("vanished"), lambda one: _changed(one, ChangeKind.VANISHED)),
)


def _changed(one: PassStatus, kind: ChangeKind) -> str:
    return NONE if one.changes is None else format_count(one.changes[kind].paths)


def batch_blocks(batches: Sequence[BatchStatus]) -> Iterator[Block]:
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
            f"Batch {record.batch}: {_describe_verification(record)}. All differences: {record.differences_file or NONE}"
        )
    if differing:
        yield paragraph(WHY_DIFFERENCES)


def _describe_verification(record: VerificationRecord) -> str:
    """The number of equal paths among the compared ones."""
    share = percent(percent_of(record.equal_paths, record.paths))
    return f"{format_count(record.equal_paths)} of {several(record.paths, 'path')} equal ({share})"


def _batch_state(batch: BatchStatus) -> str:
    if batch.state is BatchState.VERIFIED:
        return format_verified_share(batch.verification.percent_content if batch.verification else None)
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
        return f"{several(differences, 'difference')}, {_describe_verification(verification)}"
    return when(verification.finished_at_s) if verification.whole else "not whole"


_BATCH: doc.Cells[BatchStatus] = (
    (figure("batch"), lambda batch: str(batch.number)),
    (text("state"), _batch_state),
    (figure("users"), lambda batch: format_count(batch.tally.total_users)),
    *_PROGRESS,
    (figure("chunks left"), lambda batch: format_count(_left(batch))),
    (figure("bad files"), lambda batch: format_count(batch.attention.bad)),
    (text("verified"), lambda batch: _verdict(batch.verification)),
)


def tree_table(trees: Sequence[TreeStatus], batches: Sequence[BatchStatus], plan: str, *, limit: int | None) -> Block:
    """Progress of every user tree, by weight; `batches` are those of the plan."""
    by_number = {batch.number: batch for batch in batches}
    cells: doc.Cells[TreeStatus] = (
        (figure("rank"), lambda tree: str(tree.rank)),
        (paths("user"), lambda tree: tree.tree.user),
        (paths("tree"), lambda tree: show(tree.tree.path)),
        (figure("batch"), lambda tree: str(tree.batch) if tree.plan == plan else f"{tree.batch} of {tree.plan}"),
        (text("state"), lambda tree: _tree_state(tree, by_number.get(tree.batch) if tree.plan == plan else None)),
        *_PROGRESS,
    )
    return doc.records("", cells, trees, limit=limit)


def _tree_state(tree: TreeStatus, batch: BatchStatus | None) -> str:
    if tree.state is TreeState.VERIFIED:
        record = batch.verification if batch is not None else None
        return format_verified_share(record.percent_content if record is not None else None)
    if tree.state is TreeState.ATTENTION:
        left = tree.tally.left_files
        return f"copied, {several(left, 'file needs', 'files need')} attention" if left else "copied, needs attention"
    if tree.state is TreeState.COPYING and batch is not None and batch.passes:
        return tree.state.value if batch.passes[-1].state is PassState.RUNNING else "stopped"
    return tree.state.value
