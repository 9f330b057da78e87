"""Archives and reap lists as stages see them."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from migrator.core.entry import Entry
from migrator.reap.model import LeftOut, ReapAction, ReapDirectory, ReapedTree, ReapRow

# --- Selection and reap lists


class ReapSelection(Protocol):
    """What a policy matches in a catalog. Every query is out of core; one at a time. Blocking."""

    def trees(self) -> Sequence[ReapedTree]:
        """Counted, tree by tree, in the order of the rules; trees of which nothing is matched are left out."""

    def rows(self, *, listed: bool = False) -> Iterator[Sequence[ReapRow]]:
        """What is archived or skipped, tree by tree in the order of the rules, and in each in the order of the scan, in
        blocks. With `listed` what is only reported too. Run it to its end before the next query.
        """

    def directories(self, limit: int) -> dict[bytes, Sequence[ReapDirectory]]:
        """Of every tree the directories that hold most of it, by bytes, at most so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReapList:
    """A reap list that is on disk."""

    reap_list: str
    digest: str
    rows: int


class ReapIndex(Protocol):
    """The reap list of a plan in memory, some 16 bytes a row, for asking by path in any order. Thread-safe."""

    def action(self, path: bytes, *, size_bytes: int, mtime_ns: int, ctime_ns: int) -> ReapAction | None:
        """What the list says of a path with these facts; None where it does not have it, or has it with others.

        By a digest of 128 bits over path and facts. What is to be deleted is compared with the rows themselves.
        """


class ReapLists(Protocol):
    """The reap lists of a site's plans, beside them. Out of core: nothing is held but some thousand rows."""

    def write(self, plan: str, rows: Iterable[Sequence[ReapRow]]) -> WrittenReapList:
        """Write the list of a plan that is being made, durably, in the order given: the rows of one tree lie together.
        Replaces what an interrupted planning left. Raises OSError.
        """

    def paths(
        self, reap_list: str, *, trees: Collection[bytes] | None = None, action: ReapAction | None = None
    ) -> Iterator[Sequence[ReapRow]]:
        """The rows of these trees (None: of all) with this action (None: both), in the list's order, in blocks; no block
        holds rows of two trees. Raises Refused where the list is missing or damaged.
        """

    def digest(self, reap_list: str) -> str:
        """BLAKE2b over the file, in hexadecimal. Raises Refused where it is missing."""

    def checked(self, reap_list: str, digest: str) -> Path:
        """The file, for queries over it, once its digest is that of the plan. Raises Refused where it is not."""

    def index(self, reap_list: str, *, trees: Collection[bytes] | None = None) -> ReapIndex:
        """The list of these trees in memory. Raises Refused where it is missing or damaged."""


# --- Archives. All calls block; errors of the kernel are OSError. Digests use the algorithm of [verify].


class OpenMember(Protocol):
    """A path of the source that is about to be archived. `finish` or `close` once, after the content was taken."""

    @property
    def entry(self) -> Entry:
        """What a look saw before the content was read."""

    @property
    def is_checked(self) -> bool:
        """Whether the content lies in memory already and is known to be whole: then `finish` gives a digest."""

    def pieces(self) -> Iterator[bytes]:
        """The content, no more of it than the look saw; nothing for what is no regular file. Raises OSError."""

    def finish(self) -> bytes | LeftOut | None:
        """The digest of the content, None for what is no regular file, or why it cannot be archived: it changed."""

    def close(self) -> None:
        """Release it. May be called again."""


class MemberSource(Protocol):
    """The source, for archiving. Thread-safe."""

    def open(self, row: ReapRow, *, settled_before_ns: int) -> OpenMember | LeftOut:
        """Look at a path, and read it at once where it is small. Left out: what is gone, is not as the reap list has it,
        changed since `settled_before_ns`, cannot be read, or cannot be in a tar (a socket). Never raises OSError.
        """
