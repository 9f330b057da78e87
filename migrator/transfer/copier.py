"""Copying the chunks of one step: one kind of work for the lanes, with the ledger as its backlog."""

import asyncio
import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from migrator.catalog.rules_packing import divisible
from migrator.core.entry import Entry, EntryType
from migrator.core.errors import LockHeld, Refused, ToolFailed
from migrator.core.paths import show
from migrator.core.states import AttemptState, ChunkKind, ChunkState
from migrator.core.tasks import through_cancellation, to_the_end
from migrator.hosts.ports import HostLost
from migrator.ledger.locks import Locks, of_brick
from migrator.site.model import RSYNC
from migrator.transfer.attempt import Attempt
from migrator.transfer.context import LOG, PassUnderWay
from migrator.transfer.judging import Result, look_up_all
from migrator.transfer.meter import Meter
from migrator.transfer.model import AttemptRecord, AttemptVerdict, ChunkRecord, FileProblem, FileProblemKind, StopReason
from migrator.transfer.pool import run_pool
from migrator.transfer.ports import BrickRefused, ConnectedHost, CopyEngine
from migrator.transfer.queue import WorkQueue
from migrator.transfer.recovery import LEASE_MARGIN_S
from migrator.transfer.routes import HostLane, Routes
from migrator.transfer.rules import LONGEST_S, choose_engine, delay_s, expected_s
from migrator.transfer.settlement import Settlement, attempts_before
from migrator.transfer.stream import Unended

if TYPE_CHECKING:
    from migrator.plan.chunk_lists import ListedPaths

_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0


async def copy_chunks(under_way: PassUnderWay, routes: Routes, step: Sequence[ChunkKind]) -> None:
    """Copy all chunks of these kinds concurrently, until they are done or the pool stops (`under_way.stop_found`).

    Raises the errors of workers; CancelledError after every stream has ended.
    """
    ledger, alone = under_way.world.ledger, under_way.left_alone
    kinds = [kind for kind in step if ledger.passes.pending(under_way.pass_id, kind.value, 1, but_trees=alone)]
    if not kinds:
        return
    governor = under_way.governor
    backlog = PendingChunks(under_way, kinds, but_trees=alone)
    queue = WorkQueue[ChunkRecord](backlog, routes, clock=under_way.world.clock, governor=governor)
    meter = Meter(under_way, kinds, ledger.passes.totals(under_way.pass_id))
    copier = ChunkCopier(under_way=under_way, routes=routes, queue=queue, meter=meter)
    async with meter.watching():
        await run_pool(copier, queue, routes, governor=governor, workers=under_way.workers)


class PendingChunks:
    """The chunks of some kinds that the ledger has as pending, except those of some trees."""

    def __init__(self, under_way: PassUnderWay, kinds: Sequence[ChunkKind], *, but_trees: Collection[bytes]) -> None:
        self._passes = under_way.world.ledger.passes
        self._pass_id = under_way.pass_id
        self._kinds = tuple(kinds)
        self._but_trees = but_trees

    @property
    def bricks(self) -> Collection[str | None]:
        """See `Backlog`."""
        return self._passes.bricks(self._pass_id)

    def waiting(self, limit: int, bricks: Collection[str | None] | None = None) -> Sequence[ChunkRecord]:
        """See `Backlog`: of all kinds together; the first of each kind suffice for that."""
        found = [
            chunk
            for kind in self._kinds
            for chunk in self._passes.pending(
                self._pass_id, kind.value, limit, bricks=bricks, but_trees=self._but_trees
            )
        ]
        return sorted(found, key=lambda chunk: (-chunk.size_bytes, chunk.number))[:limit]


class BrickLocks:
    """Hold off the commit of a drain of the bricks that are read. All chunks that read a brick share one lock: taking it
    costs several system calls.
    """

    def __init__(self, locks: Locks) -> None:
        self._locks = locks
        self._readers: Counter[str] = Counter()
        self._held: dict[str, ExitStack] = {}

    @contextmanager
    def reading(self, brick: str | None) -> Iterator[None]:
        """Hold the lock of a brick during the block (None: of none). Raises LockHeld."""
        if brick is None:
            yield
            return
        if not self._readers[brick]:
            held = self._locks.hold(f"streams that read {brick}", shared=(of_brick(brick),))
            self._held[brick] = ExitStack()
            self._held[brick].enter_context(held)
        self._readers[brick] += 1
        try:
            yield
        finally:
            self._readers[brick] -= 1
            if not self._readers[brick]:
                self._held.pop(brick).close()


