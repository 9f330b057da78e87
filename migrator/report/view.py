"""The report as a document, its charts, and its CSV form."""

import json
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from migrator.bench.rules import compare
from migrator.bench.view import comparison_blocks
from migrator.core.units import DAY_S, format_count, format_duration, format_rate, format_size, several
from migrator.cutover.view import cutover_blocks, freeze_table, speed_up_blocks
from migrator.fs.model import CapacitySample, Side
from migrator.plan.model import Plan, ThroughputPoint
from migrator.plan.view import emptying_table, ranking_blocks, schedule_section, surprise_table, usage_blocks
from migrator.reap.view import plan_reap_blocks
from migrator.render import document as doc
from migrator.render.text import as_csv, csv_text, plain
from migrator.report import model, view_status
from migrator.report.view_batches import batch_blocks
from migrator.report.view_first import describe_free_space, first_sections, since_blocks
from migrator.report.view_overview import bricks_cleared, source_after_purges, user_blocks, users_moved
from migrator.report.view_records import verification_blocks
from migrator.report.view_timeline import timeline_blocks
from migrator.transfer.view import stream_blocks

# --- Tables


def _resolution(one: model.Incident) -> str:
    return "not resolved" if one.resolved_at_s is None else f"{one.resolution}, {doc.when(one.resolved_at_s)}"


_INCIDENT: doc.Cells[model.Incident] = (
    (doc.text("first"), lambda one: doc.when(one.first_at_s)),
    (doc.text("last"), lambda one: doc.when(one.last_at_s)),
    (doc.figure("times"), lambda one: format_count(one.count)),
    (doc.text("severity"), lambda one: one.severity.value),
    (doc.paths("subject"), lambda one: one.subject),
    (doc.paths("last message"), lambda one: one.message),
    (doc.wide("resolved by"), _resolution),
)


_BRICK: doc.Cells[model.BrickOutlook] = (
    (doc.wide("brick"), lambda one: one.brick),
    (doc.text("state"), lambda one: one.state),
    (doc.figure("files left"), lambda one: doc.known(one.left_files, format_count)),
    (doc.figure("bytes left"), lambda one: doc.known(one.left_bytes, format_size)),
    (doc.text("free"), lambda one: doc.when(one.free_at_s)),
    (doc.wide("basis"), lambda one: one.basis),
)

_SERVER: doc.Cells[model.ServerOutlook] = (
    (doc.paths("server"), lambda one: one.server),
    (doc.figure("bricks"), lambda one: format_count(one.bricks)),
    (doc.figure("free now"), lambda one: format_count(one.free_bricks)),
    (doc.text("free on"), lambda one: doc.when(one.free_at_s)),
    (doc.wide("basis"), lambda one: one.basis),
)


def _brick_blocks(report: model.ReportFacts) -> Iterator[doc.Block]:
    yield doc.records("Bricks of the source, and when they are free", _BRICK, report.bricks)
    yield doc.records("Servers of the source, and when they are free", _SERVER, report.servers)
    yield from view_status.brick_blocks(report.status)


def _reaped_blocks(reaped: model.ReapedFacts | None, plan: Plan | None) -> Iterator[doc.Block]:
    """The files archived or skipped instead of copied."""
    if reaped is None:
        return
    yield doc.facts(
        [
            (
                "to be archived",
                f"{format_size(reaped.to_archive_bytes)} in {several(reaped.to_archive_inodes, 'inode')}",
            ),
            (
                "archived and proven",
                f"{format_size(reaped.archived_bytes)} in {several(reaped.archived_files, 'file')}, stored as "
                f"{format_size(reaped.archive_bytes)} in {several(reaped.archives, 'archive')}",
            ),
            ("skipped", f"{format_size(reaped.skipped_bytes)} in {several(reaped.skipped_inodes, 'inode')}"),
            ("released for deletion", several(reaped.released, "path or glob", "paths and globs")),
        ]
    )
    if plan is not None and plan.reap is not None:
        yield from plan_reap_blocks(plan.reap)


# --- Charts, each with its summary in words


