"""What the ledger keeps of drains. Synchronous, short transactions; times in seconds since the epoch."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.drain import NO_NOTES, DrainNotes, DrainRecord, DrainSample, DrainState, DrainStepRecord
from migrator.domain.drain_copying import DrainCopying
from migrator.domain.drain_seen import Act


class DrainRecords(Protocol):
    """Attempts to drain bricks, every step of them, and Gluster's counters over time."""

    def plan(
        self, *, volume: str, volume_id: str, bricks: Sequence[str], at_s: float, anew: bool = False
    ) -> DrainRecord:
        """A new attempt; nothing is done yet. One of the same bricks that has not ended is returned as it is, unless they are
        out of the volume by it and `anew` says that they are in it again.

        Raises LedgerCorrupt where some of the bricks are part of another drain that has not ended.
        """

    def intend(self, drain_id: int, act: Act, *, at_s: float, notes: DrainNotes = NO_NOTES) -> int:
        """Write down a step before it begins, with its intended state and the tasks that the act names, and return its id.
        Steps that are left without an end are said to be interrupted. The `reason` of an act becomes the failure of the
        record.

        Raises LedgerCorrupt for a start of which it is not known what the options were before, and for a state that may
        not follow.
        """

    def note(self, drain_id: int, notes: DrainNotes) -> DrainRecord:
        """Facts that are to be kept before the step ends: an option that is about to be changed, a task that was begun."""

    def finish(
        self, step_id: int, state: DrainState, *, at_s: float, notes: DrainNotes = NO_NOTES, message: str = ""
    ) -> DrainRecord:
        """A step was done, and came to its state. The first end of a step counts."""

    def fail(self, step_id: int, reason: str, *, at_s: float) -> DrainRecord:
        """A step failed; the state stays that of the intent. The first end of a step counts."""

    def read(self, drain_id: int) -> DrainRecord:
        """One attempt. Raises LedgerCorrupt where there is none."""

    def latest(self, volume_id: str, bricks: Sequence[str]) -> DrainRecord | None:
        """The newest attempt at just these bricks, in whatever order."""

    def all(self) -> Sequence[DrainRecord]:
        """Every attempt, oldest first."""

    def under_way(self) -> Sequence[DrainRecord]:
        """Attempts that may have touched the volume and have not come to rest, oldest first."""

    def steps(self, drain_id: int) -> Sequence[DrainStepRecord]:
        """The steps of an attempt, oldest first."""

    def add_samples(self, drain_id: int, samples: Sequence[DrainSample]) -> None:
        """Keep counters; those of the same task, time and host replace the ones before."""

    def samples(self, drain_id: int) -> Sequence[DrainSample]:
        """In order of time, then of host."""

    def telling_samples(self, drain_id: int, *, recent_s: float) -> Sequence[DrainSample]:
        """Those of them that its standing is made of, with a pace of the last `recent_s`: they are few however long it has
        lasted. In order of time, then of host.
        """

    def copying(self) -> DrainCopying:
        """What streams have brought while drains moved files, and otherwise, over all passes."""
