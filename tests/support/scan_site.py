"""A small site to scan: a source directory, a ledger, catalogs, and what the stage says."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from migrator.catalog.model import CatalogRecord
from migrator.catalog.ports import Scratch
from migrator.catalog.writer import CatalogDirectories
from migrator.core.clock import SystemClock
from migrator.core.entry import Entry
from migrator.fs.model import ScanProblem
from migrator.fs.ports import Block, SourceFileSystem
from migrator.fs.reading import PosixSource
from migrator.gluster.model import SourceHealth
from migrator.gluster.walks import HostBrickWalks
from migrator.ledger.ledger import open_ledger
from migrator.scan.session import ScanRequest
from migrator.scan.stage import scan
from tests.support.fakes import FakeProgress
from tests.support.records import site_record


class ScanSite:
    """`root` is the source; the ledger knows it as after `init`."""

    def __init__(self, directory: Path, *, root: Path | None = None) -> None:
        self.root = root or directory / "source"
        self.catalogs_dir = directory / "catalogs"
        self.scratch = Scratch(directory / "temp")
        self.shown = FakeProgress()
        self.root.mkdir(exist_ok=True)
        self.source = PosixSource(os.fsencode(self.root))
        self.ledger = open_ledger(directory / "ledger.db", create=True)
        if self.ledger.site.read() is None:
            self.ledger.site.create(site_record(self.source.identity()))

    def close(self) -> None:
        self.source.close()
        self.ledger.close()

    def grow(self, users: Sequence[str], *, directories: int = 3, files: int = 5) -> None:
        """Trees `home/USER` with so many directories, each holding so many files of four bytes."""
        for user in users:
            for number in range(directories):
                directory = self.root / "home" / user / f"d{number}"
                directory.mkdir(parents=True)
                for file in range(files):
                    (directory / f"f{file}").write_text("data")

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
    """A source that says what was read of it, and whose answers a test decides; all others are true."""

    def __init__(self, root: bytes) -> None:
        super().__init__(root)
        self.listed: list[bytes] = []
        self.looked: list[bytes] = []
        self.healths: list[SourceHealth] = []
        self.before_reading: Callable[[bytes], None] = lambda _: None
        self.problems: dict[bytes, ScanProblem] = {}
        self.unreadable: set[bytes] = set()
        self.doubled: set[bytes] = set()
        self.dead = False

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        self.before_reading(path)
        self.listed.append(path)
        if path in self.doubled:
            yield from super().read_directory(path, block_entries=2)
        if self.dead:
            problem = ScanProblem(path=path, operation="open", errno=errno.ENOTCONN, reason="not connected")
            yield Block(entries=(), problems=(problem,))
        elif path in self.problems:
            yield Block(entries=(), problems=(self.problems[path],))
        else:
            yield from super().read_directory(path, block_entries=block_entries)

    def look(self, path: bytes) -> Entry | None:
        self.looked.append(path)
        if self.dead:
            raise OSError(errno.ENOTCONN, "not connected", path)
        if path in self.unreadable:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return super().look(path)

    async def health(self) -> SourceHealth:
        return self.healths.pop(0) if self.healths else await super().health()


async def cancelled(site: ScanSite, source: Lying, after_directories: int, **changes: Any) -> CatalogRecord:
    """Scan, and cancel once so many directories have been begun; the rest waits until then."""
    reached, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    begun = threading.Semaphore(after_directories)

    def gate(_: bytes) -> None:
        if not begun.acquire(blocking=False):
            loop.call_soon_threadsafe(reached.set)
            go_on.wait(60)

    source.before_reading = gate
    task = asyncio.ensure_future(site.scanned(source=source, **changes))
    await reached.wait()
    task.cancel()
    go_on.set()
    return await task
