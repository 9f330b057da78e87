"""The shared values of a run: the world, the invocation, the pass."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from migrator.beegfs.model import LaidOut, LayoutRule
from migrator.beegfs.rules import fullest_words, lost_targets
from migrator.beegfs.tool import StorageTargets
from migrator.core.clock import Clock
from migrator.core.errors import ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.progress import Progress
from migrator.core.states import CONTENT_KINDS, ChunkKind, PassKind
from migrator.core.tasks import Blocking, SharedCall, drop_error, to_the_end
from migrator.fs.kinds.model import Answer
from migrator.fs.model import SourceHealth, TargetCapabilities
from migrator.fs.ports import SourceFileSystem, TargetFileSystem
from migrator.hosts.ports import Activity
from migrator.ledger.call import say
from migrator.ledger.locks import Locks
from migrator.operations.run_files import RunDirectory
from migrator.plan.document import PlanFiles
from migrator.plan.model import Batch
from migrator.transfer.executors import Executor
from migrator.transfer.governor import Governing, Governor
from migrator.transfer.model import ChunkRecord, RunRequest, Stopped, StopReason, StreamCounters
from migrator.transfer.ports import Driving
from migrator.transfer.rules import explain

if TYPE_CHECKING:
    from migrator.plan.chunk_lists import ChunkListFiles
    from migrator.transfer.records import TransferLedger
    from migrator.transfer.routes import HostLane, VolumeGuard

# Confirmation of an attempt after its stream: the sync of its files, and the health check of the volume. Streams do not
# wait for it; the slot starts its next chunk meanwhile.


class Confirmations:
    """Confirmations in flight. Their number is limited, so that streams do not run far ahead of a slow sync.

    All methods belong to one event loop. `settled` and the next `begin` raise the error of a failed confirmation.
    """

    def __init__(self, limit: int) -> None:
        self._room = asyncio.Semaphore(limit)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    async def begin(self, confirmation: Callable[[], Coroutine[Any, Any, None]], abandoned: Callable[[], None]) -> None:
        """Start a confirmation when there is room. If it is cancelled, even before its start, `abandoned` is called
        instead.
        """
        try:
            await self._room.acquire()
        except asyncio.CancelledError:
            abandoned()
            raise
        task = asyncio.ensure_future(confirmation())
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, abandoned))
        self._raise_failure()

    async def settled(self) -> None:
        """Return when no confirmation is in flight. Raises the error of a failed one."""
        await self._over()
        self._raise_failure()

    def cancel(self) -> None:
        """Cancel all confirmations in flight, except the caller's own."""
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()

    async def end(self) -> None:
        """Cancel all confirmations in flight, and wait for their end even through repeated cancellation. May be called
        again.
        """
        self.cancel()
        await to_the_end(self._over())

    async def _over(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _ended(self, abandoned: Callable[[], None], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if task.cancelled():
            abandoned()
        elif (error := task.exception()) is not None and self._failure is None:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure


# Polling the target's storage targets while streams run: if a server is down, streams stall instead of failing.


QUIET_S = 5.0
"""A stream that is quiet for twice this time triggers a poll."""
LOOK_EVERY_S = 5.0
"""Minimum interval from the start of one poll to the next; a poll costs the management service almost nothing."""


class StorageWatch:
    """The storage targets that are lost now (`lost`: sentences; empty: none known). It reports newly lost targets, and
    when all are back. A failed poll changes nothing; the next one waits longer for the answer.
    """

    def __init__(self, storage: StorageTargets, invocation: "RunInvocation", subject: str) -> None:
        self._storage = storage
        self._clock = invocation.world.clock
        self._invocation = invocation
        self._subject = subject
        self._call = SharedCall(self._ask)
        self._looking: asyncio.Task[None] | None = None
        self._next_s = 0.0
        self._names: frozenset[str] = frozenset()
        self._late = False
        self.lost: tuple[str, ...] = ()

    async def look(self) -> tuple[str, ...]:
        """`lost`, after a poll that starts now, and a longer one if that fails: it decides who is to blame for a failure."""
        await self._call.begun_after_now()
        if self._late:
            await self._call.begun_after_now()
        return self.lost

    def begin(self) -> None:
        """Poll in the background, if the last poll started long enough ago."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return
        if self._looking is not None:
            if not self._looking.done():
                return
            self._looking.result()  # raises errors of this program; those of the tool are handled in `_ask`
        self._next_s = now_s + LOOK_EVERY_S
        self._looking = asyncio.create_task(self._call.begun_after_now())

    async def fullest_targets(self) -> str:
        """The full targets, or the fullest ones, after a write failed for lack of space; empty if unknown."""
        try:
            return fullest_words((await self._storage.look()).targets)
        except ToolFailed:
            return ""

    async def close(self) -> None:
        """End a poll in flight. May be called again."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
            drop_error(self._looking)
            self._looking = None
        self._call.abandon()

    async def _ask(self) -> None:
        try:
            seen = await self._storage.look(patient=self._late)
        except ToolFailed:
            self._late = True
            return
        self._late = False
        self.lost = lost_targets(seen)
        # The text changes with every poll, since it has the time of the last contact. The set of targets does not.
        names = frozenset(words.partition(":")[0] for words in self.lost)
        new = tuple(words for words in self.lost if words.partition(":")[0] not in self._names)
        told, self._names = self._names, names
        if new:
            message = f"storage of the target is lost, streams wait for it: {'; '.join(new)}"
            self._invocation.report(EventKind.STORAGE_LOST, Severity.ERROR, self._subject, message)
        elif told and not names:
            message = "all storage targets of the target answer again"
            self._invocation.report(EventKind.STORAGE_BACK, Severity.INFO, self._subject, message)


# The ports of a run, and its pass.


_CONFIRMATIONS = 64
"""The number of attempts that may wait for confirmation; after a crash, a run copies at most these again."""

_RECONNECTED_S = 60.0
"""Clients connect anew after a commit: in 0.1 to 1.0 s in a lab (GlusterFS 10.3)."""

LOG = logging.getLogger("migrator.run")


class World(Struct, frozen=True, kw_only=True):
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
    target_state: Callable[[], Awaitable[Answer]] | None = None
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

    world: World
    request: RunRequest
    run_id: int
    directory: RunDirectory
    governor: Governor | None = None

    def report(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """Record an event in the ledger, on the screen and in the log."""
        say(self.world, kind, severity, subject, message, run_id=self.run_id, log=LOG)


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
    def world(self) -> World:
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
