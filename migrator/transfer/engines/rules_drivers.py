"""The outcome of a run of fpsync or parsyncfp2. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from migrator.core.paths import show
from migrator.core.units import several
from migrator.transfer.engines.rules_rsync import JAIL_FAILED, Ended, EndedRsync, judge_rsync
from migrator.transfer.model import Outcome, StopReason, StreamCounters, StreamView, Verdict

_STOPPING = (
    StopReason.TARGET_FULL,
    StopReason.TARGET_QUOTA,
    StopReason.TARGET_READ_ONLY,
    StopReason.DISCONNECTED,
)
"""EIO is absent: the look-ups that follow find the file that it concerns."""
_PARTIAL = 23
_SIGNALLED = 128
_UNUSABLE = (126, 127)
_SHOWN_PARTS = 3
_SHOWN_BYTES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLog:
    """Standard error of the stream of one part, or a section of it. `number` is None if the driver mixes all parts."""

    number: int | None
    stderr: bytes

    def __str__(self) -> str:
        return "" if self.number is None else f"part {self.number}: "


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedDriver(Ended):
    """The end of a run. `parts` are the parts with messages; `stdout` and `stderr` may be truncated. `completed` and
    `crawl_failed` are fpsync's report on the whole run.
    """

    view: StreamView
    parts: Sequence[PartLog] = ()
    stdout: bytes = b""
    completed: bool = False
    crawl_failed: bool = False


def stop_of(parts: Sequence[PartLog], view: StreamView) -> tuple[StopReason, str] | None:
    """The first error that no file is to blame for, with the stream's message; None if there is none."""
    for part in parts:
        outcome = _judge_stream(part.stderr, view, exit_code=_PARTIAL)
        if outcome.verdict is Verdict.STOP and outcome.stop in _STOPPING:
            return outcome.stop, f"{part}{outcome.message}"
    return None


def _judge_stream(stderr: bytes, view: StreamView, *, exit_code: int) -> Outcome:
    nothing = StreamCounters()
    return judge_rsync(
        EndedRsync(exit_code=exit_code, stderr=stderr, stderr_cut=True, tree=b"", names=(), view=view, counters=nothing)
    )


def _cut_short(name: str, ended: EndedDriver) -> Outcome | None:
    """The outcome of a run that ended by the confinement, an error that no file is to blame for, or a signal."""
    if ended.exit_code == JAIL_FAILED:
        jail = _judge_stream(ended.stderr, ended.view, exit_code=JAIL_FAILED)
        return ended.outcome(jail.verdict, jail.message, jail.stop)
    if (stop := stop_of(ended.parts, ended.view)) is not None:
        return ended.outcome(Verdict.STOP, stop[1], stop[0])
    if ended.timed_out or ended.exit_code < 0 or ended.exit_code > _SIGNALLED:
        return ended.outcome(Verdict.INTERRUPTED, f"{name} was ended with {ended.exit_code}")
    return None


def _done(ended: EndedDriver) -> Outcome:
    """DONE; the message names the parts with errors, and quotes the end of the output of the first few."""
    if not ended.parts:
        return ended.outcome(Verdict.DONE)
    shown = "; ".join(f"{part}{show(part.stderr[-_SHOWN_BYTES:].strip())}" for part in ended.parts[:_SHOWN_PARTS])
    return ended.outcome(Verdict.DONE, f"{several(len(ended.parts), 'part')} with errors: {shown}")


# fpsync 1.5.1 and 1.7 exit with 0, or with 1 for everything else: a usage error, a missing program, an interruption, a
# failure of fpart, and a complete run in which any part left a message. Only its own lines tell these apart; the
# messages are in its log directory, a file for each part. 128 and more: a signal.


FPSYNC_COMPLETED = re.compile(rb"\d+ <=== Fpsync completed with(?:out)? errors?\b")
FPSYNC_CRAWL_FAILED = re.compile(rb"\d+ <=== Fpart exited with errors")
FPSYNC_STARTED = re.compile(rb"\d+ => \[QMGR\] Starting job .*/(\d+) \(local\)")
FPSYNC_FINISHED = re.compile(rb"\d+ <= \[QMGR\] Job \d+:(\d+):local finished")
_FPSYNC_MISSING = re.compile(rb"Fpart is missing|not use?able locally|Cannot (?:create|record)")
_NOISE = re.compile(rb".*set: can't access tty; job control turned off")


