"""The charts of a report: each says in words what it shows."""

from collections.abc import Iterable, Iterator, Sequence

from migrator.adapters.output.document import (
    BarChart,
    BarLine,
    Block,
    Chart,
    Series,
    clean,
    figure,
    paragraph,
    table,
    text,
)
from migrator.adapters.output.progress_document import with_streams
from migrator.adapters.output.report_headline import expected_end, reaches
from migrator.adapters.output.wording import percent, shortened, when
from migrator.decide.report_since import best_and_worst
from migrator.domain.capacity import CapacityOutlook, CapacitySample, Side
from migrator.domain.ledger_sums import ThroughputPoint
from migrator.domain.plan import Plan
from migrator.domain.report import CutoverFacts, ReportFacts
from migrator.domain.units import DAY_S, format_count, format_duration, format_rate, format_size, several

_USERS_WITH_AGES = 6
_FREEZES = 10
_NAME = 24
_DAY_ROWS = 31


def burn_down(report: ReportFacts) -> Iterator[Block]:
    """What is left over time, and what it will be, as far as can be said."""
    points, forecast, overall = report.done, report.forecast, report.status.overall
    if len(points) < 2:
        return
    total = overall.total_bytes
    now_s = report.status.at_s
    past = [(point.at_s, float(max(total - point.done_bytes, 0))) for point in points if point.at_s <= now_s]
    past.append((now_s, float(overall.left_bytes)))
    words = (
        f"From {when(past[0][0])} to {when(now_s)} what is left went from {format_size(round(past[0][1]))} to "
        f"{format_size(overall.left_bytes)}."
    )
    if forecast is None or not reaches(forecast):
        yield Chart(
            title="Bytes left", summary=words, label="left", points=tuple(past), is_rate=False, limit=_planned(total)
        )
        return
    yield Chart(
        title="Bytes left, and the forecast",
        summary=(f"{words} It is expected to come to nothing at {expected_end(forecast)}."),
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
            f"{format_size(copied)} and {several(files, 'file')} were written in {format_duration(busy_s)} of work, "
            f"{mean} on average; the best {format_duration(best.span_s)} reached "
            f"{format_rate(best.rate_bytes_per_s)} at {when(best.at_s)}{with_streams(best)}."
        ),
        label="while streams were at work",
        points=tuple((point.at_s, point.rate_bytes_per_s) for point in points),
        is_rate=True,
        span_s=points[0].span_s,
    )


def day_blocks(days: Sequence[ThroughputPoint]) -> Iterator[Block]:
    """What every day brought, pauses included; a history of few days is shown by the hour."""
    if not days:
        return
    by_day = days[0].span_s >= DAY_S
    word = "day" if by_day else "hour"
    most = max(days, key=lambda day: day.size_bytes)
    words = f"The {word} until {when(most.at_s)} brought the most: {format_size(most.size_bytes)}."
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
        note=f"The {_DAY_ROWS} newest; all are in the JSON and CSV forms." if len(days) > _DAY_ROWS else "",
    )


def age_chart(plan: Plan) -> Iterator[Block]:
    """How old the data of the heaviest users is."""
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
            f" Of the heaviest, {percent(100 * oldest.size_bytes / first.size_bytes)} of the bytes are in the oldest "
            f"class ({clean(oldest.label)})."
        )
    yield BarChart(title="Age of the data, by user", summary=words, groups=groups)


def freeze_chart(cutovers: Sequence[CutoverFacts]) -> Iterator[Block]:
    """The newest freezes, as predicted and as they were."""
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
        summary=f"{held} of {several(len(both), 'freeze')} took no longer than predicted, or longer by a tenth at most.",
        groups=groups,
    )


def capacity_blocks(samples: Sequence[CapacitySample], outlook: CapacityOutlook | None) -> Iterator[Block]:
    """How full both sides were, in bytes and inodes, and what comes."""
    newest = {sample.side: sample for sample in samples}
    if not newest:
        return
    if outlook is not None:
        words = (
            f"When everything that is planned has been copied, {when(outlook.at_s)}, the target will hold "
            f"{format_size(outlook.used_bytes)} of {format_size(outlook.total_bytes)}"
        )
        if outlook.used_inodes is not None and outlook.total_inodes is not None:
            words += f" and {format_count(outlook.used_inodes)} of {format_count(outlook.total_inodes)} inodes"
        yield paragraph(
            f"{words}{': more than it has' if outlook.full else ''}. What users add meanwhile is not in it.",
            alert=outlook.full,
        )
    yield _room_chart(samples, newest, outlook, inodes=False)
    if any(sample.used_inodes is not None for sample in newest.values()):
        yield _room_chart(samples, newest, outlook, inodes=True)
    yield table(
        "As seen last",
        [
            text("side"),
            text("at"),
            figure("used"),
            figure("of"),
            figure("full"),
            figure("inodes used"),
            figure("of"),
        ],
        (
            (
                side.value,
                when(sample.at_s),
                format_size(sample.used_bytes),
                format_size(sample.total_bytes),
                percent(100 * sample.used_bytes / sample.total_bytes if sample.total_bytes else None),
                "not told" if sample.used_inodes is None else format_count(sample.used_inodes),
                "not told" if sample.total_inodes is None else format_count(sample.total_inodes),
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
        summary=f"As seen last, at {when(max(one.at_s for one in newest.values()))}: {words}.",
        label=series[0].label,
        points=series[0].points,
        is_rate=False,
        counts="inodes" if inodes else "",
        series=tuple(series[1:]),
        limit=None if inodes or last is None else ("size of the target", float(last.total_bytes)),
    )


def _name(user: str) -> str:
    return shortened(clean(user), _NAME)
