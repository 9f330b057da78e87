"""The drain of bricks (clear-brick): its states, its steps, and what is recorded of it. Times in seconds since the epoch.

The bricks of one drain are one subvolume of the volume: a single brick, or a whole replica set.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.cutover import StepResult
from migrator.domain.volume_tasks import TaskStatus


class DrainState(StrEnum):
    """How far a drain is. A state that ends in -ing is the intent: it is written before anything is done.

    `preflight`: the guards are looked at; nothing was touched yet. `failed`: it did not come to its end, and waits for
    people; Gluster goes on to send new files elsewhere. `settling`: it was taken back, and the layout of directories is put
    right. `stopped`: the volume is as before.
    """

    PLANNED = "planned"
    PREFLIGHT = "preflight"
    STARTING = "starting"
    STARTED = "started"
    DRAINING = "draining"
    DRAINED = "drained"
    AUDITING = "auditing"
    AUDITED = "audited"
    COMMITTING = "committing"
    COMMITTED = "committed"
    WIPING = "wiping"
    WIPED = "wiped"
    HANDING_OVER = "handing-over"
    HANDED_OVER = "handed-over"
    FAILED = "failed"
    STOPPING = "stopping"
    SETTLING = "settling"
    STOPPED = "stopped"


_S = DrainState

DRAIN_TRANSITIONS: Mapping[DrainState, frozenset[DrainState]] = {
    _S.PLANNED: frozenset({_S.PREFLIGHT, _S.STOPPED}),
    _S.PREFLIGHT: frozenset({_S.STARTING, _S.STOPPED}),
    _S.STARTING: frozenset({_S.STARTED, _S.AUDITING, _S.STOPPING, _S.FAILED}),
    _S.STARTED: frozenset({_S.DRAINING, _S.STARTING, _S.AUDITING, _S.STOPPING, _S.FAILED}),
    _S.DRAINING: frozenset({_S.DRAINED, _S.STARTING, _S.AUDITING, _S.STOPPING, _S.FAILED}),
    _S.DRAINED: frozenset({_S.AUDITING, _S.STARTING, _S.STOPPING, _S.FAILED}),
    _S.AUDITING: frozenset({_S.AUDITED, _S.STARTING, _S.STOPPING, _S.FAILED}),
    _S.AUDITED: frozenset({_S.COMMITTING, _S.AUDITING, _S.STARTING, _S.STOPPING, _S.FAILED}),
    _S.COMMITTING: frozenset({_S.COMMITTED, _S.AUDITING, _S.STARTING, _S.STOPPING, _S.FAILED}),
    _S.COMMITTED: frozenset({_S.WIPING}),
    _S.WIPING: frozenset({_S.WIPED}),
    _S.WIPED: frozenset({_S.HANDING_OVER}),
    _S.HANDING_OVER: frozenset({_S.HANDED_OVER}),
    _S.HANDED_OVER: frozenset(),
    _S.FAILED: frozenset({_S.STARTING, _S.AUDITING, _S.STOPPING}),
    _S.STOPPING: frozenset({_S.SETTLING, _S.AUDITING}),
    _S.SETTLING: frozenset({_S.STOPPED}),
    _S.STOPPED: frozenset(),
}

ENDED_STATES = frozenset({_S.STOPPED, _S.HANDED_OVER})
"""Nothing is left to do: the same bricks can be drained again, by another attempt."""

OUT_STATES = frozenset({_S.COMMITTED, _S.WIPING, _S.WIPED, _S.HANDING_OVER, _S.HANDED_OVER})
"""The bricks are no part of the volume any more."""

UNTOUCHED_STATES = frozenset({_S.PLANNED, _S.PREFLIGHT})
"""Nothing of the volume was changed yet."""

UNDER_WAY_STATES = frozenset(_S) - ENDED_STATES - OUT_STATES - UNTOUCHED_STATES
"""Gluster may be moving files, or keep the bricks from taking new ones: it has to be gone on with, or taken back."""


class DrainStep(StrEnum):
    """What is done. Every step may be carried out again after a crash: it does what is missing."""

    CHECK = "check"
    """Calls the hooks before a drain. It changes nothing."""
    START = "start"
    """Sets the options, ends what is left of a drain of the same bricks that failed, and begins `remove-brick start`."""
    WATCH = "watch"
    """Keeps Gluster's counters until it has come to an end, and follows the throttle."""
    AUDIT = "audit"
    """Walks the bricks on their hosts. It changes nothing."""
    RECOVER = "recover"
    """Brings what is left on the bricks back into the volume, through the mount."""
    COMMIT = "commit"
    """`remove-brick commit`, never with `force`."""
    WIPE = "wipe"
    """Has the hook make a new file system."""
    HAND_OVER = "hand-over"
    """Has the hook give the bricks to where they go."""
    GIVE_UP = "give-up"
    """Touches nothing: it is written down why people have to look, and they are told."""
    STOP = "stop"
    """`remove-brick stop`, and keeps the last counters, which are in its reply alone."""
    SETTLE = "settle"
    """A fix-layout: a drain that was stopped leaves a changed layout behind."""
    RESTORE = "restore"
    """Puts the options back that this drain has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedOption:
    """An option of the volume that a drain changes: what it was before (None: not set), and every value that this program
    has given it since. Both are written down before it is changed.
    """

    name: str
    before: str | None
    given: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainNotes:
    """Facts that a step adds to the record; None leaves what is there.

    `options` are those that the drain changes: of one that is there already `before` stays, and `given` is added to. They
    have to be known before the drain starts, an empty tuple where it changes none. `task_id` is Gluster's id of the
    drain, `layout_task_id` that of the fix-layout after a stop. `task_before` is the drain of the same bricks that a new
    start ends. `files` and `size_bytes` are what was to be moved when it was begun (names, and bytes of content); they
    stand once they are known.
    """

    options: tuple[ChangedOption, ...] | None = None
    task_id: str | None = None
    task_before: str | None = None
    layout_task_id: str | None = None
    files: int | None = None
    size_bytes: int | None = None


NO_NOTES = DrainNotes()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRecord:
    """One attempt to drain bricks; `attempt` counts from 1 for the same bricks. `bricks` are named as in the volume.

    `times` says when each state was entered, the last time. `failure` is the reason of the last failure.
    """

    id: int
    volume: str
    volume_id: str
    bricks: tuple[str, ...]
    attempt: int
    state: DrainState
    times: Mapping[DrainState, float]
    failure: str = ""
    notes: DrainNotes = NO_NOTES

    @property
    def since_s(self) -> float:
        """When it came to its state."""
        return self.times[self.state]

    @property
    def under_way(self) -> bool:
        """Whether the volume may be touched by it."""
        return self.state in UNDER_WAY_STATES

    @property
    def shown_bricks(self) -> str:
        """The bricks in words."""
        return ", ".join(self.bricks)

    @property
    def bricks_are(self) -> str:
        """The bricks as the beginning of a sentence, with its verb: `gl1:/b is`, `gl1:/b, gl2:/b are`."""
        return f"{self.shown_bricks} {'is' if len(self.bricks) == 1 else 'are'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStepRecord:
    """One step of an attempt: when it was intended, how it ended, and what is to be said of it."""

    id: int
    drain_id: int
    step: DrainStep
    intended_at_s: float
    ended_at_s: float | None
    result: StepResult | None
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSample:
    """Gluster's counters of one host at one time; they begin anew with every task."""

    task_id: str
    at_s: float
    host: str
    files: int
    size_bytes: int
    lookups: int
    failures: int
    skipped: int
    status: TaskStatus
    runtime_s: float


def merged_options(
    known: Iterable[ChangedOption] | None, added: Iterable[ChangedOption] | None
) -> tuple[ChangedOption, ...] | None:
    """What is known of changed options with what a step adds: what was before the first change stays."""
    if known is None or added is None:
        found = known if added is None else added
        return None if found is None else tuple(found)
    by_name = {option.name: option for option in known}
    for option in added:
        first = by_name.get(option.name, option)
        given = tuple(dict.fromkeys((*first.given, *option.given)))
        by_name[option.name] = ChangedOption(name=option.name, before=first.before, given=given)
    return tuple(by_name.values())
