"""`scan`: guards, the choice between bricks and mount, the walk of the mount, then a closed catalog."""

import asyncio
import errno
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import CatalogRecord, ScanTimes
from migrator.catalog.ports import CatalogTotals, OpenCatalog
from migrator.core.clock import Clock
from migrator.core.entry import Entry, EntryType, UserTree
from migrator.core.errors import Interrupted, MigratorError, Refused, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.progress import Progress
from migrator.core.tasks import WorkPool
from migrator.core.units import several
from migrator.fs.model import ScanProblem
from migrator.fs.ports import Block, FileSystem, SourceFileSystem
from migrator.gluster.model import SourceHealth
from migrator.gluster.volume import GlusterSource
from migrator.gluster.walks import HostBrickWalks
from migrator.scan import bricks as brick_way
from migrator.scan.bricks import BrickTeam, BrickWay
from migrator.scan.rules import TreeIndex, choose_way, ways_to
from migrator.scan.session import ScanRequest, Session, catalog_name, trees_in_words
from migrator.site.rules_guards import health_problems

if TYPE_CHECKING:
    from migrator.catalog.writer import CatalogDirectories, PartsWriter
    from migrator.ledger.ledger import Ledger

# --- The walk: several threads, depth first, so that few directories wait


_BLOCK_ENTRIES = 4096
_DEAD_MOUNT = (errno.ENOTCONN, errno.ESHUTDOWN, errno.EIO, errno.ESTALE, errno.ENODEV)
"""Errors of every read if the mount itself is gone. A single directory can cause them too, so the root is probed."""


class SourceLost(Exception):
    """The source's root can no longer be read, so the walk stops: everything else would fail too."""


def with_entries(totals: CatalogTotals, entries: Sequence[Entry]) -> CatalogTotals:
    """The totals, increased by these entries."""
    return replace(
        totals,
        rows=totals.rows + len(entries),
        directories=totals.directories + sum(entry.type is EntryType.DIRECTORY for entry in entries),
        size_bytes=totals.size_bytes + sum(entry.content_bytes for entry in entries),
    )


