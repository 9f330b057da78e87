"""`status --watch`: successive snapshots of the ledger, read in short transactions."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from migrator.core.clock import Clock
from migrator.core.errors import MigratorError
from migrator.core.units import HOUR_S
from migrator.report.model import RunLife, StatusFacts, WatchFacts
from migrator.report.rules import span_width
from migrator.report.status import IsGone, read_status

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger

_SPARK_SPANS = 60
_SPARK_LEAST_S = 10.0
_SPARK_MOST_S = 6.0 * HOUR_S
"""The chart of the throughput begins with the copying run, or some hours ago, to show the effect of throttles and big files.
A span is at least as long as the interval between two samples."""

LEAST_PAUSES = 9.0
"""Least ratio of the pause to the time that a snapshot took, so that watching uses at most a tenth of a core."""

_RECENT_S = 30.0
_NEWS = 50
_EVENTS = 20


def read_watch(
    ledger: "Ledger",
    *,
    now_s: float,
    plan: str | None = None,
    is_gone: IsGone | None = None,
    before: WatchFacts | None = None,
) -> WatchFacts:
    """One snapshot. Its news are the events since `before`, the previous snapshot; the first one has none. Raises UsageError
    if the plan is not in the ledger.
    """
    last_event = ledger.watching.last_event() if before is None else before.last_event
    status = read_status(ledger, now_s=now_s, plan=plan, is_gone=is_gone, events_limit=_EVENTS)
    copying = _copying(status)
    span_s, rates = (0.0, ()) if copying is None else _rates(ledger, *copying)
    streams = ledger.watching.streams(recent_s=_RECENT_S)
    news = ledger.watching.events_after(before.last_event, _NEWS) if before is not None else ()
    return WatchFacts(
        status=status,
        streams=tuple(streams),
        rates=rates,
        rates_span_s=span_s,
        news=tuple(event for _, event in news),
        last_event=news[-1][0] if news else last_event,
    )


def snapshots(
    ledger: "Ledger", clock: Clock, interval_s: float, *, plan: str | None = None, is_gone: IsGone | None = None
) -> Iterator[tuple[WatchFacts, str, float]]:
    """Snapshots without end: the facts, why they could not be refreshed (empty: they are new), and the seconds to wait until the
    next one. Raises as `read_watch` for the first one; later errors keep the facts.
    """
    facts, problem = None, ""
    while True:
        began_s = clock.monotonic_s()
        try:
            facts = read_watch(ledger, now_s=clock.now_s(), plan=plan, is_gone=is_gone, before=facts)
            problem = ""
        except MigratorError as error:
            if facts is None:
                raise
            problem = f"cannot refresh: {error.message}"
        yield facts, problem, pause_s(interval_s, clock.monotonic_s() - began_s)


def pause_s(interval_s: float, read_s: float) -> float:
    """How long to wait after a snapshot that took `read_s`."""
    return max(interval_s, read_s * LEAST_PAUSES)


def _copying(status: StatusFacts) -> tuple[float, float] | None:
    """The time span of the chart: from the start of the copying run until now, otherwise the last run that copied; None
    before anything was copied.
    """
    runs = [run for run in status.runs if run.verb == "run"]
    if any(run.life is RunLife.AT_WORK for run in runs[:1]):
        return runs[0].started_at_s, status.at_s
    if status.last_rate is None:
        return None
    until_s = status.last_rate.at_s
    begun_s = next((run.started_at_s for run in runs if run.started_at_s < until_s), until_s - _SPARK_MOST_S)
    return begun_s, until_s


def _rates(ledger: "Ledger", begun_s: float, until_s: float) -> tuple[float, tuple[float, ...]]:
    """The length of a span, and the throughput of each span."""
    duration_s = min(max(until_s - begun_s, 1.0), _SPARK_MOST_S)
    span_s = max(span_width(duration_s, _SPARK_SPANS), _SPARK_LEAST_S)
    # Spans are aligned to the clock, so that bars only move to the left between snapshots.
    first = int((until_s - duration_s) // span_s)
    rates = [0.0] * (int(until_s // span_s) - first + 1)
    for point in ledger.facts.throughput(from_s=first * span_s, to_s=until_s, span_s=span_s):
        place = round(point.at_s / span_s) - 1 - first
        if 0 <= place < len(rates):
            rates[place] = point.rate_bytes_per_s
    return span_s, tuple(rates)
