"""Walking both sides of user trees, directory by directory, and comparing every path."""

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field

from migrator.decide.compare import Comparison, compare, compare_tree_root
from migrator.decide.expectations import TEMPORARY_PREFIX, is_sampled
from migrator.domain.entry import Entry, EntryType
from migrator.domain.paths import name
from migrator.domain.scan import ScanProblem
from migrator.domain.site import TargetCapabilities
from migrator.domain.verification import ContentReading, Difference, DifferenceKind, DigestPolicy
from migrator.ports.filesystem import FileSystem
from migrator.ports.manifest import LinkedPath
from migrator.stages.verify.absences import Absences
from migrator.stages.verify.carrying import Carrying
from migrator.stages.verify.content import NOT_COMPARED, ContentComparison, Pair
from migrator.stages.verify.proof import look_or_prove_gone
from migrator.stages.verify.storage_wait import StorageWait
from migrator.stages.verify.tally import Content, Tally, error_problem
from migrator.stages.verify.work import WorkPool

HELD_ENTRIES = 20_000
"""Of a larger directory only a part of the names is held in memory at a time, and the directory read several times."""

_FILES_IN_TASK = 64
_RSYNC_TEMPORARY = re.compile(rb"\..+\.[0-9A-Za-z]{6}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryTask:
    """A directory to compare; where it is on one side only, all in it is missing or extra."""

    path: bytes
    on_source: bool = True
    on_target: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """The names of a directory that are looked at in one reading: those whose hash falls to `index` of `count`."""

    index: int
    count: int

    def has(self, path: bytes) -> bool:
        return self.count == 1 or zlib.crc32(path) % self.count == self.index


@dataclass(slots=True, kw_only=True)
class _SourceSide:
    """What the source has of a share; `whole` is False where not everything of the directory could be read."""

    share: _Share
    entries: dict[bytes, Entry] = field(default_factory=dict)
    troubled: set[bytes] = field(default_factory=set)
    whole: bool = True


class TreeComparison:
    """Compares trees with worker threads; what is found goes to the tally."""

    def __init__(
        self,
        source: FileSystem,
        target: FileSystem,
        tally: Tally,
        *,
        capabilities: TargetCapabilities,
        policy: DigestPolicy,
        root_owner: tuple[int, int],
        workers: int,
        reading: ContentReading,
        carrying: Carrying | None = None,
        held_entries: int = HELD_ENTRIES,
        absences: Absences,
        storage: StorageWait | None = None,
    ) -> None:
        self._absences = absences
        self._storage = storage
        self._source = source
        self._target = target
        self._tally = tally
        self._capabilities = capabilities
        self._policy = policy
        self._root_owner = root_owner
        self._held_entries = held_entries
        self._reading = reading
        self._carrying = carrying
        self._content = ContentComparison(source, target, policy.algorithm)
        self.late_directories: set[bytes] = set()
        """What `compare_late` found to be a directory: another `run` is to compare what lies in it."""
        self._pool: WorkPool[DirectoryTask, tuple[Pair, ...]] = WorkPool(
            workers, do_wide=self._compare_directory, do_narrow=self._compare_content
        )

    def add_tree(self, root: Entry) -> None:
        """Compare the root of a tree, as it was just looked at on the source, and whatever lies in it. Blocking."""
        try:
            target = self._target.look(root.path)
        except OSError as error:
            self._tally.unreadable(error_problem(root.path, "look", error), on_source=False)
            return
        if target is None:
            self._tally.missing(root, None, None)
            self._pool.put_wide(DirectoryTask(path=root.path, on_target=False))
            return
        comparison = compare_tree_root(root, target, owner=self._root_owner)
        self._tally.compared(root, comparison.differences, comparison.losses, target=target)
        both = target.type is EntryType.DIRECTORY
        self._pool.put_wide(DirectoryTask(path=root.path, on_target=both))

    async def run(self) -> None:
        """Compare all that was added. May be called again. Raises what is no error of a single path."""
        await self._pool.run()

    def compare_late(self, path: bytes) -> bool:
        """Compare one path that the walk did not come across; False where it is proven gone. Raises OSError."""
        source = look_or_prove_gone(self._source, path)
        if source is None:
            return False
        target = look_or_prove_gone(self._target, path)
        if EntryType.DIRECTORY in (source.type, target.type if target else None):
            self.late_directories.add(path)
        if target is None:
            self._missing(source)
            if source.type is EntryType.DIRECTORY:
                self._pool.put_wide(DirectoryTask(path=path, on_target=False))
        else:
            files = _FilesToRead(self._compare_content)
            self._compare_pair(source, target, files)
            files.flush()
        return True

    def _compare_directory(self, task: DirectoryTask) -> None:
        files = _FilesToRead(self._pool.put_narrow)
        index, count = 0, 1
        while index < count and not self._pool.stopped:
            side = self._read_source(task, _Share(index=index, count=count))
            count = side.share.count
            self._compare_with_target(task, side, files)
            index += 1
        files.flush()

    def _read_source(self, task: DirectoryTask, share: _Share) -> _SourceSide:
        """The source's entries of a share. The first reading finds out how many shares it takes."""
        side = _SourceSide(share=share)
        if not task.on_source:
            return side
        for block in self._source.read_directory(task.path):
            for problem in block.problems:
                if problem.path == task.path:
                    side.whole = False
                    self._tally.unreadable(problem, on_source=True)
                elif side.share.has(problem.path):
                    side.troubled.add(problem.path)
                    self._tally.unreadable(problem, on_source=True)
            for entry in block.entries:
                if side.share.has(entry.path) and entry.path not in side.troubled:
                    side.entries[entry.path] = entry
            while side.share.index == 0 and len(side.entries) > self._held_entries:
                side.share = smaller = _Share(index=0, count=side.share.count * 2)
                side.entries = {path: entry for path, entry in side.entries.items() if smaller.has(path)}
            if self._pool.stopped:
                break
        return side

    def _compare_with_target(self, task: DirectoryTask, side: _SourceSide, files: "_FilesToRead") -> None:
        whole = True
        for block in self._target.read_directory(task.path) if task.on_target else ():
            problems = {problem.path: problem for problem in block.problems}
            if task.path in problems:
                whole = False
                self._tally.unreadable(problems.pop(task.path), on_source=False)
            for path, problem in problems.items():
                if side.share.has(path) and path not in side.troubled:
                    self._target_trouble(side.entries.pop(path, None), problem)
            for entry in block.entries:
                if entry.path in problems or entry.path in side.troubled or not side.share.has(entry.path):
                    continue
                source = side.entries.pop(entry.path, None)
                if source is not None:
                    self._compare_pair(source, entry, files)
                elif side.whole:
                    self._target_alone(task, entry, files)
            if self._pool.stopped:
                return
        if whole:
            for source in side.entries.values():
                self._source_alone(task, source, files)

    def _missing(self, source: Entry) -> None:
        """A path that is not at its place on the target."""
        found, link = self._absences.of(source), _linked(source, None)
        if found is not None and found.member is not None:
            self._tally.archived(source, found.loss, found.member, link)
        else:
            self._tally.missing(source, None if found is None else found.loss, link)

    def _target_trouble(self, source: Entry | None, problem: ScanProblem) -> None:
        """A path of the target cannot be read; expected where it is a symlink too long to be read back."""
        loss = None if source is None else self._absences.impossible(source)
        if source is not None and loss is not None:
            self._tally.missing(source, loss, None)
            return
        self._tally.unreadable(problem, on_source=False)
        if source is not None and source.type is EntryType.DIRECTORY:
            self._pool.put_wide(DirectoryTask(path=source.path))

    def _target_alone(self, task: DirectoryTask, target: Entry, files: "_FilesToRead") -> None:
        """The listing of the source did not have it: a look tells (listings under renames miss names)."""
        if task.on_source:
            try:
                source = look_or_prove_gone(self._source, target.path)
            except OSError as error:
                self._tally.unreadable(error_problem(target.path, "look", error), on_source=True)
                return
            if source is not None:
                self._compare_pair(source, target, files)
                return
        if self._absences.is_archive(target.path):
            return
        self._tally.found(
            Difference(path=target.path, kind=DifferenceKind.EXTRA, source="none", target=_extra_words(target))
        )
        if target.type is EntryType.DIRECTORY:
            self._pool.put_wide(DirectoryTask(path=target.path, on_source=False))

    def _source_alone(self, task: DirectoryTask, source: Entry, files: "_FilesToRead") -> None:
        """The listing of the target did not have it: a look at both sides tells, the source may have lost it since."""
        if task.on_target:
            try:
                target = look_or_prove_gone(self._target, source.path)
            except OSError as error:
                self._tally.unreadable(error_problem(source.path, "look", error), on_source=False)
                return
            if target is not None:
                self._compare_pair(source, target, files)
                return
        try:
            if look_or_prove_gone(self._source, source.path) is None:
                return
        except OSError as error:
            self._tally.unreadable(error_problem(source.path, "look", error), on_source=True)
            return
        self._missing(source)
        if source.type is EntryType.DIRECTORY:
            self._pool.put_wide(DirectoryTask(path=source.path, on_target=False))

    def _compare_pair(self, source: Entry, target: Entry, files: "_FilesToRead") -> None:
        comparison = compare(source, target, self._capabilities)
        if source.type is not target.type:
            self._tally.compared(source, comparison.differences, comparison.losses, target=target)
            if source.type is EntryType.DIRECTORY:
                self._pool.put_wide(DirectoryTask(path=source.path, on_target=False))
            elif target.type is EntryType.DIRECTORY:
                self._pool.put_wide(DirectoryTask(path=source.path, on_source=False))
            return
        if source.type is EntryType.DIRECTORY:
            self._pool.put_wide(DirectoryTask(path=source.path))
        same_size = all(difference.kind is not DifferenceKind.SIZE for difference in comparison.differences)
        if source.type is EntryType.FILE and same_size and is_sampled(source.path, self._policy):
            files.add(Pair(source=source, target=target, comparison=comparison))
        else:
            self._record(source, target, comparison, None)

    def _compare_content(self, pairs: tuple[Pair, ...]) -> None:
        known = {} if self._carrying is None else self._carrying.find(pairs)
        for pair in pairs:
            if self._pool.stopped:
                return
            earlier = known.get(pair.source.path)
            if earlier is None:
                content = self._read(pair)
            else:
                content = Content(digest=earlier.digest, reading=earlier.reading, carried=True)
            self._record(pair.source, pair.target, pair.comparison, content)

    def _read(self, pair: Pair) -> Content | None:
        digest, difference = self._content.compare(pair)
        while difference is not None and self._may_be_back(difference):
            digest, difference = self._content.compare(pair)
        if difference is not None:
            pair.comparison.differences.append(difference)
        return None if digest is None else Content(digest=digest, reading=self._reading)

    def _may_be_back(self, difference: Difference) -> bool:
        """Whether the target's file could not be read because storage of the target was lost, which is back."""
        if (
            self._storage is None
            or difference.kind is not DifferenceKind.UNREADABLE
            or difference.target == NOT_COMPARED
        ):
            return False
        return self._storage.was_lost(stopped=lambda: self._pool.stopped)

    def _record(self, source: Entry, target: Entry, comparison: Comparison, content: Content | None) -> None:
        self._tally.compared(
            source,
            comparison.differences,
            comparison.losses,
            target=target,
            content=content,
            link=_linked(source, target),
        )


class _FilesToRead:
    """Collects files of one directory until there are enough for a task."""

    def __init__(self, hand_out: Callable[[tuple[Pair, ...]], None]) -> None:
        self._hand_out = hand_out
        self._pairs: list[Pair] = []

    def add(self, pair: Pair) -> None:
        self._pairs.append(pair)
        if len(self._pairs) >= _FILES_IN_TASK:
            self.flush()

    def flush(self) -> None:
        if self._pairs:
            pairs, self._pairs = tuple(self._pairs), []
            self._hand_out(pairs)


def _linked(source: Entry, target: Entry | None) -> LinkedPath | None:
    if source.type is EntryType.DIRECTORY:
        return None
    target_nlink = 0 if target is None else target.nlink
    if source.nlink <= 1 and target_nlink <= 1:
        return None
    return LinkedPath(
        path=source.path,
        source_ino=source.ino,
        source_nlink=source.nlink,
        target_ino=None if target is None else target.ino,
        target_nlink=target_nlink,
    )


def _extra_words(target: Entry) -> str:
    last = name(target.path)
    if target.type is EntryType.FILE and (last.startswith(TEMPORARY_PREFIX) or _RSYNC_TEMPORARY.fullmatch(last)):
        return f"{target.type.value}, looks like what an interrupted stream left behind"
    return target.type.value
