"""The ledger as the stages need it. Synchronous, one writer, short transactions; times in seconds since the epoch.

Every method that records may be called again after a crash with the same facts unless it says otherwise. State changes
go through the transition tables of `migrator.domain.states`; a change that they do not allow raises LedgerCorrupt.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.changes import Changes
from migrator.domain.convergence import ConvergenceRecord
from migrator.domain.cutover import NO_NOTES, CutoverNotes, CutoverRecord, CutoverState, CutoverStepRecord
from migrator.domain.cutover_seen import Act
from migrator.domain.events import Event
from migrator.domain.plan import Chunk, Plan, TransferCost
from migrator.domain.scan import CatalogRecord
from migrator.domain.site import MountIdentity, Need, TargetCapabilities
from migrator.domain.states import BatchState, ChunkState, PassKind, PassState
from migrator.domain.transfer import (
    AttemptRecord,
    ChunkRecord,
    FileProblem,
    FileProblemKind,
    NotArrived,
    ProcessIdentity,
    Sample,
    StreamCounters,
)
from migrator.domain.tree import UserTree
from migrator.domain.verification import VerificationRecord
from migrator.ports.additions import AdditionRecords
from migrator.ports.archives import ArchiveRecords
from migrator.ports.capacity import CapacityRecords
from migrator.ports.drains import DrainRecords
from migrator.ports.governing import ControlRecords, GovernorRecords
from migrator.ports.hooks import HookRecords
from migrator.ports.probing import ProbeRecords
from migrator.ports.reap import ReleaseRecords
from migrator.ports.retirements import RetirementRecords
from migrator.ports.target_backups import BackupRecords


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTotals:
    """Sums over the chunks of a pass that count (split ones do not, their halves do)."""

    chunks: Mapping[ChunkState, int]
    done_files: int
    done_bytes: int
    files: int
    size_bytes: int


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


class SiteRecords(Protocol):
    """The one row about the site."""

    def read(self) -> SiteRecord | None: ...

    def create(self, record: SiteRecord) -> None: ...

    def update_identities(self, source: MountIdentity, target: MountIdentity) -> None: ...

    def record_capabilities(self, capabilities: TargetCapabilities, at_s: float) -> None: ...


class RunRecords(Protocol):
    """Invocations of verbs that write."""

    def start(self, *, verb: str, pid: int, at_s: float, directory: str) -> int: ...

    def heartbeat(self, run_id: int, at_s: float) -> None: ...

    def finish(self, run_id: int, at_s: float, exit_code: int) -> None: ...

    def latest(self, verb: str | None = None) -> RunRecord | None: ...


class ScanRecords(Protocol):
    """Scans, by the closing record of their catalog. What asks for the newest one means one of the whole source."""

    def start(self, *, catalog: str, via: str, at_s: float, scope: Sequence[bytes] = ()) -> int:
        """A scan begins, of these user trees alone or (empty) of the whole source; returns its id."""

    def finish(self, record: CatalogRecord) -> None: ...

    def unfinished(self) -> CatalogRecord | None:
        """The newest scan of the whole source, where it has not ended: to go on with."""

    def latest(self, *, finished: bool = True) -> CatalogRecord | None:
        """The newest scan of the whole source that has ended; with `finished=False` the newest of these."""

    def unfinished_of_trees(self) -> Sequence[CatalogRecord]:
        """Scans of some user trees alone that have not ended, oldest first: nothing goes on with them."""

    def all(self) -> Sequence[CatalogRecord]:
        """Every scan, also those of some user trees alone, oldest first."""


class PlanRecords(Protocol):
    """Plans and the states of their batches."""

    def record(self, plan: Plan, *, path: str, checksum: str) -> None: ...

    def read(self, name: str) -> PlanRecord | None: ...

    def latest(self) -> PlanRecord | None: ...

    def names(self) -> Sequence[str]:
        """Every plan that was ever recorded, in order."""

    def set_batch_state(self, plan: str, batch: int, state: BatchState) -> None: ...


class PassRecords(Protocol):
    """Passes, chunks and attempts."""

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
        """Record the pass, all its chunks and what changed (see `record_changes`) in one transaction.

        Where it is recorded already it is returned as it is. Raises LedgerCorrupt where that one has other chunks or
        was made from something else, and for a number that its kind cannot have.
        """

    def read(self, pass_id: int) -> PassRecord: ...

    def set_state(self, pass_id: int, state: PassState, at_s: float) -> None: ...

    def of_plan(self, plan: str) -> Sequence[PassRecord]: ...

    def of_batch(self, plan: str, batch: int) -> Sequence[PassRecord]:
        """Every pass over a batch, of all kinds, oldest first."""

    def over_tree(self, tree: bytes) -> Sequence[PassRecord]:
        """Every pass that went over a user tree, of whatever plan and batch, oldest first."""

    def moves_done(self, pass_id: int, at_s: float) -> None:
        """The renames and deletions of a pass are made and on the target's disks. The first time that is said stays."""

    def record_changes(self, pass_id: int, changes: Changes) -> None:
        """What changed up to a pass. The same may be recorded again; anything else raises LedgerCorrupt, also where the
        catalogs are not those of the pass.
        """

    def changes(self, pass_id: int) -> Changes | None:
        """What was recorded of a pass; None where nothing was (a seed). Trees are in order of path."""

    def not_arrived(self, plan: str, batch: int, trees: Collection[bytes] | None = None) -> NotArrived:
        """What is not known to have arrived in these trees, or (None) in all of the batch: tree by tree by the newest pass
        over it that has gone through, and by all that followed that one.

        A pass that has gone through settles the ones before it in the trees that it went over: its list was made with what
        had not arrived of them. One that was cut off, and that nothing goes on with, tells what it had not brought.
        """

    def chunk(self, chunk_id: int) -> ChunkRecord: ...

    def retry_failed(self, pass_id: int, *, but_trees: Collection[bytes] = ()) -> int:
        """Let the failed chunks of a pass wait again, but for those of some trees; returns how many there were. Their
        tries start anew.

        With them wait the chunks of directories' times in the same trees: what comes into a directory changes them.
        """

    def to_retry(self, pass_id: int, *, but_trees: Collection[bytes] = ()) -> Sequence[ChunkRecord]:
        """The chunks that `retry_failed` would let wait again, in order of number."""

    def pending(
        self,
        pass_id: int,
        kind: str,
        limit: int,
        *,
        bricks: Collection[str | None] | None = None,
        but_trees: Collection[bytes] = (),
    ) -> Sequence[ChunkRecord]:
        """Chunks of one kind that wait, the largest first; with `bricks` only those of these bricks (None among them:
        those of no brick), and none of `but_trees`.
        """

    def bricks(self, pass_id: int) -> frozenset[str | None]:
        """Where the chunks of a pass are to be read (None: through the mount), those that are done too."""

    def failed(self, pass_id: int) -> Sequence[ChunkRecord]:
        """Chunks that failed, of all kinds, in order of number."""

    def totals(self, pass_id: int) -> PassTotals: ...

    def arrived(self, *, before_plan: str) -> Mapping[bytes, Need]:
        """What plans other than this one have brought to the target, by tree: the most that any one pass of them did."""

    def split(self, chunk_id: int, halves: Sequence[tuple[Chunk, str]]) -> Sequence[ChunkRecord]:
        """Replace a running chunk by its halves (with their list paths; their numbers are given out by the ledger,
        unique in the pass), in one transaction.
        """

    def next_chunk_number(self, pass_id: int) -> int: ...

    def add_trees(self, pass_id: int, trees: Mapping[bytes, Need]) -> Sequence[ChunkRecord]:
        """One chunk of the whole tree for each tree, in the order given; those that the pass has already stay."""

    def sent_since(self, pass_id: int, attempt_id: int) -> StreamCounters:
        """What the attempts after this one have brought, those at whole trees aside."""

    def intend(self, *, chunk_id: int, token: str, host: str, engine: str, argv: Sequence[str], at_s: float) -> int:
        """Write down an attempt before its process starts; the chunk becomes running. Returns the attempt's id."""

    def started(self, attempt_id: int, process: ProcessIdentity) -> None: ...

    def finish(
        self,
        attempt_id: int,
        *,
        at_s: float,
        state: str,
        exit_code: int | None,
        counters: StreamCounters,
        stderr_tail: bytes,
        chunk_state: ChunkState,
        problems: Sequence[FileProblem],
    ) -> None:
        """The result of an attempt, of its chunk and of its files, in one transaction."""

    def unfinished_attempts(self, pass_id: int | None = None) -> Sequence[AttemptRecord]:
        """Attempts that a crash left intended or running."""

    def attempts_of_chunk(self, chunk_id: int) -> Sequence[AttemptRecord]: ...

    def attention(self, pass_id: int, kind: FileProblemKind = FileProblemKind.BAD) -> Sequence[FileProblem]:
        """The bad files of a pass that no later attempt brought over, or those of another kind."""

    def vanished_count(self, pass_id: int) -> int: ...

    def problem_counts(self, pass_id: int) -> Mapping[FileProblemKind, int]:
        """How many files of a pass have which problem now; kinds without any are left out."""

    def note(self, pass_id: int, problems: Sequence[FileProblem], at_s: float) -> None:
        """What a pass found out of files outside its chunks: what it could not rename, so that the next one sends it."""

    def clear_attention(self, pass_id: int, paths: Sequence[bytes]) -> None: ...


