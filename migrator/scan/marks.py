"""Paths for which the bricks are not enough: Gluster's marks on them, and the mount's answers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from msgspec import Struct

from migrator.core.entry import Entry, EntryType
from migrator.core.errors import MigratorError
from migrator.core.paths import show
from migrator.fs.model import ScanProblem
from migrator.fs.ports import FileSystem
from migrator.gluster.model import Brick, BrickRules, Mark, volume_state
from migrator.gluster.volume import GlusterSource, forget_content
from migrator.gluster.walks import BrickHello, BrickLost, HostBrickWalks, WalkProblems
from migrator.scan.rules import MarkedPaths, TreeIndex, brick_problem

if TYPE_CHECKING:
    from migrator.catalog.brick_parts import BrickPartsWriter

_KEPT = 100_000
"""Of each mark: far more than are ever looked up, in bounded memory."""


class MarksFound:
    """The marked paths of all walks, each once for each mark."""

    def __init__(self) -> None:
        self._paths: dict[Mark, set[bytes]] = {mark: set() for mark in Mark}
        self._more: dict[Mark, int] = dict.fromkeys(Mark, 0)

    def add(self, marked: Sequence[ScanProblem]) -> None:
        """Take the marked paths of a frame."""
        for one in marked:
            mark = Mark(one.operation)
            if len(self._paths[mark]) < _KEPT:
                self._paths[mark].add(one.path)
            else:
                self._more[mark] += one.path not in self._paths[mark]

    def of(self, mark: Mark) -> AbstractSet[bytes]:
        """The kept paths with a mark."""
        return self._paths[mark]

    @property
    def paths(self) -> set[bytes]:
        """All kept paths."""
        return set().union(*self._paths.values())

    @property
    def found(self) -> Mapping[Mark, MarkedPaths]:
        """The paths by mark, in order."""
        return {
            mark: MarkedPaths(paths=tuple(sorted(paths)), more=self._more[mark])
            for mark, paths in self._paths.items()
            if paths
        }


class TreeMarks(Struct, frozen=True, kw_only=True):
    """The paths of trees whose content on a brick may not be what the mount shows; `reasons` why they are not all known; `kept`
    why the mount may show the content of a marked copy, too.
    """

    paths: frozenset[bytes] = frozenset()
    reasons: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


ReadMarks = Callable[[Sequence[bytes]], Awaitable[TreeMarks]]
"""Reads the marks of trees."""

_OF_CONTENT = (Mark.CORRUPTED, Mark.PENDING)


async def read_marks(source: GlusterSource, walks: HostBrickWalks, trees: Sequence[bytes]) -> TreeMarks:
    """Read the marks of trees on all bricks of the volume, whatever moves files there. A volume whose bricks hold pieces of
    files has none: no content is ever read from them.
    """
    state = volume_state(await source.health())
    if state is None:
        return TreeMarks(reasons=("the state of the volume is unknown",))
    if state.disperse_count or state.stripe_count > 1:
        return TreeMarks()
    readers = [_MarkReader(brick, state.volume_id) for brick in state.bricks]
    await asyncio.gather(*(reader.read(walks, trees) for reader in readers))
    marks, reasons = MarksFound(), [reader.failure for reader in readers if reader.failure is not None]
    for reader in readers:
        marks.add(reader.marked)
    found = {mark: marks.found[mark] for mark in _OF_CONTENT if mark in marks.found}
    reasons += [f"more than {_KEPT:,} paths have the mark {mark}" for mark, marked in found.items() if marked.more]
    paths = frozenset(path for marked in found.values() for path in marked.paths)
    problems = await asyncio.to_thread(forget_marked, source.root, sorted(paths))
    kept = tuple(f"{show(one.path)}: {one.reason}" for one in problems[:1])
    return TreeMarks(paths=paths, reasons=tuple(reasons), kept=kept)


def forget_marked(root: bytes, paths: Iterable[bytes]) -> list[ScanProblem]:
    """Make the mount's client forget the content of marked files; return those for which that failed. Blocking."""
    kept: list[ScanProblem] = []
    for path in paths:
        try:
            forget_content(root, path)
        except OSError as error:
            reason = (
                f"the mount's client may show the content of the marked copy, which it keeps: {error.strerror}; "
                "mount the source anew"
            )
            kept.append(ScanProblem(path=path, operation="forget", errno=error.errno, reason=reason))
    return kept


