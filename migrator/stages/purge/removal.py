"""Taking a tree apart in its place of the purge: every path is judged again, by descriptor, and then removed."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from migrator.decide.purge_proof import Stand
from migrator.domain.entry import Entry, EntryType
from migrator.domain.paths import join, parent, show
from migrator.domain.progress import PurgeProgress
from migrator.domain.purge import Judgement
from migrator.ports.filesystem import FileSystem
from migrator.ports.purging import ClosedPlaces, TreeProofs
from migrator.stages.purge.context import Call, Placed, in_thread
from migrator.stages.purge.judging import Judge
from migrator.stages.purge.pace import Pace
from migrator.stages.purge.reaped import Skipped
from migrator.stages.purge.survey import SHOW_EVERY_S, Found

_PART_NAMES = 64
"""How many names a thread takes at a time: what is under way when the purge is stopped."""
_WATCH_EVERY_S = 30.0
_TRIES = 3
"""How often a path is looked at again that changed between its look and its removal; how often a directory is read again
that still holds something."""
DEEP_BYTES = 2048
"""Directories with longer paths are moved up first: a place's path is longer than the tree's was, and GlusterFS, which takes
paths of some 4,080 bytes, says of longer ones that they are removed, and they are not (seen on 10.3)."""


@dataclass(slots=True, eq=False)
class _Directory:
    """A directory on its way out: how many directories in it are not done yet, and whether something in it stays."""

    path: bytes
    above: "_Directory | None"
    waiting: int = 0
    keeps: bool = False
    rounds: int = 0


@dataclass(slots=True)
class _Work:
    """Directories that wait, the deepest first, and how many are being worked on."""

    waiting: list[_Directory] = field(default_factory=list)
    busy: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)


class Removal:
    """Removes a tree from its place. What is not as it was verified stays where it is, with the directories above it."""

    def __init__(
        self,
        call: Call,
        placed: Placed,
        *,
        source: FileSystem,
        places: ClosedPlaces,
        proofs: TreeProofs,
        judge: Judge,
        skipped: Skipped,
        pace: Pace,
        watch: Callable[[], Awaitable[None]],
    ) -> None:
        self._call = call
        self._placed = placed
        self._source = source
        self._places = places
        self._proofs = proofs
        self._judge = judge
        self._skipped = skipped
        self._pace = pace
        self._watch = watch
        self._watched_s = call.world.clock.monotonic_s()
        self._watching = asyncio.Lock()
        self._threads = asyncio.Semaphore(max(call.request.workers, 1))
        self._work = _Work()
        self._place = parent(placed.at)
        self._raised: dict[bytes, bytes] = {}
        self.found = Found()

    async def run(self, *, user: str, total: int) -> Found:
        """Remove all that may go. `watch` is asked now and then, and raises where nothing may be removed any more. May be
        called once; another one goes on where it was stopped or killed.
        """
        clock = self._call.world.clock
        began_s = clock.monotonic_s()

        async def report() -> None:
            while True:
                self._call.world.progress.show(
                    PurgeProgress(
                        user=user,
                        step="removing",
                        elapsed_s=clock.monotonic_s() - began_s,
                        names=self.found.removed,
                        total_names=max(total, self.found.removed),
                        kept=self.found.open_paths,
                    )
                )
                await clock.sleep(SHOW_EVERY_S)

        self._raised.update(await in_thread(lambda: self._places.raised(self._place)))
        self._work.waiting.append(_Directory(self._placed.at, None))
        showing = asyncio.create_task(report())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(max(self._call.request.workers, 1)):
                    group.create_task(self._take_directories())
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        finally:
            showing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await showing
        return self.found

    async def _take_directories(self) -> None:
        work = self._work
        while True:
            async with work.changed:
                await work.changed.wait_for(lambda: work.waiting or not work.busy)
                if not work.waiting:
                    return
                directory = work.waiting.pop()
                work.busy += 1
            try:
                inner = await self._empty(directory)
                if not inner:
                    await self._leave(directory)
            finally:
                async with work.changed:
                    work.busy -= 1
                    work.changed.notify_all()

    async def _empty(self, directory: _Directory) -> bool:
        """Close a directory and remove the files in it; whether there are directories in it to be removed first."""
        if not await in_thread(lambda: self._close(directory)):
            return False
        listing = self._source.read_directory(directory.path)
        # What was moved up out of the tree goes before its top.
        inner = [_Directory(path, directory) for path in self._raised] if directory.above is None else []
        while (block := await in_thread(lambda: next(listing, None))) is not None:
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
        async with self._work.changed:
            self._work.waiting += inner
            self._work.changed.notify_all()
        return True

    async def _leave(self, directory: _Directory) -> None:
        """A directory is done: remove it where nothing in it stays, and so those above it whose last one it was."""
        left: _Directory | None = directory
        while left is not None:
            if not left.keeps:
                await self._pace.take(1)
                if not await in_thread(partial(self._remove_directory, left)) and left.rounds < _TRIES:
                    # Some file systems leave names out of a listing while others are removed.
                    left.rounds += 1
                    async with self._work.changed:
                        self._work.waiting.append(left)
                    return
            above = left.above
            if above is None:
                return
            above.keeps = above.keeps or left.keeps
            above.waiting -= 1
            left = above if above.waiting == 0 else None

    async def _remove_part(self, directory: _Directory, entries: Sequence[Entry]) -> None:
        async with self._threads:
            await self._pace.take(len(entries))
            await self._look_around()
            await in_thread(lambda: self._remove_entries(directory, entries))

    async def _look_around(self) -> None:
        async with self._watching:
            now_s = self._call.world.clock.monotonic_s()
            if now_s - self._watched_s >= _WATCH_EVERY_S:
                self._watched_s = now_s
                await self._watch()

    def _close(self, directory: _Directory) -> bool:
        """Judge a directory and close it; False where it stays as it is, with all that is in it."""
        try:
            entry = self._source.look(directory.path)
            if entry is None:
                return False
            if entry.type is not EntryType.DIRECTORY:
                self._keep(directory, directory.path, f"is a {entry.type.value} now")
                return False
            if not self._may_go(directory, entry):
                return False
            self._places.close_directory(directory.path, entry)
            if len(directory.path) > DEEP_BYTES:
                self._raise_up(directory, entry)
        except OSError as error:
            self._keep(directory, directory.path, f"cannot be closed ({error.strerror or error})")
            return False
        return True

    def _raise_up(self, directory: _Directory, entry: Entry) -> None:
        known_as = self._known_as(directory.path)
        # Some file systems have no room for a long attribute: these have no bound on paths either.
        with contextlib.suppress(OSError):
            directory.path = self._places.raise_up(directory.path, self._place, ino=entry.ino, known_as=known_as)
            self._raised[directory.path] = known_as

    def _known_as(self, path: bytes) -> bytes:
        """What the user knew a path by, also below what was moved up."""
        name, _, rest = path[len(self._place) + 1 :].partition(b"/")
        above = self._raised.get(join(self._place, name))
        if above is None:
            return self._placed.known_as(path)
        return join(above, rest) if rest else above

    def _remove_entries(self, directory: _Directory, entries: Sequence[Entry]) -> None:
        for entry in entries:
            try:
                self._remove_entry(directory, entry)
            except FileNotFoundError:
                continue
            except OSError as error:
                self._keep(directory, entry.path, f"cannot be removed ({error.strerror or error})")

    def _remove_entry(self, directory: _Directory, entry: Entry) -> None:
        seen: Entry | None = entry
        for _ in range(_TRIES):
            if seen is None:
                return
            if not self._may_go(directory, seen):
                return
            if self._places.remove(seen.path, seen):
                self.found.remove()
                return
            seen = self._source.look(entry.path)
        if seen is not None:
            self._keep(directory, entry.path, "changes just now")

    def _may_go(self, directory: _Directory, entry: Entry) -> bool:
        path = self._known_as(entry.path)
        proof = self._proofs.of_block([path]).get(path)
        if proof is None and (left := self._skipped.verdict(entry, path)) is not None:
            directory.keeps = directory.keeps or left.judgement is Judgement.OPEN
            return self.found.left(left, path)
        verdict = self._judge.on_source(entry, proof)
        if verdict.judgement is Judgement.OPEN or proof is None:
            self._keep(directory, entry.path, verdict.words)
            return False
        if verdict.judgement is Judgement.READ:
            self.found.read()
        stand = self._judge.on_target(proof)
        if stand.stand is Stand.LOST:
            self._keep(directory, entry.path, stand.words)
            return False
        return True

    def _remove_directory(self, directory: _Directory) -> bool:
        """Whether it is gone, or is not to be tried again."""
        try:
            self._places.remove_directory(directory.path)
        except OSError as error:
            if directory.rounds >= _TRIES:
                self._keep(directory, directory.path, f"cannot be removed ({error.strerror or error})")
            return False
        self._raised.pop(directory.path, None)
        self.found.remove()
        return True

    def _keep(self, directory: _Directory, path: bytes, words: str) -> None:
        directory.keeps = True
        self.found.keep(self._known_as(path), words)


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """What happened first: the group has ended everything else."""
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


def kept_words(found: Found, placed: Placed) -> str:
    """What is said of a tree of which something stays."""
    return (
        f"{found.open_paths:,} of its paths {'is' if found.open_paths == 1 else 'are'} not known to be on the target, and "
        f"{'stays' if found.open_paths == 1 else 'stay'} in {show(placed.at)} of the source"
    )
