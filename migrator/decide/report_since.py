"""Whether a migration is ahead of what an earlier report said, or behind, and why. Pure."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from migrator.domain.forecast import ConePoint, CopyForecast
from migrator.domain.ledger_sums import ThroughputPoint
from migrator.domain.report import Tally
from migrator.domain.report_parts import EarlierReport, SinceReport, Standing
from migrator.domain.units import DAY_S, format_duration, format_rate, format_size

_TELLING = 0.05
"""An end that moved by a smaller share of what was left is as expected: every forecast moves a little."""

_NOTABLE = 0.1


def since_report(
    earlier: EarlierReport,
    *,
    now_s: float,
    plan: str | None,
    overall: Tally,
    forecast: CopyForecast | None,
    before: ThroughputPoint | None,
    after: ThroughputPoint | None,
) -> SinceReport:
    """What has come since an earlier report. `before` and `after` are the throughput of the time before it and since."""
    same_plan = plan == earlier.plan
    end_s = forecast.likely_at_s if forecast is not None else None
    if end_s is None and overall.total_files > 0 and overall.left_files <= 0:
        end_s = now_s
    moved_s = None if end_s is None or earlier.likely_at_s is None else end_s - earlier.likely_at_s
    done_bytes = max(overall.done_bytes - earlier.done_bytes, 0) if same_plan else overall.done_bytes
    expected = expected_bytes(earlier, now_s) if same_plan else None
    more = overall.total_bytes - earlier.total_bytes
    return SinceReport(
        earlier=earlier,
        standing=_standing(earlier, moved_s) if now_s >= earlier.at_s else Standing.UNKNOWN,
        done_bytes=done_bytes,
        done_files=max(overall.done_files - earlier.done_files, 0) if same_plan else overall.done_files,
        expected_bytes=expected,
        planned_more_bytes=more,
        end_moved_s=moved_s,
        reasons=tuple(
            _reasons(
                earlier,
                now_s=now_s,
                plan=plan,
                done_bytes=done_bytes,
                expected=expected,
                more=more,
                before=before,
                after=after,
            )
        ),
    )


def expected_bytes(earlier: EarlierReport, at_s: float) -> float | None:
    """What an earlier report let expect to be copied from then to a time; None where it had no forecast."""
    if not earlier.cone:
        return None
    return earlier.cone[0].left_bytes - _left(earlier.cone, at_s)


def _left(cone: Sequence[ConePoint], at_s: float) -> float:
    for one, other in pairwise(cone):
        if one.at_s <= at_s < other.at_s:
            share = (at_s - one.at_s) / (other.at_s - one.at_s)
            return one.left_bytes + (other.left_bytes - one.left_bytes) * share
    return cone[0].left_bytes if at_s < cone[0].at_s else cone[-1].left_bytes


def _standing(earlier: EarlierReport, moved_s: float | None) -> Standing:
    if moved_s is None or earlier.likely_at_s is None:
        return Standing.UNKNOWN
    if abs(moved_s) <= _TELLING * max(earlier.likely_at_s - earlier.at_s, 60.0):
        return Standing.AS_EXPECTED
    return Standing.BEHIND if moved_s > 0 else Standing.AHEAD


def _reasons(
    earlier: EarlierReport,
    *,
    now_s: float,
    plan: str | None,
    done_bytes: int,
    expected: float | None,
    more: int,
    before: ThroughputPoint | None,
    after: ThroughputPoint | None,
) -> Iterator[str]:
    if now_s < earlier.at_s:
        yield "by the clock of this machine that report is of a later time: what came since then cannot be told"
        return
    if plan == earlier.plan and more <= 0 and 0 < earlier.total_bytes <= earlier.done_bytes:
        yield "everything that is planned had been copied by then; what passes brought since is what users changed"
        return
    span = format_duration(now_s - earlier.at_s)
    if plan != earlier.plan:
        yield f"the plan is another one: {plan or 'none'} instead of {earlier.plan or 'none'}, so amounts are not comparable"
    if expected is not None and expected > 0:
        share = done_bytes / expected
        yield (
            f"in the {span} since then {format_size(done_bytes)} were copied, {share * 100:.0f} % of the "
            f"{format_size(round(expected))} that were expected"
        )
    elif plan == earlier.plan:
        yield f"in the {span} since then {format_size(done_bytes)} were copied"
    if plan == earlier.plan and abs(more) > _NOTABLE / 10 * max(earlier.total_bytes, 1):
        yield f"what is planned has become {'more' if more > 0 else 'less'} by {format_size(abs(more))}"
    yield from _of_throughput(before, after)


def _of_throughput(before: ThroughputPoint | None, after: ThroughputPoint | None) -> Iterator[str]:
    if after is None:
        yield "no stream was at work since then"
        return
    if before is None or before.busy_s <= 0 or before.span_s <= 0 or after.span_s <= 0:
        return
    busy, was = after.busy_s / after.span_s, before.busy_s / before.span_s
    if abs(busy - was) > _NOTABLE * max(was, 0.01):
        word = "more" if busy > was else "less"
        yield f"streams were at work for {word} of the time: {min(busy, 1.0) * 100:.0f} % instead of {min(was, 1.0) * 100:.0f} %"
    rate, old = after.rate_bytes_per_s, before.rate_bytes_per_s
    if old > 0 and abs(rate - old) > _NOTABLE * old:
        word = "faster" if rate > old else "slower"
        yield f"while at work they were {word}: {format_rate(rate)} instead of {format_rate(old)}"
        small, were = _mean_size(after), _mean_size(before)
        if small is not None and were is not None and small < were / 2 and rate < old:
            yield f"the files are smaller: {format_size(small)} on average instead of {format_size(were)}"


def _mean_size(point: ThroughputPoint) -> int | None:
    return round(point.size_bytes / point.files) if point.files else None


def best_and_worst(days: Sequence[ThroughputPoint]) -> tuple[ThroughputPoint, ThroughputPoint] | None:
    """The whole days that brought the most and the least; None where there are not two. The first and the last were cut
    off. A day on which nothing was copied is not among `days`.
    """
    whole = days[1:-1]
    if len(whole) < 2 or days[0].span_s < DAY_S:
        return None
    return max(whole, key=lambda day: day.size_bytes), min(whole, key=lambda day: day.size_bytes)
