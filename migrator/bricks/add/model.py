"""The addition of bricks: states, steps, records, snapshots of the volume. Times in seconds since the epoch. Pure."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.bricks.model import (
    FAILED_STATE,
    GIVE_UP_STEP,
    BrickOperation,
    BrickRequest,
    BrickStanding,
    CallSummary,
    merged_options,
)
from migrator.catalog.model import StrangeFiles
from migrator.core.errors import LedgerCorrupt
from migrator.gluster.model import (
    BrickRoom,
    ChangedOption,
    DiskFacts,
    ListedDirectory,
    NewPlace,
    TaskProgress,
    VolumeState,
    VolumeTask,
)
from migrator.hooks.model import HookStep
from migrator.operations.model import Act, Finished, Halt, OperationKind, added

# States, steps and records.
#
# The bricks of one addition are whole subvolumes of the source volume (one brick, or whole replica or disperse sets),
# one brick that replaces a copy of a replica set (also at its own path, on a new disk), or new storage of the target.


class AdditionSide(StrEnum):
    """The file system that gets the bricks."""

    SOURCE = "source"
    TARGET = "target"


class AdditionState(StrEnum):
    """The state of an addition. A state that ends in -ing is an intent, written before the step begins.

    `layout`: a fix-layout runs, after which directories take new files on the new bricks. `balancing`: a rebalance
    moves files to them. `healing`: self-heal fills the new copy of a replica set. `handing`: hooks give the bricks to
    the target, and the program waits for the new capacity. `failed`: the addition did not complete and waits for an
    admin; added bricks stay added. `forgotten`: the addition was a mistake, and had changed nothing.

    In an in-place replacement: `resetting`, the brick is taken offline; `offline`, its disk may be exchanged;
    `taking-back`, it is started again with its old content; `taken-back`, it has no pending heals.
    """

    PLANNED = "planned"
    RESETTING = "resetting"
    OFFLINE = "offline"
    PREPARING = "preparing"
    PREPARED = "prepared"
    ADDING = "adding"
    ADDED = "added"
    LAYOUT = "layout"
    LAID_OUT = "laid-out"
    BALANCING = "balancing"
    BALANCED = "balanced"
    HEALING = "healing"
    HEALED = "healed"
    HANDING = "handing"
    SEEN = "seen"
    SETTLED = "settled"
    TAKING_BACK = "taking-back"
    TAKEN_BACK = "taken-back"
    FORGOTTEN = "forgotten"
    FAILED = FAILED_STATE


_S = AdditionState

ADDITION_TRANSITIONS: Mapping[AdditionState, frozenset[AdditionState]] = {
    _S.PLANNED: frozenset({_S.PREPARING, _S.ADDING, _S.RESETTING, _S.FORGOTTEN}),
    _S.RESETTING: frozenset({_S.OFFLINE, _S.ADDING, _S.TAKING_BACK}),
    _S.OFFLINE: frozenset({_S.PREPARING, _S.ADDING, _S.RESETTING, _S.TAKING_BACK}),
    _S.PREPARING: frozenset({_S.PREPARED, _S.ADDING, _S.RESETTING, _S.TAKING_BACK, _S.FORGOTTEN}),
    _S.PREPARED: frozenset({_S.PREPARING, _S.ADDING, _S.HANDING, _S.RESETTING, _S.TAKING_BACK, _S.FORGOTTEN}),
    _S.ADDING: frozenset({_S.ADDED, _S.RESETTING}),
    _S.ADDED: frozenset({_S.LAYOUT, _S.HEALING, _S.FAILED}),
    _S.LAYOUT: frozenset({_S.LAID_OUT, _S.FAILED}),
    _S.LAID_OUT: frozenset({_S.BALANCING, _S.SETTLED, _S.FAILED}),
    _S.BALANCING: frozenset({_S.BALANCED, _S.SETTLED, _S.FAILED}),
    _S.BALANCED: frozenset({_S.SETTLED}),
    _S.HEALING: frozenset({_S.HEALED, _S.FAILED}),
    _S.HEALED: frozenset({_S.SETTLED}),
    _S.HANDING: frozenset({_S.SEEN}),
    _S.SEEN: frozenset({_S.SETTLED}),
    _S.SETTLED: frozenset(),
    _S.TAKING_BACK: frozenset({_S.TAKEN_BACK}),
    _S.TAKEN_BACK: frozenset(),
    _S.FORGOTTEN: frozenset(),
    _S.FAILED: frozenset({_S.PREPARING, _S.LAYOUT, _S.HEALING}),
}

UNTOUCHED_STATES = frozenset({_S.PLANNED})
"""Nothing was changed yet: another addition may replace it."""

ADDITION_ENDED_STATES = frozenset({_S.SETTLED, _S.TAKEN_BACK, _S.FORGOTTEN})
"""Nothing is left to do."""

FORGETTABLE_STATES = frozenset({_S.PLANNED, _S.PREPARING, _S.PREPARED})
"""Neither the volume nor the target was changed yet, unless the addition is an in-place replacement."""

AWAY_STATES = frozenset({_S.RESETTING, _S.OFFLINE, _S.PREPARING, _S.PREPARED, _S.ADDING, _S.TAKING_BACK})
"""In an in-place replacement: the brick is offline, or may be, and its files have one copy less."""

REVERSIBLE_STATES = frozenset({_S.RESETTING, _S.OFFLINE, _S.PREPARING, _S.PREPARED})
"""In an in-place replacement: the brick can serve its old content again, if the content is still there."""

IN_STATES = frozenset({_S.ADDED, _S.LAYOUT, _S.LAID_OUT, _S.BALANCING, _S.BALANCED, _S.HEALING, _S.HEALED})
"""This addition has put the bricks into the volume, and is not complete."""


class AdditionStep(StrEnum):
    """The steps. Each may be repeated after a crash, and then does only what is missing."""

    RESET = "reset"
    """Runs `reset-brick ... start`: the brick goes offline, and its disk can be exchanged."""
    PREPARE = "prepare"
    """Calls the `pre-add` hooks, which make and mount a file system, and repeats the preflight checks."""
    ADD = "add"
    """Runs `add-brick` (never with `force`), `replace-brick ... commit force`, or `reset-brick ... commit`."""
    TAKE_BACK = "take-back"
    """Starts a brick that was taken offline, with its old content."""
    LAY_OUT = "lay-out"
    """Begins a fix-layout."""
    BALANCE = "balance"
    """Begins a rebalance."""
    HEAL = "heal"
    """Waits until the replica set has no pending heals."""
    WATCH = "watch"
    """Records Gluster's counters until a task ends."""
    HAND_OVER = "hand-over"
    """Calls the `pre-attach` hooks, which give bricks to the target, and waits for the new capacity."""
    FINISH = "finish"
    """Calls the hooks after an addition."""
    FORGET = "forget"
    """Ends an addition that was a mistake."""
    GIVE_UP = GIVE_UP_STEP
    """Changes nothing: records why an admin must act."""


