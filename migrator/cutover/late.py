"""Late writes: the kept source of a moved user is closed, and what was written there since the freeze began is carried over."""

import asyncio
import errno
import os
import stat
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from operator import attrgetter
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from migrator.catalog.database import connect
from migrator.catalog.files import ClosedCatalog
from migrator.catalog.model import ListedPath
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import create_entries
from migrator.core.entry import Entry, EntryType
from migrator.core.errors import MigratorError
from migrator.core.paths import parent
from migrator.core.states import ChunkKind
from migrator.core.tasks import to_the_end
from migrator.cutover.rollback import note_paths
from migrator.cutover.source_changes import SourceChange, SourceChangeKind
from migrator.fs.beneath import Root
from migrator.fs.model import TRASH_NAME, TargetCapabilities
from migrator.fs.moving import MovingTarget
from migrator.fs.ports import FileSystem
from migrator.fs.rules import CLOSED_MODE
from migrator.fs.rules_equality import FileState, is_copy
from migrator.fs.writing import shut
from migrator.plan.chunk_lists import ListedPaths
from migrator.site.model import DIRECT
from migrator.transfer.model import AttemptVerdict, StopReason
from migrator.transfer.ports import ChunkWork
from migrator.transfer.routes import HostLane
from migrator.transfer.rules import explain

# Closing the directories of a kept source.
#
# A closed top does not stop processes that are inside already: a process of another client whose working directory lies below it
# makes files there unseen. So each directory is given to root with mode 0700: such a process gets an error then. ACLs
# stay; setting the mode again restores their mask.


_BLOCK_PATHS = 1000
_AT_ONCE = 16


class KnownDirectory(Struct, frozen=True):
    """A directory below the top of a tree, with owner and mode as in a catalog."""

    path: bytes
    uid: int
    mode: int


def directories_of(catalog: ClosedCatalog, tree: bytes, scratch: Scratch) -> Iterator[Sequence[KnownDirectory]]:
    """The directories below the top of a tree, in blocks. Blocking."""
    with connect(scratch) as connection:
        create_entries(connection, catalog.part_files)
        found = connection.execute(
            "SELECT path, uid, mode FROM entries WHERE tree = $tree AND path <> tree AND type = 'directory'",
            {"tree": tree},
        )
        while rows := found.fetchmany(_BLOCK_PATHS):
            yield [KnownDirectory(*row) for row in rows]


def close_block(source_root: bytes, block: Sequence[KnownDirectory], *, noted: Path) -> None:
    """Close directories of the source. The paths of those whose owner or mode was changed are added to `noted` before,
    because that does not show on a closed directory. May be called again. Blocking; raises OSError.
    """
    if changed := _in_block(source_root, block, _is_changed):
        note_paths(noted, changed)
    _in_block(source_root, block, lambda fd, _: shut(fd))


def open_block(source_root: bytes, block: Sequence[KnownDirectory]) -> None:
    """Give closed directories of the source their owner and mode again; any other stays as it is. May be called again.
    Blocking; raises OSError.
    """

    def open_again(fd: int, known: KnownDirectory) -> None:
        if _owner_and_mode(fd) == (os.geteuid(), CLOSED_MODE):
            os.fchown(fd, known.uid, -1)
            os.fchmod(fd, known.mode)

    _in_block(source_root, block, open_again)


def _is_changed(fd: int, known: KnownDirectory) -> bool:
    # `shut` sets the owner first: a killed call leaves, and a mount may show, the new owner with the former mode.
    closed = (os.geteuid(), CLOSED_MODE), (os.geteuid(), known.mode)
    return _owner_and_mode(fd) not in ((known.uid, known.mode), *closed)


def _owner_and_mode(fd: int) -> tuple[int, int]:
    facts = os.fstat(fd)
    return facts.st_uid, stat.S_IMODE(facts.st_mode)


def _in_block(
    source_root: bytes, block: Sequence[KnownDirectory], act: Callable[[int, KnownDirectory], bool | None]
) -> Sequence[bytes]:
    """The directories for which `act` is true, those that are gone aside."""

    def one(root: Root, known: KnownDirectory) -> bool | None:
        try:
            with root.directory(known.path) as fd:
                return act(fd, known)
        except OSError as error:
            # What stands in its place is a change that the comparison of the scans finds.
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                raise
            return None

    with Root(source_root) as root, ThreadPoolExecutor(_AT_ONCE) as pool:
        return [known.path for known, found in zip(block, pool.map(partial(one, root), block), strict=True) if found]


# Carrying over.
#
# A stream first copies each path to the trash of the target, where only root can enter. It is then renamed to its place, which
# replaces nothing. The file on the target that it replaces goes to the trash before, and has to be as it was verified. The
# user works there meanwhile.


