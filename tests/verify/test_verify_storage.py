"""Storage of the target that is lost while both sides are compared: it is waited for, and what was lost is read again."""

import asyncio
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.clock import SystemClock
from migrator.core.events import EventKind
from migrator.fs.ports import Digest
from tests.beegfs.test_storage_outages import Storage, lost, well
from tests.support.verify_world import World, verify_world


class QuickClock(SystemClock):
    """Sleeps without taking time."""

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with verify_world(tmp_path) as made:
        made.tree.mkdir(parents=True)
        for number in range(5):
            (made.tree / f"f{number}").write_text(f"content {number}")
        made.copy_trees()
        made.set_trees([b"home/alice"])
        yield made


def test_paths_unreadable_during_an_outage_are_read_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, read = Storage(), type(world.target).digest

    def failing(self: object, path: bytes, algorithm: str) -> Digest:
        if path.endswith(b"f3") and storage.looks < 4:
            storage.change = lost if storage.looks < 2 else well
            raise OSError(errno.EIO, "no answer")
        return read(self, path, algorithm)  # type: ignore[arg-type]

    def back(looks: int, _: object) -> None:
        if looks == 3:
            storage.change = well

    storage.after = back
    monkeypatch.setattr(type(world.target), "digest", failing)
    record = world.verify(clock=QuickClock(), storage=storage)
    assert record.whole, record.reasons
    assert record.digested_files == 5
    told = [event.kind for event in world.progress.events]
    of_storage = [EventKind.STORAGE_LOST, EventKind.STORAGE_BACK]
    assert [kind for kind in told if kind in of_storage] == of_storage
