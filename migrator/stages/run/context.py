"""What the parts of a run share: the ports, and the pass that is under way."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from migrator.decide.stopping import explain
from migrator.domain.brick import SourceHealth
from migrator.domain.events import EventKind, Severity
from migrator.domain.plan import Batch
from migrator.domain.run import RunRequest, Stopped
from migrator.domain.site import TargetCapabilities
from migrator.domain.states import CONTENT_KINDS, ChunkKind, PassKind
from migrator.domain.transfer import ChunkRecord, FileProblem, StopReason
from migrator.ports.activity import Activity
from migrator.ports.blocking import Blocking
from migrator.ports.catalog import ChunkLists
from migrator.ports.clock import Clock
from migrator.ports.drivers import Driving
from migrator.ports.filesystem import SourceFileSystem, TargetFileSystem
from migrator.ports.lanes import BrickGuard, Lanes
from migrator.ports.ledger import Ledger
from migrator.ports.plans import PlanDocuments
from migrator.ports.progress import Progress
from migrator.ports.run_files import RunDirectory
from migrator.ports.storage_targets import StorageTargets
from migrator.ports.streams import Executor
from migrator.stages.run.confirmations import Confirmations
from migrator.stages.run.governor import Governor
from migrator.stages.run.shared_call import SharedCall
from migrator.stages.run.storage_watch import StorageWatch
from migrator.stages.saying import say

_CONFIRMATIONS = 64
"""How many attempts may wait for their confirmation: what a crash makes a run copy again at most."""

LOG = logging.getLogger("migrator.run")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Everything outside the program that a run touches. `storage` None: the target has no storage targets of its own."""

    source: SourceFileSystem
    target: TargetFileSystem
    lanes: Lanes
    bricks: BrickGuard | None
    driving: Driving | None
    chunk_lists: ChunkLists
    documents: PlanDocuments
    ledger: Ledger
    progress: Progress
    clock: Clock
    activity: Activity
    blocking: Blocking
    tokens: Callable[[], str]
    storage: StorageTargets | None = None

    @property
    def own_host(self) -> str:
        """This machine, as the ledger names it."""
        return self.lanes.all[0].host


@dataclass(slots=True, kw_only=True)
class Invocation:
    """One run in the ledger, with its directory. `governor` None: all streams may be at work at any time."""

    world: World
    request: RunRequest
    run_id: int
    directory: RunDirectory
    governor: Governor | None = None

    def say(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """An event: into the ledger, onto the screen, and into the log."""
        say(self.world, kind, severity, subject, message, run_id=self.run_id, log=LOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthNow:
    """What a look at the source's health says: `problems` stop the pool. With `doubts` (files are being moved between
    bricks) copying goes on, but nothing may be taken to be gone.
    """

    problems: tuple[str, ...]
    doubts: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Tally:
    """What this run brought over: chunks that it finished, by their lists, and bytes that streams wrote."""

    chunks: int = 0
    files: int = 0
    size_bytes: int = 0
    written_bytes: int = 0
    by_kind: dict[ChunkKind, int] = field(default_factory=dict)

    def add(self, chunk: ChunkRecord, files: int, size_bytes: int) -> None:
        """A chunk, or a part of it, is done. Those of directories bring no files."""
        self.chunks += 1
        self.by_kind[chunk.kind] = self.by_kind.get(chunk.kind, 0) + 1
        if chunk.kind in CONTENT_KINDS:
            self.files += files
            self.size_bytes += size_bytes


@dataclass(slots=True, kw_only=True)
class PassUnderWay:
    """One pass over one batch in this run. `chunk_list` names the paths of all its chunks that were not split.

    `doubtful_trees` are those that a driver has left in the middle: what lies on the target there proves nothing.
    `syncs` are the calls that bring what was written on a host to the target's disks, by host.
    `left_alone` are trees whose users work on the target: none of their chunks is given out, and nothing is linked to
    what lies in them.
    `known_io_errors` are source files that an earlier run could not read for EIO: they do not stop the pool again.
    `storage` watches the target's storage targets; None: it has none of its own.
    """

    invocation: Invocation
    batch: Batch
    pass_id: int
    kind: PassKind
    chunk_list: str
    capabilities: TargetCapabilities
    health_before: SourceHealth
    sync: SharedCall[None]
    health: SharedCall[HealthNow]
    known_io_errors: Mapping[bytes, FileProblem]
    doubtful_trees: frozenset[bytes] = frozenset()
    left_alone: frozenset[bytes] = frozenset()
    syncs: dict[str, SharedCall[None]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    trees_gone: set[bytes] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    interruptions: dict[int, int] = field(default_factory=dict)
    unended: list[str] = field(default_factory=list)
    stop_found: tuple[StopReason, str] | None = None
    storage: StorageWatch | None = None
    confirmations: Confirmations = field(default_factory=lambda: Confirmations(_CONFIRMATIONS))
    workers: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def world(self) -> World:
        """The ports."""
        return self.invocation.world

    @property
    def request(self) -> RunRequest:
        """What was asked."""
        return self.invocation.request

    @property
    def governor(self) -> Governor | None:
        """Who says which streams may begin: nobody while a user is frozen, who waits for the pass to end."""
        return None if self.kind is PassKind.FINAL else self.invocation.governor

    def sync_of(self, executor: Executor) -> SharedCall[None]:
        """The shared sync of the host where an executor runs its streams."""
        if executor.host == self.world.own_host:
            return self.sync
        return self.syncs.setdefault(executor.host, SharedCall(executor.sync))

    @property
    def waits_for_storage(self) -> bool:
        """Whether a storage target that is lost is waited for: never while a user is frozen."""
        return self.storage is not None and self.kind is not PassKind.FINAL

    def abandon_calls(self) -> None:
        """Nobody waits for syncs and looks any more. May be called again."""
        self.health.abandon()
        for call in (self.sync, *self.syncs.values()):
            call.abandon()

    def stop(self, reason: StopReason, detail: str) -> None:
        """Stop the pool: no chunk is given out any more, and the other streams are ended. The first reason counts."""
        if self.stop_found is not None:
            return
        self.stop_found = (reason, detail)
        message = explain(reason, detail).message
        self.invocation.say(EventKind.POOL_STOPPED, Severity.ERROR, f"batch {self.batch.number}", message)
        for worker in self.workers - {asyncio.current_task()}:
            worker.cancel()
        self.confirmations.cancel()

    def explain_stop(self) -> Stopped | None:
        """Why the pool stopped, with the streams that could not be ended."""
        if self.stop_found is None:
            return None
        reason, detail = self.stop_found
        return explain(reason, detail, tuple(self.unended))
