"""The addition of bricks (add-brick): its states, its steps, and what is recorded of it. Times in seconds since the epoch.

The bricks of one addition are whole subvolumes of the source volume (one brick, or whole replica or disperse sets), the one
that takes the place of a replica's copy (also its own place, on a new disk), or new storage of the target.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.cutover import StepResult
from migrator.domain.directory_owners import ListedDirectory
from migrator.domain.drain import ChangedOption


class AdditionSide(StrEnum):
    """To which file system bricks are given."""

    SOURCE = "source"
    TARGET = "target"


class AdditionState(StrEnum):
    """How far an addition is. A state that ends in -ing is the intent: it is written before anything is done.

    `layout`: the layout of directories is put right, so that they take new files on the new bricks. `balancing`: files are
    moved onto them. `healing`: a replica's new copy is filled. `handing`: hooks give bricks to the target, whose new
    capacity is waited for. `failed`: it did not come to its end, and waits for people; what was added stays added.
    Where a brick takes its own place: `resetting`, it is taken offline; `offline`, its disk may be exchanged; `taking-back`, it
    is brought up again with what it had, and `taken-back` when nothing waits to be healed there.
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
    FAILED = "failed"


_S = AdditionState

ADDITION_TRANSITIONS: Mapping[AdditionState, frozenset[AdditionState]] = {
    _S.PLANNED: frozenset({_S.PREPARING, _S.ADDING, _S.RESETTING}),
    _S.RESETTING: frozenset({_S.OFFLINE, _S.ADDING, _S.TAKING_BACK}),
    _S.OFFLINE: frozenset({_S.PREPARING, _S.ADDING, _S.RESETTING, _S.TAKING_BACK}),
    _S.PREPARING: frozenset({_S.PREPARED, _S.ADDING, _S.RESETTING, _S.TAKING_BACK}),
    _S.PREPARED: frozenset({_S.PREPARING, _S.ADDING, _S.HANDING, _S.RESETTING, _S.TAKING_BACK}),
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
    _S.FAILED: frozenset({_S.PREPARING, _S.LAYOUT, _S.HEALING, _S.RESETTING}),
}

UNTOUCHED_STATES = frozenset({_S.PLANNED})
"""Nothing was done yet: another addition may take its place."""

ENDED_STATES = frozenset({_S.SETTLED, _S.TAKEN_BACK})
"""It has come to its end: nothing of it waits."""

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

    `task_id` is Gluster's id of the fix-layout or rebalance that is waited for; `task_before` the one that was listed when it
    was begun (empty: none). `room_before` is the target before it was given anything; it stands once it is known.
    `size_bytes` is what the new bricks have together, `files` how many a rebalance will look at: those of the catalog, once for
    each copy. `options` are those of the volume that it changes: of one that is there already `before` stays, and `given` is
    added to; an empty tuple says that all are put back. `directories` are those that have lost owner or mode on the way to the
    new bricks and wait for people: all that do, so an empty tuple says that none does. Of a brick that takes its own place
    `filesystem_before` is the file system that it had, which stands once it is known, and `filesystem_id` the new one.
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


NO_NOTES = AdditionNotes()


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionRecord:
    """One attempt to add bricks; `attempt` counts from 1 for the same bricks. `bricks` are named as in the volume, in the
    order in which they make sets. `instead_of` is the brick whose place the only one takes. `failure` is the reason of the
    last failure. `times` says when each state was entered, the last time.
    """

    id: int
    side: AdditionSide
    volume: str
    volume_id: str
    bricks: tuple[str, ...]
    instead_of: str | None = None
    attempt: int
    state: AdditionState
    times: Mapping[AdditionState, float]
    failure: str = ""
    notes: AdditionNotes = NO_NOTES

    @property
    def shown_bricks(self) -> str:
        """The bricks in words."""
        return ", ".join(self.bricks)

    @property
    def in_place(self) -> bool:
        """Whether a brick takes its own place: its disk is exchanged."""
        return self.instead_of in self.bricks


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionStepRecord:
    """One step of an attempt: when it was intended, how it ended, and what is to be said of it."""

    id: int
    addition_id: int
    step: AdditionStep
    intended_at_s: float
    ended_at_s: float | None
    result: StepResult | None
    message: str
