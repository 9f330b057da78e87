"""The status as a document."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.addition_document import addition_table
from migrator.adapters.output.convergence_document import convergence_blocks
from migrator.adapters.output.cutover_document import cutover_blocks
from migrator.adapters.output.document import (
    Bar,
    Block,
    Document,
    Section,
    clean,
    facts,
    figure,
    paragraph,
    paths,
    table,
    text,
    wide,
)
from migrator.adapters.output.drain_document import drain_table
from migrator.adapters.output.governing_document import governing_blocks, is_told
from migrator.adapters.output.probe_document import probe_table
from migrator.adapters.output.retirement_document import retirement_facts
from migrator.adapters.output.wording import NONE, percent, verified_words, when, yes
from migrator.decide.attention import AFTERWARDS, advice
from migrator.domain.changes import ChangeKind
from migrator.domain.events import Event
from migrator.domain.paths import show
from migrator.domain.report import (
    AttentionFile,
    BatchFacts,
    Blocker,
    PassFacts,
    RunFacts,
    RunLife,
    ScanFacts,
    StatusFacts,
    Tally,
    ThroughputPoint,
    TreeFacts,
    TreeState,
)
from migrator.domain.states import BatchState, ChunkState, PassKind, PassState
from migrator.domain.units import format_count, format_duration, format_rate, format_size, several
from migrator.domain.verification import VerificationRecord

TREE_ROWS = 40

_COUNTED_STREAMS = 0.1
_MOSTLY = 0.9


def status_document(status: StatusFacts, *, tree_rows: int | None = TREE_ROWS) -> Document:
    """Now, on one page."""
    return Document(
        title=clean(f"Migration of {status.site}" if status.site is not None else "Migration"),
        subtitle=f"as of {when(status.at_s)}",
        sections=tuple(_sections(status, tree_rows)),
    )


def _sections(status: StatusFacts, tree_rows: int | None) -> Iterator[Section]:
    yield progress_section(status)
    if status.blocked:
        yield Section(title="What waits, and on what", blocks=(blocker_table(status.blocked),))
    if status.batches:
        yield Section(title="Batches", blocks=tuple(batch_blocks(status.batches)))
        yield Section(title="Users", blocks=(tree_table(status.trees, status.batches, limit=tree_rows),))
    if is_told(status.governing):
        yield Section(title="How many streams are at work", blocks=tuple(governing_blocks(status.governing)))
    if status.probes:
        yield Section(title="Latency of small operations", blocks=(probe_table(status.probes),))
    if status.drains:
        yield Section(title="Drains of bricks", blocks=(drain_table(status.drains),))
    if status.additions:
        yield Section(title="Additions of bricks", blocks=(addition_table(status.additions),))
    if status.retirement is not None:
        yield Section(title="The source volume", blocks=(retirement_facts(status.retirement),))
    if status.cutovers:
        yield Section(
            title="Cutovers", blocks=tuple(cutover_blocks(status.cutovers, now_s=status.at_s, limit=tree_rows))
        )
    if status.attention_total:
        yield Section(
            title="Files that need attention", blocks=(attention_table(status.attention, status.attention_total),)
        )
    if status.scan is not None:
        yield Section(title="The newest scan", blocks=tuple(scan_blocks(status.scan)))
    if status.runs:
        yield Section(title="Last runs", blocks=(run_table(status.runs),))
    if status.events:
        yield Section(title="Warnings and errors, newest first", blocks=(event_table(status.events),))


def progress_section(status: StatusFacts) -> Section:
    """How far, how fast, until when."""
    return Section(title="How far it is", blocks=tuple(_progress(status)))


def _progress(status: StatusFacts) -> Iterator[Block]:
    if status.plan is None:
        yield paragraph("There is no plan yet: nothing is counted as done or left.")
        return
    tally = status.overall
    yield _bar("copied", tally, "copied")
    content = _rounded_down(status.verified_content_bytes, status.verified.done_bytes)
    yield _bar("verified", status.verified, verified_words(content))
    if status.verified.done_bytes > status.verified_content_bytes:
        yield paragraph(
            f"Of the verified bytes the content of {format_size(status.verified_content_bytes)} "
            f"({percent(content)}) was compared on "
            "both sides; of the rest the attributes only (type, size, times, owner, mode, ACLs)."
        )
    yield table(
        "Done and left",
        [text("what"), figure("total"), figure("done"), figure("left"), figure("done, %"), figure("verified")],
        [
            (
                "bytes",
                format_size(tally.total_bytes),
                format_size(tally.done_bytes),
                format_size(tally.left_bytes),
                percent(tally.percent_bytes),
                format_size(status.verified.done_bytes),
            ),
            (
                "files",
                format_count(tally.total_files),
                format_count(tally.done_files),
                format_count(tally.left_files),
                percent(tally.percent_files),
                format_count(status.verified.done_files),
            ),
            (
                "users",
                format_count(tally.total_users),
                format_count(tally.done_users),
                format_count(tally.left_users),
                percent(tally.percent_users),
                format_count(status.verified.done_users),
            ),
        ],
        note=f"Counted by the plan {status.plan.name} of {when(status.plan.created_at_s)}, in whole chunks: what a "
        "stream is copying counts as done when its chunk is.",
    )
    if status.rate is not None:
        yield paragraph(f"Now: {_rate(status.rate)}.")
    elif status.last_rate is not None:
        yield paragraph(
            f"Nothing is being copied now. Last, until {when(status.last_rate.at_s)}: {_rate(status.last_rate)}."
        )
    if status.estimates:
        yield table(
            "When it will be copied",
            [text("about"), figure("left"), wide("on the basis of")],
            [(when(one.finish_at_s), format_duration(one.left_s), one.basis) for one in status.estimates],
        )
    elif tally.total_files and not tally.left_files and not tally.left_bytes:
        yield paragraph("Everything that is planned has been copied.")
    else:
        yield paragraph("There is no basis for an estimate yet.")
    if status.vanished_total:
        yield paragraph(
            f"{several(status.vanished_total, 'listed file')} had been deleted by their users before their turn came: "
            "that is normal."
        )


def _rate(rate: ThroughputPoint) -> str:
    words = f"{format_rate(rate.rate_bytes_per_s)} and {rate.rate_files_per_s:,.1f} files/s{with_streams(rate)}"
    span = format_duration(rate.span_s)
    if rate.busy_s < rate.span_s * _MOSTLY:
        return f"{words}, over {format_duration(rate.busy_s)} of work within {span}"
    return f"{words}, over {span}"


def with_streams(point: ThroughputPoint) -> str:
    """How many streams there were on average; empty where they were too short to be counted."""
    return f" with {point.streams:.1f} streams" if point.streams >= _COUNTED_STREAMS else ""


def _rounded_down(part: int, whole: int) -> float | None:
    return part * 1000 // whole / 10 if whole > 0 else None


def _bar(label: str, tally: Tally, done: str) -> Bar:
    share = tally.done_bytes / tally.total_bytes if tally.total_bytes else 0.0
    return Bar(
        label=label,
        share=share,
        text=f"{percent(tally.percent_bytes)} of the bytes {done}, {format_size(tally.done_bytes)} of "
        f"{format_size(tally.total_bytes)}",
    )


def blocker_table(blocked: Sequence[Blocker]) -> Block:
    """What waits, and on what."""
    return table(
        "",
        [paths("what waits"), paths("on what"), wide("what to do")],
        [(one.subject, one.on, one.hint) for one in blocked],
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


WHY_DIFFERENCES = (
    "A batch counts as verified when no path differs. As long as users work on the source, what they change after "
    "their files were copied is a difference: that is expected until the cutover."
)


def equal_words(record: VerificationRecord) -> str:
    """How many of the compared paths are equal."""
    share = percent(_rounded_down(record.equal_paths, record.paths))
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


def tree_table(trees: Sequence[TreeFacts], batches: Sequence[BatchFacts], *, limit: int | None) -> Block:
    """How far every user tree is, in the plan's order of weight."""
    by_number = {batch.number: batch for batch in batches}
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
            _tree_state(tree, by_number.get(tree.batch)),
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