def judge_fpsync(ended: EndedDriver) -> Outcome:
    """STOP for errors that no file is to blame for, INTERRUPTED if a signal ended it, RETRY if it is incomplete; DONE
    otherwise, with a message if parts left any.
    """
    if (cut := _cut_short("fpsync", ended)) is not None:
        return cut
    lines = [line for line in ended.stderr.split(b"\n") if line and not _NOISE.fullmatch(line)]
    printed = b"\n".join(lines)[-_SHOWN_BYTES:]
    if ended.exit_code in _UNUSABLE or _FPSYNC_MISSING.search(printed):
        message = f"fpsync ended with {ended.exit_code}: {show(printed)}"
        return ended.outcome(Verdict.STOP, message, StopReason.TOOL_MISSING)
    if not ended.completed or ended.crawl_failed:
        why = "fpart could not read everything" if ended.crawl_failed else show(printed) or "no message"
        return ended.outcome(Verdict.RETRY, f"fpsync is incomplete (exit code {ended.exit_code}): {why}")
    return _done(ended)


# parsyncfp2 2.55 and 2.59 exit with 1 after `** FATAL ERROR **` on standard output, and with 0 otherwise, even if
# rsyncs failed; some versions exit while rsyncs still run. The exit code therefore proves nothing. The
# verdict uses the messages of its rsyncs on standard error, after all of its processes have ended.


MOST_CHUNKS = 5000
"""parsyncfp2 aborts above this number of chunks."""
OLDEST_VERSION = (2, 57)
"""Earlier versions do not accept a mounted file system as the target."""

_VERSION = re.compile(rb"^parsyncfp2 version (\d+)\.(\d+)", re.MULTILINE)
_FATAL = re.compile(rb"\*\* FATAL ERROR \*\*: *([^\n]*)")
_TOO_MANY = re.compile(rb"now exceeded \[\d+\] chunk files")
_HELPER_MISSING = re.compile(rb"REQUIRED utilities were not found|Can't (?:create|make|open)")
_COLOURS = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
_RSYNC = re.compile(rb"rsync(?: error)?: |file has vanished: |migrator-jail: |ERROR: |WARNING: ")


def parsyncfp2_problem(script: bytes) -> str | None:
    """Why this parsyncfp2 script cannot be used; None if it can."""
    version = _VERSION.search(script)
    if version is None:
        return "it prints no version, so it is no parsyncfp2"
    found = int(version[1]), int(version[2])
    if found >= OLDEST_VERSION:
        return None
    shown, needed = (".".join(map(str, one)) for one in (found, OLDEST_VERSION))
    return f"parsyncfp2 {shown} copies to no mounted file system: {needed} is needed"


def judge_parsyncfp2(ended: EndedDriver) -> Outcome:
    """STOP for errors that no file is to blame for, INTERRUPTED if a signal ended it, RETRY if it gave up; DONE
    otherwise, with a message if its rsyncs left any. `parts` are not used: the messages are on its standard error.
    """
    messages = b"\n".join(line for line in ended.stderr.split(b"\n") if _RSYNC.match(line))
    ended = replace(ended, parts=(PartLog(number=None, stderr=messages),) if messages else ())
    if (cut := _cut_short("parsyncfp2", ended)) is not None:
        return cut
    printed = _COLOURS.sub(b"", ended.stdout)
    fatal = _FATAL.search(printed)
    if ended.exit_code in _UNUSABLE or _HELPER_MISSING.search(printed):
        message = f"parsyncfp2 ended with {ended.exit_code}: {show(fatal[1] if fatal else ended.stderr[-200:])}"
        return ended.outcome(Verdict.STOP, message, StopReason.TOOL_MISSING)
    if _TOO_MANY.search(printed):
        return ended.outcome(Verdict.RETRY, f"parsyncfp2 gave up: it takes no more than {MOST_CHUNKS} chunks")
    if fatal or ended.exit_code:
        why = show(fatal[1]) if fatal else f"exit code {ended.exit_code}"
        return ended.outcome(Verdict.RETRY, f"parsyncfp2 gave up: {why}")
    return _done(ended)


def chunk_size_for(size_bytes: int, wished_bytes: int) -> int:
    """The chunk size for a tree: as requested, or larger if there would be too many chunks."""
    return max(wished_bytes, -(-size_bytes // (MOST_CHUNKS // 4)), 1)
