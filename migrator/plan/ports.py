"""What planning asks of a catalog, and where its chunk lists go."""

from collections.abc import Collection, Iterable, Iterator, Sequence
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
"""What tables count as tiny; it decides nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usages:
    """What every tree of a catalog holds (one without rows too), in order of path, and what lies outside all of them.

    `outside` is None where nothing does; the directories on the way to trees do not count.
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
        """Counts, bytes and ages. Files last changed after `now_s` are in the bucket of the future."""

    def owners(self) -> Sequence[TreeOwner]:
        """By tree and owner the files with content, in that order."""

    def link_spans(self) -> Sequence[LinkSpan]:
        """Link groups with names in more than one tree, or in a tree and outside."""

    def symlinks(self) -> Iterator[SymlinkRow]:
        """Every symlink inside the trees, in any order. Run it to its end before the next query."""

    def findings(self, capabilities: TargetCapabilities, *, long_path_bytes: int) -> Sequence[Finding]:
        """Foreign owners, paths of `long_path_bytes` and more, and what a target cannot keep; per tree.

        What is known of extended attributes is their namespaces and the size of the largest: where a file has several,
        a loss may be counted that does not happen. The other way round it happens for the labels that a kernel gives
        by its own policy (`security.selinux` and others), which are counted only where the target keeps no attributes
        of that namespace at all.
        """

    def brick_uses(self) -> Sequence[TreeOnBrick]:
        """What every user tree has on every brick, and what lies outside all of them."""

    def listings(self, batches: Sequence[Sequence[bytes]]) -> Iterator[Listing]:
        """All paths of the trees of the batches (numbered from 1), for packing. The trees' roots are left out.

        The first tree of a batch that a link group has names in gets its content; the names in the batch's other
        trees come as links to a name there. Run it to its end before the next query.
        """

    def reap(self, rules: Sequence[TreeRule], *, keep_file: str, now_s: float) -> ReapSelection:
        """What the rules match, one for each tree. From then on `listings` leaves out what is archived or skipped."""


class CatalogReader(Protocol):
    """Opens catalogs for planning."""

    def open(self, name: str) -> AbstractContextManager[CatalogQueries]:
        """Raises UsageError where there is none, Refused where it is half written or damaged."""


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
    """Writes chunk lists beside a plan that is being made."""

    def write(self, plan: str, batch: int, chunks: Iterable[PackedChunk]) -> WrittenList:
        """Write the list of one batch durably, in order of number. Replaces what an interrupted planning left.

        `chunks` counts all kinds, `files` what is no directory, links too. Raises OSError.
        """


class PassListWriter(Protocol):
    """Writes the chunk lists of passes after the seed."""

    def write_pass(
        self, plan: str, batch: int, number: int, chunks: Iterable[PackedChunk], *, kind: PassKind = PassKind.DELTA
    ) -> WrittenList:
        """Write the list of a pass durably, in order of number; `ChunkLists` reads it. Replaces what was written before
        the pass was recorded: not to be called for one that is in the ledger. Raises OSError.
        """


class PlanDocuments(Protocol):
    """`plans/NAME.json`: canonical JSON with a checksum over its content."""

    def write(self, plan: Plan) -> tuple[str, str]:
        """Write atomically; returns path and checksum. A name that is taken is refused."""

    def read(self, name: str) -> tuple[Plan, str]:
        """The plan and its checksum. Raises Refused where it was edited by hand, UsageError where it is missing."""


class NewPlans(PlanDocuments, Protocol):
    """What making a plan needs besides."""

    def next_name(self, *, taken: Collection[str] = ()) -> str:
        """The first free name of the form `plan-0001`; `taken` are names that are in use elsewhere."""

    def require_free(self, name: str) -> None:
        """Raises UsageError where the name cannot be one, or is taken."""
