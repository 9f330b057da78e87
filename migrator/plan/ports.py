"""Interfaces of planning: catalog queries, chunk lists and plan documents."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from migrator.beegfs.model import TreeOwner
from migrator.catalog.model import CatalogRecord
from migrator.catalog.rules_packing import Listing, PackedChunk
from migrator.core.states import PassKind
from migrator.fs.model import TargetCapabilities
from migrator.plan.model import Plan, TreeUsage
from migrator.plan.rules import LinkSpan
from migrator.plan.rules_surprises import Finding, SymlinkRow
from migrator.reap.model import TreeRule
from migrator.reap.ports import ReapSelection
from migrator.schedule.model import TreeOnBrick

TINY_BELOW_BYTES = 4096
"""Files that tables count as tiny; no decision depends on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usages:
    """The usage of every tree of a catalog (empty ones too), in order of path, and of all paths outside the trees.

    `outside` is None if there are no such paths; the directories above trees do not count.
    """

    trees: tuple[TreeUsage, ...]
    outside: TreeUsage | None
    outside_examples: tuple[bytes, ...]


class CatalogQueries(Protocol):
    """Queries over one closed catalog; out of core. Same catalog, same answers."""

    @property
    def record(self) -> CatalogRecord:
        """The closing record."""

    def usages(self, *, now_s: float, tiny_below_bytes: int = TINY_BELOW_BYTES) -> Usages:
        """Counts, bytes and ages. Files last changed after `now_s` are in the first bucket, `in the future`."""

    def owners(self) -> Sequence[TreeOwner]:
        """Files with content by tree and owner, in that order."""

    def link_spans(self) -> Sequence[LinkSpan]:
        """Link groups with names in several trees, or in a tree and outside."""

    def symlinks(self) -> Iterator[SymlinkRow]:
        """Every symlink inside the trees, in any order. Consume all before the next query."""

    def findings(self, capabilities: TargetCapabilities, *, long_path_bytes: int) -> Sequence[Finding]:
        """Foreign owners, paths of at least `long_path_bytes`, and what the target cannot keep; per tree.

        Catalogs know only the namespaces of extended attributes and the size of the largest, so a loss may be counted that
        does not happen to a file with several. Labels that the kernel sets by its own policy (`security.selinux` and others)
        are counted only if the target keeps no attributes of that namespace.
        """

    def brick_uses(self) -> Sequence[TreeOnBrick]:
        """Usage of each brick by each user tree, and by paths outside every tree."""

    def listings(self, batches: Sequence[Sequence[bytes]]) -> Iterator[Listing]:
        """All paths of the trees of the batches (numbered from 1), for packing, without the roots of the trees.

        The content of a link group comes with the first tree of the batch that has a name of it; names in the other
        trees of the batch come as links to that one. Consume all before the next query.
        """

    def reap(self, rules: Sequence[TreeRule], *, keep_file: str, now_s: float) -> ReapSelection:
        """Select what the rules (one per tree) match. Later `listings` leave out what is archived or skipped."""


class CatalogReader(Protocol):
    """Opens catalogs for planning."""

    def open(self, name: str) -> AbstractContextManager[CatalogQueries]:
        """Open a catalog. Raises UsageError if it does not exist, Refused if it is half written or damaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenList:
    """The chunk list of one batch, or of one pass over it, on disk."""

    chunk_list: str
    digest: str
    chunks: int
    files: int
    directories: int
    size_bytes: int


class ChunkListWriter(Protocol):
    """Writes the chunk lists of a plan in progress."""

    def write(self, plan: str, batch: int, chunks: Iterable[PackedChunk]) -> WrittenList:
        """Write the list of one batch durably, in order of number, replacing the leftovers of an interrupted plan.

        In the result, `chunks` counts all kinds, `files` all paths but directories, links included. Raises OSError.
        """


class PassListWriter(Protocol):
    """Writes the chunk lists of passes after the seed."""

    def write_pass(
        self, plan: str, batch: int, number: int, chunks: Iterable[PackedChunk], *, kind: PassKind = PassKind.DELTA
    ) -> WrittenList:
        """Write the list of a pass durably, in order of number; `ChunkLists` reads it. Replaces an existing list, so it must
        not be called for a pass that is in the ledger. Raises OSError.
        """


class PlanDocuments(Protocol):
    """`plans/NAME.json`: canonical JSON with a checksum over its content."""

    def write(self, plan: Plan) -> tuple[str, str]:
        """Write atomically; return path and checksum. Raises UsageError if the name is taken."""

    def read(self, name: str) -> tuple[Plan, str]:
        """Return the plan and its checksum. Raises Refused if it was edited by hand, UsageError if it is missing."""