_STOPS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EROFS})
"""These concern a whole side, and the next call tries again. Any other error leaves its path."""
_CACHE_S, _CACHE_PAUSE_S = 15.0, 0.5
"""Longer than clients know an older state (1 s by default on GlusterFS), and the pause between two looks."""


class _Carrying(Struct, frozen=True, kw_only=True):
    """A late write to carry over: its entries on the source, its own first, and the file of the target that it replaces.
    A copy that is in its place already has no entries left.
    """

    path: bytes
    entries: Sequence[Entry] = ()
    replaced: Entry | None = None

    @property
    def paths(self) -> frozenset[bytes]:
        return frozenset({self.path, *(entry.path for entry in self.entries)})


class LateWrites(Struct, frozen=True, kw_only=True):
    """Carries late writes of one tree over, after a scan. `place` is their place in the trash, which replaces that of an earlier
    look; `manifest` is that of the cutover. `lane` has the streams that read the mount on this machine.
    Until `until_s` (of the monotonic clock) this machine may still know what was there before.
    """

    source: FileSystem
    target: FileSystem
    capabilities: TargetCapabilities
    lane: HostLane
    token: str
    tree: bytes
    place: str
    manifest: str
    scratch: Scratch
    until_s: float = field(default_factory=lambda: time.monotonic() + _CACHE_S)

    async def carry(self, changes: Sequence[SourceChange]) -> tuple[SourceChange, ...]:
        """Carry over new paths, and changed files that are on the target as they were verified. Returns the other changes:
        they would replace or remove what the user has. May be called again. Raises OSError, MigratorError.
        """
        carrying = await asyncio.to_thread(self._judge, changes)
        failed = await self._stage([entry for one in carrying for entry in one.entries])
        # A cancellation in the middle would leave a user without the file that is replaced.
        carried = await to_the_end(asyncio.to_thread(self._put_in_place, carrying, failed))
        return tuple(change for change in changes if change.path not in carried)

    def _judge(self, changes: Sequence[SourceChange]) -> Sequence[_Carrying]:
        new = sorted((one for one in changes if one.kind is SourceChangeKind.MADE), key=attrgetter("path"))
        made = [one.path for one in new]
        verified = self._verified([one.path for one in changes if one.kind is SourceChangeKind.CHANGED])
        found: list[_Carrying] = []
        with_directory: set[bytes] = set()
        with closing(MovingTarget(self.target.root)) as moves:
            moves.open_place(self.place, again=True)
            for change in changes:
                if change.path in with_directory:
                    continue
                below = new[bisect_left(made, change.path + b"/") : bisect_left(made, change.path + b"0")]
                try:
                    carrying = self._judged(moves, change, below, verified.get(change.path))
                    if carrying is not None and carrying.entries:
                        moves.make_directory(self._in_trash(b"new", parent(change.path)))
                except OSError as error:
                    if error.errno in _STOPS:
                        raise
                    continue
                if carrying is not None:
                    found.append(carrying)
                    with_directory |= carrying.paths
        return found

    def _judged(
        self, moves: MovingTarget, change: SourceChange, below: Sequence[SourceChange], verified: FileState | None
    ) -> _Carrying | None:
        """How to carry a change over; None if it is left."""
        path = change.path
        changed = change.kind is SourceChangeKind.CHANGED
        if change.stands is None or (changed and change.stands is EntryType.DIRECTORY):
            return None
        source, now, above = self._as_scanned(change), self.target.look(path), self.target.look(parent(path))
        if above is None or above.type is not EntryType.DIRECTORY:
            return None
        # A killed call may have carried it, or have moved what it replaces to the trash.
        begun = not changed or moves.look(self._in_trash(b"old", path)) is not None
        if now is None:
            if not begun:
                return None
        elif begun and self._has_content_of(source, now):
            return _Carrying(path=path)
        elif now.type is EntryType.DIRECTORY or FileState.of(now) != verified or now.nlink > 1:
            return None
        if source.type is not EntryType.DIRECTORY and source.nlink > 1:
            return None
        return _Carrying(path=path, entries=(source, *map(self._as_scanned, below)), replaced=now)

    async def _stage(self, entries: Sequence[Entry]) -> frozenset[bytes]:
        """Copy entries of the source to the trash, durably. Returns the paths that did not arrive."""
        if not entries:
            return frozenset()
        connected = await self.lane.connect(None)
        engine, executor = connected.engines[DIRECT], connected.executor.into(self._in_trash(b"new"))
        view = executor.view(self.tree)
        directories = [entry for entry in entries if entry.type is EntryType.DIRECTORY]
        others = [entry for entry in entries if entry.type is not EntryType.DIRECTORY]
        failed: set[bytes] = set()
        for kind, some in (
            (ChunkKind.DIRECTORIES, directories),
            (ChunkKind.FILES, others),
            (ChunkKind.DIRECTORY_TIMES, directories),
        ):
            if not some:
                continue
            work = ChunkWork(
                kind=kind,
                tree=self.tree,
                paths=ListedPaths.of([ListedPath(path=one.path, size_bytes=one.size_bytes) for one in some]),
                capabilities=self.capabilities,
                recopy=True,
            )
            reader = engine.reader(work, view)
            completed = await executor.execute(
                replace(engine.command(work, view), token=self.token),
                program=engine.program,
                tree=self.tree,
                on_start=lambda _: None,
                on_stdout=reader.stdout,
                on_stderr=reader.stderr,
            )
            outcome = reader.outcome(completed)
            if outcome.verdict is not AttemptVerdict.DONE:
                stopped = explain(outcome.stop or StopReason.IO_ERROR, outcome.message)
                raise MigratorError(stopped.message, cause=stopped.cause, hint=stopped.hint)
            failed.update(suspect.path for suspect in outcome.suspects)
        await executor.sync()
        return frozenset(failed)

    def _put_in_place(self, carrying: Sequence[_Carrying], failed: frozenset[bytes]) -> frozenset[bytes]:
        """The paths that are on the target now."""
        carried: set[bytes] = set()
        with closing(MovingTarget(self.target.root)) as moves:
            for one in carrying:
                try:
                    if not all(entry.path not in failed and self._is_staged(entry) for entry in one.entries):
                        continue
                    if one.entries:
                        self._move(moves, one)
                except OSError as error:
                    if error.errno in _STOPS:
                        raise
                    continue
                carried |= one.paths
        self.target.sync()
        return frozenset(carried)

    def _is_staged(self, entry: Entry) -> bool:
        staged = self.target.look(self._in_trash(b"new", entry.path))
        return staged is not None and is_copy(entry, staged, self.capabilities)

    def _move(self, moves: MovingTarget, one: _Carrying) -> None:
        path, staged, kept = one.path, self._in_trash(b"new", one.path), self._in_trash(b"old", one.path)
        if one.replaced is None:
            moves.move(staged, path, shared=True)
            return
        moves.move(path, kept)
        try:
            self._require_untouched(kept, one.replaced)
            moves.move(staged, path, shared=True)
        except OSError:
            with suppress(FileExistsError):
                moves.move(kept, path, shared=True)
            raise

    def _require_untouched(self, kept: bytes, before: Entry) -> None:
        """Raise OSError (ESTALE) if the user changed a file until it was moved; the rename itself changes its ctime alone."""
        now = self.target.look(kept)
        if now is None or replace(FileState.of(now), ctime_ns=before.ctime_ns) != FileState.of(before):
            raise OSError(errno.ESTALE, "it was changed just now", kept)

    def _has_content_of(self, source: Entry, now: Entry) -> bool:
        if source.type is not EntryType.FILE:
            return is_copy(source, now, self.capabilities)
        if now.type is not source.type:
            return False
        sides = ((self.source, source), (self.target, now))
        if source.size_bytes != now.size_bytes:
            return False
        return len({side.digest(entry.path, "xxh3_128").value for side, entry in sides}) == 1

    def _as_scanned(self, change: SourceChange) -> Entry:
        """An entry of the source as the scan found it. A client that knows an older state shows that, with the old content,
        until its cache ends. Raises OSError (ESTALE) if it does not end, or the entry was changed since.
        """
        while True:
            entry = self.source.look(change.path)
            if entry is not None and entry.type is change.stands is EntryType.DIRECTORY:
                return entry
            if entry is not None and (entry.type, entry.size_bytes, entry.mtime_ns) == (
                change.stands,
                change.size_bytes,
                change.mtime_ns,
            ):
                return entry
            if time.monotonic() > self.until_s:
                raise OSError(errno.ESTALE, "it is not what the scan found", change.path)
            time.sleep(_CACHE_PAUSE_S)

    def _in_trash(self, *names: bytes) -> bytes:
        return b"/".join((TRASH_NAME, os.fsencode(self.place), *names))

    def _verified(self, paths: Sequence[bytes]) -> dict[bytes, FileState]:
        """The states that files had on the target, by the manifest."""
        with connect(self.scratch) as connection:
            rows = connection.execute(
                "SELECT path, target_ino, size, target_mtime_ns, target_ctime_ns FROM read_parquet($manifest) "
                "WHERE archive IS NULL AND target_ino IS NOT NULL AND path IN (SELECT unnest($paths::BLOB[]))",
                {"manifest": self.manifest, "paths": list(paths)},
            ).fetchall()
        return {
            path: FileState(ino=ino, size_bytes=size_bytes, mtime_ns=mtime_ns, ctime_ns=ctime_ns)
            for path, ino, size_bytes, mtime_ns, ctime_ns in rows
        }
