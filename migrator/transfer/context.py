"""The shared values of a run: the world, the invocation, the pass."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

from migrator.beegfs.model import LaidOut, LayoutRule
from migrator.beegfs.tool import StorageTargets
from migrator.core.clock import Clock
from migrator.core.events import EventKind, Severity
from migrator.core.progress import Progress
from migrator.core.states import CONTENT_KINDS, ChunkKind, PassKind
from migrator.core.tasks import Blocking, SharedCall
from migrator.fs.kinds.model import FileSystemReport
from migrator.fs.model import SourceHealth, TargetCapabilities
from migrator.fs.ports import SourceFileSystem, TargetFileSystem
from migrator.hosts.ports import Activity
from migrator.ledger.event_log import emit_event
from migrator.ledger.locks import Locks
from migrator.operations.run_files import RunDirectory
from migrator.plan.document import PlanFiles
from migrator.plan.model import Batch
from migrator.transfer.confirmations import Confirmations
from migrator.transfer.executors import Executor
from migrator.transfer.governor import Governing, Governor
from migrator.transfer.model import ChunkRecord, StopReason, StreamCounters
from migrator.transfer.model_runs import RunRequest, Stopped
from migrator.transfer.ports import Driving
from migrator.transfer.rules import explain
from migrator.transfer.storage_watch import StorageWatch

if TYPE_CHECKING:
    from migrator.catalog.copy_digests import CopyDigests
    from migrator.plan.chunk_lists import ChunkListFiles
    from migrator.transfer.records import TransferLedger
    from migrator.transfer.routes import HostLane, VolumeGuard

_CONFIRMATIONS = 64
"""The number of attempts that may wait for confirmation; after a crash, a run copies at most these again."""

_RECONNECTED_S = 60.0
"""Clients connect anew after a commit: in 0.1 to 1.0 s in a lab (GlusterFS 10.3)."""

LOG = logging.getLogger("migrator.run")


class TransferPorts(Struct, frozen=True, kw_only=True):
    """All external resources of a run. The first lane reads the mount on this machine. `storage` is None if the target
    has no storage targets of its own. `target_state` asks what of the target is missing. `layouts` finds, in a catalog, the
    directories of trees with a layout of their own. `governing` None: all streams may run at any time, without a limit.
    """

    source: SourceFileSystem
    target: TargetFileSystem
    lanes: "Sequence[HostLane]"
    bricks: "VolumeGuard | None"
    driving: Driving | None
    chunk_lists: "ChunkListFiles"
    copy_digests: "CopyDigests"
    documents: PlanFiles
    ledger: "TransferLedger"
    locks: Locks
    progress: Progress
    clock: Clock
    activity: Activity
    blocking: Blocking
    tokens: Callable[[], str]
    storage: StorageTargets | None = None
    layouts: Callable[[str, Mapping[bytes, Sequence[LayoutRule]]], Mapping[bytes, Sequence[LaidOut]]] | None = None
    target_state: Callable[[], Awaitable[FileSystemReport]] | None = None
    governing: Governing | None = None

    @property
    def own_host(self) -> str:
        """The ledger's name for this machine."""
        return self.lanes[0].host

    @property
    def beside_commit(self) -> bool:
        """Whether a drain is being committed, or was so recently that clients may not be connected to the source."""
        return self.ledger.drains.any_committed(since_s=self.clock.now_s() - _RECONNECTED_S)

    @property
    def streams(self) -> int:
        """The maximum number of streams on all hosts together."""
        return max(sum(lane.jobs for lane in self.lanes), 1)


