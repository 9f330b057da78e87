"""The scan of the mount by the compiled program, with snapshots of the source before, during and after.

If a brick is down or a directory unreadable, the scan continues and is not whole. A mount other than the recorded one is
refused. The next scan resumes a killed one, unless it covered only some trees.
"""

import asyncio
import errno
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import CatalogRecord, ScanTimes
from migrator.catalog.ports import CatalogTotals, OpenCatalog
from migrator.catalog.walk_rows import content_bytes_of, decode_listings, decode_rows, without_inodes
from migrator.core.entry import Entry, EntryType, UserTree
from migrator.core.errors import Interrupted, MigratorError, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.units import several
from migrator.fs.model import ScanProblem, SourceHealth
from migrator.fs.ports import FileSystem, WalkedRoot
from migrator.gluster.walks import BrickHello, BrickLost, WalkProblems, walk_whole_mount
from migrator.hosts.process import LocalProcesses
from migrator.native.program import native_program
from migrator.scan.rules import ways_to
from migrator.scan.session import Session, catalog_name, describe_trees
from migrator.site.rules_guards import health_problems

if TYPE_CHECKING:
    import pyarrow as pa

# --- What the walk sends


_BLOCK_ROWS = 4096
"""The most rows of a frame. What the workers have not written yet is read again after a kill."""
_DEAD_MOUNT = (errno.ENOTCONN, errno.ESHUTDOWN, errno.EIO, errno.ESTALE, errno.ENODEV)
"""Errors of every read if the mount itself is gone. A single directory can cause them too, so the root is probed."""


class SourceLost(Exception):
    """The source's root can no longer be read, so the walk stops: everything else would fail too."""


class MountRows:
    """The `BrickListener` port: puts what a walk of the mount sends into an open catalog, in the order of its arrival."""

    def __init__(self, source: FileSystem, opened: OpenCatalog) -> None:
        self._source = source
        self._writer = opened.writer
        self._trees = [tree.path for tree in opened.record.trees]
        self._writing = threading.Lock()
        self._abandoned = False
        self._device = 0
        self._root = WalkedRoot(path=b"")
        self.totals = opened.totals
        """The totals of the catalog so far. Only the holder of `_writing` sets them."""
        self.begin = opened.frontier
        """The directories to begin with."""
        self.waiting = len(opened.frontier)
        """The number of directories that were found and are not done."""

    async def walk(self, *, workers: int, block_rows: int) -> None:
        """Walk from the directories to begin with. Raises SourceLost, BrickLost, OSError."""
        if not self.begin:
            return
        try:
            self._root = await asyncio.to_thread(self._source.walked)
        except OSError as error:
            raise SourceLost(error.strerror or str(error)) from error
        await walk_whole_mount(
            LocalProcesses(),
            native_program().path,
            self._root,
            begin=self.begin,
            trees=self._trees,
            listener=self,
            workers=workers,
            block_rows=block_rows,
        )

    async def hello(self, hello: BrickHello) -> None:
        """Take the device of the mount."""
        self._device = hello.device

    async def rows(self, payload: memoryview) -> None:
        """Add entries. Raises OSError."""
        await asyncio.to_thread(self._add_rows, payload)

    directories = rows

    async def listings(self, payload: memoryview) -> None:
        """Complete directories. Raises OSError."""
        paths = decode_listings(payload, brick=None).column("path").to_pylist()
        done = [path for path in paths if path is not None]
        with self._writing:
            if not self._abandoned:
                self._writer.directories_done(done)
                self.waiting -= len(done)

    async def problems(self, found: WalkProblems) -> None:
        """Record what cannot be read; entries that vanished are gone. Raises SourceLost."""
        await asyncio.to_thread(self._require_living_source, found.unreadable)
        self.note(found.unreadable)

    def add_ways(self) -> None:
        """Add the trees of a scan of some trees and the directories that lead to them, as they are looked up one by one, and
        begin with the trees. Blocking. Raises SourceLost, OSError.
        """
        ways, trees, begin, waiting = ways_to(self._trees), frozenset(self._trees), list[bytes](), [b""]
        while waiting:
            for path in ways.get(waiting.pop(), ()):
                entry = self._look(path)
                if entry is None:
                    continue
                self._add(path if path in trees else None, entry)
                if entry.type is EntryType.DIRECTORY:
                    (begin if path in trees else waiting).append(path)
        self.begin, self.waiting = tuple(begin), len(begin)

    def note(self, problems: Sequence[ScanProblem]) -> None:
        """Record problems."""
        with self._writing:
            if problems and not self._abandoned:
                self._writer.note(problems)
                self.totals = replace(self.totals, problems=self.totals.problems + len(problems))

    def abandon(self) -> None:
        """Leave the catalog open for a later resume; what is still to be added is left out."""
        with self._writing:
            self._abandoned = True
            self._writer.abandon()

    def _add_rows(self, payload: memoryview) -> None:
        rows = decode_rows(payload, trees=self._trees, brick=None, dev=self._device)
        if not self._root.lasting_inodes:
            rows = without_inodes(rows)
        found = _totals_of(rows)
        with self._writing:
            if self._abandoned:
                return
            self._writer.add_rows(rows)
            self.totals = replace(
                self.totals,
                rows=self.totals.rows + found.rows,
                directories=self.totals.directories + found.directories,
                size_bytes=self.totals.size_bytes + found.size_bytes,
            )
            self.waiting += found.directories

    def _look(self, path: bytes) -> Entry | None:
        try:
            return self._source.look(path)
        except OSError as error:
            reason = error.strerror or str(error)
            problem = ScanProblem(path=path, operation="lstat", errno=error.errno, reason=reason)
            self._require_living_source([problem])
            self.note([problem])
            return None

    def _add(self, tree: bytes | None, entry: Entry) -> None:
        with self._writing:
            self._writer.add(tree, [entry])
            self.totals = replace(
                self.totals,
                rows=self.totals.rows + 1,
                directories=self.totals.directories + (entry.type is EntryType.DIRECTORY),
                size_bytes=self.totals.size_bytes + entry.content_bytes,
            )

    def _require_living_source(self, problems: Sequence[ScanProblem]) -> None:
        if any(problem.errno in _DEAD_MOUNT for problem in problems):
            try:
                self._source.look(b"")
            except OSError as error:
                raise SourceLost(error.strerror or str(error)) from error


