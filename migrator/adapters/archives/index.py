"""The index of an archive: one Parquet file with a row for every member, in order of path, and the table of frames."""

import io
import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

import pyarrow as pa
import pyarrow.parquet as pq

from migrator.adapters.archives.frames import Damaged, Frame
from migrator.domain.archives import ArchivedMember
from migrator.domain.entry import Entry, EntryType
from migrator.domain.paths import join

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("path", pa.binary(), nullable=False),
    pa.field("type", pa.string(), nullable=False),
    pa.field("size", pa.int64(), nullable=False),
    pa.field("blocks", pa.int64(), nullable=False),
    pa.field("mtime_ns", pa.int64(), nullable=False),
    pa.field("ctime_ns", pa.int64(), nullable=False),
    pa.field("atime_ns", pa.int64(), nullable=False),
    pa.field("uid", pa.int64(), nullable=False),
    pa.field("gid", pa.int64(), nullable=False),
    pa.field("mode", pa.int32(), nullable=False),
    pa.field("dev", pa.uint64(), nullable=False),
    pa.field("rdev", pa.uint64(), nullable=False),
    pa.field("ino", pa.uint64(), nullable=False),
    pa.field("gfid", pa.binary()),
    pa.field("nlink", pa.int64(), nullable=False),
    pa.field("link_group", pa.uint64()),
    pa.field("link_to", pa.binary()),
    pa.field("symlink_target", pa.binary()),
    pa.field("xattrs", pa.map_(pa.binary(), pa.binary()), nullable=False),
    pa.field("digest", pa.binary()),
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("data_offset", pa.int64(), nullable=False),
]
INDEX_SCHEMA = pa.schema(_FIELDS)
"""`path`, `link_to` (the first name of the same file in the archive) are relative to the tree, as in the tar. `offset` and
`data_offset` count in the uncompressed tar."""

_ROWS_AT_ONCE = 4096
_FORM = b"migrator.form"
_FORM_VALUE = b"1"
_ALGORITHM = b"migrator.digest"
_FRAMES = b"migrator.frames"


class Hash(Protocol):
    """A digest in the making."""

    def update(self, data: memoryview, /) -> None: ...

    def digest(self) -> bytes: ...


HashMakers = Mapping[str, Callable[[], Hash]]
"""The algorithms of content digests, by the names that [verify] digest takes."""


def encode_index(tree: bytes, members: Iterable[ArchivedMember], *, algorithm: str, frames: Sequence[Frame]) -> bytes:
    """The bytes of an index."""
    cut = len(tree) + 1 if tree else 0
    rows = [_row(member, cut) for member in members]
    rows.sort(key=lambda row: row["path"])
    table = [[frame.size_bytes, frame.stored_bytes, frame.digest] for frame in frames]
    metadata = {
        _FORM: _FORM_VALUE,
        _ALGORITHM: algorithm.encode(),
        _FRAMES: json.dumps(table, separators=(",", ":")).encode(),
    }
    sink = io.BytesIO()
    arrow = pa.Table.from_pylist(rows, schema=INDEX_SCHEMA.with_metadata(metadata))
    pq.write_table(arrow, sink, compression="zstd", row_group_size=100_000)
    return sink.getvalue()


