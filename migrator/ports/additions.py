"""What an addition of bricks asks of the volume and of the ledger. Times in seconds since the epoch."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from migrator.domain.addition import (
    NO_NOTES,
    AdditionNotes,
    AdditionRecord,
    AdditionSide,
    AdditionState,
    AdditionStepRecord,
)
from migrator.domain.addition_seen import Act
from migrator.domain.drain import DrainSample
from migrator.ports.volume import VolumeCommands


class AdditionCommands(VolumeCommands, Protocol):
    """What an addition asks besides, and has glusterd do."""

    async def owners(self) -> Mapping[str, str]:
        """By brick name the volume that it belongs to, of every volume of the pool."""

    async def add(self, bricks: Sequence[str]) -> None:
        """Add bricks, as whole sets. Never by force."""

    async def replace(self, old: str, new: str) -> None:
        """Put a new brick in the place of one copy of a replica set; it is filled by healing."""

    async def take_offline(self, brick: str) -> None:
        """End the process of a brick of a replica set, so that its disk can be exchanged in its place. May be called again."""

    async def put_in(self, brick: str, *, marked: bool) -> None:
        """Take the empty file system that is mounted in the place of a brick that is offline into the volume; it is filled by healing.
        `marked`: an earlier call has begun to, and has left Gluster's marks there.
        """

    async def start_bricks(self) -> None:
        """Start every brick of the volume that is down, also one that was taken offline, with what it has. May be called again."""

    async def heal(self) -> None:
        """Have the self-heal daemons look now for what waits to be healed, and not when their next time comes. May be called again."""

    async def rebalance(self) -> str:
        """Begin to even out the bricks; returns the id of the task."""


class AdditionRecords(Protocol):
    """Attempts to add bricks, every step of them, and Gluster's counters over time. Synchronous, short transactions."""

    def plan(
        self,
        *,
        side: AdditionSide,
        volume: str,
        volume_id: str,
        bricks: Sequence[str],
        instead_of: str | None,
        at_s: float,
        anew: bool = False,
    ) -> AdditionRecord:
        """A new attempt; nothing is done yet. The newest of the same bricks on the same side is returned as it is, unless it
        has come to its end and `anew` says that another one is to begin.

        Raises LedgerCorrupt where some of the bricks are part of another addition that has begun and not settled.
        """

    def intend(self, addition_id: int, act: Act, *, at_s: float, notes: AdditionNotes = NO_NOTES) -> int:
        """Write down a step before it begins, with its intended state and the tasks that the act names, and return its id.
        Steps that are left without an end are said to be interrupted. The `reason` of an act becomes the failure of the
        record.

        Raises LedgerCorrupt for a state that may not follow, and for a hand-over of which it is not known how large the
        target was before.
        """

    def note(self, addition_id: int, notes: AdditionNotes) -> AdditionRecord:
        """Facts that are to be kept before the step ends: a task that was begun, an option that is about to be changed."""

    def finish(
        self, step_id: int, state: AdditionState, *, at_s: float, notes: AdditionNotes = NO_NOTES, message: str = ""
    ) -> AdditionRecord:
        """A step was done, and came to its state. The first end of a step counts."""

    def fail(self, step_id: int, reason: str, *, at_s: float) -> AdditionRecord:
        """A step failed; the state stays that of the intent. The first end of a step counts."""

    def read(self, addition_id: int) -> AdditionRecord:
        """One attempt. Raises LedgerCorrupt where there is none."""

    def latest(self, volume_id: str, bricks: Sequence[str], side: AdditionSide) -> AdditionRecord | None:
        """The newest attempt at just these bricks, in whatever order."""

    def all(self) -> Sequence[AdditionRecord]:
        """Every attempt, oldest first."""

    def steps(self, addition_id: int) -> Sequence[AdditionStepRecord]:
        """The steps of an attempt, oldest first."""

    def add_samples(self, addition_id: int, samples: Sequence[DrainSample]) -> None:
        """Keep counters; those of the same task, time and host replace the ones before."""

    def samples(self, addition_id: int) -> Sequence[DrainSample]:
        """In order of time, then of host."""

    def telling_samples(self, addition_id: int, *, recent_s: float) -> Sequence[DrainSample]:
        """Those of them that its standing is made of, with a pace of the last `recent_s`: they are few however long it has
        lasted. In order of time, then of host.
        """
