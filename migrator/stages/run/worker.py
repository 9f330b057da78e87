"""One worker of the pool: it takes chunks for its lane, one after the other, and outlives the loss of its host."""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from migrator.decide.chunk_time import LONGEST_S, expected_s
from migrator.decide.engine_choice import choose_engine
from migrator.decide.retry import delay_s
from migrator.decide.splitting import divisible, halves, set_apart
from migrator.domain.entry import Entry, EntryType
from migrator.domain.errors import MigratorError, Refused, ToolFailed
from migrator.domain.paths import show
from migrator.domain.plan import ListedPath
from migrator.domain.states import AttemptState, ChunkKind, ChunkState
from migrator.domain.transfer import ChunkRecord, FileProblem, FileProblemKind, StopReason, Verdict
from migrator.ports.hosts import HostLost
from migrator.ports.lanes import BrickRefused, Lane, Way
from migrator.ports.streams import Engine
from migrator.stages.run.attempt import Attempt, Result
from migrator.stages.run.chunks import ChunkQueue
from migrator.stages.run.context import LOG, PassUnderWay
from migrator.stages.run.looking import look_at_all
from migrator.stages.run.meter import Meter
from migrator.stages.run.recovery import LEASE_MARGIN_S
from migrator.stages.run.routes import Routes
from migrator.stages.run.settlement import Settlement
from migrator.stages.run.storage_holds import because_of_storage
from migrator.stages.run.storage_watch import LOOK_EVERY_S
from migrator.stages.run.stream import Unended

_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0


class _Later:
    """A chunk is given back when its attempt is confirmed."""


_LATER = _Later()


