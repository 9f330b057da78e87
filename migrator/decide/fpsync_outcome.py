"""What one run of fpsync came to.

Read in fpsync 1.5.1 and 1.7: it ends with 0, or with 1 for everything else: a mistake on the command line, a missing
program, an interruption, fpart in trouble, and a run that went through and left any message of any part. Only its own
lines tell which; the messages lie in its log directory, a file for each part. 128 and more: a signal.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from migrator.decide.driver_parts import PartLog, describe_parts, judge_jail, stop_of
from migrator.domain.paths import show
from migrator.domain.transfer import Outcome, StopReason, StreamCounters, Verdict

_COMPLETED = re.compile(rb"\d+ <=== Fpsync completed with(?:out)? errors?\b")
_CRAWL_FAILED = re.compile(rb"\d+ <=== Fpart exited with errors")
_STARTED = re.compile(rb"\d+ => \[QMGR\] Starting job .*/(\d+) \(local\)")
_FINISHED = re.compile(rb"\d+ <= \[QMGR\] Job \d+:(\d+):local finished")
_MISSING = re.compile(rb"Fpart is missing|not use?able locally|Cannot (?:create|record)")
_NOISE = re.compile(rb".*set: can't access tty; job control turned off")
_SIGNALLED = 128
_SHOWN_BYTES = 300


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
