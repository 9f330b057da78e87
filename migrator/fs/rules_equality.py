"""Is it the same file? The program asks four questions; each is defined here once, in Python or as SQL. Pure.

- Is it the same inode? `same_inode_sql`.
- Is a file unchanged since it was last read? `FileState` and `unchanged_sql`: every change of content sets its ctime.
- Does the target have a copy of it? `is_copy`, `may_be_copy`, `same_content_sql` and `shows_time_sql`: by size, mtime and the like,
  without reading the content. The compiled program answers as `is_copy` does (`is_there` in copy_file.c).
  A symlink may have another text: `fs.rules.expected_link`, `expected_link_sql`, and `rewrite` in copy_nodes.c.
- Does it have the same owner, mode, ACLs and attributes? `same_attributes_sql`. `fs.rules.compare` answers the last two
  for one path, names each difference, and knows which of them the target's limits explain.

The SQL is for DuckDB. `one` and `other` are the prefixes of two rows of catalogs, such as `b.`.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from migrator.core.entry import EntryType
from migrator.fs.model import RewrittenLinks, TargetCapabilities
from migrator.fs.rules import expected_link, shows_time

_NO_NAMES: Mapping[str, str] = {}


class HasState(Protocol):
    """Has the attributes that change with a file's content."""

    @property
    def ino(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def mtime_ns(self) -> int: ...
    @property
    def ctime_ns(self) -> int: ...


class FileState(Struct, frozen=True, kw_only=True):
    """A regular file as read once. Every change of its content or attributes changes one of these."""

    ino: int
    size_bytes: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, file: HasState) -> "FileState":
        """The state of an entry or of a row."""
        return cls(ino=file.ino, size_bytes=file.size_bytes, mtime_ns=file.mtime_ns, ctime_ns=file.ctime_ns)


_STATE_COLUMNS = {"ino": "ino", "size_bytes": "size", "mtime_ns": "mtime_ns", "ctime_ns": "ctime_ns"}
"""Of a catalog, by the fields of `FileState`."""


def unchanged_sql(one: str, other: str, *, named: Mapping[str, str] = _NO_NAMES, with_inode: bool = True) -> str:
    """Whether two rows are of one state of a regular file. `named` has the columns of `one` that are not called as in a
    catalog. Without the inode: for file systems that give a file another number.
    """
    columns = [column for column in _STATE_COLUMNS.values() if with_inode or column != "ino"]
    return _all_of(f"{one}{named.get(column, column)} = {other}{column}" for column in columns)


def same_inode_sql(one: str, other: str, *, lasting: str = "false") -> str:
    """Whether two rows of one file system have the same inode; null if that is unknown.

    On Gluster the inode number is the low half of the gfid, through mount and bricks. Elsewhere numbers of different
    devices prove nothing (a new mount may have another device number), except if `lasting`, a condition, is true: the
    file system keeps its numbers.
    """
    return f"""(CASE
        WHEN {one}gfid IS NOT NULL AND {other}gfid IS NOT NULL THEN {one}gfid = {other}gfid
        WHEN {one}gfid IS NOT NULL OR {other}gfid IS NOT NULL OR {one}dev = {other}dev OR {lasting}
            THEN {one}ino = {other}ino
    END)"""


class HasTypeAndTime(Protocol):
    """Has the attributes by which a copy of a regular file is recognised."""

    @property
    def type(self) -> EntryType: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def mtime_ns(self) -> int: ...


class HasContent(HasTypeAndTime, Protocol):
    """Has the attributes by which a copy of any entry is recognised."""

    @property
    def symlink_target(self) -> bytes | None: ...
    @property
    def rdev(self) -> int: ...


_CONTENT_COLUMNS = {
    EntryType.FILE: "size",
    EntryType.SYMLINK: "symlink_target",
    EntryType.BLOCK: "rdev",
    EntryType.CHARACTER: "rdev",
}
"""Of a catalog: the column by which the contents of two entries of a type differ. Those of files differ by mtime too."""


def expected_link_sql(text: str, links: RewrittenLinks | None) -> str:
    """As `fs.rules.expected_link`, for a column."""
    if links is None:
        return text
    # Digits alone, so nothing of a path is read as SQL.
    source, target = links.source.hex().upper(), links.target.hex().upper()
    inside = f"({text} = unhex('{source}') OR {text} >= unhex('{source}2F') AND {text} < unhex('{source}30'))"
    leaves = f"regexp_matches(hex({text}) || '2F', '^(?:..)*?2F2E2E2F')"
    there = f"unhex('{target}' || substr(hex({text}), {len(source) + 1}))"
    return f"(CASE WHEN {inside} AND NOT {leaves} THEN {there} ELSE {text} END)"


def is_copy(source: HasContent, target: HasContent, capabilities: TargetCapabilities) -> bool:
    """Whether an entry of the target has the type and, as far as its attributes show, the content of the source's."""
    if not may_be_copy(source, target, capabilities):
        return False
    match source.type:
        case EntryType.SYMLINK:
            there = expected_link(source.symlink_target or b"", capabilities.rewritten_links)
            return there == (target.symlink_target or b"")
        case EntryType.BLOCK | EntryType.CHARACTER:
            return source.rdev == target.rdev or not capabilities.keeps_device_numbers
        case EntryType.FILE | EntryType.DIRECTORY | EntryType.FIFO | EntryType.SOCKET:
            return True


def may_be_copy(source: HasTypeAndTime, target: HasTypeAndTime, capabilities: TargetCapabilities) -> bool:
    """As `is_copy`, as far as that shows without symlink targets and device numbers: completely for regular files."""
    if source.type is not target.type:
        return False
    if source.type is not EntryType.FILE:
        return True
    return source.size_bytes == target.size_bytes and shows_time(target.mtime_ns, source.mtime_ns, capabilities)


def same_content_sql(one: str, other: str, *, links: RewrittenLinks | None = None) -> str:
    """Whether two rows have the same type, size, symlink target or device number. Callers compare times themselves: by
    equality, or by `shows_time_sql`. `links`: symlinks of `one` are rewritten in `other`.
    """
    cases = " ".join(
        f"WHEN '{of_type}' THEN {expected_link_sql(one + column, links) if of_type is EntryType.SYMLINK else one + column}"
        f" = {other}{column}"
        for of_type, column in _CONTENT_COLUMNS.items()
    )
    return f"({one}type = {other}type AND CASE {one}type {cases} ELSE true END)"


def shows_time_sql(shown: str, time: str, *, granularity: str) -> str:
    """As `fs.rules.shows_time`, for columns or parameters, and for times in the target's range. `granularity` is in
    nanoseconds, at least 1.
    """
    floored = f"{time}::HUGEINT - ({time}::HUGEINT % {granularity} + {granularity}) % {granularity}"
    return f"({shown} = {time} OR {shown} = {floored})"


def same_attributes_sql(one: str, other: str) -> str:
    """Whether two rows have the same owner, mode, ACLs and extended attributes."""
    same = _all_of(f"{one}{column} = {other}{column}" for column in ("uid", "gid", "mode"))
    return f"({same} AND {one}xattr_digest IS NOT DISTINCT FROM {other}xattr_digest)"


def _all_of(conditions: Iterable[str]) -> str:
    return f"({' AND '.join(conditions)})"
