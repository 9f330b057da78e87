"""Probes: the latency that users see, and how a throttle follows it. Pure.

A probe measures small operations on one file system, in a directory of the program's own. Its latency is that of the
slowest metadata operation (create, stat, unlink, readdir). Write and sync times are recorded but do not count: a sync
takes as long as the disks need, however idle they are. A probe that times out counts with the time waited; a failed one
does not count.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from statistics import median

from msgspec import Struct

PROBE_NAME = b".migrator-probe"
"""The directory of the probes in the root of source and target. Only root can enter it, and no scan lists it."""

ENTRIES = 16
"""The number of files in the directory that `readdir` lists, and of the names that probes create in turn: they are
spread over several bricks."""

_PROBE_PATH = re.compile(re.escape(PROBE_NAME) + rb"/(?:(?:probe|entry)-[0-9]{2}|complete)")

PROBE_LOCK = "probes"
"""Only the process that holds this lock probes."""


def is_probe(path: bytes) -> bool:
    """True if a path below the root is a file of the probes, which holds no user's data."""
    return _PROBE_PATH.fullmatch(path) is not None


class ProbeSide(StrEnum):
    """The two file systems."""

    SOURCE = "source"
    TARGET = "target"


class ProbeTimes(Struct, frozen=True, kw_only=True):
    """Duration of each operation of one probe (docs/transfer.md)."""

    create_s: float
    """To create the probe's own file."""
    write_s: float
    """To write it."""
    sync_s: float
    """To sync it to the disks."""
    stat_s: float
    """To read the attributes of a file that was not accessed since the previous round."""
    unlink_s: float
    """To remove its own file."""
    readdir_s: float
    """To list the whole directory."""


class Probe(Struct, frozen=True, kw_only=True):
    """One probe of one side.

    Without `times`, either the probe timed out (the file system hangs, or is slower than that), or it failed, and
    nothing is known about the latency.
    """

    side: ProbeSide
    """The probed side."""
    at_s: float
    """When it began."""
    times: ProbeTimes | None = None
    """The duration of each operation; None: it timed out, or failed."""
    waited_s: float | None = None
    """Time after which it was given up, without an answer."""
    failure: str = ""
    """Why it failed."""

    @property
    def latency_s(self) -> float | None:
        """Duration of the slowest metadata operation, or the time waited; None if the probe failed."""
        if self.times is None:
            return self.waited_s
        return max(self.times.create_s, self.times.stat_s, self.times.unlink_s, self.times.readdir_s)


NEWEST = 5
"""The latency of a side is the median of this many probes, so a single slow one changes nothing."""

STALE_S = 900.0
"""Older probes are ignored."""

OVER_PROBES = 3
"""After this many probes in a row above the limit, the throttle goes down one step."""
UNDER_PROBES = 5
"""After this many probes in a row well below the limit, it goes up one step."""
UNDER_SHARE = 0.8
"""Well below means under this share of the limit. In between nothing changes, so that the throttle does not oscillate.
"""


class Reading(Struct, frozen=True, kw_only=True):
    """The latency of one side: the median of its newest `probes`, the last of them begun at `at_s`."""

    side: ProbeSide
    latency_s: float
    probes: int
    at_s: float

    def passes(self, limit_s: float | None) -> bool:
        """True if the latency is above the limit; False without a limit."""
        return limit_s is not None and self.latency_s > limit_s


def readings(probes: Iterable[Probe], *, now_s: float) -> Mapping[ProbeSide, Reading]:
    """The reading of each side, from probes in any order; a side without recent probes is left out."""
    found: dict[ProbeSide, Reading] = {}
    recent = sorted((one for one in probes if one.at_s > now_s - STALE_S), key=lambda probe: probe.at_s)
    for side in ProbeSide:
        answered = [(one.at_s, one.latency_s) for one in recent if one.side is side and one.latency_s is not None][
            -NEWEST:
        ]
        if answered:
            found[side] = Reading(
                side=side,
                latency_s=median(latency_s for _, latency_s in answered),
                probes=len(answered),
                at_s=answered[-1][0],
            )
    return found


class ThrottleState(Struct, frozen=True, kw_only=True):
    """How many steps a throttle is down, and how many probes in a row have been above the limit, or well below it,
    since the last step.
    """

    down: int = 0
    over: int = 0
    under: int = 0


def paced(pace: ThrottleState, latency_s: float, *, limit_s: float, lowest: int) -> ThrottleState:
    """The pace after one more probe; never more than `lowest` steps down."""
    if latency_s > limit_s:
        over = pace.over + 1
        if over < OVER_PROBES:
            return ThrottleState(down=pace.down, over=over)
        return ThrottleState(down=min(pace.down + 1, lowest))
    if latency_s < UNDER_SHARE * limit_s:
        under = pace.under + 1
        if under < UNDER_PROBES:
            return ThrottleState(down=pace.down, under=under)
        return ThrottleState(down=max(pace.down - 1, 0))
    return ThrottleState(down=pace.down)


def pace_after(
    probes: Iterable[Probe], *, limit_s: float, lowest: int, pace: ThrottleState | None = None
) -> ThrottleState:
    """The pace after probes, oldest first; failed probes change nothing."""
    found = pace or ThrottleState()
    for probe in probes:
        if probe.latency_s is not None:
            found = paced(found, probe.latency_s, limit_s=limit_s, lowest=lowest)
    return found
