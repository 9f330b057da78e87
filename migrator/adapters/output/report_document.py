"""The report for management as a document."""

from collections.abc import Iterator

from migrator.adapters.output.addition_document import addition_table
from migrator.adapters.output.cutover_document import cutover_blocks
from migrator.adapters.output.document import Block, Chart, Document, Section, clean, paragraph
from migrator.adapters.output.drain_document import drain_table
from migrator.adapters.output.plan_document import emptying_table, ranking_blocks, surprise_table
from migrator.adapters.output.record_document import verification_blocks
from migrator.adapters.output.retirement_document import retirement_facts
from migrator.adapters.output.status_document import (
    attention_table,
    batch_blocks,
    blocker_table,
    event_table,
    progress_section,
    run_table,
    scan_blocks,
    tree_table,
    with_streams,
)
from migrator.adapters.output.wording import percent, when
from migrator.domain.report import ReportFacts
from migrator.domain.units import format_duration, format_rate, format_size, several


def report_document(report: ReportFacts, *, rows: int | None = None) -> Document:
    """All that there is to say, what matters most first. `rows` cuts long tables."""
    status = report.status
    return Document(
        title=clean(f"Migration of {status.site}" if status.site is not None else "Migration"),
        subtitle=f"report as of {when(status.at_s)}",
        sections=tuple(_sections(report, rows)),
    )


def _sections(report: ReportFacts, rows: int | None) -> Iterator[Section]:
    status = report.status
    yield progress_section(status)
    if status.blocked:
        yield Section(title="What waits, and on what", blocks=(blocker_table(status.blocked),))
    charts = (*throughput_charts(report), *done_charts(report))
    yield Section(title="Throughput", blocks=charts or (paragraph("Nothing has been copied yet."),))
    if status.batches:
        yield Section(title="Batches", blocks=tuple(batch_blocks(status.batches)))
        yield Section(title="Users", blocks=(tree_table(status.trees, status.batches, limit=rows),))
    yield Section(title="What was verified, and how", blocks=tuple(_verified(report)))
    if status.drains:
        yield Section(title="Drains of bricks", blocks=(drain_table(status.drains),))
    if status.additions:
        yield Section(title="Additions of bricks", blocks=(addition_table(status.additions),))
    if status.retirement is not None:
        yield Section(title="The source volume", blocks=(retirement_facts(status.retirement),))
    if status.cutovers:
        yield Section(title="Cutovers", blocks=tuple(cutover_blocks(status.cutovers, now_s=status.at_s, limit=rows)))
    if status.attention_total:
        yield Section(
            title="Files that need attention", blocks=(attention_table(status.attention, status.attention_total),)
        )
    if report.plan is not None:
        yield Section(title="Who holds what", blocks=tuple(ranking_blocks(report.plan, rows=rows, age_rows=rows)))
        if report.plan.surprises:
            yield Section(title="What will surprise", blocks=(surprise_table(report.plan.surprises, limit=rows),))
        if report.plan.emptying:
            yield Section(title="How each order would empty the source", blocks=(emptying_table(report.plan.emptying),))
    elif status.plan is not None:
        yield Section(
            title="Who holds what", blocks=(paragraph(f"The plan cannot be shown: {report.plan_problem}", alert=True),)
        )
    if status.scan is not None:
        yield Section(title="The newest scan", blocks=tuple(scan_blocks(status.scan)))
    if status.runs:
        yield Section(title="Last runs", blocks=(run_table(status.runs),))
    if status.events:
        yield Section(title="Warnings and errors, newest first", blocks=(event_table(status.events),))


def throughput_charts(report: ReportFacts) -> Iterator[Block]:
    """The rate of all streams together over time."""
    points = report.throughput
    if not points:
        return
    copied = sum(point.size_bytes for point in points)
    files = sum(point.files for point in points)
    busy_s = sum(point.busy_s for point in points)
    best = max(points, key=lambda point: point.rate_bytes_per_s)
    mean = format_rate(copied / busy_s) if busy_s > 0 else format_rate(0)
    yield Chart(
        title="Throughput of all streams together",
        summary=(
            f"{format_size(copied)} and {several(files, 'file')} were written in {format_duration(busy_s)} of work, "
            f"{mean} on average; the best {format_duration(best.span_s)} reached "
            f"{format_rate(best.rate_bytes_per_s)} at {when(best.at_s)}{with_streams(best)}."
        ),
        points=tuple((point.at_s, point.rate_bytes_per_s) for point in points),
        is_rate=True,
        span_s=points[0].span_s,
    )


def done_charts(report: ReportFacts) -> Iterator[Block]:
    """How much is done, over time, against all that there is."""
    points = report.done
    overall = report.status.overall
    if len(points) < 2:
        return
    yield Chart(
        title="Bytes done",
        summary=(
            f"From {when(points[0].at_s)} to {when(points[-1].at_s)} the copied bytes grew from 0 to "
            f"{format_size(points[-1].done_bytes)}, {percent(overall.percent_bytes)} of all that is planned."
        ),
        points=tuple((point.at_s, float(point.done_bytes)) for point in points),
        is_rate=False,
        limit=("planned", float(overall.total_bytes)) if overall.total_bytes else None,
    )


def _verified(report: ReportFacts) -> Iterator[Block]:
    newest = {record.batch: record for record in report.verifications}
    if not newest:
        yield paragraph("Nothing has been verified yet.")
    for _, record in sorted(newest.items()):
        yield from verification_blocks(record)
    earlier = len(report.verifications) - len(newest)
    if earlier:
        yield paragraph(f"{several(earlier, 'earlier verification')} of the same batches are in --json.")
