"""Reaping: old and tiny files that are not moved as they are, chosen by a policy when a plan is made."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from migrator.domain.tree import UserTree

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

    `exclude` are globs of `migrator.decide.reap_globs`. `hidden`, `executables` and `linked` (files with several names)
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
    `migrator.decide.reap_globs`. `by` is who said so, `at_s` when.
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