def _totals_of(rows: "pa.RecordBatch") -> CatalogTotals:
    """The totals of a frame, which has either directories alone or none."""
    directories = rows.num_rows if rows.num_rows and rows.column("type")[0].as_py() == EntryType.DIRECTORY else 0
    return CatalogTotals(rows=rows.num_rows, directories=directories, size_bytes=content_bytes_of(rows))


# --- The scan


VIA = "mount"
_LOOK_EVERY_S = 60.0
"""The interval of polls of the bricks during the walk: a killed scan gets no final check."""


class MountWay(Struct, frozen=True, kw_only=True):
    """One scan of the mount; `way_reasons` are the reasons why bricks were requested but are not read."""

    session: Session
    trees: tuple[UserTree, ...]
    before: SourceHealth
    way_reasons: tuple[str, ...]

    async def run(self) -> CatalogRecord:
        """Scan, and close the catalog. Raises Interrupted, Refused, MigratorError."""
        opened = await asyncio.to_thread(self._open)
        rows = MountRows(self.session.source, opened)
        self.session.event(EventKind.SCAN_STARTED, Severity.INFO, opened.record.name, _started(opened))
        if len({opened.record.health_fingerprint, self.before.fingerprint} - {"", None}) > 1:
            self._note(rows, ("the volume's bricks or options changed between two sessions of this scan",))
        self._note(rows, (*self.before.problems, *self.before.doubts))
        began_s = self.session.elapsed_s()
        try:
            async with self.session.watching(
                lambda: self._show(rows), lambda: self._poll_bricks(rows), every_s=_LOOK_EVERY_S
            ):
                if opened.record.scope:
                    await asyncio.to_thread(rows.add_ways)
                await rows.walk(
                    workers=self.session.request.workers,
                    block_rows=min(_BLOCK_ROWS, self.session.catalogs.max_part_rows),
                )
            return await self._close(rows, opened, began_s)
        except asyncio.CancelledError:
            await self._interrupt(rows, opened.record)
            raise Interrupted(
                f"the scan was stopped after {several(rows.totals.rows, 'path')}",
                hint=f"run {self.session.command} again: {self._on_repetition}",
            ) from None
        except SourceLost as error:
            await self._interrupt(rows, opened.record)
            raise Refused(
                f"the source was lost in the middle of the scan: {error}",
                cause="its mount died or was unmounted",
                hint=f"mount it again, then run {self.session.command}: {self._on_repetition}",
            ) from error
        except BrickLost as error:
            await self._interrupt(rows, opened.record)
            raise MigratorError(
                error.message, cause=error.cause, hint=f"run {self.session.command} again: {self._on_repetition}"
            ) from error
        except OSError as error:
            raise self.session.not_written(error, self._on_repetition) from error

    @property
    def _on_repetition(self) -> str:
        return "it starts over" if self.session.request.only else "it resumes"

    def _open(self) -> OpenCatalog:
        """Resume the unfinished catalog, or create one. A catalog from bricks cannot be resumed."""
        session = self.session
        unfinished = None if session.request.begins_anew else session.ledger.scans.unfinished()
        if unfinished is not None and unfinished.via != VIA:
            unfinished = None
        if unfinished is not None:
            opened = session.catalogs.resume(unfinished.name)
            if opened is not None:
                return opened
        now_s = session.clock.now_s() if unfinished is None else unfinished.started_at_s
        name = catalog_name(now_s) if unfinished is None else unfinished.name
        return session.catalogs.create(
            session.new_record(name=name, at_s=now_s, via=VIA, trees=self.trees, fingerprint=self.before.fingerprint)
        )

    async def _poll_bricks(self, rows: MountRows) -> None:
        health = await self.session.source.health()
        self._note(rows, (*health.problems, *health.doubts))

    def _note(self, rows: MountRows, problems: Sequence[str]) -> None:
        """Record each problem of the source once in the catalog, so it counts even if this scan is killed."""
        new = self.session.note(problems)
        rows.note([ScanProblem(path=b"", operation="health", errno=None, reason=problem) for problem in new])

    def _show(self, rows: MountRows) -> None:
        self.session.show(
            rows=rows.totals.rows,
            directories_waiting=rows.waiting,
            problems=rows.totals.problems,
        )

    async def _interrupt(self, rows: MountRows, record: CatalogRecord) -> None:
        """Flush all complete directories, with a final check of the bricks. Another cancellation does not interrupt
        this.
        """
        await asyncio.shield(asyncio.ensure_future(self._leave(rows, record)))

    async def _leave(self, rows: MountRows, record: CatalogRecord) -> None:
        if record.scope:
            await asyncio.to_thread(rows.abandon)
            await asyncio.to_thread(self.session.catalogs.discard, record.name)
            self.session.event(
                EventKind.SCAN_INTERRUPTED, Severity.WARNING, record.name, "the scan was stopped; it starts over"
            )
            return
        await self._poll_bricks(rows)
        await asyncio.to_thread(rows.abandon)
        self.session.event(
            EventKind.SCAN_INTERRUPTED, Severity.WARNING, record.name, "the scan was interrupted; it can be resumed"
        )

    async def _close(self, rows: MountRows, opened: OpenCatalog, began_s: float) -> CatalogRecord:
        session = self.session
        walked_s = session.elapsed_s()
        after = await session.source.health()
        found = (*await session.mount_problems(), *health_problems(self.before, after))
        checked_s = session.elapsed_s()
        record = replace(
            opened.record,
            way_reasons=self.way_reasons,
            times=ScanTimes(checks_s=began_s + checked_s - walked_s, walk_s=walked_s - began_s),
        )
        return await session.close(record, opened.writer, against=found, trees=self.trees, totals=rows.totals)


def _started(opened: OpenCatalog) -> str:
    if opened.totals.rows:
        return (
            f"the scan resumes: {several(opened.totals.rows, 'path is', 'paths are')} in the catalog, "
            f"{several(len(opened.frontier), 'directory waits', 'directories wait')}"
        )
    return f"the scan begins: {describe_trees(len(opened.record.trees), opened.record.scope)}"
