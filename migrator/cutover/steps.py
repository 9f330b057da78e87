"""The steps of one tree: take a snapshot, decide, write the intent, act, write the result."""

import asyncio
import os
import threading
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.database import connect_ahead
from migrator.catalog.model import ArchivedMember, VerificationRecord
from migrator.catalog.queries import CatalogReads
from migrator.core.durable import write_durably
from migrator.core.entry import Entry, EntryType, UserTree
from migrator.core.errors import LedgerCorrupt, MigratorError, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import join, show
from migrator.core.states import PassKind
from migrator.core.tasks import task_group, to_the_end, told
from migrator.core.units import first_of, format_duration, format_size, several
from migrator.cutover import (
    model,
    rules,
    rules_directions,
    rules_freezes,
    rules_preflight,
    rules_states,
    rules_tops,
    rules_writers,
)
from migrator.cutover.files import MountedTops, SymlinkedPaths
from migrator.cutover.freezes import parts_of_freeze
from migrator.cutover.late import KnownDirectory, LateWrites, close_block, directories_of
from migrator.cutover.migration import Migration, TreeMigration
from migrator.cutover.model_calls import CutoverEnding, CutoverOutcome, CutoverRequest
from migrator.cutover.model_freezes import FreezePart
from migrator.cutover.model_snapshot import FinalPassResult, LinkState, TopState, TreeProof, TreeSnapshot
from migrator.cutover.model_source import SourceChange, SourceChangeKind
from migrator.cutover.model_speed import TreeVisited
from migrator.cutover.model_tops import FrozenTop
from migrator.cutover.places import CutoverPlace
from migrator.cutover.records import SpeedUpRecords
from migrator.cutover.rollback import Rollbacks, noted_paths
from migrator.cutover.rules_speed import describe_user, speed_ups
from migrator.cutover.writers import SearchesAhead, WriterSearch
from migrator.fs.model import DigestPolicy, Side, TargetCapabilities, trash_place
from migrator.fs.ports import FileSystem
from migrator.fs.writing import MountedTarget
from migrator.hooks.model import HookEvent, HookFacts, HookState, HookStep
from migrator.hooks.stage import HookRefused, Hooks, HookSkipped, StepHooks
from migrator.ledger.model import SiteRecord
from migrator.operations.engine import (
    INTERRUPTED,
    Around,
    DeferredCancellation,
    Done,
    OperationEngine,
    Procedure,
    StepEvents,
    StepPorts,
    Stuck,
    TimeLimit,
    reason_of,
)
from migrator.operations.model import Finished, Halt
from migrator.plan.limits import set_confirmed
from migrator.plan.model import Batch, Plan
from migrator.reap.archive import ProvenArchives
from migrator.reap.files import MountedArchiveFolders
from migrator.reap.model import ReapRow, same_file
from migrator.site.rules_links import link_path, naming_problem
from migrator.transfer.bases import part_of
from migrator.transfer.context import Invocation, World
from migrator.transfer.delta.delta import note_equal
from migrator.transfer.guards import mounts_changed
from migrator.transfer.model import BatchSummary, PassRecord
from migrator.transfer.run import Hooking

if TYPE_CHECKING:
    from migrator.cutover.records import CutoverLedger, CutoverRecords

# What a cutover touches, and the call that it belongs to.


T = TypeVar("T")

OWN_STEPS = (HookStep.PASS, HookStep.FREEZE, HookStep.SWITCH, HookStep.THAW)
"""The steps around which this verb calls hooks. `run` makes passes too; both verbs hold one lock."""


class Comparing(Struct, frozen=True, kw_only=True):
    """Everything that measuring a user's tree before and after needs. Each side takes at most `limit_s`."""

    visit: Callable[..., Awaitable[TreeVisited]]
    samples: CatalogReads
    limit_s: float


class CutoverWorld(Struct, frozen=True, kw_only=True):
    """What a cutover touches. `migration` has the same ledger. `links` is None if hooks make the switch.

    `freezer` closes tops on the source, `trees` opens and closes them on the target, `source_trees` opens those on the
    source for users who come back. `source_writers` and `target_writers` search either side for processes that still
    write. `policy` defines the content to compare. `backup` keeps a copy of the ledger under a name; the copy is durable
    on return. `to_archive` returns the rows of a plan's reap list to archive from a tree (blocking; raises Refused).
    `comparing` measures users' trees before and after; None if the site does not enable that. `seen_by_nobody` tells how
    users may write to the source past a closed top, where no search sees them; None: in no way.
    """

    migration: Migration
    ledger: "CutoverLedger"
    hooks: Hooks
    freezer: MountedTops
    trees: MountedTarget
    source_trees: MountedTarget
    source_writers: SearchesAhead
    target_writers: WriterSearch
    links: SymlinkedPaths | None
    policy: DigestPolicy
    rollbacks: Rollbacks
    backup: Callable[[str], None]
    to_archive: Callable[[Plan, bytes], Iterable[Sequence[ReapRow]]]
    comparing: Comparing | None = None
    seen_by_nobody: Callable[[], Awaitable[tuple[str, ...]]] | None = None


_SEARCHED = frozenset({model.Phase.FROZEN, model.Phase.VERIFIED, model.Phase.SWITCHING})
"""The phases that require a search for writers: before the final pass, and immediately before the switch."""

SEARCHES = 2
"""For writers, in a freeze: before the final pass, and before the switch."""

_THAWING_BACK = frozenset({model.CutoverState.SWITCHED_BACK, model.CutoverState.ROLLBACK_THAWING})


