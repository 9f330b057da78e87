"""What the ledger keeps of passes. Synchronous, short transactions; times in seconds since the epoch."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.changes import Changes
from migrator.domain.plan import Chunk
from migrator.domain.states import PassKind, PassState
from migrator.domain.transfer import NotArrived
from migrator.ports.chunks import AttemptRecords, ChunkRecords, ProblemRecords


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRecord:
    """One pass over a batch, with the totals of its list. `number` is 0 for the seed, deltas and finals count from 1.

    `catalog` is the one that its list was made from; of a pass that sends changes alone, `base_catalog` is the one that
    it was compared with, and `scan_s` how long scan and comparison took. `chunk_list` and `move_list` name its lists;
    `moved_at_s` is when its renames and deletions were done and on the target's disks.
    """

    id: int
    plan: str
    batch: int
    kind: PassKind
    number: int
    state: PassState
    catalog: str
    base_catalog: str | None
    chunk_list: str
    move_list: str | None
    move_list_digest: str | None
    moved_at_s: float | None
    scan_s: float | None
    started_at_s: float
    finished_at_s: float | None
    total_files: int
    total_bytes: int


class PassHistory(Protocol):
    """Passes over batches, what changed up to each, and what they left."""

    def find(self, plan: str, batch: int, kind: PassKind) -> PassRecord | None:
        """The latest pass of a kind over a batch."""

    def start(
        self,
        *,
        plan: str,
        batch: int,
        kind: PassKind,
        number: int = 0,
        catalog: str,
        base_catalog: str | None = None,
        chunk_list: str,
        move_list: str | None = None,
        move_list_digest: str | None = None,
        scan_s: float | None = None,
        changes: Changes | None = None,
        chunks: Iterable[Chunk],
        at_s: float,
    ) -> PassRecord:
        """Record the pass, all its chunks and what changed up to it in one transaction.

        Where it is recorded already it is returned as it is. Raises LedgerCorrupt where that one has other chunks or
        changes or was made from something else, where the changes are of other catalogs than the pass, and for a number
        that its kind cannot have.
        """

    def read(self, pass_id: int) -> PassRecord:
        """One pass. Raises LedgerCorrupt where there is none."""

    def set_state(self, pass_id: int, state: PassState, at_s: float) -> None:
        """A pass stops, goes on or is done; the state that it has already changes nothing. Raises LedgerCorrupt for a change that
        the states do not allow.
        """

    def of_plan(self, plan: str) -> Sequence[PassRecord]:
        """Every pass of a plan, oldest first."""

    def of_batch(self, plan: str, batch: int) -> Sequence[PassRecord]:
        """Every pass over a batch, of all kinds, oldest first."""

    def over_tree(self, tree: bytes) -> Sequence[PassRecord]:
        """Every pass that went over a user tree, of whatever plan and batch, oldest first."""

    def moves_done(self, pass_id: int, at_s: float) -> None:
        """The renames and deletions of a pass are made and on the target's disks. The first time that is said stays."""

    def changes(self, pass_id: int) -> Changes | None:
        """What was recorded of a pass; None where nothing was (a seed). Trees are in order of path."""

    def not_arrived(self, plan: str, batch: int, trees: Collection[bytes] | None = None) -> NotArrived:
        """What is not known to have arrived in these trees, or (None) in all of the batch: tree by tree by the newest pass
        over it that has gone through, and by all that followed that one.

        A pass that has gone through settles the ones before it in the trees that it went over: its list was made with what
        had not arrived of them. One that was cut off, and that nothing goes on with, tells what it had not brought.
        """


class PassRecords(PassHistory, ChunkRecords, AttemptRecords, ProblemRecords, Protocol):
    """Passes, chunks and attempts."""
