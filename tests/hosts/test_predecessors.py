"""What a lost connection has left on a host: found also where it slips away while it is ended."""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator

import pytest

from migrator.hosts.far_end import Predecessors
from migrator.hosts.far_looks import TOKEN_VARIABLE, Snapshot
from migrator.hosts.proc import carriers

FAR_END = """
import os, subprocess, sys
variable, own, started = sys.argv[2:5]
environment = {**os.environ, variable: started}
# Starts another one, and ends, as soon as it is told to.
child = subprocess.Popen(["sh", "-c", "read line; sleep 1000 & exit"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
print("up", flush=True)
sys.stdin.readline()
child.stdin.close()
child.wait()
"""
PREFIX = "migrator-test-predecessor-"


@pytest.fixture
def token() -> Iterator[str]:
    value = secrets.token_hex(16)
    yield value
    for identity in carriers([value]).get(value, ()):
        os.kill(identity.pid, 9)


def far_end(token: str, *, own: str = "") -> "subprocess.Popen[bytes]":
    variable = TOKEN_VARIABLE.decode()
    environment = {name: value for name, value in os.environ.items() if name != variable}
    argv = (sys.executable, "-c", FAR_END, f"{PREFIX}{token}-1", variable, own, token)
    environment |= {variable: own} if own else {}
    started = subprocess.Popen(argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert started.stdout is not None
    assert started.stdout.readline() == b"up\n"
    return started


def slips_away(predecessor: "subprocess.Popen[bytes]") -> None:
    """What it has started starts another one, and ends; then it ends itself."""
    predecessor.communicate(b"go\n")


@pytest.mark.parametrize("own", ["", "of the caller"])
def test_what_was_started_in_the_very_moment_is_found_by_its_token(token: str, own: str) -> None:
    predecessor = far_end(token, own=own)
    find = Predecessors(f"{PREFIX}{token}-2".encode(), f"{PREFIX}{token}-".encode())
    try:
        first = {look.pid for look in find(Snapshot())}
        (started,) = carriers([token])[token]
        assert first == {predecessor.pid, started.pid}
    finally:
        slips_away(predecessor)
    (left,) = carriers([token])[token]
    assert [look.pid for look in find(Snapshot())] == [left.pid]


def test_the_own_far_end_and_those_of_others_are_left_alone(token: str) -> None:
    predecessor = far_end(token)
    try:
        assert Predecessors(f"{PREFIX}{token}-1".encode(), f"{PREFIX}{token}-".encode())(Snapshot()) == []
        assert Predecessors(b"another-2", b"another-")(Snapshot()) == []
    finally:
        slips_away(predecessor)
