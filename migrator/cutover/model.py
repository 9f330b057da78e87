"""The cutover of one user tree: states, steps, records, snapshots. Pure."""

from collections.abc import Mapping
from enum import Enum, StrEnum, auto

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.entry import EntryType, UserTree
from migrator.core.errors import ExitCode, LedgerCorrupt
from migrator.core.units import NS_PER_S, format_time, several
from migrator.core.windows import ALWAYS, OpenTimes
from migrator.fs.model import Side
from migrator.operations.model import Act, Finished, Halt, Operation, OperationKind
from migrator.transfer.model import RunRequest

# States, steps and records. The way there goes from source to target, the way back (a rollback) from target to source;
# both freeze, copy, verify, switch and thaw. Times are seconds since the epoch, durations are in seconds.


class CutoverState(StrEnum):
    """The state of one attempt to cut a tree over. A state that ends in -ing (and `final-pass`) is an intent: it is
    recorded before the step begins.

    `reverting`: the user is being thawed on the source, because something failed before the switch.
    `rollback-reverting`: the user is being thawed on the target, because something failed before the path was switched
    back.
    """

    PLANNED = "planned"
    FREEZING = "freezing"
    FROZEN = "frozen"
    FINAL_PASS = "final-pass"
    VERIFYING = "verifying"
    VERIFIED = "verified"
    SWITCHING = "switching"
    SWITCHED = "switched"
    THAWING = "thawing"
    THAWED = "thawed"
    RETAINED = "retained"
    PURGING = "purging"
    PURGED = "purged"
    REVERTING = "reverting"
    REVERTED = "reverted"
    ROLLBACK_FREEZING = "rollback-freezing"
    ROLLBACK_FROZEN = "rollback-frozen"
    CARRYING_BACK = "carrying-back"
    ROLLBACK_VERIFYING = "rollback-verifying"
    ROLLBACK_VERIFIED = "rollback-verified"
    SWITCHING_BACK = "switching-back"
    SWITCHED_BACK = "switched-back"
    ROLLBACK_THAWING = "rollback-thawing"
    ROLLED_BACK = "rolled-back"
    ROLLBACK_REVERTING = "rollback-reverting"


_S = CutoverState

CUTOVER_TRANSITIONS: Mapping[CutoverState, frozenset[CutoverState]] = {
    _S.PLANNED: frozenset({_S.FREEZING, _S.REVERTING}),
    _S.FREEZING: frozenset({_S.FROZEN, _S.REVERTING}),
    _S.FROZEN: frozenset({_S.FINAL_PASS, _S.REVERTING}),
    _S.FINAL_PASS: frozenset({_S.VERIFYING, _S.REVERTING}),
    _S.VERIFYING: frozenset({_S.VERIFIED, _S.REVERTING}),
    _S.VERIFIED: frozenset({_S.SWITCHING, _S.REVERTING}),
    _S.SWITCHING: frozenset({_S.SWITCHED, _S.REVERTING}),
    _S.SWITCHED: frozenset({_S.THAWING, _S.ROLLBACK_FREEZING}),
    _S.THAWING: frozenset({_S.THAWED}),
    _S.THAWED: frozenset({_S.RETAINED, _S.ROLLBACK_FREEZING}),
    _S.RETAINED: frozenset({_S.PURGING, _S.ROLLBACK_FREEZING}),
    _S.PURGING: frozenset({_S.PURGED}),
    _S.PURGED: frozenset(),
    _S.REVERTING: frozenset({_S.REVERTED}),
    _S.REVERTED: frozenset(),
    _S.ROLLBACK_FREEZING: frozenset({_S.ROLLBACK_FROZEN, _S.ROLLBACK_REVERTING}),
    _S.ROLLBACK_FROZEN: frozenset({_S.CARRYING_BACK, _S.ROLLBACK_REVERTING}),
    _S.CARRYING_BACK: frozenset({_S.ROLLBACK_VERIFYING, _S.ROLLBACK_REVERTING}),
    _S.ROLLBACK_VERIFYING: frozenset({_S.ROLLBACK_VERIFIED, _S.ROLLBACK_REVERTING}),
    _S.ROLLBACK_VERIFIED: frozenset({_S.SWITCHING_BACK, _S.ROLLBACK_REVERTING}),
    _S.SWITCHING_BACK: frozenset({_S.SWITCHED_BACK, _S.ROLLBACK_REVERTING}),
    _S.SWITCHED_BACK: frozenset({_S.ROLLBACK_THAWING}),
    _S.ROLLBACK_THAWING: frozenset({_S.ROLLED_BACK}),
    _S.ROLLED_BACK: frozenset(),
    _S.ROLLBACK_REVERTING: frozenset({_S.THAWED}),
}