class TargetRoom(Struct, frozen=True, kw_only=True):
    """The size of the target: the bytes of its file system, and the number of storage targets that its own tool lists.
    None means unknown.
    """

    total_bytes: int | None
    storage_targets: int | None


class AdditionNotes(Struct, frozen=True, kw_only=True):
    """Facts that a step adds to the record. None leaves the recorded value.

    `task_id` is Gluster's id of the fix-layout or rebalance in progress; `task_before` is the task that was listed when
    it was started (empty: none). `room_before` is the size of the target before the addition, and is never replaced.
    `size_bytes` is the size of all new bricks. `files` is the number of files that a rebalance will examine: those of
    the catalog, once for each copy. `options` are those of the volume that the addition changes. For a recorded option
    `before` stays, and `given` is extended; an empty tuple means that all are restored. `directories` are all those
    that lost owner or mode on the new bricks and wait for an admin. In an in-place replacement, `filesystem_before` is
    the old file system, which is never replaced, and `filesystem_id` is the new one. `doubts` are those of the newest audit
    after the rebalance.
    """

    task_id: str | None = None
    task_before: str | None = None
    room_before: TargetRoom | None = None
    size_bytes: int | None = None
    files: int | None = None
    options: tuple[ChangedOption, ...] | None = None
    directories: tuple[ListedDirectory, ...] | None = None
    filesystem_before: str | None = None
    filesystem_id: str | None = None
    doubts: tuple[str, ...] | None = None