class Sight(Struct, frozen=True, kw_only=True):
    """The read-only part of a call of `cutover` or `rollback`, for one plan."""

    world: CutoverWorld
    request: CutoverRequest
    plan: Plan
    site: SiteRecord
    capabilities: TargetCapabilities
    _turn: threading.Lock = msgspec.field(default_factory=threading.Lock)

    @property
    def run(self) -> World:
        """What a run touches."""
        return self.world.migration.world

    @property
    def ledger(self) -> "CutoverLedger":
        """The ledger."""
        return self.world.ledger

    def now_s(self) -> float:
        """The time."""
        return self.run.clock.now_s()

    def paths(self, tree: bytes) -> tuple[bytes, bytes]:
        """The absolute paths of a tree on the source and on the target."""
        return join(self.run.source.root, tree), join(self.run.target.root, tree)

    async def blocking(self, work: Callable[[], T]) -> T:
        """Run work on a file system that may not answer. Raises OSError, also after the time limit.

        Work that was cancelled or timed out may still run, so the next work waits until it ends. Otherwise a top in the
        middle of closing would be seen open, or be opened while the closing continues.
        """

        def in_turn() -> T:
            with self._turn:
                return work()

        try:
            return await self.run.blocking(in_turn, timeout_s=self.request.run.stall_timeout_s)
        except TimeoutError as error:
            raise OSError("a file system does not answer") from error

    async def entry(self, side: FileSystem, tree: bytes) -> Entry | None:
        """The current top of a tree."""
        return await self.blocking(lambda: side.look(tree))

    async def acl_problems(self, tree: UserTree, catalog: str) -> tuple[str, ...] | None:
        """Why new files on the target would be open to users whom default ACLs of the tree keep out on the source, by a
        catalog of the source. None: not known.
        """
        if self.capabilities.inherits_default_acls or not self.request.require_acl_inheritance:
            return ()
        reads = CatalogReads(catalogs=self.world.migration.catalogs, scratch=self.world.migration.scratch)
        found = await told(asyncio.to_thread(reads.default_acls, catalog, tree.path))
        return None if found is None else rules_preflight.acl_problems(tree, *found)

    async def see(self, record: model.CutoverRecord) -> TreeSnapshot:
        """Take the snapshot: every fact that the next step depends on."""
        way, phase = rules_directions.PLACES.get(record.state, (None, None))
        back = way is rules_directions.BACK
        async with task_group() as group:
            searched = phase in _SEARCHED
            writing = group.create_task(self.writing(record.tree.path, back=back)) if searched else None
            source_top, source_words = await self._source_top(record)
            target_seen, target_words = await self._target_top(record)
            link, holds = await self._link(record)
            copied, proof = await self.blocking(lambda: self._proofs(record, back=back))
        return TreeSnapshot(
            link=link,
            source_top=source_top,
            target_top=target_seen,
            writing=None if writing is None else writing.result(),
            copied=copied,
            proof=proof,
            lacks_backup=self.lacks_backup(record.tree.path, record.batch),
            link_holds=holds,
            top_differences=(*source_words, *target_words),
        )

    async def writing(self, tree: bytes, *, back: bool) -> tuple[str, ...] | None:
        """Reasons why somebody may still write to the tree; None if that cannot be checked."""
        search = self.world.target_writers if back else self.world.source_writers
        found = await told(search([tree]))
        return None if found is None else rules_writers.writing_problems(found, vouched=self.request.vouched)

    async def unseen(self, search: WriterSearch, trees: Sequence[bytes] = ()) -> tuple[str, ...] | None:
        """What a search for writers cannot see, with or without a freeze; None if the search fails."""
        found = await told(search(trees))
        return None if found is None else rules_writers.search_gaps(found, vouched=self.request.vouched)

    async def against_rollback(self) -> str:
        """Why users who work on the target could not be moved back; empty if they could."""
        unseen = await self.unseen(self.world.target_writers)
        return "who writes on the target cannot be asked" if unseen is None else "; ".join(unseen)

    def lacks_backup(self, tree: bytes, batch: int) -> bool:
        """Whether the site requires a backup of the target, and none of this tree is recorded that began after the last
        pass before the final one.
        """
        passes = self.ledger.passes.of_batch(self.plan.name, batch)
        ended = [one.finished_at_s or 0.0 for one in passes if one.kind is not PassKind.FINAL]
        return self.request.wants_backup and self.ledger.backups.lack(tree, since_s=max(ended, default=0.0))

    def wanted_top(self, record: model.CutoverRecord, source: Entry | None, target: Entry | None) -> FrozenTop | None:
        """The top on the target when it is open; None while that is not known."""
        if record.notes.frozen_target_top is not None:
            return rules_tops.read_top(record.notes.frozen_target_top)
        if record.notes.frozen_top is None or source is None or target is None:
            return None
        return rules_tops.opened_top(
            rules_tops.as_before(source, rules_tops.read_top(record.notes.frozen_top)), target, self.capabilities
        )

    @contextmanager
    def tree_migration(self, record: model.CutoverRecord, *, back: bool) -> Iterator[TreeMigration | None]:
        """The tree on the way there or `back`; None before a rollback."""
        if back:
            with self.world.rollbacks.sites.read(record) as rollback:
                yield rollback
        else:
            yield TreeMigration(ledger=self.ledger, plan=record.plan, batch=record.batch, tree=record.tree.path)

    def numbers(self, record: model.CutoverRecord, *, back: bool) -> tuple[int, int]:
        """The numbers of the newest pass over the tree on this way and of the newest verification; 0 if there is none.
        Blocking.
        """
        with self.tree_migration(record, back=back) as tree:
            return (0, 0) if tree is None else tree.newest_numbers()

    async def _source_top(self, record: model.CutoverRecord) -> tuple[TopState, tuple[str, ...]]:
        noted = record.notes.frozen_top
        freezer, tree = self.world.freezer, record.tree.path
        try:
            if noted is None or record.state is model.CutoverState.PLANNED:
                await self.blocking(lambda: freezer.read_top(tree))
                return TopState.OPEN, ()
            top = rules_tops.read_top(noted)
            look = await self.blocking(lambda: freezer.look(tree, top))
        except OSError:
            return TopState.UNKNOWN, ()
        if look.state is TopState.OTHER and record.state in _THAWING_BACK and not look.another:
            # The thaw applies the attributes that the user changed on the target, so such a top counts as partly
            # thawed.
            return TopState.PARTLY, ()
        return look.state, look.differences

    async def _target_top(self, record: model.CutoverRecord) -> tuple[TopState, tuple[str, ...]]:
        try:
            source, target = [await self.entry(side, record.tree.path) for side in (self.run.source, self.run.target)]
        except OSError:
            return TopState.UNKNOWN, ()
        return rules_tops.target_top(
            target, self.wanted_top(record, source, target), uid=os.geteuid(), gid=os.getegid()
        )

    async def _link(self, record: model.CutoverRecord) -> tuple[LinkState, bytes | None]:
        links = self.world.links
        if links is None:
            return LinkState.UNTOLD, None

        def look() -> tuple[LinkState, bytes | None]:
            found = links.read_link(record.tree)
            if record.notes.link not in (None, found.path):
                # site.toml names another link now: it is not the one that was switched.
                return LinkState.UNKNOWN, None
            if found.unread or links.problem(found) is not None:
                return LinkState.UNKNOWN, found.text
            return links.seen(record.tree, found), found.text

        try:
            return await self.blocking(look)
        except (OSError, MigratorError):
            return LinkState.UNKNOWN, None

    def _proofs(self, record: model.CutoverRecord, *, back: bool) -> tuple[FinalPassResult | None, TreeProof | None]:
        with self.tree_migration(record, back=back) as tree:
            if tree is None:
                return None, None
            copied, proof = tree.proofs(self.world.policy)
        of_now = proof is not None and proof.id > (record.notes.proofs_before or 0)
        if proof is not None and of_now and proof.differences and proof.manifest is not None:
            with suppress(MigratorError):
                found = self.world.migration.deltas.manifests.examples(proof.manifest, per_kind=1).differences
                proof = replace(proof, examples=tuple(f"{show(one.path)}: {one.kind.value}" for one in found))
        return copied, proof