ENDED_STATES = frozenset({_S.REVERTED, _S.ROLLED_BACK})
"""The user works on the source, and another attempt can cut the tree over."""

SETTLED_STATES = frozenset({_S.THAWED, _S.RETAINED, _S.PURGING, _S.PURGED})
"""The user works on the target."""

UNDER_WAY_STATES = frozenset(_S) - ENDED_STATES - SETTLED_STATES - {_S.PLANNED}
"""The user may be frozen, and the cutover or rollback has to be resumed."""


class Phase(Enum):
    """Progress of a tree."""

    START = auto()
    FREEZING = auto()
    FROZEN = auto()
    COPYING = auto()
    VERIFYING = auto()
    VERIFIED = auto()
    SWITCHING = auto()
    SWITCHED = auto()
    THAWING = auto()
    ARRIVED = auto()
    REVERTING = auto()


PHASES = {
    Phase.FREEZING: (_S.FREEZING, _S.ROLLBACK_FREEZING),
    Phase.FROZEN: (_S.FROZEN, _S.ROLLBACK_FROZEN),
    Phase.COPYING: (_S.FINAL_PASS, _S.CARRYING_BACK),
    Phase.VERIFYING: (_S.VERIFYING, _S.ROLLBACK_VERIFYING),
    Phase.VERIFIED: (_S.VERIFIED, _S.ROLLBACK_VERIFIED),
    Phase.SWITCHING: (_S.SWITCHING, _S.SWITCHING_BACK),
    Phase.SWITCHED: (_S.SWITCHED, _S.SWITCHED_BACK),
    Phase.THAWING: (_S.THAWING, _S.ROLLBACK_THAWING),
    Phase.REVERTING: (_S.REVERTING, _S.ROLLBACK_REVERTING),
}
"""The states of each phase, on the way there and on the way back."""

ROLLBACK_STATES = frozenset(back for _, back in PHASES.values())
"""A rollback is in flight."""


class CutoverStep(StrEnum):
    """The steps. Every step may run again after a crash and then does only what is missing."""

    FREEZE = "freeze"
    FINAL_PASS = "final-pass"
    VERIFY = "verify"
    SWITCH = "switch"
    THAW = "thaw"
    """Opens the target to the user."""
    RETAIN = "retain"
    """Touches neither side: calls the hooks that are due, and keeps the source from now on."""
    REVERT = "revert"
    """Thaws the user on the source, without having switched."""
    ROLLBACK_FREEZE = "rollback-freeze"
    CARRY_BACK = "carry-back"
    ROLLBACK_VERIFY = "rollback-verify"
    SWITCH_BACK = "switch-back"
    ROLLBACK_THAW = "rollback-thaw"
    """Opens the source to the user."""
    ROLLBACK_REVERT = "rollback-revert"
    """Thaws the user on the target, without having switched back."""
    PURGE = "purge"
    """Frees the source."""


class TargetChanges(Struct, frozen=True, kw_only=True):
    """A user's changes on the target since the switch, which a rollback carries back."""

    files: int
    size_bytes: int
    gone: int


class PurgeSum(Struct, frozen=True, kw_only=True):
    """The content of a tree on the source that a purge frees: names of every kind, inodes, and the apparent sizes of
    files in bytes. A file with names outside the tree frees only its name.
    """

    names: int
    inodes: int
    size_bytes: int


class LateSum(Struct, frozen=True, kw_only=True):
    """Paths written on the source since the freeze began and found there after the thaw. `left` were not carried over;
    `list_file` lists them.
    """

    paths: int
    left: int
    list_file: str = ""

    @property
    def words(self) -> str:
        """What happened to them, as a clause."""
        changed = f"{several(self.paths, 'path')} of the source changed after the freeze began"
        listed = f" (listed in {self.list_file})" if self.list_file else ""
        return f"{changed}; {f'{self.left:,} of these' if self.left else 'none'} could not be carried over{listed}"


