"""`status --watch`: successive snapshots of the ledger, read in short transactions."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from migrator.core.clock import Clock
from migrator.core.errors import MigratorError
from migrator.ledger.locks import Holders
from migrator.report.model import DEFAULT_SETTINGS, ForecastSettings, MigrationStatus, ReadPlan, WatchFacts
from migrator.report.status import read_status

if TYPE_CHECKING:
    from migrator.report.records import ReportLedger

_RATES, _RATE_SPAN_S = 60, 60.0
"""The chart of the throughput shows an hour, until now or the end of the last copying."""

LEAST_PAUSES = 9.0
"""Minimum ratio of the pause to the time that a snapshot took: watching uses at most a tenth of a core."""

_RECENT_S = 30.0
_NEWS = 50
_EVENTS = 20


def read_watch(
    ledger: "ReportLedger",
    *,
    now_s: float,
    plan: str | None = None,
    holders: Holders = tuple,
    before: WatchFacts | None = None,
    read_plan: ReadPlan | None = None,
    settings: ForecastSettings = DEFAULT_SETTINGS,
) -> WatchFacts:
    """One snapshot. Its news are the events since `before`, the previous snapshot; the first one has none. Raises
    UsageError if the plan is not in the ledger.
    """
    last_event = ledger.live.last_event() if before is None else before.last_event
    status = read_status(
        ledger,
        now_s=now_s,
        plan=plan,
        holders=holders,
        events_limit=_EVENTS,
        read_plan=read_plan,
        settings=settings,
    )
    streams = ledger.live.streams(recent_s=_RECENT_S)
    news = ledger.live.events_after(before.last_event, _NEWS) if before is not None else ()
    return WatchFacts(
        status=status,
        streams=tuple(streams),
        rates=_rates(ledger, status),
        news=tuple(event for _, event in news),
        last_event=news[-1][0] if news else last_event,
    )


def snapshots(
    ledger: "ReportLedger",
    clock: Clock,
    interval_s: float,
    *,
    plan: str | None = None,
    holders: Holders = tuple,
    read_plan: ReadPlan | None = None,
    settings: ForecastSettings = DEFAULT_SETTINGS,
) -> Iterator[tuple[WatchFacts, str, float]]:
    """Snapshots without end: the facts, why they could not be refreshed (empty: they are new), and the seconds to wait
    until the next one. Raises as `read_watch` for the first one; later errors keep the facts.
    """
    facts, problem = None, ""
    while True:
        began_s = clock.monotonic_s()
        try:
            facts = read_watch(
                ledger,
                now_s=clock.now_s(),
                plan=plan,
                holders=holders,
                before=facts,
                read_plan=read_plan,
                settings=settings,
            )
            problem = ""
        except MigratorError as error:
            if facts is None:
                raise
            problem = f"cannot refresh: {error.message}"
        yield facts, problem, pause_s(interval_s, clock.monotonic_s() - began_s)


def pause_s(interval_s: float, read_s: float) -> float:
    """Seconds to wait after a snapshot that took `read_s`."""
    return max(interval_s, read_s * LEAST_PAUSES)


def _rates(ledger: "ReportLedger", status: MigrationStatus) -> tuple[float, ...]:
    """The throughput of each span from the first one with any; spans are aligned to the clock, so bars only move to the left."""
    if status.last_rate is None:
        return ()
    last = int((status.at_s if status.rate is not None else status.last_rate.at_s) // _RATE_SPAN_S)
    first = last - _RATES + 1
    points = ledger.samples.throughput(from_s=first * _RATE_SPAN_S, to_s=(last + 1) * _RATE_SPAN_S, span_s=_RATE_SPAN_S)
    found = {round(point.at_s / _RATE_SPAN_S) - 1: point.rate_bytes_per_s for point in points}
    return tuple(found.get(place, 0.0) for place in range(min(found, default=last), last + 1))
