"""The stage: guards, walk, guards again, closing record.

A scan that sees a brick down or a directory that it cannot read goes on and says that it is not whole; what is no
longer the recorded mount is refused; a scan that is killed is gone on with by the next one.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from migrator.decide.site_guards import health_problems, mount_problems
from migrator.decide.trees import TreeIndex, choose_trees, parse_patterns
from migrator.domain.brick import SourceHealth
from migrator.domain.errors import Interrupted, MigratorError, Refused, UsageError
from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.progress import ScanProgress
from migrator.domain.scan import CatalogRecord, ScanProblem
from migrator.domain.tree import UserTree
from migrator.domain.units import format_count, several
from migrator.ports.catalog import Catalogs, OpenCatalog
from migrator.ports.clock import Clock
from migrator.ports.filesystem import SourceFileSystem
from migrator.ports.ledger import Ledger, SiteRecord
from migrator.ports.progress import Progress
from migrator.stages.scan.finding import find_directories
from migrator.stages.scan.walk import SourceLost, Walk

_SHOW_EVERY_S = 0.5
_LOOK_EVERY_S = 60.0
"""How often the bricks are looked at during the walk: a scan that is killed leaves no look after it."""
_STOP_WAIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanRequest:
    """What to scan. `users` maps trees to users where their last name is not it; `restart` begins a new catalog
    where an unfinished one would be gone on with.
    """

    trees: Sequence[str]
    exclude: Sequence[str] = ()
    users: dict[bytes, str] = field(default_factory=dict)
    via: str = "mount"
    workers: int = 8
    restart: bool = False


async def scan(
    request: ScanRequest,
    *,
    source: SourceFileSystem,
    ledger: Ledger,
    catalogs: Catalogs,
    progress: Progress,
    clock: Clock,
) -> CatalogRecord:
    """Walk the whole source into a catalog, and return its closing record: `whole`, or not with the reasons.

    The caller holds the lock `scan`. On cancellation what was read is kept, and Interrupted is raised. Raises Refused
    where the source is not the recorded mount or is lost on the way, UsageError for globs that cannot be.
    """
    return await _Scan(request, source=source, ledger=ledger, catalogs=catalogs, progress=progress, clock=clock).run()


class _Scan:
    def __init__(
        self,
        request: ScanRequest,
        *,
        source: SourceFileSystem,
        ledger: Ledger,
        catalogs: Catalogs,
        progress: Progress,
        clock: Clock,
    ) -> None:
        self._request = request
        self._source = source
        self._ledger = ledger
        self._catalogs = catalogs
        self._progress = progress
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._noted: set[str] = set()

    async def run(self) -> CatalogRecord:
        """The whole stage."""
        if self._request.via not in ("auto", "mount"):
            raise UsageError(
                f"this version cannot scan via {self._request.via!r}",
                hint="use `--via mount`, or leave it out",
            )
        site = self._ledger.site.read()
        if site is None:
            raise UsageError("the ledger knows no site yet", hint="run `migrator init` first")
        await self._require_recorded_mount(site)
        closed = await asyncio.to_thread(self._finish_closed)
        if closed is not None:
            return closed
        trees = await asyncio.to_thread(self._find_trees)
        before = await self._source.health()
        opened = await asyncio.to_thread(self._open, site, trees, before)
        walk, ended = self._new_walk(opened)
        self._event(EventKind.SCAN_STARTED, Severity.INFO, opened.record.name, _started(opened))
        if _changed_between_sessions(opened.record, before):
            self._note(walk, ("the volume's bricks or options changed between two sessions of this scan",))
        self._note(walk, before.problems)
        walk.start(self._request.workers)
        try:
            await self._watch(walk, opened.record, ended)
            if walk.failure is not None:
                raise walk.failure
            return await self._close(walk, opened, site, before)
        except asyncio.CancelledError:
            await self._interrupt(walk, opened.record)
            raise Interrupted(
                f"the scan was stopped after {several(walk.tally.rows, 'path')}",
                hint="run `migrator scan` again: it goes on where it was",
            ) from None
        except SourceLost as error:
            await self._interrupt(walk, opened.record)
            raise Refused(
                f"the source was lost in the middle of the scan: {error.reason}",
                cause="its mount died or was unmounted",
                hint="mount it again, then run `migrator scan`: it goes on where it was",
            ) from error
        except OSError as error:
            raise MigratorError(
                f"the catalog cannot be written: {error.strerror}",
                cause="the disk of the state directory is full or ill",
                hint="make room there, then run `migrator scan`: it goes on where it was",
            ) from error
        finally:
            await asyncio.to_thread(walk.stop, _STOP_WAIT_S)

    async def _require_recorded_mount(self, site: SiteRecord) -> None:
        """Refuse before anything is read: an empty directory in the source's place is no empty source."""
        problems = await self._mount_problems(site)
        if problems:
            message = "the source is not what `migrator init` recorded: " + "; ".join(problems)
            self._event(EventKind.GUARD_REFUSED, Severity.ERROR, "scan", message)
            raise Refused(
                message,
                cause="it is not mounted, or something else is mounted in its place",
                hint="mount the source, check with `migrator doctor`, then run `migrator scan` again",
            )

    async def _mount_problems(self, site: SiteRecord) -> tuple[str, ...]:
        try:
            current = await asyncio.to_thread(self._source.identity)
        except OSError:
            current = None
        return mount_problems(site.source, current, where="the source")

    def _finish_closed(self) -> CatalogRecord | None:
        """A scan that was killed between its closing record and the ledger is over: only the ledger has to be told."""
        unfinished = None if self._request.restart else self._ledger.scans.unfinished()
        closed = None if unfinished is None else self._catalogs.closing_record(unfinished.name)
        if closed is not None:
            self._finish(closed)
        return closed

    def _find_trees(self) -> tuple[UserTree, ...]:
        patterns = parse_patterns(self._request.trees, "[users] trees")
        exclude = parse_patterns(self._request.exclude, "[users] exclude")
        found = [(pattern, find_directories(self._source, pattern)) for pattern in patterns]
        return choose_trees(found, exclude, self._request.users)

    def _open(self, site: SiteRecord, trees: tuple[UserTree, ...], before: SourceHealth) -> OpenCatalog:
        """The unfinished catalog, or a new one. The ledger knows of it before it is on disk."""
        unfinished = None if self._request.restart else self._ledger.scans.unfinished()
        if unfinished is not None:
            opened = self._catalogs.resume(unfinished.name)
            if opened is not None:
                self._warn_of_other_trees(opened.record, trees)
                return opened
        now_s = self._clock.now_s() if unfinished is None else unfinished.started_at_s
        name = _catalog_name(now_s) if unfinished is None else unfinished.name
        scan_id = self._ledger.scans.start(catalog=name, via="mount", at_s=now_s)
        return self._catalogs.create(
            CatalogRecord(
                name=name,
                scan_id=scan_id,
                site_id=site.site_id,
                via="mount",
                trees=trees,
                parts=(),
                started_at_s=now_s,
                finished_at_s=None,
                whole=False,
                reasons=(),
                rows=0,
                files=0,
                directories=0,
                size_bytes=0,
                problems=0,
                health_fingerprint=before.fingerprint,
            )
        )

    def _warn_of_other_trees(self, record: CatalogRecord, trees: tuple[UserTree, ...]) -> None:
        """A catalog keeps the user trees that it was begun with."""
        other = sorted(set(trees) ^ set(record.trees))
        if other:
            shown = ", ".join(show(tree.path) for tree in other[:3]) + (", ..." if len(other) > 3 else "")
            self._event(
                EventKind.SCAN_STARTED,
                Severity.WARNING,
                record.name,
                f"{len(other)} user trees are others than when this scan was begun ({shown}); it keeps the old ones, "
                "`migrator scan --restart` takes the new ones",
            )

    def _new_walk(self, opened: OpenCatalog) -> tuple[Walk, asyncio.Event]:
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        walk = Walk(
            self._source,
            opened.writer,
            TreeIndex(opened.record.trees),
            frontier=opened.frontier,
            totals=opened.totals,
            on_end=lambda: _tell(loop, ended),
        )
        return walk, ended

    async def _watch(self, walk: Walk, record: CatalogRecord, ended: asyncio.Event) -> None:
        """Until the walk has ended: show how far it is, and look at the bricks now and then."""
        users = {tree.path: tree.user for tree in record.trees}
        try:
            async with asyncio.TaskGroup() as group:
                around = (
                    group.create_task(self._show_again_and_again(walk, users)),
                    group.create_task(self._look_again_and_again(walk)),
                )
                await ended.wait()
                for task in around:
                    task.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from failures
        self._show(walk, users)

    async def _show_again_and_again(self, walk: Walk, users: dict[bytes, str]) -> None:
        while True:
            self._show(walk, users)
            await self._clock.sleep(_SHOW_EVERY_S)

    async def _look_again_and_again(self, walk: Walk) -> None:
        while True:
            await self._clock.sleep(_LOOK_EVERY_S)
            self._note(walk, (await self._source.health()).problems)

    def _note(self, walk: Walk, problems: Sequence[str]) -> None:
        """Keep what was wrong with the source in the catalog, each once: it counts also if this scan is killed."""
        new = [problem for problem in dict.fromkeys(problems) if problem not in self._noted]
        self._noted.update(new)
        walk.note([ScanProblem(path=b"", operation="health", errno=None, reason=problem) for problem in new])
        for problem in new:
            self._event(EventKind.SOURCE_UNHEALTHY, Severity.WARNING, "scan", f"the scan will not be whole: {problem}")

    def _show(self, walk: Walk, users: dict[bytes, str]) -> None:
        by_user: dict[str, tuple[int, int]] = {}
        for tree, (rows, size_bytes) in walk.tally.by_tree.items():
            if tree is not None:
                user = users.get(tree) or show(tree)
                user_rows, user_bytes = by_user.get(user, (0, 0))
                by_user[user] = (user_rows + rows, user_bytes + size_bytes)
        self._progress.show(
            ScanProgress(
                elapsed_s=self._clock.monotonic_s() - self._began_s,
                rows=walk.tally.rows,
                directories_waiting=walk.directories_waiting,
                problems=walk.tally.problems,
                by_user=tuple((user, *facts) for user, facts in sorted(by_user.items())),
            )
        )

    async def _interrupt(self, walk: Walk, record: CatalogRecord) -> None:
        """Keep what is complete, and a last look at the bricks with it. Another cancellation does not cut it short."""
        await asyncio.shield(asyncio.ensure_future(self._leave(walk, record)))

    async def _leave(self, walk: Walk, record: CatalogRecord) -> None:
        await asyncio.to_thread(walk.stop, _STOP_WAIT_S)
        self._note(walk, (await self._source.health()).problems)
        await asyncio.to_thread(walk.abandon)
        self._event(EventKind.SCAN_INTERRUPTED, Severity.WARNING, record.name, "the scan was stopped; it can go on")

    async def _close(self, walk: Walk, opened: OpenCatalog, site: SiteRecord, before: SourceHealth) -> CatalogRecord:
        after = await self._source.health()
        found = (*await self._mount_problems(site), *health_problems(before, after))
        reasons = list(dict.fromkeys(found))
        unread = walk.tally.problems - len(self._noted)
        if unread:
            reasons.append(f"problems recorded while reading: {format_count(unread)}")
        tally = walk.tally
        record = replace(
            opened.record,
            finished_at_s=self._clock.now_s(),
            whole=not reasons and not tally.problems,
            reasons=tuple(reasons),
            rows=tally.rows,
            files=tally.rows - tally.directories,
            directories=tally.directories,
            size_bytes=tally.size_bytes,
            problems=tally.problems,
        )
        closed = await asyncio.to_thread(opened.writer.close, record)
        await asyncio.to_thread(self._finish, closed)
        return closed

    def _finish(self, closed: CatalogRecord) -> None:
        self._ledger.scans.finish(closed)
        severity = Severity.INFO if closed.whole else Severity.WARNING
        self._event(EventKind.SCAN_FINISHED, severity, closed.name, _finished(closed))

    def _event(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        event = Event(at_s=self._clock.now_s(), kind=kind, severity=severity, subject=subject, message=message)
        self._ledger.events.add(event)
        self._progress.event(event)


def _tell(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    """Called by the last thread; after a stop that did not wait for it the loop may be closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(ended.set)


def _catalog_name(at_s: float) -> str:
    """By date and time, UTC, to the millisecond: sorted by name is sorted by time."""
    moment = datetime.fromtimestamp(at_s, tz=UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}Z"


def _changed_between_sessions(record: CatalogRecord, before: SourceHealth) -> bool:
    """Whether a scan that goes on sees another volume than the one that it began with."""
    return bool(record.health_fingerprint and before.fingerprint) and record.health_fingerprint != before.fingerprint


def _started(opened: OpenCatalog) -> str:
    if opened.totals.rows:
        return (
            f"the scan goes on: {several(opened.totals.rows, 'path is', 'paths are')} in the catalog, "
            f"{several(len(opened.frontier), 'directory waits', 'directories wait')}"
        )
    return f"the scan begins: {several(len(opened.record.trees), 'user tree')}"


def _finished(record: CatalogRecord) -> str:
    paths = f"{several(record.rows, 'path is', 'paths are')} in the catalog"
    return f"{paths}; it is whole" if record.whole else f"{paths}; it is not whole: {'; '.join(record.reasons)}"