class CutoverNotes(Struct, frozen=True, kw_only=True):
    """Facts that a step adds to the record; None leaves the old value.

    `frozen_top` and `frozen_target_top` hold the top directory before it was frozen, for the thaw, as JSON that only
    freeze and thaw read. They are set only when the state changes to the intent of the freeze: later the top may be the
    frozen one. If a tree was never opened on the target, its `frozen_target_top` is the top that its thaw would have
    made.

    `passes_before` is the newest pass over the tree at the intent of its freeze. `proofs_before` is the newest
    verification at that intent, or at the intent of the verification itself. Both are numbers in the ledger (of a
    rollback: in its own ledger), 0 if there was none. Only newer ones count; clocks may be set back.

    `target_thawed_ns` is the target's own clock right before the thaw there, `target_thawed_again_ns` before that of a rollback
    that was given up: this machine's clock may have been behind.

    `link` is the path that is switched. `manifest` names the manifest of the verification. `purge` is the estimate when
    a purge begins, and the freed amount once the tree is purged.
    """

    frozen_top: str | None = None
    frozen_target_top: str | None = None
    link: bytes | None = None
    passes_before: int | None = None
    proofs_before: int | None = None
    final_pass_id: int | None = None
    verification_id: int | None = None
    manifest: str | None = None
    target_changes: TargetChanges | None = None
    target_thawed_ns: int | None = None
    target_thawed_again_ns: int | None = None
    purge: PurgeSum | None = None
    late: LateSum | None = None


NO_CUTOVER_NOTES = CutoverNotes()


class CutoverRecord(Operation[CutoverState, CutoverNotes], frozen=True, kw_only=True):
    """One attempt to cut one tree over. `token` is random, because a ledger restored from an older backup may reuse the
    number `id`.

    `frozen_at_s` is when freezing began, `thawed_at_s` when the user was thawed, on either side: the freeze as users
    experience it, never that of a rollback. A failure before the switch reverts the cutover.
    """

    plan: str
    batch: int
    tree: UserTree
    predicted_freeze_s: float | None
    frozen_at_s: float | None = None
    thawed_at_s: float | None = None
    notes: CutoverNotes = NO_CUTOVER_NOTES
    token: str = ""

    @property
    def own_name(self) -> str:
        """The name of this attempt's directories, unique over all ledgers."""
        return f"{self.id:06d}-{self.token}"

    @property
    def freeze_s(self) -> float | None:
        """How long the user was frozen; None before the thaw."""
        if self.frozen_at_s is None or self.thawed_at_s is None:
            return None
        return max(self.thawed_at_s - self.frozen_at_s, 0.0)

    @property
    def let_in_s(self) -> float | None:
        """When the user was first let in on the target: the later of the times by this machine's clock and the target's. None
        before that.
        """
        at_s = self.times.get(CutoverState.THAWED) if self.thawed_at_s is None else self.thawed_at_s
        return _later(at_s, self.notes.target_thawed_ns)

    @property
    def works_there_since_s(self) -> float | None:
        """As `let_in_s`, the last time: a rollback may have been given up since."""
        notes = self.notes
        return _later(self.times.get(CutoverState.THAWED), notes.target_thawed_again_ns or notes.target_thawed_ns)

    @property
    def under_way(self) -> bool:
        """Whether the user may be frozen."""
        return self.state in UNDER_WAY_STATES

    def has_begun(self) -> bool:
        """Whether the user was frozen, and does not work on the source again."""
        return self.state not in ENDED_STATES and self.state is not CutoverState.PLANNED

    def is_settled(self) -> bool:
        """Whether the user works on the target."""
        return self.state in SETTLED_STATES

    def is_purged(self) -> bool:
        """Whether the source is freed."""
        return self.state is CutoverState.PURGED

    def settled_at_s(self) -> float | None:
        """When the user was last thawed on the target."""
        return self.times.get(CutoverState.THAWED)

    def purging_at_s(self) -> float | None:
        return self.times.get(CutoverState.PURGING)

    def purged_at_s(self) -> float | None:
        return self.times.get(CutoverState.PURGED)

    @property
    def frozen_since_s(self) -> float | None:
        """The begin of the present freeze, on the way there or back; None if the user can work."""
        if self.state in ROLLBACK_STATES:
            # A user who was not yet thawed on the target has been frozen since the cutover.
            begun = self.frozen_at_s if self.thawed_at_s is None else None
            return begun if begun is not None else self.times.get(CutoverState.ROLLBACK_FREEZING, self.since_s)
        return self.frozen_at_s if self.under_way and self.thawed_at_s is None else None

    @property
    def purge(self) -> PurgeSum | None:
        """The amount that a purge was to free, or has freed."""
        return self.notes.purge