class Worker:
    """Works at one chunk after the other, until none is left or the pool stops. `work` is called once."""

    def __init__(
        self, under_way: PassUnderWay, routes: Routes, queue: ChunkQueue, meter: Meter, *, lane: Lane, slot: int
    ) -> None:
        self._pass = under_way
        self._routes = routes
        self._world = under_way.world
        self._queue = queue
        self._meter = meter
        self._lane = lane
        self._slot = slot
        self._brick: str | None = None
        self._settle = Settlement(under_way, meter)

    async def work(self) -> None:
        """Take chunks until there are none. Raises what is nobody's fault but this program's."""
        while self._pass.stop_found is None and not self._queue.finished.is_set():
            if self._lane.host in self._routes.lost:
                await self._reach_again()
                continue
            if self._pass.storage is not None and self._pass.storage.lost and self._pass.waits_for_storage:
                self._pass.storage.begin()
                await self._queue.pause(LOOK_EVERY_S)
                continue
            chunk = await self._queue.take(self._lane)
            if chunk is None:
                continue
            again_after_s: float | None = None
            confirmed_later = False
            try:
                handled = await self._handle(chunk)
                confirmed_later = handled is _LATER
                again_after_s = handled if isinstance(handled, float) else None
            finally:
                if not confirmed_later:
                    self._queue.give_back(chunk, again_after_s)

    async def _handle(self, chunk: ChunkRecord) -> "float | _Later | None":
        """Try a chunk once; how long it is to wait where it waits again, and whether its confirmation gives it back."""
        paths = tuple(self._world.chunk_lists.paths(chunk.list_path or self._pass.chunk_list, chunk.number))
        if not await self._tree_is_there(chunk):
            return None
        if self._divided(chunk, paths):
            return None
        from_brick = not self._lane.reads_mount
        if from_brick and not await self._routes.quiet_before():
            self._queue.wake()
            self._stop_in_dead_end()
            return None
        finds = self._routes.finds.get(self._lane.host, 0)
        try:
            self._brick = chunk.brick if from_brick else None
            way = await self._lane.way(self._brick)
        except HostLost as error:
            self._routes.lose(self._lane, error)
            return None
        except BrickRefused as error:
            self._routes.refuse(str(self._brick), error)
            self._stop_in_dead_end()
            return None
        except (Refused, ToolFailed) as error:
            return self._cannot_start(error)
        try:
            engine = self._engine(way, chunk)
        except ToolFailed as error:
            return self._cannot_start(error)
        if engine is None:
            attempt_id = self._settle.intend_without_stream(chunk)
            self._settle.finish(attempt_id, AttemptState.SUCCEEDED, ChunkState.DONE, None)
            return None
        attempt = Attempt(self._pass, self._routes, self._meter, chunk, paths, slot=self._slot, way=way, engine=engine)
        try:
            result = await attempt.copy()
            held_s, result = await because_of_storage(self._pass, self._settle, chunk, attempt, result)
        except asyncio.CancelledError:
            self._settle.interrupted(attempt)
            raise
        except Unended:
            self._pass.stop(StopReason.TARGET_STUCK, f"chunk {chunk.number} of {show(chunk.tree)}")
            return None
        except HostLost as error:
            return await self._in_doubt(attempt, error, finds)
        if held_s is not None:
            return held_s
        if result.verdict is not Verdict.DONE:
            return self._settle.follow(chunk, paths, attempt, result)
        self._queue.confirm(chunk)

        def abandoned() -> None:
            self._settle.interrupted(attempt)
            self._queue.give_back(chunk)

        confirmation = partial(self._confirm, chunk, paths, attempt, result, finds)
        await self._pass.confirmations.begin(confirmation, abandoned)
        return _LATER

    def _divided(self, chunk: ChunkRecord, paths: Sequence[ListedPath]) -> bool:
        """Divide a chunk that is not to be copied as it is: what an earlier run could not read is set apart, and what would
        take too long is halved.
        """
        io_errors = self._pass.known_io_errors
        known = tuple(io_errors[one.path] for one in paths if one.path in io_errors) if io_errors else ()
        parts = set_apart(paths, {problem.path for problem in known})
        if not all(parts):
            if not self._is_too_long(chunk, paths):
                return False
            known, parts = (), halves(paths)
        attempt_id = self._settle.intend_without_stream(chunk)
        with_brick = [(part, chunk.brick) for part in parts]
        self._settle.divide(chunk, attempt_id, AttemptState.INTERRUPTED, None, with_brick, problems=known)
        return True

    def _is_too_long(self, chunk: ChunkRecord, paths: Sequence[ListedPath]) -> bool:
        """Whether a limit that is changed would not hold for it in time, and it can be divided."""
        governor = self._pass.governor
        if governor is None or chunk.kind is not ChunkKind.FILES or not divisible(paths):
            return False
        share = governor.share_of(chunk.id)
        return (
            expected_s(chunk.files, chunk.size_bytes, cost=governor.chunk_cost, bwlimit_bytes_per_s=share) > LONGEST_S
        )

    async def _confirm(
        self, chunk: ChunkRecord, paths: Sequence[ListedPath], attempt: Attempt, result: Result, finds: int
    ) -> None:
        """Bring an attempt whose stream has ended to its end, and give its chunk back."""
        try:
            confirmed = await attempt.confirm(result)
            again_after_s, confirmed = await because_of_storage(self._pass, self._settle, chunk, attempt, confirmed)
            if again_after_s is None:
                again_after_s = self._settle.follow(chunk, paths, attempt, confirmed)
        except HostLost as error:
            # The stream has ended; only whether its files are on the disks is not known. In doubt about those of an
            # earlier connection the host itself is there.
            if not error.in_doubt:
                self._routes.lose(self._lane, error, finds=finds)
            self._settle.interrupted(attempt)
            again_after_s = delay_s(1, self._pass.request.retry)
        self._queue.give_back(chunk, again_after_s)

    def _engine(self, way: Way, chunk: ChunkRecord) -> Engine | None:
        """Chunks of links need no stream; any engine will do for their attempt."""
        name = choose_engine(
            self._pass.request.engine,
            chunk.kind,
            way.engines.keys(),
            from_brick=way.brick is not None,
        )
        if name is None:
            return None
        if name in way.engines:
            return way.engines[name]
        if chunk.kind is ChunkKind.LINKS:
            return next(iter(way.engines.values()))
        raise ToolFailed(
            f"host {way.executor.host} has no {name} that can be used",
            cause="it is not installed there, or too old, and no other engine was allowed",
            hint="install it, or run with `--engine auto`; `migrator doctor` lists what is needed",
        )

    def _cannot_start(self, error: MigratorError) -> float | None:
        """The host is there, and cannot do it: where another way is left, that is taken."""
        if self._lane.reads_mount:
            self._pass.stop(StopReason.TOOL_MISSING, error.message)
        else:
            self._routes.lose(self._lane, HostLost(error.message, cause=error.cause, hint=error.hint), unfit=True)
        return None

    async def _in_doubt(self, attempt: Attempt, error: HostLost, finds: int) -> float | None:
        """The host was lost while a stream was at work there. Its chunk is given out again only when the stream is
        known to be dead: because the host says so, or because its lease is over.
        """
        self._routes.lose(self._lane, error, finds=finds)
        self._queue.wake()
        clock = self._world.clock
        lease_s = self._pass.request.lease_s + LEASE_MARGIN_S
        deadline_s = clock.monotonic_s() + (lease_s if self._lane.ends_by_lease else math.inf)
        pause_s = _FIRST_PAUSE_S
        try:
            while not await self._has_ended(attempt):
                left_s = deadline_s - clock.monotonic_s()
                if left_s <= 0:
                    LOG.warning("the lease is over: the stream has been ended", extra=attempt.facts)
                    break
                await clock.sleep(min(pause_s, left_s))
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        except asyncio.CancelledError:
            # Unfinished in the ledger: the next run looks for it on its host.
            name = f"attempt {attempt.id} on host {self._lane.host}, token {attempt.token}"
            self._pass.unended.append(name)
            raise
        self._settle.interrupted(attempt)
        return delay_s(1, self._pass.request.retry)

    async def _has_ended(self, attempt: Attempt) -> bool:
        try:
            left = await self._lane.end_orphans([attempt.token])
        except HostLost:
            return False
        if not left:
            self._routes.find_again(self._lane)
            self._queue.wake()
        return not left

    async def _reach_again(self) -> None:
        """Until the host answers again, or nothing is left to do for anybody."""
        pause_s = _FIRST_PAUSE_S
        lost_at_s = self._world.clock.monotonic_s()
        while not self._queue.finished.is_set() and self._pass.stop_found is None:
            await self._queue.pause(pause_s)
            if self._lane.host not in self._routes.lost:
                return
            if not self._lane.reads_mount and self._brick is None:
                continue  # whoever lost it knows what to try; that a host answers does not make it usable
            try:
                await self._lane.end_orphans(())
                with suppress(BrickRefused):
                    await self._lane.way(self._brick)
            except MigratorError as error:
                waited_s = self._world.clock.monotonic_s() - lost_at_s
                if self._pass.request.only_bricks and waited_s > self._pass.request.stall_timeout_s:
                    self._pass.stop(StopReason.HOST_LOST, f"{self._lane.host}: {error.message}")
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                continue
            self._routes.find_again(self._lane)
            self._queue.wake()
            return

    def _stop_in_dead_end(self) -> None:
        found = self._routes.dead_end()
        if found is not None:
            self._pass.stop(*found)

    async def _tree_is_there(self, chunk: ChunkRecord) -> bool:
        """Whether the chunk's tree is still a directory on the source. Settles the chunk where it is not."""
        looks = await look_at_all(self._pass, [chunk.tree])
        if looks is None:
            self._pass.stop(StopReason.DISCONNECTED, "the source does not answer")
            return False
        (seen,) = looks
        if isinstance(seen, OSError):
            self._pass.stop(StopReason.DISCONNECTED, f"{show(chunk.tree)} on the source: {seen.strerror or seen}")
            return False
        if isinstance(seen, Entry) and seen.type is EntryType.DIRECTORY:
            return True
        if seen is None and (doubts := (await self._pass.health.begun_after_now()).doubts):
            detail = f"{show(chunk.tree)} is not there, and may be all the same: {'; '.join(doubts)}"
            self._pass.stop(StopReason.SOURCE_UNHEALTHY, detail)
            return False
        attempt_id = self._settle.intend_without_stream(chunk)
        if seen is None:
            problem = FileProblem(
                path=chunk.tree, kind=FileProblemKind.VANISHED, errno=None, reason="the whole user tree is gone"
            )
            self._settle.finish(attempt_id, AttemptState.SUCCEEDED, ChunkState.DONE, None, (problem,))
            self._settle.tree_gone(chunk)
        else:
            reason = f"the user tree is no directory any more but a {seen.type.value}"
            problem = FileProblem(path=chunk.tree, kind=FileProblemKind.BAD, errno=None, reason=reason)
            self._settle.finish(attempt_id, AttemptState.FAILED, ChunkState.FAILED, None, (problem,))
            self._settle.bad((problem,))
        return False
