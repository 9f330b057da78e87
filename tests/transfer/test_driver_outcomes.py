"""How runs of fpsync and parsyncfp2 are judged, by real messages (fpsync 1.5.1, rsync 3.5.0)."""

import pytest

from migrator.transfer.engines import drivers as rules
from migrator.transfer.model import StopReason, StreamCounters, StreamView, Verdict

VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")
FULL = (
    b'rsync: [receiver] write failed on "/target/d1/f0001": No space left on device (28)\n'
    b"rsync error: error in file IO (code 11) at receiver.c(380) [receiver=3.5.0]\n"
)
UNREADABLE = (
    b'rsync: [sender] read errors mapping "/source/d1/f0001": Input/output error (5)\n'
    b"rsync error: some files/attrs were not transferred (see previous errors) (code 23) at main.c(1394) [sender=3.5.0]\n"
)
IN_THE_WAY = b"could not make way for new regular file: d1/f0001\ncannot delete non-empty directory: d1/f0001\n"
NO_TERMINAL = b"/usr/bin/fpsync: 1354: set: can't access tty; job control turned off\n"
JAIL = b"migrator-jail: %s: %d: text: text\n"


def fpsync(
    exit_code: int = 0,
    *,
    completed: bool = True,
    crawl_failed: bool = False,
    stderr: bytes = NO_TERMINAL,
    parts: tuple[bytes, ...] = (),
) -> rules.EndedDriver:
    return rules.EndedDriver(
        exit_code=exit_code,
        completed=completed,
        crawl_failed=crawl_failed,
        stderr=stderr,
        parts=[rules.PartLog(number=number, stderr=said) for number, said in enumerate(parts, start=1)],
        counters=StreamCounters(files=3, size_bytes=4),
        view=VIEW,
    )


@pytest.mark.parametrize(
    ("ended", "verdict", "stop", "message"),
    [
        (fpsync(1, parts=(IN_THE_WAY,)), Verdict.DONE, None, "1 part with errors: part 1: "),
        (fpsync(1, parts=(UNREADABLE,)), Verdict.DONE, None, "1 part with errors: part 1: "),
        (fpsync(0, completed=False, parts=(IN_THE_WAY, FULL)), Verdict.STOP, StopReason.TARGET_FULL, "part 2: "),
        (fpsync(-15, completed=False, parts=(IN_THE_WAY, FULL)), Verdict.STOP, StopReason.TARGET_FULL, "part 2: "),
        (fpsync(-9, completed=False), Verdict.INTERRUPTED, None, ""),
        (fpsync(128 + 15, completed=False), Verdict.INTERRUPTED, None, ""),
        (fpsync(127, completed=False), Verdict.STOP, StopReason.TOOL_MISSING, ""),
        (fpsync(1, completed=False, stderr=b"Fpart is missing locally\n"), Verdict.STOP, StopReason.TOOL_MISSING, ""),
        (fpsync(1, completed=False, stderr=b"rsync not useable locally\n"), Verdict.STOP, StopReason.TOOL_MISSING, ""),
        (fpsync(125, completed=False, stderr=JAIL % (b"program", 2)), Verdict.STOP, StopReason.TOOL_MISSING, ""),
        (fpsync(1, completed=False, stderr=b"Invalid options\n" + NO_TERMINAL), Verdict.RETRY, None, "Invalid options"),
        (fpsync(1, crawl_failed=True), Verdict.RETRY, None, "fpart"),
        (fpsync(0, completed=False, stderr=b""), Verdict.RETRY, None, "no message"),
    ],
)
def test_fpsync(ended: rules.EndedDriver, verdict: Verdict, stop: StopReason | None, message: str) -> None:
    outcome = rules.judge_fpsync(ended)
    assert (outcome.verdict, outcome.stop) == (verdict, stop)
    assert message in outcome.message
    assert "tty" not in outcome.message


def parsyncfp2(exit_code: int = 0, *, stdout: bytes = b"", stderr: bytes = b"") -> rules.EndedDriver:
    return rules.EndedDriver(
        exit_code=exit_code,
        stdout=stdout,
        stderr=stderr,
        counters=StreamCounters(),
        view=VIEW,
    )


FATAL = b"\x1b[1;32m\nhost \x1b[1;31m** FATAL ERROR **: 1m loadavg on [host] is > [9.1].  \n  The 1m\n\x1b[0m"
MISSING = b"** FATAL ERROR **: The following REQUIRED utilities were not found [scut]. \n"
MANY = b"** FATAL ERROR **: You've now exceeded [5000] chunk files, the maximum \n"
NOISE = b"cat: /sys/class/net//statistics/rx_bytes: No such file\n"


@pytest.mark.parametrize(
    ("ended", "verdict", "stop", "message"),
    [
        (parsyncfp2(), Verdict.DONE, None, ""),
        (parsyncfp2(stderr=NOISE), Verdict.DONE, None, ""),
        (parsyncfp2(stderr=UNREADABLE), Verdict.DONE, None, "with errors"),
        (parsyncfp2(stderr=NOISE + FULL), Verdict.STOP, StopReason.TARGET_FULL, ""),
        (parsyncfp2(1, stdout=FATAL), Verdict.RETRY, None, "parsyncfp2 gave up: 1m loadavg on [host] is > [9.1].  "),
        (parsyncfp2(1, stdout=MISSING), Verdict.STOP, StopReason.TOOL_MISSING, ""),
        (parsyncfp2(1, stdout=MANY), Verdict.RETRY, None, str(rules.MOST_CHUNKS)),
        (parsyncfp2(-15), Verdict.INTERRUPTED, None, ""),
    ],
)
def test_parsyncfp2(ended: rules.EndedDriver, verdict: Verdict, stop: StopReason | None, message: str) -> None:
    outcome = rules.judge_parsyncfp2(ended)
    assert (outcome.verdict, outcome.stop) == (verdict, stop)
    assert message in outcome.message


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (b"parsyncfp2 version 2.59 (Smooth Close)\n", ""),
        (b"parsyncfp2 version 2.42 (x)\n", "2.57 is needed"),
        (b"something else\n", "no parsyncfp2"),
    ],
)
def test_which_parsyncfp2_it_is(script: bytes, problem: str) -> None:
    assert problem in (rules.parsyncfp2_problem(b"#!/usr/bin/env perl\n" + script) or "")


def test_chunks_are_large_enough_for_its_limit() -> None:
    assert rules.chunk_size_for(10, 100) == 100
    assert rules.chunk_size_for(0, 0) == 1
    huge = 10**15
    assert huge / rules.chunk_size_for(huge, 2**30) < rules.MOST_CHUNKS / 2