class SampleRecords(Protocol):
    """Throughput over time."""

    def add(self, pass_id: int, samples: Sequence[Sample]) -> None: ...

    def whole(self, pass_id: int) -> Sequence[Sample]:
        """The samples of all streams together, in order of time."""

    def measured_cost(self) -> TransferCost | None:
        """Cost per file and per byte, fitted from the finished attempts; None before there are enough."""


class EventRecords(Protocol):
    """The migration's log."""

    def add(self, event: Event, run_id: int | None = None) -> None: ...

    def latest(self, limit: int) -> Sequence[Event]: ...


class VerificationRecords(Protocol):
    """Verifications and where their manifests lie."""

    def start(self, *, plan: str, batch: int, at_s: float) -> int: ...

    def finish(self, record: VerificationRecord) -> None: ...

    def latest(self, plan: str, batch: int) -> VerificationRecord | None:
        """The newest finished verification of a whole batch; those of some of its trees are left out."""

    def of_plan(self, plan: str) -> Sequence[VerificationRecord]: ...

    def of_tree(self, plan: str, batch: int, tree: bytes) -> Sequence[VerificationRecord]:
        """Every finished verification of a batch that covered this tree of it, alone or with others, oldest first."""

    def covering(self, tree: bytes) -> Sequence[VerificationRecord]:
        """The same, of whatever plan and batch the tree was in."""

    def newest_id(self) -> int:
        """The number of the newest verification that was begun, of whatever plan, ended or not; 0 where there is none."""

    def all(self) -> Sequence[VerificationRecord]:
        """Every finished verification of every plan, oldest first."""


