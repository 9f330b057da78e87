"""Archives that plain tar and zstd can read, with a Parquet index."""

import hashlib
import io
import json
import tarfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.columns import Columns
from migrator.catalog.model import ArchivedMember
from migrator.core.entry import ACL_ACCESS, Entry, EntryType
from migrator.core.errors import Refused
from migrator.core.paths import is_beneath, join, show
from migrator.core.units import NS_PER_S
from migrator.fs.acl import acl_text, parse_acl
from migrator.fs.reading import DIGEST_ALGORITHMS
from migrator.reap import model
from migrator.reap.files import OpenMember

# --- Archives
#
# The tar is in pax format, in zstd frames, with names as bytes relative to the tree. Each frame can be decompressed
# alone and holds some MiB of content, so reading one member does not read those before it. The index has a row for each
# member, in order of path, with the digest of its content, and a table of the frames with their digests: a frame is
# checked before it is decompressed.


_LEVEL = 1
"""The fastest zstd level that compresses well, so the source's disks stay the bottleneck."""
_FRAME_DIGEST_BYTES = 16
DIGEST_BYTES = 32

AGAIN = (
    "before the switch, run `migrator reap archive`: it makes the archive again from the source; after the switch, restore the "
    "archive from a backup of the target, and purge nothing until then"
)


class Damaged(Exception):
    """The bytes differ from those that were written."""


class TarDraft:
    """An archive of files of one user tree in progress, in two empty files. Memory grows with the number of members."""

    def __init__(self, tree: bytes, archive: BinaryIO, index: BinaryIO, *, algorithm: str, frame_bytes: int) -> None:
        self._tree = tree
        self._writer = ArchiveFrameWriter(archive, frame_bytes)
        self._index = index
        self._algorithm = algorithm
        self._members: list[ArchivedMember] = []
        self.content_bytes = 0

    @property
    def members(self) -> int:
        return len(self._members)

    def add(self, member: OpenMember, *, gfid: bytes | None = None) -> model.LeftOut | None:
        """Add one member. A file that changes while it is read leaves no trace. Raises OSError only for the archive's own file."""
        entry = replace(member.entry, gfid=gfid)
        mark = None if member.is_held else self._writer.mark()
        self._writer.write(_header(self._tree, entry))
        offset_bytes = self._writer.position_bytes
        pieces = member.pieces()
        while True:
            # Errors of the archive's own file are not caught: they concern more than this member.
            try:
                piece = next(pieces, b"")
                digest = b"" if piece else member.finish()
            except OSError as error:
                detail = error.strerror or str(error)
                digest = model.LeftOut(path=entry.path, reason=model.LeftOutReason.UNREADABLE, detail=detail)
                break
            if not piece:
                break
            self._writer.write(piece)
        if isinstance(digest, model.LeftOut):
            if mark is None:
                raise RuntimeError("a member that was checked has changed")
            self._writer.back_to(mark)
            return digest
        self._writer.write(bytes(-entry.size_bytes % tarfile.BLOCKSIZE))
        self._members.append(ArchivedMember(entry=entry, digest=digest, offset_bytes=offset_bytes))
        self.content_bytes += entry.size_bytes
        return None

    def close(self) -> model.WrittenArchive:
        """Write the end of the archive, and its index."""
        self._writer.write(_end(self._writer.position_bytes))
        self._writer.cut()
        content = _encode_index(self._tree, self._members, algorithm=self._algorithm, frames=self._writer.frames)
        self._index.write(content)
        return model.WrittenArchive(
            members=self.members,
            content_bytes=self.content_bytes,
            archive_bytes=self._writer.stored_bytes,
            index_bytes=len(content),
            archive_digest=self._writer.digest.hexdigest(),
            index_digest=digest_of(content),
        )


