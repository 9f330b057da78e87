"""`reap archive`: the files that a plan's reap list wants archived are packed, read back, and then counted.

The order is what makes it safe to kill at any moment: files under partial names, synced; then the ledger, as written;
then their names; then they are read back from the disks; then the ledger says proven, and only now they count. What a
killed call left is taken up first: partial names are removed, what was written is read back or becomes void.
"""

import asyncio
import errno
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TypeVar

from migrator.adapters.archives.tar import TarArchives
from migrator.adapters.filesystems.archive_folders import MountedArchiveFolders
from migrator.domain.archives import (
    SETTLE_S,
    ArchiveLimits,
    ArchiveRecord,
    LeftOut,
    LeftOutReason,
    TreeArchived,
    archive_directory,
)
from migrator.domain.cutover import ENDED_STATES, CutoverState
from migrator.domain.entry import Entry
from migrator.domain.errors import ExitCode, MigratorError, Refused, UsageError
from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.reap import ReapRow
from migrator.domain.tree import UserTree
from migrator.domain.units import format_count, format_size, several
from migrator.ports.archives import MemberSource, OpenMember
from migrator.ports.clock import Clock
from migrator.ports.filesystem import FileSystem, TargetFileSystem
from migrator.ports.ledger import Ledger
from migrator.ports.progress import Progress
from migrator.ports.storage_targets import StorageTargets
from migrator.stages.mount_looks import mounts_not_recorded
from migrator.stages.reap.archived import ProvenArchives
from migrator.stages.reap.packing import Packing, recover
from migrator.stages.storage_looks import words_for_full

_AT_ONCE = 128
"""Files that are read ahead; each holds no more than the reader keeps of small ones."""
_NS = 1_000_000_000

