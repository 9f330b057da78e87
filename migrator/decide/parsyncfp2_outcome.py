r"""What one run of parsyncfp2 came to, and which parsyncfp2 it is.

Read in versions 2.55 and 2.59: it ends with 1 after `** FATAL ERROR **` on standard output, and with 0 in all other
cases, whatever its rsyncs did; some versions end while rsyncs are still at work. So the exit code proves nothing: what
counts are the messages of its rsyncs on standard error, and that all of its processes are gone.
"""

import re
from dataclasses import dataclass

from migrator.decide.driver_parts import PartLog, describe_parts, judge_jail, stop_of
from migrator.domain.paths import show
from migrator.domain.transfer import Outcome, StopReason, StreamCounters, Verdict

MOST_CHUNKS = 5000
"""Beyond them it gives up."""
OLDEST_VERSION = (2, 57)
"""Earlier ones take no mounted file system for a target."""

_VERSION = re.compile(rb"^parsyncfp2 version (\d+)\.(\d+)", re.MULTILINE)
_OPTION = re.compile(rb'^\s*"((?:[a-z]+\|)*(?:ro|rsyncopts)(?:\|[a-z]+)*)=s"', re.MULTILINE)
_FATAL = re.compile(rb"\*\* FATAL ERROR \*\*: *([^\n]*)")
_TOO_MANY = re.compile(rb"now exceeded \[\d+\] chunk files")
_MISSING = re.compile(rb"REQUIRED utilities were not found|Can't (?:create|make|open)")
_COLOURS = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_RSYNC = re.compile(rb"rsync(?: error)?: |file has vanished: |migrator-jail: |ERROR: |WARNING: ")
_SIGNALLED = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsyncfp2Features:
    """Which parsyncfp2 it is. `rsync_option` hands options on to rsync: `--rsyncopts` up to 2.42, then `--ro`."""

    version: tuple[int, int]
    rsync_option: str

    def problem(self) -> str | None:
        """Why it cannot be used; None where it can."""
        if self.version < OLDEST_VERSION:
            version = ".".join(map(str, self.version))
            return (
                f"parsyncfp2 {version} copies to no mounted file system: {'.'.join(map(str, OLDEST_VERSION))} is needed"
            )
        return None


def parse_features(script: bytes) -> Parsyncfp2Features | None:
    """From the program itself, which is a script; None where it does not look like one."""
    version, option = _VERSION.search(script), _OPTION.search(script)
    if version is None or option is None:
        return None
    names = option[1].decode("ascii").split("|")
    return Parsyncfp2Features(
        version=(int(version[1]), int(version[2])), rsync_option="rsyncopts" if "rsyncopts" in names else "ro"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedParsyncfp2:
    """How it ended; `stdout` and `stderr` are all that it said, or as much as could be kept."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    counters: StreamCounters
    source_tree: bytes
    target_tree: bytes
    timed_out: bool = False


def judge_parsyncfp2(ended: EndedParsyncfp2) -> Outcome:
    """STOP for errors that no file is to blame for, INTERRUPTED where something ended it, RETRY where it gave up; DONE
    otherwise, with a message where its rsyncs left any.
    """
    if (jail := judge_jail(ended.stderr, exit_code=ended.exit_code, counters=ended.counters)) is not None:
        return jail
    lines = [line for line in ended.stderr.split(b"\n") if _RSYNC.match(line)]
    parts = (PartLog(number=0, stderr=b"\n".join(lines)),) if lines else ()
    stop = stop_of(parts, source_tree=ended.source_tree, target_tree=ended.target_tree)
    if stop is not None:
        return Outcome(verdict=Verdict.STOP, counters=ended.counters, stop=stop[0], message=stop[1].partition(": ")[2])
    if ended.timed_out or ended.exit_code < 0 or ended.exit_code > _SIGNALLED:
        message = f"parsyncfp2 was ended with {ended.exit_code}"
        return Outcome(verdict=Verdict.INTERRUPTED, counters=ended.counters, message=message)
    said = _COLOURS.sub(b"", ended.stdout)
    fatal = _FATAL.search(said)
    if ended.exit_code in (126, 127) or _MISSING.search(said):
        message = f"parsyncfp2 ended with {ended.exit_code}: {show(fatal[1] if fatal else ended.stderr[-200:])}"
        return Outcome(verdict=Verdict.STOP, counters=ended.counters, stop=StopReason.TOOL_MISSING, message=message)
    if fatal or ended.exit_code:
        why = show(fatal[1]) if fatal else f"exit code {ended.exit_code}"
        if _TOO_MANY.search(said):
            why = f"it takes no more than {MOST_CHUNKS} chunks"
        message = f"parsyncfp2 gave up: {why}"
        return Outcome(verdict=Verdict.RETRY, counters=ended.counters, message=message)
    return Outcome(verdict=Verdict.DONE, counters=ended.counters, message=describe_parts(parts) if parts else "")


def chunk_size_for(size_bytes: int, wished_bytes: int) -> int:
    """The size of its chunks for a tree: as wished, or larger where there would be too many of them."""
    return max(wished_bytes, -(-size_bytes // (MOST_CHUNKS // 4)), 1)