class DecodedIndex:
    """An index in memory."""

    def __init__(self, tree: bytes, content: bytes, *, archive: int) -> None:
        """Raises Damaged where the bytes are no index of this form."""
        self._tree = tree
        self._archive = archive
        try:
            table = pq.read_table(io.BytesIO(content), use_threads=False, page_checksum_verification=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise Damaged(str(error)) from error
        metadata = table.schema.metadata or {}
        if metadata.get(_FORM) != _FORM_VALUE or not table.schema.equals(INDEX_SCHEMA):
            raise Damaged("it has another form")
        self.algorithm = metadata[_ALGORITHM].decode()
        self.frames = _frames(json.loads(metadata[_FRAMES]))
        self._table = table.combine_chunks()
        self._paths: Any = self._table.column("path").chunk(0) if len(table) else pa.array([], pa.binary())
        # Asked a million times while a user is frozen: Arrow's own values cost more than all the rest.
        self._starts, self._names = _binary(cast("pa.Array[Any]", self._paths))
        self._columns: dict[str, Any] = {
            name: self._table.column(name).chunk(0) for name in self._table.column_names if len(table)
        }

    def __len__(self) -> int:
        return len(self._paths)

    def name(self, number: int) -> bytes:
        """The path of a row, relative to the tree."""
        return bytes(self._names[self._starts[number] : self._starts[number + 1]])

    def row_of(self, name: bytes) -> int | None:
        """The row of a path that is relative to the tree."""
        place = bisect_left(range(len(self)), name, key=self.name)
        return place if place < len(self) and self.name(place) == name else None

    def member(self, number: int) -> ArchivedMember:
        """The member of a row."""
        return self._member({name: column[number].as_py() for name, column in self._columns.items()})

    def by_offset(self) -> Iterator[ArchivedMember]:
        """All members, in the order of the tar."""
        offsets: Any = self._table.column("offset").to_pylist()
        order = sorted(range(len(offsets)), key=lambda number: offsets[number])
        for start in range(0, len(order), _ROWS_AT_ONCE):
            for row in self._table.take(pa.array(order[start : start + _ROWS_AT_ONCE])).to_pylist():
                yield self._member(row)

    def _member(self, row: Mapping[str, Any]) -> ArchivedMember:
        return _member(row, self._tree, self._archive, self.algorithm)


def _binary(column: "pa.Array[Any]") -> tuple[memoryview, memoryview]:
    """Where each value begins, with the end of the last, and all values."""
    _, offsets, values = column.buffers()
    if offsets is None or values is None:
        return memoryview(b"\0" * 8).cast("i"), memoryview(b"")
    starts = memoryview(offsets).cast("B").cast("i")[column.offset : column.offset + len(column) + 1]
    return starts, memoryview(values).cast("B")


def _row(member: ArchivedMember, cut: int) -> dict[str, Any]:
    entry = member.entry
    return {
        "path": entry.path[cut:],
        "type": entry.type.value,
        "size": entry.size_bytes,
        "blocks": entry.blocks,
        "mtime_ns": entry.mtime_ns,
        "ctime_ns": entry.ctime_ns,
        "atime_ns": entry.atime_ns,
        "uid": entry.uid,
        "gid": entry.gid,
        "mode": entry.mode,
        "dev": entry.dev,
        "rdev": entry.rdev,
        "ino": entry.ino,
        "gfid": entry.gfid,
        "nlink": entry.nlink,
        "link_group": entry.link_group,
        "link_to": None if member.link_to is None else member.link_to[cut:],
        "symlink_target": entry.symlink_target,
        "xattrs": sorted(entry.xattrs.items()),
        "digest": member.digest,
        "offset": member.offset_bytes,
        "data_offset": member.data_offset_bytes,
    }


def _member(row: Mapping[str, Any], tree: bytes, archive: int, algorithm: str) -> ArchivedMember:
    entry = Entry(
        path=join(tree, row["path"]),
        type=EntryType(row["type"]),
        size_bytes=row["size"],
        blocks=row["blocks"],
        uid=row["uid"],
        gid=row["gid"],
        mode=row["mode"],
        mtime_ns=row["mtime_ns"],
        atime_ns=row["atime_ns"],
        ctime_ns=row["ctime_ns"],
        dev=row["dev"],
        rdev=row["rdev"],
        ino=row["ino"],
        nlink=row["nlink"],
        symlink_target=row["symlink_target"],
        gfid=row["gfid"],
        xattrs=dict(row["xattrs"]),
    )
    return ArchivedMember(
        entry=entry,
        digest=row["digest"],
        offset_bytes=row["offset"],
        data_offset_bytes=row["data_offset"],
        link_to=None if row["link_to"] is None else join(tree, row["link_to"]),
        archive=archive,
        algorithm=algorithm,
    )


def _frames(table: Sequence[tuple[int, int, str]]) -> list[Frame]:
    frames: list[Frame] = []
    offset_bytes = stored_offset_bytes = 0
    for size_bytes, stored_bytes, digest in table:
        frames.append(
            Frame(
                offset_bytes=offset_bytes,
                size_bytes=size_bytes,
                stored_offset_bytes=stored_offset_bytes,
                stored_bytes=stored_bytes,
                digest=digest,
            )
        )
        offset_bytes += size_bytes
        stored_offset_bytes += stored_bytes
    return frames
