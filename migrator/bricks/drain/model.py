"""Drains of bricks: states, steps, records, snapshots of the volume. Times in seconds since the epoch. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.bricks.drain.model_audit import DrainAudit
from migrator.bricks.drain.model_preflight import DrainCheck
from migrator.bricks.model import (
    FAILED_STATE,
    GIVE_UP_STEP,
    BrickOperation,
    BrickRequest,
    BrickStanding,
    CallSummary,
    merged_options,
)
from migrator.bricks.progress import TaskSample, last_counts
from migrator.core.errors import LedgerCorrupt
from migrator.gluster.model import (
    ChangedOption,
    PlaceSeen,
    TaskProgress,
    VolumeState,
    VolumeTask,
)
from migrator.hooks.model import HookStep
from migrator.operations.model import Act, Finished, Halt, OperationKind, added
from migrator.plan.schedule.model import CopyTally

# States, steps and records. One drain is of one subvolume: a single brick, or a whole replica set.


class DrainState(StrEnum):
    """The state of a drain. A state that ends in -ing is an intent, written before the step begins.

    `preflight`: the checks run; nothing was changed yet. `failed`: the drain did not complete and waits for an admin,
    while Gluster still sends new files elsewhere. `settling`: it was stopped, and a fix-layout runs. `stopped`: the
    volume is as before.
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
    FAILED = FAILED_STATE
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

DRAIN_ENDED_STATES = frozenset({_S.STOPPED, _S.HANDED_OVER})
"""Nothing is left to do. Another attempt can drain the same bricks."""

OUT_STATES = frozenset({_S.COMMITTED, _S.WIPING, _S.WIPED, _S.HANDING_OVER, _S.HANDED_OVER})
"""The bricks have left the volume."""

MOVING_STATES = frozenset({_S.STARTED, _S.DRAINING, _S.DRAINED, _S.STOPPING})
"""Files may have been moved until the drain entered one of these states."""

MOVED_STATES = OUT_STATES | {_S.DRAINED, _S.AUDITING, _S.AUDITED, _S.COMMITTING}
"""States in which Gluster has moved all files, so the drain's time is a valid measurement."""

STOP_STATES = frozenset({_S.STOPPING, _S.SETTLING, _S.STOPPED})
"""The drain is being stopped, or was stopped."""

UNTOUCHED_STATES = frozenset({_S.PLANNED, _S.PREFLIGHT})
"""The volume was not changed yet."""

UNDER_WAY_STATES = frozenset(_S) - DRAIN_ENDED_STATES - OUT_STATES - UNTOUCHED_STATES
"""Gluster may be moving files, or placing no new files on the bricks. The drain must be resumed or stopped."""


class DrainStep(StrEnum):
    """The steps. Each may be repeated after a crash, and then does only what is missing."""

    CHECK = "check"
    """Calls the hooks before a drain. It changes nothing."""
    START = "start"
    """Sets the options, ends a failed drain of the same bricks if there is one, and runs `remove-brick start`."""
    WATCH = "watch"
    """Records Gluster's counters until the task ends, and adjusts the throttle."""
    AUDIT = "audit"
    """Walks the bricks on their hosts. It changes nothing."""
    COMMIT = "commit"
    """`remove-brick commit`, never with `force`."""
    WIPE = "wipe"
    """Calls the hook that makes a new file system."""
    HAND_OVER = "hand-over"
    """Calls the hook that hands over the bricks."""
    GIVE_UP = GIVE_UP_STEP
    """Changes nothing: records and reports why an admin must act."""
    STOP = "stop"
    """Runs `remove-brick stop`, and records the last counters, which only its reply has."""
    SETTLE = "settle"
    """Runs a fix-layout: a stopped drain leaves a changed layout behind."""
    RESTORE = "restore"
    """Restores the options that this drain changed."""


class DrainNotes(Struct, frozen=True, kw_only=True):
    """Facts that a step adds to the record. None leaves the recorded value.

    `options` are those that the drain changes. For a recorded option `before` stays, and `given` is extended; an empty
    tuple means that none is changed. They must be recorded before the drain starts. `task_id` is Gluster's id of the drain,
    and `layout_task_id` that of the fix-layout after a stop. `task_before` is the drain of the same bricks that a
    restart ends. `files` (names) and `size_bytes` (content) are the amounts to move, taken at the start and never
    replaced. `wipe_word` confirmed a wipe that has begun. `volume_before` is the fingerprint of the volume at the first
    start, and `volume_after` what the commit makes of it. `times_kept` directories had their latest mtime on these
    bricks and keep it, and `times_lost` show an earlier one since.
    """

    options: tuple[ChangedOption, ...] | None = None
    task_id: str | None = None
    task_before: str | None = None
    layout_task_id: str | None = None
    files: int | None = None
    size_bytes: int | None = None
    wipe_word: str | None = None
    volume_before: str | None = None
    volume_after: str | None = None
    times_kept: int | None = None
    times_lost: int | None = None