NO_ADDITION_NOTES = AdditionNotes()


class AdditionRecord(BrickOperation[AdditionState, AdditionNotes], frozen=True, kw_only=True):
    """One attempt to add bricks, in the order in which they make sets. `instead_of` is the brick that the only one
    replaces.
    """

    kind: ClassVar[str] = "addition"

    side: AdditionSide
    instead_of: str | None = None
    notes: AdditionNotes = NO_ADDITION_NOTES

    @property
    def in_place(self) -> bool:
        """Return whether the addition is an in-place replacement: the brick gets a new disk at its own path."""
        return self.instead_of in self.bricks

    def hook_facts(self) -> dict[str, Any]:
        return {"brick": ",".join(self.bricks), "side": self.side.value, "size_bytes": self.notes.size_bytes}

    def failed_hook_step(self) -> HookStep:
        return HookStep.ADD

    def can_fail(self) -> bool:
        """Waiting for an admin to replace a disk is not a failure."""
        return self.state not in FORGETTABLE_STATES

    def is_reverted(self) -> bool:
        return self.state is _S.TAKING_BACK

    def is_unfinished(self) -> bool:
        return self.state not in ADDITION_ENDED_STATES | UNTOUCHED_STATES

    def moves_files(self) -> bool:
        return self.state is _S.BALANCING

    def moved_at_s(self, bricks: Sequence[str]) -> Sequence[float]:
        del bricks
        return [at_s for state, at_s in self.times.items() if state in (_S.BALANCING, _S.BALANCED)]

    def needs_no_options(self) -> bool:
        return self.state in {_S.SETTLED, _S.FAILED}


def _noted(known: AdditionNotes, more: AdditionNotes) -> AdditionNotes:
    notes = added(known, more, once=("filesystem_before", "room_before"))
    return replace(notes, options=merged_options(known.options, more.options))


def _intended(
    before: AdditionRecord, after: AdditionRecord, act: Act[AdditionStep, AdditionState], _: AdditionNotes | None
) -> AdditionRecord:
    notes = after.notes
    if act.task_before is not None:
        notes = replace(notes, task_before=act.task_before, task_id=None)
    if act.task_id is not None:
        notes = replace(notes, task_id=act.task_id)
    if act.intent is _S.HANDING and notes.room_before is None:
        raise LedgerCorrupt(
            f"addition {before.id} cannot be {act.intent.value}: how large the target was is not written down",
            hint="this is an error in migrator: report it; nothing was handed over",
        )
    return replace(after, notes=notes)


ADDITIONS: OperationKind[AdditionRecord, AdditionState, AdditionStep, AdditionNotes] = OperationKind(
    name="addition",
    article="an",
    record=AdditionRecord,
    states=AdditionState,
    steps=AdditionStep,
    transitions=ADDITION_TRANSITIONS,
    under_way=frozenset(_S) - ADDITION_ENDED_STATES - UNTOUCHED_STATES,
    keeps_failure=frozenset({AdditionStep.GIVE_UP}),
    noted=_noted,
    intended=_intended,
)


# Snapshots of the volume, and the acts that follow from them.