class Cutting(Sight, frozen=True, kw_only=True):
    """A call that makes changes: its run in the ledger, and the hooks."""

    hooking: Hooking

    @property
    def invocation(self) -> Invocation:
        return self.hooking.invocation

    def say(self, kind: EventKind, severity: Severity, tree: UserTree, message: str) -> None:
        """Record an event about one user."""
        self.invocation.say(kind, severity, f"{tree.user}: {self.request.verb}", message)

    def batch_of(self, tree: UserTree, number: int) -> Batch:
        """The batch of the tree, with that tree alone."""
        batch = next(one for one in self.plan.batches if one.number == number)
        return part_of(self.plan, batch, (tree.path,))

    def final_passes(self, tree: UserTree, number: int) -> AsyncIterator[tuple[BatchSummary, PassRecord]]:
        """Passes over one tree, until every rename succeeds."""
        batch = self.batch_of(tree, number)
        migration, hooking = self.world.migration, self.hooking
        return migration.final_passes(self.invocation, self.plan, self.site, batch, hooking=hooking)


# Archives of reaped files: handed over with the tree, taken back with it, and checked before the freeze.


COUNTED = 10_000
"""The count of files without an archive stops here: each costs a look-up on the source."""


def _archive_folders(sight: Sight) -> MountedArchiveFolders:
    return MountedArchiveFolders(sight.run.target.root, sight.ledger.site.required().name_seed)


def assign_archives(sight: Sight, tree: bytes, *, to_user: bool) -> None:
    """Let the owner of the tree's top on the target read its archives, or restrict them to root. Blocking; may be
    called again. Raises OSError.
    """
    if not sight.ledger.archives.of_tree(tree):
        return
    folders = _archive_folders(sight)
    if not to_user:
        folders.take_back(tree)
    elif (top := sight.run.target.look(tree)) is not None:
        folders.hand_over(tree, uid=top.uid, gid=top.gid)


def lacking_archives(sight: Sight, tree: UserTree) -> tuple[str, ...] | None:
    """Why the archives of a tree are incomplete; None if the source cannot be read. Blocking.

    Files that the plan archives may be missing from all archives that were read back, although they are unchanged and
    not on the target: the verification would report them missing. Or an archive cannot be read.
    """
    count, archived = 0, None
    try:
        for rows in sight.world.to_archive(sight.plan, tree.path):
            archived = archived or ProvenArchives(sight.ledger.archives, _archive_folders(sight))
            known = archived.of_block(tree.path, [row.path for row in rows])
            count += sum(_lacks_archive(sight.run, row, known.get(row.path)) for row in rows)
            if count >= COUNTED:
                break
    except MigratorError as error:
        return (error.message,)
    except OSError:
        return None
    if not count:
        return ()
    lacks = f"{several(count, 'file')} of {tree.user} that the plan archives {'is' if count == 1 else 'are'}"
    return (f"{lacks} in no archive that was read back: `migrator reap archive --user {tree.user}`",)


def _lacks_archive(run: World, row: ReapRow, member: ArchivedMember | None) -> bool:
    planned = (row.ino, row.size_bytes, row.mtime_ns, row.ctime_ns)
    if member is not None and _identity(member.entry) == planned:
        return False
    entry = run.source.look(row.path)
    # A file that has changed moves like any other file.
    if entry is None or _identity(entry)[1:] != planned[1:] or (member is not None and same_file(member, entry)):
        return False
    return run.target.look(row.path) is None


def _identity(entry: Entry) -> tuple[int, int, int, int]:
    return entry.ino, entry.size_bytes, entry.mtime_ns, entry.ctime_ns


# Changes of the retained source, checked before a rollback.


_SHOWN = 10
_LOOKS = 3
"""How often a kept source is looked at for late writes."""
_CHANGED_DIRECTORIES = "changed-directories"
"""A file in the directory of a rollback: directories whose owner or mode was changed before they were closed."""


async def retained_source_problem(cutting: Cutting, record: model.CutoverRecord) -> str:
    """Why changes of the retained source since the final pass prevent a rollback, as a sentence; empty if nothing does.

    No user is frozen meanwhile. A source that cannot be compared prevents the rollback too. If the request overwrites
    the source, its changes are kept in its trash.
    """
    if record.state not in (model.CutoverState.THAWED, model.CutoverState.RETAINED):
        return ""
    name, rollbacks = f"{show(record.tree.path)} on the source", cutting.world.rollbacks
    overwrite = cutting.request.overwrite_source
    try:
        _, changes = await _source_changes(cutting, record, final_catalog(cutting, record))
    except (MigratorError, OSError) as error:
        if not overwrite or isinstance(error, OSError):
            return f"whether somebody changed {name} since the cutover cannot be told: {reason_of(error)}"
        message = f"what was changed in {name} cannot be told, and is overwritten: {error.message}"
        cutting.say(EventKind.CUTOVER_STEP, Severity.WARNING, record.tree, message)
        return ""
    if not changes:
        return ""
    were = "was" if len(changes) == 1 else "were"
    words = f"{several(len(changes), 'path')} of {name} {were} changed since the cutover"
    listed = _listed(changes)
    if not overwrite:
        return f"{words}: {listed}"
    try:
        kept = await asyncio.to_thread(rollbacks.give_up_source, record, changes)
    except OSError as error:
        return f"{words}, and cannot be moved to the trash of the source: {error.strerror or error}"
    message = f"{words}, and {several(kept, 'path')} of these went to the trash of the source: {listed}"
    cutting.say(EventKind.CUTOVER_STEP, Severity.WARNING, record.tree, message)
    return ""


