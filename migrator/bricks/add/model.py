"""The addition of bricks: states, steps, records, snapshots of the volume. Times in seconds since the epoch. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar

from migrator.bricks.drain.model import ChangedOption, DrainStanding, merged_options
from migrator.bricks.model import BrickOperation, BrickRequest, BrickRoom, BrickStanding, CallSummary, Ending
from migrator.catalog.model import StrangeFiles
from migrator.core.errors import LedgerCorrupt
from migrator.gluster.model import DiskFacts, ListedDirectory, TaskProgress, VolumeState, VolumeTask
from migrator.operations import model as operations
from migrator.operations.model import Act, Kind, added

# States, steps and records.
#
# The bricks of one addition are whole subvolumes of the source volume (one brick, or whole replica or disperse sets), one brick
# that replaces a copy of a replica set (also at its own path, on a new disk), or new storage of the target.


class AdditionSide(StrEnum):
    """To which file system bricks are given."""

    SOURCE = "source"
    TARGET = "target"


class AdditionState(StrEnum):
    """How far an addition is. A state that ends in -ing is the intent: it is written before anything is done.

    `layout`: the layout of directories is put right, so that they take new files on the new bricks. `balancing`: files
    are moved onto them. `healing`: a replica's new copy is filled. `handing`: hooks give bricks to the target, whose
    new capacity is waited for. `failed`: it did not come to its end, and waits for people; what was added stays added.
    Where a brick takes its own place: `resetting`, it is taken offline; `offline`, its disk may be exchanged;
    `taking-back`, it is brought up again with what it had, and `taken-back` when nothing waits to be healed there.
    `forgotten`: it was a mistake, and had changed nothing.
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
    FAILED = "failed"


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
    _S.FAILED: frozenset({_S.PREPARING, _S.LAYOUT, _S.HEALING, _S.RESETTING}),
}

UNTOUCHED_STATES = frozenset({_S.PLANNED})
"""Nothing was done yet: another addition may take its place."""

ADDITION_ENDED_STATES = frozenset({_S.SETTLED, _S.TAKEN_BACK, _S.FORGOTTEN})
"""It has come to its end: nothing of it waits."""

FORGETTABLE_STATES = frozenset({_S.PLANNED, _S.PREPARING, _S.PREPARED})
"""Neither the volume nor the target was changed yet, where no brick takes its own place."""

AWAY_STATES = frozenset({_S.RESETTING, _S.OFFLINE, _S.PREPARING, _S.PREPARED, _S.ADDING, _S.TAKING_BACK})
"""Where a brick takes its own place: it is offline, or may be, and its files have a copy less."""

REVERSIBLE_STATES = frozenset({_S.RESETTING, _S.OFFLINE, _S.PREPARING, _S.PREPARED})
"""Where a brick takes its own place: what it held can be served again, where it is still there."""

IN_STATES = frozenset({_S.ADDED, _S.LAYOUT, _S.LAID_OUT, _S.BALANCING, _S.BALANCED, _S.HEALING, _S.HEALED})
"""The bricks are part of the volume by it, and not everything is done."""


class AdditionStep(StrEnum):
    """What is done. Every step may be carried out again after a crash: it does what is missing."""

    RESET = "reset"
    """`reset-brick ... start`: the brick goes offline, so that its disk can be exchanged."""
    PREPARE = "prepare"
    """Calls the hooks before an addition, which make and mount a file system, and looks at what is there then."""
    ADD = "add"
    """`add-brick`, `replace-brick ... commit force`, or `reset-brick ... commit`; the first never with `force`."""
    TAKE_BACK = "take-back"
    """Brings a brick that was taken offline up again with what it has."""
    LAY_OUT = "lay-out"
    """Begins a fix-layout."""
    BALANCE = "balance"
    """Begins a rebalance."""
    HEAL = "heal"
    """Waits until the copies of a replica set are the same."""
    WATCH = "watch"
    """Keeps Gluster's counters until a task has come to an end."""
    HAND_OVER = "hand-over"
    """Has the hooks give bricks to the target, and waits for the new capacity."""
    FINISH = "finish"
    """Calls the hooks after an addition."""
    FORGET = "forget"
    """Ends an addition that was a mistake."""
    GIVE_UP = "give-up"
    """Touches nothing: it is written down why people have to look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetRoom:
    """How large the target is: the bytes of its file system, and how many storage targets its own tool lists. None: not
    told.
    """

    total_bytes: int | None
    storage_targets: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionNotes:
    """Facts that a step adds to the record; None leaves what is there.

    `task_id` is Gluster's id of the fix-layout or rebalance that is waited for; `task_before` the one that was listed
    when it was begun (empty: none). `room_before` is the target before it was given anything; it stands once it is
    known. `size_bytes` is what the new bricks have together, `files` how many a rebalance will look at: those of the
    catalog, once for each copy. `options` are those of the volume that it changes: of one that is there already
    `before` stays, and `given` is added to; an empty tuple says that all are put back. `directories` are those that
    have lost owner or mode on the way to the new bricks and wait for people: all that do, so an empty tuple says that
    none does. Of a brick that takes its own place `filesystem_before` is the file system that it had, which stands once
    it is known, and `filesystem_id` the new one.
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


NO_ADDITION_NOTES = AdditionNotes()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionRecord(BrickOperation[AdditionState, AdditionNotes]):
    """One attempt to add bricks, in the order in which they make sets. `instead_of` is the brick that the only one
    replaces.
    """

    kind: ClassVar[str] = "addition"

    side: AdditionSide
    instead_of: str | None = None
    notes: AdditionNotes = NO_ADDITION_NOTES

    @property
    def in_place(self) -> bool:
        """Whether a brick takes its own place: its disk is exchanged."""
        return self.instead_of in self.bricks