def burn_down(report: model.ReportFacts) -> Iterator[doc.Block]:
    """Bytes left over time, with the forecast."""
    points, forecast, overall = report.done, report.status.forecast, report.status.overall
    if len(points) < 2:
        return
    total, now_s = overall.total_bytes, report.status.at_s
    past = [(point.at_s, float(max(total - point.done_bytes, 0))) for point in points if point.at_s <= now_s]
    past.append((now_s, float(overall.left_bytes)))
    chart = doc.Chart(
        title="Bytes left",
        summary=(
            f"From {doc.when(past[0][0])} to {doc.when(now_s)} the bytes left went from {format_size(round(past[0][1]))} to "
            f"{format_size(overall.left_bytes)}."
        ),
        label="left",
        points=tuple(past),
        limit=("planned", float(total)) if total else None,
    )
    if forecast is not None:
        chart = replace(
            chart,
            title="Bytes left, and the forecast",
            summary=f"{chart.summary} Expected end: {view_status.expected_end(report.status)}.",
            series=(
                doc.ChartLine(label="expected", points=tuple((one.at_s, one.left_bytes) for one in forecast.cone)),
            ),
            band=tuple((one.at_s, one.least_bytes, one.most_bytes) for one in forecast.cone),
            band_label=f"{forecast.share * 100:.0f} % range",
        )
    yield chart


def day_chart(days: Sequence[ThroughputPoint]) -> Iterator[doc.Block]:
    """Bytes per day, pauses included, or per hour if the history is short."""
    if not days:
        return
    word = "day" if days[0].span_s >= DAY_S else "hour"
    most = max(days, key=lambda day: day.size_bytes)
    written, busy_s = sum(day.size_bytes for day in days), sum(day.busy_s for day in days)
    yield doc.Chart(
        title=f"Written per {word}",
        summary=(
            f"Streams wrote {format_size(written)} and {several(sum(day.files for day in days), 'file')} in "
            f"{format_duration(busy_s)} of work, {format_rate(written / busy_s if busy_s > 0 else 0)} on average. The best "
            f"{word} ended at {doc.when(most.at_s)} with {format_size(most.size_bytes)}."
        ),
        label=f"bytes per {word}",
        points=tuple((day.at_s, float(day.size_bytes)) for day in days),
        span_s=days[0].span_s,
    )


def capacity_blocks(report: model.ReportFacts) -> Iterator[doc.Block]:
    """The usage of both sides, in bytes and inodes, and the expected usage of both."""
    samples, outlook = report.capacity, report.outlook
    newest = {sample.side: sample for sample in samples}
    if not newest:
        return
    if outlook is not None:
        words = (
            f"By {doc.when(outlook.at_s)}, when the plan is copied, the target will hold "
            f"{format_size(outlook.used_bytes)} of {format_size(outlook.total_bytes)}"
        )
        if outlook.used_inodes is not None and outlook.total_inodes is not None:
            words += f" and {format_count(outlook.used_inodes)} of {format_count(outlook.total_inodes)} inodes"
        yield doc.paragraph(
            f"{words}{': more than its size' if outlook.full else ''}. Growth is not included.",
            alert=outlook.full,
        )
    yield _room_chart(report, newest)
    yield doc.facts(
        (f"{side.value}, {doc.when(one.at_s)}", describe_free_space(one)) for side, one in sorted(newest.items())
    )


def _room_chart(report: model.ReportFacts, newest: dict[Side, CapacitySample]) -> doc.Block:
    samples, outlook = report.capacity, report.outlook
    series = [
        doc.ChartLine(
            label=f"{side.value}, used",
            points=tuple((one.at_s, float(one.used_bytes)) for one in samples if one.side is side),
        )
        for side in sorted(newest)
    ]
    target = newest.get(Side.TARGET)
    if outlook is not None and target is not None:
        coming = ((target.at_s, float(target.used_bytes)), (outlook.at_s, float(outlook.used_bytes)))
        series.append(doc.ChartLine(label="target, expected", points=coming))
    summary = ""
    if (source := newest.get(Side.SOURCE)) is not None and (purged := source_after_purges(report, source)):
        series.append(doc.ChartLine(label="source, expected", points=purged))
        last_s, used = purged[-1]
        summary = f" Expected purges leave {format_size(used)} on the source by {doc.when(last_s)}, without growth."
    words = "; ".join(
        f"the {side.value} holds {format_size(sample.used_bytes)} of {format_size(sample.total_bytes)}"
        for side, sample in sorted(newest.items())
    )
    return doc.Chart(
        title="Free space on both file systems",
        summary=f"At {doc.when(max(one.at_s for one in newest.values()))}, {words}.{summary}",
        label=series[0].label,
        points=series[0].points,
        series=tuple(series[1:]),
        limit=None if target is None else ("size of the target", float(target.total_bytes)),
    )


# --- The document


def report_document(report: model.ReportFacts, *, rows: int | None = None) -> doc.Document:
    """A first page for management, then an overview in pictures, then the details. `rows` cuts long tables."""
    subtitle = f"report as of {doc.when(report.status.at_s)}"
    return view_status.migration_document(report.status, subtitle, _sections(report, rows))


