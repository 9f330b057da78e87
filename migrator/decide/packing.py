"""Packing the paths of user trees into chunks: a list for one stream each, bounded in bytes and in files.

Everything streams: one open chunk is all that is held, whatever the size of the catalog.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from migrator.domain.paths import parent
from migrator.domain.states import ChunkKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLimits:
    """What one chunk may hold. A file or a link group that is larger gets a chunk of its own."""

    max_bytes: int
    max_files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Some consecutive paths of one tree of one batch, as columns of equal length.

    Listings of one (batch, kind, tree) follow one another; batches come in order of their number. Files come in the
    order of the scan, where a directory's files lie together; in a listing with `grouped` every path has a link
    group, and the names of a group follow one another (also across listings). `sizes_bytes` is 0 for what is no
    regular file. `links_to` is filled in listings of links only.
    """

    batch: int
    kind: ChunkKind
    tree: bytes
    grouped: bool
    paths: list[bytes]
    sizes_bytes: list[int]
    link_groups: list[int | None]
    links_to: list[bytes | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedChunk:
    """A chunk with its paths, as columns. `number` counts from 1 in its batch; `sizes_bytes` count a link group once:
    the group's further names have 0.
    """

    batch: int
    number: int
    kind: ChunkKind
    tree: bytes
    paths: list[bytes]
    sizes_bytes: list[int]
    link_groups: list[int | None]
    links_to: list[bytes | None]

    @property
    def files(self) -> int:
        """How many paths it lists."""
        return len(self.paths)

    @property
    def size_bytes(self) -> int:
        """Bytes to send, link groups counted once."""
        return sum(self.sizes_bytes)


class _OpenChunk:
    """The chunk that is being filled. Rows from `unit_start` on are one unit: a directory, or a link group.

    A unit that does not fit behind the others moves to the next chunk as a whole; only a directory that is larger
    than a chunk is cut.
    """

    def __init__(self, listing: Listing, limits: ChunkLimits) -> None:
        self._model = listing
        self._limits = limits
        self._clear()

    def _clear(self) -> None:
        self._paths: list[bytes] = []
        self._sizes: list[int] = []
        self._groups: list[int | None] = []
        self._links_to: list[bytes | None] = []
        self._bytes = 0
        self._unit_start = 0
        self._unit_bytes = 0
        self._unit: bytes | int | None = None

    def continues(self, listing: Listing) -> bool:
        model = self._model
        # Files with one name and link groups may share a chunk: both are units.
        return listing.batch == model.batch and listing.kind is model.kind and listing.tree == model.tree

    def take(self, listing: Listing) -> Iterator[PackedChunk]:
        if listing.grouped:
            return self._take_groups(listing)
        return self._take_files(listing)

    def _take_files(self, listing: Listing) -> Iterator[PackedChunk]:
        max_bytes, max_files = self._limits.max_bytes, self._limits.max_files
        rows = zip(listing.paths, listing.sizes_bytes, listing.link_groups, listing.links_to, strict=True)
        for path, size_bytes, group, link_to in rows:
            if size_bytes > max_bytes:
                # Alone, and the open chunk stays open: big files between small ones do not make small chunks.
                yield self._chunk([path], [size_bytes], [group], [link_to])
                continue
            directory = parent(path)
            if directory != self._unit:
                self._start_unit(directory)
            while self._paths and (len(self._paths) >= max_files or self._bytes + size_bytes > max_bytes):
                yield self._cut(self._unit_start or len(self._paths))
            self._append(path, size_bytes, group, link_to)

    def _take_groups(self, listing: Listing) -> Iterator[PackedChunk]:
        max_bytes, max_files = self._limits.max_bytes, self._limits.max_files
        rows = zip(listing.paths, listing.sizes_bytes, listing.link_groups, listing.links_to, strict=True)
        for path, row_bytes, group, link_to in rows:
            size_bytes = row_bytes
            if group != self._unit:
                self._start_unit(group)
            else:
                # The names of a group may disagree when the file grew during the scan: the largest counts.
                size_bytes = max(row_bytes - self._unit_bytes, 0)
            # Cut before the group, never inside it: one that is larger than a chunk grows beyond the limits, alone.
            if self._unit_start and (len(self._paths) >= max_files or self._bytes + size_bytes > max_bytes):
                yield self._cut(self._unit_start)
            self._append(path, size_bytes, group, link_to)

    def _start_unit(self, unit: bytes | int | None) -> None:
        self._unit = unit
        self._unit_start = len(self._paths)
        self._unit_bytes = 0

    def _append(self, path: bytes, size_bytes: int, group: int | None, link_to: bytes | None) -> None:
        self._paths.append(path)
        self._sizes.append(size_bytes)
        self._groups.append(group)
        self._links_to.append(link_to)
        self._bytes += size_bytes
        self._unit_bytes += size_bytes

    def _cut(self, count: int) -> PackedChunk:
        chunk = self._chunk(self._paths[:count], self._sizes[:count], self._groups[:count], self._links_to[:count])
        unit, unit_bytes = self._unit, self._unit_bytes
        left = self._paths[count:], self._sizes[count:], self._groups[count:], self._links_to[count:]
        self._clear()
        self._paths, self._sizes, self._groups, self._links_to = left
        self._bytes = sum(self._sizes)
        self._unit = unit
        self._unit_bytes = unit_bytes
        return chunk

    def _chunk(
        self,
        paths: list[bytes],
        sizes_bytes: list[int],
        link_groups: list[int | None],
        links_to: list[bytes | None],
    ) -> PackedChunk:
        return PackedChunk(
            batch=self._model.batch,
            number=0,
            kind=self._model.kind,
            tree=self._model.tree,
            paths=paths,
            sizes_bytes=sizes_bytes,
            link_groups=link_groups,
            links_to=links_to,
        )

    def close(self) -> Iterator[PackedChunk]:
        if self._paths:
            yield self._cut(len(self._paths))


def _pack_unnumbered(listings: Iterable[Listing], limits: ChunkLimits) -> Iterator[PackedChunk]:
    chunk: _OpenChunk | None = None
    for listing in listings:
        if chunk is None or not chunk.continues(listing):
            if chunk is not None:
                yield from chunk.close()
            chunk = _OpenChunk(listing, limits)
        yield from chunk.take(listing)
    if chunk is not None:
        yield from chunk.close()


def pack(listings: Iterable[Listing], limits: ChunkLimits) -> Iterator[PackedChunk]:
    """Pack listings into chunks, numbered from 1 in every batch, in the order in which they are complete.

    Every path is in exactly one chunk, except that a chunk of directories is followed by its twin of kind
    `directory_times` with the same list. A chunk holds one tree's paths of one kind. It is within the limits unless
    it is one file, or one link group, that is larger than they are. The same listings give the same chunks.
    """
    if limits.max_files < 1 or limits.max_bytes < 1:
        raise ValueError(f"limits that no chunk can keep: {limits}")
    batch, number = 0, 0
    for chunk in _pack_unnumbered(listings, limits):
        if chunk.batch != batch:
            batch, number = chunk.batch, 0
        number += 1
        yield replace(chunk, number=number)
        if chunk.kind is ChunkKind.DIRECTORIES:
            number += 1
            yield replace(chunk, number=number, kind=ChunkKind.DIRECTORY_TIMES)
