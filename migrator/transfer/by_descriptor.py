"""Work that no stream can do: copies of paths that are too long for streams, and hard links to existing names."""

import errno
from collections.abc import Iterable, Iterator
from functools import partial

from migrator.catalog.model import ListedPath
from migrator.core.entry import Entry, EntryType
from migrator.core.paths import is_beneath, parent, show
from migrator.core.units import MIB
from migrator.fs.ports import SourceFileSystem, TargetFileSystem
from migrator.transfer import model
from migrator.transfer.context import PassUnderWay
from migrator.transfer.judging import Result, bad_file, look_up, settle_vanished, stop_of

_COPY_INSTEAD = frozenset({errno.ENOENT, errno.EMLINK, errno.EXDEV, errno.EPERM})
"""The existing name is missing, or cannot get another name."""
_SLOWEST_COPY_BYTES_PER_S = MIB
"""A copy by descriptor reports no progress: it may take the stall timeout, plus its size at this rate."""


def to_be_linked(paths: Iterable[ListedPath], by_stream: Iterable[ListedPath]) -> Iterator[tuple[ListedPath, int]]:
    """Paths to copy by descriptor. Each has the name in its link group that it is to be linked to, and the bytes that
    it may have to copy. Names of one group stay names of one file, even if a stream has copied some of them
    (`by_stream`).
    """
    paths = tuple(paths)
    first_names: dict[int, bytes] = {}
    group_bytes: dict[int, int] = {}
    for listed in (*by_stream, *paths):
        if listed.link_group is not None:
            first_names.setdefault(listed.link_group, listed.path)
            group_bytes[listed.link_group] = group_bytes.get(listed.link_group, 0) + listed.size_bytes
    for listed in paths:
        if listed.link_group is None:
            yield listed, listed.size_bytes
        else:
            first = first_names[listed.link_group]
            link_to = None if first == listed.path else first
            yield listed._replace(link_to=link_to), group_bytes[listed.link_group]


async def make_by_descriptor(
    under_way: PassUnderWay, tree: bytes, paths: Iterable[tuple[ListedPath, int]], result: Result
) -> tuple[Result, int, int]:
    """Make each path a hard link to its `link_to` if both are one file on the source, or else copy its present state.
    Returns the result with the paths that did not arrive, and the number of files and bytes that did.
    """
    linker = _Linker(under_way, tree)
    files = size_bytes = 0
    gone: list[model.FileProblem] = []
    for listed, may_copy_bytes in paths:
        timeout_s = under_way.request.stall_timeout_s + may_copy_bytes / _SLOWEST_COPY_BYTES_PER_S
        make = partial(linker.make, listed.path, listed.link_to)
        try:
            problem = await under_way.world.blocking(make, timeout_s=timeout_s)
        except TimeoutError:
            detail = f"{show(listed.path)} has not been copied after {timeout_s:.0f} s"
            return result.stop_for(model.StopReason.TARGET_STUCK, detail), files, size_bytes
        if problem is None:
            files, size_bytes = files + 1, size_bytes + listed.size_bytes
        elif problem.kind is model.FileProblemKind.VANISHED:
            gone.append(problem)
        else:
            result.bad.append(problem)
            if (stop := stop_of(problem)) is not None:
                return result.stop_for(*stop), files, size_bytes
    return await settle_vanished(under_way, gone, result), files, size_bytes


def copy_one(source: SourceFileSystem, target: TargetFileSystem, tree: bytes, path: bytes) -> model.FileProblem | None:
    """Copy one path after a fresh look-up; None if it has arrived. The tree's own directory stays closed."""
    if path == tree:
        return None
    # The second try is for a path that was replaced in between, or for a missing directory above it on the target.
    for last in (False, True):
        seen = look_up(source, path)
        if seen is None:
            return _vanished(path)
        if isinstance(seen, OSError):
            return bad_file(path, seen)
        try:
            target.copy_from(source.root, seen)
        except OSError as error:
            if last or error.errno not in (errno.ENOENT, errno.ESTALE):
                # A file that vanished during its copy is not bad.
                return _vanished(path) if look_up(source, path) is None else bad_file(path, error)
        else:
            return None
        if problem := _make_missing_directories(source, target, tree, path):
            return problem
    raise AssertionError("unreachable")


class _Linker:
    """Makes the links of one chunk. If the first name of a group is missing, the first link takes its place."""

    def __init__(self, under_way: PassUnderWay, tree: bytes) -> None:
        self._source = under_way.world.source
        self._target = under_way.world.target
        self._tree = tree
        self._keeps_links = under_way.capabilities.keeps_hard_links
        self._left_alone = under_way.left_alone
        self._instead: dict[bytes, bytes] = {}

    def make(self, path: bytes, link_to: bytes | None) -> model.FileProblem | None:
        """Link one path to the other if they are one file on the source; otherwise make a copy."""
        existing = None if link_to is None else self._instead.get(link_to, link_to)
        # The user of a tree that is left alone may have written to it on the target: a link would expose that in
        # another tree.
        may_link = existing is not None and not any(is_beneath(existing, tree) for tree in self._left_alone)
        if existing is not None and may_link and self._keeps_links:
            here, there = look_up(self._source, path), look_up(self._source, existing)
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
) -> model.FileProblem | None:
    """Make the directories between a tree and a path that the target lacks, outermost first."""
    missing: list[bytes] = []
    above = parent(path)
    while above != tree and is_beneath(above, tree) and look_up(target, above) is None:
        missing.append(above)
        above = parent(above)
    for directory in reversed(missing):
        seen = look_up(source, directory)
        if seen is None:
            return _vanished(path)
        if isinstance(seen, OSError):
            return bad_file(path, seen)
        try:
            target.copy_from(source.root, seen)
        except OSError as error:
            return bad_file(path, error)
    return None


def _vanished(path: bytes) -> model.FileProblem:
    return model.FileProblem(
        path=path, kind=model.FileProblemKind.VANISHED, errno=errno.ENOENT, reason="gone on the source"
    )
