"""The past: the figures of a week, and the difference from an earlier report. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from migrator.core.units import (
    DAY_S,
    format_duration,
    format_rate,
    format_size,
)
from migrator.cutover.model import CutoverRecord
from migrator.plan.model import ThroughputPoint
from migrator.report import model
from migrator.report.rules import MOVED

# --- The figures of one week


WEEK_S = 7 * DAY_S


def spans(now_s: float, first_s: float | None) -> tuple[tuple[float, float], ...]:
    """The last seven days, and the seven before if the migration is older than a week. `first_s` is its first plan."""
    weeks = ((now_s - WEEK_S, now_s), (now_s - 2 * WEEK_S, now_s - WEEK_S))
    return weeks if first_s is not None and first_s < now_s - WEEK_S else weeks[:1]


def week(
    span: tuple[float, float],
    *,
    work: ThroughputPoint | None,
    trees: Sequence[model.TreeStatus],
    cutovers: Sequence[CutoverRecord],
    cleared: Iterable[tuple[float, int]],
    added: Iterable[tuple[float, int]],
    incidents: Sequence[model.Incident],
) -> model.WeekFacts:
    """The week of a span. `work` is its throughput, `incidents` are those of the span; `cutovers` are all attempts.
    `cleared` and `added` have times with numbers of bricks.
    """
    from_s, to_s = span
    freezes = [
        one.freeze_s
        for one in cutovers
        if one.freeze_s is not None and one.thawed_at_s is not None and from_s < one.thawed_at_s <= to_s
    ]
    return model.WeekFacts(
        from_s=from_s,
        to_s=to_s,
        users_moved=sum(from_s < at_s <= to_s for at_s in moved_at_s(trees, cutovers).values()),
        size_bytes=0 if work is None else work.size_bytes,
        files=0 if work is None else work.files,
        busy_s=0.0 if work is None else work.busy_s,
        bricks_cleared=sum(bricks for at_s, bricks in cleared if from_s < at_s <= to_s),
        bricks_added=sum(bricks for at_s, bricks in added if from_s < at_s <= to_s),
        incidents=len(incidents),
        freezes=len(freezes),
        longest_freeze_s=max(freezes, default=None),
    )


def moved_at_s(trees: Sequence[model.TreeStatus], cutovers: Sequence[CutoverRecord]) -> dict[str, float]:
    """When each moved user was: with the last of their trees. `cutovers` are oldest first."""
    thawed = {one.tree.path: one.thawed_at_s for one in cutovers if one.thawed_at_s is not None}
    by_user: dict[str, list[float | None]] = defaultdict(list)
    for tree in trees:
        if tree.state is not model.TreeState.EXCLUDED:
            by_user[tree.tree.user].append(thawed.get(tree.tree.path) if tree.state in MOVED else None)
    found = {user: [one for one in times if one is not None] for user, times in by_user.items()}
    return {user: max(times) for user, times in found.items() if len(times) == len(by_user[user])}


# --- Comparison with an earlier report


_AS_EXPECTED = 0.05
"""An end that moved by at most this share of the time left is as expected: every forecast moves a little."""

_NOTABLE = 0.1


def since_report(
    earlier: model.EarlierReport,
    *,
    now_s: float,
    plan: str | None,
    overall: model.ProgressCounts,
    forecast: model.CopyForecast | None,
    before: ThroughputPoint | None,
    after: ThroughputPoint | None,
) -> model.SinceReport:
    """Progress since an earlier report. `before` and `after` are the throughput before it and since then."""
    same_plan = plan == earlier.plan
    end_s = forecast.likely_at_s if forecast is not None else None
    if end_s is None and overall.total_files > 0 and overall.left_files <= 0:
        end_s = now_s
    moved_s = None if end_s is None or earlier.likely_at_s is None else end_s - earlier.likely_at_s
    since = model.SinceReport(
        earlier=earlier,
        standing=_punctuality(earlier, moved_s),
        done_bytes=max(overall.done_bytes - earlier.done_bytes, 0) if same_plan else overall.done_bytes,
        done_files=max(overall.done_files - earlier.done_files, 0) if same_plan else overall.done_files,
        expected_bytes=expected_bytes(earlier, now_s) if same_plan else None,
        planned_more_bytes=overall.total_bytes - earlier.total_bytes,
        end_moved_s=moved_s,
        reasons=(),
    )
    changed = f"the plan changed from {earlier.plan or 'none'} to {plan or 'none'}, so amounts are not comparable"
    amounts = _amounts(since, now_s) if same_plan else [changed]
    return replace(since, reasons=(*amounts, *_pace_reasons(before, after)))


def expected_bytes(earlier: model.EarlierReport, at_s: float) -> float | None:
    """Bytes that the forecast of an earlier report expected to be copied until `at_s`; None if it had no forecast."""
    if earlier.likely_at_s is None:
        return None
    share = (at_s - earlier.at_s) / max(earlier.likely_at_s - earlier.at_s, 1.0)
    return (earlier.total_bytes - earlier.done_bytes) * min(max(share, 0.0), 1.0)


def _punctuality(earlier: model.EarlierReport, moved_s: float | None) -> model.Punctuality:
    if moved_s is None or earlier.likely_at_s is None:
        return model.Punctuality.UNKNOWN
    if abs(moved_s) <= _AS_EXPECTED * max(earlier.likely_at_s - earlier.at_s, 60.0):
        return model.Punctuality.AS_EXPECTED
    return model.Punctuality.BEHIND if moved_s > 0 else model.Punctuality.AHEAD


def _amounts(since: model.SinceReport, now_s: float) -> Iterator[str]:
    words = (
        f"in the {format_duration(now_s - since.earlier.at_s)} since then {format_size(since.done_bytes)} were copied"
    )
    if since.expected_bytes is not None and since.expected_bytes > 0:
        share = since.done_bytes / since.expected_bytes * 100
        words += f", {share:.0f} % of the expected {format_size(round(since.expected_bytes))}"
    yield words
    more = since.planned_more_bytes
    if abs(more) > _NOTABLE / 10 * max(since.earlier.total_bytes, 1):
        yield f"the plan {'grew' if more > 0 else 'shrank'} by {format_size(abs(more))}"


def _pace_reasons(before: ThroughputPoint | None, after: ThroughputPoint | None) -> Iterator[str]:
    """The changes of the streams' rate, and of the share of the time in which they ran."""
    if after is None:
        yield "no stream has run since then"
        return
    if before is None or before.busy_s <= 0 or before.span_s <= 0 or after.span_s <= 0:
        return
    busy, was = after.busy_s / after.span_s, before.busy_s / before.span_s
    if abs(busy - was) > _NOTABLE * max(was, 0.01):
        word = "more" if busy > was else "less"
        yield f"streams ran for {word} of the time: {min(busy, 1.0) * 100:.0f} % instead of {min(was, 1.0) * 100:.0f} %"
    rate, old = after.rate_bytes_per_s, before.rate_bytes_per_s
    if old > 0 and abs(rate - old) > _NOTABLE * old:
        word = "faster" if rate > old else "slower"
        yield f"while running they were {word}: {format_rate(rate)} instead of {format_rate(old)}"
