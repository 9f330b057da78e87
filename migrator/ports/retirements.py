"""What retiring the source volume asks of Gluster, of the catalogs and manifests, and of the ledger."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from migrator.domain.brick import VolumeState
from migrator.domain.purge_proof import Proof
from migrator.domain.retirement import CatalogedPath, ClientSeen, MovedTree, RetirementRecord, RetirementState
from migrator.domain.volume_tasks import VolumeTask


class RetirementCommands(Protocol):
    """What a retirement asks glusterd, and has it do. All raise ToolFailed; a change whose answer is lost may have been made."""

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        """The volume with its peers and heals, and every task that is listed; neither of one that is not started."""

    async def clients(self) -> tuple[ClientSeen, ...]:
        """Every client of every brick. Raises ToolFailed also where a brick does not tell."""

    async def stop(self) -> None:
        """Stop the volume. Never by force."""


class CoverFiles(Protocol):
    """Catalogs beside manifests; out of core."""

    def paths(self, catalog: str, moved: Sequence[MovedTree]) -> Iterator[Sequence[tuple[CatalogedPath, Proof | None]]]:
        """Every path of a catalog that is no directory, in blocks, each with its row in the manifest of a moved tree that it
        lies in. Raises UsageError where there is no such catalog, Refused where it, or a manifest, cannot be read. Blocking.
        """


class RetirementRecords(Protocol):
    """Attempts to retire volumes. Synchronous, short transactions; times in seconds since the epoch."""

    def intend(
        self, *, volume: str, volume_id: str, catalog: str, files: int, size_bytes: int, at_s: float
    ) -> RetirementRecord:
        """Write down that the volume is about to be stopped. An attempt that has not ended is taken up, with these facts."""

    def last_look(self, retirement_id: int) -> RetirementRecord:
        """Write down that the command to stop the volume is next. Raises LedgerCorrupt where an attempt has ended."""

    def finish(self, retirement_id: int, state: RetirementState, *, at_s: float, failure: str = "") -> RetirementRecord:
        """What became of it. Raises LedgerCorrupt for a state that may not follow."""

    def newest(self) -> RetirementRecord | None:
        """The newest attempt at any volume."""
