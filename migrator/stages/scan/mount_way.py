"""The way that is always right: walk the mount, with the source looked at before, meanwhile and after.

A scan that sees a brick down or a directory that it cannot read goes on and says that it is not whole; what is no
longer the recorded mount is refused; a scan that is killed is gone on with by the next one, unless it is of some trees
alone.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from migrator.decide.site_guards import health_problems
from migrator.decide.trees import TreeIndex, ways_to
from migrator.domain.brick import SourceHealth
from migrator.domain.errors import Interrupted, MigratorError, Refused
from migrator.domain.events import EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.scan import CatalogRecord, ScanProblem, ScanTimes
from migrator.domain.tree import UserTree
from migrator.domain.units import format_count, several
from migrator.ports.catalog import OpenCatalog
from migrator.stages.scan.session import Session, catalog_name, trees_in_words
from migrator.stages.scan.walk import SourceLost, Walk

VIA = "mount"
_SHOW_EVERY_S = 0.5
_LOOK_EVERY_S = 60.0
"""How often the bricks are looked at during the walk: a scan that is killed leaves no look after it."""
_STOP_WAIT_S = 5.0


class MountWay:
    """One scan through the mount; `way_reasons` say why not by the bricks, where that was asked for."""

    def __init__(
        self, session: Session, *, trees: tuple[UserTree, ...], before: SourceHealth, way_reasons: Sequence[str]
    ) -> None:
        self._session = session
        self._trees = trees
        self._before = before
        self._way_reasons = tuple(way_reasons)
        self._noted: set[str] = set()

    async def run(self) -> CatalogRecord:
        """Walk, and close the catalog. Raises Interrupted, Refused, MigratorError."""
        opened = await asyncio.to_thread(self._open)
        walk, ended = self._new_walk(opened)
        self._session.event(EventKind.SCAN_STARTED, Severity.INFO, opened.record.name, _started(opened))
        if _changed_between_sessions(opened.record, self._before):
            self._note(walk, ("the volume's bricks or options changed between two sessions of this scan",))
        self._note(walk, self._before.problems)
        began_s = self._session.elapsed_s()
        walk.start(self._session.request.workers)
        try:
            await self._watch(walk, opened.record, ended)
            if walk.failure is not None:
                raise walk.failure
            return await self._close(walk, opened, began_s)
        except asyncio.CancelledError:
            await self._interrupt(walk, opened.record)
            raise Interrupted(
                f"the scan was stopped after {several(walk.tally.rows, 'path')}",
                hint=f"run {self._session.command} again: {self._how_it_goes_on}",
            ) from None
        except SourceLost as error:
            await self._interrupt(walk, opened.record)
            raise Refused(
                f"the source was lost in the middle of the scan: {error.reason}",
                cause="its mount died or was unmounted",
                hint=f"mount it again, then run {self._session.command}: {self._how_it_goes_on}",
            ) from error
        except OSError as error:
            raise MigratorError(
                f"the catalog cannot be written: {error.strerror}",
                cause="the disk of the state directory is full or ill",
                hint=f"make room there, then run {self._session.command}: {self._how_it_goes_on}",
            ) from error
        finally:
            await asyncio.to_thread(walk.stop, _STOP_WAIT_S)

    @property
    def _how_it_goes_on(self) -> str:
        return "it starts over" if self._session.request.only else "it goes on where it was"

    def _open(self) -> OpenCatalog:
        """The unfinished catalog, or a new one. One that was made from bricks cannot be gone on with."""
        session = self._session
        unfinished = None if session.request.begins_anew else session.ledger.scans.unfinished()
        if unfinished is not None and unfinished.via != VIA:
            unfinished = None
        if unfinished is not None:
            opened = session.catalogs.resume(unfinished.name)
            if opened is not None:
                self._warn_of_other_trees(opened.record)
                return opened
        now_s = session.clock.now_s() if unfinished is None else unfinished.started_at_s
        name = catalog_name(now_s) if unfinished is None else unfinished.name
        return session.catalogs.create(
            session.new_record(name=name, at_s=now_s, via=VIA, trees=self._trees, fingerprint=self._before.fingerprint)
        )

    def _warn_of_other_trees(self, record: CatalogRecord) -> None:
        """A catalog keeps the user trees that it was begun with."""
        other = sorted(set(self._trees) ^ set(record.trees))
        if other:
            shown = ", ".join(show(tree.path) for tree in other[:3]) + (", ..." if len(other) > 3 else "")
            self._session.event(
                EventKind.SCAN_STARTED,
                Severity.WARNING,
                record.name,
                f"{len(other)} user trees are others than when this scan was begun ({shown}); it keeps the old ones, "
                "`migrator scan --restart` takes the new ones",
            )

    def _new_walk(self, opened: OpenCatalog) -> tuple[Walk, asyncio.Event]:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        walk = Walk(
            self._session.source,
            opened.writer,
            TreeIndex(opened.record.trees),
            frontier=opened.frontier,
            totals=opened.totals,
            on_end=lambda: _tell(loop, ended),
            ways=ways_to(tree.path for tree in opened.record.trees) if opened.record.scope else None,
        )
        return walk, ended

    async def _watch(self, walk: Walk, record: CatalogRecord, ended: asyncio.Event) -> None:
        """Until the walk has ended: show how far it is, and look at the bricks now and then."""
        try:
            async with asyncio.TaskGroup() as group:
                around = (
                    group.create_task(self._show_again_and_again(walk, record)),
                    group.create_task(self._look_again_and_again(walk)),
                )
                await ended.wait()
                for task in around:
                    task.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        self._show(walk, record)

    async def _show_again_and_again(self, walk: Walk, record: CatalogRecord) -> None:
        while True:
            self._show(walk, record)
            await self._session.clock.sleep(_SHOW_EVERY_S)

    async def _look_again_and_again(self, walk: Walk) -> None:
        while True:
            await self._session.clock.sleep(_LOOK_EVERY_S)
            self._note(walk, (await self._session.source.health()).problems)

    def _note(self, walk: Walk, problems: Sequence[str]) -> None:
        """Keep what was wrong with the source in the catalog, each once: it counts also if this scan is killed."""
        new = [problem for problem in dict.fromkeys(problems) if problem not in self._noted]
        self._noted.update(new)
        walk.note([ScanProblem(path=b"", operation="health", errno=None, reason=problem) for problem in new])
        for problem in new:
            self._session.event(
                EventKind.SOURCE_UNHEALTHY, Severity.WARNING, "scan", f"the scan will not be whole: {problem}"
            )

    def _show(self, walk: Walk, record: CatalogRecord) -> None:
        self._session.show(
            rows=walk.tally.rows,
            directories_waiting=walk.directories_waiting,
            problems=walk.tally.problems,
            by_tree=walk.tally.by_tree,
            trees=record.trees,
        )

    async def _interrupt(self, walk: Walk, record: CatalogRecord) -> None:
        """Keep what is complete, and a last look at the bricks with it. Another cancellation does not cut it short."""
        await asyncio.shield(asyncio.ensure_future(self._leave(walk, record)))

    async def _leave(self, walk: Walk, record: CatalogRecord) -> None:
        await asyncio.to_thread(walk.stop, _STOP_WAIT_S)
        if record.scope:
            await asyncio.to_thread(walk.abandon)
            await asyncio.to_thread(self._session.catalogs.discard, record.name)
            self._session.event(
                EventKind.SCAN_INTERRUPTED, Severity.WARNING, record.name, "the scan was stopped; it starts over"
            )
            return
        self._note(walk, (await self._session.source.health()).problems)
        await asyncio.to_thread(walk.abandon)
        self._session.event(
            EventKind.SCAN_INTERRUPTED, Severity.WARNING, record.name, "the scan was stopped; it can go on"
        )

    async def _close(self, walk: Walk, opened: OpenCatalog, began_s: float) -> CatalogRecord:
        session = self._session
        walked_s = session.elapsed_s()
        after = await session.source.health()
        found = (*await session.mount_problems(), *health_problems(self._before, after))
        checked_s = session.elapsed_s()
        reasons = [*session.lacking(self._trees), *dict.fromkeys(found)]
        unread = walk.tally.problems - len(self._noted)
        if unread:
            reasons.append(f"problems recorded while reading: {format_count(unread)}")
        tally = walk.tally
        record = replace(
            opened.record,
            finished_at_s=session.clock.now_s(),
            whole=not reasons and not tally.problems,
            reasons=tuple(reasons),
            rows=tally.rows,
            files=tally.rows - tally.directories,
            directories=tally.directories,
            size_bytes=tally.size_bytes,
            problems=tally.problems,
            way_reasons=self._way_reasons,
            times=ScanTimes(checks_s=began_s + checked_s - walked_s, walk_s=walked_s - began_s),
        )
        closed = await asyncio.to_thread(opened.writer.close, record)
        await asyncio.to_thread(session.finish, closed)
        return closed


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Called by the last thread; after a stop that did not wait for it the loop may be closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(ended.set)


def _changed_between_sessions(record: CatalogRecord, before: SourceHealth) -> bool:
    """Whether a scan that goes on sees another volume than the one that it began with."""
    return bool(record.health_fingerprint and before.fingerprint) and record.health_fingerprint != before.fingerprint


def _started(opened: OpenCatalog) -> str:
    if opened.totals.rows:
        return (
            f"the scan goes on: {several(opened.totals.rows, 'path is', 'paths are')} in the catalog, "
            f"{several(len(opened.frontier), 'directory waits', 'directories wait')}"
        )
    return f"the scan begins: {trees_in_words(len(opened.record.trees), opened.record.scope)}"