@dataclass(slots=True, kw_only=True)
class RunInvocation:
    """One run in the ledger, with its directory, and the governor of its streams."""

    world: TransferPorts
    request: RunRequest
    run_id: int
    directory: RunDirectory
    governor: Governor | None = None

    def report(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """Record an event in the ledger, on the screen and in the log."""
        emit_event(self.world, kind, severity, subject, message, run_id=self.run_id, log=LOG)


@dataclass(slots=True, kw_only=True)
class RunTally:
    """The work of this run: finished chunks, by their lists, and bytes that streams wrote."""

    chunks: int = 0
    files: int = 0
    size_bytes: int = 0
    written_bytes: int = 0
    shown: StreamCounters = field(default_factory=StreamCounters)
    """The most that progress has shown, which never decreases: what a chunk had copied when it is taken back too."""
    by_kind: dict[ChunkKind, int] = field(default_factory=dict)

    def add(self, chunk: ChunkRecord) -> None:
        """Count a finished chunk. Chunks of directories have no files."""
        self.chunks += 1
        self.by_kind[chunk.kind] = self.by_kind.get(chunk.kind, 0) + 1
        if chunk.kind in CONTENT_KINDS:
            self.files += chunk.files
            self.size_bytes += chunk.size_bytes


@dataclass(slots=True, kw_only=True)
class PassUnderWay:
    """One pass over one batch in this run. `chunk_list` names the paths of all its chunks that were not split.

    Problems of the `health` of the source since the start of the pass stop the pool. With doubts (a rebalance process is in
    flight), copying continues, but no path counts as vanished. A driver left `doubtful_trees` unfinished: size and times on
    the target prove nothing there. `syncs` flush the writes of a host to the target's disks, by host and connection. `left_alone` are trees whose users work on the target: their chunks
    are not copied, and no links are made to their files. `digests`: streams report the digests of what they copy.
    `storage` watches the target's storage targets; None: the target has none of its own.
    """

    invocation: RunInvocation
    batch: Batch
    pass_id: int
    kind: PassKind
    chunk_list: str
    capabilities: TargetCapabilities
    sync: SharedCall[None]
    health: SharedCall[SourceHealth]
    doubtful_trees: frozenset[bytes] = frozenset()
    left_alone: frozenset[bytes] = frozenset()
    digests: bool = False
    syncs: dict[tuple[str, object], SharedCall[None]] = field(default_factory=dict)
    tally: RunTally = field(default_factory=RunTally)
    trees_gone: set[bytes] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    interruptions: dict[int, int] = field(default_factory=dict)
    unended: list[str] = field(default_factory=list)
    stop_found: tuple[StopReason, str] | None = None
    storage: StorageWatch | None = None
    confirmations: Confirmations = field(default_factory=lambda: Confirmations(_CONFIRMATIONS))
    workers: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def world(self) -> TransferPorts:
        return self.invocation.world

    @property
    def request(self) -> RunRequest:
        return self.invocation.request

    @property
    def beside_commit(self) -> bool:
        """Whether to wait for connections to the source because of a commit: never while a user is frozen."""
        return self.kind is not PassKind.FINAL and self.world.beside_commit

    @property
    def governor(self) -> Governor | None:
        return self.invocation.governor

    def sync_of(self, executor: Executor) -> SharedCall[None]:
        """The shared sync of the host where an executor runs its streams, over its connection."""
        if executor.host == self.world.own_host:
            return self.sync

        async def sync() -> None:
            await asyncio.wait_for(executor.sync(), self.request.stall_timeout_s)

        return self.syncs.setdefault((executor.host, executor.connection), SharedCall(sync))

    @property
    def waits_for_storage(self) -> bool:
        """Whether to wait for a lost storage target: never while a user is frozen."""
        return self.storage is not None and self.kind is not PassKind.FINAL

    def is_held(self) -> bool:
        """Whether nothing may start at present, because storage of the target is lost. Looks whether it is back."""
        if self.storage is None or not self.storage.lost or not self.waits_for_storage:
            return False
        self.storage.begin()
        return True

    def abandon_calls(self) -> None:
        """Abandon the shared syncs and health checks. May be called again."""
        self.health.abandon()
        for call in (self.sync, *self.syncs.values()):
            call.abandon()

    def stop(self, reason: StopReason, detail: str) -> None:
        """Stop the pool: no further chunk starts, and the other streams are ended. Only the first reason is kept."""
        if self.stop_found is not None:
            return
        self.stop_found = (reason, detail)
        message = explain(reason, detail).message
        self.invocation.report(EventKind.POOL_STOPPED, Severity.ERROR, f"batch {self.batch.number}", message)
        for worker in self.workers - {asyncio.current_task()}:
            worker.cancel()
        self.confirmations.cancel()

    def explain_stop(self) -> Stopped | None:
        """The reason for the stop of the pool, with the streams that could not be ended."""
        if self.stop_found is None:
            return None
        reason, detail = self.stop_found
        return explain(reason, detail, tuple(self.unended))
