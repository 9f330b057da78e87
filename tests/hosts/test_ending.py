"""A look that takes longer than the wait for what was killed: it is no sign that something cannot be ended."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from migrator.hosts import far_end, process
from migrator.hosts.far_looks import Look, Snapshot, looks

WAIT_S, LOOK_S = 0.05, 0.2
EndAll = Callable[[Callable[[Snapshot], list[Look]], float], bool]


@pytest.fixture(params=["here", "far end"])
def end_all(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> EndAll:
    monkeypatch.setattr(far_end, "KILL_WAIT_S", WAIT_S)
    monkeypatch.setattr(far_end, "reap", lambda: None)
    if request.param == "far end":
        return far_end.end_all
    return lambda find, grace_s: asyncio.run(process.end_all(find, grace_s))


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


def test_a_slow_look(stubborn: subprocess.Popen[bytes], end_all: EndAll) -> None:
    def find(snapshot: Snapshot) -> list[Look]:
        found = snapshot.of_session(stubborn.pid)
        time.sleep(LOOK_S)
        return found

    assert end_all(find, 0.0)
    assert [look for look in looks() if look.session == stubborn.pid] == []
