"""Archives that plain tar and zstd read: writing, reading back, and reading single members."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import BinaryIO

from migrator.adapters.archives.frames import FRAME_BYTES, Damaged, FrameReader, FrameWriter
from migrator.adapters.archives.index import DecodedIndex, HashMakers, encode_index
from migrator.adapters.archives.pax import ARCHIVED_TYPES, content_bytes, end, header, padding
from migrator.domain.archives import (
    ArchivedMember,
    ArchiveRecord,
    LeftOut,
    LeftOutReason,
    WrittenArchive,
    archive_directory,
    archive_name,
    index_name,
)
from migrator.domain.entry import Entry, EntryType
from migrator.domain.errors import Refused
from migrator.domain.paths import is_beneath, join, show
from migrator.ports.archives import OpenMember

_READ_BYTES = 1024 * 1024
_DIGEST_BYTES = 32


class TarArchives:
    """The `ArchiveFormat` port: tar in pax format, in zstd frames. `algorithm` is what members are digested with."""

    def __init__(self, hashes: HashMakers, *, algorithm: str, frame_bytes: int = FRAME_BYTES) -> None:
        self._hashes = hashes
        self._algorithm = algorithm
        self._frame_bytes = frame_bytes

    def begin(self, tree: bytes, archive: BinaryIO, index: BinaryIO) -> "TarDraft":
        """Begin an archive in two empty files."""
        writer = FrameWriter(archive, frame_bytes=self._frame_bytes)
        return TarDraft(tree, writer, index, algorithm=self._algorithm)

    def index(self, record: ArchiveRecord, stored: BinaryIO) -> "TarIndex":
        """Read an index, as the port says."""
        content = stored.read(record.written.index_bytes + 1)
        if _digest(content) != record.written.index_digest:
            raise _damaged(record, index_name(record.number), "it is not the one that was written")
        try:
            decoded = DecodedIndex(record.tree, content, archive=record.number)
        except Damaged as error:
            raise _damaged(record, index_name(record.number), str(error)) from error
        return TarIndex(record, decoded, self._hashes)

    def read_back(self, record: ArchiveRecord, archive: BinaryIO, index: BinaryIO) -> str:
        """Compare an archive with its index, as the port says."""
        try:
            found = self.index(record, index)
            digest, size_bytes = _file_digest(archive)
            if (digest, size_bytes) != (record.written.archive_digest, record.written.archive_bytes):
                return "the archive is not the one that was written"
            found.check_all(archive)
        except Damaged as error:
            return f"the archive: {error}"
        except Refused as refused:
            return refused.message
        return ""


class TarDraft:
    """The `ArchiveDraft` port. Names in the tar are relative to the tree. What is held grows with the members."""

    def __init__(self, tree: bytes, writer: FrameWriter, index: BinaryIO, *, algorithm: str) -> None:
        self._tree = tree
        self._writer = writer
        self._index = index
        self._algorithm = algorithm
        self._members: list[ArchivedMember] = []
        self._first_names: dict[tuple[int, int], ArchivedMember] = {}
        self._content_bytes = 0

    @property
    def members(self) -> int:
        """How many there are."""
        return len(self._members)

    @property
    def content_bytes(self) -> int:
        """How much content they have."""
        return self._content_bytes

    def add(self, member: OpenMember, *, gfid: bytes | None = None) -> LeftOut | None:
        """Take one member, as the port says."""
        entry = member.entry
        try:
            if entry.type not in ARCHIVED_TYPES:
                return LeftOut(path=entry.path, reason=LeftOutReason.NOT_POSSIBLE, detail=f"a {entry.type.value}")
            first = self._first_names.get((entry.dev, entry.ino)) if entry.link_group is not None else None
            if first is not None and _is_same(first.entry, entry):
                return self._add_link(member, first, gfid)
            return self._add_content(member, gfid)
        finally:
            member.close()

    def close(self) -> WrittenArchive:
        """Write the end, and the index."""
        self._writer.write(end(self._writer.position_bytes))
        self._writer.cut()
        content = encode_index(self._tree, self._members, algorithm=self._algorithm, frames=self._writer.frames)
        self._index.write(content)
        return WrittenArchive(
            members=self.members,
            content_bytes=self.content_bytes,
            archive_bytes=self._writer.stored_bytes,
            index_bytes=len(content),
            archive_digest=self._writer.file_digest,
            index_digest=_digest(content),
        )

    def _add_link(self, member: OpenMember, first: ArchivedMember, gfid: bytes | None) -> LeftOut | None:
        digest = member.finish()
        if isinstance(digest, LeftOut):
            return digest
        made = self._member(member.entry, digest, gfid, first=first)
        self._writer.write(_header(self._tree, made))
        self._members.append(made)
        return None

    def _add_content(self, member: OpenMember, gfid: bytes | None) -> LeftOut | None:
        entry = member.entry
        mark = None if member.is_checked else self._writer.mark()
        made = self._member(entry, None, gfid)
        self._writer.write(_header(self._tree, made))
        written_bytes = 0
        failed: OSError | None = None
        pieces = member.pieces()
        while True:
            # Errors of the archive's own file are not caught: they are no reason to leave a member out.
            try:
                piece = next(pieces, b"")
            except OSError as error:
                failed = error
                break
            if not piece:
                break
            self._writer.write(piece)
            written_bytes += len(piece)
        digest = _unreadable(entry, failed) if failed else member.finish()
        if not isinstance(digest, LeftOut) and written_bytes != content_bytes(entry):
            digest = LeftOut(path=entry.path, reason=LeftOutReason.CHANGED, detail="its size changed")
        if isinstance(digest, LeftOut):
            if mark is None:
                raise RuntimeError("a member that was checked has changed")
            self._writer.back_to(mark)
            return digest
        self._writer.write(padding(written_bytes))
        whole = self._member(entry, digest, gfid, at=made)
        self._members.append(whole)
        self._content_bytes += written_bytes
        if entry.link_group is not None:
            self._first_names[entry.dev, entry.ino] = whole
        return None

    def _member(
        self,
        entry: Entry,
        digest: bytes | None,
        gfid: bytes | None,
        *,
        first: ArchivedMember | None = None,
        at: ArchivedMember | None = None,
    ) -> ArchivedMember:
        offset_bytes = self._writer.position_bytes if at is None else at.offset_bytes
        known = Entry(**{name: getattr(entry, name) for name in Entry.__slots__} | {"gfid": gfid})
        made = ArchivedMember(
            entry=known,
            digest=digest,
            offset_bytes=offset_bytes,
            data_offset_bytes=0,
            link_to=None if first is None else first.entry.path,
        )
        data_offset_bytes = (
            first.data_offset_bytes if first is not None else offset_bytes + len(_header(self._tree, made))
        )
        return ArchivedMember(
            entry=known,
            digest=digest,
            offset_bytes=offset_bytes,
            data_offset_bytes=data_offset_bytes,
            link_to=made.link_to,
        )


class TarIndex:
    """The `ArchiveIndex` port."""

    def __init__(self, record: ArchiveRecord, decoded: DecodedIndex, hashes: HashMakers) -> None:
        self._record = record
        self._decoded = decoded
        self._hashes = hashes
        self._reader: tuple[BinaryIO, FrameReader] | None = None

    def find(self, paths: Iterable[bytes]) -> Mapping[bytes, ArchivedMember]:
        """Those of the paths that are in the archive."""
        tree = self._record.tree
        cut = len(tree) + 1 if tree else 0
        found: dict[bytes, ArchivedMember] = {}
        for path in paths:
            if is_beneath(path, tree) and path != tree:
                row = self._decoded.row_of(path[cut:])
                if row is not None:
                    found[path] = self._decoded.member(row)
        return found

    def paths(self) -> Iterator[bytes]:
        """All its paths, in order."""
        for number in range(len(self._decoded)):
            yield join(self._record.tree, self._decoded.name(number))

    def content(self, archive: BinaryIO, member: ArchivedMember) -> Iterator[bytes]:
        """The content of a member, as the port says. One at a time."""
        try:
            yield from self._content(self._reader_of(archive), member)
        except Damaged as error:
            raise _damaged(self._record, archive_name(self._record.number), str(error)) from error

    def _reader_of(self, archive: BinaryIO) -> FrameReader:
        # Tiny files lie together: the frame that one was read from is held for the next one.
        if self._reader is None or self._reader[0] is not archive:
            self._reader = (archive, FrameReader(archive, self._decoded.frames))
        return self._reader[1]

    def check_all(self, archive: BinaryIO) -> None:
        """Compare the whole archive with the index, byte for byte but for the content, which is digested. Raises Damaged."""
        reader = FrameReader(archive, self._decoded.frames)
        position_bytes = members = content = 0
        for member in self._decoded.by_offset():
            entry = member.entry
            wanted = _header(self._record.tree, member)
            if member.offset_bytes != position_bytes or reader.read(position_bytes, len(wanted)) != wanted:
                raise Damaged(f"{show(entry.path)} is not described as in the index")
            position_bytes += len(wanted)
            if member.link_to is None:
                if member.data_offset_bytes != position_bytes:
                    raise Damaged(f"{show(entry.path)} does not begin where the index says")
                size_bytes = content_bytes(entry)
                position_bytes += size_bytes
                content += size_bytes
                gap = padding(size_bytes)
                if reader.read(position_bytes, len(gap)) != gap:
                    raise Damaged(f"something else than zeros follows {show(entry.path)}")
                position_bytes += len(gap)
            for _ in self._content(reader, member):
                pass
            members += 1
        last = end(position_bytes)
        if reader.read(position_bytes, len(last)) != last:
            raise Damaged("it does not end as a tar does")
        frames = self._decoded.frames
        if frames[-1].offset_bytes + frames[-1].size_bytes != position_bytes + len(last):
            raise Damaged("something follows its end")
        if (members, content) != (self._record.written.members, self._record.written.content_bytes):
            raise Damaged("the ledger has other sums than its index")

    def _content(self, reader: FrameReader, member: ArchivedMember) -> Iterator[bytes]:
        entry = member.entry
        if entry.type is not EntryType.FILE:
            return
        algorithm = self._decoded.algorithm
        if algorithm not in self._hashes:
            raise Damaged(f"its digests are of an unknown algorithm, {algorithm!r}")
        hasher = self._hashes[algorithm]()
        for piece in reader.pieces(member.data_offset_bytes, entry.size_bytes):
            hasher.update(memoryview(piece))
            yield piece
        if hasher.digest() != member.digest:
            raise Damaged(f"the content of {show(entry.path)} is not what was archived")


def _header(tree: bytes, member: ArchivedMember) -> bytes:
    cut = len(tree) + 1 if tree else 0
    link_to = None if member.link_to is None else member.link_to[cut:]
    return header(member.entry.path[cut:], member.entry, link_to)


def _is_same(first: Entry, entry: Entry) -> bool:
    return (first.size_bytes, first.mtime_ns, first.ctime_ns) == (entry.size_bytes, entry.mtime_ns, entry.ctime_ns)


def _unreadable(entry: Entry, error: OSError) -> LeftOut:
    return LeftOut(path=entry.path, reason=LeftOutReason.UNREADABLE, detail=error.strerror or str(error))


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def _file_digest(stream: BinaryIO) -> tuple[str, int]:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    size_bytes = 0
    stream.seek(0)
    while piece := stream.read(_READ_BYTES):
        digest.update(piece)
        size_bytes += len(piece)
    return digest.hexdigest(), size_bytes


def _damaged(record: ArchiveRecord, name: bytes, why: str) -> Refused:
    return Refused(
        f"{show(join(archive_directory(record.tree), name))} on the target cannot be used: {why}",
        cause="it was changed or damaged since it was written",
        hint="before the switch `migrator reap archive` makes it again of what is on the source; afterwards bring it back from "
        "a backup of the target, and purge nothing until then",
    )
