"""The drain of bricks: states, steps, records, snapshots of the volume. Times in seconds since the epoch. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from migrator.bricks.model import BrickRoom
from migrator.catalog.model import StrangeFiles
from migrator.core.errors import ExitCode, LedgerCorrupt
from migrator.gluster.model import TaskProgress, TaskStatus, VolumeState, VolumeTask
from migrator.operations import model as operations
from migrator.operations.model import Act, Kind, Operation, added

# States, steps and records. One drain is of one subvolume: a single brick, or a whole replica set.


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

DRAIN_ENDED_STATES = frozenset({_S.STOPPED, _S.HANDED_OVER})
"""Nothing is left to do: the same bricks can be drained again, by another attempt."""

OUT_STATES = frozenset({_S.COMMITTED, _S.WIPING, _S.WIPED, _S.HANDING_OVER, _S.HANDED_OVER})
"""The bricks are no part of the volume any more."""

UNTOUCHED_STATES = frozenset({_S.PLANNED, _S.PREFLIGHT})
"""Nothing of the volume was changed yet."""

UNDER_WAY_STATES = frozenset(_S) - DRAIN_ENDED_STATES - OUT_STATES - UNTOUCHED_STATES
"""Gluster may be moving files, or not placing new ones on the bricks: the drain must be resumed or stopped."""


class DrainStep(StrEnum):
    """The steps. Each may be repeated after a crash, and then does only what is missing."""

    CHECK = "check"
    """Calls the hooks before a drain. It changes nothing."""
    START = "start"
    """Sets the options, ends what is left of a drain of the same bricks that failed, and begins `remove-brick start`."""
    WATCH = "watch"
    """Records Gluster's counters until the task ends, and adjusts the throttle."""
    AUDIT = "audit"
    """Walks the bricks on their hosts. It changes nothing."""
    RECOVER = "recover"
    """Brings what is left on the bricks back into the volume, through the mount."""
    COMMIT = "commit"
    """`remove-brick commit`, never with `force`."""
    WIPE = "wipe"
    """Calls the hook that makes a new file system."""
    HAND_OVER = "hand-over"
    """Calls the hook that hands over the bricks."""
    GIVE_UP = "give-up"
    """Changes nothing: records and reports why an admin must act."""
    STOP = "stop"
    """`remove-brick stop`, and keeps the last counters, which are in its reply alone."""
    SETTLE = "settle"
    """A fix-layout: a drain that was stopped leaves a changed layout behind."""
    RESTORE = "restore"
    """Restores the options that this drain changed."""


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
    stand once they are known. `wipe_word` confirmed a wipe that has begun.
    """

    options: tuple[ChangedOption, ...] | None = None
    task_id: str | None = None
    task_before: str | None = None
    layout_task_id: str | None = None
    files: int | None = None
    size_bytes: int | None = None
    wipe_word: str | None = None


NO_DRAIN_NOTES = DrainNotes()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRecord(Operation[DrainState, DrainNotes]):
    """One attempt to drain bricks, which are named as in the volume."""

    volume: str
    volume_id: str
    bricks: tuple[str, ...]
    notes: DrainNotes = NO_DRAIN_NOTES

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


def _noted(known: DrainNotes, more: DrainNotes) -> DrainNotes:
    notes = added(known, more, once=("files", "size_bytes"))
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


DRAINS: Kind[DrainRecord, DrainState, DrainStep, DrainNotes] = Kind(
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


# Streams beside drains: throughput while files are moved, and otherwise.


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyTally:
    """All streams together: what they have brought in `busy_s` in which any was at work."""

    files: int = 0
    size_bytes: int = 0
    busy_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCopying:
    """The copying of a site, as far as it was sampled: while a drain moved files, and while none did."""

    in_drains: CopyTally
    outside: CopyTally


# Facts for the preflight checks. None is unknown everywhere.


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickLoad:
    """What a brick holds, by its walk or the catalog: names of files, allocated bytes, and the largest file."""

    files: int
    allocated_bytes: int
    largest_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOnBricks:
    """What one user tree has on bricks, by a catalog: names of files, and bytes of their content; a hard-linked file's bytes
    count once.
    """

    tree: bytes
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedSource:
    """Files on leaving bricks of a user who works on the target. `plan` is the plan of their cutover, `due_in_s` the time until
    their source may be purged ([cutover] retain).
    """

    tree: bytes
    user: str
    plan: str
    files: int
    size_bytes: int
    due_in_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickMarks:
    """Hard-linked files of a brick that carry the mark of an earlier drain (`trusted.glusterfs.dht.linkto`, and the mode of a
    data file): how many, and the first names. `strange` files have no gfid: they were put there past Gluster. `unseen` counts
    files that could not be read.
    """

    brick: str
    files: int
    examples: tuple[bytes, ...] = ()
    strange: int = 0
    strange_examples: tuple[bytes, ...] = ()
    unseen: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainFacts:
    """The facts for the preflight checks of a drain.

    `task_of_record` is the id of the drain that this attempt has begun itself, where one is left that failed. `rooms` are
    those of all bricks; `load` is what the leaving subvolume holds. `min_free_disk` is the volume's option as it is in
    effect (`10%`, or bytes). `versions` are those of GlusterFS by host of the volume. `open_files` counts descriptors of
    clients on the leaving bricks, `open_files_accepted` that they were accepted by name. `drains_elsewhere` names other
    bricks of which a drain has not ended.

    `scanned`: a whole catalog knows the bricks. `catalog_is_old`: files were moved between bricks since then, by another drain
    or an addition. By it, `linked_symlinks` are symlinks with several names on the leaving bricks, and `retained` is what users
    who work on the target still have there; `retained_accepted`: it is moved for nothing. `strange` is what was put on the
    bricks of the volume past Gluster. `marks` are those of earlier drains on the leaving bricks; none are asked for while a
    drain of its own (`task_of_record`) has left some.
    """

    bricks: tuple[str, ...]
    state: VolumeState
    tasks: tuple[VolumeTask, ...]
    task_of_record: str | None
    rooms: Mapping[str, BrickRoom] | None
    load: BrickLoad | None
    min_free_disk: str | None
    versions: Mapping[str, str | None]
    open_files: int | None
    open_files_accepted: bool
    drains_elsewhere: tuple[str, ...]
    scanned: bool
    catalog_is_old: bool = False
    linked_symlinks: tuple[bytes, ...] = ()
    retained: tuple[RetainedSource, ...] = ()
    retained_accepted: bool = False
    strange: tuple[StrangeFiles, ...] = ()
    marks: tuple[BrickMarks, ...] | None = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickContent:
    """What a catalog knows of bricks that are to be drained: names of files, bytes of their content, the largest
    file on the disk, symlinks with several names (the first ones), and what each user tree has there. A hard-linked
    file's bytes count once.
    """

    files: int
    size_bytes: int
    largest_bytes: int
    linked_symlinks: tuple[bytes, ...]
    trees: tuple[TreeOnBricks, ...] = ()


# Snapshots of the volume, and the acts that follow from them.


class PlaceSeen(StrEnum):
    """What lies where a brick was, on its host, once it is out of the volume. `brick`: what the brick left; `empty`: a file
    system is mounted there and holds nothing; `unmounted`: no file system of its own is mounted there; `other`: something
    that is neither; `unknown`: the look failed.
    """

    BRICK = "brick"
    EMPTY = "empty"
    UNMOUNTED = "unmounted"
    OTHER = "other"
    UNKNOWN = "unknown"


class LeftKind(StrEnum):
    """What an audit found on a brick."""

    FILE = "file"
    MAY_BE_DATA = "may-be-data"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSeen:
    """The newest audit that the asking process itself has made: every brick of the drain, walked on its host.

    `left` counts what is neither a directory nor a link-to file nor Gluster's own; `unsure` what could not be told apart.
    `whole`: nothing was unreadable, and every brick was walked. `examples` and `reasons` are for people. `explained` counts names
    that are left too, and were proven to be in the volume with the same content by the same call. `list_file` names all that was found.
    """

    started_at_s: float
    whole: bool
    left: int
    unsure: int
    examples: tuple[bytes, ...] = ()
    reasons: tuple[str, ...] = ()
    explained: int = 0
    list_file: str | None = None

    @property
    def clean(self) -> bool:
        """Whether the audit is complete and found no data left."""
        return self.whole and not self.left and not self.unsure


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSeen:
    """A snapshot of the world, taken after the record was read. None everywhere: that fact was not read, or could not be.

    `state` is the volume with its peers and bricks, `tasks` every task that its status lists, `progress` the counters of
    the drain, where there is one. `layout` are the counters of the newest rebalance or fix-layout. `options` are those of
    the volume that are set (from `state`). `preflight` are the failed checks. `stalled` says why a
    drain that is in progress does not go on (empty: it does), `lost` that a process that moves files has ended without a word,
    `silent` why no counters of it are to be waited for any longer
    (empty: they are told, or may be yet). `causes` are sentences on what may have made a drain fail that
    Gluster has ended (room, bricks, hosts). `places` tells by brick what lies where it was.
    `may_recover`: what is left may be brought back, which this call was asked for and has not done yet.
    """

    state: VolumeState | None
    tasks: tuple[VolumeTask, ...] | None
    progress: TaskProgress | None = None
    layout: TaskProgress | None = None
    preflight: tuple[str, ...] | None = None
    stalled: str = ""
    lost: str = ""
    silent: str = ""
    causes: tuple[str, ...] = ()
    audit: AuditSeen | None = None
    places: Mapping[str, PlaceSeen] | None = None
    may_recover: bool = False


class DrainAct(operations.Act[DrainStep, DrainState]):
    """A step of a drain."""

    __slots__ = ()


Step = DrainAct | operations.Halt | operations.Finished


# Progress of a drain, from its record and its samples.


_EMPTY_STATES = OUT_STATES | {DrainState.AUDITED, DrainState.COMMITTING}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainStanding:
    """One attempt to drain bricks. `files` and `size_bytes` were to be moved when it began (names, and bytes of content),
    `moved_files` and `moved_bytes` are what Gluster has counted, over all its tasks; `failures` and `skipped` those of the
    last one. The rates are of the last half hour that was looked at, `left_s` how long it still takes by them. What is not
    known is None. `looked_at_s` is when Gluster was asked last.
    """

    id: int
    volume: str
    bricks: tuple[str, ...]
    attempt: int
    state: DrainState
    since_s: float
    started_at_s: float | None
    files: int | None
    size_bytes: int | None
    moved_files: int
    moved_bytes: int
    failures: int
    skipped: int
    files_per_s: float | None
    bytes_per_s: float | None
    left_s: float | None
    looked_at_s: float | None
    failure: str

    @property
    def left_files(self) -> int | None:
        """Files that are still to be moved, as far as is known; none when an audit has found none."""
        if self.state in _EMPTY_STATES:
            return 0
        return None if self.files is None else max(self.files - self.moved_files, 0)

    @property
    def left_bytes(self) -> int | None:
        """Bytes that are still to be moved, as far as is known; none when an audit has found none."""
        if self.state in _EMPTY_STATES:
            return 0
        return None if self.size_bytes is None else max(self.size_bytes - self.moved_bytes, 0)


# Request and summary of `brick drain` and `brick stop`.


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequest:
    """Which bricks, and how. `commit` False ends with the audit. `confirm` is the word that allows wiping. Files that are
    open on the bricks are no reason against where `accept_open_files` says so, nor sources that were to be purged first
    where `accept_retained` does. `recover`: what is left on the bricks is brought
    back through the mount, once in the call.
    """

    bricks: tuple[str, ...]
    pid: int
    dry_run: bool = False
    commit: bool = True
    confirm: str | None = None
    accept_open_files: bool = False
    accept_retained: bool = False
    recover: bool = False
    poll_s: float = 30.0
    stall_s: float = 6 * 3600.0


class DrainEnding(StrEnum):
    """What became of it. `waits`: it ends here unless more is asked for. `halted`: nothing was touched by the last step, a
    check failed. `stuck`: a step failed.
    """

    PLANNED = "planned"
    DONE = "done"
    WAITS = "waits"
    TAKEN_BACK = "taken-back"
    HALTED = "halted"
    STUCK = "stuck"


_EXIT_CODES = {DrainEnding.HALTED: ExitCode.REFUSED, DrainEnding.STUCK: ExitCode.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainCheck:
    """What the guards before a drain look at; None is what is not known. `rooms` are those of the bricks that stay, by
    name; `used_bytes` and `used_inodes` are taken on the leaving bricks. `catalog` is the one that `files`, `size_bytes`,
    `largest_bytes` and `linked_symlinks` are from, and `retained`: what users who work on the target still have there. `problems` are the reasons against a start.
    """

    problems: tuple[str, ...]
    used_bytes: int | None
    used_inodes: int | None
    rooms: Mapping[str, BrickRoom] | None
    min_free_disk: str | None
    versions: Mapping[str, str | None]
    open_files: int | None
    catalog: str | None
    catalog_at_s: float | None
    files: int | None
    size_bytes: int | None
    largest_bytes: int | None
    linked_symlinks: tuple[bytes, ...] = ()
    retained: tuple[RetainedSource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainSummary:
    """The result. `back`: it was to be taken back. `reasons` are the failed checks; `left_behind` are the first paths that
    an audit found on the bricks, `left_file` the list of all. `confirm` is the word that allows wiping; `wipe_problems` are
    the reasons why nothing may be wiped. `check` is set where the guards were looked at.
    """

    volume: str
    bricks: tuple[str, ...]
    back: bool
    dry_run: bool
    ending: DrainEnding
    words: str
    hint: str = ""
    reasons: tuple[str, ...] = ()
    left_behind: tuple[bytes, ...] = ()
    left_file: str | None = None
    confirm: str | None = None
    wipe_problems: tuple[str, ...] = ()
    standing: DrainStanding | None = None
    check: DrainCheck | None = None

    @property
    def exit_code(self) -> ExitCode:
        """What the shell sees. A dry run that finds reasons is refused as the drain would be."""
        return _EXIT_CODES.get(self.ending, ExitCode.DONE)


def last_counts(samples: Sequence[DrainSample]) -> tuple[DrainSample, ...]:
    """Of every task and host the last sample, and the last one before each time that its counters began from nothing again:
    after a reboot of the host Gluster goes on with the same task, and counts anew (seen on GlusterFS 10.3). Together they
    are what was moved. The samples are in the order of time.
    """
    newest: dict[tuple[str, str], DrainSample] = {}
    dropped: dict[tuple[str, str], DrainSample] = {}
    ended: list[DrainSample] = []
    for one in samples:
        key = one.task_id, one.host
        before = newest.get(key)
        if before is not None and (one.files, one.size_bytes) < (before.files, before.size_bytes):
            dropped.setdefault(key, before)
        if one.files and (lost := dropped.pop(key, None)) is not None and one.runtime_s < lost.runtime_s:
            # Another process; where the same one runs on, nothing was told for a moment only.
            ended.append(lost)
        newest[key] = one
    return (*ended, *dropped.values(), *newest.values())
