"""Packing the paths of user trees into chunks, and splitting a chunk. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import cycle, repeat

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import ListedPath
from migrator.core.paths import parent
from migrator.core.states import ChunkKind

# --- Packing: one list per stream, bounded in bytes and files
#
# Listings are streamed: only one open chunk is held, whatever the size of the catalog.


class ChunkLimits(Struct, frozen=True, kw_only=True):
    """Limits of one chunk. A larger file or link group gets a chunk of its own.

    Files with one name, larger than twice `range_size_bytes`, are copied in ranges of about that size by several
    streams at once, unless they are sparse; None: no file is.
    """

    max_bytes: int
    max_files: int
    range_size_bytes: int | None = None


class _Columns(Struct, frozen=True, kw_only=True):
    """Paths of one tree of one batch, as columns of equal length. `links_to` is set for links only. `brick` has the
    files; None if it is unknown.
    """

    batch: int
    kind: ChunkKind
    tree: bytes
    paths: list[bytes]
    sizes_bytes: list[int]
    link_groups: list[int | None]
    links_to: list[bytes | None]
    mtimes_ns: list[int | None]
    brick: str | None = None


class PathSequence(_Columns, frozen=True, kw_only=True):
    """Some consecutive paths.

    Listings of one (batch, kind, tree, brick) follow one another; batches come in order of their number. Files come in
    the order of the scan, which keeps the files of a directory together; in a listing with `grouped`, every path has a
    link group, and the names of a group follow one another (also across listings). `sizes_bytes` are the bytes to copy,
    0 except for regular files. `sparse` are the files that are larger: they are not copied in ranges, which are parts of
    the whole size. `brick` is None also for links and for directories (they are on all bricks).
    """

    grouped: bool
    sparse: frozenset[bytes] = frozenset()


class PackedChunk(_Columns, frozen=True, kw_only=True):
    """A chunk. `number` counts from 1 in its batch; `sizes_bytes` count a link group once:
    the group's further names have 0.

    A chunk of ranges lists one path; its range begins at `range_offset_bytes` and is as long as its size. A file that
    is copied in ranges is also listed in a chunk of ranged files, with a size of 0. In both, `file_sizes_bytes` has the
    sizes of the whole files; it is empty elsewhere.
    """

    number: int
    range_offset_bytes: int | None = None
    file_sizes_bytes: tuple[int, ...] = ()

    @property
    def files(self) -> int:
        """The number of paths. A file in ranges counts in its chunk of ranged files only."""
        return 0 if self.kind is ChunkKind.RANGES else len(self.paths)

    @property
    def size_bytes(self) -> int:
        """Bytes to send, link groups counted once."""
        return sum(self.sizes_bytes)


_Row = tuple[bytes, int, int | None, bytes | None, int | None]


def ranges_of(size_bytes: int, range_size_bytes: int) -> Sequence[tuple[int, int]]:
    """Offset and length of the ranges of a file: of equal size, but the last one includes a small rest."""
    count = max((size_bytes + range_size_bytes // 2) // range_size_bytes, 1)
    offsets = [number * range_size_bytes for number in range(count)]
    return [(offset, end - offset) for offset, end in zip(offsets, [*offsets[1:], size_bytes], strict=True)]


class _OpenChunk:
    """The chunk being filled. Rows from `_unit_start` on are one unit: a directory, or a link group.

    A unit that does not fit moves to the next chunk as a whole; only a directory larger than a chunk is cut.
    """

    def __init__(self, listing: PathSequence, limits: ChunkLimits) -> None:
        self._model = listing
        self._limits = limits
        # Files copied in ranges, pending for the chunk that completes them. Limited by their real sizes, because
        # completing them may require reading them.
        self._ranged: list[_Row] = []
        self._clear()

    def _clear(self) -> None:
        self._rows: list[_Row] = []
        self._bytes = 0
        self._unit_start = 0
        self._unit_bytes = 0
        self._unit: bytes | int | None = None

    def continues(self, listing: PathSequence) -> bool:
        model = self._model
        # Files with one name and link groups may share a chunk: both are units.
        return (listing.batch, listing.kind, listing.tree, listing.brick) == (
            model.batch,
            model.kind,
            model.tree,
            model.brick,
        )

    def take(self, listing: PathSequence) -> Iterator[PackedChunk]:
        if listing.grouped:
            return self._take_groups(listing)
        return self._take_files(listing)

    def _take_files(self, listing: PathSequence) -> Iterator[PackedChunk]:
        max_bytes, max_files = self._limits.max_bytes, self._limits.max_files
        ranged_above = 2 * self._limits.range_size_bytes if self._limits.range_size_bytes else None
        for row in _rows(listing):
            path, size_bytes = row[0], row[1]
            if ranged_above is not None and size_bytes > ranged_above and path not in listing.sparse:
                yield from self._take_ranges(row)
                continue
            if size_bytes > max_bytes:
                # A chunk of its own; the open chunk stays open, so big files between small ones do not make small chunks.
                yield self._chunk([row])
                continue
            directory = parent(path)
            if directory != self._unit:
                self._start_unit(directory)
            while self._rows and (len(self._rows) >= max_files or self._bytes + size_bytes > max_bytes):
                yield self._cut(self._unit_start or len(self._rows))
            self._append(row, size_bytes)

    def _take_ranges(self, row: _Row) -> Iterator[PackedChunk]:
        path, size_bytes, group, link_to, mtime_ns = row
        for offset_bytes, length_bytes in ranges_of(size_bytes, self._limits.range_size_bytes or size_bytes):
            part = self._chunk([(path, length_bytes, group, link_to, mtime_ns)])
            yield replace(part, kind=ChunkKind.RANGES, range_offset_bytes=offset_bytes, file_sizes_bytes=(size_bytes,))
        if self._ranged and (
            len(self._ranged) >= self._limits.max_files
            or sum(one[1] for one in self._ranged) + size_bytes > self._limits.max_bytes
        ):
            yield self._ranged_chunk()
        self._ranged.append(row)

    def _ranged_chunk(self) -> PackedChunk:
        ranged, self._ranged = self._ranged, []
        chunk = self._chunk([(path, 0, group, link_to, mtime_ns) for path, _, group, link_to, mtime_ns in ranged])
        return replace(chunk, kind=ChunkKind.RANGED_FILES, file_sizes_bytes=tuple(row[1] for row in ranged))

    def _take_groups(self, listing: PathSequence) -> Iterator[PackedChunk]:
        max_bytes, max_files = self._limits.max_bytes, self._limits.max_files
        for row in _rows(listing):
            path, size_bytes, group, link_to, mtime_ns = row
            if group != self._unit:
                self._start_unit(group)
            else:
                # The names of a group may disagree when the file grew during the scan: the largest counts.
                size_bytes = max(size_bytes - self._unit_bytes, 0)
            # Cut before the group, never inside it: a larger group exceeds the limits, alone in its chunk.
            if self._unit_start and (len(self._rows) >= max_files or self._bytes + size_bytes > max_bytes):
                yield self._cut(self._unit_start)
            self._append((path, size_bytes, group, link_to, mtime_ns), size_bytes)

    def _start_unit(self, unit: bytes | int | None) -> None:
        self._unit = unit
        self._unit_start = len(self._rows)
        self._unit_bytes = 0

    def _append(self, row: _Row, size_bytes: int) -> None:
        self._rows.append(row)
        self._bytes += size_bytes
        self._unit_bytes += size_bytes

    def _cut(self, count: int) -> PackedChunk:
        chunk = self._chunk(self._rows[:count])
        unit, unit_bytes = self._unit, self._unit_bytes
        left = self._rows[count:]
        self._clear()
        self._rows = left
        self._bytes = sum(row[1] for row in left)
        self._unit = unit
        self._unit_bytes = unit_bytes
        return chunk

    def _chunk(self, rows: Sequence[_Row]) -> PackedChunk:
        paths, sizes_bytes, link_groups, links_to, mtimes_ns = zip(*rows, strict=True)
        return PackedChunk(
            batch=self._model.batch,
            number=0,
            kind=self._model.kind,
            tree=self._model.tree,
            paths=list(paths),
            sizes_bytes=list(sizes_bytes),
            link_groups=list(link_groups),
            links_to=list(links_to),
            mtimes_ns=list(mtimes_ns),
            brick=self._model.brick,
        )

    def close(self) -> Iterator[PackedChunk]:
        if self._ranged:
            yield self._ranged_chunk()
        if self._rows:
            yield self._cut(len(self._rows))


def _rows(listing: PathSequence) -> Iterator[_Row]:
    return zip(
        listing.paths, listing.sizes_bytes, listing.link_groups, listing.links_to, listing.mtimes_ns, strict=True
    )


def _pack_unnumbered(listings: Iterable[PathSequence], limits: ChunkLimits) -> Iterator[PackedChunk]:
    chunk: _OpenChunk | None = None
    for listing in listings:
        if chunk is None or not chunk.continues(listing):
            if chunk is not None:
                yield from chunk.close()
            chunk = _OpenChunk(listing, limits)
        yield from chunk.take(listing)
    if chunk is not None:
        yield from chunk.close()


def pack(listings: Iterable[PathSequence], limits: ChunkLimits, *, bricks: Sequence[str] = ()) -> Iterator[PackedChunk]:
    """Pack listings into chunks, numbered from 1 in each batch, in the order of their completion.

    Every path is in exactly one chunk, except that a chunk of directories is followed by its twin of kind
    `directory_times` with the same list, and that the ranges of a file come before the chunk of ranged files that lists
    it. A chunk holds one tree's paths of one kind and one brick. It is within the limits unless it is one file, or one
    link group, that is larger than they are. Chunks of directories are assigned to `bricks` (those of the catalog) in
    turn, because every directory is on every brick. The same listings give the same chunks. Raises ValueError for
    limits below 1.
    """
    if limits.max_files < 1 or limits.max_bytes < 1 or (limits.range_size_bytes or 1) < 1:
        raise ValueError(f"limits that no chunk can keep: {limits}")
    turns = cycle(bricks) if bricks else repeat(None)
    batch, number = 0, 0
    for chunk in _pack_unnumbered(listings, limits):
        if chunk.batch != batch:
            batch, number = chunk.batch, 0
        number += 1
        if chunk.kind is ChunkKind.DIRECTORIES:
            directories = replace(chunk, number=number, brick=next(turns))
            yield directories
            number += 1
            yield replace(directories, number=number, kind=ChunkKind.DIRECTORY_TIMES)
        else:
            yield replace(chunk, number=number)


# --- Splitting the list of a chunk; link groups stay whole


Paths = tuple[ListedPath, ...]


def units(paths: Sequence[ListedPath]) -> tuple[Paths, ...]:
    """Indivisible units: single paths, and the names of one link group; in order of their first path."""
    found: dict[object, list[ListedPath]] = {}
    for listed in paths:
        found.setdefault(_unit(listed), []).append(listed)
    return tuple(tuple(unit) for unit in found.values())


def divisible(paths: Sequence[ListedPath]) -> bool:
    """True if the list holds more than one unit."""
    return any(_unit(listed) != _unit(paths[0]) for listed in paths)


def _unit(listed: ListedPath) -> object:
    return listed.path if listed.link_group is None else listed.link_group


def halves(paths: Sequence[ListedPath]) -> tuple[Paths, Paths]:
    """Two non-empty lists with about half of the paths each. Raises ValueError if there is only one unit."""
    whole = units(paths)
    if len(whole) < 2:
        raise ValueError("a single unit cannot be split")
    first: list[ListedPath] = []
    index = 0
    while index < len(whole) - 1 and (index == 0 or len(first) + len(whole[index]) <= len(paths) // 2):
        first.extend(whole[index])
        index += 1
    return tuple(first), tuple(listed for unit in whole[index:] for listed in unit)


def set_apart(paths: Sequence[ListedPath], chosen: Collection[bytes]) -> tuple[Paths, Paths]:
    """The rest, and the chosen paths with the other names of their link groups; either may be empty."""
    if not chosen:
        return tuple(paths), ()
    rest: list[ListedPath] = []
    apart: list[ListedPath] = []
    for unit in units(paths):
        (apart if any(listed.path in chosen for listed in unit) else rest).extend(unit)
    return tuple(rest), tuple(apart)


def total_bytes(paths: Sequence[ListedPath]) -> int:
    """Bytes of a list, link groups counted once."""
    return sum(listed.size_bytes for listed in paths)