def _sections(report: model.ReportFacts, rows: int | None) -> Iterator[doc.Section]:
    status = report.status
    speed = (*day_chart(report.days), *stream_blocks(report.streams))
    ups = speed_up_blocks(report.speed_ups, report.speed_up_sums, limit=rows) if report.speed_ups else ()
    yield from first_sections(report)
    yield from doc.overview_sections(
        ("Timeline", timeline_blocks(report)),
        ("Users moved", users_moved(report)),
        ("Bytes left", burn_down(report)),
        ("Capacity", capacity_blocks(report)),
        ("Bricks cleared", bricks_cleared(report)),
        ("Users", user_blocks(status, rows=rows)),
    )
    yield from doc.sections(
        ("Progress in detail", (*view_status.progress_blocks(status), *since_blocks(report.since))),
        ("Throughput", speed or [doc.paragraph("No files have been copied yet.")]),
        ("Batches", batch_blocks(status.batches)),
        (
            "Cutovers and freezes",
            (
                *cutover_blocks(status.cutovers, now_s=status.at_s, limit=rows),
                freeze_table(report.freezes, limit=rows),
            ),
        ),
        ("Speed-ups of users", ups),
        ("Bricks", _brick_blocks(report)),
        ("Reaped files", _reaped_blocks(report.reaped, report.plan)),
        ("Storage targets", view_status.storage_blocks(status.storage)),
        ("Benchmarks", (block for one in compare(report.benchmarks) for block in comparison_blocks(one, charts=True))),
        ("Verifications", _verified(report)),
        ("Files that need attention", [view_status.attention_table(status.attention, status.attention_total)]),
        ("Incidents", [doc.records("Warnings and errors by subject", _INCIDENT, report.incidents, limit=rows)]),
    )
    if report.plan is not None:
        yield from doc.sections(
            ("Users by size", ranking_blocks(report.plan, rows=rows, age_rows=rows)),
            ("Surprises", [surprise_table(report.plan.surprises, limit=rows)]),
            ("The source by order of users", [emptying_table(report.plan.emptying)]),
        )
        yield from schedule_section(report.plan, _expected_now(status))
    elif status.plan is not None:
        words = f"The plan cannot be shown: {report.plan_problem}"
        yield from doc.sections(("Users by size", [doc.paragraph(words, alert=True)]))
    if report.usage is not None:
        blocks = usage_blocks(report.usage, report.usage_differences, limit=rows)
        yield from doc.sections(("Robinhood's figures", blocks))
    yield from doc.sections(
        ("The newest scan", view_status.scan_blocks(status.scan)), ("Latest runs", [view_status.run_table(status.runs)])
    )


def _expected_now(status: model.MigrationStatus) -> Sequence[doc.Block]:
    """The dates that are expected now, because those of the schedule are as old as the plan."""
    goals = (model.Goal.MOVED, model.Goal.CLEARED)
    dates = [one for one in status.milestones if one.goal in goals]
    words = "; ".join(f"{view_status.GOALS[one.goal]} {view_status.describe_milestone(one)}" for one in dates)
    return [doc.paragraph(f"The schedule has the dates of the plan. Expected now: {words}.")] if dates else ()


def _verified(report: model.ReportFacts) -> Iterator[doc.Block]:
    newest = {record.batch: record for record in report.verifications}
    if not newest:
        yield doc.paragraph("No batch has been verified yet.")
    for _, record in sorted(newest.items()):
        yield from verification_blocks(record)
    earlier = len(report.verifications) - len(newest)
    if earlier:
        yield doc.paragraph(f"{several(earlier, 'earlier verification')} of the same batches are in --json.")


# --- CSV: one row for each value, for spreadsheets and scripts
#
# `table` is the place of the value in the JSON form, `row` counts entries of a list from 1, `column` is the key (nested
# keys are joined by dots). A list of plain values is one cell, separated by blanks.


def to_csv(value: object) -> str:
    """A value of the program as CSV."""
    return as_csv([("table", "row", "column", "value"), *_cells("", "", "", plain(value))])


def _cells(table: str, row: str, column: str, value: object) -> Iterator[tuple[str, str, str, str]]:
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _cells(table, row, f"{column}.{key}" if column else key, value[key])
    elif isinstance(value, list) and (not (row or column) or any(isinstance(item, dict | list) for item in value)):
        place = ".".join(part for part in (table, row, column) if part)
        for number, item in enumerate(value, 1):
            yield from _cells(place, str(number), "", item)
    else:
        yield table, row, csv_text(column), _shown(value)


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, int | float):
        return json.dumps(value)
    if isinstance(value, list):
        return csv_text(" ".join(_shown(item) for item in value))
    return csv_text(doc.clean(str(value)))
