"""Old and tiny files that are not copied as they are: policy, lists, archives. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from migrator.catalog.model import ArchivedMember
from migrator.core.entry import Entry, UserTree
from migrator.core.paths import is_beneath, join
from migrator.core.units import GIB, MIB
from migrator.fs.rules_equality import FileState
from migrator.site.model import ReapAction, ReapRule

# --- Policy and lists


KEEP_FILE = ".migrator-keep"
"""The opt-out file: no file below its directory is reaped."""


class TreeRule(Struct, frozen=True, kw_only=True):
    """The rule that applies to one user tree."""

    tree: UserTree
    rule: ReapRule


class ReapRow(Struct, frozen=True):
    """One reaped regular file, as in the catalog: a row of a plan's reap list. `path` is relative to the source's root."""

    path: bytes
    tree: bytes
    action: ReapAction
    size_bytes: int
    blocks: int
    mtime_ns: int
    ctime_ns: int
    atime_ns: int
    ino: int
    gfid: bytes | None
    uid: int
    gid: int
    mode: int


def reap_rows(columns: Iterable[Sequence[Any]]) -> list[ReapRow]:
    """Rows from columns in the order of the fields of ReapRow; `action` is its text."""
    return [ReapRow(path, tree, ReapAction(action), *rest) for path, tree, action, *rest in zip(*columns, strict=True)]


class ReapDirectory(Struct, frozen=True, kw_only=True):
    """The matched files directly in one directory."""

    path: bytes
    files: int
    size_bytes: int


class ReapedTree(Struct, frozen=True, kw_only=True):
    """The matched files of one user tree."""

    tree: UserTree
    action: ReapAction
    """What happens to them."""
    rule: str
    """The rule in words."""
    files: int
    size_bytes: int
    allocated_bytes: int
    """Their bytes on the source's disks."""
    oldest_ns: int
    """Time of the oldest one by the rule's clock."""


class Savings(Struct, frozen=True, kw_only=True):
    """What reaping saves."""

    size_bytes: int = 0
    """Bytes on the target."""
    inodes: int = 0
    """Inodes on the target."""
    seconds: float = 0.0
    """Copying time with all streams busy."""


class PlanReap(Struct, frozen=True, kw_only=True):
    """The reaping of a plan."""

    reap_list: str | None
    """The Parquet file beside the plan with every archived or skipped path; None if there are none."""
    digest: str | None
    """BLAKE2b digest of that file."""
    trees: tuple[ReapedTree, ...]
    """The matched files of each tree."""
    saved: Savings
    """Savings by archived and skipped files."""
    listed: Savings
    """Possible savings in trees whose action is `list`."""


class ReapRelease(Struct, frozen=True, kw_only=True):
    """Skipped paths of one user tree that were given up for deletion with the source."""

    tree: bytes
    pattern: bytes
    """A path below the tree, with everything below it, or a glob."""
    is_glob: bool
    """The pattern is a glob."""
    by: str
    """The operator."""
    at_s: float
    """When they were given up."""


class UserReap(Struct, frozen=True, kw_only=True):
    """The matched files of one user."""

    user: str
    trees: tuple[ReapedTree, ...]
    """By user tree."""
    directories: tuple[ReapDirectory, ...]
    """The directories with most of them."""
    all_files: int
    """All paths of the user except directories."""
    all_bytes: int
    """All bytes of the user."""
    saves: Savings
    """Savings; possible ones if the files are only listed."""


class ReapReport(Struct, frozen=True, kw_only=True):
    """The files of a catalog that the present rules match: `reap list`."""

    catalog: str
    """The catalog."""
    at_s: float
    """When the report was made."""
    basis: str
    """Source of the time estimates."""
    users: tuple[UserReap, ...]
    """The files of each user, most bytes first."""


class Released(Struct, frozen=True, kw_only=True):
    """The result of `reap release`: the user's skipped files that the patterns match."""

    user: str
    plan: str
    releases: tuple[ReapRelease, ...]
    """What was released."""
    files: int
    size_bytes: int
    examples: tuple[bytes, ...]


# --- Archives


ARCHIVE_SUFFIX = b".tar.zst"
INDEX_SUFFIX = b".parquet"
PARTIAL_SUFFIX = b".part"
"""The suffix of a file in progress; the next `reap archive` removes one that a crash left."""

SETTLE_S = 2.0
"""A file that changed less than this before it was read could change again without a trace in its times."""

_NAME = re.compile(rb"([0-9]{6,12})(?:\.tar\.zst|\.parquet)(\.part)?", re.ASCII)


