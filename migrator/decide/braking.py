"""Fewer streams where users or a host feel them, and more again when they do not. Pure.

Readings come one by one: the latency of a probe, the load of a host. Some in a row beyond the limit take streams away; more in
a row well below it give a few back. Between the two nothing changes, and so it is while nothing is read.
"""

from dataclasses import dataclass

from migrator.decide.probing import OVER_PROBES, UNDER_PROBES, UNDER_SHARE

KEPT_SHARE = 0.7
"""What is left of the streams, whenever a limit was passed so often in a row."""
_BACK = 4
"""A quarter more comes back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """At most `cap` streams on a host (None: it does not brake), after so many readings in a row beyond the limit, or well
    below it.
    """

    cap: int | None = None
    over: int = 0
    under: int = 0


def braked(
    brake: Brake,
    reading: float,
    *,
    limit: float,
    streams: int,
    ceiling: int,
    over: int = OVER_PROBES,
    under: int = UNDER_PROBES,
) -> Brake:
    """The brake after one more reading, in whatever unit `limit` has; `streams` are allowed on a host now. `over` readings in
    a row beyond the limit lower the cap, `under` ones well below it raise it. It is never below 1.
    """
    if reading > limit:
        count = brake.over + 1
        if count < over:
            return Brake(cap=brake.cap, over=count)
        return Brake(cap=max(min(int(streams * KEPT_SHARE), streams - 1), 1))
    if brake.cap is None or reading >= UNDER_SHARE * limit:
        return Brake(cap=brake.cap)
    count = brake.under + 1
    if count < under:
        return Brake(cap=brake.cap, under=count)
    cap = brake.cap + max(brake.cap // _BACK, 1)
    return Brake(cap=None if cap >= ceiling else cap)
