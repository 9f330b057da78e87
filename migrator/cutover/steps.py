"""The steps of one tree: take a snapshot, decide, write the intent, act, write the result."""

import asyncio
import os
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from migrator.catalog.ports import Manifests
from migrator.core.clock import Clock
from migrator.core.entry import Entry, UserTree
from migrator.core.errors import LedgerCorrupt, MigratorError, Refused
from migrator.core.events import EventKind, Severity
from migrator.core.paths import join, show
from migrator.core.states import PassKind
from migrator.core.units import format_size, several
from migrator.cutover.carry_back import pass_seen, proof_seen
from migrator.cutover.files import real_place
from migrator.cutover.model import (
    NO_CUTOVER_NOTES,
    SETTLED_STATES,
    BackupSeen,
    CutoverNotes,
    CutoverRecord,
    CutoverRequest,
    CutoverState,
    CutoverStep,
    Ending,
    FreezeWay,
    FrozenTop,
    LinkPlace,
    LinkSeen,
    PassSeen,
    ProofSeen,
    Seen,
    SpeedUp,
    Step,
    TopSeen,
    TopState,
    TreeOutcome,
    Writers,
)
from migrator.cutover.ports import (
    CarriesBack,
    FileSamples,
    Freezer,
    Links,
    SourceChange,
    TreeTiming,
    TreeVisit,
    TreeVisited,
    WriterSearch,
)
from migrator.cutover.rules import (
    BACK,
    PLACES,
    SOURCE_SEEN,
    Phase,
    as_before,
    begin_rollback,
    has_clients_elsewhere,
    is_closed,
    next_step,
    opened_top,
    read_top,
    target_top,
    top_of,
    turned_back,
    what_is_unseen,
    why_not_frozen,
    write_top,
)
from migrator.cutover.rules_guards import freeze_words, outcome_of, state_words
from migrator.cutover.rules_speed import speed_ups, user_words
from migrator.delta.delta import DeltaPass, Deltas, note_equal
from migrator.delta.moving import only_not_renamed
from migrator.fs.model import Side, TargetCapabilities
from migrator.fs.ports import FileSystem, TargetTrees
from migrator.hooks.model import HookEvent, HookFacts, HookState, HookStep
from migrator.hooks.stage import CutoverPlace, HookRefused, Hooks, HookSkipped, StepHooks
from migrator.ledger.model import PassRecord, SiteRecord
from migrator.operations import model as operations
from migrator.operations.engine import INTERRUPTED, Around, Done, Engine, Events
from migrator.operations.model import Finished, Halt
from migrator.plan.model import Batch, Plan, TreeUsage
from migrator.reap.archive import ProvenArchives
from migrator.reap.files import MountedArchiveFolders
from migrator.reap.model import ArchivedMember, ReapRow, same_file
from migrator.site.rules_links import link_path, link_problem, top_before, user_problem
from migrator.transfer.bases import covers, pass_number
from migrator.transfer.context import Invocation, World
from migrator.transfer.guards import mount_findings
from migrator.transfer.hooks import Hooking
from migrator.transfer.model import BatchSummary
from migrator.verify.model import DigestPolicy, VerificationRecord

if TYPE_CHECKING:
    from migrator.ledger.cutovers import SpeedUpRecords
    from migrator.ledger.ledger import Ledger
    from migrator.ledger.operations import CutoverRecords

# What a cutover touches, and the call that it belongs to.


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
    records: "SpeedUpRecords"
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
    def ledger(self) -> "Ledger":
        """The ledger."""
        return self.run.ledger

    def now_s(self) -> float:
        """The time."""
        return self.run.clock.now_s()

    def paths(self, tree: bytes) -> tuple[bytes, bytes]:
        """Where a tree lies on the source and on the target, absolute."""
        return join(self.run.source.root, tree), join(self.run.target.root, tree)

    def usage(self, tree: bytes) -> TreeUsage | None:
        """The usage of a tree by the plan."""
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


# Snapshots.


_SEARCHED = frozenset({Phase.FROZEN, Phase.VERIFIED, Phase.SWITCHING})
"""Where it counts whether somebody writes: before what is there is carried over, and right before the switch."""

