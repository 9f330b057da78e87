"""The removal: every path of a tree is judged again by descriptor, and then removed."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from migrator.core.entry import Entry, EntryType
from migrator.core.paths import join, parent
from migrator.core.tasks import task_group
from migrator.purge.call import PurgeCall
from migrator.purge.judge import PathJudge, TreeFindings, failure_reason
from migrator.purge.model import TreeLocation
from migrator.purge.proofs import IndexedProofs
from migrator.purge.rate import RemovalRate
from migrator.purge.survey import progress_shown

_PART_NAMES = 64
"""The number of names that a thread takes at a time, and so the number in flight when the purge is stopped."""
_WATCH_EVERY_S = 30.0
_TRIES = 3
"""The limit on judging a path again that changed before its removal, and on reading a directory again that is not
empty.
"""
DEEP_BYTES = 2048
"""Directories with longer paths are moved up first, because a place's path is longer than the tree's. GlusterFS 10.3
accepts paths of about 4,080 bytes; for longer ones it reports success and removes nothing.
"""


@dataclass(slots=True, eq=False)
class _Directory:
    """A directory to remove: the number of its unfinished subdirectories, and whether something in it stays."""

    path: bytes
    above: "_Directory | None"
    waiting: int = 0
    keeps: bool = False
    rounds: int = 0


@dataclass(slots=True, kw_only=True)
class Removal:
    """Removes a tree from its place, or where it stands. Paths that are not as verified stay, with the directories above them.

    `watch` is called at intervals, and raises if nothing may be removed any more. `_waiting` has directories, the
    deepest last; `_busy` are in progress.
    """

    call: PurgeCall
    placed: TreeLocation
    proofs: IndexedProofs
    judge: PathJudge
    pace: RemovalRate
    watch: Callable[[], Awaitable[None]]
    found: TreeFindings = field(init=False, default_factory=TreeFindings)
    _watched_s: float = field(init=False)
    _watching: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _threads: asyncio.Semaphore = field(init=False)
    _waiting: list[_Directory] = field(init=False, default_factory=list)
    _busy: int = 0
    _raised: dict[bytes, bytes] = field(init=False, default_factory=dict)
    _changed: asyncio.Condition = field(init=False, default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self._watched_s = self.call.ports.clock.monotonic_s()
        self._threads = asyncio.Semaphore(self.call.request.workers)

    async def run(self, *, user: str, total: int) -> TreeFindings:
        """Remove every path that may be removed. May be called once; a new one resumes after a stop or a crash."""
        if self.placed.moved:
            self._raised.update(await asyncio.to_thread(self.call.ports.places.raised, parent(self.placed.at)))
        self._waiting.append(_Directory(self.placed.at, None))
        async with (
            progress_shown(self.call, self.found, lambda: self.found.removed, user=user, step="removing", total=total),
            task_group() as group,
        ):
            for _ in range(self.call.request.workers):
                group.create_task(self._take_directories())
        return self.found

    async def _take_directories(self) -> None:
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._waiting or not self._busy)
                if not self._waiting:
                    return
                directory = self._waiting.pop()
                self._busy += 1
            try:
                if not await self._empty(directory):
                    await self._leave(directory)
            finally:
                async with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()

    async def _put(self, *directories: _Directory) -> None:
        async with self._changed:
            self._waiting += directories
            self._changed.notify_all()

    async def _empty(self, directory: _Directory) -> bool:
        """Close a directory and remove the files in it; returns whether subdirectories have to be removed first."""
        if not await asyncio.to_thread(self._close, directory):
            return False
        listing = self.call.ports.source.read_directory(directory.path)
        # Directories that were moved up are removed before the top of the tree.
        inner = [_Directory(path, directory) for path in self._raised] if directory.above is None else []
        while (block := await asyncio.to_thread(next, listing, None)) is not None:
            for problem in block.problems:
                self._keep(directory, problem.path, f"cannot be read ({problem.reason})")
            inner += [_Directory(entry.path, directory) for entry in block.entries if entry.type is EntryType.DIRECTORY]
            files = [entry for entry in block.entries if entry.type is not EntryType.DIRECTORY]
            parts = [files[start : start + _PART_NAMES] for start in range(0, len(files), _PART_NAMES)]
            async with asyncio.TaskGroup() as group:
                for part in parts:
                    group.create_task(self._remove_part(directory, part))
        if not inner:
            return False
        directory.waiting = len(inner)
        await self._put(*inner)
        return True

    async def _leave(self, directory: _Directory) -> None:
        """Finish a directory: remove it unless something in it stays, and then each parent without remaining
        subdirectories.
        """
        left: _Directory | None = directory
        while left is not None:
            if not left.keeps:
                await self.pace.take(1)
                if not await asyncio.to_thread(self._remove_directory, left) and left.rounds < _TRIES:
                    # Some file systems omit names from a listing while others are removed.
                    left.rounds += 1
                    await self._put(left)
                    return
            above = left.above
            if above is None:
                return
            above.keeps = above.keeps or left.keeps
            above.waiting -= 1
            left = above if above.waiting == 0 else None

    async def _remove_part(self, directory: _Directory, entries: Sequence[Entry]) -> None:
        async with self._threads:
            await self.pace.take(len(entries))
            await self._check_preconditions()
            await asyncio.to_thread(self._remove_entries, directory, entries)

    async def _check_preconditions(self) -> None:
        async with self._watching:
            now_s = self.call.ports.clock.monotonic_s()
            if now_s - self._watched_s >= _WATCH_EVERY_S:
                self._watched_s = now_s
                await self.watch()

    def _close(self, directory: _Directory) -> bool:
        """Judge a directory and close it; False if it stays with everything in it."""
        try:
            entry = self.call.ports.source.look(directory.path)
            if entry is None:
                return False
            if entry.type is not EntryType.DIRECTORY:
                self._keep(directory, directory.path, f"is a {entry.type.value} now")
                return False
            if not self._may_go(directory, entry):
                return False
            self.call.ports.places.close_directory(directory.path, entry)
            # In place there is no directory to move it to, and no path is longer than its user had it.
            if self.placed.moved and len(directory.path) > DEEP_BYTES:
                self._raise_up(directory, entry)
        except OSError as error:
            self._keep(directory, directory.path, f"cannot be closed ({failure_reason(error)})")
            return False
        return True

    def _raise_up(self, directory: _Directory, entry: Entry) -> None:
        place, known_as = parent(self.placed.at), self._known_as(directory.path)
        # File systems without room for a long attribute have no limit on paths either.
        with contextlib.suppress(OSError):
            directory.path = self.call.ports.places.raise_up(directory.path, place, ino=entry.ino, known_as=known_as)
            self._raised[directory.path] = known_as

    def _known_as(self, path: bytes) -> bytes:
        """The path by which the user knew it, also below directories that were moved up."""
        place = parent(self.placed.at)
        name, _, rest = path[len(place) + 1 :].partition(b"/")
        above = self._raised.get(join(place, name))
        if above is None:
            return self.placed.known_as(path)
        return join(above, rest) if rest else above

    def _remove_entries(self, directory: _Directory, entries: Sequence[Entry]) -> None:
        for entry in entries:
            try:
                self._remove_entry(directory, entry)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._keep(directory, entry.path, f"cannot be removed ({failure_reason(error)})")

    def _remove_entry(self, directory: _Directory, entry: Entry) -> None:
        seen: Entry | None = entry
        for _ in range(_TRIES):
            if seen is None or not self._may_go(directory, seen):
                return
            if self.call.ports.places.remove(seen.path, seen):
                with self.found.lock:
                    self.found.removed += 1
                return
            seen = self.call.ports.source.look(entry.path)
        if seen is not None:
            self._keep(directory, entry.path, "changes just now")

    def _may_go(self, directory: _Directory, entry: Entry) -> bool:
        path = self._known_as(entry.path)
        goes = self.judge.may_go(entry, path, self.proofs.of_block([path]).get(path), self.found)
        directory.keeps = directory.keeps or not goes
        return goes

    def _remove_directory(self, directory: _Directory) -> bool:
        """Remove the directory; return whether it is gone."""
        try:
            self.call.ports.places.remove_directory(directory.path)
        except OSError as error:
            if directory.rounds >= _TRIES:
                self._keep(directory, directory.path, f"cannot be removed ({failure_reason(error)})")
            return False
        self._raised.pop(directory.path, None)
        with self.found.lock:
            self.found.removed += 1
        return True

    def _keep(self, directory: _Directory, path: bytes, words: str) -> None:
        directory.keeps = True
        self.found.keep(self._known_as(path), words)
