"""Carrying back what a user changed on the target, for a rollback."""

from dataclasses import dataclass
from typing import Protocol

from migrator.domain.cutover import CutoverRecord, TargetChanges
from migrator.domain.cutover_seen import PassSeen, ProofSeen
from migrator.domain.entry import Entry
from migrator.domain.freezing import FrozenTop


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedBack:
    """What one pass from the target to the source brought."""

    seen: PassSeen
    changes: TargetChanges


class CarriesBack(Protocol):
    """The passes from the target to the source, and their proof. Both sides are frozen by the caller. All may be called
    again, also after a kill at any instant: a pass that was cut off is made anew.
    """

    async def carry(self, record: CutoverRecord) -> CarriedBack:
        """Bring what was made, changed and removed on the target since the switch to the source. Raises MigratorError."""

    async def verify(self, record: CutoverRecord) -> ProofSeen:
        """Compare both sides of the tree, and keep the result. Raises MigratorError."""

    def top(self, record: CutoverRecord, *, source_before: FrozenTop, target_before: FrozenTop) -> Entry:
        """What the tree's top is to be on the source when it is thawed there: as it was before the freeze of the cutover
        (`source_before`), with what the user changed of it on the target until the freeze of the rollback (`target_before`).
        To be called after `carry`, in the freeze. Blocking; raises OSError, Refused.
        """

    def seen(self, record: CutoverRecord) -> tuple[PassSeen | None, ProofSeen | None]:
        """The newest pass that carried back for this attempt, and the newest verification after it. Blocking."""

    def changes(self, record: CutoverRecord) -> TargetChanges | None:
        """What was found to be changed on the target since the switch; None before anything was looked for. Blocking."""
