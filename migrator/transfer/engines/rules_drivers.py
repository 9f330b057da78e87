"""What a run of fpsync or parsyncfp2 came to. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.core.paths import show
from migrator.core.units import several
from migrator.transfer.engines.rules_rsync import EndedRsync, judge_rsync
from migrator.transfer.model import Outcome, StopReason, StreamCounters, Verdict

# Messages of a driver's streams: those that stop the run, and what the next step has to copy.


_STOPPING = (
    StopReason.TARGET_FULL,
    StopReason.TARGET_QUOTA,
    StopReason.TARGET_READ_ONLY,
    StopReason.DISCONNECTED,
)
"""Not EIO: of which file, the look that follows finds out."""
_PARTIAL = 23
_JAIL_FAILED = 125
_SHOWN_PARTS = 3
_SHOWN_BYTES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLog:
    """What the stream of one part said on standard error, or a piece of it."""

    number: int
    stderr: bytes


def stop_of(parts: Sequence[PartLog], *, source_tree: bytes, target_tree: bytes) -> tuple[StopReason, str] | None:
    """The first error that no file is to blame for, in the words of the stream; None where there is none."""
    for part in parts:
        outcome = _judge(part.stderr, source_tree=source_tree, target_tree=target_tree, exit_code=_PARTIAL)
        if outcome.verdict is Verdict.STOP and outcome.stop in _STOPPING:
            return outcome.stop, f"part {part.number}: {outcome.message}"
    return None


def judge_jail(stderr: bytes, *, exit_code: int, counters: StreamCounters) -> Outcome | None:
    """Why the confinement could not be set up; None where it could."""
    if exit_code != _JAIL_FAILED:
        return None
    outcome = _judge(stderr, source_tree=b"/source", target_tree=b"/target", exit_code=exit_code)
    return Outcome(verdict=outcome.verdict, counters=counters, stop=outcome.stop, message=outcome.message)


def describe_parts(parts: Sequence[PartLog]) -> str:
    """Which parts complained, with the last words of the first few."""
    shown = "; ".join(
        f"part {part.number}: {show(part.stderr[-_SHOWN_BYTES:].strip())}" for part in parts[:_SHOWN_PARTS]
    )
    return f"{several(len(parts), 'part')} with errors: {shown}"


def _judge(stderr: bytes, *, source_tree: bytes, target_tree: bytes, exit_code: int) -> Outcome:
    return judge_rsync(
        EndedRsync(
            exit_code=exit_code,
            stderr=stderr,
            stderr_cut=True,
            tree=b"",
            names=(),
            source_tree=source_tree,
            target_tree=target_tree,
            counters=StreamCounters(),
        )
    )


# The outcome of fpsync.
#
# fpsync 1.5.1 and 1.7 exit with 0, or with 1 for everything else: a usage error, a missing program, an interruption, a
# failure of fpart, and a complete run in which any part left a message. Only its own lines tell these apart; the messages
# are in its log directory, a file for each part. 128 and more: a signal.


_COMPLETED = re.compile(rb"\d+ <=== Fpsync completed with(?:out)? errors?\b")
_CRAWL_FAILED = re.compile(rb"\d+ <=== Fpart exited with errors")
_STARTED = re.compile(rb"\d+ => \[QMGR\] Starting job .*/(\d+) \(local\)")
_FINISHED = re.compile(rb"\d+ <= \[QMGR\] Job \d+:(\d+):local finished")
_MISSING = re.compile(rb"Fpart is missing|not use?able locally|Cannot (?:create|record)")
_NOISE = re.compile(rb".*set: can't access tty; job control turned off")
_SIGNALLED = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A line of fpsync that means something: a part was started or has ended, or how the whole ended."""

    started: int | None = None
    finished: int | None = None
    completed: bool = False
    crawl_failed: bool = False


