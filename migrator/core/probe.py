"""Probes: the latency that users see, and how a throttle follows it. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median

# ---
# Probes: what users feel, measured on both file systems by small operations in a directory of the program's own.


PROBE_NAME = b".migrator-probe"
"""The directory in the root of source and target. It is root's alone, and no data: no scan lists it."""

ENTRIES = 16
"""How many files the directory has that is listed, and how many names probes use by turns: they lie on several bricks."""

PROBE_NAMES = 2 * ENTRIES + 1
"""The most names that lie in the directory."""

_PROBE_PATH = re.compile(re.escape(PROBE_NAME) + rb"/(?:(?:probe|entry)-[0-9]{2}|complete)")

PROBE_LOCK = "probes"
"""Whoever holds it probes: several programs at once do not make more of it."""


def is_probe(path: bytes) -> bool:
    """Whether a path below the root is a file of probes, in which nobody's data is."""
    return _PROBE_PATH.fullmatch(path) is not None


class ProbeSide(StrEnum):
    """Which file system is probed."""

    SOURCE = "source"
    TARGET = "target"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTimes:
    """Seconds of each operation of one probe: `create_s` to `unlink_s` of a file of its own, `stat_s` of a file that was not
    looked at since the round before, `readdir_s` of the whole directory.
    """

    create_s: float
    write_s: float
    sync_s: float
    stat_s: float
    unlink_s: float
    readdir_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One probe of one side. `at_s` is when it was begun, in seconds since the epoch.

    Without `times` either `waited_s` says for how long there was no answer (the file system hangs, or is slower than that), or
    `failure` why it could not be probed, which tells nothing about how fast it is.
    """

    side: ProbeSide
    at_s: float
    times: ProbeTimes | None = None
    waited_s: float | None = None
    failure: str = ""

    @property
    def latency_s(self) -> float | None:
        """What users wait for: the slowest operation on metadata; without an answer the time it was waited for. None where it
        says nothing.
        """
        if self.times is None:
            return self.waited_s
        return max(self.times.create_s, self.times.stat_s, self.times.unlink_s, self.times.readdir_s)


# ---
# What probes say about the latency that users feel, and how far a throttle gives way for it. Pure.
#
# The latency of one probe is that of the slowest of its operations on metadata (create, stat, unlink, readdir): what users wait
# for all day. Writing and syncing are kept, and do not count: a sync takes as long as the disks behind it, however idle they are.
# A probe without an answer took at least as long as it was waited for; one that failed says nothing.


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
