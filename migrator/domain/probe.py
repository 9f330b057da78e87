"""Probes: what users feel, measured on both file systems by small operations in a directory of the program's own."""

import re
from dataclasses import dataclass
from enum import StrEnum

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