class AdditionSnapshot(Struct, frozen=True, kw_only=True):
    """A snapshot of the world, taken after the record was read. None always means not read or unreadable.

    `state` is the source volume with its peers, bricks and heals, `tasks` has every task in its status, and `progress`
    the counters of the newest fix-layout or rebalance. `owners` has the volume of each brick of the pool. `places` has
    the content of each new brick's path, and `rooms` the file system of each brick of the volume. `versions` has the
    GlusterFS version of each host of the volume and of the new bricks. `drains` are bricks whose drain has not ended,
    and `additions` those of other additions that have not ended. `stalled` says why a running task is stalled.
    `strange` files were created on bricks of the volume without Gluster (None: no scan has read the bricks). `blamed`
    has, for the set of a brick that is replaced in place, the number of pending heals that the bricks that are up
    record against each member.
    """

    state: VolumeState
    tasks: tuple[VolumeTask, ...]
    progress: TaskProgress | None = None
    owners: Mapping[str, str] | None = None
    places: Mapping[str, NewPlace] = {}
    disks: Mapping[str, DiskFacts] = {}
    rooms: Mapping[str, BrickRoom] | None = None
    versions: Mapping[str, str | None] | None = None
    drains: tuple[str, ...] = ()
    additions: tuple[str, ...] = ()
    stalled: str = ""
    target: TargetRoom | None = None
    strange: tuple[StrangeFiles, ...] | None = ()
    blamed: Mapping[str, int] | None = None

    def place(self, name: str) -> NewPlace:
        """Return the place of a brick; `unread` if this snapshot does not have it."""
        return self.places.get(name) or NewPlace(name=name, unread="it was not inspected")


class Wish(Struct, frozen=True, kw_only=True):
    """The options of the admin. Without `rebalance`, no file is moved to the new bricks. `accept_unlike` accepts bricks
    that differ from the others in size or file system. `take_back`: a brick that was taken offline for the exchange of
    its disk serves its old content again.
    """

    rebalance: bool = True
    accept_unlike: bool = False
    take_back: bool = False


AdditionAct = Act[AdditionStep, AdditionState]
Step = AdditionAct | Halt | Finished


# Request and summary of `brick add`.


class AdditionRequest(BrickRequest, frozen=True, kw_only=True):
    """The bricks to add, to which side, and the options of the call. `seen_within_s` is how long the target may take to
    show its new capacity. `once_more`: replace the disk of a brick again.
    """

    side: AdditionSide
    instead_of: str | None = None
    wish: Wish
    once_more: bool = False
    seen_within_s: float = 900.0


class AdditionSummary(CallSummary, frozen=True, kw_only=True):
    """The result of `brick add`."""

    side: AdditionSide
    """Where the bricks go."""
    bricks: tuple[str, ...]
    instead_of: str | None
    """The brick that is replaced."""
    state: AdditionState
    """The state of the addition."""
    places: tuple[NewPlace, ...] = ()
    """The contents of the bricks' directories, if they were inspected."""
    size_bytes: int | None = None
    """Size of all new bricks."""
    moved_files: int = 0
    """Files that the last rebalance moved."""
    moved_bytes: int = 0
    """Bytes that the last rebalance moved."""
    failures: int = 0
    """Files that it could not move."""
    skipped: int = 0
    """Files that it left in place."""
    directories: tuple[ListedDirectory, ...] = ()
    """Directories that lost owner or mode on the new bricks, could not be repaired, and wait for an admin."""


# Progress of an addition, from its record and its samples.


class AdditionStanding(BrickStanding, frozen=True, kw_only=True):
    """The progress of one attempt to add bricks. Gluster counts nothing during a fix-layout."""

    side: AdditionSide
    """Where the bricks go."""
    instead_of: str | None
    """The brick that is replaced."""
    state: AdditionState
    """Its state."""
    lookups: int
    """Number of files that the last rebalance has inspected."""
    directories: tuple[ListedDirectory, ...] = ()
    """Directories that could not be repaired and wait for an admin."""
