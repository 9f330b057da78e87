"""What the ledger keeps of verifications. Synchronous, short transactions; times in seconds since the epoch."""

from collections.abc import Sequence
from typing import Protocol

from migrator.domain.verification import VerificationRecord


class VerificationRecords(Protocol):
    """Verifications and where their manifests lie."""

    def start(self, *, plan: str, batch: int, at_s: float) -> int:
        """A verification begins; returns its id. Every call is a verification of its own."""

    def finish(self, record: VerificationRecord) -> None:
        """It has ended, with these facts. The same ones may be recorded again; others raise LedgerCorrupt."""

    def latest(self, plan: str, batch: int) -> VerificationRecord | None:
        """The newest finished verification of a whole batch; those of some of its trees are left out."""

    def of_plan(self, plan: str) -> Sequence[VerificationRecord]:
        """Every finished verification of a plan, oldest first."""

    def of_tree(self, plan: str, batch: int, tree: bytes) -> Sequence[VerificationRecord]:
        """Every finished verification of a batch that covered this tree of it, alone or with others, oldest first."""

    def covering(self, tree: bytes) -> Sequence[VerificationRecord]:
        """The same, of whatever plan and batch the tree was in."""

    def newest_id(self) -> int:
        """The number of the newest verification that was begun, of whatever plan, ended or not; 0 where there is none."""

    def all(self) -> Sequence[VerificationRecord]:
        """Every finished verification of every plan, oldest first."""