def _listed(changes: Sequence[SourceChange]) -> str:
    return first_of([f"{show(one.path)} ({one.kind.value})" for one in changes], _SHOWN, mark=";")


async def change_directories(
    cutting: Cutting,
    record: model.CutoverRecord,
    catalog_name: str,
    change: Callable[[bytes, Sequence[KnownDirectory]], None],
) -> None:
    """Close or open the directories of the kept source that are in a catalog. Raises OSError, MigratorError."""
    catalog = await asyncio.to_thread(cutting.world.migration.catalogs.open, catalog_name)
    blocks = directories_of(catalog, record.tree.path, cutting.world.migration.scratch)
    while block := await asyncio.to_thread(next, blocks, None):
        await cutting.blocking(partial(change, cutting.run.source.root, block))


def final_catalog(cutting: Cutting, record: model.CutoverRecord) -> str:
    """The name of the catalog of the source that the final pass copied. Raises MigratorError."""
    if record.notes.final_pass_id is None:
        raise MigratorError("the ledger does not know its final pass")
    return cutting.ledger.passes.read(record.notes.final_pass_id).catalog


async def _source_changes(
    cutting: Cutting, record: model.CutoverRecord, before: str
) -> tuple[str, Sequence[SourceChange]]:
    """The catalog of the kept source now, and what has changed there since the catalog `before`."""
    now = await cutting.world.migration.deltas.scan([record.tree.path])
    return now.name, await asyncio.to_thread(
        cutting.world.rollbacks.changed_source, record, before=before, now=now.name
    )


# The cutover and the rollback of one tree. Every step can be repeated: it does what is missing.


HOOKED = {
    step: hooked
    for way in (rules_directions.FORWARD, rules_directions.BACK)
    for step, hooked in (
        (way.freeze, HookStep.FREEZE),
        (way.switch, HookStep.SWITCH),
        (way.thaw, HookStep.THAW),
        (way.revert, HookStep.THAW),
    )
}
"""The steps around which hooks are called; the final pass calls the hooks of passes."""

_BACK = frozenset(
    {
        rules_directions.BACK.freeze,
        rules_directions.BACK.switch,
        rules_directions.BACK.thaw,
        rules_directions.BACK.revert,
    }
)
_STAYS = frozenset({model.CutoverStep.REVERT, model.CutoverStep.ROLLBACK_REVERT})
"""Thaws of a user who is not moved."""

_BEFORE_SWITCH = {
    model.CutoverState.SWITCHING: LinkState.SOURCE,
    model.CutoverState.SWITCHING_BACK: LinkState.TARGET,
}
"""The side to which the path leads if a hook has refused to switch it."""

_LIMITED = frozenset(
    {
        rules_directions.FORWARD.freeze,
        rules_directions.FORWARD.copy,
        rules_directions.FORWARD.verify,
        rules_directions.FORWARD.switch,
    }
)
"""Steps that end at the limit of a freeze: on the way there, until the path is switched."""

_DATABASES = 5
"""Of the final pass (its scan, the comparison) and of the verification (its scan, the join, the manifest)."""

_Done = Done[model.CutoverState, model.CutoverNotes]


