"""One call of `cutover` or `rollback`: its request, and everything outside the program."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Struct

from migrator.catalog.queries import CatalogReads
from migrator.core.entry import Entry, UserTree
from migrator.core.events import EventKind, Severity
from migrator.core.paths import join
from migrator.core.states import PassKind
from migrator.core.tasks import result_or_none
from migrator.cutover import model, rules_preflight, rules_tops, rules_writers
from migrator.cutover.links import SymlinkedPaths
from migrator.cutover.migration import Migration, TreeMigration
from migrator.cutover.model_calls import CutoverRequest
from migrator.cutover.rollback import Rollbacks
from migrator.cutover.rules_speed import TreeVisited
from migrator.cutover.rules_tops import FrozenTop
from migrator.cutover.tops import MountedTops
from migrator.cutover.writers import SearchesAhead, WriterSearch
from migrator.fs.model import DigestPolicy, TargetCapabilities
from migrator.fs.ports import FileSystem
from migrator.fs.writing import MountedTarget
from migrator.hooks.calls import HookedStep, Hooks, StepHooks
from migrator.hooks.model import HookStep
from migrator.ledger.model import SiteRecord
from migrator.operations.engine import Done
from migrator.plan.model import Batch, Plan
from migrator.reap.model import ReapRow
from migrator.transfer.bases import part_of
from migrator.transfer.context import RunInvocation, TransferPorts
from migrator.transfer.model import PassRecord
from migrator.transfer.model_runs import BatchSummary
from migrator.transfer.run_hooks import RunHooks

if TYPE_CHECKING:
    from migrator.cutover.records import CutoverLedger


T = TypeVar("T")

OWN_STEPS = (HookStep.PASS, HookStep.FREEZE, HookStep.SWITCH, HookStep.THAW)
"""The steps around which this verb calls hooks. `run` makes passes too; both verbs hold one lock."""


CutoverDone = Done[model.CutoverState, model.CutoverNotes]
"""The result of a step."""


class Comparing(Struct, frozen=True, kw_only=True):
    """Everything that measuring a user's tree before and after needs. Each side takes at most `limit_s`."""

    visit: Callable[..., Awaitable[TreeVisited]]
    samples: CatalogReads
    limit_s: float


class CutoverCall(Struct, frozen=True, kw_only=True):
    """One call of `cutover` or `rollback`: its request, and everything outside the program.

    `ledger` is that of `migration`. `freezer` closes tops on the source, `trees` opens and closes them on the target,
    `source_trees` opens those on the source for users who come back. `source_writers` and `target_writers` search either
    side for processes that still write; `unseen_writers` returns how users may write to the source past a closed top,
    where no search finds them (None: in no way). `links` is None if hooks make the switch. `policy` defines the content
    to compare. `backup` keeps a copy of the ledger under a name; the copy is durable on return. `to_archive` returns the
    rows of a plan's reap list to archive from a tree (blocking; raises Refused). `comparing` measures users' trees
    before and after; None if the site does not enable that.
    """

    request: CutoverRequest
    migration: Migration
    rollbacks: Rollbacks
    ledger: "CutoverLedger"
    freezer: MountedTops
    trees: MountedTarget
    source_trees: MountedTarget
    source_writers: SearchesAhead
    target_writers: WriterSearch
    unseen_writers: Callable[[], Awaitable[tuple[str, ...]]] | None
    hooks: Hooks
    links: SymlinkedPaths | None
    policy: DigestPolicy
    backup: Callable[[str], None]
    to_archive: Callable[[Plan, bytes], Iterable[Sequence[ReapRow]]]
    comparing: Comparing | None


