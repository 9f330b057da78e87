"""Judging runs of the compiled copying program."""

import errno
import os
from collections.abc import Sequence

import pytest

from migrator.transfer.engines.rules_direct import EndedDirect, PathEvent, judge_direct, parse_event
from migrator.transfer.model import FileProblemKind, Outcome, StopReason, StreamCounters, Verdict

PATHS = [b"home/alice/one", b"home/alice/two", b"home/alice/three"]
COUNTERS = StreamCounters(files=1, size_bytes=2)


def judged(
    *lines: bytes, exit_code: int = 0, stderr: bytes = b"", garbled: bool = False, timed_out: bool = False
) -> Outcome:
    events: Sequence[PathEvent] = [event for line in lines if (event := parse_event(line, os.strerror)) is not None]
    assert len(events) == len(lines)
    return judge_direct(
        EndedDirect(
            exit_code=exit_code,
            events=events,
            stderr=stderr,
            paths=PATHS,
            counters=COUNTERS,
            garbled=garbled,
            timed_out=timed_out,
        )
    )


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"F",
        b"F 1 bad",
        b"F 1 lost source 2 open",
        b"F x bad source 2 open",
        b"F 1 bad nowhere 2 open",
        b"F 1 bad source 2 open; rm",
        b"P 1 2",
        b"F 1 bad source 2 open\n",
        b"F -1 bad source 2 open",
    ],
)
def test_other_lines_are_no_events(line: bytes) -> None:
    assert parse_event(line, os.strerror) is None


def test_what_became_of_paths() -> None:
    outcome = judged(
        b"F 0 vanished source 2 open", b"F 1 moved source 0 -", b"F 2 changed source 0 -", stderr=b"not looked at"
    )
    assert outcome.verdict is Verdict.DONE
    assert [(problem.path, problem.kind, problem.errno) for problem in outcome.suspects] == [
        (PATHS[0], FileProblemKind.VANISHED, errno.ENOENT),
        (PATHS[1], FileProblemKind.MOVED, None),
        (PATHS[2], FileProblemKind.CHANGED, None),
    ]


@pytest.mark.parametrize(
    ("side", "code", "operation", "stop"),
    [
        (b"target", errno.ENOSPC, b"write", StopReason.TARGET_FULL),
        (b"target", errno.EDQUOT, b"create", StopReason.TARGET_QUOTA),
        (b"target", errno.EROFS, b"make directory", StopReason.TARGET_READ_ONLY),
        (b"target", errno.EIO, b"close", StopReason.IO_ERROR),
        (b"target", errno.ENOTCONN, b"rename", StopReason.DISCONNECTED),
        (b"target", errno.ESTALE, b"open", StopReason.DISCONNECTED),
        (b"source", errno.ENOTCONN, b"read", StopReason.DISCONNECTED),
    ],
)
def test_errors_that_concern_more_than_a_file_stop(side: bytes, code: int, operation: bytes, stop: StopReason) -> None:
    lines = [b"F 0 moved source 0 -", b"F 1 bad %s %d %s" % (side, code, operation)]
    outcome = judged(*lines, exit_code=3)
    assert (outcome.verdict, outcome.stop, outcome.suspects) == (Verdict.STOP, stop, ())
    assert outcome.message.startswith("home/alice/two: ")


@pytest.mark.parametrize(
    ("side", "code", "operation"),
    [
        (b"target", errno.ENOSPC, b"set xattr"),
        (b"target", errno.EDQUOT, b"set xattr"),
        (b"source", errno.ENOSPC, b"read"),
        (b"source", errno.ESTALE, b"open"),
        (b"source", errno.EIO, b"read"),
    ],
)
def test_some_of_them_concern_a_file_alone(side: bytes, code: int, operation: bytes) -> None:
    outcome = judged(b"F 1 bad %s %d %s" % (side, code, operation))
    assert outcome.verdict is Verdict.DONE
    assert [problem.kind for problem in outcome.suspects] == [FileProblemKind.BAD]


@pytest.mark.parametrize(
    ("exit_code", "verdict"),
    [
        (-9, Verdict.INTERRUPTED),
        (143, Verdict.INTERRUPTED),
        (1, Verdict.STOP),
        (64, Verdict.STOP),
        (127, Verdict.STOP),
        (65, Verdict.RETRY),
        (3, Verdict.RETRY),
        (74, Verdict.RETRY),
        (200, Verdict.RETRY),
    ],
)
def test_other_ends(exit_code: int, verdict: Verdict) -> None:
    outcome = judged(exit_code=exit_code, stderr=b"in \x1b words\n")
    assert outcome.verdict is verdict
    assert "in \\x1b words" in outcome.message