class Walk:
    """Reads every directory of the frontier and below it, each by one thread, into one writer.

    Children are queued after their directory is done in the catalog, never earlier: a resume relies on it. With `ways`,
    directories outside the trees are not listed: only the entries that `ways` names in each are looked up.
    """

    def __init__(
        self,
        source: FileSystem,
        writer: "PartsWriter",
        trees: TreeIndex,
        *,
        frontier: Iterable[bytes],
        totals: CatalogTotals,
        workers: int,
        ways: Mapping[bytes, Sequence[bytes]] | None = None,
    ) -> None:
        self._source = source
        self._writer = writer
        self._trees = trees
        self._writing = threading.Lock()
        self._ways = ways
        self.totals = totals
        """The totals of the catalog so far. Only the holder of `_writing` sets them."""
        self.pool: WorkPool[bytes, None] = WorkPool(workers, do_wide=self._read)
        self.pool.put_wide(*frontier)

    def abandon(self) -> None:
        """Leave the catalog open for a later resume; threads that still hang can no longer write to it."""
        self.pool.stop()
        with self._writing:
            self._writer.abandon()

    def note(self, problems: Sequence[ScanProblem]) -> None:
        """Record problems that belong to no directory, such as a brick that is down."""
        with self._writing:
            self._writer.note(problems)
            self._add_problems(problems)

    def _add_problems(self, problems: Sequence[ScanProblem]) -> None:
        self.totals = replace(self.totals, problems=self.totals.problems + len(problems))

    def _read(self, path: bytes) -> None:
        """Read one directory into the catalog, and queue its children if it was read completely."""
        children: dict[bytes, None] = {}
        problems: list[ScanProblem] = []
        tree = self._trees.of(path)
        for block in self._blocks(path, tree):
            problems += block.problems
            directories = [entry.path for entry in block.entries if entry.type is EntryType.DIRECTORY]
            listed = block.entries
            if not children.keys().isdisjoint(directories):
                # A Gluster mount can list an entry twice during renames; everything below it would be doubled.
                listed = tuple(entry for entry in listed if entry.path not in children)
            children.update(dict.fromkeys(directories))
            shares = [(tree, listed)] if tree is not None else self._shares(listed, directories)
            with self._writing:
                if self.pool.stopped:
                    return
                for owner, entries in shares:
                    self._writer.add(owner, entries)
                    self.totals = with_entries(self.totals, entries)
        self._require_living_source(problems)
        with self._writing:
            if self.pool.stopped:
                return
            self._writer.directory_done(path, problems)
            self._add_problems(problems)
        self.pool.put_wide(*children)

    def _blocks(self, path: bytes, tree: bytes | None) -> Iterable[Block]:
        if self._ways is None or tree is not None:
            return self._source.read_directory(path, block_entries=_BLOCK_ENTRIES)
        entries: list[Entry] = []
        problems: list[ScanProblem] = []
        for wanted in self._ways.get(path, ()):
            try:
                entry = self._source.look(wanted)
            except OSError as error:
                reason = error.strerror or str(error)
                problems.append(ScanProblem(path=wanted, operation="lstat", errno=error.errno, reason=reason))
                continue
            if entry is not None:
                entries.append(entry)
        return [Block(entries=tuple(entries), problems=tuple(problems))]

    def _shares(
        self, entries: Sequence[Entry], directories: Sequence[bytes]
    ) -> list[tuple[bytes | None, Sequence[Entry]]]:
        """Add entries outside the trees: roots of trees count for their trees, all others for no tree."""
        roots = {path for path in directories if self._trees.is_root(path)}
        if not roots:
            return [(None, entries)]
        shares: list[tuple[bytes | None, Sequence[Entry]]] = [
            (entry.path, (entry,)) for entry in entries if entry.path in roots
        ]
        outside = [entry for entry in entries if entry.path not in roots]
        return [(None, outside), *shares] if outside else shares

    def _require_living_source(self, problems: Sequence[ScanProblem]) -> None:
        if any(problem.errno in _DEAD_MOUNT for problem in problems):
            try:
                self._source.look(b"")
            except OSError as error:
                raise SourceLost(error.strerror or str(error)) from error