class _MarkReader:
    """The marks of one brick. The `BrickListener` port."""

    def __init__(self, brick: Brick, volume_id: str) -> None:
        self.failure: str | None = None
        self.marked: list[ScanProblem] = []
        self._brick = brick
        self._volume_id = volume_id

    async def read(self, walks: HostBrickWalks, trees: Sequence[bytes]) -> None:
        """Walk the brick. `failure` is set if that fails, or if a path could not be read."""
        rules = BrickRules(times_from_mdata=False, distributed=False)
        try:
            await walks.walk(
                self._brick, trees=trees, only_trees=True, rules=rules, listener=self, own=True, marks_only=True
            )
        except MigratorError as error:
            self.failure = f"the marks on brick {self._brick.name} cannot be read: {error.message}"

    async def hello(self, hello: BrickHello) -> None:
        problem = brick_problem(
            self._brick,
            volume_id=self._volume_id,
            found_volume_id=hello.volume_id,
            found_root_gfid=hello.root_gfid,
        )
        if problem is not None:
            raise BrickLost(problem)

    async def rows(self, payload: memoryview) -> None:
        """Not sent by a walk for marks."""

    async def directories(self, payload: memoryview) -> None:
        """Directories do not matter here."""

    async def listings(self, payload: memoryview) -> None:
        """Not requested."""

    async def problems(self, found: WalkProblems) -> None:
        self.marked += found.marked[: max(_KEPT + 1 - len(self.marked), 0)]
        for one in found.unreadable[:1]:
            self.failure = f"{show(one.path)} cannot be read on brick {self._brick.name}: {one.reason}"


class MountAnswers:
    """Replaces rows of a catalog from bricks by what the mount shows, up to a limit of look-ups. `incomplete` directories are
    missing on a brick. `finish` must be called. Blocking.
    """

    def __init__(
        self,
        source: FileSystem,
        writer: "BrickPartsWriter",
        trees: TreeIndex,
        *,
        incomplete: AbstractSet[bytes],
        limit: int,
    ) -> None:
        self._source = source
        self._writer = writer
        self._trees = trees
        self._incomplete = incomplete
        self._left = limit
        self._limit = limit
        self._rows: dict[bytes, tuple[bytes | None, Entry] | None] = {}
        self._gone: list[bytes] = []
        self._unread: list[ScanProblem] = []

    def look(self, path: bytes, *, lacking: bool = False) -> Entry | None:
        """Look up one path. If the catalog is `lacking` it, a directory that is there was not read on its bricks, which is a
        problem.
        """
        if path in self._rows:
            known = self._rows[path]
            return None if known is None else known[1]
        if not self._take(path):
            return None
        try:
            entry = self._source.look(path)
        except OSError as error:
            self._problem(path, "look", error.strerror or str(error), error.errno)
            return None
        self._set(path, entry)
        if lacking and entry is not None and entry.type is EntryType.DIRECTORY:
            self._problem(path, "list", f"directory {show(path)} is there, and was not to be read on its bricks")
        return entry

    def read_again(self, path: bytes) -> None:
        """Look up a path, and if it is a directory, take its entries from the mount. Directories in it that are missing on
        a brick are read whole.
        """
        entry = self.look(path) if path else None
        if entry is not None and entry.type is not EntryType.DIRECTORY:
            return
        if entry is not None or not path:
            waiting = [path]
            while waiting:
                waiting += self._list(waiting.pop())
        elif path in self._rows:
            self._gone.append(path)

    def finish(self) -> list[ScanProblem]:
        """Write the rows, and return what could not be read."""
        self._writer.replace(self._rows)
        for directory in self._gone:
            self._writer.remove_beneath(directory)
        return self._unread

    def _list(self, directory: bytes) -> list[bytes]:
        """Take the entries of a directory; return the directories among them that are missing on a brick."""
        names: set[bytes] = set()
        directories: list[bytes] = []
        for block in self._source.read_directory(directory):
            self._unread += block.problems
            for entry in block.entries:
                names.add(entry.path)
                if entry.path in self._rows:
                    continue
                if not self._take(directory):
                    return []
                self._set(entry.path, entry)
                if entry.type is EntryType.DIRECTORY:
                    directories.append(entry.path)
        for path, kind in self._writer.children(directory, self._limit):
            # The mount may list fewer than it knows: those of a directory that is missing on one brick.
            if path not in names and self.look(path) is None and path in self._rows and kind is EntryType.DIRECTORY:
                self._gone.append(path)
        lacking = self._writer.lacks(directories) if directories else ()
        return [*lacking, *(self._incomplete & set(directories))]

    def _take(self, path: bytes) -> bool:
        """Count one look-up. Without any left, the path is one that could not be read."""
        if self._left:
            self._left -= 1
            return True
        self._problem(path, "look", f"more than {self._limit:,} paths had to be looked up through the mount")
        return False

    def _set(self, path: bytes, entry: Entry | None) -> None:
        self._rows[path] = None if entry is None else (self._trees.of(path), entry)

    def _problem(self, path: bytes, operation: str, reason: str, errno: int | None = None) -> None:
        self._unread.append(ScanProblem(path=path, operation=operation, errno=errno, reason=reason))
