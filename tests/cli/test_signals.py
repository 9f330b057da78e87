"""Signals end every stage alike: cleanly, whichever signal it is."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from migrator.cli.call import run_to_end
from migrator.cli.signals import ENDING, STOPPING, handled
from migrator.core.errors import Interrupted
from tests.support.run_site import REPOSITORY

ORDINARY = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGTERM", "SIGALRM", "SIGPWR", "SIGXCPU", "SIGIO")


def stage(numbers: list[int], done: Callable[[str], None], *, interrupted: bool = True) -> None:
    """Run a stage that sends itself signals, and notes its clean-up."""

    async def work() -> None:
        try:
            for number in numbers:
                os.kill(os.getpid(), number)
            await asyncio.sleep(3600.0 if interrupted else 0.0)
        except asyncio.CancelledError:
            # Further signals do not disturb the clean-up.
            for number in numbers:
                os.kill(os.getpid(), number)
                await asyncio.sleep(0.0)
            done("cleaned")
            raise
        done("ended")

    run_to_end(work())


@pytest.mark.parametrize("number", sorted(ENDING))
def test_every_signal_that_ends_programs_stops_a_stage_cleanly(number: int) -> None:
    if signal.getsignal(number) is signal.SIG_IGN and number not in (signal.SIGINT, signal.SIGTERM):
        pytest.skip("ignored by Python, or by what began this process")
    before, notes = signal.getsignal(number), list[str]()
    with pytest.raises(Interrupted):
        stage([number], notes.append)
    assert notes == ["cleaned"]
    assert signal.getsignal(number) == before


def test_the_signals_that_end_programs_are_all_but_known_ones() -> None:
    assert {getattr(signal, name) for name in ORDINARY} <= ENDING
    assert not ENDING & {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGCONT, signal.SIGWINCH}


def test_a_signal_outside_a_stage_is_a_keyboard_interrupt() -> None:
    with handled():
        for number in (signal.SIGTERM, signal.SIGINT):  # handled also if they were ignored before
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)


def interrupted_query() -> None:
    """As DuckDB 2.0 ends a query in which a signal handler raises."""
    with handled():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None


def test_a_signal_in_a_query_is_a_keyboard_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted_query()


def own_process(statement: str) -> "subprocess.CompletedProcess[str]":
    """The output of a statement of this module in a process of its own, killed if it is stopped."""
    argv = [sys.executable, "-c", f"import signal\nfrom tests.cli.test_signals import *\n{statement}"]
    process = subprocess.Popen(argv, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    if os.WIFSTOPPED(status):
        process.kill()
        process.communicate()
        pytest.fail(f"it was stopped by {signal.Signals(os.WSTOPSIG(status)).name}")
    process.returncode = os.waitstatus_to_exitcode(status)
    out, err = process.communicate()
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


@pytest.mark.parametrize("number", sorted(STOPPING))
def test_a_stage_is_not_stopped_half_way(number: int) -> None:
    done = own_process(f"stage([{int(number)}], print, interrupted=False)")
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


def test_nohup_keeps_a_stage_alive() -> None:
    done = own_process("signal.signal(signal.SIGHUP, signal.SIG_IGN)\nstage([signal.SIGHUP], print, interrupted=False)")
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
