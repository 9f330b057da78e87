"""The cutover of one user tree: states, steps, the record. Pure.

A cutover goes from source to target, its rollback from target to source; both freeze, copy, verify, switch and thaw.
Times are seconds since the epoch, durations are in seconds.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum, auto

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt
from migrator.core.units import NS_PER_S, several
from migrator.operations.model import Act, Finished, Halt, Operation, OperationKind


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
"""The user may be frozen, and the cutover or rollback must be resumed."""


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
"""The states of each phase, forward and back."""

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
        """A clause about them."""
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
    def subject(self) -> str:
        """The user, as the subject of events."""
        return self.tree.user

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
        """The begin of the present freeze, of a cutover or rollback; None if the user can work."""
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
            f"cutover {before.id} cannot be {act.intent.value}: the top to thaw is not recorded",
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