Rows = Callable[[bytes], Iterator[Sequence[ReapRow]]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRequest:
    """Whose trees, of which plan and batch."""

    plan: str
    batch: int
    trees: tuple[UserTree, ...]
    limits: ArchiveLimits
    readers: int = 8
    settle_s: float = SETTLE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivingWorld:
    """What archiving works with. `rows` gives the reap list's rows of one tree that are to be archived."""

    source: FileSystem
    target: TargetFileSystem
    members: MemberSource
    folders: MountedArchiveFolders
    format: TarArchives
    rows: Rows
    ledger: Ledger
    progress: Progress
    clock: Clock
    storage: StorageTargets | None = None


async def archive_trees(request: ArchiveRequest, world: ArchivingWorld) -> tuple[TreeArchived, ...]:
    """Archive what is to be archived of each tree. The same call goes on where one that was stopped or killed was.

    Not twice at the same time, nor beside a run. Raises Refused by the guards (a mount is not the one that was recorded, an
    archive directory is not root's alone), MigratorError where the target fails or an archive could not be read back.
    """
    done: list[TreeArchived] = []
    for tree in request.trees:
        await asyncio.to_thread(_check_mounts, world)
        try:
            done.append(await _Tree(request, world, tree).archive())
        except OSError as error:
            full = await words_for_full(world.storage) if error.errno == errno.ENOSPC else ""
            raise MigratorError(
                f"archiving {show(tree.path)} stopped: {'; '.join(filter(None, (error.strerror or str(error), full)))}",
                cause="the target is full, read-only or does not answer, or something else lies where the tree has to be",
                hint="mend it; the same command goes on: archives that are finished count",
            ) from error
    await asyncio.to_thread(_check_mounts, world)
    return tuple(done)


def exit_code(trees: Sequence[TreeArchived]) -> ExitCode:
    """Attention where something is neither archived nor moved otherwise; what changed comes with the next delta pass."""
    lasting = (LeftOutReason.FRESH.value, LeftOutReason.UNREADABLE.value, LeftOutReason.NOT_POSSIBLE.value)
    return (
        ExitCode.ATTENTION if any(tree.left_out.get(reason) for tree in trees for reason in lasting) else ExitCode.DONE
    )


class _Tree:
    def __init__(self, request: ArchiveRequest, world: ArchivingWorld, tree: UserTree) -> None:
        self._request = request
        self._world = world
        self._tree = tree
        self._already = 0

    async def archive(self) -> TreeArchived:
        nothing = TreeArchived(tree=self._tree.path, user=self._tree.user, left_out={})
        state = await asyncio.to_thread(self._cutover_state)
        if state is not None:
            skipped = f"its cutover is {state.value}: nothing is copied to it any more"
            self._event(EventKind.FILES_ARCHIVED, Severity.INFO, f"nothing is archived: {skipped}")
            return replace(nothing, skipped=skipped)
        first = await asyncio.to_thread(lambda: next(self._world.rows(self._tree.path), ()))
        records = await asyncio.to_thread(self._world.ledger.archives.of_tree, self._tree.path)
        if not first and not records:
            return nothing
        await whole(self._make_tree)
        folders = self._world.folders.make(self._tree.path)
        folder = await asyncio.to_thread(folders.__enter__)
        try:
            world = self._world
            for reason in await whole(
                lambda: recover(folder, world.format, records, world.ledger.archives, world.clock)
            ):
                self._event(EventKind.ARCHIVE_VOID, Severity.WARNING, reason)
            packing = Packing(
                folder,
                world.format,
                world.ledger.archives,
                world.clock,
                plan=self._request.plan,
                batch=self._request.batch,
                tree=self._tree.path,
                limits=self._request.limits,
                made=self._made,
                voided=self._void,
            )
            try:
                async with aclosing(self._opened()) as blocks:
                    async for opened in blocks:
                        await whole(partial(packing.add, opened))
                await whole(packing.finish)
            finally:
                await whole(packing.abandon)
        finally:
            await asyncio.to_thread(folders.__exit__, None, None, None)
        result = replace(packing.result(nothing), already=self._already)
        self._event(EventKind.FILES_ARCHIVED, Severity.INFO, _summary(result))
        return result

    async def _opened(self) -> AsyncGenerator[Sequence[tuple[ReapRow, OpenMember | LeftOut]], None]:
        """What is to be packed, read ahead by several threads while what was read before is packed."""
        world = self._world
        archived = ProvenArchives(world.ledger.archives, world.folders, world.format)
        rows = self._to_pack(archived)
        ahead: asyncio.Task[list[tuple[ReapRow, OpenMember | LeftOut]]] | None = None
        try:
            while block := await asyncio.to_thread(lambda: list(islice(rows, _AT_ONCE))):
                following = asyncio.create_task(self._open_all(block))
                if ahead is not None:
                    current, ahead = ahead, following
                    yield await current
                else:
                    ahead = following
            if ahead is not None:
                current, ahead = ahead, None
                yield await current
        finally:
            if ahead is not None:
                with suppress(asyncio.CancelledError, OSError):
                    _close(await asyncio.shield(ahead))

    def _to_pack(self, archived: ProvenArchives) -> Iterator[ReapRow]:
        for rows in self._world.rows(self._tree.path):
            known = archived.of_block(self._tree.path, [row.path for row in rows])
            for row in rows:
                member = known.get(row.path)
                if member is not None and _facts(row) == _facts_of(member.entry):
                    self._already += 1
                else:
                    yield row

    async def _open_all(self, rows: Sequence[ReapRow]) -> list[tuple[ReapRow, OpenMember | LeftOut]]:
        settled_ns = int((self._world.clock.now_s() - self._request.settle_s) * _NS)
        share = -(-len(rows) // self._request.readers)

        def open_some(some: Sequence[ReapRow]) -> list[tuple[ReapRow, OpenMember | LeftOut]]:
            return [(row, self._world.members.open(row, settled_before_ns=settled_ns)) for row in some]

        parts = [rows[start : start + share] for start in range(0, len(rows), share)]
        opened = await asyncio.gather(*(asyncio.to_thread(open_some, part) for part in parts))
        return [one for part in opened for one in part]

    def _make_tree(self) -> None:
        directory = archive_directory(self._tree.path)
        if self._world.source.look(directory) is not None:
            raise Refused(
                f"nothing is archived of {show(self._tree.path)}: the user has {show(directory)} on the source",
                cause="a copy of it would lie where the archives are kept on the target",
                hint="let the user rename it, or except the user in site.toml with [reap.users]",
            )
        components = self._tree.path.split(b"/")
        above = [b"/".join(components[:depth]) for depth in range(1, len(components))]
        like = [entry for path in above if isinstance(entry := self._world.source.look(path), Entry)]
        self._world.target.make_parents(self._tree.path, like)

    def _cutover_state(self) -> CutoverState | None:
        """The state of a cutover that has begun and not ended; the tree on the target is not to be touched then."""
        newest = self._world.ledger.cutovers.latest(self._tree.path)
        begun = newest is not None and newest.state not in ENDED_STATES and newest.state is not CutoverState.PLANNED
        return newest.state if newest is not None and begun else None

    def _made(self, record: ArchiveRecord) -> None:
        written = record.written
        said = f"archive {record.number}: {several(written.members, 'file')}, {format_size(written.content_bytes)}"
        self._event(
            EventKind.FILES_ARCHIVED, Severity.INFO, f"{said} in {format_size(written.archive_bytes)}, read back"
        )

    def _void(self, reason: str) -> None:
        self._event(EventKind.ARCHIVE_VOID, Severity.ERROR, reason)

    def _event(self, kind: EventKind, severity: Severity, message: str) -> None:
        event = Event(
            at_s=self._world.clock.now_s(),
            kind=kind,
            severity=severity,
            subject=f"tree {show(self._tree.path)}",
            message=message,
        )
        self._world.ledger.events.add(event)
        self._world.progress.event(event)


async def whole(work: Callable[[], T]) -> T:
    """Work in a thread that is never left alone: a cancellation waits for its end, and then counts."""
    running = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        with suppress(Exception):
            await running
        raise


def _close(opened: Sequence[tuple[ReapRow, OpenMember | LeftOut]]) -> None:
    for _, one in opened:
        if not isinstance(one, LeftOut):
            one.close()


def _facts(row: ReapRow) -> tuple[int, int, int, int]:
    return row.ino, row.size_bytes, row.mtime_ns, row.ctime_ns


def _facts_of(entry: Entry) -> tuple[int, int, int, int]:
    return entry.ino, entry.size_bytes, entry.mtime_ns, entry.ctime_ns


def _check_mounts(world: ArchivingWorld) -> None:
    site = world.ledger.site.read()
    if site is None:
        raise UsageError("this site has no ledger entry yet", hint="run `migrator init`")
    problems = mounts_not_recorded(site, world.source, world.target)
    if problems:
        raise Refused(
            "nothing is archived: " + "; ".join(problems),
            cause="a mount is not as it has to be",
            hint="mend it, check with `migrator doctor`, then run the same command again",
        )


def _summary(result: TreeArchived) -> str:
    said = f"{several(result.members, 'file')} ({format_size(result.content_bytes)}) archived in "
    said += f"{several(result.archives, 'archive')} of {format_size(result.archive_bytes)}, read back"
    if result.already:
        said += f"; {format_count(result.already)} were archived before"
    for reason, count in result.left_out.items():
        said += f"; {format_count(count)} left out: {reason}"
    return said
