"""The report for management as a document."""

from collections.abc import Iterator

from migrator.adapters.output.addition_document import addition_table
from migrator.adapters.output.batch_document import batch_blocks, tree_table
from migrator.adapters.output.benchmark_document import comparison_blocks
from migrator.adapters.output.cutover_document import cutover_blocks
from migrator.adapters.output.document import Block, Document, Section, clean, paragraph
from migrator.adapters.output.drain_document import drain_table
from migrator.adapters.output.plan_document import emptying_table, ranking_blocks, surprise_table
from migrator.adapters.output.progress_document import progress_section
from migrator.adapters.output.record_document import verification_blocks
from migrator.adapters.output.report_charts import (
    age_chart,
    burn_down,
    capacity_blocks,
    day_blocks,
    freeze_chart,
    throughput_chart,
)
from migrator.adapters.output.report_headline import headline_blocks
from migrator.adapters.output.report_tables import (
    brick_table,
    incident_table,
    reaped_blocks,
    server_table,
    users_standing,
)
from migrator.adapters.output.retirement_document import retirement_facts
from migrator.adapters.output.speed_up_document import speed_up_blocks
from migrator.adapters.output.status_document import attention_table, blocker_table, run_table, scan_blocks
from migrator.adapters.output.stream_document import stream_blocks
from migrator.adapters.output.wording import when
from migrator.decide.benchmark_comparison import compare
from migrator.domain.report import ReportFacts
from migrator.domain.units import several


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
    yield Section(title="In short", blocks=tuple(headline_blocks(report)))
    if status.blocked:
        yield Section(title="What waits, and on what", blocks=(blocker_table(status.blocked),))
    if charts := tuple(burn_down(report)):
        yield Section(title="What is left", blocks=charts)
    yield progress_section(status)
    speed = (*day_blocks(report.days), *throughput_chart(report), *stream_blocks(report.streams))
    yield Section(title="Throughput", blocks=speed or (paragraph("Nothing has been copied yet."),))
    if status.batches:
        yield Section(title="Batches", blocks=tuple(batch_blocks(status.batches)))
        users = (users_standing(status.trees), tree_table(status.trees, status.batches, status.cutovers, limit=rows))
        yield Section(title="Users", blocks=users)
    if status.cutovers:
        every = cutover_blocks(status.cutovers, now_s=status.at_s, limit=rows)
        yield Section(title="Cutovers and freezes", blocks=(*freeze_chart(status.cutovers), *every))
    if report.speed_ups:
        found_ups = tuple(speed_up_blocks(report.speed_ups, report.speed_up_sums, limit=rows))
        yield Section(title="Speed-ups of users", blocks=found_ups)
    yield from _bricks(report)
    if report.reaped is not None:
        yield Section(title="What is reaped", blocks=tuple(reaped_blocks(report, rows)))
    if report.capacity:
        yield Section(title="Room", blocks=tuple(capacity_blocks(report.capacity, report.outlook)))
    if report.benchmarks:
        found = [block for one in compare(report.benchmarks) for block in comparison_blocks(one, charts=True)]
        yield Section(title="Benchmarks", blocks=tuple(found))
    yield Section(title="What was verified, and by what", blocks=tuple(_verified(report)))
    if status.attention_total:
        yield Section(
            title="Files that need attention", blocks=(attention_table(status.attention, status.attention_total),)
        )
    if report.incidents:
        yield Section(title="Incidents", blocks=(incident_table(report.incidents, limit=rows),))
    yield from _plan(report, rows)
    if status.scan is not None:
        yield Section(title="The newest scan", blocks=tuple(scan_blocks(status.scan)))
    if status.runs:
        yield Section(title="Last runs", blocks=(run_table(status.runs),))


def _bricks(report: ReportFacts) -> Iterator[Section]:
    status = report.status
    blocks: list[Block] = []
    if report.bricks:
        blocks.append(brick_table(report.bricks))
    if report.servers:
        blocks.append(server_table(report.servers))
    if status.drains:
        blocks.append(drain_table(status.drains))
    if status.additions:
        blocks.append(addition_table(status.additions))
    if status.retirement is not None:
        blocks.append(retirement_facts(status.retirement))
    if blocks:
        yield Section(title="Bricks", blocks=tuple(blocks))


def _plan(report: ReportFacts, rows: int | None) -> Iterator[Section]:
    if report.plan is None:
        if report.status.plan is not None:
            words = f"The plan cannot be shown: {report.plan_problem}"
            yield Section(title="Who holds what", blocks=(paragraph(words, alert=True),))
        return
    ranking = ranking_blocks(report.plan, rows=rows, age_rows=rows)
    yield Section(title="Who holds what", blocks=(*age_chart(report.plan), *ranking))
    if report.plan.surprises:
        yield Section(title="What will surprise", blocks=(surprise_table(report.plan.surprises, limit=rows),))
    if report.plan.emptying:
        yield Section(title="How each order would empty the source", blocks=(emptying_table(report.plan.emptying),))


def _verified(report: ReportFacts) -> Iterator[Block]:
    newest = {record.batch: record for record in report.verifications}
    if not newest:
        yield paragraph("Nothing has been verified yet.")
    for _, record in sorted(newest.items()):
        yield from verification_blocks(record)
    earlier = len(report.verifications) - len(newest)
    if earlier:
        yield paragraph(f"{several(earlier, 'earlier verification')} of the same batches are in --json.")