def _later(at_s: float | None, target_ns: int | None) -> float | None:
    return at_s if at_s is None or target_ns is None else max(at_s, target_ns / NS_PER_S)


class FrozenUser(Struct, frozen=True, kw_only=True):
    """A user who cannot work now. `at_work`: a command holds their tree, and ends the freeze; otherwise only `hint` does."""

    tree: UserTree
    state: CutoverState
    since_s: float
    at_work: bool
    hint: str
    reason: str = ""


_TOPS = {_S.FREEZING: "frozen_top", _S.ROLLBACK_FREEZING: "frozen_target_top"}
"""The top that must be known before a freeze, for the thaw. It is set only when the state changes to that intent."""


def _entered(before: CutoverRecord, after: CutoverRecord) -> CutoverRecord:
    """Set the times of freeze and thaw once each, and the top only from before the freeze."""
    notes, entered = after.notes, after.state is not before.state
    for state, name in _TOPS.items():
        if not (entered and after.state is state):
            notes = replace(notes, **{name: getattr(before.notes, name)})
    frozen_at_s, thawed_at_s = before.frozen_at_s, before.thawed_at_s
    if entered and after.state is _S.FREEZING:
        frozen_at_s = after.since_s
    if entered and after.state in (_S.THAWED, _S.REVERTED) and frozen_at_s is not None and thawed_at_s is None:
        thawed_at_s = after.since_s
    return replace(after, notes=notes, frozen_at_s=frozen_at_s, thawed_at_s=thawed_at_s)


def _intended(
    before: CutoverRecord, after: CutoverRecord, act: Act[CutoverStep, CutoverState], notes: CutoverNotes | None
) -> CutoverRecord:
    entered = after.state is not before.state
    top = _TOPS.get(act.intent)
    if entered and top is not None and (notes is None or getattr(notes, top) is None):
        raise LedgerCorrupt(
            f"cutover {before.id} cannot be {act.intent.value}: how to thaw the user is not written down",
            hint="this is an error in migrator: report it; nothing was frozen",
        )
    if entered and act.intent is _S.ROLLBACK_FREEZING and not act.reason:
        after = replace(after, failure="")
    return _entered(before, after)


def _finished(before: CutoverRecord, after: CutoverRecord) -> CutoverRecord:
    known = before.notes
    notes = replace(after.notes, frozen_top=known.frozen_top, frozen_target_top=known.frozen_target_top)
    return _entered(before, replace(after, notes=notes))


CUTOVERS: OperationKind[CutoverRecord, CutoverState, CutoverStep, CutoverNotes] = OperationKind(
    name="cutover",
    record=CutoverRecord,
    states=CutoverState,
    steps=CutoverStep,
    transitions=CUTOVER_TRANSITIONS,
    under_way=UNDER_WAY_STATES,
    keeps_failure=frozenset({CutoverStep.REVERT, CutoverStep.ROLLBACK_REVERT, CutoverStep.RETAIN}),
    intended=_intended,
    finished=_finished,
)


# The snapshot of a tree, and the next step.