class PredictionRecords(Protocol):
    """What was predicted and decided after delta passes."""

    def record(self, record: ConvergenceRecord) -> None:
        """Keep what was predicted after a pass; what was predicted after the same one before is replaced."""

    def of_batch(self, plan: str, batch: int) -> Sequence[ConvergenceRecord]:
        """Those of a batch, in the order of its passes."""

    def of_plan(self, plan: str) -> Sequence[ConvergenceRecord]:
        """Those of all batches of a plan, in the order of the passes."""


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

    def read(self, cutover_id: int) -> CutoverRecord: ...

    def latest(self, tree: bytes) -> CutoverRecord | None:
        """The newest attempt of a tree, of any plan."""

    def of_plan(self, plan: str, batch: int | None = None) -> Sequence[CutoverRecord]:
        """Every attempt of a plan, or of one of its batches, oldest first."""

    def under_way(self) -> Sequence[CutoverRecord]:
        """Attempts of all plans whose users may be frozen, oldest first."""

    def steps(self, cutover_id: int) -> Sequence[CutoverStepRecord]:
        """The steps of an attempt, oldest first."""


class Ledger(Protocol):
    """The whole ledger, table group by table group; a stage asks for the groups that it needs."""

    @property
    def site(self) -> SiteRecords: ...

    @property
    def runs(self) -> RunRecords: ...

    @property
    def scans(self) -> ScanRecords: ...

    @property
    def plans(self) -> PlanRecords: ...

    @property
    def passes(self) -> PassRecords: ...

    @property
    def samples(self) -> SampleRecords: ...

    @property
    def probes(self) -> ProbeRecords: ...

    @property
    def controls(self) -> ControlRecords: ...

    @property
    def governor(self) -> GovernorRecords: ...

    @property
    def capacity(self) -> CapacityRecords: ...

    @property
    def events(self) -> EventRecords: ...

    @property
    def verifications(self) -> VerificationRecords: ...

    @property
    def predictions(self) -> PredictionRecords: ...

    @property
    def hooks(self) -> HookRecords: ...

    @property
    def cutovers(self) -> CutoverRecords: ...

    @property
    def drains(self) -> DrainRecords: ...

    @property
    def additions(self) -> AdditionRecords: ...

    @property
    def retirements(self) -> RetirementRecords: ...

    @property
    def target_backups(self) -> BackupRecords: ...

    @property
    def archives(self) -> ArchiveRecords: ...

    @property
    def releases(self) -> ReleaseRecords: ...