NO_DRAIN_NOTES = DrainNotes()


class DrainRecord(BrickOperation[DrainState, DrainNotes], frozen=True, kw_only=True):
    """One attempt to drain bricks."""

    kind: ClassVar[str] = "drain"

    notes: DrainNotes = NO_DRAIN_NOTES

    @property
    def under_way(self) -> bool:
        """Return whether the drain may still change the volume."""
        return self.state in UNDER_WAY_STATES

    @property
    def bricks_are(self) -> str:
        """Return the bricks with a verb, to begin a sentence: `gl1:/b is`, `gl1:/b, gl2:/b are`."""
        return f"{self.shown_bricks} {'is' if len(self.bricks) == 1 else 'are'}"

    def hook_facts(self) -> dict[str, Any]:
        return {"brick": ",".join(self.bricks), "files": self.notes.files, "size_bytes": self.notes.size_bytes}

    def failed_hook_step(self) -> HookStep:
        return HookStep.STOP if self.is_reverted() else HookStep.DRAIN

    def can_fail(self) -> bool:
        return self.state not in UNTOUCHED_STATES

    def is_reverted(self) -> bool:
        return self.state in STOP_STATES

    def is_unfinished(self) -> bool:
        return self.state in UNDER_WAY_STATES

    def moves_files(self) -> bool:
        return self.state in UNDER_WAY_STATES

    def moved_at_s(self, bricks: Sequence[str]) -> Sequence[float]:
        """A drain of the same bricks moves nothing to them."""
        if set(self.bricks) == set(bricks):
            return ()
        return [at_s for state, at_s in self.times.items() if state in MOVING_STATES]

    def needs_no_options(self) -> bool:
        return self.state in OUT_STATES | {_S.STOPPED}


def _noted(known: DrainNotes, more: DrainNotes) -> DrainNotes:
    notes = added(known, more, once=("files", "size_bytes", "volume_before", "volume_after"))
    return replace(notes, options=merged_options(known.options, more.options))


def _intended(
    _: DrainRecord, after: DrainRecord, act: Act[DrainStep, DrainState], __: DrainNotes | None
) -> DrainRecord:
    if after.state is _S.STARTING and after.notes.options is None:
        raise LedgerCorrupt(
            f"drain {after.id} cannot be {after.state.value}: what the options were before is not written down",
            hint="this is an error in migrator: report it; nothing was started",
        )
    return replace(after, notes=added(after.notes, DrainNotes(task_id=act.task_id, task_before=act.task_before)))


DRAINS: OperationKind[DrainRecord, DrainState, DrainStep, DrainNotes] = OperationKind(
    name="drain",
    record=DrainRecord,
    states=DrainState,
    steps=DrainStep,
    transitions=DRAIN_TRANSITIONS,
    under_way=UNDER_WAY_STATES,
    keeps_failure=frozenset({DrainStep.GIVE_UP, DrainStep.STOP, DrainStep.SETTLE, DrainStep.RESTORE}),
    noted=_noted,
    intended=_intended,
)


# What drains have taken out of the volume while passes copied.


def is_committing(record: DrainRecord) -> bool:
    """True if the commit was begun, and has not failed."""
    return record.state is _S.COMMITTING and not record.failure


def taken_out(records: Iterable[DrainRecord], volume_id: str, *, since_s: float) -> frozenset[str]:
    """Bricks that drains have committed since then, or are committing: glusterd's list shows whether that is done."""
    return frozenset(
        brick
        for record in records
        if record.volume_id == volume_id
        and (is_committing(record) or record.times.get(_S.COMMITTED, -math.inf) >= since_s)
        for brick in record.bricks
    )


def is_drained(records: Iterable[DrainRecord], before: str, after: str, *, since_s: float) -> bool:
    """True if drains that were committed since then, and nothing else, explain this change of the volume's fingerprint."""
    committed = [record for record in records if record.times.get(_S.COMMITTED, -math.inf) >= since_s]
    for record in sorted(committed, key=lambda record: record.times[_S.COMMITTED]):
        if before == record.notes.volume_before and record.notes.volume_after is not None:
            before = record.notes.volume_after
            if before == after:
                return True
    return False