_THAWING_BACK = frozenset({CutoverState.SWITCHED_BACK, CutoverState.ROLLBACK_THAWING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Looker:
    """Takes snapshots of one tree. Changes nothing."""

    sight: Sight
    capabilities: TargetCapabilities

    async def see(self, record: CutoverRecord) -> Seen:
        """Every fact that the next step depends on."""
        way, phase = PLACES.get(record.state, (None, None))
        back = way is BACK
        source_top, source_words = await self._source_top(record)
        target_seen, target_words = await self._target_top(record)
        link, holds = await self._link(record)
        copied, proof = await self._proofs(record, back=back)
        return Seen(
            link=link,
            source_top=source_top,
            target_top=target_seen,
            writing=await self.writing(record, back=back) if phase in _SEARCHED else None,
            copied=copied,
            proof=proof,
            backup=await self.backup(record),
            link_holds=holds,
            top_differences=(*source_words, *target_words),
        )

    async def source_entry(self, record: CutoverRecord) -> Entry | None:
        """The top on the source as it is."""
        return await self._entry(self.sight.run.source, record)

    async def target_entry(self, record: CutoverRecord) -> Entry | None:
        """The top on the target as it is."""
        return await self._entry(self.sight.run.target, record)

    async def writing(self, record: CutoverRecord, *, back: bool) -> tuple[str, ...] | None:
        """Reasons why somebody may still write to the tree; None if that cannot be checked."""
        found = await self._writers(record, back=back)
        return None if found is None else why_not_frozen(found, vouched=self._vouched)

    async def unseen(self, record: CutoverRecord, *, back: bool) -> tuple[str, ...] | None:
        """What of that cannot be seen: who has something open before the freeze may close it, but this stays as it is. None where
        it cannot be asked.
        """
        found = await self._writers(record, back=back)
        return None if found is None else what_is_unseen(found, vouched=self._vouched)

    async def _writers(self, record: CutoverRecord, *, back: bool) -> Writers | None:
        world = self.sight.world
        search = world.target_writers if back else world.source_writers
        try:
            return await search.find_writers([record.tree.path])
        except (MigratorError, OSError):
            return None

    @property
    def _vouched(self) -> bool:
        return self.sight.request.freeze is FreezeWay.HOOK

    async def backup(self, record: CutoverRecord) -> BackupSeen:
        """Whether the backup is recorded that the site asks for: one of this tree, made after the last pass but the final."""
        if not self.sight.request.wants_backup:
            return BackupSeen.NOT_ASKED
        ledger = self.sight.ledger
        backup_s = ledger.target_backups.latest(record.tree.path)
        before = [
            one.finished_at_s
            for one in ledger.passes.of_batch(record.plan, record.batch)
            if one.kind is not PassKind.FINAL and one.finished_at_s is not None
        ]
        return (
            BackupSeen.RECORDED if backup_s is not None and backup_s >= max(before, default=0.0) else BackupSeen.MISSING
        )

    def wanted_top(self, record: CutoverRecord, source: Entry | None, target: Entry | None) -> FrozenTop | None:
        """The top on the target when it is open; None while that is not known."""
        if record.notes.frozen_target_top is not None:
            return read_top(record.notes.frozen_target_top)
        if record.notes.frozen_top is None or source is None or target is None:
            return None
        like = top_before(source, read_top(record.notes.frozen_top))
        return opened_top(like, target, self.capabilities)

    async def _source_top(self, record: CutoverRecord) -> tuple[TopSeen, tuple[str, ...]]:
        noted = record.notes.frozen_top
        freezer, tree = self.sight.world.freezer, record.tree.path
        try:
            if noted is None or record.state is CutoverState.PLANNED:
                await self.sight.blocking(lambda: freezer.read_top(tree))
                return TopSeen.OPEN, ()
            top = read_top(noted)
            look = await self.sight.blocking(lambda: freezer.look(tree, top))
        except OSError:
            return TopSeen.UNKNOWN, ()
        if look.state is TopState.CHANGED and record.state in _THAWING_BACK and not look.another:
            # It is thawed with what its user changed of it on the target: which thaw that was is done once more.
            return TopSeen.PARTLY, ()
        return SOURCE_SEEN[look.state], look.differences

    async def _target_top(self, record: CutoverRecord) -> tuple[TopSeen, tuple[str, ...]]:
        try:
            source, target = await self.source_entry(record), await self.target_entry(record)
        except OSError:
            return TopSeen.UNKNOWN, ()
        return target_top(target, self.wanted_top(record, source, target), uid=os.geteuid(), gid=os.getegid())

    async def _link(self, record: CutoverRecord) -> tuple[LinkSeen, bytes | None]:
        world = self.sight.world
        links, place = world.links, world.place
        if links is None or place is None:
            return LinkSeen.UNTOLD, None
        source, target = self.sight.paths(record.tree.path)

        def look() -> tuple[LinkSeen, bytes | None]:
            found = links.read_link(record.tree.user)
            if record.notes.link not in (None, found.path):
                # site.toml names another one by now: what was switched is not this.
                return LinkSeen.UNKNOWN, None
            if found.unread or link_problem(found, real_place(place), os.geteuid()) is not None:
                return LinkSeen.UNKNOWN, found.text
            sides = {os.path.realpath(source): LinkSeen.SOURCE, os.path.realpath(target): LinkSeen.TARGET}
            return (sides.get(found.leads_to, LinkSeen.OTHER) if found.leads_to else LinkSeen.OTHER), found.text

        try:
            return await self.sight.blocking(look)
        except (OSError, MigratorError):
            return LinkSeen.UNKNOWN, None

    async def _proofs(self, record: CutoverRecord, *, back: bool) -> tuple[PassSeen | None, ProofSeen | None]:
        if back:
            return await self.sight.blocking(lambda: self.sight.world.back.seen(record))
        final, latest = self.final_pass(record), self.verification(record)
        if final is None:
            return None, None
        copied = pass_seen(self.sight.ledger, final)
        if latest is None:
            return copied, None
        # It compares both sides as they are, so one that began after the pass is of what that left.
        proof = proof_seen(latest, self.sight.world.policy, catalog=copied.catalog)
        return copied, replace(proof, examples=self._examples(latest))

    def final_pass(self, record: CutoverRecord) -> PassRecord | None:
        """The newest final pass over the tree, of whatever attempt."""
        passes = self.sight.ledger.passes
        made = (one for one in reversed(passes.of_batch(record.plan, record.batch)) if one.kind is PassKind.FINAL)
        return next((one for one in made if covers(passes, one, (record.tree.path,))), None)

    def verification(self, record: CutoverRecord) -> VerificationRecord | None:
        """The newest verification of the tree, of whatever attempt."""
        found = self.sight.ledger.verifications.of_tree(record.plan, record.batch, record.tree.path)
        return found[-1] if found else None

    def _examples(self, found: VerificationRecord) -> tuple[str, ...]:
        if not found.differences or found.manifest is None:
            return ()
        try:
            examples = self.sight.world.manifests.examples(found.manifest, per_kind=1)
        except MigratorError:
            return ()
        return tuple(f"{show(one.path)}: {one.kind.value}" for one in examples.differences)

    async def _entry(self, side: FileSystem, record: CutoverRecord) -> Entry | None:
        return await self.sight.blocking(lambda: side.look(record.tree.path))


# Archives of reaped files: handed over with the tree, taken back with it, and checked before the freeze.


COUNTED = 10_000
"""So many files that lack an archive are counted one by one; each takes a look at the source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeArchives:
    """The archives of one tree. All blocking. A tree that has none, and of which nothing is to be archived, costs nothing."""

    sight: Sight
    tree: bytes

    def hand_over(self) -> None:
        """Let whoever has the tree's top on the target read them. May be called again. Raises OSError."""
        if self._has_any:
            top = self.sight.run.target.look(self.tree)
            if top is not None:
                self.sight.world.archive_folders.hand_over(self.tree, uid=top.uid, gid=top.gid)

    def take_back(self) -> None:
        """Make them root's alone. May be called again. Raises OSError."""
        if self._has_any:
            self.sight.world.archive_folders.take_back(self.tree)

    def lacking(self) -> int | str | None:
        """How many files the plan archives that no archive holds that was read back, although they are as the plan has them
        and not on the target: the verification would miss them. At most COUNTED. A sentence where archives cannot be read, None where the source
        cannot.
        """
        world, count = self.sight.world, 0
        try:
            archived: ProvenArchives | None = None
            for rows in world.to_archive(self.sight.plan, self.tree):
                archived = archived or world.archived()
                known = archived.of_block(self.tree, [row.path for row in rows])
                for row in rows:
                    count += self._lacks(row, known.get(row.path))
                    if count == COUNTED:
                        return count
        except MigratorError as error:
            return error.message
        except OSError:
            return None
        return count

    def _lacks(self, row: ReapRow, member: ArchivedMember | None) -> bool:
        if member is not None and _facts(member.entry) == (row.ino, row.size_bytes, row.mtime_ns, row.ctime_ns):
            return False
        run = self.sight.run
        entry = run.source.look(row.path)
        if entry is None or _facts(entry)[1:] != (row.size_bytes, row.mtime_ns, row.ctime_ns):
            # It moves as any other file.
            return False
        if member is not None and same_file(member, entry):
            return False
        return run.target.look(row.path) is None

    @property
    def _has_any(self) -> bool:
        """By the ledger: a directory of that name may be the user's own."""
        return bool(self.sight.ledger.archives.of_tree(self.tree))


def _facts(entry: Entry) -> tuple[int, int, int, int]:
    return entry.ino, entry.size_bytes, entry.mtime_ns, entry.ctime_ns


# Changes of the retained source, checked before a rollback.


_SHOWN = 10
_KEPT = (CutoverState.THAWED, CutoverState.RETAINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedSource:
    """Compares the source of one user with what the final pass saw there. Nobody is frozen meanwhile."""

    cutting: Cutting

    async def problem(self, record: CutoverRecord) -> str:
        """Why the user is not moved back, as a sentence; empty where nothing speaks against it. Where the request overwrites
        what was changed, that is kept in the trash of the source. A source that cannot be compared speaks against it too.
        """
        if record.state not in _KEPT:
            return ""
        name = f"{show(record.tree.path)} on the source"
        overwrite = self.cutting.request.overwrite_source
        try:
            changes = await self._changes(record)
        except (MigratorError, OSError) as error:
            if overwrite and isinstance(error, MigratorError):
                self._say(record, f"what was changed in {name} cannot be told, and is overwritten: {error.message}")
                return ""
            why = error.message if isinstance(error, MigratorError) else error.strerror or str(error)
            return f"whether somebody changed {name} since the cutover cannot be told: {why}"
        if not changes:
            return ""
        words = f"{several(len(changes), 'path')} of {name} {'was' if len(changes) == 1 else 'were'} changed since the cutover"
        if not overwrite:
            return f"{words}: {_listed(changes)}"
        back = self.cutting.world.back
        try:
            kept = await asyncio.to_thread(back.give_up_source, record, changes)
        except OSError as error:
            return f"{words}, and cannot be moved to the trash of the source: {error.strerror or error}"
        self._say(
            record, f"{words}, and {several(kept, 'path')} of these went to the trash of the source: {_listed(changes)}"
        )
        return ""

    async def _changes(self, record: CutoverRecord) -> tuple[SourceChange, ...]:
        cutting, pass_id = self.cutting, record.notes.final_pass_id
        if pass_id is None:
            raise MigratorError("the ledger does not know its final pass")
        before = cutting.ledger.passes.read(pass_id).catalog
        now = await cutting.world.deltas.scan([record.tree.path])
        back = cutting.world.back
        return tuple(await asyncio.to_thread(lambda: back.changed_source(record, before=before, now=now.name)))

    def _say(self, record: CutoverRecord, message: str) -> None:
        self.cutting.say(EventKind.CUTOVER_STEP, Severity.WARNING, record, message)


def _listed(changes: tuple[SourceChange, ...]) -> str:
    shown = "; ".join(f"{show(one.path)} ({one.kind.value})" for one in changes[:_SHOWN])
    return shown if len(changes) <= _SHOWN else f"{shown}; and {len(changes) - _SHOWN:,} more"


# The cutover and the rollback of one tree. Every step can be repeated: it does what is missing.


_HOOKED = {
    CutoverStep.FREEZE: HookStep.FREEZE,
    CutoverStep.SWITCH: HookStep.SWITCH,
    CutoverStep.THAW: HookStep.THAW,
    CutoverStep.REVERT: HookStep.THAW,
    CutoverStep.ROLLBACK_FREEZE: HookStep.FREEZE,
    CutoverStep.SWITCH_BACK: HookStep.SWITCH,
    CutoverStep.ROLLBACK_THAW: HookStep.THAW,
    CutoverStep.ROLLBACK_REVERT: HookStep.THAW,
}
"""Around which steps hooks are called; the final pass has those of passes."""

_BACK = frozenset(
    {
        CutoverStep.ROLLBACK_FREEZE,
        CutoverStep.SWITCH_BACK,
        CutoverStep.ROLLBACK_THAW,
        CutoverStep.ROLLBACK_REVERT,
    }
)
_STAYS = frozenset({CutoverStep.REVERT, CutoverStep.ROLLBACK_REVERT})
"""Thaws of a user who is not moved."""

_BEFORE_SWITCH = {CutoverState.SWITCHING: LinkSeen.SOURCE, CutoverState.SWITCHING_BACK: LinkSeen.TARGET}
"""Where the path leads that a hook has refused to switch."""

_MOST_PASSES = 3
"""In one freeze."""

_EVENTS = Events(
    step=EventKind.CUTOVER_STEP,
    failed=EventKind.CUTOVER_FAILED,
    finished=EventKind.CUTOVER_FINISHED,
    halted=EventKind.CUTOVER_HALTED,
)
_Act = operations.Act[CutoverStep, CutoverState]
_Done = Done[CutoverState, CutoverNotes]


class StepFailed(MigratorError):
    """A step failed."""


@dataclass(slots=True, kw_only=True)
class TreeMachine(Engine[CutoverRecord, Seen, CutoverState, CutoverStep, CutoverNotes, TreeOutcome]):
    """Brings one tree to where the command wants it: cut over, or (`back`) rolled back.

    A cancellation counts as a failure of the current step: before the switch the user is thawed without being moved, after it
    the move is completed.
    """

    cutting: Cutting
    looker: Looker
    back: bool = False
    shielded: bool = True
    _turned: bool = False
    _not_switched: bool = False

    @property
    def events(self) -> Events:
        return _EVENTS

    @property
    def records(self) -> "CutoverRecords":
        return self.cutting.ledger.cutovers

    @property
    def clock(self) -> Clock:
        return self.cutting.run.clock

    @property
    def poll_s(self) -> float:
        return 0.0

    @property
    def acts(self) -> Mapping[CutoverStep, Callable[[_Act, CutoverRecord], Awaitable[_Done]]]:
        return dict.fromkeys(self._deeds(), self._make)

    def say(self, kind: EventKind, severity: Severity, record: CutoverRecord, message: str) -> None:
        self.cutting.say(kind, severity, record, message)

    def announce(self, record: CutoverRecord, act: _Act) -> None:
        self.say(EventKind.CUTOVER_REVERTING, Severity.WARNING, record, f"given up: {act.reason}")

    def hooking(self) -> StepHooks | None:
        return self.cutting.hooking.steps()

    async def snapshot(self, record: CutoverRecord) -> Seen:
        return await self.looker.see(record)

    def looks_again(self, record: CutoverRecord, step: Halt, seen: Seen, *, looks: int, waited_s: float) -> bool:
        """A frozen user does not wait for another snapshot."""
        del record, step, seen, looks, waited_s
        return False

    def next_step(self, record: CutoverRecord, seen: Seen) -> Step:
        # Once it has turned, a rollback that had to be given up does not begin again.
        self._turned = self._turned or turned_back(record.state)
        if self._not_switched and seen.link is LinkSeen.UNTOLD:
            seen = replace(seen, link=_BEFORE_SWITCH.get(record.state, seen.link))
        return begin_rollback(record, seen) if self.back and not self._turned else next_step(record, seen)

    def failing(self, record: CutoverRecord, act: _Act, error: Exception, *, resumed: bool) -> None:
        """Nothing is raised: a user who may be frozen is brought on or back."""
        del record
        # What a hook says that was called before, by a call that was killed, tells nothing of what that one did.
        if not resumed and isinstance(error, HookRefused | HookSkipped):
            self._not_switched = self._not_switched or _HOOKED.get(act.step) is HookStep.SWITCH

    async def around(self, act: _Act, record: CutoverRecord) -> Around | None:
        hooked = _HOOKED.get(act.step)
        if hooked is None:
            return None
        place = CutoverPlace(step=hooked, record=record, back=act.step in _BACK)
        if act.seen_done and self.interrupted:
            # The operator has waited for hooks long enough: the user comes first.
            message = f"hooks that are still owed after {place.hooked.words} were not called: {INTERRUPTED}; the next call does"
            self.say(EventKind.HOOK_FAILED, Severity.WARNING, record, message)
            return None

        async def facts(event: HookEvent) -> HookFacts:
            return self.facts(place, event, record, act)

        return Around(
            step=place.hooked,
            before=partial(facts, HookEvent.PRE),
            after=partial(facts, HookEvent.POST),
            stoppable=hooked is not HookStep.THAW,
        )

    def facts(self, place: CutoverPlace, event: HookEvent, record: CutoverRecord, act: _Act) -> HookFacts:
        """What hooks on one side of a step are told. A rollback goes from the target to the source."""
        cutting = self.cutting
        usage = cutting.usage(record.tree.path)
        old, new = cutting.paths(record.tree.path)
        link, place_of_links = record.notes.link, cutting.world.place
        if link is None and place_of_links is not None and not user_problem(record.tree.user):
            link = link_path(place_of_links.link, record.tree.user)  # before it is in the ledger
        stays, thaws = act.step in _STAYS, place.step is HookStep.THAW
        # What was predicted and measured is of the way there.
        frozen_s = None if place.back else record.freeze_s
        if frozen_s is None and thaws and record.frozen_at_s is not None and not place.back:
            frozen_s = max(cutting.now_s() - record.frozen_at_s, 0.0)
        return HookFacts(
            run_id=cutting.invocation.run_id,
            plan=record.plan,
            batch=record.batch,
            trees=(record.tree,),
            user=record.tree.user,
            link=link if cutting.world.links is not None else None,
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

    async def finished(self, record: CutoverRecord, step: Finished) -> TreeOutcome:
        good = {CutoverState.ROLLED_BACK, CutoverState.REVERTED} if self.back else SETTLED_STATES
        # A rollback that was given up leaves the user on the target, which is where `cutover` wants them.
        moved = record.state in good
        words = step.words
        if self.back and not moved:
            words += f": {record.failure or 'no reason was recorded'}"
        if record.freeze_s is not None and not self.back:
            words += f". {freeze_words(record)}"
        kind = EventKind.CUTOVER_FINISHED if moved else EventKind.CUTOVER_GIVEN_UP
        self.say(kind, Severity.INFO if moved else Severity.WARNING, record, words)
        hint = "" if moved else "put that right, then run the same command again"
        outcome = outcome_of(record, Ending.MOVED if moved else Ending.GIVEN_UP, words, hint=hint)
        return replace(outcome, predicted_freeze_s=record.predicted_freeze_s)

    async def halted(self, record: CutoverRecord, step: Halt) -> TreeOutcome:
        words = f"{record.tree.user} is not touched ({state_words(record.state)}): {step.words}"
        self.say(EventKind.CUTOVER_HALTED, Severity.ERROR, record, words)
        return outcome_of(record, Ending.HALTED, words, hint=step.hint)

    def stuck(self, record: CutoverRecord, _: Seen) -> TreeOutcome:
        words = f"{record.tree.user} is {state_words(record.state)}: {record.failure}"
        self.say(EventKind.CUTOVER_HALTED, Severity.ERROR, record, words)
        hint = "put that right, then run the same command again: it resumes"
        return outcome_of(record, Ending.STUCK, words, hint=hint)

    # Steps.

    def _deeds(self) -> Mapping[CutoverStep, Callable[[CutoverRecord], Awaitable[_Done]]]:
        return {
            CutoverStep.FREEZE: self._freeze,
            CutoverStep.FINAL_PASS: self._final_pass,
            CutoverStep.VERIFY: self._verify,
            CutoverStep.SWITCH: self._switch,
            CutoverStep.THAW: self._thaw,
            CutoverStep.RETAIN: self._retain,
            CutoverStep.REVERT: self._revert,
            CutoverStep.ROLLBACK_FREEZE: self._rollback_freeze,
            CutoverStep.CARRY_BACK: self._carry_back,
            CutoverStep.ROLLBACK_VERIFY: self._rollback_verify,
            CutoverStep.SWITCH_BACK: self._switch_back,
            CutoverStep.ROLLBACK_THAW: self._rollback_thaw,
            CutoverStep.ROLLBACK_REVERT: self._rollback_revert,
        }

    async def _make(self, act: _Act, record: CutoverRecord) -> _Done:
        return await (self._done_before(act.step, record) if act.seen_done else self._deeds()[act.step](record))

    async def prepare(self, record: CutoverRecord, act: _Act, __: Seen) -> CutoverNotes:
        """What has to be written down before a step begins: how to thaw whom it freezes, what is verified, what is switched,
        and what of the ledger is older. A top is read before its freeze has begun, and never afterwards: then it may be the
        frozen one. Raises Refused where a mount is not the expected one and the path would be switched.
        """
        world, tree, step = self.cutting.world, record.tree.path, act.step
        if step is CutoverStep.FREEZE and record.state is not CutoverState.FREEZING:
            top = await self.cutting.blocking(lambda: world.freezer.read_top(tree))
            ledger = self.cutting.ledger
            return CutoverNotes(
                frozen_top=write_top(top),
                passes_before=max((one.id for one in ledger.passes.over_tree(tree)), default=0),
                proofs_before=ledger.verifications.newest_id(),
            )
        if step is CutoverStep.ROLLBACK_FREEZE and record.state is not CutoverState.ROLLBACK_FREEZING:
            copied, proof = await self.cutting.blocking(lambda: world.back.seen(record))
            return CutoverNotes(
                frozen_target_top=write_top(await self._target_top(record)),
                passes_before=0 if copied is None else copied.id,
                proofs_before=0 if proof is None else proof.id,
            )
        if step in (CutoverStep.VERIFY, CutoverStep.ROLLBACK_VERIFY):
            return await self._notes_before_verify(act, record)
        if step in (CutoverStep.SWITCH, CutoverStep.SWITCH_BACK) and not act.seen_done:
            await self._check_mounts()
        if step is CutoverStep.SWITCH and world.links is not None:
            links = world.links
            found = await self.cutting.blocking(lambda: links.read_link(record.tree.user))
            _, new = self.cutting.paths(tree)
            return CutoverNotes(link=found.path, link_before=found.text, link_after=new)
        return NO_CUTOVER_NOTES

    async def _notes_before_verify(self, act: _Act, record: CutoverRecord) -> CutoverNotes:
        back = self.cutting.world.back
        if act.step is CutoverStep.VERIFY:
            # A call that was killed may have left a pass, and no word of it in the record.
            made = self.looker.final_pass(record)
            notes = CutoverNotes(final_pass_id=None if made is None else made.id)
            newest = self.cutting.ledger.verifications.newest_id()
        else:
            notes = CutoverNotes(target_changes=await self.cutting.blocking(lambda: back.changes(record)))
            _, proof = await self.cutting.blocking(lambda: back.seen(record))
            newest = 0 if proof is None else proof.id
        # One that is found to be done was newer than what was written down before it.
        return notes if act.seen_done else replace(notes, proofs_before=newest)

    async def _check_mounts(self) -> None:
        """A call that was killed may be gone on with after a reboot: what is mounted now need not be what was verified."""
        run, site, timeout_s = self.cutting.run, self.cutting.site, self.cutting.request.run.stall_timeout_s
        problems = (
            *await mount_findings(run, run.source, site.source, timeout_s),
            *await mount_findings(run, run.target, site.target, timeout_s),
        )
        if problems:
            raise Refused(
                f"the path is not switched: {'; '.join(problems)}",
                cause="a file system was unmounted, or another one is mounted in its place",
                hint="see `migrator doctor`, then run the same command again",
            )

    async def _done_before(self, step: CutoverStep, record: CutoverRecord) -> _Done:
        """What a step has left that was done by a call which did not come to write it down. That may have been killed between
        the top and the archives.
        """
        words = "it was done before"
        if step in (CutoverStep.THAW, CutoverStep.ROLLBACK_REVERT):
            await self.cutting.blocking(self._archives(record).hand_over)
        if step is CutoverStep.ROLLBACK_FREEZE:
            await self.cutting.blocking(self._archives(record).take_back)
        found = self.looker.verification(record) if step is CutoverStep.VERIFY else None
        return Done(words=words) if found is None else Done(notes=_verified_notes(found), words=words)

    async def _freeze(self, record: CutoverRecord) -> _Done:
        top = _noted(record.notes.frozen_top)
        await self.cutting.blocking(lambda: self.cutting.world.freezer.freeze(record.tree.path, top))
        await self._settle(self.cutting.run.source)
        return Done(words="its top is closed on the source")

    async def _final_pass(self, record: CutoverRecord) -> _Done:
        """Again where paths could not be renamed on the target, because they were not there as before (a rollback has renamed
        them already): the next pass sends them. What changed meanwhile is another matter, and stops the switch.
        """
        passes, files, size_bytes = self.cutting.ledger.passes, 0, 0
        for _ in range(_MOST_PASSES):
            summary, made = await self._one_final_pass(record)
            files, size_bytes = files + summary.files, size_bytes + summary.size_bytes
            if not only_not_renamed(passes, made):
                break
        return Done(
            notes=CutoverNotes(final_pass_id=made),
            words=f"{several(files, 'file')} with {format_size(size_bytes)} brought by the final pass",
        )

    async def _one_final_pass(self, record: CutoverRecord) -> tuple[BatchSummary, int]:
        """What it brought, and its number in the ledger."""
        cutting = self.cutting
        batch, ledger = cutting.batch_of(record), cutting.ledger
        number = pass_number(ledger.passes, cutting.plan, batch, PassKind.FINAL)
        final = DeltaPass(
            invocation=cutting.invocation,
            plan=cutting.plan,
            site=cutting.site,
            batch=batch,
            deltas=cutting.world.deltas,
            kind=PassKind.FINAL,
        )
        summary = await cutting.hooking.around_pass(batch, PassKind.FINAL, final.run, idle=False, number=number)
        if summary.skipped:
            raise StepFailed(summary.skipped)
        if summary.stopped is not None:
            raise StepFailed(f"the final pass stopped: {summary.stopped.message}", hint=summary.stopped.hint)
        made = ledger.passes.find(cutting.plan.name, batch.number, PassKind.FINAL)
        if made is None:
            raise LedgerCorrupt("the ledger has lost the final pass", hint="run the same command again")
        return summary, made.id

    async def _verify(self, record: CutoverRecord) -> _Done:
        found = await self.cutting.world.verify(self.cutting.plan, record.batch, record.tree.path)
        return Done(notes=_verified_notes(found), words=_verified_words(found))

    async def _switch(self, record: CutoverRecord) -> _Done:
        source, target = self.cutting.paths(record.tree.path)
        return await self._exchange(record, source, target, "target")

    async def _switch_back(self, record: CutoverRecord) -> _Done:
        cutting = self.cutting
        await note_equal(cutting.run, cutting.world.deltas, cutting.plan, cutting.batch_of(record))
        source, target = cutting.paths(record.tree.path)
        return await self._exchange(record, target, source, "source")

    async def _exchange(self, record: CutoverRecord, old: bytes, new: bytes, side: str) -> _Done:
        world, user = self.cutting.world, record.tree.user
        await asyncio.to_thread(world.backup, f"before-{record.own_name}-to-the-{side}")
        if world.links is None:
            return Done(words=f"the pre-switch hooks have said that the path leads to the {side}")
        links = world.links
        # Hooks were called since the last look, and may have taken long.
        await self._check_mounts()
        await self.cutting.blocking(lambda: links.switch(user, expected_old=old, new=new))
        return Done(words=f"the path leads to the {side}: {show(new)}")

    async def _thaw(self, record: CutoverRecord) -> _Done:
        source = await self._present(record, on_source=True)
        like = top_before(source, _noted(record.notes.frozen_top))
        trees, tree = self.cutting.world.trees, record.tree.path
        await self.cutting.blocking(lambda: trees.open_tree(tree, like))
        await self.cutting.blocking(self._archives(record).hand_over)
        return Done(words=f"{record.tree.user} works on the target")

    async def _retain(self, record: CutoverRecord) -> _Done:  # noqa: ARG002 - every step is told the record
        return Done(words="the source is kept as it was when it was frozen")

    async def _revert(self, record: CutoverRecord) -> _Done:
        noted = record.notes.frozen_top
        if noted is not None:
            top = _noted(noted)
            await self.cutting.blocking(lambda: self.cutting.world.freezer.thaw(record.tree.path, top))
        return Done(words=f"{record.tree.user} works on the source, as before")

    async def _rollback_freeze(self, record: CutoverRecord) -> _Done:
        trees, tree = self.cutting.world.trees, record.tree.path
        await self.cutting.blocking(lambda: trees.close_tree(tree))
        await self.cutting.blocking(self._archives(record).take_back)
        await self._settle(self.cutting.run.target)
        return Done(words="its top is closed on the target")

    async def _carry_back(self, record: CutoverRecord) -> _Done:
        carried = await self.cutting.world.back.carry(record)
        changes = carried.changes
        return Done(
            notes=CutoverNotes(target_changes=changes),
            words=f"{several(changes.files, 'file')} with {format_size(changes.size_bytes)} carried back, "
            f"{several(changes.gone, 'path')} taken away",
        )

    async def _rollback_verify(self, record: CutoverRecord) -> _Done:
        proof = await self.cutting.world.back.verify(record)
        return Done(words="all equal" if proof.whole and not proof.differences else "; ".join(proof.reasons))

    async def _rollback_thaw(self, record: CutoverRecord) -> _Done:
        world, tree = self.cutting.world, record.tree.path
        before, there = _noted(record.notes.frozen_top), _noted(record.notes.frozen_target_top)

        def thaw() -> None:
            world.source_trees.open_tree(tree, world.back.top(record, source_before=before, target_before=there))

        await self.cutting.blocking(thaw)
        return Done(words=f"{record.tree.user} works on the source again")

    async def _rollback_revert(self, record: CutoverRecord) -> _Done:
        target = await self._present(record, on_source=False)
        like = as_before(target, _noted(record.notes.frozen_target_top))
        trees, tree = self.cutting.world.trees, record.tree.path
        await self.cutting.blocking(lambda: trees.open_tree(tree, like))
        await self.cutting.blocking(self._archives(record).hand_over)
        return Done(words=f"{record.tree.user} works on the target, as before")

    def _archives(self, record: CutoverRecord) -> TreeArchives:
        return TreeArchives(sight=self.cutting, tree=record.tree.path)

    async def _settle(self, side: FileSystem) -> None:
        """Wait until no client passes a closed top any more by what it remembers of it: names below it that it has looked
        up before are opened without a look at the top, for as long as its mount's `entry-timeout` says.
        """
        identity = await self.cutting.blocking(side.identity)
        if has_clients_elsewhere(identity.filesystem):
            await self.cutting.run.clock.sleep(self.cutting.request.settle_s)

    async def _target_top(self, record: CutoverRecord) -> FrozenTop:
        """How to thaw a user on the target: their top as it is, or as a thaw would make it if it was never opened."""
        target = await self._present(record, on_source=False)
        if not is_closed(target, uid=os.geteuid(), gid=os.getegid()):
            return top_of(target)
        wanted = self.looker.wanted_top(record, await self._present(record, on_source=True), target)
        if wanted is None:
            raise StepFailed(f"how {record.tree.user} is thawed on the target is not known")
        return wanted

    async def _present(self, record: CutoverRecord, *, on_source: bool) -> Entry:
        looker = self.looker
        found = await (looker.source_entry(record) if on_source else looker.target_entry(record))
        if found is None:
            raise Refused(
                f"the tree {show(record.tree.path)} is not on the {'source' if on_source else 'target'}",
                hint="see `migrator doctor`, and who has moved it away",
            )
        return found


def _noted(text: str | None) -> FrozenTop:
    if text is None:
        raise LedgerCorrupt(
            "how a user is thawed is not written down",
            hint="bring the ledger back from its backup, or give the top directory its owner and mode by hand",
        )
    return read_top(text)


def _verified_notes(found: VerificationRecord) -> CutoverNotes:
    return CutoverNotes(verification_id=found.id, manifest=found.manifest)


def _verified_words(found: VerificationRecord) -> str:
    differences = sum(found.differences.values())
    if not found.whole:
        return f"not whole: {'; '.join(found.reasons)}"
    return f"{several(found.paths, 'path')} compared; " + (
        several(differences, "difference") if differences else "all equal"
    )


# Measurements of a tree before and after. They happen outside the freeze and never stop anything.


_FILES = 200
"""Number of files to sample."""


@dataclass(slots=True, kw_only=True)
class TreeComparison:
    """Measures one tree around its cutover: `before` when all preflight checks have passed, and `after` when its user works on the
    target. `keep` records the first measurements once the cutover has a record. A call that resumes has no files to read again.
    """

    cutting: Cutting
    _before: TreeVisited | None = None

    async def before(self, tree: UserTree) -> None:
        """Measure on the source. A failure is only an event; a cancellation is raised, before anything has begun."""
        comparing = self.cutting.world.comparing
        if comparing is None:
            return
        try:
            drawn = await self.cutting.blocking(lambda: self._draw(comparing, tree.path))
            self._before = await self._visit(comparing, tree, Side.SOURCE, drawn)
        except (MigratorError, OSError) as error:
            self._failed(tree, Side.SOURCE, _reason(error))

    def keep(self, record: CutoverRecord) -> None:
        """Record the measurements on the source, replacing those of an earlier call."""
        comparing = self.cutting.world.comparing
        if comparing is not None and self._before is not None:
            comparing.records.forget(record.id, Side.SOURCE)
            comparing.records.add(record.id, self._before.measurements)

    async def after(self, machine: TreeMachine, outcome: TreeOutcome, record: CutoverRecord) -> TreeOutcome:
        """Measure on the target, if the user works there now and the source was measured. A cancellation ends the measurement,
        and is remembered.
        """
        comparing, state = self.cutting.world.comparing, outcome.cutover.state if outcome.cutover else None
        if comparing is None or state not in SETTLED_STATES or machine.interrupted:
            return outcome
        try:
            found = await self._compared(comparing, record)
        except asyncio.CancelledError:
            machine.note_cancelled()
            return outcome
        except (MigratorError, OSError) as error:
            self._failed(record.tree, Side.TARGET, _reason(error))
            return outcome
        return replace(outcome, speed_ups=found)

    async def _compared(self, comparing: Comparing, record: CutoverRecord) -> tuple[SpeedUp, ...]:
        if not comparing.records.of(record.id):
            return ()
        files = () if self._before is None else self._before.files
        visited = await self._visit(comparing, record.tree, Side.TARGET, files)
        comparing.records.add(record.id, visited.measurements)
        found = speed_ups(comparing.records.of(record.id))
        if words := user_words(record.tree.user, found):
            self.cutting.say(EventKind.TREE_COMPARED, Severity.INFO, record, words)
        return found

    def _draw(self, comparing: Comparing, tree: bytes) -> tuple[bytes, ...]:
        passes = self.cutting.ledger.passes.over_tree(tree)
        if not passes:
            return ()
        return tuple(comparing.samples.draw(passes[-1].catalog, tree, count=_FILES, seed=zlib.crc32(tree)))

    async def _visit(self, comparing: Comparing, tree: UserTree, side: Side, files: tuple[bytes, ...]) -> TreeVisited:
        cutting = self.cutting
        visit = TreeVisit(
            side=side,
            tree=tree.path,
            directory=Path(cutting.invocation.directory.path) / "compared",
            files=files,
            limit_s=comparing.limit_s,
            token=cutting.run.tokens(),
        )
        visited = await comparing.timing.visit(visit, now_s=cutting.now_s)
        if visited.problem:
            self._failed(tree, side, visited.problem)
        return visited

    def _failed(self, tree: UserTree, side: Side, why: str) -> None:
        subject = f"{tree.user}: {self.cutting.verb}"
        message = f"the tree could not be measured on the {side.value}: {why}; that changes nothing of the cutover"
        self.cutting.invocation.say(EventKind.COMPARISON_FAILED, Severity.WARNING, subject, message)


def _reason(error: MigratorError | OSError) -> str:
    return error.message if isinstance(error, MigratorError) else error.strerror or str(error)