@dataclass(slots=True, kw_only=True)
class ChunkCopier:
    """The kind of work that copies chunks (see `WorkKind`)."""

    under_way: PassUnderWay
    routes: Routes
    queue: WorkQueue[ChunkRecord]
    meter: Meter
    _settle: Settlement = field(init=False)
    _brick_locks: BrickLocks = field(init=False)

    def __post_init__(self) -> None:
        self._settle = Settlement(self.under_way, self.meter)
        self._brick_locks = BrickLocks(self.under_way.world.locks)

    @property
    def stopped(self) -> bool:
        """See `WorkKind`."""
        return self.under_way.stop_found is not None

    def held(self) -> bool:
        """See `WorkKind`."""
        return self.under_way.is_held()

    async def carry_out(self, chunk: ChunkRecord, lane: HostLane, slot: int, /) -> float | None:
        """See `WorkKind`: try a chunk once. One that awaits confirmation is given back after that."""
        if not await self._tree_is_there(chunk):
            return None
        paths, before = await self.under_way.world.blocking(partial(self._read, chunk), timeout_s=math.inf)
        if await self._divided(chunk, paths):
            return None
        brick = self.routes.copy_on(lane, chunk.brick)
        if not lane.reads_mount and (brick is None or not await self.routes.quiet_before(brick)):
            self.queue.wake()
            return None
        try:
            with self._brick_locks.reading(brick):
                return await self._copy(chunk, paths, brick, lane, slot=slot, before=before)
        except LockHeld as error:
            # A drain of this brick is audited, to be committed: the mount is read, because that may take long.
            self.routes.refuse(str(brick), error)
            return None

    async def _copy(
        self,
        chunk: ChunkRecord,
        paths: "ListedPaths",
        brick: str | None,
        lane: HostLane,
        *,
        slot: int,
        before: Sequence[AttemptRecord],
    ) -> float | None:
        finds = self.routes.finds.get(lane.host, 0)
        try:
            connected = await lane.connect(brick)
            engine = self._engine(connected, chunk, paths, before)
        except HostLost as error:
            self.routes.lose(lane, error)
            return None
        except BrickRefused as error:
            self.routes.refuse(str(brick), error)
            return None
        except (Refused, ToolFailed) as error:
            # The host answers but cannot run streams: the worker takes work through another root, if there is one.
            if lane.reads_mount:
                self.under_way.stop(StopReason.TOOL_MISSING, error.message)
            else:
                self.routes.lose(lane, HostLost(error.message, cause=error.cause, hint=error.hint), unfit=True)
            return None
        if engine is None:
            await self._settle.without_stream(chunk, AttemptState.SUCCEEDED, ChunkState.DONE)
            return None
        made = self.under_way, self.routes, self.meter, chunk, paths
        attempt = Attempt(*made, tried=bool(before), slot=slot, connected=connected, engine=engine)
        try:
            await attempt.intend()
            result = await attempt.copy()
            held_s = await self._settle.held(attempt, result)
        except asyncio.CancelledError:
            await self._settle.interrupted(attempt)
            raise
        except Unended:
            self.under_way.stop(StopReason.TARGET_STUCK, f"chunk {chunk.number} of {show(chunk.tree)}")
            return None
        except HostLost as error:
            return await self._in_doubt(attempt, error, lane, finds=finds)
        if held_s is not None:
            return held_s
        if result.verdict is not AttemptVerdict.DONE:
            return await to_the_end(self._settle.follow(attempt, result))
        self.queue.confirm(chunk)

        def abandoned() -> None:
            self._settle.abandoned(attempt)
            self.queue.give_back(chunk)

        confirmation = partial(self._confirm, attempt, result, lane, finds=finds)
        await self.under_way.confirmations.begin(confirmation, abandoned)
        return None

    def _read(self, chunk: ChunkRecord) -> "tuple[ListedPaths, Sequence[AttemptRecord]]":
        """The paths of a chunk, and the attempts at it, by itself or in a larger one. Blocking."""
        world, chunk_list = self.under_way.world, chunk.list_path or self.under_way.chunk_list
        before = attempts_before(world.ledger.passes, chunk.id)
        return world.chunk_lists.paths(chunk_list, chunk.number), before

    async def _divided(self, chunk: ChunkRecord, paths: "ListedPaths") -> bool:
        """Halve a chunk that would delay a change of limits for too long, if it is divisible."""
        governor = self.under_way.governor
        if governor is None or chunk.kind is not ChunkKind.FILES:
            return False
        share = governor.share_of(chunk.id)
        expected = expected_s(chunk.files, chunk.size_bytes, cost=governor.chunk_cost, bwlimit_bytes_per_s=share)
        if expected <= LONGEST_S or not divisible(paths):
            return False
        await self._settle.halve(chunk, paths)
        return True

    async def _confirm(self, attempt: Attempt, result: Result, lane: HostLane, *, finds: int) -> None:
        """Confirm an attempt whose stream has ended, and give its chunk back."""
        done = False
        try:
            confirmed = await attempt.confirm(result)
            again_after_s = await self._settle.held(attempt, confirmed)
            if again_after_s is None:
                # A cancellation meanwhile changes nothing: the result is recorded.
                again_after_s = await through_cancellation(self._settle.follow(attempt, confirmed))
                done = confirmed.verdict is AttemptVerdict.DONE and not (confirmed.bad or confirmed.again)
        except HostLost as error:
            # The stream has ended; only whether its files are on the disks is unknown. If the doubt concerns an earlier
            # connection, the host itself answers.
            if not error.in_doubt:
                self.routes.lose(lane, error, finds=finds)
            await self._settle.interrupted(attempt)
            again_after_s = delay_s(1)
        self.queue.give_back(attempt.chunk, again_after_s, done=done)

    def _engine(
        self, connected: ConnectedHost, chunk: ChunkRecord, paths: "ListedPaths", before: Sequence[AttemptRecord]
    ) -> CopyEngine | None:
        rsync = connected.engines.get(RSYNC)
        failed = any(one.engine == RSYNC and one.state is not AttemptState.INTERRUPTED for one in before)
        too_long = rsync is not None and paths.longest_name_bytes(chunk.tree) > rsync.longest_name_bytes
        name = choose_engine(
            self.under_way.request.engine,
            chunk.kind,
            from_brick=connected.brick is not None,
            beyond_rsync=failed or too_long,
        )
        if name is None:
            return None
        if name in connected.engines:
            return connected.engines[name]
        raise ToolFailed(
            f"host {connected.executor.host} has no {name} that can be used",
            cause="it is not installed there, or too old, or lacks what [users] uid_map needs; no other engine was allowed",
            hint="install it, or run with `--engine auto`; `migrator doctor` lists what is needed",
        )

    async def _in_doubt(self, attempt: Attempt, error: HostLost, lane: HostLane, *, finds: int) -> float | None:
        """Settle a chunk whose host was lost while a stream was in flight there. The chunk is reissued only when the
        stream is known to be dead: the host confirmed it, or its lease is over.
        """
        self.routes.lose(lane, error, finds=finds)
        self.queue.wake()
        clock = self.under_way.world.clock
        lease_s = self.under_way.request.lease_s + LEASE_MARGIN_S
        deadline_s = clock.monotonic_s() + lease_s
        pause_s = _FIRST_PAUSE_S
        try:
            while not await self._has_ended(attempt, lane):
                left_s = deadline_s - clock.monotonic_s()
                if left_s <= 0:
                    LOG.warning("the lease is over: the stream has been ended", extra=attempt.facts)
                    break
                await clock.sleep(min(pause_s, left_s))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        except asyncio.CancelledError:
            # The attempt stays unfinished in the ledger: the next run checks for it on its host.
            name = f"attempt {attempt.id} on host {lane.host}, token {attempt.token}"
            self.under_way.unended.append(name)
            raise
        await self._settle.interrupted(attempt)
        return delay_s(1)

    async def _has_ended(self, attempt: Attempt, lane: HostLane) -> bool:
        try:
            left = await lane.end_orphans([attempt.token])
        except HostLost:
            return False
        if not left:
            self.routes.find_again(lane)
            self.queue.wake()
        return not left

    async def _tree_is_there(self, chunk: ChunkRecord) -> bool:
        """Whether the chunk's tree is still a directory on the source. If not, settles the chunk."""
        looks = await look_up_all(self.under_way, [chunk.tree])
        if looks is None:
            self.under_way.stop(StopReason.DISCONNECTED, "the source does not answer")
            return False
        (seen,) = looks
        if isinstance(seen, OSError) and self.under_way.beside_commit:
            await self.queue.pause(_FIRST_PAUSE_S)
            return False
        if isinstance(seen, OSError):
            self.under_way.stop(StopReason.DISCONNECTED, f"{show(chunk.tree)} on the source: {seen.strerror or seen}")
            return False
        if isinstance(seen, Entry) and seen.type is EntryType.DIRECTORY:
            return True
        if seen is None and (doubts := (await self.under_way.health.begun_after_now()).doubts):
            detail = f"{show(chunk.tree)} is not there, and may be all the same: {'; '.join(doubts)}"
            self.under_way.stop(StopReason.SOURCE_UNHEALTHY, detail)
            return False
        if seen is None:
            problem = FileProblem(
                path=chunk.tree, kind=FileProblemKind.VANISHED, errno=None, reason="the whole user tree is gone"
            )
            await self._settle.without_stream(chunk, AttemptState.SUCCEEDED, ChunkState.DONE, (problem,))
            self._settle.tree_gone(chunk)
        else:
            reason = f"the user tree is no directory any more but a {seen.type.value}"
            problem = FileProblem(path=chunk.tree, kind=FileProblemKind.BAD, errno=None, reason=reason)
            await self._settle.without_stream(chunk, AttemptState.FAILED, ChunkState.FAILED, (problem,))
            self._settle.bad((problem,))
        return False