@dataclass(slots=True, kw_only=True)
class TreeCutover(Procedure[model.CutoverRecord, TreeSnapshot]):
    """Moves one tree to the state that the command asks for: cut over, or (`back`) rolled back.

    A cancellation counts as a failure of the current step: before the switch it thaws the user without moving them,
    after the switch the move is completed.
    """

    events = StepEvents(
        done=EventKind.CUTOVER_STEP, failed=EventKind.CUTOVER_FAILED, aborting=EventKind.CUTOVER_REVERTING
    )

    cutting: Cutting
    cancellation: DeferredCancellation = field(default_factory=DeferredCancellation)
    _turned: bool = False
    _not_switched: bool = False

    @property
    def records(self) -> "CutoverRecords":
        return self.cutting.ledger.cutovers

    @property
    def ports(self) -> StepPorts:
        return self.cutting.run

    def shown(self, record: model.CutoverRecord) -> str:
        return record.tree.user

    def emit(self, kind: EventKind, severity: Severity, record: model.CutoverRecord, message: str) -> None:
        self.cutting.say(kind, severity, record.tree, message)

    @property
    def hooks(self) -> StepHooks:
        return self.cutting.hooking.steps()

    async def drive(self, record: model.CutoverRecord) -> CutoverOutcome:
        """Drive the tree from its current state. Raises LockHeld."""
        ended = await OperationEngine(self).drive(record)
        match ended.reason:
            case Finished() as step:
                return self._finished(ended.record, step)
            case Halt() as step:
                return self._halted(ended.record, step)
            case Stuck():
                return self._stuck(ended.record)
            case _:
                assert_never(ended.reason)

    async def snapshot(self, record: model.CutoverRecord) -> TreeSnapshot:
        seen = await self.cutting.see(record)
        left_s = self._left_s(record)
        return seen if left_s is None or left_s > 0 else replace(seen, too_long=self._too_long(record))

    def time_limit(self, record: model.CutoverRecord, act: model.CutoverAct) -> TimeLimit | None:
        # Only the hook knows whether it has switched the path: it is not interrupted.
        by_hook = act.step is model.CutoverStep.SWITCH and self.cutting.world.links is None
        left_s = None if by_hook or act.step not in _LIMITED else self._left_s(record)
        return None if left_s is None else TimeLimit(timeout_s=max(left_s, 0.0), reason=partial(self._too_long, record))

    def _too_long(self, record: model.CutoverRecord) -> str:
        return rules_freezes.limit_problem(self._parts_s(record), limit_s=self.cutting.request.max_freeze_s)

    def _left_s(self, record: model.CutoverRecord) -> float | None:
        """The seconds until a freeze has to end; None if there is no limit: after the switch, of a rollback, and where
        the command accepts any.
        """
        way, _ = rules_directions.PLACES.get(record.state, (None, None))
        if way is not rules_directions.FORWARD or record.frozen_at_s is None or self.cutting.request.accept_freeze:
            return None
        return record.frozen_at_s + self.cutting.request.max_freeze_s - self.cutting.now_s()

    def _parts_s(self, record: model.CutoverRecord) -> Mapping[FreezePart, float]:
        return parts_of_freeze(self.cutting.ledger, record, now_s=self.cutting.now_s())

    def next_step(self, record: model.CutoverRecord, seen: TreeSnapshot) -> model.Step:
        # A rollback that was given up after it had turned does not begin again.
        self._turned = self._turned or rules.turned_back(record.state)
        if self._not_switched and seen.link is LinkState.UNTOLD:
            seen = replace(seen, link=_BEFORE_SWITCH.get(record.state, seen.link))
        return (
            rules.begin_rollback(record, seen)
            if self.cutting.request.back and not self._turned
            else rules.next_step(record, seen)
        )

    def after_failure(
        self, record: model.CutoverRecord, act: model.CutoverAct, error: Exception, *, resumed: bool
    ) -> None:
        """Raise nothing: a user who may be frozen must be moved on or back."""
        del record
        # After a resume, a hook's refusal does not show whether the hook call of the killed run made the switch.
        if not resumed and isinstance(error, HookRefused | HookSkipped):
            self._not_switched = self._not_switched or HOOKED.get(act.step) is HookStep.SWITCH

    async def around(self, act: model.CutoverAct, record: model.CutoverRecord) -> Around | None:
        hooked = HOOKED.get(act.step)
        if hooked is None:
            return None
        place = CutoverPlace(step=hooked, record=record, back=act.step in _BACK)
        if act.seen_done and self.cancellation.requested:
            # The operator has waited for hooks long enough: thawing the user comes first.
            message = f"hooks that are still owed after {place.hooked.words} were not called: {INTERRUPTED}; the next call does"
            self.emit(EventKind.HOOK_FAILED, Severity.WARNING, record, message)
            return None

        return Around(
            step=place.hooked,
            before=lambda: self.facts(place, HookEvent.PRE, record, act),
            after=lambda: self.facts(place, HookEvent.POST, record, act),
            stoppable=hooked is not HookStep.THAW,
        )

    def facts(
        self, place: CutoverPlace, event: HookEvent, record: model.CutoverRecord, act: model.CutoverAct
    ) -> HookFacts:
        """The facts for hooks on one side of a step. A rollback goes from the target to the source."""
        cutting = self.cutting
        usage = next((one for one in cutting.plan.ranking if one.tree.path == record.tree.path), None)
        old, new = cutting.paths(record.tree.path)
        link, links = record.notes.link, cutting.world.links
        if link is None and links is not None and not naming_problem(links.place.link, record.tree):
            link = link_path(links.place.link, record.tree)  # before it is in the ledger
        stays, thaws = act.step in _STAYS, place.step is HookStep.THAW
        # Prediction and measurement belong to the way there.
        frozen_s = None if place.back else record.freeze_s
        if frozen_s is None and thaws and record.frozen_at_s is not None and not place.back:
            frozen_s = max(cutting.now_s() - record.frozen_at_s, 0.0)
        return HookFacts(
            run_id=cutting.invocation.run_id,
            plan=record.plan,
            batch=record.batch,
            trees=(record.tree,),
            user=record.tree.user,
            link=None if links is None else link,
            old_path=new if place.back else old,
            new_path=old if place.back else new,
            back=place.back,
            freeze_s=None if place.back else record.predicted_freeze_s,
            frozen_s=frozen_s,
            moved=not stays if thaws else None,
            reason=record.failure if stays else None,
            files=usage.files if usage else 0,
            size_bytes=usage.size_bytes if usage else 0,
            state=HookState.DONE if event is HookEvent.POST else "",
            started_at_s=record.since_s,
        )

    def _finished(self, record: model.CutoverRecord, step: Finished) -> CutoverOutcome:
        good = (
            {model.CutoverState.ROLLED_BACK, model.CutoverState.REVERTED}
            if self.cutting.request.back
            else model.SETTLED_STATES
        )
        # A rollback that was given up leaves the user on the target, which is what `cutover` asks for.
        moved = record.state in good
        words = step.words
        if self.cutting.request.back and not moved:
            words += f": {record.failure or 'no reason was recorded'}"
        if not self.cutting.request.back and (frozen := rules_freezes.describe_freeze(record)):
            words += f". {frozen}"
        if not self.cutting.request.back and (late := record.notes.late) is not None:
            words += f" {late.words}."
        if moved:
            self.emit(EventKind.CUTOVER_FINISHED, Severity.INFO, record, words)
        else:
            # The reason was reported when it was given up.
            where = f"{record.tree.user} works {rules_states.describe_state(record.state)}"
            self.emit(EventKind.CUTOVER_GIVEN_UP, Severity.WARNING, record, where)
        hint = "" if moved else "put that right, then run the same command again"
        outcome = rules_states.outcome_of(
            record, CutoverEnding.MOVED if moved else CutoverEnding.GIVEN_UP, words, hint=hint
        )
        return replace(outcome, predicted_freeze_s=record.predicted_freeze_s, freeze_parts_s=self._parts_s(record))

    def _halted(self, record: model.CutoverRecord, step: Halt) -> CutoverOutcome:
        words = f"{record.tree.user} is not touched ({rules_states.describe_state(record.state)}): {step.words}"
        self.emit(EventKind.CUTOVER_HALTED, Severity.ERROR, record, words)
        return rules_states.outcome_of(record, CutoverEnding.HALTED, words, hint=step.hint)

    def _stuck(self, record: model.CutoverRecord) -> CutoverOutcome:
        words = f"{record.tree.user} is {rules_states.describe_state(record.state)}: {record.failure}"
        self.emit(EventKind.CUTOVER_HALTED, Severity.ERROR, record, words)
        hint = "put that right, then run the same command again: it resumes"
        return rules_states.outcome_of(record, CutoverEnding.STUCK, words, hint=hint)

    # Steps.

    async def prepare(
        self, record: model.CutoverRecord, act: model.CutoverAct, seen: TreeSnapshot
    ) -> model.CutoverNotes:
        """The facts to record before a step begins: how to thaw the tops that it freezes, what it verifies and
        switches, and which passes and verifications in the ledger are older.

        A top is read only before its freeze begins: later it may be the frozen one. Raises Refused if the path would be
        switched while a mount is not the expected one.
        """
        cutting, tree, step = self.cutting, record.tree.path, act.step
        world = cutting.world
        if step is model.CutoverStep.FREEZE and record.state is not model.CutoverState.FREEZING:
            top = await cutting.blocking(lambda: world.freezer.read_top(tree))
            passes, proofs = cutting.numbers(record, back=False)
            await self._back_up_ledger(record, "target")
            return model.CutoverNotes(frozen_top=rules_tops.write_top(top), passes_before=passes, proofs_before=proofs)
        if step is model.CutoverStep.ROLLBACK_FREEZE and record.state is not model.CutoverState.ROLLBACK_FREEZING:
            top = await self._target_top(record)
            passes, proofs = await cutting.blocking(lambda: cutting.numbers(record, back=True))
            await self._back_up_ledger(record, "source")
            return model.CutoverNotes(
                frozen_target_top=rules_tops.write_top(top), passes_before=passes, proofs_before=proofs
            )
        # A proof that is found complete is newer than what was recorded before it.
        if step is model.CutoverStep.VERIFY:
            # A killed call may have left a pass that the record does not mention.
            final = None if seen.copied is None else seen.copied.id
            newest = None if act.seen_done else cutting.numbers(record, back=False)[1]
            return model.CutoverNotes(final_pass_id=final, proofs_before=newest)
        if step is model.CutoverStep.ROLLBACK_VERIFY:
            changes = await cutting.blocking(lambda: world.rollbacks.changes(record))
            _, newest = await cutting.blocking(lambda: cutting.numbers(record, back=True))
            return model.CutoverNotes(target_changes=changes, proofs_before=None if act.seen_done else newest)
        if step in (model.CutoverStep.SWITCH, model.CutoverStep.SWITCH_BACK) and not act.seen_done:
            await self._check_mounts()
        if step is model.CutoverStep.SWITCH and not act.seen_done:
            await self._check_acls(record)
        if step is model.CutoverStep.SWITCH and world.links is not None:
            return model.CutoverNotes(link=link_path(world.links.place.link, record.tree))
        return model.NO_CUTOVER_NOTES

    async def _back_up_ledger(self, record: model.CutoverRecord, side: str) -> None:
        """Before the freeze: copying the ledger of a large site takes seconds. Raises MigratorError: the user is not frozen then."""
        await asyncio.to_thread(self.cutting.world.backup, f"before-{record.own_name}-to-the-{side}")

    async def _check_mounts(self) -> None:
        """Raise Refused if the mounts are not those that were verified, as after a reboot between a killed call and
        this one.
        """
        run, site, timeout_s = self.cutting.run, self.cutting.site, self.cutting.request.run.stall_timeout_s
        problems = (*await mounts_changed(run, site, timeout_s),)
        if problems:
            raise Refused(
                f"the path is not switched: {'; '.join(problems)}",
                cause="a file system was unmounted, or another one is mounted in its place",
                hint="see `migrator doctor`, then run the same command again",
            )

    async def _check_acls(self, record: model.CutoverRecord) -> None:
        """Raise Refused for a default ACL that was set after the preflight checks."""
        problems = await self.cutting.acl_problems(record.tree, final_catalog(self.cutting, record))
        if problems is None:
            raise Refused("the path is not switched: the default ACLs of the tree are not known")
        if problems:
            raise Refused(f"the path is not switched: {'; '.join(problems)}")

    async def perform(self, act: model.CutoverAct, record: model.CutoverRecord) -> _Done:
        """Make one step. A step that is found done was made by a killed call that did not record it; the kill may have
        come between the top and the archives.
        """
        cutting, tree, user, notes, step = self.cutting, record.tree.path, record.tree.user, record.notes, act.step
        world, run = cutting.world, cutting.run
        if act.seen_done:
            if step in (model.CutoverStep.FREEZE, model.CutoverStep.ROLLBACK_FREEZE):
                await self._settle(run.source if step is model.CutoverStep.FREEZE else run.target)
            if step in (model.CutoverStep.THAW, model.CutoverStep.ROLLBACK_REVERT, model.CutoverStep.ROLLBACK_FREEZE):
                await self._assign_archives(tree, to_user=step is not model.CutoverStep.ROLLBACK_FREEZE)
            found = cutting.ledger.verifications.of_tree(record.plan, record.batch, tree)
            newest = found[-1] if step is model.CutoverStep.VERIFY and found else None
            return Done(notes=_verified_notes(newest) if newest else None, words="it was done before")
        match step:
            case model.CutoverStep.FREEZE:
                top = _noted(notes.frozen_top)
                await cutting.blocking(lambda: world.freezer.freeze(tree, top))
                world.source_writers.begin([tree], count=SEARCHES)
                open_databases = partial(connect_ahead, world.migration.scratch, count=_DATABASES)
                await asyncio.gather(self._settle(run.source), asyncio.to_thread(open_databases))
                return Done(words="its top is closed on the source")
            case model.CutoverStep.FINAL_PASS:
                return await self._final_passes(record)
            case model.CutoverStep.VERIFY:
                with world.migration.verifying(cutting.plan, record.batch, (tree,)) as verification:
                    verified = await verification.run()
                return Done(notes=_verified_notes(verified), words=_verified_words(verified))
            case model.CutoverStep.SWITCH:
                return await self._switch(record, back=False)
            case model.CutoverStep.SWITCH_BACK:
                await note_equal(run, world.migration.deltas, cutting.plan, cutting.batch_of(record.tree, record.batch))
                return await self._switch(record, back=True)
            case model.CutoverStep.THAW:
                source, clock_ns = await self._present(run.source, tree), await self._target_clock_ns()
                await self._open_target(tree, rules_tops.as_before(source, _noted(notes.frozen_top)))
                return Done(notes=model.CutoverNotes(target_thawed_ns=clock_ns), words=f"{user} works on the target")
            case model.CutoverStep.RETAIN:
                done = await self._retain(record)
                # After late writes, which it may refuse; the user works on the target already and does not wait.
                for severity, words in await set_confirmed(cutting.ledger, run.storage, tree):
                    self.emit(EventKind.QUOTA_LIMIT, severity, record, words)
                return done
            case model.CutoverStep.REVERT:
                if notes.frozen_top is not None:
                    before = rules_tops.read_top(notes.frozen_top)
                    await cutting.blocking(lambda: world.freezer.thaw(tree, before))
                return Done(words=f"{user} works on the source, as before")
            case model.CutoverStep.ROLLBACK_FREEZE:
                await cutting.blocking(lambda: world.trees.close_tree(tree))
                await self._assign_archives(tree, to_user=False)
                await self._settle(run.target)
                return Done(words="its top is closed on the target")
            case model.CutoverStep.CARRY_BACK:
                changes = await world.rollbacks.carry(record)
                words = f"{several(changes.files, 'file')} with {format_size(changes.size_bytes)} carried back, "
                words += f"{several(changes.gone, 'path')} taken away"
                return Done(notes=model.CutoverNotes(target_changes=changes), words=words)
            case model.CutoverStep.ROLLBACK_VERIFY:
                return Done(words=_verified_words(await world.rollbacks.compare(record)))
            case model.CutoverStep.ROLLBACK_THAW:
                await self._open_source(record)
                return Done(words=f"{user} works on the source again")
            case model.CutoverStep.ROLLBACK_REVERT:
                target, clock_ns = await self._present(run.target, tree), await self._target_clock_ns()
                await self._open_target(tree, rules_tops.as_before(target, _noted(notes.frozen_target_top)))
                return Done(
                    notes=model.CutoverNotes(target_thawed_again_ns=clock_ns),
                    words=f"{user} works on the target, as before",
                )
            case model.CutoverStep.PURGE:
                raise ValueError(step)

    async def _final_passes(self, record: model.CutoverRecord) -> _Done:
        cutting, files, size_bytes, made_id = self.cutting, 0, 0, None
        async for summary, made in cutting.final_passes(record.tree, record.batch):
            files, size_bytes, made_id = files + summary.files, size_bytes + summary.size_bytes, made.id
        words = f"{several(files, 'file')} with {format_size(size_bytes)} brought by the final pass"
        return Done(notes=model.CutoverNotes(final_pass_id=made_id), words=words)

    async def _switch(self, record: model.CutoverRecord, *, back: bool) -> _Done:
        world, side = self.cutting.world, "source" if back else "target"
        if world.links is None:
            return Done(words=f"the pre-switch hooks have said that the path leads to the {side}")
        links = world.links
        # Hooks have been called since the last snapshot, and may have taken long.
        await self._check_mounts()
        source, target = self.cutting.paths(record.tree.path)
        old, new = (target, source) if back else (source, target)
        await self.cutting.blocking(lambda: links.switch(record.tree, expected_old=old, new=new))
        return Done(words=f"the path leads to the {side}: {show(new)}")

    async def _retain(self, record: model.CutoverRecord) -> _Done:
        """Close the kept source, then look for what was written there since the freeze began, and carry it over."""
        cutting = self.cutting
        manifest = record.notes.manifest
        if model.CutoverState.ROLLBACK_FREEZING in record.times or manifest is None:
            # What a rollback carried back was not verified, so the source has to stay comparable.
            return Done(words="the source is kept as it was when it was frozen")
        before, found = final_catalog(cutting, record), 0
        noted = cutting.world.rollbacks.sites.directory_of(record) / _CHANGED_DIRECTORIES
        place = trash_place(cutting.now_s(), record.batch, "late", record.id)
        left: list[SourceChange] = []
        # Directories that were made late are closed after they were carried over; then once more.
        for _ in range(_LOOKS):
            await change_directories(cutting, record, before, partial(close_block, noted=noted))
            now, changes = await _source_changes(cutting, record, before)
            if not changes:
                break
            writes = LateWrites(
                source=cutting.run.source,
                target=cutting.run.target,
                capabilities=cutting.capabilities,
                place=place,
                manifest=manifest,
                scratch=cutting.world.migration.scratch,
            )
            # A cancelled copy in the middle would leave a user without the file that it replaces.
            left += await to_the_end(asyncio.to_thread(writes.carry, changes))
            before, found = now, found + len(changes)
        listed = {one.path for one in left}
        changed = [path for path in await asyncio.to_thread(noted_paths, noted) if path not in listed]
        left += [SourceChange(path=path, kind=SourceChangeKind.CHANGED, stands=EntryType.DIRECTORY) for path in changed]
        found += len(changed)
        if not found:
            return Done(words="the source is closed, and nobody has written there since the freeze began")
        late = model.LateSum(paths=found, left=len(left))
        if left:
            list_file = Path(cutting.invocation.directory.path) / f"late-writes-{record.id}"
            lines = "".join(f"{one.kind.value} {show(one.path)}\n" for one in left)
            await asyncio.to_thread(write_durably, list_file, lines.encode())
            late = replace(late, list_file=str(list_file))
        words = late.words + (f": {_listed(left)}" if left else "")
        self.emit(EventKind.CUTOVER_STEP, Severity.WARNING, record, words)
        return Done(notes=model.CutoverNotes(late=late), words="the source is closed")

    async def _open_target(self, tree: bytes, like: Entry) -> None:
        await self.cutting.blocking(lambda: self.cutting.world.trees.open_tree(tree, like))
        await self._assign_archives(tree, to_user=True)

    async def _target_clock_ns(self) -> int | None:
        """The target's own clock; None if it does not tell, which is no reason to keep a user frozen."""
        return await told(self.cutting.blocking(self.cutting.run.target.clock_ns))

    async def _open_source(self, record: model.CutoverRecord) -> None:
        cutting, tree = self.cutting, record.tree.path
        source, target = [await self._present(side, tree) for side in (cutting.run.source, cutting.run.target)]
        like = rules_tops.carried_top(
            source,
            target,
            source_before=_noted(record.notes.frozen_top),
            target_before=_noted(record.notes.frozen_target_top),
            capabilities=cutting.capabilities,
        )
        await cutting.blocking(lambda: cutting.world.source_trees.open_tree(tree, like))

    async def _assign_archives(self, tree: bytes, *, to_user: bool) -> None:
        await self.cutting.blocking(lambda: assign_archives(self.cutting, tree, to_user=to_user))

    async def _settle(self, side: FileSystem) -> None:
        """Wait until no client passes a closed top by its cache. A client opens names below a top that it has looked up
        before without checking the top, for as long as the `entry-timeout` of its mount.
        """
        identity = await self.cutting.blocking(side.identity)
        await self.cutting.run.clock.sleep(rules_writers.settle_s(identity.filesystem, self.cutting.request.settle_s))

    async def _target_top(self, record: model.CutoverRecord) -> FrozenTop:
        """How to thaw a user on the target: the top as it is, or as a thaw would make it if it was never opened."""
        run, tree = self.cutting.run, record.tree.path
        target = await self._present(run.target, tree)
        if not rules_tops.is_closed(target, uid=os.geteuid(), gid=os.getegid()):
            return rules_tops.top_of(target)
        wanted = self.cutting.wanted_top(record, await self._present(run.source, tree), target)
        if wanted is None:
            raise MigratorError(f"how {record.tree.user} is thawed on the target is not known")
        return wanted

    async def _present(self, side: FileSystem, tree: bytes) -> Entry:
        found = await self.cutting.entry(side, tree)
        if found is None:
            name = "source" if side is self.cutting.run.source else "target"
            raise Refused(
                f"the tree {show(tree)} is not on the {name}", hint="see `migrator doctor`, and who has moved it away"
            )
        return found


