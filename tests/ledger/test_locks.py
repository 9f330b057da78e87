"""What every set of locks does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.core.errors import ExitCode, LockHeld, MigratorError
from migrator.ledger.locks import Locks

STOPPED: Any = SimpleNamespace(now_s=lambda: 86400.0)
HOLD = """
import sys
from pathlib import Path
from migrator.ledger.locks import Locks

class Clock:
    def now_s(self):
        return 86400.0

with Locks(Path(sys.argv[1]), Clock()).hold("run", "run --user-batch 1"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state" / "locks"


@pytest.fixture
def locks(directory: Path) -> Locks:
    return Locks(directory, STOPPED)


def test_one_holder_at_a_time(locks: Locks) -> None:
    with locks.hold("run", "run --all"):
        with pytest.raises(LockHeld) as caught, locks.hold("run", "run --user bob"):
            pytest.fail("two hold the lock")
        with locks.hold("scan", "scan"):
            pass
    with pytest.raises(RuntimeError), locks.hold("run", "run --all"):
        raise RuntimeError
    with locks.hold("run", "it is released by an error too"):
        pass
    assert caught.value.exit_code is ExitCode.LOCKED
    assert caught.value.message == (
        f"another process holds the run lock: process {os.getpid()} (run --all), since 1970-01-02 00:00:00 UTC"
    )
    assert "run --user bob" in caught.value.cause


def test_ends_with_a_killed_holder(locks: Locks, directory: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(LockHeld, match=rf"process {holder.pid} \(run --user-batch 1\)"), locks.hold("run", "x"):
                pytest.fail("two hold the lock")
        finally:
            holder.kill()
    assert json.loads((directory / "run.lock").read_bytes())["pid"] == holder.pid
    with locks.hold("run", "x"):
        pass


def test_is_not_kept_by_a_child(locks: Locks) -> None:
    with locks.hold("run", "x"):
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    with child:
        try:
            with locks.hold("run", "y"):
                pass
        finally:
            child.kill()


def test_unreadable_holder_is_no_crash_and_a_symlink_is_not_followed(locks: Locks, directory: Path) -> None:
    with locks.hold("run", "x"):
        (directory / "run.lock").write_bytes(b"\xff{")
        with pytest.raises(LockHeld, match="only just"), locks.hold("run", "y"):
            pytest.fail("two hold the lock")
    precious = directory / "precious"
    precious.write_bytes(b"content")
    (directory / "scan.lock").symlink_to(precious)
    with pytest.raises(MigratorError), locks.hold("scan", "x"):
        pytest.fail("followed a symlink")
    assert precious.read_bytes() == b"content"