class TopSeen(StrEnum):
    """The top directory of a tree.

    On the source, compared with the record (without a record every top is `open`): `open` as before the freeze,
    `frozen` as the freeze leaves it. On the target: `open` as a thaw leaves it, `frozen` closed, or as the freeze of a
    rollback leaves it.

    `partly`: a mixture of both, from an interrupted freeze or thaw. `other`: none of these. `unknown`: the look-up
    failed. If only a hook freezes, its recorded end decides between `open` and `frozen`.
    """

    OPEN = "open"
    FROZEN = "frozen"
    PARTLY = "partly"
    OTHER = "other"
    UNKNOWN = "unknown"


class LinkSeen(StrEnum):
    """The side to which the user's path leads. `untold`: a hook switches it, and this program cannot check the result."""

    SOURCE = "source"
    TARGET = "target"
    OTHER = "other"
    UNKNOWN = "unknown"
    UNTOLD = "untold"


class PassSeen(Struct, frozen=True, kw_only=True):
    """The newest final pass over the tree, or the newest pass that carries back, by its number in the ledger.

    `finished_at_s` is None while it runs. `changed` and `vanished` count files that did so during the pass, `failed`
    those that did not arrive. `whole`: nothing was unreadable, and the side that was read was healthy before and after.
    """

    id: int
    finished_at_s: float | None
    changed: int
    vanished: int
    failed: int
    whole: bool


class ProofSeen(Struct, frozen=True, kw_only=True):
    """The newest finished verification of the tree, by its number in the ledger. `by_policy`: it read the content of
    all files that the site's policy requires. `differences` counts those of this tree; `examples` describe some of
    them.
    """

    id: int
    whole: bool
    differences: int
    by_policy: bool
    manifest: str | None
    reasons: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()


class Seen(Struct, frozen=True, kw_only=True):
    """A snapshot, taken after the record was read.

    `writing`, `copied` and `proof` belong to the way in flight: the final pass on the source, or the carrying back from
    the target. `writing` lists the reasons why somebody may still write to the frozen tree; None if that was not
    checked, which counts as a reason too. In other attributes None means that the thing is missing. `lacks_backup`: the
    site requires a backup of the target, and none is recorded. `too_long` says that the freeze has reached its limit, and
    what took the time.

    For messages: `link_holds` is the present content of the path, `top_differences` explain a top that is `other`.
    """

    link: LinkSeen
    source_top: TopSeen
    target_top: TopSeen
    writing: tuple[str, ...] | None = None
    copied: PassSeen | None = None
    proof: ProofSeen | None = None
    lacks_backup: bool = True
    too_long: str = ""
    link_holds: bytes | None = None
    top_differences: tuple[str, ...] = ()


CutoverAct = Act[CutoverStep, CutoverState]
STEP_STATES: Mapping[CutoverStep, tuple[CutoverState, CutoverState]] = {
    CutoverStep.FREEZE: (_S.FREEZING, _S.FROZEN),
    CutoverStep.FINAL_PASS: (_S.FINAL_PASS, _S.FINAL_PASS),
    CutoverStep.VERIFY: (_S.VERIFYING, _S.VERIFIED),
    CutoverStep.SWITCH: (_S.SWITCHING, _S.SWITCHED),
    CutoverStep.THAW: (_S.THAWING, _S.THAWED),
    CutoverStep.RETAIN: (_S.THAWED, _S.RETAINED),
    CutoverStep.REVERT: (_S.REVERTING, _S.REVERTED),
    CutoverStep.ROLLBACK_FREEZE: (_S.ROLLBACK_FREEZING, _S.ROLLBACK_FROZEN),
    CutoverStep.CARRY_BACK: (_S.CARRYING_BACK, _S.CARRYING_BACK),
    CutoverStep.ROLLBACK_VERIFY: (_S.ROLLBACK_VERIFYING, _S.ROLLBACK_VERIFIED),
    CutoverStep.SWITCH_BACK: (_S.SWITCHING_BACK, _S.SWITCHED_BACK),
    CutoverStep.ROLLBACK_THAW: (_S.ROLLBACK_THAWING, _S.ROLLED_BACK),
    CutoverStep.ROLLBACK_REVERT: (_S.ROLLBACK_REVERTING, _S.THAWED),
    CutoverStep.PURGE: (_S.PURGING, _S.PURGED),
}
"""The intent and the result of every step."""