class TarIndex:
    """The index of one archive, in memory (some hundred bytes per member). The digest of `content` is in the ledger."""

    def __init__(self, record: model.ArchiveRecord, content: bytes) -> None:
        self.record = record
        table = pq.read_table(io.BytesIO(content), use_threads=False)
        metadata = table.schema.metadata or {}
        if metadata.get(_FORM) != _FORM_VALUE or not table.schema.equals(_ROWS.schema):
            raise unusable(record, model.index_name(record.number), "it has another form")
        self._algorithm = metadata[_ALGORITHM].decode()
        self._frames = [ArchiveFrame(*row) for row in json.loads(metadata[_FRAMES])]
        self._table = table.combine_chunks()
        # Converted once: a million paths are looked up while a user is frozen.
        self._names = cast("list[bytes]", self._table.column("path").to_pylist())
        self._reader: tuple[BinaryIO, ArchiveFrameReader] | None = None

    def find(self, paths: Iterable[bytes]) -> Mapping[bytes, ArchivedMember]:
        """Find paths, relative to the source's root, in the archive."""
        tree = self.record.tree
        rows: dict[bytes, int] = {}
        for path in paths:
            if is_beneath(path, tree) and path != tree:
                name = _within(tree, path)
                row = bisect_left(self._names, name)
                if row < len(self._names) and self._names[row] == name:
                    rows[path] = row
        taken = self._table.take(pa.array(rows.values(), pa.int64()))
        return dict(zip(rows, self._members(taken), strict=True))

    def paths(self) -> Iterator[bytes]:
        """All its paths, in order."""
        return (join(self.record.tree, name) for name in self._names)

    def content(self, archive: BinaryIO, member: ArchivedMember) -> Iterator[bytes]:
        """The content of a member; reads only the frames that hold it. One call at a time. Raises Refused, at the
        latest after the last piece, if it differs from what was archived.
        """
        # Tiny files share frames: keep the last one for the next file.
        if self._reader is None or self._reader[0] is not archive:
            self._reader = (archive, ArchiveFrameReader(archive, self._frames))
        try:
            yield from self._content(self._reader[1], member)
        except Damaged as error:
            raise unusable(self.record, model.archive_name(self.record.number), str(error)) from error

    def check(self, archive: BinaryIO) -> None:
        """Read the content of every member of an archive, and compare it with its digest. Raises Damaged."""
        reader = ArchiveFrameReader(archive, self._frames)
        offsets: list[Any] = self._table.column("offset").to_pylist()
        order = sorted(range(len(offsets)), key=offsets.__getitem__)
        for start in range(0, len(order), _ROWS_AT_ONCE):
            for member in self._members(self._table.take(pa.array(order[start : start + _ROWS_AT_ONCE]))):
                for _ in self._content(reader, member):
                    pass

    def _content(self, reader: "ArchiveFrameReader", member: ArchivedMember) -> Iterator[bytes]:
        hasher = DIGEST_ALGORITHMS[self._algorithm]()
        for piece in reader.pieces(member.offset_bytes, member.entry.size_bytes):
            hasher.update(memoryview(piece))
            yield piece
        if hasher.digest() != member.digest:
            raise Damaged(f"the content of {show(member.entry.path)} is not what was archived")

    def _members(self, rows: "pa.Table") -> Iterator[ArchivedMember]:
        tree = self.record.tree
        for row in rows.to_pylist():
            digest, offset_bytes = row.pop("digest"), row.pop("offset")
            row |= {"path": join(tree, row["path"]), "xattrs": dict(row["xattrs"]), "size_bytes": row.pop("size")}
            yield ArchivedMember(
                entry=Entry(**row, type=EntryType.FILE, rdev=0, nlink=1),
                digest=digest,
                offset_bytes=offset_bytes,
                archive=self.record.number,
                algorithm=self._algorithm,
            )


# The index.

