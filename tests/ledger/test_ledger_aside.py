"""Writes of an event loop in a thread: what is awaited is on the disk, a job fails alone, a held ledger stops nothing."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from migrator.app.ledger import MigrationLedger
from migrator.core.errors import LockHeld
from migrator.core.events import EventKind
from migrator.core.progress import Snapshot
from migrator.core.states import BatchState
from tests.support.fakes import FakeProgress
from tests.support.records import rows_of
from tests.support.run_world import World, in_loop


@pytest.fixture
def other(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Another process with the ledger open."""
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None, timeout=600)) as connection:
        yield connection


def started(ledger: MigrationLedger, pid: int) -> int:
    return ledger.runs.start(verb="run", pid=pid, at_s=1.0, directory="d")


def pids(ledger: MigrationLedger) -> list[int]:
    return [pid for (pid,) in rows_of(ledger.file, "SELECT pid FROM runs ORDER BY id")]


@in_loop
async def test_a_job_that_fails_fails_alone_and_what_was_awaited_is_on_the_disk(ledger: MigrationLedger) -> None:
    together = threading.Event()

    def breaks() -> None:
        started(ledger, 2)
        assert ledger.runs.latest() is not None
        raise ValueError("after a write")

    with ledger.written_aside():
        works = (together.wait, partial(started, ledger, 1), breaks, partial(started, ledger, 3))
        jobs = [asyncio.create_task(ledger.write(work)) for work in works]
        await asyncio.sleep(0)
        jobs[3].cancel()
        await asyncio.sleep(0)
        together.set()
        ends = await asyncio.gather(*jobs, return_exceptions=True)
        assert [type(end) for end in ends] == [bool, int, ValueError, asyncio.CancelledError]
        assert pids(ledger) == [1, 3]
        ledger.later(breaks)
        ledger.later(partial(started, ledger, 4))
    assert pids(ledger) == [1, 3, 4]


@in_loop
async def test_only_a_cancelled_caller_gives_up_on_a_held_ledger(tmp_path: Path, other: sqlite3.Connection) -> None:
    said: set[str] = set()
    ends = threading.Event()

    def waits(held: LockHeld) -> bool:
        said.add(held.message)
        return not ends.is_set()

    with (
        MigrationLedger.open(tmp_path / "ledger.db", create=True, busy_timeout_s=0.01) as ledger,
        ledger.written_aside(waits),
    ):
        other.execute("BEGIN IMMEDIATE")
        patient, cancelled = (asyncio.create_task(ledger.write(partial(started, ledger, pid))) for pid in (1, 2))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(LockHeld):
            await cancelled
        assert not patient.done()
        ends.set()
        with pytest.raises(LockHeld):
            await patient
        ends.clear()
        patient = asyncio.create_task(ledger.write(partial(started, ledger, 1)))
        other.execute("ROLLBACK")
        await patient
        assert (pids(ledger), said) == ([1], {f"the ledger {ledger.file} is locked by another process"})


@in_loop
async def test_a_run_goes_on_while_another_process_holds_the_ledger(world: World, other: sqlite3.Connection) -> None:
    """The loop shows progress meanwhile, streams end, and afterwards everything is recorded."""
    shown: list[Snapshot] = []

    def hold(_: bytes) -> None:
        if not (other.in_transaction or shown):
            other.execute("BEGIN IMMEDIATE")

    class Releasing(FakeProgress):
        def show(self, snapshot: Snapshot) -> None:
            if other.in_transaction and not world.streams.alive:
                shown.append(snapshot)
                if len(shown) == 5:
                    other.execute("ROLLBACK")

    world.streams.before_path, world.progress = hold, Releasing()
    with world.ledger.written_aside():
        summary = await world.run()
    assert (len(shown), summary.exit_code, world.batch_state) == (5, 0, BatchState.SEEDED)
    assert world.is_copied()
    assert not world.ledger.passes.unfinished_attempts()
    assert world.ledger.events.latest(1)[0].kind is EventKind.RUN_FINISHED
