"""What the ledger returns of the site, calls, hooks, plans, passes and chunks. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from migrator.core.states import BatchState, ChunkState, PassKind, PassState
from migrator.fs.model import MountIdentity, TargetCapabilities
from migrator.hooks.model import HookOutcome, HookStep
from migrator.operations.model import Act, Operation, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class HookStepRecord:
    """A step that hooks are called around: open from before its `pre` hooks until after its `post` ones. `state` is how it
    ended, empty while it is open.
    """

    id: int
    step: HookStep
    subject: str
    opened_at_s: float
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCallRecord:
    """One call; without `finished_at_s` nobody knows how it ended. `stage` as `pre-batch`."""

    id: int
    step_id: int
    stage: str
    name: bytes
    token: str
    started_at_s: float
    finished_at_s: float | None
    exit_code: int | None
    outcome: HookOutcome | None
    output: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRecord:
    """What `init` recorded. `site_id` is a random UUID: a plan of another site is told by it."""

    site_id: str
    name: str
    created_at_s: float
    source: MountIdentity
    target: MountIdentity
    capabilities: TargetCapabilities | None
    capabilities_probed_at_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One invocation of a verb that writes; `heartbeat_at_s` is renewed every few seconds while it lives."""

    id: int
    verb: str
    pid: int
    started_at_s: float
    heartbeat_at_s: float
    finished_at_s: float | None
    exit_code: int | None
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """A plan that was written: `path` of the document, its checksum, and the state of every batch."""

    name: str
    path: str
    checksum: str
    created_at_s: float
    scan_id: int
    batches: Mapping[int, BatchState]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTotals:
    """Sums over the chunks of a pass that count (split ones do not, their halves do)."""

    chunks: Mapping[ChunkState, int]
    done_files: int
    done_bytes: int
    files: int
    size_bytes: int


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


Record_co = TypeVar("Record_co", bound=Operation[Any, Any], covariant=True)


State_contra = TypeVar("State_contra", contravariant=True)


Notes_contra = TypeVar("Notes_contra", contravariant=True)


Act_contra = TypeVar("Act_contra", bound=Act[Any, Any], contravariant=True)


StepRecord_co = TypeVar("StepRecord_co", bound=StepRecord[Any], covariant=True)


class OperationRecords(Protocol[Record_co, State_contra, Act_contra, Notes_contra, StepRecord_co]):
    """Operations of one kind, and every step of them."""

    def intend(self, operation_id: int, act: Act_contra, *, at_s: float, notes: Notes_contra | None = None) -> int:
        """Write down a step before it begins, with its intended state and the tasks that the act names, and return its id.
        Steps that are left without an end are said to be interrupted. The `reason` of an act becomes the failure of the
        record.

        Raises LedgerCorrupt for a state that may not follow, and where a fact is missing that the way back needs: see
        `Kind.intended`.
        """

    def note(self, operation_id: int, notes: Notes_contra) -> Record_co:
        """Facts that are to be kept before the step ends: an option that is about to be changed, a task that was begun."""

    def finish(
        self,
        step_id: int,
        state: State_contra,
        *,
        at_s: float,
        notes: Notes_contra | None = None,
        message: str = "",
    ) -> Record_co:
        """A step was done, and came to its state. The first end of a step counts."""

    def fail(self, step_id: int, reason: str, *, at_s: float) -> Record_co:
        """A step failed; the state stays that of the intent. The first end of a step counts."""

    def read(self, operation_id: int) -> Record_co:
        """One operation. Raises LedgerCorrupt where there is none."""

    def all(self) -> Sequence[Record_co]:
        """Every operation of the kind, oldest first."""

    def under_way(self) -> Sequence[Record_co]:
        """Those that may have touched the world and have not ended, oldest first."""

    def steps(self, operation_id: int) -> Sequence[StepRecord_co]:
        """The steps of an operation, oldest first."""
