"""Plans: their documents on disk, and what the ledger keeps of them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.plan import Plan
from migrator.domain.states import BatchState


class PlanDocuments(Protocol):
    """`plans/NAME.json`: canonical JSON with a checksum over its content."""

    def write(self, plan: Plan) -> tuple[str, str]:
        """Write atomically; returns path and checksum. A name that is taken is refused."""

    def read(self, name: str) -> tuple[Plan, str]:
        """The plan and its checksum. Raises Refused where it was edited by hand, UsageError where it is missing."""


class NewPlans(PlanDocuments, Protocol):
    """What making a plan needs besides."""

    def next_name(self, *, taken: Collection[str] = ()) -> str:
        """The first free name of the form `plan-0001`; `taken` are names that are in use elsewhere."""

    def require_free(self, name: str) -> None:
        """Raises UsageError where the name cannot be one, or is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A plan that was written: `path` of the document, its checksum, and the state of every batch."""

    name: str
    path: str
    checksum: str
    created_at_s: float
    scan_id: int
    batches: Mapping[int, BatchState]


class PlanRecords(Protocol):
    """Plans and the states of their batches."""

    def record(self, plan: Plan, *, path: str, checksum: str) -> None:
        """Record a plan with its batches, all planned. The same plan may be recorded again. Raises UsageError where the name is
        taken by a plan with another checksum.
        """

    def read(self, name: str) -> PlanRecord | None:
        """A plan by its name; None where there is none."""

    def latest(self) -> PlanRecord | None:
        """The plan that was recorded last; None before there is one."""

    def names(self) -> Sequence[str]:
        """Every plan that was ever recorded, in order."""

    def set_batch_state(self, plan: str, batch: int, state: BatchState) -> None:
        """A batch is now so far; the state that it has already changes nothing. Raises LedgerCorrupt for a change that the states
        do not allow, and where there is no such batch.
        """