# --- The scan of the mount, with snapshots of the source before, during and after
#
# If a brick is down or a directory unreadable, the scan continues and is not whole. A mount other than the recorded one is refused.
# The next scan resumes a killed one, unless it covered only some trees.


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
        walk = self._new_walk(opened)
        self.session.event(EventKind.SCAN_STARTED, Severity.INFO, opened.record.name, _started(opened))
        if len({opened.record.health_fingerprint, self.before.fingerprint} - {"", None}) > 1:
            self._note(walk, ("the volume's bricks or options changed between two sessions of this scan",))
        self._note(walk, (*self.before.problems, *self.before.doubts))
        began_s = self.session.elapsed_s()
        try:
            async with self.session.watching(
                lambda: self._show(walk), lambda: self._poll_bricks(walk), every_s=_LOOK_EVERY_S
            ):
                await walk.pool.run()
            return await self._close(walk, opened, began_s)
        except asyncio.CancelledError:
            await self._interrupt(walk, opened.record)
            raise Interrupted(
                f"the scan was stopped after {several(walk.totals.rows, 'path')}",
                hint=f"run {self.session.command} again: {self._on_repetition}",
            ) from None
        except SourceLost as error:
            await self._interrupt(walk, opened.record)
            raise Refused(
                f"the source was lost in the middle of the scan: {error}",
                cause="its mount died or was unmounted",
                hint=f"mount it again, then run {self.session.command}: {self._on_repetition}",
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

    def _new_walk(self, opened: OpenCatalog) -> Walk:
        return Walk(
            self.session.source,
            opened.writer,
            TreeIndex(opened.record.trees),
            frontier=opened.frontier,
            totals=opened.totals,
            workers=self.session.request.workers,
            ways=ways_to(tree.path for tree in opened.record.trees) if opened.record.scope else None,
        )

    async def _poll_bricks(self, walk: Walk) -> None:
        health = await self.session.source.health()
        self._note(walk, (*health.problems, *health.doubts))

    def _note(self, walk: Walk, problems: Sequence[str]) -> None:
        """Record each problem of the source once in the catalog, so it counts even if this scan is killed."""
        new = self.session.note(problems)
        walk.note([ScanProblem(path=b"", operation="health", errno=None, reason=problem) for problem in new])

    def _show(self, walk: Walk) -> None:
        self.session.show(
            rows=walk.totals.rows,
            directories_waiting=walk.pool.waiting,
            problems=walk.totals.problems,
        )

    async def _interrupt(self, walk: Walk, record: CatalogRecord) -> None:
        """Flush all complete directories, with a final check of the bricks. Another cancellation does not interrupt
        this.
        """
        await asyncio.shield(asyncio.ensure_future(self._leave(walk, record)))

    async def _leave(self, walk: Walk, record: CatalogRecord) -> None:
        if record.scope:
            await asyncio.to_thread(walk.abandon)
            await asyncio.to_thread(self.session.catalogs.discard, record.name)
            self.session.event(
                EventKind.SCAN_INTERRUPTED, Severity.WARNING, record.name, "the scan was stopped; it starts over"
            )
            return
        await self._poll_bricks(walk)
        await asyncio.to_thread(walk.abandon)
        self.session.event(
            EventKind.SCAN_INTERRUPTED, Severity.WARNING, record.name, "the scan was stopped; it can go on"
        )

    async def _close(self, walk: Walk, opened: OpenCatalog, began_s: float) -> CatalogRecord:
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
        return await session.close(record, opened.writer, against=found, trees=self.trees, totals=walk.totals)


def _started(opened: OpenCatalog) -> str:
    if opened.totals.rows:
        return (
            f"the scan goes on: {several(opened.totals.rows, 'path is', 'paths are')} in the catalog, "
            f"{several(len(opened.frontier), 'directory waits', 'directories wait')}"
        )
    return f"the scan begins: {trees_in_words(len(opened.record.trees), opened.record.scope)}"


# --- Choice between bricks and mount


Way = tuple[BrickTeam | None, tuple[str, ...]]
"""The team that has greeted bricks, and must be stopped at the end (None: the mount is read), and the reasons against
the bricks, if they were considered."""


async def choose(
    session: Session, walks: HostBrickWalks | None, *, trees: Sequence[UserTree], before: SourceHealth
) -> Way:
    """Choose, and report the choice. Raises Refused if the bricks were requested explicitly and cannot be read."""
    via = session.request.via
    if via == "mount" or (via == "auto" and walks is None):
        return None, ()
    if walks is None or not isinstance(session.source, GlusterSource):
        return _no_bricks(session, ("the source is no Gluster volume, so it has no bricks",))
    if not walks.hosts:
        why = "site.toml has no [source.hosts] sections: nothing says how the bricks' hosts are reached"
        return _no_bricks(session, (why,))
    if before.state is None:
        return _no_bricks(session, before.problems or ("the volume's state is not known",))
    try:
        state = await session.source.state_for_bricks(before.state)
    except MigratorError as error:
        return _no_bricks(session, (f"the volume's state is not known: {error.message}",))
    wanted = sorted({brick.host for brick in state.bricks} & set(walks.hosts))
    answers = await asyncio.gather(*(_reach(walks, host) for host in wanted))
    unreachable = {host: answer for host, answer in zip(wanted, answers, strict=True) if answer is not None}
    chosen = choose_way(state, reachable=[host for host in wanted if host not in unreachable], unreachable=unreachable)
    if chosen.rules is None:
        return _no_bricks(session, chosen.reasons)
    team = BrickTeam(walks, chosen.bricks, state, copies=chosen.copies, rules=chosen.rules, clock=session.clock)
    try:
        reasons = await team.greet([tree.path for tree in trees], only_trees=bool(session.request.only))
    except BaseException:
        await team.stop()
        raise
    if reasons:
        await team.stop()
        return _no_bricks(session, reasons)
    return team, ()


def _no_bricks(session: Session, reasons: tuple[str, ...]) -> Way:
    if session.request.via == "bricks":
        message = "the bricks are not to be read: " + "; ".join(reasons)
        session.event(EventKind.GUARD_REFUSED, Severity.ERROR, "scan", message)
        raise Refused(
            message,
            cause="what a brick holds is what the mount shows only while the whole volume is up, healed and quiet",
            hint="see to that, or run `migrator scan --via mount`, which is always right and slower",
        )
    message = "the mount is read, and not the bricks: " + "; ".join(reasons)
    session.event(EventKind.BRICKS_UNFIT, Severity.INFO, "scan", message)
    return None, reasons


async def _reach(walks: HostBrickWalks, host: str) -> str | None:
    """Why a host is unreachable; None if it is reachable."""
    try:
        await walks.reach(host)
    except MigratorError as error:
        return error.message
    return None


# --- The stage


async def scan(
    request: ScanRequest,
    *,
    source: SourceFileSystem,
    ledger: "Ledger",
    catalogs: "CatalogDirectories",
    progress: Progress,
    clock: Clock,
    walks: HostBrickWalks | None = None,
) -> CatalogRecord:
    """Read the source, or its trees `request.only`, into a catalog, and return the closing record: `whole`, or the
    reasons why not.

    `walks` are those of its bricks, None if it has none. The caller holds the lock `scan`. Cancellation raises
    Interrupted; a scan of the whole source through the mount can then be resumed. Raises Refused if the source is not
    the recorded mount or is lost meanwhile, or if its bricks were requested and cannot be trusted; UsageError for
    invalid globs.
    """
    site = ledger.site.read()
    if site is None:
        raise UsageError("the ledger knows no site yet", hint="run `migrator init` first")
    session = Session(
        request=request, site=site, source=source, ledger=ledger, catalogs=catalogs, progress=progress, clock=clock
    )
    await session.require_recorded_mount()
    await asyncio.to_thread(_clear_away_of_trees, session)
    closed = await asyncio.to_thread(_finish_closed, session)
    if closed is not None:
        return closed
    # In this order: a glob that matches nothing is reported before glusterd is called.
    trees = await asyncio.to_thread(session.find_trees)
    before = await source.health()
    team, reasons = await choose(session, walks, trees=trees, before=before)
    await asyncio.to_thread(_say_what_starts_over, session, via_bricks=team is not None)
    if team is None:
        return await MountWay(session=session, trees=trees, before=before, way_reasons=reasons).run()
    try:
        return await BrickWay(session=session, team=team, trees=trees, before=before).run()
    finally:
        await team.stop()


def _clear_away_of_trees(session: Session) -> None:
    """Discard killed scans of these trees, which cannot be resumed; record those that were closed. Scans of others may be
    in progress.
    """
    for left in session.ledger.scans.unfinished_of_trees():
        if not set(left.scope).intersection(session.request.only):
            continue
        try:
            closed = session.catalogs.closing_record(left.name)
        except Refused:
            # Damaged since: `verify`, which reads every catalog, reports it. It does not block anything else.
            continue
        if closed is None:
            session.catalogs.discard(left.name)
        else:
            session.ledger.scans.finish(closed)


def _finish_closed(session: Session) -> CatalogRecord | None:
    """Finish a scan that was killed between its closing record and the ledger: only the ledger is missing."""
    unfinished = None if session.request.begins_anew else session.ledger.scans.unfinished()
    closed = None if unfinished is None else session.catalogs.closing_record(unfinished.name)
    if closed is not None:
        session.finish(closed)
    return closed


def _say_what_starts_over(session: Session, *, via_bricks: bool) -> None:
    """Report unfinished scans that start over: only a scan of the mount can be resumed, and only through the mount."""
    unfinished = None if session.request.begins_anew else session.ledger.scans.unfinished()
    if unfinished is None:
        return
    if unfinished.via == brick_way.VIA:
        session.catalogs.discard(unfinished.name)
        said = "a scan of the bricks was stopped before its end: it starts over"
    elif unfinished.via == VIA and via_bricks:
        said = "a scan through the mount was stopped before its end: a new one reads the bricks instead"
    else:
        return
    session.event(EventKind.SCAN_STARTED, Severity.INFO, unfinished.name, said)
