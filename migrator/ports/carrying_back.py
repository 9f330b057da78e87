"""Carrying back what a user changed on the target, for a rollback."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from migrator.domain.cutover import CutoverRecord, TargetChanges
from migrator.domain.cutover_seen import PassSeen, ProofSeen
from migrator.domain.entry import Entry, EntryType
from migrator.domain.freezing import FrozenTop


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedBack:
    """What one pass from the target to the source brought."""

    seen: PassSeen
    changes: TargetChanges


class SourceChangeKind(StrEnum):
    """What somebody did to a path of a source that is kept. A directory in the place of something else was `made`."""

    MADE = "made"
    CHANGED = "changed"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChange:
    """One path of a retained source that is not what the final pass saw there, and what was not carried back. `stands`: what
    is there now; None where nothing is.
    """

    path: bytes
    kind: SourceChangeKind
    stands: EntryType | None


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

    def changed_source(self, record: CutoverRecord, *, before: str, now: str) -> Sequence[SourceChange]:
        """What somebody changed on the retained source: its catalog `now` against the catalog `before` of the final pass, but for
        what this program has carried back itself, for a rollback that was given up. In order of path. Blocking; raises what
        reading catalogs raises.
        """

    def give_up_source(self, record: CutoverRecord, changes: Sequence[SourceChange]) -> int:
        """Let a rollback overwrite these changes: what stands there and is no directory that was there before goes to the
        trash of the source, and `carry` brings what the target has of all of them. How many paths went to the trash. May be
        called again, also after a kill. Blocking; raises OSError.
        """

    def changes(self, record: CutoverRecord) -> TargetChanges | None:
        """What was found to be changed on the target since the switch; None before anything was looked for. Blocking."""
