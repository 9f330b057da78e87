"""What streams do not do: copies of paths that are too long for them, and links to names that exist already."""

import errno
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from migrator.decide.stopping import stop_reason
from migrator.domain.entry import Entry, EntryType
from migrator.domain.paths import is_beneath, parent, show
from migrator.domain.plan import ListedPath
from migrator.domain.transfer import FileProblem, FileProblemKind, StopReason, StreamCounters
from migrator.domain.units import MIB
from migrator.ports.filesystem import SourceFileSystem, TargetFileSystem
from migrator.stages.run.context import PassUnderWay
from migrator.stages.run.looking import bad_file, look

_LINKS_AT_ONCE = 128
_COPY_INSTEAD = frozenset({errno.ENOENT, errno.EMLINK, errno.EXDEV, errno.EPERM})
"""The name to link to is not there, or cannot have another name."""
_SLOWEST_COPY_BYTES_PER_S = MIB
"""A copy by descriptor tells nothing on its way: it may take the stall timeout and so long for its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """What became of some paths. `suspects` are vanished (the look has been taken) or bad."""

    counters: StreamCounters
    suspects: tuple[FileProblem, ...] = ()
    stop: tuple[StopReason, str] | None = None


async def copy_by_descriptor(
    under_way: PassUnderWay, tree: bytes, paths: Sequence[ListedPath], *, by_stream: Sequence[ListedPath] = ()
) -> Handled:
    """Copy each path as it is now. What is gone is told as vanished, what cannot be copied as bad.

    Names of one link group stay names of one file, also where some of them (`by_stream`) have been copied by a stream.
    """
    linker = _Linker.of(under_way, tree)
    first_names: dict[int, bytes] = {}
    group_bytes: dict[int, int] = {}
    for listed in (*by_stream, *paths):
        if listed.link_group is not None:
            first_names.setdefault(listed.link_group, listed.path)
            group_bytes[listed.link_group] = group_bytes.get(listed.link_group, 0) + listed.size_bytes
    files = size_bytes = 0
    suspects: list[FileProblem] = []
    for listed in paths:
        first = listed.path if listed.link_group is None else first_names[listed.link_group]
        may_copy_bytes = listed.size_bytes if listed.link_group is None else group_bytes[listed.link_group]
        timeout_s = under_way.request.stall_timeout_s + may_copy_bytes / _SLOWEST_COPY_BYTES_PER_S
        link_to = None if first == listed.path else first
        try:
            problem = await under_way.world.blocking(partial(linker.make, listed.path, link_to), timeout_s=timeout_s)
        except TimeoutError:
            detail = f"{show(listed.path)} has not been copied after {timeout_s:.0f} s"
            return Handled(counters=StreamCounters(), stop=(StopReason.TARGET_STUCK, detail))
        if problem is None:
            files, size_bytes = files + 1, size_bytes + listed.size_bytes
            continue
        suspects.append(problem)
        if stop := _stops(under_way, problem):
            return Handled(counters=_counters(files, size_bytes), suspects=_io_errors(suspects), stop=stop)
    return Handled(counters=_counters(files, size_bytes), suspects=tuple(suspects))


async def make_links(under_way: PassUnderWay, tree: bytes, paths: Sequence[ListedPath]) -> Handled:
    """Make each path another name of the one that it is listed to link to, as far as they are one file on the source."""
    linker = _Linker.of(under_way, tree)
    stopping = threading.Event()
    files = 0
    suspects: list[FileProblem] = []
    try:
        for first in range(0, len(paths), _LINKS_AT_ONCE):
            some = paths[first : first + _LINKS_AT_ONCE]
            copied_bytes = sum(listed.size_bytes for listed in some)
            timeout_s = under_way.request.stall_timeout_s + copied_bytes / _SLOWEST_COPY_BYTES_PER_S
            try:
                problems = await under_way.world.blocking(
                    partial(linker.make_all, some, stopping.is_set), timeout_s=timeout_s
                )
            except TimeoutError:
                return Handled(
                    counters=_counters(files, 0), stop=(StopReason.TARGET_STUCK, "links have not been made in time")
                )
            suspects.extend(problems)
            files += len(some) - len(problems)
            for problem in problems:
                if stop := _stops(under_way, problem):
                    return Handled(counters=_counters(files, 0), suspects=_io_errors(suspects), stop=stop)
    finally:
        stopping.set()
    return Handled(counters=_counters(files, 0), suspects=tuple(suspects))


def copy_one(source: SourceFileSystem, target: TargetFileSystem, tree: bytes, path: bytes) -> FileProblem | None:
    """Copy one path by a fresh look; None when it has arrived. The tree's own directory stays as it is: closed."""
    if path == tree:
        return None
    seen: Entry | OSError | None = None
    # A second time where it was replaced in between, or where a directory above it was missing on the target.
    for last in (False, True):
        seen = look(source, path)
        if seen is None:
            return _vanished(path)
        if isinstance(seen, OSError):
            return bad_file(path, seen)
        try:
            target.copy_from(source.root, seen)
        except OSError as error:
            if last or error.errno not in (errno.ENOENT, errno.ESTALE):
                # What failed because it went away in the middle is not bad.
                return _vanished(path) if look(source, path) is None else bad_file(path, error)
        else:
            return None
        if problem := _make_missing_directories(source, target, tree, path):
            return problem
    raise AssertionError("unreachable")


