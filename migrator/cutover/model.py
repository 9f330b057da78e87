"""The cutover of one user tree: states, steps, the record. Pure.

A cutover goes from source to target, its rollback from target to source; both freeze, copy, verify, switch and thaw.
Times are seconds since the epoch, durations are in seconds.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum, auto
from typing import ClassVar

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
    """Files that the user changed or added."""
    size_bytes: int
    """Their bytes."""
    gone: int
    """Names that the user removed."""


class PurgeSum(Struct, frozen=True, kw_only=True):
    """The content of a tree on the source that a purge frees. A file with names outside the tree frees only its name."""

    names: int
    """Names of every kind."""
    inodes: int
    """Inodes."""
    size_bytes: int
    """Apparent sizes of the files."""


class LateSum(Struct, frozen=True, kw_only=True):
    """Paths written on the source since the freeze began and found there after the thaw."""

    NO_KEYS: ClassVar = frozenset({"words"})

    paths: int
    """Their number."""
    left: int
    """Those that could not be carried over."""
    list_file: str = ""
    """A file that lists them."""

    @property
    def words(self) -> str:
        """A clause about them."""
        changed = f"{several(self.paths, 'path')} of the source changed after the freeze began"
        listed = f" (listed in {self.list_file})" if self.list_file else ""
        return f"{changed}; {f'{self.left:,} of these' if self.left else 'none'} could not be carried over{listed}"


class CutoverNotes(Struct, frozen=True, kw_only=True):
    """Facts that the steps of a cutover record; None leaves the old value.

    Passes and verifications are numbers in the ledger (of a rollback: in its own ledger). Only newer ones than those
    before count; clocks may be set back.
    """

    NO_KEYS: ClassVar = frozenset(
        {
            "frozen_top",
            "frozen_target_top",
            "passes_before",
            "proofs_before",
            "target_thawed_ns",
            "target_thawed_again_ns",
            "purge",
        }
    )

    frozen_top: str | None = None
    """The top directory on the source before it was frozen, as JSON that only freeze and thaw read. Set only with the
    intent of the freeze: later the top may be the frozen one.
    """
    frozen_target_top: str | None = None
    """The same on the target. If the tree was never opened there, the top that its thaw would have made."""
    link: bytes | None = None
    """The path that is switched."""
    passes_before: int | None = None
    """The newest pass over the tree at the intent of its freeze; 0 if there was none."""
    proofs_before: int | None = None
    """The newest verification at that intent, or at the intent of the verification itself; 0 if there was none."""
    final_pass_id: int | None = None
    """The final pass."""
    verification_id: int | None = None
    """The verification in the freeze."""
    manifest: str | None = None
    """The manifest of that verification."""
    target_changes: TargetChanges | None = None
    """The user's changes on the target that a rollback carries back."""
    target_thawed_ns: int | None = None
    """The target's own clock right before the thaw there: this machine's clock may have been behind."""
    target_thawed_again_ns: int | None = None
    """The same before the thaw of a rollback that was given up."""
    purge: PurgeSum | None = None
    """The estimate when a purge begins; the freed amount once the tree is purged."""
    late: LateSum | None = None
    """Changes on the source after the freeze began."""


NO_CUTOVER_NOTES = CutoverNotes()


class CutoverRecord(Operation[CutoverState, CutoverNotes], frozen=True, kw_only=True):
    """One attempt to cut one tree over, with its rollback. A failure before the switch reverts the cutover."""

    NO_KEYS: ClassVar = frozenset({"token"})

    plan: str
    batch: int
    tree: UserTree
    predicted_freeze_s: float | None
    """The predicted duration of the freeze."""
    frozen_at_s: float | None = None
    """When freezing began; a rollback does not change it."""
    thawed_at_s: float | None = None
    """When the user was thawed, on either side; a rollback does not change it."""
    notes: CutoverNotes = NO_CUTOVER_NOTES
    token: str = ""
    """A random part of its name: a ledger restored from an older backup may reuse the number."""

    def subject(self) -> str:
        """The user, as the subject of events."""
        return self.tree.user

    @property
    def own_name(self) -> str:
        """Name of this attempt's directories, unique over all ledgers."""
        return f"{self.id:06d}-{self.token}"

    @property
    def freeze_s(self) -> float | None:
        """Actual duration of the freeze; None before the thaw."""
        if self.frozen_at_s is None or self.thawed_at_s is None:
            return None
        return max(self.thawed_at_s - self.frozen_at_s, 0.0)

    @property
    def let_in_s(self) -> float | None:
        """When the user was first let in on the target: the later of the times by this machine's clock and the
        target's.
        """
        at_s = self.times.get(CutoverState.THAWED) if self.thawed_at_s is None else self.thawed_at_s
        return _later(at_s, self.notes.target_thawed_ns)

    @property
    def works_there_since_s(self) -> float | None:
        """As `let_in_s`, of the last thaw on the target: a rollback may have been given up since."""
        notes = self.notes
        return _later(self.times.get(CutoverState.THAWED), notes.target_thawed_again_ns or notes.target_thawed_ns)

    @property
    def under_way(self) -> bool:
        """The user may be frozen."""
        return self.state in UNDER_WAY_STATES

    def has_begun(self) -> bool:
        """True if the user was frozen, and does not work on the source again."""
        return self.state not in ENDED_STATES and self.state is not CutoverState.PLANNED

    def is_settled(self) -> bool:
        """True if the user works on the target."""
        return self.state in SETTLED_STATES

    def is_purged(self) -> bool:
        """True if the source is freed."""
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
        """Since when the user cannot work, by a cutover or rollback; None if the user can work."""
        if self.state in ROLLBACK_STATES:
            # A user who was not yet thawed on the target has been frozen since the cutover.
            begun = self.frozen_at_s if self.thawed_at_s is None else None
            return begun if begun is not None else self.times.get(CutoverState.ROLLBACK_FREEZING, self.since_s)
        return self.frozen_at_s if self.under_way and self.thawed_at_s is None else None

    @property
    def purge(self) -> PurgeSum | None:
        """What a purge was to free, or has freed."""
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