def attention_table(files: Sequence[AttentionFile], total: int) -> Block:
    """Files that did not arrive, with their reasons."""
    note = f"{several(total, 'file')} in all"
    note += f", the first {len(files):,} are shown." if total > len(files) else "."
    return table(
        "",
        [figure("batch"), paths("path"), paths("reason"), wide("next step")],
        [(str(one.batch), show(one.problem.path), one.problem.reason, advice(one.problem)) for one in files],
        note=f"{note} {AFTERWARDS}",
    )


def scan_blocks(scan: ScanFacts) -> Iterator[Block]:
    """What the newest scan saw, and whether that is all there is."""
    whole = "under way" if scan.finished_at_s is None else yes(scan.whole)
    yield facts(
        [
            ("catalog", scan.name),
            ("via", scan.via),
            ("began", when(scan.started_at_s)),
            ("ended", when(scan.finished_at_s)),
            ("whole", whole),
            ("files", format_count(scan.files)),
            ("directories", format_count(scan.directories)),
            ("bytes", format_size(scan.size_bytes)),
            ("could not be read", format_count(scan.problems)),
        ]
    )
    for reason in scan.reasons[:20]:
        yield paragraph(f"Not whole: {reason}", alert=True)
    if len(scan.reasons) > 20:
        yield paragraph(f"And {len(scan.reasons) - 20:,} more reasons.", alert=True)


def run_table(runs: Sequence[RunFacts]) -> Block:
    """The last invocations of verbs that write."""
    columns = [
        figure("run"),
        wide("verb"),
        figure("process"),
        text("began"),
        text("state"),
        text("last sign of life"),
        figure("exit code"),
        wide("directory"),
    ]
    rows = (
        (
            str(run.id),
            run.verb,
            str(run.pid),
            when(run.started_at_s),
            _LIFE[run.life],
            f"{format_duration(run.silent_s)} ago" + (" (old)" if run.life is RunLife.SILENT else ""),
            NONE if run.exit_code is None else str(run.exit_code),
            run.directory,
        )
        for run in runs
    )
    return table("", columns, rows)


_LIFE = {
    RunLife.AT_WORK: "at work",
    RunLife.SILENT: "silent: killed?",
    RunLife.KILLED: "killed",
    RunLife.ENDED: "ended",
}


def event_table(events: Sequence[Event]) -> Block:
    """What happened, newest first."""
    return table(
        "",
        [text("when"), text("how bad"), text("what"), paths("about"), paths("message")],
        [(when(one.at_s), one.severity.value, one.kind.value, one.subject, one.message) for one in events],
    )
