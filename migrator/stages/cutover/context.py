"""What a cutover touches, and the call that it is part of."""

import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from migrator.adapters.filesystems.archive_folders import MountedArchiveFolders
from migrator.domain.cutover import CutoverRecord
from migrator.domain.cutover_run import CutoverRequest
from migrator.domain.events import EventKind, Severity
from migrator.domain.hooks import HookStep
from migrator.domain.paths import join
from migrator.domain.plan import Batch, Plan, TreeUsage
from migrator.domain.reap import ReapRow
from migrator.domain.switching import LinkPlace
from migrator.domain.verification import DigestPolicy, VerificationRecord
from migrator.ports.carrying_back import CarriesBack
from migrator.ports.filesystem import TargetTrees
from migrator.ports.freezing import Freezer, WriterSearch
from migrator.ports.hooks import Hooks
from migrator.ports.ledger import Ledger
from migrator.ports.manifest import Manifests
from migrator.ports.site import SiteRecord
from migrator.ports.speed_ups import FileSamples, SpeedUpRecords, TreeTiming
from migrator.ports.switching import Links
from migrator.stages.reap.archived import ProvenArchives
from migrator.stages.run.context import Invocation, World
from migrator.stages.run.delta import Deltas
from migrator.stages.run.hooking import Hooking

T = TypeVar("T")

OWN_STEPS = (HookStep.PASS, HookStep.FREEZE, HookStep.SWITCH, HookStep.THAW)
"""What this verb calls hooks around; `run` makes passes too, and both hold one lock."""

VerifyTree = Callable[[Plan, int, bytes], Awaitable[VerificationRecord]]
"""Verifies one tree of a batch of a plan: all facts, and the content of what was not proven before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparing:
    """What measuring a user's tree before and after needs. Either side takes `limit_s` at most."""

    timing: TreeTiming
    samples: FileSamples
    records: SpeedUpRecords
    limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverWorld:
    """What a cutover touches beside what a run does. `links` and `place` are None where hooks make the switch.

    `freezer` closes tops on the source, `trees` opens and closes them on the target; `source_trees` opens those on the
    source for users who come back. `source_writers` and `target_writers`
    look for who still writes on either side. `manifests` are those that `verify` writes. `policy` says which content has to be compared. `backup` keeps a copy of the
    ledger under a name; it is on the disk when that returns.

    `archive_folders` are those of the trees on the target, `archived` what proven archives hold as it is now, `to_archive` the rows
    of a plan's reap list that are to be archived of a tree (blocking; raises Refused). `comparing` measures users' trees before and
    after; None where the site does not want that.
    """

    freezer: Freezer
    trees: TargetTrees
    source_trees: TargetTrees
    source_writers: WriterSearch
    target_writers: WriterSearch
    links: Links | None
    place: LinkPlace | None
    verify: VerifyTree
    manifests: Manifests
    policy: DigestPolicy
    deltas: Deltas
    back: CarriesBack
    backup: Callable[[str], None]
    archive_folders: MountedArchiveFolders
    archived: Callable[[], ProvenArchives]
    to_archive: Callable[[Plan, bytes], Iterable[Sequence[ReapRow]]]
    comparing: Comparing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a call of `cutover` or `rollback` looks at, as far as one plan goes: nothing is changed by it."""

    world: CutoverWorld
    request: CutoverRequest
    run: World
    plan: Plan
    site: SiteRecord
    hooks: Hooks | None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return self.run.ledger

    def now_s(self) -> float:
        """The time."""
        return self.run.clock.now_s()

    def paths(self, tree: bytes) -> tuple[bytes, bytes]:
        """Where a tree lies on the source and on the target, absolute."""
        return join(self.run.source.root, tree), join(self.run.target.root, tree)

    def usage(self, tree: bytes) -> TreeUsage | None:
        """What the plan says of a tree."""
        return next((usage for usage in self.plan.ranking if usage.tree.path == tree), None)

    async def blocking(self, work: Callable[[], T]) -> T:
        """Work at a file system that may not answer. Raises OSError, also where it takes too long.

        What was cancelled, or took too long, may still be at work: what comes after it waits for its end. Or else a top that
        is being closed would be seen open, or be opened by the one while the other goes on closing it.
        """

        def in_turn() -> T:
            with self._turn:
                return work()

        try:
            return await self.run.blocking(in_turn, timeout_s=self.request.run.stall_timeout_s)
        except TimeoutError as error:
            raise OSError("a file system does not answer") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutting(Sight):
    """One call that changes something: its run in the ledger, and the hooks."""

    invocation: Invocation
    hooking: Hooking
    verb: str

    def batch_of(self, record: CutoverRecord) -> Batch:
        """The batch of the tree, with that tree alone."""
        batch = next(one for one in self.plan.batches if one.number == record.batch)
        return replace(batch, trees=tuple(tree for tree in batch.trees if tree.path == record.tree.path))

    def say(self, kind: EventKind, severity: Severity, record: CutoverRecord, message: str) -> None:
        """An event about one user."""
        self.invocation.say(kind, severity, f"{record.tree.user}: {self.verb}", message)
