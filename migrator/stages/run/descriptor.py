"""What streams do not do: copies of paths that are too long for them, and links to names that exist already."""

import errno
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

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
_SLOWEST_COPY_BYTES_PER_S = MIB
"""A copy by descriptor tells nothing on its way: it may take the stall timeout and so long for its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """What became of some paths. `suspects` are vanished (the look has been taken) or bad."""

    counters: StreamCounters
    suspects: tuple[FileProblem, ...] = ()
    stop: tuple[StopReason, str] | None = None


async def copy_by_descriptor(under_way: PassUnderWay, tree: bytes, paths: Sequence[ListedPath]) -> Handled:
    """Copy each path as it is now. What is gone is told as vanished, what cannot be copied as bad."""
    source, target = under_way.world.source, under_way.world.target
    files = size_bytes = 0
    suspects: list[FileProblem] = []
    for listed in paths:
        timeout_s = under_way.request.stall_timeout_s + listed.size_bytes / _SLOWEST_COPY_BYTES_PER_S
        try:
            problem = await under_way.world.blocking(
                lambda listed=listed: copy_one(source, target, tree, listed.path),  # type: ignore[misc]
                timeout_s=timeout_s,
            )
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
    source, target = under_way.world.source, under_way.world.target
    linker = _Linker(source, target, tree, keeps_links=under_way.capabilities.keeps_hard_links)
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
                    lambda some=some: linker.make_all(some, stopping.is_set),  # type: ignore[misc]
                    timeout_s=timeout_s,
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

    def __init__(self, source: SourceFileSystem, target: TargetFileSystem, tree: bytes, *, keeps_links: bool) -> None:
        self._source = source
        self._target = target
        self._tree = tree
        self._keeps_links = keeps_links
        self._instead: dict[bytes, bytes] = {}

    def make_all(self, paths: Iterable[ListedPath], stopped: Callable[[], bool]) -> list[FileProblem]:
        problems: list[FileProblem] = []
        for listed in paths:
            if stopped():
                break
            if problem := self._make(listed):
                problems.append(problem)
                if stop_reason(problem.errno) is not None:
                    break
        return problems

    def _make(self, listed: ListedPath) -> FileProblem | None:
        existing = self._instead.get(listed.link_to, listed.link_to) if listed.link_to is not None else None
        if existing is None or not self._keeps_links:
            return copy_one(self._source, self._target, self._tree, listed.path)
        here, there = look(self._source, listed.path), look(self._source, existing)
        if here is None:
            return _vanished(listed.path)
        if isinstance(here, OSError):
            return bad_file(listed.path, here)
        if isinstance(there, Entry) and _same_file(here, there):
            try:
                self._target.link(existing, listed.path)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.EMLINK, errno.EXDEV, errno.EPERM):
                    return bad_file(listed.path, error)
            else:
                return None
        problem = copy_one(self._source, self._target, self._tree, listed.path)
        if problem is None and listed.link_to is not None:
            self._instead[listed.link_to] = listed.path
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
