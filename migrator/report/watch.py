"""`status --watch`: the status and what is at work, look after look. Reads the ledger only, in short transactions."""

from typing import TYPE_CHECKING

from migrator.core.units import HOUR_S
from migrator.report.model import RunLife, StatusFacts, WatchFacts
from migrator.report.rules import span_width
from migrator.report.status import IsGone, read_status

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger

_SPARK_SPANS = 60
_SPARK_LEAST_S = 10.0
_SPARK_MOST_S = 6.0 * HOUR_S
"""The throughput is shown from the beginning of the copying run on, or of the last hours: what a throttle or a big file
does to it is seen. A span is no shorter than two samples are apart."""

LEAST_PAUSES = 9.0
"""The pause after a look is at least so many times as long as the look: watching takes no more than a tenth of a core."""

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
    """One look. `before` is the look before: what has happened since is its news; the first look has none. Raises
    UsageError where the plan is not in the ledger.
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


def pause_s(interval_s: float, look_s: float) -> float:
    """How long to wait after a look that took so long."""
    return max(interval_s, look_s * LEAST_PAUSES)


def _copying(status: StatusFacts) -> tuple[float, float] | None:
    """From when until when the throughput is shown: of the run that copies until now, otherwise of the last one that has
    copied; None before anything was copied.
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
    """How long one span is, and the throughput of each."""
    duration_s = min(max(until_s - begun_s, 1.0), _SPARK_MOST_S)
    span_s = max(span_width(duration_s, _SPARK_SPANS), _SPARK_LEAST_S)
    # Whole spans of the clock: the bars move to the left, and do not change on their way.
    first = int((until_s - duration_s) // span_s)
    rates = [0.0] * (int(until_s // span_s) - first + 1)
    for point in ledger.facts.throughput(from_s=first * span_s, to_s=until_s, span_s=span_s):
        place = round(point.at_s / span_s) - 1 - first
        if 0 <= place < len(rates):
            rates[place] = point.rate_bytes_per_s
    return span_s, tuple(rates)
