"""Whether a process is still the one that was at work."""

import os
import subprocess
import sys
import time

import pytest

from migrator.hosts import far_looks
from migrator.hosts.proc import was_at_work


def test_this_process_is_at_work_now_and_was_not_long_before_it_began() -> None:
    assert was_at_work(os.getpid(), time.time())
    assert not was_at_work(os.getpid(), 1_000_000_000.0)


def test_a_killed_process_is_gone_before_and_after_it_is_reaped() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        at_s = time.time()
        assert was_at_work(child.pid, at_s)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not was_at_work(child.pid, at_s)
    finally:
        child.kill()
        child.communicate()
    assert not was_at_work(child.pid, at_s)


class Relay:
    """A machine on which each process starts the next one and has ended when it is looked at, but for one in so many."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, caught: int) -> None:
        self.rounds = 0
        self._caught = caught
        monkeypatch.setattr(os, "listdir", self._names)
        monkeypatch.setattr(far_looks, "look_at", self._look)

    def _names(self, _: str) -> list[str]:
        self.rounds += 1
        return [str(self.rounds)]

    def _look(self, pid: int) -> far_looks.Look | None:
        if pid % self._caught:
            return None
        return far_looks.Look(
            pid=pid,
            parent_pid=1,
            session=1,
            used_ticks=0,
            start_ticks=pid,
            ended=False,
            kernel=False,
            has_environment=True,
        )


def test_processes_that_start_each_other_without_end_are_followed_until_what_is_sought_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relay = Relay(monkeypatch, caught=90)
    found: list[int] = []
    for look in far_looks.looks(lambda: bool(found)):
        found.append(look.pid)
    assert (found, relay.rounds) == ([90], 90)


def test_they_are_followed_for_a_while_where_nothing_is_sought_and_not_for_ever_where_it_is_not_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relay = Relay(monkeypatch, caught=10)
    assert [look.pid for look in far_looks.looks()] == [10, 20]
    assert relay.rounds == 20
    relay = Relay(monkeypatch, caught=10**6)
    assert list(far_looks.looks(lambda: False)) == []
    assert 100 < relay.rounds < 1000
