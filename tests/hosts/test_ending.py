"""A look that takes longer than the wait for what was killed: it is no sign that something cannot be ended."""

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator, Sequence

import pytest

from migrator.hosts import far_end as far_start
from migrator.hosts import proc
from migrator.hosts import proc as ending
from migrator.hosts.far_looks import Look, Snapshot, looks
from migrator.hosts.model import ProcessIdentity

WAIT_S, LOOK_S = 0.05, 0.2


@pytest.fixture
def stubborn() -> Iterator[subprocess.Popen[bytes]]:
    """A process, the leader of its session, that only KILL ends."""
    script = "trap '' TERM; echo ready; while :; do sleep 1000; done"
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_slow_look_of_this_machine(stubborn: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "KILL_WAIT_S", WAIT_S)

    def find() -> Sequence[ProcessIdentity]:
        found = proc.session_members(stubborn.pid)
        time.sleep(LOOK_S)
        return found

    assert asyncio.run(ending.end_all(find, grace_s=0.0))
    assert proc.session_members(stubborn.pid) == ()


def test_a_slow_look_of_a_far_end(stubborn: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_start, "_KILL_WAIT_S", WAIT_S)
    monkeypatch.setattr(far_start, "reap", lambda: time.sleep(LOOK_S))

    def find(_: Snapshot) -> list[Look]:
        return [look for look in looks() if look.session == stubborn.pid]

    assert far_start.end_all(find, grace_s=0.0)
    assert proc.session_members(stubborn.pid) == ()


def test_what_is_never_ended_is_given_up_after_its_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "KILL_WAIT_S", WAIT_S)
    monkeypatch.setattr(ending, "send_signal", lambda *_: None)
    monkeypatch.setattr(far_start, "_KILL_WAIT_S", WAIT_S)
    monkeypatch.setattr(far_start, "_signal", lambda *_: None)
    monkeypatch.setattr(far_start, "reap", lambda: None)
    myself = next(look for look in looks() if look.pid == os.getpid())
    assert not asyncio.run(ending.end_all(lambda: proc.session_members(myself.session), grace_s=0.0))
    assert not far_start.end_all(lambda _: [myself], grace_s=0.0)
