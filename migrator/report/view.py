"""The report as a document, its charts, and its CSV form."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence

from migrator.bench.rules import compare
from migrator.bench.view import comparison_blocks
from migrator.bricks.view import addition_table, drain_table, retirement_facts
from migrator.core.units import DAY_S, format_count, format_duration, format_rate, format_size, several
from migrator.cutover.model import CutoverFacts
from migrator.cutover.view import cutover_blocks, speed_up_blocks
from migrator.fs.model import CapacityOutlook, CapacitySample, Side
from migrator.plan.model import Plan
from migrator.plan.view import emptying_table, ranking_blocks, schedule_section, surprise_table
from migrator.reap.view import plan_reap_blocks
from migrator.render.document import (
    NONE,
    BarChart,
    BarLine,
    Block,
    Chart,
    Document,
    Section,
    Series,
    clean,
    facts,
    figure,
    paragraph,
    paths,
    percent,
    shortened,
    table,
    text,
    when,
    wide,
)
from migrator.render.text import plain
from migrator.report.model import (
    FARTHEST_S,
    BrickOutlook,
    CopyForecast,
    Incident,
    ReapedFacts,
    ReportFacts,
    ServerOutlook,
    SinceReport,
    Standing,
    Tally,
    ThroughputPoint,
    TreeFacts,
)
from migrator.report.rules import best_and_worst, left_to_people
from migrator.report.view_records import verification_blocks
from migrator.report.view_status import (
    attention_table,
    attention_words,
    first_sections,
    on_target,
    progress_section,
    run_table,
    scan_blocks,
    with_streams,
)
from migrator.transfer.view import batch_blocks, stream_blocks, tree_table

# --- The head: progress, expected end, comparison with the last report


_STANDINGS = {
    Standing.AHEAD: "ahead",
    Standing.AS_EXPECTED: "as expected",
    Standing.BEHIND: "behind",
    Standing.UNKNOWN: "not comparable",
}


def headline_blocks(report: ReportFacts) -> Iterator[Block]:
    """The figures that management reads first."""
    status = report.status
    if status.plan is None:
        yield paragraph("There is no plan yet: nothing is counted as moved or left.")
        return
    tally = status.overall
    pairs = [
        ("moved", _moved(tally)),
        ("left", f"{format_size(tally.left_bytes)} in {several(tally.left_files, 'file')}"),
        ("users", f"{format_count(tally.done_users)} of {format_count(tally.total_users)} copied, {on_target(status)}"),
        ("expected end of copying", _end(report)),
    ]
    if report.since is not None:
        pairs.append(("against the last report", _standing(report.since)))
    if report.servers:
        free = sum(server.free_bricks for server in report.servers)
        pairs.append(("bricks free", f"{free} of {sum(server.bricks for server in report.servers)}"))
    if status.attention_total:
        pairs.append(("need attention", several(status.attention_total, "file")))
    yield facts(pairs)
    if report.since is not None and report.since.reasons:
        reasons = "; ".join(report.since.reasons)
        yield paragraph(f"{reasons[:1].upper()}{reasons[1:]}.")
    if report.outlook is not None and report.outlook.full:
        yield paragraph("The target is too small for everything in the plan: see Capacity.", alert=True)


def _moved(tally: Tally) -> str:
    shares = ((tally.percent_bytes, "bytes"), (tally.percent_files, "files"))
    return (
        ", ".join(f"{percent(share)} of the {what}" for share, what in shares if share is not None)
        or "nothing is planned to be copied"
    )


def _end(report: ReportFacts) -> str:
    tally = report.status.overall
    if tally.left_files <= 0 and (tally.total_files > 0 or tally.done_users == tally.total_users):
        return "everything that is planned was copied"
    if left_to_people(report.status.trees):
        return f"everything that is planned was copied, apart from {attention_words(tally)}"
    forecast = report.forecast
    if forecast is None:
        return "not known: too little was copied to tell"
    return expected_end(forecast)


def expected_end(forecast: CopyForecast) -> str:
    """When the copying is expected to end, with its range, in words."""
    earliest, likely, latest = (
        _ahead(at_s, forecast) for at_s in (forecast.earliest_at_s, forecast.likely_at_s, forecast.latest_at_s)
    )
    if earliest == latest:
        return likely
    return f"{likely}; with a probability of {forecast.share * 100:.0f} % between {earliest} and {latest}"


def reaches(forecast: CopyForecast) -> bool:
    """Whether some of the range lies within the longest forecast."""
    return forecast.earliest_at_s - forecast.made_at_s < FARTHEST_S


def _ahead(at_s: float, forecast: CopyForecast) -> str:
    if at_s - forecast.made_at_s >= FARTHEST_S:
        return "a time more than 100 years ahead"
    return when(at_s)


def _standing(since: SinceReport) -> str:
    words = _STANDINGS[since.standing]
    if since.end_moved_s is None or since.standing is Standing.UNKNOWN:
        return words
    moved = format_duration(abs(since.end_moved_s))
    return f"{words}: the expected end is {moved} {'later' if since.end_moved_s > 0 else 'earlier'}"


def _since_table(since: SinceReport, forecast: CopyForecast | None) -> Block:
    earlier = since.earlier
    return table(
        f"Since the report of {when(earlier.at_s)}",
        [text("what"), text("then"), text("now")],
        [
            ("copied", format_size(earlier.done_bytes), f"{format_size(since.done_bytes)} more"),
            ("files copied", format_count(earlier.done_files), f"{format_count(since.done_files)} more"),
            (
                "expected end",
                _when(earlier.likely_at_s),
                NONE if forecast is None else _ahead(forecast.likely_at_s, forecast),
            ),
            (
                "range",
                _range(earlier.earliest_at_s, earlier.latest_at_s),
                NONE if forecast is None else f"{when(forecast.earliest_at_s)} to {when(forecast.latest_at_s)}",
            ),
        ],
    )


def _range(from_s: float | None, to_s: float | None) -> str:
    return NONE if from_s is None and to_s is None else f"{_when(from_s)} to {_when(to_s)}"


def _when(at_s: float | None) -> str:
    return NONE if at_s is None else when(at_s)


# --- Tables


def incident_table(incidents: Sequence[Incident], *, limit: int | None) -> Block:
    """Warnings and errors, and how each was resolved; unresolved ones first."""
    return table(
        "Warnings and errors by subject",
        [
            text("first"),
            text("last"),
            figure("times"),
            text("severity"),
            paths("subject"),
            paths("last message"),
            wide("resolved by"),
        ],
        (
            (
                when(one.first_at_s),
                when(one.last_at_s),
                format_count(one.count),
                one.severity.value,
                one.subject,
                one.message,
                _resolution(one),
            )
            for one in incidents
        ),
        limit=limit,
    )


def _resolution(one: Incident) -> str:
    if one.resolved_at_s is None:
        return "not resolved"
    return f"{one.resolution}, {when(one.resolved_at_s)}"


def users_standing(trees: Sequence[TreeFacts]) -> Block:
    """How many user trees are done, in work and left. A tree without a copied file counts as left, even in a started batch."""
    done = sum(bool(tree.tally.done_users) for tree in trees)
    in_work = sum(not tree.tally.done_users and tree.tally.done_files > 0 for tree in trees)
    left = len(trees) - done - in_work
    return paragraph(
        f"Of {several(len(trees), 'user tree')} {format_count(done)} are copied, {format_count(in_work)} are in progress, and "
        f"{format_count(left)} are left. Heaviest first:"
    )


def _brick_table(bricks: Sequence[BrickOutlook]) -> Block:
    return table(
        "Bricks of the source, and when they are free",
        [wide("brick"), text("state"), figure("files left"), figure("bytes left"), text("free"), wide("basis")],
        (
            (
                one.brick,
                one.state,
                NONE if one.left_files is None else format_count(one.left_files),
                NONE if one.left_bytes is None else format_size(one.left_bytes),
                when(one.free_at_s),
                one.basis,
            )
            for one in bricks
        ),
    )


def _server_table(servers: Sequence[ServerOutlook]) -> Block:
    return table(
        "Servers of the source, and when they are free",
        [paths("server"), figure("bricks"), figure("free now"), text("free on"), wide("basis")],
        (
            (one.server, format_count(one.bricks), format_count(one.free_bricks), when(one.free_at_s), one.basis)
            for one in servers
        ),
    )


def _reaped_blocks(reaped: ReapedFacts, plan: Plan | None) -> Iterator[Block]:
    """What is archived or skipped instead of copied."""
    yield facts(
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


_USERS_WITH_AGES = 6
_FREEZES = 10
_NAME = 24
_DAY_ROWS = 31


def burn_down(report: ReportFacts) -> Iterator[Block]:
    """Bytes left over time, with the forecast if there is one."""
    points, forecast, overall = report.done, report.forecast, report.status.overall
    if len(points) < 2:
        return
    total = overall.total_bytes
    now_s = report.status.at_s
    past = [(point.at_s, float(max(total - point.done_bytes, 0))) for point in points if point.at_s <= now_s]
    past.append((now_s, float(overall.left_bytes)))
    words = (
        f"From {when(past[0][0])} to {when(now_s)} the bytes left went from {format_size(round(past[0][1]))} to "
        f"{format_size(overall.left_bytes)}."
    )
    if forecast is None or not reaches(forecast):
        yield Chart(
            title="Bytes left", summary=words, label="left", points=tuple(past), is_rate=False, limit=_planned(total)
        )
        return
    yield Chart(
        title="Bytes left, and the forecast",
        summary=f"{words} Expected end: {expected_end(forecast)}.",
        label="left",
        points=tuple(past),
        is_rate=False,
        limit=_planned(total),
        series=(Series(label="expected", points=tuple((one.at_s, one.left_bytes) for one in forecast.cone)),),
        band=tuple((one.at_s, one.least_bytes, one.most_bytes) for one in forecast.cone),
        band_label=f"{forecast.share * 100:.0f} % range",
    )


def _planned(total: int) -> tuple[str, float] | None:
    return ("planned", float(total)) if total else None


def throughput_chart(report: ReportFacts) -> Iterator[Block]:
    """The rate of all streams together over time."""
    points = report.throughput
    if not points:
        return
    copied, files = sum(point.size_bytes for point in points), sum(point.files for point in points)
    busy_s = sum(point.busy_s for point in points)
    best = max(points, key=lambda point: point.rate_bytes_per_s)
    mean = format_rate(copied / busy_s) if busy_s > 0 else format_rate(0)
    yield Chart(
        title="Throughput of all streams together",
        summary=(
            f"Streams wrote {format_size(copied)} and {several(files, 'file')} in {format_duration(busy_s)} of work, "
            f"{mean} on average. The best {format_duration(best.span_s)} reached "
            f"{format_rate(best.rate_bytes_per_s)} at {when(best.at_s)}{with_streams(best)}."
        ),
        label="while streams were at work",
        points=tuple((point.at_s, point.rate_bytes_per_s) for point in points),
        is_rate=True,
        span_s=points[0].span_s,
    )


def day_blocks(days: Sequence[ThroughputPoint]) -> Iterator[Block]:
    """Bytes per day, pauses included, or per hour if the history is short."""
    if not days:
        return
    by_day = days[0].span_s >= DAY_S
    word = "day" if by_day else "hour"
    most = max(days, key=lambda day: day.size_bytes)
    words = f"The best {word} ended at {when(most.at_s)} with {format_size(most.size_bytes)}."
    if (found := best_and_worst(days)) is not None:
        best, worst = found
        words = (
            f"Of the whole days on which something was copied, the best one ended at {when(best.at_s)} with {format_size(best.size_bytes)} in "
            f"{several(best.files, 'file')}, the worst at {when(worst.at_s)} with {format_size(worst.size_bytes)} in "
            f"{several(worst.files, 'file')}."
        )
    yield Chart(
        title=f"Written per {word}",
        summary=words,
        label=f"bytes per {word}",
        points=tuple((day.at_s, float(day.size_bytes)) for day in days),
        is_rate=False,
        span_s=days[0].span_s,
    )
    newest = list(reversed(days))[:_DAY_ROWS]
    yield table(
        f"Written per {word}, newest first",
        [text(f"{word} until"), figure("bytes"), figure("files"), figure("at work"), figure("rate at work")],
        (
            (
                when(day.at_s),
                format_size(day.size_bytes),
                format_count(day.files),
                percent(min(100 * day.busy_s / day.span_s, 100.0)),
                format_rate(day.rate_bytes_per_s),
            )
            for day in newest
        ),
        note=f"The newest {_DAY_ROWS}; the JSON and CSV forms have all." if len(days) > _DAY_ROWS else "",
    )


def age_chart(plan: Plan) -> Iterator[Block]:
    """Age of the data of the heaviest users."""
    heaviest = sorted(plan.ranking, key=lambda usage: (-usage.size_bytes, usage.tree.path))[:_USERS_WITH_AGES]
    groups = tuple(
        (
            f"{rank}. {_name(usage.tree.user)}",
            tuple(
                BarLine(
                    label=clean(bucket.label),
                    value=float(bucket.size_bytes),
                    text=f"{format_size(bucket.size_bytes)} in {format_count(bucket.files)}",
                )
                for bucket in usage.by_mtime
            ),
        )
        for rank, usage in enumerate(heaviest, 1)
        if usage.size_bytes > 0 and usage.by_mtime
    )
    if not groups:
        return
    first = heaviest[0]
    oldest = first.by_mtime[-1] if first.by_mtime else None
    words = f"Bytes (and files) by the age of their last change, for the {len(groups)} heaviest user trees by rank."
    if oldest is not None and first.size_bytes > 0:
        words += (
            f" Of the heaviest tree, {percent(100 * oldest.size_bytes / first.size_bytes)} of the bytes are in the "
            f"oldest class ({clean(oldest.label)})."
        )
    yield BarChart(title="Age of the data, by user", summary=words, groups=groups)


def freeze_chart(cutovers: Sequence[CutoverFacts]) -> Iterator[Block]:
    """Predicted and real duration of the newest freezes."""
    both = [one for one in cutovers if one.predicted_freeze_s is not None and one.freeze_s is not None]
    newest = sorted(both, key=lambda one: -one.since_s)[:_FREEZES]
    groups = tuple(
        (
            _name(one.tree.user),
            (
                BarLine(
                    label="predicted",
                    value=one.predicted_freeze_s or 0.0,
                    text=format_duration(one.predicted_freeze_s or 0.0),
                ),
                BarLine(label="real", value=one.freeze_s or 0.0, text=format_duration(one.freeze_s or 0.0)),
            ),
        )
        for one in newest
    )
    if not groups:
        return
    held = sum((one.freeze_s or 0.0) <= (one.predicted_freeze_s or 0.0) * 1.1 for one in both)
    yield BarChart(
        title="Freezes, predicted and real",
        summary=f"{held} of {several(len(both), 'freeze')} took at most a tenth longer than predicted.",
        groups=groups,
    )


def capacity_blocks(samples: Sequence[CapacitySample], outlook: CapacityOutlook | None) -> Iterator[Block]:
    """How full both sides are, in bytes and inodes, and how full the target will be."""
    newest = {sample.side: sample for sample in samples}
    if not newest:
        return
    if outlook is not None:
        words = (
            f"When everything in the plan has been copied, {when(outlook.at_s)}, the target will hold "
            f"{format_size(outlook.used_bytes)} of {format_size(outlook.total_bytes)}"
        )
        if outlook.used_inodes is not None and outlook.total_inodes is not None:
            words += f" and {format_count(outlook.used_inodes)} of {format_count(outlook.total_inodes)} inodes"
        yield paragraph(
            f"{words}{': more than it has' if outlook.full else ''}. Data that users add meanwhile is not included.",
            alert=outlook.full,
        )
    yield _room_chart(samples, newest, outlook, inodes=False)
    if any(sample.used_inodes is not None for sample in newest.values()):
        yield _room_chart(samples, newest, outlook, inodes=True)
    yield table(
        "Newest samples",
        [text("side"), text("at"), figure("used"), figure("of"), figure("full"), figure("inodes used"), figure("of")],
        (
            (
                side.value,
                when(sample.at_s),
                format_size(sample.used_bytes),
                format_size(sample.total_bytes),
                percent(100 * sample.used_bytes / sample.total_bytes if sample.total_bytes else None),
                "unknown" if sample.used_inodes is None else format_count(sample.used_inodes),
                "unknown" if sample.total_inodes is None else format_count(sample.total_inodes),
            )
            for side, sample in sorted(newest.items())
        ),
    )


def _room_chart(
    samples: Sequence[CapacitySample],
    newest: dict[Side, CapacitySample],
    outlook: CapacityOutlook | None,
    *,
    inodes: bool,
) -> Block:
    def used(one: CapacitySample | CapacityOutlook) -> int | None:
        return one.used_inodes if inodes else one.used_bytes

    def points(found: Iterable[CapacitySample | CapacityOutlook]) -> tuple[tuple[float, float], ...]:
        return tuple((one.at_s, float(count)) for one in found if (count := used(one)) is not None)

    known = [(side, sample) for side, sample in sorted(newest.items()) if used(sample) is not None]
    series = [
        Series(label=f"{side.value}, used", points=points(one for one in samples if one.side is side))
        for side, _ in known
    ]
    last = newest.get(Side.TARGET)
    if outlook is not None and last is not None and len(coming := points((last, outlook))) > 1:
        series.append(Series(label="target, expected", points=coming))
    words = "; ".join(
        f"the {side.value} uses {format_count(sample.used_inodes or 0)}"
        if inodes
        else f"the {side.value} holds {format_size(sample.used_bytes)} of {format_size(sample.total_bytes)}"
        for side, sample in known
    )
    return Chart(
        title=f"Room on both file systems, in {'inodes' if inodes else 'bytes'}",
        summary=f"At {when(max(one.at_s for one in newest.values()))}, {words}.",
        label=series[0].label,
        points=series[0].points,
        is_rate=False,
        counts="inodes" if inodes else "",
        series=tuple(series[1:]),
        limit=None if inodes or last is None else ("size of the target", float(last.total_bytes)),
    )


def _name(user: str) -> str:
    return shortened(clean(user), _NAME)


# --- The document


def report_document(report: ReportFacts, *, rows: int | None = None) -> Document:
    """A first page for management, then the details. `rows` cuts long tables."""
    status = report.status
    return Document(
        title=clean(f"Migration of {status.site}" if status.site is not None else "Migration"),
        subtitle=f"report as of {when(status.at_s)}",
        sections=tuple(_sections(report, rows)),
    )


def _sections(report: ReportFacts, rows: int | None) -> Iterator[Section]:
    status = report.status
    yield from first_sections(status, (*headline_blocks(report), *burn_down(report)))
    if basis := tuple(_expectation(report)):
        yield Section(title="Expected end", blocks=basis)
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
        yield Section(title="Reaped files", blocks=tuple(_reaped_blocks(report.reaped, report.plan)))
    if report.capacity:
        yield Section(title="Capacity", blocks=tuple(capacity_blocks(report.capacity, report.outlook)))
    if report.benchmarks:
        found = [block for one in compare(report.benchmarks) for block in comparison_blocks(one, charts=True)]
        yield Section(title="Benchmarks", blocks=tuple(found))
    yield Section(title="Verifications", blocks=tuple(_verified(report)))
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
        yield Section(title="Latest runs", blocks=(run_table(status.runs),))


def _expectation(report: ReportFacts) -> Iterator[Block]:
    if report.forecast is not None:
        yield paragraph(f"How the expected end was computed: {'; '.join(report.forecast.basis)}.")
    if report.since is not None:
        yield _since_table(report.since, report.forecast)


def _bricks(report: ReportFacts) -> Iterator[Section]:
    status = report.status
    blocks: list[Block] = []
    if report.bricks:
        blocks.append(_brick_table(report.bricks))
    if report.servers:
        blocks.append(_server_table(report.servers))
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
    yield from schedule_section(report.plan)


def _verified(report: ReportFacts) -> Iterator[Block]:
    newest = {record.batch: record for record in report.verifications}
    if not newest:
        yield paragraph("Nothing has been verified yet.")
    for _, record in sorted(newest.items()):
        yield from verification_blocks(record)
    earlier = len(report.verifications) - len(newest)
    if earlier:
        yield paragraph(f"{several(earlier, 'earlier verification')} of the same batches are in --json.")


# --- CSV: one row for each value, for spreadsheets and scripts
#
# `table` is the place of the value in the JSON form, `row` counts entries of a list from 1, `column` is the key (nested keys are
# joined by dots). A list of plain values is one cell, separated by blanks.


_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(value: object) -> str:
    """A value of the program as CSV (RFC 4180, UTF-8, lines end with a line feed). Text that looks like a formula gets a leading
    apostrophe, which spreadsheets read as text.
    """
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(("table", "row", "column", "value"))
    writer.writerows(_cells("", "", "", plain(value)))
    return written.getvalue()


def _cells(table: str, row: str, column: str, value: object) -> Iterator[tuple[str, str, str, str]]:
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _cells(table, row, f"{column}.{key}" if column else key, value[key])
    elif isinstance(value, list) and (not (row or column) or any(isinstance(item, dict | list) for item in value)):
        place = ".".join(part for part in (table, row, column) if part)
        for number, item in enumerate(value, 1):
            yield from _cells(place, str(number), "", item)
    else:
        yield table, row, _safe(column), _shown(value)


def _shown(value: object) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case list():
            return _safe(" ".join(_shown(item) for item in value))
        case _:
            return _safe(clean(str(value)))


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