_ROWS: Columns[ArchivedMember] = Columns(
    """
    path:binary=entry.path size:int64=entry.size_bytes blocks:int64=entry.blocks mtime_ns:int64=entry.mtime_ns
    ctime_ns:int64=entry.ctime_ns atime_ns:int64=entry.atime_ns uid:int64=entry.uid gid:int64=entry.gid
    mode:int32=entry.mode dev:uint64=entry.dev ino:uint64=entry.ino gfid:binary?=entry.gfid xattrs:map digest:binary
    offset:int64=offset_bytes
    """,
    xattrs=lambda member: sorted(member.entry.xattrs.items()),
)
"""`path` is relative to the tree, as in the tar. The content begins at `offset` in the uncompressed tar."""

_ROWS_AT_ONCE = 4096
_FORM = b"migrator.form"
_FORM_VALUE = b"1"
_ALGORITHM = b"migrator.digest"
_FRAMES = b"migrator.frames"


def _encode_index(
    tree: bytes, members: Iterable[ArchivedMember], *, algorithm: str, frames: "Sequence[ArchiveFrame]"
) -> bytes:
    rows = sorted(members, key=lambda member: member.entry.path)
    table = [[frame.size_bytes, frame.stored_bytes, frame.digest] for frame in frames]
    metadata = {
        _FORM: _FORM_VALUE,
        _ALGORITHM: algorithm.encode(),
        _FRAMES: json.dumps(table, separators=(",", ":")).encode(),
    }
    sink = io.BytesIO()
    batch = _ROWS.batch(rows, path=[_within(tree, member.entry.path) for member in rows])
    arrow = pa.Table.from_batches([batch]).replace_schema_metadata(metadata)
    pq.write_table(arrow, sink, compression="zstd", row_group_size=100_000)
    return sink.getvalue()


# The tar.


def _header(tree: bytes, entry: Entry) -> bytes:
    """The header of a member: its pax records, then its own block. Deterministic. Attributes and ACLs are written as
    GNU tar 1.34 does, so it can restore them.
    """
    made = tarfile.TarInfo(_text(_within(tree, entry.path)))
    made.size = entry.size_bytes
    made.mode, made.uid, made.gid, made.mtime = entry.mode, entry.uid, entry.gid, entry.mtime_ns // NS_PER_S
    records = {"mtime": _seconds(entry.mtime_ns), "atime": _seconds(entry.atime_ns)}
    for key, value in sorted(entry.xattrs.items()):
        entries = parse_acl(value) if key == ACL_ACCESS else None
        if entries is not None:
            records["SCHILY.acl.access"] = acl_text(entries)
        else:
            # The key of a pax record must be UTF-8; the index has the name as it is.
            name = key.replace(b"%", b"%25").replace(b"=", b"%3D").decode("utf-8", "backslashreplace")
            records[f"SCHILY.xattr.{name}"] = _text(value)
    made.pax_headers = records
    return made.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _end(position_bytes: int) -> bytes:
    """At least two blocks of zeros, up to a whole record, as GNU tar ends an archive."""
    position_bytes += 2 * tarfile.BLOCKSIZE
    return bytes(2 * tarfile.BLOCKSIZE + -position_bytes % tarfile.RECORDSIZE)


def _seconds(time_ns: int) -> str:
    seconds, rest = divmod(abs(time_ns), NS_PER_S)
    return ("-" if time_ns < 0 else "") + (f"{seconds}.{rest:09d}" if rest else str(seconds))


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _within(tree: bytes, path: bytes) -> bytes:
    return path[len(tree) + 1 :] if tree else path


# The frames.


class ArchiveFrame(Struct, frozen=True):
    """One frame: its content and stored bytes, and the BLAKE2b digest of the latter."""

    size_bytes: int
    stored_bytes: int
    digest: str