def parse_line(line: bytes) -> Said | None:
    """One line of `fpsync -vv`; None where it says nothing of interest."""
    if match := _STARTED.fullmatch(line):
        return Said(started=int(match[1]))
    if match := _FINISHED.fullmatch(line):
        return Said(finished=int(match[1]))
    if _COMPLETED.match(line):
        return Said(completed=True)
    return Said(crawl_failed=True) if _CRAWL_FAILED.match(line) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedFpsync:
    """How it ended. `parts` are the parts that left messages; `completed`, `crawl_failed`: what it said of the whole."""

    exit_code: int
    completed: bool
    crawl_failed: bool
    stderr: bytes
    parts: Sequence[PartLog]
    counters: StreamCounters
    source_tree: bytes
    target_tree: bytes
    timed_out: bool = False


def judge_fpsync(ended: EndedFpsync) -> Outcome:
    """STOP for errors that no file is to blame for, INTERRUPTED where something ended it, RETRY where it did not go
    through; DONE otherwise, with a message where parts left any.
    """
    if (jail := judge_jail(ended.stderr, exit_code=ended.exit_code, counters=ended.counters)) is not None:
        return jail
    stop = stop_of(ended.parts, source_tree=ended.source_tree, target_tree=ended.target_tree)
    if stop is not None:
        return Outcome(verdict=Verdict.STOP, counters=ended.counters, stop=stop[0], message=stop[1])
    said = _said(ended.stderr)
    if ended.timed_out or ended.exit_code < 0 or ended.exit_code > _SIGNALLED:
        message = f"fpsync was ended with {ended.exit_code}"
        return Outcome(verdict=Verdict.INTERRUPTED, counters=ended.counters, message=message)
    if ended.exit_code in (126, 127) or _MISSING.search(said):
        message = f"fpsync ended with {ended.exit_code}: {show(said)}"
        return Outcome(verdict=Verdict.STOP, counters=ended.counters, stop=StopReason.TOOL_MISSING, message=message)
    if not ended.completed or ended.crawl_failed:
        why = "fpart could not read everything" if ended.crawl_failed else show(said) or "without a word"
        message = f"fpsync did not go through (exit code {ended.exit_code}): {why}"
        return Outcome(verdict=Verdict.RETRY, counters=ended.counters, message=message)
    message = describe_parts(ended.parts) if ended.parts else ""
    return Outcome(verdict=Verdict.DONE, counters=ended.counters, message=message)


def _said(stderr: bytes) -> bytes:
    lines = [line for line in stderr.split(b"\n") if line and not _NOISE.fullmatch(line)]
    return b"\n".join(lines)[-_SHOWN_BYTES:]


# The outcome of parsyncfp2, and its version.
#
# Versions 2.55 and 2.59 exit with 1 after `** FATAL ERROR **` on standard output, and with 0 otherwise, even if rsyncs failed;
# some versions exit while rsyncs still run. The exit code therefore proves nothing: the messages of its rsyncs on standard
# error count, and that all of its processes are gone.


MOST_CHUNKS = 5000
"""Beyond them it gives up."""
OLDEST_VERSION = (2, 57)
"""Earlier ones take no mounted file system for a target."""

_VERSION = re.compile(rb"^parsyncfp2 version (\d+)\.(\d+)", re.MULTILINE)
_OPTION = re.compile(rb'^\s*"((?:[a-z]+\|)*(?:ro|rsyncopts)(?:\|[a-z]+)*)=s"', re.MULTILINE)
_FATAL = re.compile(rb"\*\* FATAL ERROR \*\*: *([^\n]*)")
_TOO_MANY = re.compile(rb"now exceeded \[\d+\] chunk files")
_PARSYNCFP2_OUTCOME_MISSING = re.compile(rb"REQUIRED utilities were not found|Can't (?:create|make|open)")
_COLOURS = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_RSYNC = re.compile(rb"rsync(?: error)?: |file has vanished: |migrator-jail: |ERROR: |WARNING: ")


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
    if ended.exit_code in (126, 127) or _PARSYNCFP2_OUTCOME_MISSING.search(said):
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
