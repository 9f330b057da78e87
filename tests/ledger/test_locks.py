"""Who may be at work beside whom."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.core.errors import ExitCode, LockHeld, MigratorError
from migrator.ledger.locks import VOLUME, Locks, of_tree

STOPPED: Any = SimpleNamespace(now_s=lambda: 86400.0)
HOLD = """
import sys
from pathlib import Path
from migrator.ledger.locks import Locks

class Clock:
    def now_s(self):
        return 86400.0

with Locks(Path(sys.argv[1]), Clock()).hold("run --user-batch 1", "run"):
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
    with locks.hold("run --all", "run"):
        with pytest.raises(LockHeld) as caught, locks.hold("run --user bob", "run"):
            pytest.fail("two hold the lock")
        with locks.hold("scan", "scan"):
            pass
    with pytest.raises(RuntimeError), locks.hold("run --all", "run"):
        raise RuntimeError
    with locks.hold("it is released by an error too", "run"):
        pass
    assert caught.value.exit_code is ExitCode.LOCKED
    assert caught.value.message == (
        f"another process holds the lock of run: process {os.getpid()} (run --all), since 1970-01-02 00:00:00 UTC"
    )
    assert "run --user bob" in caught.value.cause


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ((("a", "b"), ()), (("b", "c"), ()), False),
        ((("a", "b"), ()), (("c", "d"), ()), True),
        (((), (VOLUME,)), (("a",), (VOLUME,)), True),
        (((), (VOLUME,)), ((VOLUME,), ()), False),
        (((VOLUME,), ()), ((), (VOLUME,)), False),
    ],
)
def test_shared_locks_exclude_only_those_who_want_them_alone(
    locks: Locks, first: tuple[Any, Any], second: tuple[Any, Any], *, together: bool
) -> None:
    with locks.hold("first", *first[0], shared=first[1]):
        try:
            with locks.hold("second", *second[0], shared=second[1]):
                held = [holder.purpose for holder in locks.holders()]
        except LockHeld:
            held = []
        # Nothing of a refused holder is left.
        assert [holder.purpose for holder in locks.holders()] == ["first"]
    assert sorted(held) == (["first", "second"] if together else [])


def test_any_name_of_a_tree(locks: Locks) -> None:
    paths = [b"home/al\xffice", b"home/\n", "home/é".encode(), b"home/\\xff"]
    with locks.hold("run", *map(of_tree, paths)):
        (holder,) = locks.holders()
        assert holder.names == tuple(map(of_tree, paths))
        assert holder.trees == len(set(holder.names)) == len(paths)


def test_ends_with_a_killed_holder(locks: Locks, directory: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"held\n"
            with pytest.raises(LockHeld, match=rf"process {holder.pid} \(run --user-batch 1\)"), locks.hold("x", "run"):
                pytest.fail("two hold the lock")
        finally:
            holder.kill()
    assert locks.holders() == []
    assert len(list(directory.glob("*.held"))) == 1
    with locks.hold("x", "run"):
        assert len(list(directory.glob("*.held"))) == 1


def test_is_not_kept_by_a_child(locks: Locks) -> None:
    with locks.hold("x", "run"):
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    with child:
        try:
            with locks.hold("y", "run"):
                pass
        finally:
            child.kill()


def test_a_directory_that_cannot_be_used_is_one_clear_error(directory: Path) -> None:
    directory.parent.mkdir()
    directory.write_text("a file is in the way")
    with pytest.raises(MigratorError, match="no lock can be taken"), Locks(directory, STOPPED).hold("x", "run"):
        pytest.fail("held")
