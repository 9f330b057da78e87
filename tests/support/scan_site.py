"""A small site to scan: a source directory, a ledger, catalogs, and what the stage says."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from migrator.app.ledger import MigrationLedger
from migrator.catalog.model import CatalogRecord
from migrator.catalog.ports import Scratch
from migrator.catalog.walk_rows import decode_listings
from migrator.catalog.writer import CatalogDirectories
from migrator.core.clock import SystemClock
from migrator.core.entry import Entry
from migrator.fs.model import SourceHealth
from migrator.fs.ports import SourceFileSystem
from migrator.fs.reading import PosixSource
from migrator.gluster.walks import (
    BrickHello,
    BrickListener,
    BrickTotals,
    HostBrickWalks,
    WalkProblems,
    walk_whole_mount,
)
from migrator.scan.scan import scan
from migrator.scan.session import ScanRequest
from tests.support.fakes import FakeProgress
from tests.support.records import site_record


def grow(root: Path, users: Sequence[str], *, directories: int = 3, files: int = 5) -> None:
    """Trees `home/USER` with so many directories, each holding so many files of four bytes."""
    for user in users:
        for number in range(directories):
            directory = root / "home" / user / f"d{number}"
            directory.mkdir(parents=True)
            for file in range(files):
                (directory / f"f{file}").write_text("data")


class ScanSite:
    """`root` is the source; the ledger knows it as after `init`."""

    def __init__(self, directory: Path, *, root: Path | None = None) -> None:
        self.root = root or directory / "source"
        self.catalogs_dir = directory / "catalogs"
        self.scratch = Scratch(directory / "temp")
        self.shown = FakeProgress()
        self.root.mkdir(exist_ok=True)
        self.source = PosixSource(os.fsencode(self.root))
        self.ledger = MigrationLedger.open(directory / "ledger.db", create=True)
        if self.ledger.site.read() is None:
            self.ledger.site.create(site_record(self.source.identity()))

    def close(self) -> None:
        self.source.close()
        self.ledger.close()

    def grow(self, users: Sequence[str], *, directories: int = 3, files: int = 5) -> None:
        """Trees `home/USER` with so many directories, each holding so many files of four bytes."""
        grow(self.root, users, directories=directories, files=files)

    def catalogs(self, max_part_rows: int = 1000) -> CatalogDirectories:
        return CatalogDirectories(self.catalogs_dir, scratch=self.scratch, max_part_rows=max_part_rows)

    def request(self, **changes: Any) -> ScanRequest:
        return ScanRequest(**{"trees": ["home/*"], "workers": 3, **changes})

    async def scanned(
        self,
        *,
        source: SourceFileSystem | None = None,
        max_part_rows: int = 1000,
        walks: HostBrickWalks | None = None,
        **changes: Any,
    ) -> CatalogRecord:
        """Run the stage."""
        return await scan(
            self.request(**changes),
            source=source or self.source,
            ledger=self.ledger,
            catalogs=self.catalogs(max_part_rows),
            progress=self.shown,
            clock=SystemClock(),
            walks=walks,
        )

    def scan(self, **changes: Any) -> CatalogRecord:
        """Run the stage to its end."""
        return asyncio.run(self.scanned(**changes))

    def forget_the_end(self) -> None:
        """A kill between the closing record of a catalog and the ledger."""
        with self.ledger.database.write() as connection:
            connection.exec_driver_sql("UPDATE scans SET finished_at_s = NULL")

    def rows(self, record: CatalogRecord) -> list[dict[str, Any]]:
        """Every row of a closed catalog, without the access times that reading changes, in order of path."""
        closed = self.catalogs().closed(record.name)
        rows = [row for file in closed.part_files for row in pq.read_table(file).to_pylist()]
        for row in rows:
            del row["atime_ns"]
        return sorted(rows, key=lambda row: bytes(row["path"]))

    def problems(self, record: CatalogRecord) -> list[dict[str, Any]]:
        """What a closed catalog says could not be read."""
        closed = self.catalogs().closed(record.name)
        return [row for file in closed.problem_files for row in pq.read_table(file).to_pylist()]


class Lying(PosixSource):
    """A source whose look-ups and health a test decides; all other answers are true."""

    def __init__(self, root: bytes) -> None:
        super().__init__(root)
        self.looked: list[bytes] = []
        self.healths: list[SourceHealth] = []
        self.unreadable: set[bytes] = set()

    def look(self, path: bytes) -> Entry | None:
        self.looked.append(path)
        if path in self.unreadable:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().look(path)

    async def health(self) -> SourceHealth:
        return self.healths.pop(0) if self.healths else await super().health()


class WatchedWalk:
    """Stands before the walk of a mount: notes what has arrived from it, and lets something happen before it begins, or
    before so many frames of it are passed on.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[bytes] = []
        """The directories that were reported as done, and passed on."""
        self.before: Callable[[], None] = lambda: None
        self.frames = 0
        self.before_frame: Callable[[int], Awaitable[None]] = self._nothing
        monkeypatch.setattr("migrator.scan.mount.walk_whole_mount", self._walk)

    async def cancelled(self, site: ScanSite, after_frames: int, **changes: Any) -> CatalogRecord:
        """Scan, and cancel once so many frames have been passed on; nothing after them is."""
        reached = asyncio.Event()
        self.frames = 0

        async def hold(frame: int) -> None:
            if frame >= after_frames:
                reached.set()
                await asyncio.Event().wait()

        self.before_frame = hold
        task = asyncio.ensure_future(site.scanned(**changes))
        waiting = asyncio.ensure_future(reached.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        task.cancel()
        try:
            return await task
        finally:
            self.before_frame = self._nothing

    @staticmethod
    async def _nothing(_: int) -> None:
        pass

    async def _walk(self, *arguments: Any, listener: BrickListener, **given: Any) -> BrickTotals:
        await asyncio.to_thread(self.before)
        return await walk_whole_mount(*arguments, listener=_Watching(self, listener), **given)


class _Watching:
    def __init__(self, walk: WatchedWalk, listener: BrickListener) -> None:
        self._walk = walk
        self._listener = listener

    async def hello(self, hello: BrickHello) -> None:
        await self._listener.hello(hello)

    async def rows(self, payload: memoryview) -> None:
        await self._frame()
        await self._listener.rows(payload)

    async def directories(self, payload: memoryview) -> None:
        await self._frame()
        await self._listener.directories(payload)

    async def listings(self, payload: memoryview) -> None:
        await self._frame()
        await self._listener.listings(payload)
        paths = decode_listings(payload, brick=None).column("path").to_pylist()
        self._walk.done += [path for path in paths if path is not None]

    async def problems(self, found: WalkProblems) -> None:
        await self._frame()
        await self._listener.problems(found)

    async def _frame(self) -> None:
        await self._walk.before_frame(self._walk.frames)
        self._walk.frames += 1
