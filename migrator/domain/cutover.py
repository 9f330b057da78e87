"""The cutover of one user tree: its states, its steps, what is recorded of it, and what a look at the world says.

The way there goes from the source to the target, the way back (a rollback) from the target to the source. Both have the
same steps: freeze, bring over, verify, switch, thaw. Times in seconds since the epoch, durations in seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.tree import UserTree


class CutoverState(StrEnum):
    """How far one attempt to cut a tree over is. A state that ends in -ing (and `final-pass`) is the intent: it is
    written before anything is done.

    `reverting`: thawed on the source again, because something failed before the switch. `rollback-reverting`: thawed on
    the target again, because something failed before the path was switched back.
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
"""The user is on the source, as before: the tree can be cut over again, by another attempt."""

SETTLED_STATES = frozenset({_S.THAWED, _S.RETAINED, _S.PURGING, _S.PURGED})
"""The user works on the target."""

UNDER_WAY_STATES = frozenset(_S) - ENDED_STATES - SETTLED_STATES - {_S.PLANNED}
"""A user may be frozen: a cutover or a rollback that has to be gone on with."""

ROLLBACK_STATES = frozenset(
    {
        _S.ROLLBACK_FREEZING,
        _S.ROLLBACK_FROZEN,
        _S.CARRYING_BACK,
        _S.ROLLBACK_VERIFYING,
        _S.ROLLBACK_VERIFIED,
        _S.SWITCHING_BACK,
        _S.SWITCHED_BACK,
        _S.ROLLBACK_THAWING,
        _S.ROLLBACK_REVERTING,
    }
)
"""A rollback is under way."""


class CutoverStep(StrEnum):
    """What is done. Every step may be carried out again after a crash: it does what is missing."""

    FREEZE = "freeze"
    FINAL_PASS = "final-pass"
    VERIFY = "verify"
    SWITCH = "switch"
    THAW = "thaw"
    """Opens the target to the user."""
    RETAIN = "retain"
    """Touches neither side: who has to be told is told, and the source is kept from now on."""
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


class StepResult(StrEnum):
    """How a step ended; `interrupted`: nobody saw its end."""

    DONE = "done"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetChanges:
    """What a user made, changed and removed on the target since the switch: what a rollback carries back."""

    files: int
    size_bytes: int
    gone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeSum:
    """What the source of a tree holds that a purge frees: names of every kind, inodes, and the bytes of files as they show
    them. A file that has names outside the tree gives a name back, and nothing more.
    """

    names: int
    inodes: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverNotes:
    """Facts that a step adds to the record; None leaves what is there.

    `frozen_top` and `frozen_target_top` tell how to thaw: what the top directory was before it was frozen, as JSON that only
    freeze and thaw read. They count when the state changes to the intent of the freeze, and never afterwards: what a
    later look finds may be the frozen top. `frozen_target_top` of a tree that was never opened on the target is what its
    thaw would have made of it.

    `passes_before` is the newest pass over the tree when its freeze was intended, `proofs_before` the newest verification when
    the freeze, or its own verification, was: by their numbers in the ledger, 0 where there was none. In a rollback they are
    those of its own ledger. Only what is newer counts; clocks may be set back.

    `link` is the path that is switched, `link_before` and `link_after` what that symlink holds on either side of the
    switch. `manifest` names the manifest of the verification. `purge` is what a purge was to free when it began, and has freed
    when the tree is purged.
    """

    frozen_top: str | None = None
    frozen_target_top: str | None = None
    link: bytes | None = None
    link_before: bytes | None = None
    link_after: bytes | None = None
    passes_before: int | None = None
    proofs_before: int | None = None
    final_pass_id: int | None = None
    verification_id: int | None = None
    manifest: str | None = None
    target_changes: TargetChanges | None = None
    purge: PurgeSum | None = None


NO_NOTES = CutoverNotes()


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverRecord:
    """One attempt to cut one tree over; `attempt` counts from 1 for each tree. `token` is random: the number `id` may be given
    again, by a ledger that was brought back from an older backup.

    `times` says when each state was entered, the last time. `frozen_at_s` is when freezing began, `thawed_at_s` when the
    user was thawed, on either side: the freeze as users see it, and never that of a rollback. `failure` is the reason of
    the last failure; before the switch it makes the cutover revert.
    """

    id: int
    plan: str
    batch: int
    tree: UserTree
    attempt: int
    state: CutoverState
    times: Mapping[CutoverState, float]
    predicted_freeze_s: float | None
    frozen_at_s: float | None = None
    thawed_at_s: float | None = None
    failure: str = ""
    notes: CutoverNotes = NO_NOTES
    token: str = ""

    @property
    def own_name(self) -> str:
        """What directories of this attempt are called: of no other one, whatever ledger that is in."""
        return f"{self.id:06d}-{self.token}"

    @property
    def freeze_s(self) -> float | None:
        """How long the user was frozen; None before he is thawed."""
        if self.frozen_at_s is None or self.thawed_at_s is None:
            return None
        return max(self.thawed_at_s - self.frozen_at_s, 0.0)

    @property
    def since_s(self) -> float:
        """When it came to its state."""
        return self.times[self.state]

    @property
    def under_way(self) -> bool:
        """Whether its user may be frozen."""
        return self.state in UNDER_WAY_STATES


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverStepRecord:
    """One step of an attempt: when it was intended, how it ended, and what is to be said of it."""

    id: int
    cutover_id: int
    step: CutoverStep
    intended_at_s: float
    ended_at_s: float | None
    result: StepResult | None
    message: str