class ArchiveFrameWriter:
    """Writes content as frames to `stream`, an empty file. After `cut`, `stored_bytes` is the length of the file and
    `digest` that of all its bytes.
    """

    def __init__(self, stream: BinaryIO, frame_bytes: int) -> None:
        self._stream = stream
        self._frame_bytes = frame_bytes
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
        self._buffer = bytearray()
        self.position_bytes = 0
        self.stored_bytes = 0
        self.digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        self.frames: list[ArchiveFrame] = []

    def write(self, content: bytes) -> None:
        """Take content."""
        self._buffer += content
        self.position_bytes += len(content)
        while len(self._buffer) >= self._frame_bytes:
            self._put(self._frame_bytes)

    def cut(self) -> None:
        """End the frame; the next content begins another one."""
        if self._buffer:
            self._put(len(self._buffer))

    def mark(self) -> tuple[int, int, int, "hashlib.blake2b"]:
        """End the frame, and remember this place for `back_to`."""
        self.cut()
        return len(self.frames), self.position_bytes, self.stored_bytes, self.digest.copy()

    def back_to(self, mark: tuple[int, int, int, "hashlib.blake2b"]) -> None:
        """Undo all writes since a mark. Each mark can be used once."""
        frames, self.position_bytes, self.stored_bytes, self.digest = mark
        self._buffer.clear()
        del self.frames[frames:]
        self._stream.flush()
        self._stream.seek(self.stored_bytes)
        self._stream.truncate()

    def _put(self, size_bytes: int) -> None:
        stored = self._compressor.compress(bytes(self._buffer[:size_bytes]))
        del self._buffer[:size_bytes]
        self._stream.write(stored)
        self.digest.update(stored)
        self.stored_bytes += len(stored)
        self.frames.append(ArchiveFrame(size_bytes, len(stored), digest_of(stored, _FRAME_DIGEST_BYTES)))


class ArchiveFrameReader:
    """Reads content from any offset; keeps the last frame. Raises Damaged if a frame differs from the one written."""

    def __init__(self, stream: BinaryIO, frames: Sequence[ArchiveFrame]) -> None:
        self._stream = stream
        self._frames = frames
        self._begins: list[tuple[int, int]] = []
        size_bytes = stored_bytes = 0
        for frame in frames:
            self._begins.append((size_bytes, stored_bytes))
            size_bytes += frame.size_bytes
            stored_bytes += frame.stored_bytes
        self._held: tuple[int, bytes] = (-1, b"")

    def pieces(self, offset_bytes: int, size_bytes: int) -> Iterator[bytes]:
        """Yield a range of the content."""
        number = bisect_right(self._begins, offset_bytes, key=lambda begin: begin[0]) - 1
        while size_bytes > 0:
            if not 0 <= number < len(self._frames):
                raise Damaged("it ends too early")
            start = offset_bytes - self._begins[number][0]
            piece = self._frame(number)[start : start + size_bytes]
            yield piece
            offset_bytes += len(piece)
            size_bytes -= len(piece)
            number += 1

    def _frame(self, number: int) -> bytes:
        if self._held[0] != number:
            frame = self._frames[number]
            self._stream.seek(self._begins[number][1])
            stored = self._stream.read(frame.stored_bytes)
            if digest_of(stored, _FRAME_DIGEST_BYTES) != frame.digest:
                raise Damaged(f"frame {number + 1} of {len(self._frames)} is not the one that was written")
            self._held = (number, zstandard.ZstdDecompressor().decompress(stored))
        return self._held[1]


def digest_of(content: bytes, digest_bytes: int = DIGEST_BYTES) -> str:
    """The BLAKE2b digest of some bytes, in hexadecimal."""
    return hashlib.blake2b(content, digest_size=digest_bytes).hexdigest()


def unusable(record: model.ArchiveRecord, name: bytes, why: str) -> Refused:
    """The refusal of a file of an archive that differs from the ledger."""
    return Refused(
        f"{show(name)} of the archives of {show(record.tree)} on the target cannot be used: {why}",
        cause="it was changed or damaged since it was written",
        hint=AGAIN,
    )