class ArchiveState(StrEnum):
    """The state of an archive in the ledger. `written`: on the disks, perhaps not yet renamed. `proven`: read back and
    equal to its index; only these count. `void`: truncated, unreadable or lost; the remains are removed.
    """

    WRITTEN = "written"
    PROVEN = "proven"
    VOID = "void"


ARCHIVE_TRANSITIONS: Mapping[ArchiveState, frozenset[ArchiveState]] = {
    ArchiveState.WRITTEN: frozenset({ArchiveState.PROVEN, ArchiveState.VOID}),
    ArchiveState.PROVEN: frozenset({ArchiveState.VOID}),
    ArchiveState.VOID: frozenset(),
}
"""A proven archive becomes void if it is lost or damaged before the switch, while the source still exists."""


class LeftOutReason(StrEnum):
    """The reason why a path of a reap list was not archived.

    `changed`: since the reap list was made, so the next delta pass copies it as any other file. `fresh`: changed just
    before it was read, so a later call archives it. `unreadable` paths stay on the source only.
    """

    VANISHED = "vanished"
    CHANGED = "changed"
    FRESH = "fresh"
    UNREADABLE = "unreadable"


class LeftOut(Struct, frozen=True, kw_only=True):
    """A path that was not archived."""

    path: bytes
    reason: LeftOutReason
    """Why."""
    detail: str
    """More about it."""


class ArchiveLimits(Struct, frozen=True, kw_only=True):
    """Limits of one archive. A larger file gets an archive of its own. Frames of `frame_bytes` are compressed each alone."""

    max_bytes: int = GIB
    max_members: int = 100_000
    frame_bytes: int = 8 * MIB


class WrittenArchive(Struct, frozen=True, kw_only=True):
    """Members, sizes, and the BLAKE2b digests of an archive and its index, in hexadecimal."""

    members: int
    content_bytes: int
    archive_bytes: int
    index_bytes: int
    archive_digest: str
    index_digest: str


class ArchiveRecord(Struct, frozen=True, kw_only=True):
    """An archive in the ledger. `number`, unique in its tree and increasing, is its name. `at_s` is when it reached its
    state; `reason` is why it is void.
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


class TreeArchived(Struct, frozen=True, kw_only=True):
    """The result of `reap archive` for one tree."""

    tree: bytes
    user: str
    archives: int = 0
    """Archives that this call made."""
    members: int = 0
    """Files that it archived."""
    content_bytes: int = 0
    """Their bytes."""
    archive_bytes: int = 0
    """Size of the archives."""
    already: int = 0
    """Files that were in proven archives, unchanged."""
    left_out: Mapping[str, int]
    """Number of files that were not archived, by reason."""
    examples: tuple[LeftOut, ...] = ()
    """Some of those."""
    skipped: str = ""
    """Why nothing was archived."""


class NotRestored(Struct, frozen=True, kw_only=True):
    """A requested path that was not restored."""

    path: bytes
    reason: str
    """Why."""


class Restored(Struct, kw_only=True):
    """The result of `reap restore` for one tree."""

    tree: bytes
    restored: int = 0
    """Number of restored files."""
    size_bytes: int = 0
    """Their bytes."""
    not_restored: int = 0
    """Number of files that were not restored."""
    examples: list[NotRestored] = []
    """The first of these."""


def archive_directory(tree: bytes, name_seed: int) -> bytes:
    """The archive directory of a tree on the target, relative to the root. Its name has the seed of the site, so it is never a
    user's directory. It does not exist on the source.
    """
    return join(tree, b".migrator-archive-%016x" % name_seed)


def is_archive_path(tree: bytes, path: bytes, name_seed: int) -> bool:
    """True if a path of the target is a tree's archive directory, or in it, and so not from the source."""
    return is_beneath(path, archive_directory(tree, name_seed))


def archive_name(number: int) -> bytes:
    """Such as `000001.tar.zst`."""
    return b"%06d" % number + ARCHIVE_SUFFIX


def index_name(number: int) -> bytes:
    """Such as `000001.parquet`."""
    return b"%06d" % number + INDEX_SUFFIX


def number_of(name: bytes) -> int | None:
    """The number in the name of an archive or index, complete or partial; None for any other name."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def is_partial(name: bytes) -> bool:
    """True if the name is that of a file in progress."""
    found = _NAME.fullmatch(name)
    return bool(found and found[2])


def is_listed(row: ReapRow, entry: Entry) -> bool:
    """True if a path has the attributes of its row in the reap list."""
    return FileState.of(row) == FileState.of(entry)


def same_file(member: ArchivedMember, entry: Entry) -> bool:
    """True if the source still has the archived file: every change of content or attributes changes ctime."""
    return member.entry.type is entry.type and FileState.of(member.entry) == FileState.of(entry)
