"""What the ledger keeps of cutovers. Synchronous, short transactions; times in seconds since the epoch."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.cutover import NO_NOTES, CutoverNotes, CutoverRecord, CutoverState, CutoverStepRecord
from migrator.domain.cutover_seen import Act
from migrator.domain.tree import UserTree


class CutoverRecords(Protocol):
    """Attempts to cut trees over, and every step of them."""

    def plan(
        self, *, plan: str, batch: int, tree: UserTree, predicted_freeze_s: float | None, at_s: float
    ) -> CutoverRecord:
        """A new attempt; nothing is done yet. One of the same plan and batch that has not ended is returned as it is.

        Raises LedgerCorrupt where the newest attempt of the tree is another plan's, or batch's, and has not ended.
        """

    def intend(self, cutover_id: int, act: Act, *, at_s: float, notes: CutoverNotes = NO_NOTES) -> int:
        """Write down a step before it begins, with its intended state, and return its id. Steps that are left without an
        end are said to be interrupted. The `reason` of an act becomes the failure of the record.

        Raises LedgerCorrupt for a freeze of which it is not known how to thaw, and for a state that may not follow.
        """

    def finish(
        self,
        step_id: int,
        state: CutoverState,
        *,
        at_s: float,
        notes: CutoverNotes = NO_NOTES,
        message: str = "",
    ) -> CutoverRecord:
        """A step was done, and came to its state. The first end of a step counts."""

    def fail(self, step_id: int, reason: str, *, at_s: float) -> CutoverRecord:
        """A step failed; the state stays that of the intent. The first end of a step counts."""

    def read(self, cutover_id: int) -> CutoverRecord:
        """One attempt. Raises LedgerCorrupt where there is none."""

    def latest(self, tree: bytes) -> CutoverRecord | None:
        """The newest attempt of a tree, of any plan."""

    def of_plan(self, plan: str, batch: int | None = None) -> Sequence[CutoverRecord]:
        """Every attempt of a plan, or of one of its batches, oldest first."""

    def under_way(self) -> Sequence[CutoverRecord]:
        """Attempts of all plans whose users may be frozen, oldest first."""

    def steps(self, cutover_id: int) -> Sequence[CutoverStepRecord]:
        """The steps of an attempt, oldest first."""