def _noted(text: str | None) -> FrozenTop:
    if text is None:
        raise LedgerCorrupt(
            "how a user is thawed is not written down",
            hint="bring the ledger back from its backup, or give the top directory its owner and mode by hand",
        )
    return rules_tops.read_top(text)


def _verified_notes(found: VerificationRecord) -> model.CutoverNotes:
    return model.CutoverNotes(verification_id=found.id, manifest=found.manifest)


def _verified_words(found: VerificationRecord) -> str:
    if not found.whole:
        return f"not whole: {'; '.join(found.reasons)}"
    differences = sum(found.differences.values())
    return f"{several(found.paths, 'path')} compared; " + (
        several(differences, "difference") if differences else "all equal"
    )


# Measurements of a tree before and after. They are made outside the freeze and never stop a cutover.


_FILES = 200
"""Number of files to sample."""


@dataclass(slots=True, kw_only=True)
class TreeComparison:
    """Measures one tree around its cutover: `before` when all preflight checks have passed, and `after` when its user works on the
    target. `keep` records the first measurements once the cutover has a record. A call that resumes has no files to read again.
    """

    cutting: Cutting
    _before: TreeVisited | None = None

    @property
    def _speed_ups(self) -> SpeedUpRecords:
        return self.cutting.ledger.speed_ups

    async def before(self, tree: UserTree) -> None:
        """Measure on the source. A failure is only an event; a cancellation is raised, before anything has begun."""
        comparing = self.cutting.world.comparing
        if comparing is None:
            return
        passes, seed = self.cutting.ledger.passes.over_tree(tree.path), zlib.crc32(tree.path)
        try:
            files: tuple[bytes, ...] = ()
            if passes:
                files = await self.cutting.blocking(
                    lambda: tuple(comparing.samples.draw(passes[-1].catalog, tree.path, count=_FILES, seed=seed))
                )
            self._before = await self._visit(comparing, tree, Side.SOURCE, files)
        except (MigratorError, OSError) as error:
            self._failed(tree, Side.SOURCE, reason_of(error))

    def keep(self, record: model.CutoverRecord) -> None:
        """Record the measurements on the source, replacing those of an earlier call."""
        comparing = self.cutting.world.comparing
        if comparing is not None and self._before is not None:
            self._speed_ups.forget(record.id, Side.SOURCE)
            self._speed_ups.add(record.id, self._before.measurements)

    async def after(self, machine: TreeCutover, outcome: CutoverOutcome, record: model.CutoverRecord) -> CutoverOutcome:
        """Measure on the target, if the user works there now and the source was measured. A cancellation ends the
        measurement and is remembered.
        """
        comparing, state = self.cutting.world.comparing, outcome.cutover.state if outcome.cutover else None
        if comparing is None or state not in model.SETTLED_STATES or machine.cancellation.requested:
            return outcome
        try:
            if not self._speed_ups.of(record.id):
                return outcome
            files = () if self._before is None else self._before.files
            visited = await self._visit(comparing, record.tree, Side.TARGET, files)
            self._speed_ups.add(record.id, visited.measurements)
            found = speed_ups(self._speed_ups.of(record.id))
            if words := describe_user(record.tree.user, found):
                self.cutting.say(EventKind.TREE_COMPARED, Severity.INFO, record.tree, words)
        except asyncio.CancelledError:
            machine.cancellation.defer()
            return outcome
        except (MigratorError, OSError) as error:
            self._failed(record.tree, Side.TARGET, reason_of(error))
            return outcome
        return replace(outcome, speed_ups=found)

    async def _visit(self, comparing: Comparing, tree: UserTree, side: Side, files: tuple[bytes, ...]) -> TreeVisited:
        cutting = self.cutting
        message = f"measuring listings and reads on the {side.value}, {format_duration(comparing.limit_s)} at most"
        cutting.say(EventKind.CUTOVER_STEP, Severity.INFO, tree, message)
        visited = await comparing.visit(
            side=side,
            tree=tree.path,
            directory=f"{cutting.invocation.directory.path}/compared",
            files=files,
            limit_s=comparing.limit_s,
            token=cutting.run.tokens(),
            now_s=cutting.now_s,
        )
        if visited.problem:
            self._failed(tree, side, visited.problem)
        return visited

    def _failed(self, tree: UserTree, side: Side, why: str) -> None:
        message = f"the tree could not be measured on the {side.value}: {why}; that changes nothing of the cutover"
        self.cutting.say(EventKind.COMPARISON_FAILED, Severity.WARNING, tree, message)
