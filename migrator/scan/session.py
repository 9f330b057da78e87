"""One invocation of a scan: guards, ledger and progress, for bricks and mount."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import CatalogRecord, begun_catalog
from migrator.catalog.ports import CatalogTotals
from migrator.core.clock import Clock
from migrator.core.entry import EntryType, UserTree
from migrator.core.errors import MigratorError, Refused
from migrator.core.events import Event, EventKind, Severity
from migrator.core.paths import join, show
from migrator.core.progress import BrickProgress, Progress, ScanProgress
from migrator.core.tasks import again_and_again, task_group
from migrator.core.units import format_count, several
from migrator.fs.model import ScanProblem
from migrator.fs.ports import FileSystem, SourceFileSystem
from migrator.ledger.model import SiteRecord
from migrator.scan import rules
from migrator.site.rules_guards import mount_problems

if TYPE_CHECKING:
    from migrator.catalog.brick_parts import BrickPartsWriter
    from migrator.catalog.writer import CatalogDirectories, PartsWriter
    from migrator.scan.records import ScanLedger


# Finding the directories that globs name, level by level, and never through a symlink.


def find_directories(source: FileSystem, pattern: rules.TreePattern) -> Sequence[bytes]:
    """The directories that a glob matches, in order. Blocking. Raises Refused if a directory above is unreadable."""
    level: list[bytes] = [b""]
    for component in pattern.components:
        level = sorted({path for directory in level for path in _matching(source, directory, component)})
    return level


def is_directory(source: FileSystem, path: bytes) -> bool:
    """True if the path is a directory, without symlinks on the way. Blocking. Raises Refused if that is unknown."""
    try:
        entry = source.look(path)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            return False
        raise _unreadable(path, error.strerror) from error
    return entry is not None and entry.type is EntryType.DIRECTORY


def _matching(source: FileSystem, directory: bytes, component: bytes) -> Iterator[bytes]:
    if rules.is_literal(component):
        path = join(directory, component)
        if is_directory(source, path):
            yield path
        return
    for block in source.read_directory(directory):
        for problem in block.problems:
            if problem.path == directory and problem.errno != errno.EXDEV:
                raise _unreadable(directory, problem.reason)
        for entry in block.entries:
            if entry.type is EntryType.DIRECTORY and rules.component_matches(component, entry.path.rpartition(b"/")[2]):
                yield entry.path


def _unreadable(path: bytes, reason: str | None) -> Refused:
    return Refused(
        f"the user trees cannot be found: {show(path) or 'the root of the source'} cannot be read: {reason}",
        cause="no permission, or the source's file system is ill",
        hint="run as root, look at the mount, then run `migrator scan` again",
    )


# One invocation of a scan.


_SHOW_EVERY_S = 0.5
_PROBLEMS_NAMED = 3


class ScanRequest(Struct, frozen=True, kw_only=True):
    """What to scan. `users` maps trees to users whose name is not the tree's last component. `restart` begins a new
    catalog instead of resuming an unfinished one. `workers` read the mount. `only` has the paths of the user trees
    to scan; empty: everything. A scan of some trees is always a new one.
    """

    trees: Sequence[str]
    exclude: Sequence[str] = ()
    users: dict[bytes, str] = {}
    via: str = "mount"
    workers: int = 16
    restart: bool = False
    only: tuple[bytes, ...] = ()

    @property
    def selected_by(self) -> tuple[str, ...]:
        """The settings by which user trees are chosen and named, as lines."""
        users = (f"user {user} of {show(tree)}" for tree, user in sorted(self.users.items()))
        return (*self.trees, *(f"without {glob}" for glob in self.exclude), *users)

    @property
    def begins_anew(self) -> bool:
        """True if an unfinished scan is not resumed."""
        return self.restart or bool(self.only)


@dataclass(slots=True, kw_only=True)
class Session:
    """One invocation of a scan, until it is closed or has failed."""

    request: ScanRequest
    site: SiteRecord
    source: SourceFileSystem
    ledger: "ScanLedger"
    catalogs: "CatalogDirectories"
    progress: Progress
    clock: Clock
    noted: dict[str, None] = field(default_factory=dict)
    """The problems of the source during the scan."""
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.clock.monotonic_s()

    @property
    def command(self) -> str:
        """The command that repeats this scan: scans of some trees are part of another verb."""
        return "the same command" if self.request.only else "`migrator scan`"

    def elapsed_s(self) -> float:
        """Seconds since the session began."""
        return self.clock.monotonic_s() - self.began_s

    def event(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """Record an event and report it."""
        event = Event(at_s=self.clock.now_s(), kind=kind, severity=severity, subject=subject, message=message)
        self.ledger.events.add(event)
        self.progress.event(event)

    def note(self, problems: Sequence[str]) -> list[str]:
        """Report each problem of the source once; returns the new ones."""
        new = [problem for problem in dict.fromkeys(problems) if problem not in self.noted]
        self.noted.update(dict.fromkeys(new))
        for problem in new:
            message = f"the scan will not be whole: {problem}"
            self.event(EventKind.SOURCE_UNHEALTHY, Severity.WARNING, "scan", message)
        return new

    @asynccontextmanager
    async def watching(
        self, show: Callable[[], None], look: Callable[[], Awaitable[None]], *, every_s: float
    ) -> AsyncIterator[None]:
        """Report progress and poll the source during the block. Raises the errors of both."""

        async def keep_looking() -> None:
            while True:
                await self.clock.sleep(every_s)
                await look()

        async with task_group() as group:
            around = (
                group.create_task(again_and_again(show, self.clock, _SHOW_EVERY_S)),
                group.create_task(keep_looking()),
            )
            yield
            for task in around:
                task.cancel()
        show()

    def not_written(self, error: OSError, next_time: str) -> MigratorError:
        """The error for a catalog that cannot be written; `next_time` is the effect of a repetition."""
        return MigratorError(
            f"the catalog cannot be written: {error.strerror}",
            cause="the disk of the state directory is full or ill",
            hint=f"make room there, then run {self.command}: {next_time}",
        )

    async def mount_problems(self) -> tuple[str, ...]:
        """Why the source is not the recorded mount; empty if it is."""
        try:
            current = await asyncio.to_thread(self.source.identity)
        except OSError:
            current = None
        return mount_problems(self.site.source, current, where="the source")

    async def require_recorded_mount(self) -> None:
        """Raise Refused unless the recorded mount is there: an unmounted directory is not an empty source."""
        problems = await self.mount_problems()
        if problems:
            # The sentinel is unreadable while its own brick is down: report that too.
            problems = (*problems, *(await self.source.health()).problems)
            message = "the source is not what `migrator init` recorded: " + "; ".join(problems)
            self.event(EventKind.GUARD_REFUSED, Severity.ERROR, "scan", message)
            raise Refused(
                message,
                cause="it is not mounted, or something else is mounted in its place",
                hint="mount the source, check with `migrator doctor`, then run `migrator scan` again",
            )

    def find_trees(self) -> tuple[UserTree, ...]:
        """The user trees to scan, found through the mount; with `only`, the existing ones of these. Blocking. Raises
        Refused, UsageError.
        """
        only = self.request.only
        patterns = rules.parse_patterns(self.request.trees, "[users] trees")
        exclude = rules.parse_patterns(self.request.exclude, "[users] exclude")
        if not only:
            found = [(pattern, find_directories(self.source, pattern)) for pattern in patterns]
            if not any(paths for _, paths in found) and self._all_are_purged():
                return ()
            return rules.choose_trees(found, exclude, self.request.users)
        there = [path for path in only if is_directory(self.source, path)]
        found = [(pattern, [path for path in there if pattern.matches(path)]) for pattern in patterns]
        return rules.choose_trees(found, exclude, self.request.users) if any(paths for _, paths in found) else ()

    def _all_are_purged(self) -> bool:
        """True if all user trees of the newest scan with any were purged: then finding none is expected."""
        with_trees = [one for one in self.ledger.scans.all() if one.whole and not one.scope and one.trees]
        latest = [self.ledger.cutovers.latest(tree.path) for tree in with_trees[-1].trees] if with_trees else []
        return bool(latest) and all(one is not None and one.is_purged() for one in latest)

    def judge(
        self, problems: Iterable[ScanProblem], against: Iterable[str], trees: Sequence[UserTree]
    ) -> tuple[tuple[str, ...], tuple[bytes, ...]]:
        """Why a scan that found these user trees is not whole, and the trees that are set apart: those with all of the
        unreadable paths, if nothing else is `against` the scan. A requested tree that was not found is not proven to
        be gone.
        """
        index, reasons = rules.TreeIndex(trees), list(dict.fromkeys(against))
        anywhere, shown, count = bool(reasons), list[str](), 0
        lacking = set(self.request.only).difference(tree.path for tree in trees)
        apart = set(lacking)
        for problem in problems:
            tree = index.of(problem.path)
            if tree is None:
                anywhere = True
            else:
                apart.add(tree)
            if not problem.path:
                reasons += [] if problem.reason in reasons else [problem.reason]
                continue
            count += 1
            if count <= _PROBLEMS_NAMED:
                shown.append(f"{show(problem.path)} ({problem.operation}: {problem.reason})")
        if count:
            more = f", and {format_count(count - len(shown))} more" if count > len(shown) else ""
            reasons.append(f"{several(count, 'path')} could not be read: {', '.join(shown)}{more}")
        reasons += [
            f"user tree {show(path)} is not on the source, or is none by [users] in site.toml any more"
            for path in sorted(lacking)
        ]
        return tuple(reasons), () if anywhere else tuple(sorted(apart))

    def new_record(
        self, *, name: str, at_s: float, via: str, trees: tuple[UserTree, ...], fingerprint: str
    ) -> CatalogRecord:
        """The opening record of a catalog, after recording the scan in the ledger."""
        scan_id = self.ledger.scans.start(catalog=name, via=via, at_s=at_s, scope=self.request.only)
        return replace(
            begun_catalog(name, via=via, at_s=at_s, scope=self.request.only),
            scan_id=scan_id,
            site_id=self.site.site_id,
            trees=trees,
            health_fingerprint=fingerprint,
            selected_by=self.request.selected_by,
        )

    def show(
        self,
        *,
        rows: int,
        directories_waiting: int,
        problems: int,
        bricks: tuple[BrickProgress, ...] = (),
    ) -> None:
        """Report progress."""
        self.progress.show(
            ScanProgress(
                elapsed_s=self.elapsed_s(),
                rows=rows,
                directories_waiting=directories_waiting,
                problems=problems,
                bricks=bricks,
            )
        )

    async def close(
        self,
        opening: CatalogRecord,
        writer: "PartsWriter | BrickPartsWriter",
        *,
        against: Sequence[str],
        trees: Sequence[UserTree],
        totals: CatalogTotals,
    ) -> CatalogRecord:
        """Judge the scan, close its catalog with `totals`, and record the result."""
        problems = await asyncio.to_thread(writer.problems)
        reasons, set_apart = await asyncio.to_thread(self.judge, problems, against, trees)
        closing = replace(
            opening,
            finished_at_s=self.clock.now_s(),
            whole=not reasons,
            reasons=reasons,
            set_apart=set_apart,
            rows=totals.rows,
            files=totals.rows - totals.directories,
            directories=totals.directories,
            size_bytes=totals.size_bytes,
            problems=totals.problems,
        )
        closed = await asyncio.to_thread(writer.close, closing)
        await asyncio.to_thread(self.finish, closed)
        return closed

    def finish(self, closed: CatalogRecord) -> None:
        """Record the result of a scan."""
        for finding in closed.findings:
            self.event(EventKind.SCAN_FINISHED, Severity.WARNING, closed.name, finding)
        self.ledger.scans.finish(closed)
        severity = Severity.INFO if closed.whole else Severity.WARNING
        self.event(EventKind.SCAN_FINISHED, severity, closed.name, _finished(closed))


def describe_trees(count: int, scope: Sequence[bytes]) -> str:
    """The trees of a scan, in words."""
    return several(count, "user tree") + (" and nothing else" if scope else "")


def catalog_name(at_s: float) -> str:
    """Date and time in UTC, to the millisecond, so names sort by time."""
    moment = datetime.fromtimestamp(at_s, tz=UTC)
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}Z"


def _finished(record: CatalogRecord) -> str:
    paths = f"{several(record.rows, 'path is', 'paths are')} in the catalog"
    if record.whole:
        return f"{paths}; it is whole"
    apart = (
        f", so {several(len(record.set_apart), 'user tree is', 'user trees are')} set apart" if record.set_apart else ""
    )
    return f"{paths}; it is not whole: {'; '.join(record.reasons)}{apart}"
