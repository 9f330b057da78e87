"""What probes say about the latency that users feel, and how far a throttle gives way for it. Pure.

The latency of one probe is that of the slowest of its operations on metadata (create, stat, unlink, readdir): what users wait
for all day. Writing and syncing are kept, and do not count: a sync takes as long as the disks behind it, however idle they are.
A probe without an answer took at least as long as it was waited for; one that failed says nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median

from migrator.domain.probe import Probe, ProbeSide

NEWEST = 5
"""The latency that counts is the median of so many probes: one that was slow by chance changes nothing."""

STALE_S = 900.0
"""Older probes say nothing about now."""

OVER_PROBES = 3
"""So many probes in a row beyond the limit, and the throttle goes down one step."""
UNDER_PROBES = 5
"""So many in a row well below it, and it comes up one step."""
UNDER_SHARE = 0.8
"""Well below: under this share of the limit. Between the two nothing changes, so that it does not swing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the newest probes of one side say together. `latency_s` is the one that counts, `probes` from how many, `at_s` when
    the newest was begun.
    """

    side: ProbeSide
    latency_s: float
    probes: int
    at_s: float

    def passes(self, limit_s: float | None) -> bool:
        """Whether it is beyond a limit; never without one."""
        return limit_s is not None and self.latency_s > limit_s


def readings(probes: Iterable[Probe], *, now_s: float) -> Mapping[ProbeSide, Reading]:
    """By side what its newest probes say, in whatever order they are given; a side that nothing is known of is left out."""
    found: dict[ProbeSide, Reading] = {}
    recent = sorted((one for one in probes if one.at_s > now_s - STALE_S), key=lambda probe: probe.at_s)
    for side in ProbeSide:
        told = [(one.at_s, one.latency_s) for one in recent if one.side is side and one.latency_s is not None][-NEWEST:]
        if told:
            found[side] = Reading(
                side=side,
                latency_s=median(latency_s for _, latency_s in told),
                probes=len(told),
                at_s=told[-1][0],
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many steps a throttle is down for the users' sake, and how many probes in a row have been beyond the limit, or well
    below it, since that changed.
    """

    down: int = 0
    over: int = 0
    under: int = 0


def paced(pace: Pace, latency_s: float, *, limit_s: float, lowest: int) -> Pace:
    """The pace after one more probe; never more than `lowest` steps down."""
    if latency_s > limit_s:
        over = pace.over + 1
        if over < OVER_PROBES:
            return Pace(down=pace.down, over=over)
        return Pace(down=min(pace.down + 1, lowest))
    if latency_s < UNDER_SHARE * limit_s:
        under = pace.under + 1
        if under < UNDER_PROBES:
            return Pace(down=pace.down, under=under)
        return Pace(down=max(pace.down - 1, 0))
    return Pace(down=pace.down)


def pace_after(probes: Iterable[Probe], *, limit_s: float, lowest: int, pace: Pace | None = None) -> Pace:
    """The pace after probes, oldest first; those that say nothing change nothing."""
    found = pace or Pace()
    for probe in probes:
        if probe.latency_s is not None:
            found = paced(found, probe.latency_s, limit_s=limit_s, lowest=lowest)
    return found
