"""Scans of a lab's bricks in the hands of a test: a site, the lab's hosts, and something that happens in the middle."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from migrator.catalog.model import CatalogRecord
from migrator.core.clock import SystemClock
from migrator.gluster.model import Brick
from migrator.gluster.volume import GlusterCommands, GlusterSource
from migrator.gluster.walks import BrickListener, BrickTotals, HostBrickWalks
from migrator.hosts.ports import Host
from migrator.hosts.process import LocalProcesses
from migrator.native.program import native_program
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.hosts import LabHosts
from tests.support.scan_site import ScanSite

NOT_COMPARED = ("brick", "gfid", "dev", "blocks", "atime_ns")
"""Columns that only one of the two ways fills, or that a Gluster mount invents."""

NOT_COMPARED_OF_DIRECTORIES = (*NOT_COMPARED, "size", "nlink")
"""A mount over one subvolume shows the size that the directory has on a brick; over several it is 4096."""

Happening = Callable[[Brick], Awaitable[None]]
Place = Callable[[Host], Awaitable[bytes]]


class _Listener:
    """Hands everything on; before the first rows of a brick something happens."""

    def __init__(self, brick: Brick, listener: BrickListener, happening: Happening) -> None:
        self._brick = brick
        self._listener = listener
        self._happening = happening
        self._happened = False
        self.hello, self.problems = listener.hello, listener.problems

    async def rows(self, payload: memoryview) -> None:
        await self._happen()
        await self._listener.rows(payload)

    async def directories(self, payload: memoryview) -> None:
        await self._happen()
        await self._listener.directories(payload)

    async def _happen(self) -> None:
        if not self._happened:
            self._happened = True
            await self._happening(self._brick)


class WatchedWalks(HostBrickWalks):
    """The real walks, with something that happens in the middle of each."""

    happening: Happening

    async def walk(self, brick: Brick, *, listener: BrickListener, **how: Any) -> BrickTotals:
        return await super().walk(brick, listener=_Listener(brick, listener, self.happening), **how)


async def _nothing(_: Brick) -> None:
    """What happens mostly."""


class BrickScans:
    """One site on a lab, scanned by either way."""

    def __init__(self, lab: LabHandle, directory: Path) -> None:
        volume = lab.state.spec.volume
        gluster = os.fsdecode(lab.state.gluster)
        self.lab = lab
        commands = GlusterCommands(LocalProcesses(), SystemClock(), volume=volume, gluster=gluster)
        self.source = GlusterSource(lab.state.source, commands)
        self.site = ScanSite(directory, root=lab.source)
        self.trees = sorted({os.fsdecode(tree.rpartition(b"/")[0]) + "/*" for tree in lab.state.trees})
        self.absent: set[str] = set()
        self.inside: dict[str, int] = {}

    def close(self) -> None:
        self.site.close()
        self.source.close()

    def scan(
        self, via: str, *, happening: Happening = _nothing, place: Place | None = None, **changes: Any
    ) -> CatalogRecord:
        return asyncio.run(self.scanned(via, happening=happening, place=place, **changes))

    async def scanned(
        self, via: str, *, happening: Happening = _nothing, place: Place | None = None, **changes: Any
    ) -> CatalogRecord:
        hosts = LabHosts(self.lab)
        hosts.absent, hosts.inside = self.absent, self.inside
        # So small blocks that even the smallest brick sends several.
        walks = WatchedWalks(hosts, place or native_program().place, names=hosts.names)
        walks.happening = happening
        try:
            return await self.site.scanned(
                source=self.source,
                trees=self.trees,
                via=via,
                walks=walks,
                max_part_rows=100_000,
                **changes,
            )
        finally:
            await hosts.close()

    def rows(self, record: CatalogRecord) -> dict[bytes, dict[str, Any]]:
        """The rows by path; none is there twice."""
        rows = self.site.rows(record)
        by_path = {row["path"]: row for row in rows}
        assert len(by_path) == len(rows)
        return by_path

    def compare(self, one: CatalogRecord, other: CatalogRecord, *, but_of_directories: Collection[str] = ()) -> None:
        """Both catalogs hold the same, attribute by attribute, `but_of_directories` these."""
        left, right = self.rows(one), self.rows(other)
        assert sorted(left.keys() ^ right.keys()) == []
        different = [
            (path, column, row[column], right[path][column])
            for path, row in left.items()
            for column in row
            if column
            not in ((*NOT_COMPARED_OF_DIRECTORIES, *but_of_directories) if row["type"] == "directory" else NOT_COMPARED)
            and row[column] != right[path][column]
        ]
        assert not different, different[:20]
        assert (one.rows, one.files, one.directories, one.size_bytes) == (
            other.rows,
            other.files,
            other.directories,
            other.size_bytes,
        )

    def said(self) -> str:
        return "\n".join(event.message for event in self.site.shown.events)


@contextmanager
def brick_scans(lab: LabHandle, directory: Path) -> Iterator[BrickScans]:
    """A site of its own on a lab."""
    directory.mkdir(exist_ok=True)
    scans = BrickScans(lab, directory)
    try:
        yield scans
    finally:
        scans.close()
