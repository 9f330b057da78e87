"""Archives of old and tiny files: what lies beside a tree's files on the target, and what is known of it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.entry import Entry
from migrator.domain.paths import is_beneath, join
from migrator.domain.units import GIB

ARCHIVE_DIRECTORY = b".migrator-archive"
"""The directory in the root of a user tree on the target that holds its archives. It is nothing of the source's."""

ARCHIVE_SUFFIX = b".tar.zst"
INDEX_SUFFIX = b".parquet"
PARTIAL_SUFFIX = b".part"
"""A file that is being written; what is left of it after a crash is removed by the next `reap archive`."""

SETTLE_S = 2.0
"""What changed less than this before it was read could change again without a trace in its times."""

_NAME = re.compile(rb"([0-9]{6,12})(?:\.tar\.zst|\.parquet)(\.part)?", re.ASCII)


class ArchiveState(StrEnum):
    """An archive in the ledger. `written`: it is on the disks, or about to get its name. `proven`: it was read back and is
    as its index says; only then it counts. `void`: it was cut off, could not be read back, or was lost, and what is left of it is removed.
    """

    WRITTEN = "written"
    PROVEN = "proven"
    VOID = "void"


ARCHIVE_TRANSITIONS: Mapping[ArchiveState, frozenset[ArchiveState]] = {
    ArchiveState.WRITTEN: frozenset({ArchiveState.PROVEN, ArchiveState.VOID}),
    ArchiveState.PROVEN: frozenset({ArchiveState.VOID}),
    ArchiveState.VOID: frozenset(),
}
"""A proven archive becomes void where it was lost or damaged while the source is still there, before the switch."""


class LeftOutReason(StrEnum):
    """Why a path of a reap list did not get into an archive.

    `changed`: since the reap list was made, so the next delta pass moves it as any other file; `fresh`: a moment before it
    was read, so it is archived by a later call. What is `unreadable` or `not-possible` stays on the source alone.
    """

    VANISHED = "vanished"
    CHANGED = "changed"
    FRESH = "fresh"
    UNREADABLE = "unreadable"
    NOT_POSSIBLE = "not-possible"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A path that was left out of every archive, and why."""

    path: bytes
    reason: LeftOutReason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedMember:
    """One path in an archive: the source's attributes when it was read (`entry`, the path relative to the source's root).

    `digest` is of the content, None for what is no regular file. `offset_bytes` is where its header begins in the
    uncompressed tar, `data_offset_bytes` where the content does: for further names of a file (`link_to`) it is that of the
    first name in the same archive. `archive` is the number of the archive in its tree, `algorithm` that of the digest; both
    are known of members of an index.
    """

    entry: Entry
    digest: bytes | None
    offset_bytes: int
    data_offset_bytes: int
    link_to: bytes | None = None
    archive: int = 0
    algorithm: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLimits:
    """An archive ends before it has more content or members; a larger file has one of its own."""

    max_bytes: int = GIB
    max_members: int = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenArchive:
    """What was written: members, sizes, and BLAKE2b digests of the archive and of its index, in hexadecimal digits."""

    members: int
    content_bytes: int
    archive_bytes: int
    index_bytes: int
    archive_digest: str
    index_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRecord:
    """An archive as the ledger has it. `number` is its name: unique in its tree, the newest is the greatest. `at_s` is when
    it came to its state; `reason` why it is void.
    """

    id: int
    plan: str
    batch: int
    tree: bytes
    number: int
    written: WrittenArchive
    state: ArchiveState
    at_s: float
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeArchived:
    """What one call of `reap archive` did for one tree. `already` were in proven archives, with the same facts.

    `left_out` counts by reason; `examples` are some of them.
    """

    tree: bytes
    user: str
    archives: int = 0
    members: int = 0
    content_bytes: int = 0
    archive_bytes: int = 0
    already: int = 0
    left_out: Mapping[str, int]
    examples: tuple[LeftOut, ...] = ()
    skipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRestored:
    """A path that was asked for and is not restored, and why."""

    path: bytes
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """What one call of `reap restore` did for one tree."""

    tree: bytes
    restored: int
    size_bytes: int
    not_restored: int
    examples: tuple[NotRestored, ...]


def archive_directory(tree: bytes) -> bytes:
    """Where the archives of a tree lie on the target, relative to its root."""
    return join(tree, ARCHIVE_DIRECTORY)


def is_archive_path(tree: bytes, path: bytes) -> bool:
    """Whether a path of the target is a tree's archive directory or lies in it: nothing that came from the source."""
    return is_beneath(path, archive_directory(tree))


def archive_name(number: int) -> bytes:
    """`000001.tar.zst`."""
    return b"%06d" % number + ARCHIVE_SUFFIX


def index_name(number: int) -> bytes:
    """`000001.parquet`."""
    return b"%06d" % number + INDEX_SUFFIX


def number_of(name: bytes) -> int | None:
    """The number in the name of an archive, of its index, or of a part of either; None for any other name."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def is_partial(name: bytes) -> bool:
    """Whether the name is that of a file that was being written."""
    found = _NAME.fullmatch(name)
    return bool(found and found[2])


def same_file(member: ArchivedMember, entry: Entry) -> bool:
    """Whether what is on the source now is what was archived: every change of content or attributes changes ctime."""
    then = member.entry
    return (then.type, then.ino, then.size_bytes, then.mtime_ns, then.ctime_ns) == (
        entry.type,
        entry.ino,
        entry.size_bytes,
        entry.mtime_ns,
        entry.ctime_ns,
    )