def act_of(step: CutoverStep, *, seen_done: bool = False, reason: str = "") -> CutoverAct:
    """A step with its states."""
    intent, result = STEP_STATES[step]
    return Act(step=step, intent=intent, result=result, seen_done=seen_done, reason=reason)


Step = CutoverAct | Halt | Finished


# Frozen tops, and open files below them.


FROZEN_PERMISSIONS = 0o500
"""Of the top of a frozen tree. Root owns that top: its former owner could open it again with a mere chmod, as login
programs do.
"""

PERMISSION_BITS = 0o777


class FrozenTop(Struct, frozen=True, kw_only=True):
    """The top directory of a user tree before it was frozen; kept in the ledger, as JSON, before anything changes.

    `mode` has the twelve bits of permissions, setuid, setgid and sticky. The ACLs are the bytes of their extended
    attributes, None if there is none. `ino` and `gfid` (16 bytes; None if the source is no Gluster volume) identify the
    directory.
    """

    tree: bytes
    ino: int
    gfid: bytes | None
    uid: int
    gid: int
    mode: int
    acl_access: bytes | None
    acl_default: bytes | None

    @property
    def frozen_mode(self) -> int:
        """The mode while it is frozen: setuid, setgid and sticky stay and need not be restored."""
        return self.mode & ~PERMISSION_BITS | FROZEN_PERMISSIONS


class TopLook(Struct, frozen=True, kw_only=True):
    """A top on the source, compared with its record from before the freeze. `differences` are sentences, empty unless
    the state is `other`; `another`: another directory has its name.
    """

    state: TopSeen
    differences: tuple[str, ...] = ()
    another: bool = False


class OpenKind(StrEnum):
    """The kind of reference to an entry below a tree: a descriptor of a file or directory, a working directory (or the
    root directory of a process), a memory mapping, a loop device.
    """

    FILE = "file"
    DIRECTORY = "directory"
    WORKING_DIRECTORY = "working-directory"
    MAP = "map"
    LOOP_DEVICE = "loop-device"


class OpenFile(Struct, frozen=True, kw_only=True):
    """An entry below a user tree that a process holds open. `path` is relative to the source root. If `unlinked`,
    `path` is its last known name; the file has no name any more, so writing to it does not change the tree.

    `host` is the brick server, or this machine. `pid` is None and `program` empty if a brick holds it for an unknown
    process of some client. `brick` is `host:/path`, empty for what was found on this machine itself.
    """

    host: str
    path: bytes
    kind: OpenKind
    writable: bool
    unlinked: bool = False
    pid: int | None = None
    program: bytes = b""
    brick: str = ""


class Writers(Struct, frozen=True, kw_only=True):
    """Files that a search found open below some trees, and sentences about what it could not see."""

    open_files: tuple[OpenFile, ...] = ()
    unseen: tuple[str, ...] = ()


# Users' links.


# Changes of a source that is kept.


class SourceChangeKind(StrEnum):
    """The kind of change to a path of a retained source. A directory that replaces another type of entry was `made`."""

    MADE = "made"
    CHANGED = "changed"
    REMOVED = "removed"


class SourceChange(Struct, frozen=True, kw_only=True):
    """A path of a retained source that differs from the final pass, except for what a rollback carried back. `stands`
    is the present type; None if nothing is there. Size and mtime are those of the scan.
    """

    path: bytes
    kind: SourceChangeKind
    stands: EntryType | None
    size_bytes: int | None = None
    mtime_ns: int | None = None


# Speed of a user's tree before and after the cutover.


class TreeTest(StrEnum):
    """The tests in the tree: `ls -lR`, `du -s`, and reading a sample of its files."""

    LIST = "list"
    USAGE = "usage"
    READ = "read"

    @property
    def words(self) -> str:
        """A description of the test."""
        return {TreeTest.LIST: "ls -lR", TreeTest.USAGE: "du -s", TreeTest.READ: "read a sample"}[self]


class TreeMeasurement(Struct, frozen=True, kw_only=True):
    """One run of one test; `run` counts from 1 on each side.

    `amount` is the number of lines that `ls` printed, or of bytes read; 0 for `du`. `complete` is False if the time
    limit ended the test; `amount` is then the amount until the limit. `cold`: the sample's pages were dropped from the
    cache before; None if the test reads no files. `failure` is why the test could not run.
    """

    side: Side
    run: int
    test: TreeTest
    at_s: float
    seconds: float
    amount: int
    complete: bool
    cold: bool | None = None
    failure: str = ""


