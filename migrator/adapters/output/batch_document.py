"""How far batches and their user trees are, pass by pass."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.convergence_document import convergence_blocks
from migrator.adapters.output.document import Block, figure, paragraph, paths, table, text
from migrator.adapters.output.wording import NONE, percent, verified_words, when
from migrator.domain.changes import ChangeKind
from migrator.domain.cutover import SETTLED_STATES
from migrator.domain.paths import show
from migrator.domain.report import BatchFacts, CutoverFacts, PassFacts, TreeFacts, TreeState, percent_of
from migrator.domain.states import BatchState, ChunkState, PassKind, PassState
from migrator.domain.units import format_count, format_duration, format_size, several
from migrator.domain.verification import VerificationRecord

WHY_DIFFERENCES = (
    "A batch counts as verified when no path differs. As long as users work on the source, what they change after "
    "their files were copied is a difference: that is expected until the cutover."
)


def batch_blocks(batches: Sequence[BatchFacts]) -> Iterator[Block]:
    """How far every batch is, what its passes let expect, and what the newest verifications found to be equal."""
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
    """How far every batch is."""
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
    """Every pass, and what it was made for."""
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
    """How far every user tree is, in the plan's order of weight. Of who works on the target that is said, and no longer how far
    his copy was.
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