class _Linker:
    """Makes the links of one chunk. Where the first name of a group is missing, the first link takes its place."""

    def __init__(
        self,
        source: SourceFileSystem,
        target: TargetFileSystem,
        tree: bytes,
        *,
        keeps_links: bool,
        left_alone: Collection[bytes],
    ) -> None:
        self._source = source
        self._target = target
        self._tree = tree
        self._keeps_links = keeps_links
        self._left_alone = left_alone
        self._instead: dict[bytes, bytes] = {}

    @classmethod
    def of(cls, under_way: PassUnderWay, tree: bytes) -> "_Linker":
        """For one chunk of the pass."""
        world, keeps_links = under_way.world, under_way.capabilities.keeps_hard_links
        return cls(world.source, world.target, tree, keeps_links=keeps_links, left_alone=under_way.left_alone)

    def make_all(self, paths: Iterable[ListedPath], stopped: Callable[[], bool]) -> list[FileProblem]:
        problems: list[FileProblem] = []
        for listed in paths:
            if stopped():
                break
            if problem := self.make(listed.path, listed.link_to):
                problems.append(problem)
                if stop_reason(problem.errno) is not None:
                    break
        return problems

    def make(self, path: bytes, link_to: bytes | None) -> FileProblem | None:
        """Make one path a name of the other, as far as they are one file on the source; a copy of its own otherwise."""
        existing = None if link_to is None else self._instead.get(link_to, link_to)
        if existing is not None and any(is_beneath(existing, tree) for tree in self._left_alone):
            # On the target its user may have written to it: that would be read in another tree.
            existing = None
        if existing is not None and self._keeps_links:
            here, there = look(self._source, path), look(self._source, existing)
            if isinstance(here, Entry) and isinstance(there, Entry) and _same_file(here, there):
                try:
                    self._target.link(existing, path)
                except OSError as error:
                    if error.errno not in _COPY_INSTEAD:
                        return bad_file(path, error)
                else:
                    return None
        problem = copy_one(self._source, self._target, self._tree, path)
        if problem is None and link_to is not None:
            self._instead[link_to] = path
        return problem


def _same_file(one: Entry, other: Entry) -> bool:
    return (
        one.type is other.type and one.type is not EntryType.DIRECTORY and (one.dev, one.ino) == (other.dev, other.ino)
    )


def _make_missing_directories(
    source: SourceFileSystem, target: TargetFileSystem, tree: bytes, path: bytes
) -> FileProblem | None:
    """Make the directories between a tree and a path that the target lacks, outermost first."""
    missing: list[bytes] = []
    above = parent(path)
    while above != tree and is_beneath(above, tree) and look(target, above) is None:
        missing.append(above)
        above = parent(above)
    for directory in reversed(missing):
        seen = look(source, directory)
        if seen is None:
            return _vanished(path)
        if isinstance(seen, OSError):
            return bad_file(path, seen)
        try:
            target.copy_from(source.root, seen)
        except OSError as error:
            return bad_file(path, error)
    return None


def _vanished(path: bytes) -> FileProblem:
    return FileProblem(path=path, kind=FileProblemKind.VANISHED, errno=errno.ENOENT, reason="gone on the source")


def _stops(under_way: PassUnderWay, problem: FileProblem) -> tuple[StopReason, str] | None:
    if problem.kind is FileProblemKind.VANISHED:
        return None
    reason = stop_reason(problem.errno)
    if reason is None or (reason is StopReason.IO_ERROR and problem.path in under_way.known_io_errors):
        return None
    return reason, f"{show(problem.path)}: {problem.reason}"


def _io_errors(problems: Sequence[FileProblem]) -> tuple[FileProblem, ...]:
    return tuple(problem for problem in problems if problem.errno == errno.EIO)


def _counters(files: int, size_bytes: int) -> StreamCounters:
    return StreamCounters(files=files, size_bytes=size_bytes)
