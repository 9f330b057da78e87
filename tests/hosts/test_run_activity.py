"""Whether a process does something, as seen from outside."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from migrator.hosts.far_looks import activity
from migrator.hosts.proc import TOKEN_VARIABLE
from tests.support.waiting import wait_for

TOKEN = f"test-{os.getpid()}"


@pytest.fixture
def reader() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that carries the token and moves a byte for every byte that it is given."""
    process = subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, TOKEN_VARIABLE: TOKEN}, bufsize=0
    )
    yield process
    process.kill()
    process.communicate()


def test_what_moves_bytes_changes_and_what_waits_does_not(reader: "subprocess.Popen[bytes]") -> None:
    assert reader.stdin is not None
    reader.stdin.write(b"x")
    seen: list[int] = []

    def is_still() -> bool:
        seen.append(activity([TOKEN]).get(TOKEN, -1))
        return len(seen) > 20 and len(set(seen[-20:])) == 1

    wait_for(is_still, "a process that waits")
    before = seen[-1]
    reader.stdin.write(b"more")
    wait_for(lambda: activity([TOKEN]).get(TOKEN) != before, "a process that moves")
