"""Old and tiny files that are not copied as they are: policy, lists, archives. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from migrator.core.entry import Entry, UserTree
from migrator.core.paths import is_beneath, join
from migrator.core.units import GIB

# --- Policy and lists


KEEP_FILE = ".migrator-keep"
"""How users opt out, unless the site names another file: nothing below the directory that holds it is reaped."""


class ReapAction(StrEnum):
    """What becomes of the files that a policy matches: they are only reported and move as all others, they are packed into
    archives, or they are not moved at all.
    """

    LIST = "list"
    ARCHIVE = "archive"
    SKIP = "skip"


class ReapClock(StrEnum):
    """Which time of a file says how old it is."""

    MTIME = "mtime"
    ATIME = "atime"


class ReapStanding(StrEnum):
    """Where one path of the source stands, by a plan's reap list and by what was done since.

    Not reaped: the list does not have it, or it changed since, so it moves as any other file. Released: it was to be
    skipped, and was given up for deletion with the source by name.
    """

    NOT_REAPED = "not reaped"
    TO_ARCHIVE = "to archive"
    ARCHIVED = "archived"
    SKIPPED = "skipped"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapRule:
    """What is reaped of one user tree. The conditions are ANDed, None is none; without any nothing is matched.

    `exclude` are globs of `migrator.reap.rules`. `hidden`, `executables` and `linked` (files with several names)
    say that these are not left out.
    """

    action: ReapAction = ReapAction.LIST
    older_than_s: int | None = None
    smaller_than_bytes: int | None = None
    by: ReapClock = ReapClock.MTIME
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    executables: bool = False
    linked: bool = False

    @property
    def matches_anything(self) -> bool:
        """Whether it has a condition at all."""
        return self.older_than_s is not None or self.smaller_than_bytes is not None

    @property
    def needs_atime(self) -> bool:
        """Whether it goes by when files were last read."""
        return self.older_than_s is not None and self.by is ReapClock.ATIME


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapPolicy:
    """The rule of the site, and those of single users or user trees, by name (of a tree its path, as it is shown)."""

    rule: ReapRule = ReapRule()
    by_name: Mapping[str, ReapRule] = field(default_factory=dict)
    keep_file: str = KEEP_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeRule:
    """The rule that holds for one user tree."""

    tree: UserTree
    rule: ReapRule


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapRow:
    """One regular file that is reaped, as the catalog has it: a row of a plan's reap list. `path` is relative to the
    source's root.
    """

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
    """Rows from their columns, which are in the order of a row's fields; `action` is its text there."""
    return [
        ReapRow(
            path=path,
            tree=tree,
            action=ReapAction(action),
            size_bytes=size,
            blocks=blocks,
            mtime_ns=mtime_ns,
            ctime_ns=ctime_ns,
            atime_ns=atime_ns,
            ino=ino,
            gfid=gfid,
            uid=uid,
            gid=gid,
            mode=mode,
        )
        for path, tree, action, size, blocks, mtime_ns, ctime_ns, atime_ns, ino, gfid, uid, gid, mode in zip(
            *columns, strict=True
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapDirectory:
    """A directory, and what of the files right in it the policy matches."""

    path: bytes
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapedTree:
    """What the policy matches in one user tree. `files` counts names, `inodes` and bytes count a file with several names
    once. `oldest_ns` is the time of the oldest file by the rule's clock; `rule` is the rule in words.
    """

    tree: UserTree
    action: ReapAction
    rule: str
    files: int
    inodes: int
    size_bytes: int
    allocated_bytes: int
    oldest_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What need not be copied: bytes and inodes of the target, and time with all streams busy."""

    size_bytes: int = 0
    inodes: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanReap:
    """The reaping of a plan. `reap_list` is the Parquet file beside the plan that names every path that is archived or
    skipped, with its BLAKE2b digest; both are None where nothing is. `listed` is what would be saved of trees whose
    action is `list`.
    """

    reap_list: str | None
    digest: str | None
    trees: tuple[ReapedTree, ...]
    saved: Savings
    listed: Savings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapRelease:
    """Skipped paths of one user tree that somebody gave up for deletion with the source.

    `pattern` is a path below the tree, itself and all below it, or, with `is_glob`, a glob of
    `migrator.reap.rules`. `by` is who said so, `at_s` when.
    """

    tree: bytes
    pattern: bytes
    is_glob: bool
    by: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UserReap:
    """What the policy matches of one user: his trees, the directories that hold most of it, how much he has altogether
    (`all_files` are paths that are no directories), and what it saves, or would save where it is only listed.
    """

    user: str
    trees: tuple[ReapedTree, ...]
    directories: tuple[ReapDirectory, ...]
    all_files: int
    all_bytes: int
    saves: Savings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapReport:
    """What the rules of now match in a catalog, user by user, those with the most bytes first. `basis` says where the
    figures for the time come from.
    """

    catalog: str
    at_s: float
    keep_file: str
    basis: str
    users: tuple[UserReap, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """What `reap release` gave up of one user: his skipped files that the patterns match."""

    user: str
    plan: str
    releases: tuple[ReapRelease, ...]
    files: int
    size_bytes: int
    examples: tuple[bytes, ...]


# --- Archives


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