class CutoverSession(Struct, frozen=True, kw_only=True):
    """The read-only part of a call of `cutover` or `rollback`, for one plan."""

    call: CutoverCall
    plan: Plan
    site: SiteRecord
    capabilities: TargetCapabilities
    _turn: threading.Lock = msgspec.field(default_factory=threading.Lock)

    @property
    def ports(self) -> TransferPorts:
        """The world of the migration."""
        return self.call.migration.world

    @property
    def ledger(self) -> "CutoverLedger":
        """The ledger."""
        return self.call.ledger

    def now_s(self) -> float:
        """The time."""
        return self.ports.clock.now_s()

    def paths(self, tree: bytes) -> tuple[bytes, bytes]:
        """The absolute paths of a tree on the source and on the target."""
        return join(self.ports.source.root, tree), join(self.ports.target.root, tree)

    async def blocking(self, work: Callable[[], T]) -> T:
        """Run work on a file system that may not answer. Raises OSError, also after the time limit.

        Work that was cancelled or timed out may still run, so the next work waits until it ends. Otherwise a top in the
        middle of closing would be seen open, or be opened while the closing continues.
        """

        def in_turn() -> T:
            with self._turn:
                return work()

        try:
            return await self.ports.blocking(in_turn, timeout_s=self.call.request.run.stall_timeout_s)
        except TimeoutError as error:
            raise OSError("a file system does not answer") from error

    async def entry(self, side: FileSystem, tree: bytes) -> Entry | None:
        """The current top of a tree."""
        return await self.blocking(lambda: side.look(tree))

    async def acl_problems(self, tree: UserTree, catalog: str) -> tuple[str, ...] | None:
        """Why new files on the target would be open to users whom default ACLs of the tree keep out on the source, by a
        catalog of the source. None: unknown.
        """
        if self.capabilities.inherits_default_acls or not self.call.request.require_acl_inheritance:
            return ()
        reads = CatalogReads(catalogs=self.call.migration.catalogs, scratch=self.call.migration.scratch)
        found = await result_or_none(asyncio.to_thread(reads.default_acls, catalog, tree.path))
        return None if found is None else rules_preflight.acl_problems(tree, *found)

    async def write_problems(self, tree: bytes, *, back: bool) -> tuple[str, ...] | None:
        """Reasons why processes may still write to the tree; None if that cannot be checked."""
        search = self.call.target_writers if back else self.call.source_writers
        found = await result_or_none(search([tree]))
        return None if found is None else rules_writers.writing_problems(found, vouched=self.call.request.vouched)

    async def search_gaps(self, search: WriterSearch, trees: Sequence[bytes] = ()) -> tuple[str, ...] | None:
        """The gaps of a search for writers, with or without a freeze; None if the search fails."""
        found = await result_or_none(search(trees))
        return None if found is None else rules_writers.search_gaps(found, vouched=self.call.request.vouched)

    async def rollback_problem(self) -> str:
        """Why users who work on the target could not be moved back; empty if they could."""
        unseen = await self.search_gaps(self.call.target_writers)
        return "open files on the target cannot be listed" if unseen is None else "; ".join(unseen)

    def lacks_backup(self, tree: bytes, batch: int) -> bool:
        """True if the site requires a backup of the target, and none of this tree is recorded that began after the last
        pass before the final one.
        """
        passes = self.ledger.passes.of_batch(self.plan.name, batch)
        ended = [one.finished_at_s or 0.0 for one in passes if one.kind is not PassKind.FINAL]
        return self.call.request.wants_backup and self.ledger.backups.lack(tree, since_s=max(ended, default=0.0))

    def wanted_top(self, record: model.CutoverRecord, source: Entry | None, target: Entry | None) -> FrozenTop | None:
        """The top on the target when it is open; None while that is unknown."""
        if record.notes.frozen_target_top is not None:
            return rules_tops.read_top(record.notes.frozen_target_top)
        if record.notes.frozen_top is None or source is None or target is None:
            return None
        return rules_tops.opened_top(
            rules_tops.as_before(source, rules_tops.read_top(record.notes.frozen_top)), target, self.capabilities
        )

    @contextmanager
    def tree_migration(self, record: model.CutoverRecord, *, back: bool) -> Iterator[TreeMigration | None]:
        """The tree in its cutover, or (`back`) in its rollback; None before a rollback."""
        if back:
            with self.call.rollbacks.sites.read(record) as rollback:
                yield rollback
        else:
            yield TreeMigration(ledger=self.ledger, plan=record.plan, batch=record.batch, tree=record.tree.path)

    def numbers(self, record: model.CutoverRecord, *, back: bool) -> tuple[int, int]:
        """The numbers of the newest pass over the tree in that direction, and of the newest verification; 0 if there is none.
        Blocking.
        """
        with self.tree_migration(record, back=back) as tree:
            return (0, 0) if tree is None else tree.newest_numbers()


class ActiveSession(CutoverSession, frozen=True, kw_only=True):
    """A call that makes changes: its run in the ledger, and the hooks."""

    run_hooks: RunHooks

    @property
    def hooks(self) -> StepHooks:
        return self.run_hooks.steps()

    @property
    def invocation(self) -> RunInvocation:
        return self.run_hooks.invocation

    def emit(self, kind: EventKind, severity: Severity, user: str, message: str) -> None:
        """Record an event about one user."""
        self.invocation.report(kind, severity, f"{user}: {self.call.request.verb}", message)

    def batch_of(self, tree: UserTree, number: int) -> Batch:
        """The batch of the tree, with that tree alone."""
        batch = next(one for one in self.plan.batches if one.number == number)
        return part_of(self.plan, batch, (tree.path,))

    def final_passes(self, tree: UserTree, number: int) -> AsyncIterator[tuple[BatchSummary, PassRecord]]:
        """Passes over one tree, until every rename succeeds."""
        batch = self.batch_of(tree, number)
        migration, hooks = self.call.migration, self.run_hooks
        return migration.final_passes(self.invocation, self.plan, self.site, batch, hooks=hooks)


class CutoverPlace(Struct, frozen=True, kw_only=True):
    """One step (freeze, switch, thaw or purge) of one cutover attempt; `back`: of its rollback."""

    step: HookStep
    record: model.CutoverRecord
    back: bool = False

    @property
    def hooked(self) -> HookedStep:
        """The step for its hooks. A repeated rollback has the steps of the one before."""
        user, number = self.record.tree.user, self.record.id
        return HookedStep(
            step=self.step,
            key=f"cutover {number}: {'rollback ' if self.back else ''}{self.step.value}",
            subject=f"{user}: {'rollback' if self.back else 'cutover'}",
            words=f"the {self.step.value} of {user}{' for the rollback' if self.back else ''}",
        )
