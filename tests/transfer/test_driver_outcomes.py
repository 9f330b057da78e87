"""How runs of fpsync and parsyncfp2 are judged, by real messages (fpsync 1.5.1, rsync 3.5.0)."""

import pytest

from migrator.transfer.engines import rules_drivers as engines_rules_drivers
from migrator.transfer.model import StopReason, StreamCounters, Verdict

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
) -> engines_rules_drivers.EndedDriver:
    return engines_rules_drivers.EndedDriver(
        exit_code=exit_code,
        completed=completed,
        crawl_failed=crawl_failed,
        stderr=stderr,
        parts=[engines_rules_drivers.PartLog(number=number, stderr=said) for number, said in enumerate(parts, start=1)],
        counters=StreamCounters(files=3, size_bytes=4),
        source_tree=b"/source",
        target_tree=b"/target",
    )


@pytest.mark.parametrize("said", [IN_THE_WAY, UNREADABLE])
def test_complaints_about_files_leave_it_done_and_are_told(said: bytes) -> None:
    outcome = engines_rules_drivers.judge_fpsync(fpsync(1, parts=(said,)))
    assert outcome.verdict is Verdict.DONE
    assert outcome.message.startswith("1 part with errors: part 1: ")


@pytest.mark.parametrize("exit_code", [0, 1, -15, 143])
def test_a_full_target_stops_however_it_ended(exit_code: int) -> None:
    outcome = engines_rules_drivers.judge_fpsync(fpsync(exit_code, completed=False, parts=(IN_THE_WAY, FULL)))
    assert (outcome.verdict, outcome.stop) == (Verdict.STOP, StopReason.TARGET_FULL)
    assert outcome.message.startswith("part 2: ")


@pytest.mark.parametrize("exit_code", [-9, 128 + 15, 137])
def test_a_signal_interrupts(exit_code: int) -> None:
    assert engines_rules_drivers.judge_fpsync(fpsync(exit_code, completed=False)).verdict is Verdict.INTERRUPTED


@pytest.mark.parametrize(
    ("exit_code", "stderr"),
    [
        (127, b""),
        (1, b"Fpart is missing locally, check your configuration\n"),
        (1, b"Tool rsync not useable locally: /usr/bin/rsync not found\n"),
        (125, JAIL % (b"program", 2)),
    ],
)
def test_missing_programs_stop(exit_code: int, stderr: bytes) -> None:
    outcome = engines_rules_drivers.judge_fpsync(fpsync(exit_code, completed=False, stderr=NO_TERMINAL + stderr))
    assert (outcome.verdict, outcome.stop) == (Verdict.STOP, StopReason.TOOL_MISSING)


def test_what_did_not_go_through_is_no_success() -> None:
    mistake = engines_rules_drivers.judge_fpsync(
        fpsync(1, completed=False, stderr=b"Invalid fpart options supplied\n" + NO_TERMINAL)
    )
    assert mistake.verdict is Verdict.RETRY
    assert "Invalid fpart options" in mistake.message
    assert "tty" not in mistake.message
    crawl = engines_rules_drivers.judge_fpsync(fpsync(1, crawl_failed=True))
    assert (crawl.verdict, "fpart" in crawl.message) == (Verdict.RETRY, True)
    assert engines_rules_drivers.judge_fpsync(fpsync(0, completed=False, stderr=b"")).verdict is Verdict.RETRY


def parsyncfp2(exit_code: int = 0, *, stdout: bytes = b"", stderr: bytes = b"") -> engines_rules_drivers.EndedDriver:
    return engines_rules_drivers.EndedDriver(
        exit_code=exit_code,
        stdout=stdout,
        stderr=stderr,
        counters=StreamCounters(),
        source_tree=b"/source",
        target_tree=b"/target",
    )


def test_its_exit_code_alone_proves_nothing() -> None:
    assert engines_rules_drivers.judge_parsyncfp2(parsyncfp2()).verdict is Verdict.DONE
    full = engines_rules_drivers.judge_parsyncfp2(
        parsyncfp2(stderr=b"cat: /sys/class/net//statistics/rx_bytes: No such file\n" + FULL)
    )
    assert (full.verdict, full.stop) == (Verdict.STOP, StopReason.TARGET_FULL)
    errors = engines_rules_drivers.judge_parsyncfp2(parsyncfp2(stderr=UNREADABLE))
    assert (errors.verdict, "with errors" in errors.message) == (Verdict.DONE, True)
    noise = engines_rules_drivers.judge_parsyncfp2(
        parsyncfp2(stderr=b"cat: /sys/class/net//statistics/rx_bytes: No such file\n")
    )
    assert (noise.verdict, noise.message) == (Verdict.DONE, "")


def test_what_it_calls_fatal_is_told_without_its_colours() -> None:
    said = b"\x1b[1;32m\nhost \x1b[1;31m** FATAL ERROR **: 1m loadavg on [host] is > [9.1].  \n  The 1m\n\x1b[0m"
    outcome = engines_rules_drivers.judge_parsyncfp2(parsyncfp2(1, stdout=said))
    assert outcome.verdict is Verdict.RETRY
    assert outcome.message == "parsyncfp2 gave up: 1m loadavg on [host] is > [9.1].  "
    missing = b"** FATAL ERROR **: The following REQUIRED utilities were not found [scut]. \n"
    assert engines_rules_drivers.judge_parsyncfp2(parsyncfp2(1, stdout=missing)).stop is StopReason.TOOL_MISSING
    many = b"** FATAL ERROR **: You've now exceeded [5000] chunk files, the maximum \n"
    assert (
        str(engines_rules_drivers.MOST_CHUNKS)
        in engines_rules_drivers.judge_parsyncfp2(parsyncfp2(1, stdout=many)).message
    )
    assert engines_rules_drivers.judge_parsyncfp2(parsyncfp2(-15)).verdict is Verdict.INTERRUPTED


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        (b"parsyncfp2 version 2.59 (Smooth Close)\n", ""),
        (b"parsyncfp2 version 2.42 (x)\n", "2.57 is needed"),
        (b"something else\n", "no parsyncfp2"),
    ],
)
def test_which_parsyncfp2_it_is(script: bytes, problem: str) -> None:
    assert problem in (engines_rules_drivers.parsyncfp2_problem(b"#!/usr/bin/env perl\n" + script) or "")


def test_chunks_are_large_enough_for_its_limit() -> None:
    assert engines_rules_drivers.chunk_size_for(10, 100) == 100
    assert engines_rules_drivers.chunk_size_for(0, 0) == 1
    huge = 10**15
    assert huge / engines_rules_drivers.chunk_size_for(huge, 2**30) < engines_rules_drivers.MOST_CHUNKS / 2