def _noted(known: AdditionNotes, more: AdditionNotes) -> AdditionNotes:
    notes = added(known, more, once=("filesystem_before", "room_before"))
    # None at all says that all are put back.
    return replace(notes, options=merged_options(known.options, more.options)) if more.options else notes


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


ADDITIONS: Kind[AdditionRecord, AdditionState, AdditionStep, AdditionNotes] = Kind(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlace:
    """What lies where a new brick is to be, on its host. `unread` says why that is not known, empty where it is.

    `mount` is the mount point that the place lies on, `own`: that is another one than the host's root. `exists`: the
    directory is there. `volume_id` and `gfid` are what Gluster has left on it, in hex, empty where there is none;
    `marked_above` are directories above it, up to the mount point, that carry such a mark. `entries` are the first
    names in it but Gluster's own, `has_gluster_directory`: there is a `.glusterfs`. `others` are the first names that
    lie beside it on the same file system. `served_by` are processes of bricks that serve it now. `filesystem_id` tells
    the file system from every other one that was or will be made there; empty where that is not known.
    """

    name: str
    unread: str = ""
    mount: str = ""
    own: bool = False
    exists: bool = False
    device: str = ""
    filesystem: str = ""
    mount_options: str = ""
    total_bytes: int | None = None
    free_inodes: int | None = None
    volume_id: str = ""
    gfid: str = ""
    marked_above: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    has_gluster_directory: bool = False
    others: tuple[str, ...] = ()
    served_by: tuple[int, ...] = ()
    filesystem_id: str = ""

    @property
    def stale(self) -> bool:
        """Whether it carries what is left of a brick."""
        return bool(self.volume_id or self.gfid or self.has_gluster_directory or self.marked_above)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionSeen:
    """What a look at the world says, after the record was read. None in a field: that look failed, or was not made.

    `state` is the source volume with its peers, bricks and heals, `tasks` every task that its status lists, `progress`
    the counters of the newest fix-layout or rebalance. `owners` tells of every brick of every volume of the pool to
    which volume it belongs. `places` tells by brick what lies where it is to be, `rooms` of the bricks of the volume
    what they lie on. `versions` are those of GlusterFS by host, of the volume and of the new bricks. `drains` are
    bricks of which a drain has not ended, `additions` those of other additions that have not. `stalled` says why a task
    that is in progress does not go on. `strange` was put on bricks of the volume past Gluster (None: no scan has read
    them). `blamed` tells of the set of a brick that takes its own place how many entries the other bricks that are up
    hold against each, so that it has to be healed there first.
    """

    state: VolumeState
    tasks: tuple[VolumeTask, ...]
    progress: TaskProgress | None = None
    owners: Mapping[str, str] | None = None
    places: Mapping[str, NewPlace] = field(default_factory=dict)
    disks: Mapping[str, DiskFacts] = field(default_factory=dict)
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
        return self.places.get(name) or NewPlace(name=name, unread="it was not looked at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How the admin wants it. `rebalance` False: no file is moved onto the new bricks. `accept_unlike`: bricks that
    differ from the others in size or kind are no reason against. `take_back`: a brick that was taken offline for the
    exchange of its disk is to serve again what it had.
    """

    rebalance: bool = True
    accept_unlike: bool = False
    take_back: bool = False


class AdditionAct(operations.Act[AdditionStep, AdditionState]):
    """A step of an addition."""

    __slots__ = ()


Step = AdditionAct | operations.Halt | operations.Finished


# Request and summary of `brick add`.


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionRequest(BrickRequest):
    """The bricks to add, to which side, and the options of the call. `seen_within_s` is how long the target may take to
    show its new capacity. `once_more`: replace the disk of a brick again.
    """

    side: AdditionSide
    instead_of: str | None = None
    wish: Wish
    once_more: bool = False
    seen_within_s: float = 900.0


AdditionEnding = Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionSummary(CallSummary):
    """The result of a call. `state` is that of the record. `places` are the contents of the bricks' places, if they
    were inspected. `moved_files`, `moved_bytes`, `failures` and `skipped` are those of the last task that moved files,
    and `size_bytes` is the size of all new bricks. `directories` lost owner or mode on the new bricks and wait for an
    admin.
    """

    side: AdditionSide
    bricks: tuple[str, ...]
    instead_of: str | None
    state: AdditionState
    places: tuple[NewPlace, ...] = ()
    size_bytes: int | None = None
    moved_files: int = 0
    moved_bytes: int = 0
    failures: int = 0
    skipped: int = 0
    directories: tuple[ListedDirectory, ...] = ()


# Progress of an addition, from its record and its samples.


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionStanding(BrickStanding):
    """The progress of one attempt to add bricks. `size_bytes` is the size of all new bricks. `files` is the number that
    a rebalance will examine, a file of a replica set once for each copy, and `lookups` how many the last task has
    examined. Of a fix-layout Gluster counts nothing. `directories` wait for an admin.
    """

    side: AdditionSide
    instead_of: str | None
    state: AdditionState
    lookups: int
    directories: tuple[ListedDirectory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickStandings:
    """Everything that changes which bricks there are: the newest attempt at each, oldest first."""

    drains: tuple[DrainStanding, ...]
    additions: tuple[AdditionStanding, ...]
