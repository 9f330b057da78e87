"""The status as a document."""

from collections.abc import Iterator, Sequence

from migrator.adapters.output.addition_document import addition_table
from migrator.adapters.output.batch_document import batch_blocks, tree_table
from migrator.adapters.output.cutover_document import cutover_blocks
from migrator.adapters.output.document import (
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
from migrator.adapters.output.progress_document import progress_section
from migrator.adapters.output.retirement_document import retirement_facts
from migrator.adapters.output.wording import NONE, when, yes
from migrator.decide.attention import AFTERWARDS, advice
from migrator.domain.events import Event
from migrator.domain.ledger_sums import AttentionFile
from migrator.domain.paths import show
from migrator.domain.report import Blocker, RunFacts, RunLife, ScanFacts, StatusFacts
from migrator.domain.units import format_count, format_duration, format_size, several

TREE_ROWS = 40


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
        yield Section(
            title="Users", blocks=(tree_table(status.trees, status.batches, status.cutovers, limit=tree_rows),)
        )
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


def blocker_table(blocked: Sequence[Blocker]) -> Block:
    """What waits, and on what."""
    return table(
        "",
        [paths("what waits"), paths("on what"), wide("what to do")],
        [(one.subject, one.on, one.hint) for one in blocked],
    )


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
