"""Interfaces of reaping: selection, reap lists, and the members of archives."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from migrator.core.entry import Entry
from migrator.reap.model import LeftOut, ReapAction, ReapDirectory, ReapedTree, ReapRow

# --- Selection and reap lists


class ReapSelection(Protocol):
    """The files of a catalog that a policy matches. Queries are out of core; one at a time. Blocking."""

    def trees(self) -> Sequence[ReapedTree]:
        """Counts by tree, in the order of the rules, without trees that have no matches."""

    def rows(self, *, listed: bool = False) -> Iterator[Sequence[ReapRow]]:
        """The archived or skipped files in blocks, by tree in the order of the rules, then in the order of the scan. With
        `listed`, those that are only reported too. Consume all before the next query.
        """

    def directories(self, limit: int) -> dict[bytes, Sequence[ReapDirectory]]:
        """For each tree, up to `limit` directories with the most matched bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReapList:
    """A reap list on disk."""

    reap_list: str
    digest: str
    rows: int


class ReapIndex(Protocol):
    """The reap list of a plan in memory, some 16 bytes per row, for look-ups by path. Thread-safe."""

    def action(self, path: bytes, *, size_bytes: int, mtime_ns: int, ctime_ns: int) -> ReapAction | None:
        """The action of the list for a path with these attributes; None if it does not have the path, or with others.

        Compares 128-bit digests of path and attributes. Deletions are checked against the rows themselves.
        """


class ReapLists(Protocol):
    """The reap lists of a site, beside its plans. Only some thousand rows are in memory at a time."""

    def write(self, plan: str, rows: Iterable[Sequence[ReapRow]]) -> WrittenReapList:
        """Write the list of a plan in progress, durably, in the given order; the rows of one tree are contiguous. Replaces the
        leftovers of an interrupted plan. Raises OSError.
        """

    def paths(
        self, reap_list: str, *, trees: Collection[bytes] | None = None, action: ReapAction | None = None
    ) -> Iterator[Sequence[ReapRow]]:
        """The rows of these trees (None: all) with this action (None: both), in the list's order, in blocks of one tree each.
        Raises Refused if the list is missing or damaged.
        """

    def digest(self, reap_list: str) -> str:
        """The BLAKE2b digest of the file, in hexadecimal. Raises Refused if it is missing."""

    def checked(self, reap_list: str, digest: str) -> Path:
        """The file, for queries. Raises Refused if its digest differs from the plan's."""

    def index(self, reap_list: str, *, trees: Collection[bytes] | None = None) -> ReapIndex:
        """Load the list of these trees. Raises Refused if it is missing or damaged."""


# --- Archives. All calls block; errors of the kernel are OSError. Digests use the algorithm of [verify].


class OpenMember(Protocol):
    """A path of the source that is being archived. Call `finish` or `close` once, after reading the content."""

    @property
    def entry(self) -> Entry:
        """The attributes before the content was read."""

    @property
    def is_checked(self) -> bool:
        """Whether the content is in memory and complete: `finish` then returns a digest."""

    def pieces(self) -> Iterator[bytes]:
        """The content, up to the size in `entry`; empty unless it is a regular file. Raises OSError."""

    def finish(self) -> bytes | LeftOut | None:
        """The digest of the content (None unless it is a regular file), or LeftOut if the file changed."""

    def close(self) -> None:
        """Release the file. May be called again."""


class MemberSource(Protocol):
    """The source, for archiving. Thread-safe."""

    def open(self, row: ReapRow, *, settled_before_ns: int) -> OpenMember | LeftOut:
        """Look up a path, and read it at once if it is small. LeftOut if it is gone, differs from the reap list, changed since
        `settled_before_ns`, is unreadable, or cannot be in a tar (a socket). Never raises OSError.
        """