class TreeVisited(Struct, frozen=True, kw_only=True):
    """The measurements, in order; `files` are those that were read. `problem` says what failed; the measurements before
    it still count.
    """

    measurements: tuple[TreeMeasurement, ...]
    files: tuple[bytes, ...]
    problem: str = ""


class Verdict(StrEnum):
    """The result of a test. `single`: too few runs to estimate the noise."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no-difference"
    SINGLE = "single"


class SpeedUp(Struct, frozen=True, kw_only=True):
    """One test before and after.

    `factor` is how many times as fast the target is (below 1: slower), `low` and `high` its interval (docs/bench.md),
    None if there is none. `before` and `after` are medians: seconds, or the `unit` per second if a side did not finish
    or the amounts differ. `runs` counts the valid runs on the side that has fewer.
    """

    test: TreeTest
    verdict: Verdict
    factor: float
    low: float | None
    high: float | None
    before: float
    after: float
    unit: str
    runs: int


class UserSpeedUps(Struct, frozen=True, kw_only=True):
    """The effect of the move of one tree for its user. `at_s` is when it was measured on the target."""

    tree: UserTree
    plan: str
    batch: int
    at_s: float
    speed_ups: tuple[SpeedUp, ...]


class SpeedUpSum(Struct, frozen=True, kw_only=True):
    """One test over all users: `median` of the factors, and how many users have which verdict."""

    test: TreeTest
    users: int
    median: float
    verdicts: Mapping[Verdict, int]


# Where the seconds of a freeze went.


class FreezePart(StrEnum):
    """A part of a freeze. `close`: hooks before the freeze, closing the top, and waiting for client caches. `search`: searches
    for writers, and looks at both sides between steps. `scan` and `copy`: the final pass up to its lists, and the rest of
    it. `interrupted`: a step that was killed, and the time until the next command.
    """

    CLOSE = "close"
    SEARCH = "search"
    SCAN = "scan"
    COPY = "copy"
    VERIFY = "verify"
    SWITCH = "switch"
    THAW = "thaw"
    INTERRUPTED = "interrupted"


FREEZE_PARTS = {
    CutoverStep.FREEZE: FreezePart.CLOSE,
    CutoverStep.FINAL_PASS: FreezePart.COPY,
    CutoverStep.VERIFY: FreezePart.VERIFY,
    CutoverStep.SWITCH: FreezePart.SWITCH,
    CutoverStep.THAW: FreezePart.THAW,
    CutoverStep.REVERT: FreezePart.THAW,
}


class FreezeSpent(Struct, frozen=True, kw_only=True):
    """One freeze that has ended; `parts_s` add up to it."""

    tree: UserTree
    plan: str
    batch: int
    freeze_s: float
    predicted_freeze_s: float | None
    parts_s: Mapping[FreezePart, float]


# Announcements.


def begins_words(at_s: float) -> str:
    """When a move begins, for messages."""
    return format_time(at_s)


class Announced(StrEnum):
    """The result of one announcement. `would-tell`: a dry run. `before`: an earlier command announced the same time.
    `skipped`: a `pre` hook said so. `not-due`: the user has been moved already or is being moved. `failed`: a hook
    failed.
    """

    TOLD = "told"
    WOULD_TELL = "would-tell"
    BEFORE = "before"
    SKIPPED = "skipped"
    NOT_DUE = "not-due"
    FAILED = "failed"


class Announcement(Struct, frozen=True, kw_only=True):
    """Whether the user of one tree was told. `freeze_s` is the prediction, None if there is none. `reason` says why the
    user was not told; empty if they were.
    """

    tree: UserTree
    batch: int
    outcome: Announced
    freeze_s: float | None
    reason: str = ""


class AnnounceSummary(Struct, frozen=True, kw_only=True):
    """The result of one call of `announce`, in the plan's order of trees. `begins_at_s` is when the move begins."""

    plan: str
    begins_at_s: float
    dry_run: bool
    announcements: tuple[Announcement, ...]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command."""
        failed = any(one.outcome is Announced.FAILED for one in self.announcements)
        return ExitCode.FAILED if failed else ExitCode.DONE


class AnnouncementRecord(Struct, frozen=True, kw_only=True):
    """A user was told at `at_s` that the cutover of their tree begins at `begins_at_s`."""

    plan: str
    tree: bytes
    begins_at_s: float
    at_s: float


# Backups of the target.


class BackupTold(Struct, frozen=True, kw_only=True):
    """A recorded backup: the user trees in it, and when it began, in seconds since the epoch."""

    trees: tuple[UserTree, ...]
    began_at_s: float
    note: str


# Requests and results of `cutover` and `rollback`.


class CutoverRequest(Struct, frozen=True, kw_only=True):
    """The trees to move, by batch; `back`: by a rollback. `run` has the plan and the options of passes.

    `vouched`: the site's freeze hook guarantees that no process writes where this program cannot look. `accept_freeze`:
    move users even if the freeze is predicted or found to exceed `max_freeze_s`, or there is no prediction. `settle_s`: how long
    clients on other machines may pass a closed top by their caches. `wants_backup`: a backup of the target must be
    recorded before the switch. `require_rollback`: move only users who could be moved back. `require_acl_inheritance`:
    move users with default ACLs only if new files on the target inherit them. `overwrite_source`: a rollback overwrites
    changes on the retained source. `switch_by_hook`: the site leaves the switch to its hooks. `times`: when freezes may begin.
    """

    trees: Mapping[int, tuple[UserTree, ...]]
    run: RunRequest
    back: bool = False
    vouched: bool
    switch_by_hook: bool = False
    times: OpenTimes = ALWAYS
    max_freeze_s: float
    settle_s: float = 0.0
    accept_freeze: bool = False
    wants_backup: bool = False
    require_rollback: bool = True
    require_acl_inheritance: bool = True
    overwrite_source: bool = False

    @property
    def verb(self) -> str:
        return "rollback" if self.back else "cutover"


class Ending(StrEnum):
    """The result for one user.

    `moved`: the user is on the side that the command asks for. `given-up`: something failed before the switch, and the
    user was thawed without being moved. `refused`: a preflight check failed. `halted`: nothing was changed, because the
    snapshot does not agree with the ledger. `stuck`: a step failed, and the next call retries it; the user may be
    frozen. `planned`: a dry run without problems.
    """

    PLANNED = "planned"
    MOVED = "moved"
    GIVEN_UP = "given-up"
    REFUSED = "refused"
    HALTED = "halted"
    STUCK = "stuck"


class TreeOutcome(Struct, frozen=True, kw_only=True):
    """The result for one tree. `cutover` is the newest attempt, None if there is none. `words` are the reason or
    result, `hint` the remedy. `predicted_freeze_s` is the predicted freeze now. `freeze_parts_s` tells where the seconds
    of the freeze went; empty if there was none. `speed_ups` are those that this call has measured.
    """

    tree: UserTree
    batch: int
    ending: Ending
    cutover: CutoverRecord | None = None
    words: str = ""
    hint: str = ""
    problems: tuple[str, ...] = ()
    predicted_freeze_s: float | None = None
    freeze_parts_s: Mapping[FreezePart, float] = {}
    speed_ups: tuple[SpeedUp, ...] = ()


class CutoverSummary(Struct, frozen=True, kw_only=True):
    """The result of one call of `cutover`, or (`back`) of `rollback`."""

    plan: str
    back: bool
    dry_run: bool
    outcomes: tuple[TreeOutcome, ...]

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of the command: failed if a user may be frozen, refused if no user was moved, attention if some
        were not.
        """
        endings = [one.ending for one in self.outcomes]
        if Ending.STUCK in endings or Ending.HALTED in endings:
            return ExitCode.FAILED
        good = [ending in (Ending.MOVED, Ending.PLANNED) for ending in endings]
        lates = [one.cutover.notes.late for one in self.outcomes if one.cutover and not self.back]
        if all(good) and not any(late is not None and late.left for late in lates):
            return ExitCode.DONE
        return ExitCode.ATTENTION if any(good) else ExitCode.REFUSED