# Snapshots of the volume, and the acts that follow from them.


class DrainSnapshot(Struct, frozen=True, kw_only=True):
    """A snapshot of the volume, taken after the record was read. None always means not read or unreadable.

    `state` is the volume with its peers and bricks, `tasks` has every task in its status, and `progress` the counters
    of the drain, if there is one. `layout` has the counters of the newest rebalance or fix-layout. `options` are the
    volume's options that are set (from `state`). `preflight` are the failed checks. `stalled` says why a running drain
    is stalled (empty: it is not), and `lost` that a rebalance process has died without a report. `silent` says why its
    missing counters are no longer waited for (empty: they are reported, or still may be). `causes` are possible causes
    of a failure of a drain that Gluster has ended (room, bricks, hosts). `places` has the content of each brick's
    former place.
    """

    state: VolumeState | None
    tasks: tuple[VolumeTask, ...] = ()
    progress: TaskProgress | None = None
    layout: TaskProgress | None = None
    preflight: tuple[str, ...] | None = None
    stalled: str = ""
    lost: str = ""
    silent: str = ""
    causes: tuple[str, ...] = ()
    audit: DrainAudit | None = None
    places: Mapping[str, PlaceSeen] | None = None


DrainAct = Act[DrainStep, DrainState]
Step = DrainAct | Halt | Finished


# Progress of a drain, from its record and its samples.


_EMPTY_STATES = OUT_STATES | {DrainState.AUDITED, DrainState.COMMITTING}


class DrainStanding(BrickStanding, frozen=True, kw_only=True):
    """The progress of one attempt to drain bricks."""

    state: DrainState
    """Its state."""
    started_at_s: float | None
    """When Gluster began."""
    times_kept: int | None
    """Directories with their latest mtime on these bricks that keep it; None before the commit."""
    times_lost: int | None
    """Directories with their latest mtime on these bricks that show an earlier one since the commit."""

    @property
    def left_files(self) -> int | None:
        """Files still to move; 0 once an audit has found none."""
        if self.state in _EMPTY_STATES:
            return 0
        return None if self.files is None else max(self.files - self.moved_files, 0)

    @property
    def left_bytes(self) -> int | None:
        """Bytes still to move; 0 once an audit has found none."""
        if self.state in _EMPTY_STATES:
            return 0
        return None if self.size_bytes is None else max(self.size_bytes - self.moved_bytes, 0)


# Request and summary of `brick drain` and `brick stop`.


class DrainRequest(BrickRequest, frozen=True, kw_only=True):
    """The bricks to drain, and the options of the call. `commit` False ends with the audit. `confirm` is the word that
    allows wiping. `accept_open_files` allows a drain despite open files on the bricks, and `accept_retained` one
    despite sources due to be purged first.
    """

    commit: bool = True
    confirm: str | None = None
    accept_open_files: bool = False
    accept_retained: bool = False


class DrainSummary(CallSummary, frozen=True, kw_only=True):
    """The result of `brick drain` or `brick stop`."""

    bricks: tuple[str, ...]
    back: bool
    """The call was `brick stop`."""
    left_behind: tuple[bytes, ...] = ()
    """The first paths that an audit found on the bricks."""
    left_file: str | None = None
    """A file with all of them."""
    commands_file: str | None = None
    """A file with commands that move or remove them."""
    confirm: str | None = None
    """The word for `--confirm`, which lets hooks wipe the bricks."""
    wipe_problems: tuple[str, ...] = ()
    """Why hooks may not wipe the bricks."""
    standing: DrainStanding | None = None
    """The drain."""
    check: DrainCheck | None = None
    """The facts of the preflight checks, if they ran."""


def drain_tally(samples: Sequence[TaskSample]) -> CopyTally:
    """Sum up the files that one drain moved, from its samples, in order of time. A task takes as long as its slowest host; time between tasks
    does not count.
    """
    last = last_counts(samples)
    by_task: dict[str, dict[str, float]] = {}
    for one in last:
        hosts = by_task.setdefault(one.task_id, {})
        hosts[one.host] = hosts.get(one.host, 0.0) + one.runtime_s
    return CopyTally(
        files=sum(one.files for one in last),
        size_bytes=sum(one.size_bytes for one in last),
        busy_s=sum(max(hosts.values()) for hosts in by_task.values()),
    )
