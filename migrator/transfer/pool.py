"""The pool of streams: the consequences of attempts, the queue of chunks, and one worker for each stream."""

import asyncio
import math
from collections import Counter, deque
from collections.abc import Collection, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from migrator.catalog.model import ListedPath
from migrator.catalog.rules_packing import divisible, halves, set_apart, total_bytes
from migrator.core.entry import Entry, EntryType
from migrator.core.errors import LockHeld, MigratorError, Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.states import AttemptState, ChunkKind, ChunkState
from migrator.core.tasks import cancel_and_wait, task_group, through_cancellation, to_the_end
from migrator.hosts.ports import HostLost
from migrator.plan.model import Chunk
from migrator.transfer.attempt import LEASE_MARGIN_S, Attempt, OpenAttempt, Result, Unended, intend, look_at_all
from migrator.transfer.context import LOG, LOOK_EVERY_S, PassUnderWay
from migrator.transfer.meter import Meter
from migrator.transfer.model import ChunkRecord, FileProblem, FileProblemKind, StopReason, Verdict, choose_engine
from migrator.transfer.ports import BrickRefused, Engine, Way
from migrator.transfer.routes import HostLane, Routes
from migrator.transfer.rules import LONGEST_S, MOST_INTERRUPTIONS, TRIES, delay_s, expected_s

if TYPE_CHECKING:
    from migrator.plan.chunk_lists import ListedPaths
    from migrator.transfer.records import PassRecords

# The consequences of an attempt: chunk done, retried, split, failed, or a stop of the pool.


Parts = Sequence[tuple[Sequence[ListedPath], str | None]]
"""The paths of each part of a chunk, and the brick that they are read from (None: the mount)."""
_SHOWN_STDERR_BYTES = 300
_BESIDE_COMMIT = "a drain is committed: clients lose their connections for a moment"
_HELD_REASONS = frozenset({StopReason.TARGET_STUCK, StopReason.IO_ERROR, StopReason.DISCONNECTED})
"""Symptoms of a server that is down: they do not stop a pass that can wait."""


class Settlement:
    """Records the results of attempts and chunks: what belongs together is one job of the ledger. The caller of `follow`
    lets it go to its end, so that a cancellation does not separate what is recorded from what is counted.
    """

    def __init__(self, under_way: PassUnderWay, meter: Meter) -> None:
        self._pass = under_way
        self._world = under_way.world
        self._passes = under_way.world.ledger.passes
        self._meter = meter

    async def follow(self, attempt: Attempt, result: Result) -> float | None:
        """Record the result of an attempt and its consequences. Returns the delay of a chunk that is tried again."""
        chunk = attempt.chunk
        outcome = {"verdict": result.verdict.value, "exit_code": attempt.exit_code, "said": result.message}
        LOG.info("attempt ended", extra={**attempt.facts, **outcome})
        if result.verdict is Verdict.STOP and result.stop is not None:
            await self.interrupted(attempt)
            self._pass.stop(*result.stop)
            return None
        if result.verdict is Verdict.INTERRUPTED:
            count = self._pass.interruptions[chunk.id] = self._pass.interruptions.get(chunk.id, 0) + 1
            if count <= MOST_INTERRUPTIONS:
                await self.interrupted(attempt)
                if not result.told:
                    self._retried(chunk, f"its stream was ended by something else: {result.message}")
                return delay_s(count)
        if result.verdict is not Verdict.DONE:
            return await self._failed(attempt, result)
        if bad := (*result.bad, *result.again):
            return await self._with_bad_files(attempt, result, bad)
        await self._finish(attempt, AttemptState.SUCCEEDED, ChunkState.DONE, (*result.vanished, *result.changed))
        self._done(chunk)
        return None

    async def _with_bad_files(self, attempt: Attempt, result: Result, bad: Sequence[FileProblem]) -> float | None:
        """Set bad files apart in a chunk of their own, and finish the rest: bad files do not fail their chunk. Files
        that a brick did not yield are read through the mount next: only that proves that a file is bad, or has moved.
        """
        chunk = attempt.chunk
        rest, apart = set_apart(attempt.listed, {problem.path for problem in bad})
        why = f"{show(bad[0].path)}: {bad[0].reason}"
        if rest and apart:
            parts = ((rest, chunk.brick), (apart, None))
            in_rest = {listed.path for listed in rest}
            told = [problem for problem in (*result.vanished, *result.changed) if problem.path in in_rest]

            def record() -> Sequence[ChunkRecord]:
                done, waiting = self._divide_after(attempt, AttemptState.SUCCEEDED, parts)
                self._without_stream(done).finish(self._world, AttemptState.SUCCEEDED, ChunkState.DONE, told)
                return done, waiting

            done, waiting = await self._world.ledger.write(record)
            LOG.info("chunk %s: bad files set apart in chunk %s: %s", chunk.number, waiting.number, len(bad))
            self._done(done)
            return None
        if chunk.brick is not None:
            await self._through_mount(attempt, why)
            return None
        failures = self._count_failure(chunk)
        if failures < TRIES:
            return await self._try_again(attempt, failures, why)
        await self._finish(attempt, AttemptState.FAILED, ChunkState.FAILED, (*bad, *result.vanished))
        self.bad(bad)
        return None

    async def _failed(self, attempt: Attempt, result: Result) -> float | None:
        """Settle an attempt that failed and blamed no file. A part of a tried chunk is split again at once, and only a
        single path gets all its tries. So finding one bad file among n costs about 2 log2(n) attempts.
        """
        chunk, paths = attempt.chunk, attempt.listed
        failures = self._count_failure(chunk)
        is_last = failures >= TRIES
        if chunk.brick is not None and is_last:
            await self._through_mount(attempt, result.message)
        elif divisible(paths) and (is_last or _is_part_of_tried(self._passes, chunk)):
            parts = [(half, chunk.brick) for half in halves(paths)]
            record = partial(self._divide_after, attempt, AttemptState.FAILED, parts)
            first, second = await self._world.ledger.write(record)
            message = (
                f"chunk {chunk.number} keeps failing ({result.message}): split into {first.number} and {second.number}"
            )
            self._say(EventKind.CHUNK_SPLIT, Severity.WARNING, chunk, message)
        elif not is_last:
            return await self._try_again(attempt, failures, result.message)
        else:
            said = show(attempt.stderr_tail[-_SHOWN_STDERR_BYTES:].strip())
            reason = f"{result.message}; {said}" if said else result.message
            bad = [
                FileProblem(path=listed.path, kind=FileProblemKind.BAD, errno=None, reason=reason) for listed in paths
            ]
            await self._finish(attempt, AttemptState.FAILED, ChunkState.FAILED, bad)
            self._say(EventKind.CHUNK_FAILED, Severity.ERROR, chunk, f"chunk {chunk.number} failed: {reason}")
            self.bad(bad)
        return None

    async def _try_again(self, attempt: Attempt, failures: int, why: str) -> float:
        await self._finish(attempt, AttemptState.FAILED, ChunkState.PENDING)
        self._retried(attempt.chunk, why)
        return delay_s(failures)

    async def interrupted(self, attempt: Attempt) -> None:
        """Record an attempt that was ended from outside, with its progress: its chunk is pending again. May be called
        again.
        """
        await self._finish(attempt, AttemptState.INTERRUPTED, ChunkState.PENDING)

    def abandoned(self, attempt: Attempt) -> None:
        """As `interrupted`, without waiting: the pool stops."""
        end = AttemptState.INTERRUPTED, ChunkState.PENDING
        self._world.ledger.later(partial(attempt.finish, self._world, *end))

    async def _finish(
        self, attempt: OpenAttempt, state: AttemptState, chunk: ChunkState, problems: Sequence[FileProblem] = ()
    ) -> None:
        await self._world.ledger.write(partial(attempt.finish, self._world, state, chunk, problems))

    async def _through_mount(self, attempt: Attempt, why: str) -> None:
        """Replace the chunk by one that is read through the mount, after its brick failed."""
        chunk = attempt.chunk
        record = partial(self._divide_after, attempt, AttemptState.FAILED, [(attempt.listed, None)])
        (instead,) = await self._world.ledger.write(record)
        message = f"chunk {chunk.number} is read through the mount, as chunk {instead.number}: {why}"
        self._say(EventKind.CHUNK_RETRIED, Severity.INFO, chunk, message)

    async def held(self, attempt: Attempt, result: Result) -> float | None:
        """Settle an attempt that failed while storage of the target is lost, since the chunk is not to blame. The chunk
        waits for at least the returned time (None: not settled). A stop of the pool names the storage target.
        """
        watch, reason = self._pass.storage, result.stop[0] if result.stop else None
        if reason is StopReason.DISCONNECTED and self._pass.beside_commit:
            await self.interrupted(attempt)
            self._retried(attempt.chunk, f"{result.message}; {_BESIDE_COMMIT}")
            return delay_s(1)
        if watch is None or (result.verdict is Verdict.DONE and not result.bad):
            return None
        words = ""
        if reason is StopReason.TARGET_FULL:
            words = await watch.full_words()
        elif (result.verdict is not Verdict.STOP or reason in _HELD_REASONS) and (lost := await watch.look()):
            words = "; ".join(lost)
            if self._pass.waits_for_storage:
                await self.interrupted(attempt)
                self._retried(attempt.chunk, f"storage of the target is lost ({words})")
                return delay_s(1)
        if result.stop is not None and words:
            stop, detail = result.stop
            result.stop = stop, f"{detail}; {words}" if detail else words
        return None

    async def without_stream(
        self, chunk: ChunkRecord, state: AttemptState, chunk_state: ChunkState, problems: Sequence[FileProblem] = ()
    ) -> None:
        """Record an attempt that starts no stream, and its end."""
        end = partial(OpenAttempt.finish, world=self._world, state=state, chunk_state=chunk_state, problems=problems)
        await self._world.ledger.write(lambda: end(self._without_stream(chunk)))

    async def halve(self, chunk: ChunkRecord, paths: Sequence[ListedPath]) -> None:
        """Replace a chunk by its halves, before any attempt."""
        parts = [(half, chunk.brick) for half in halves(paths)]
        await self._world.ledger.write(partial(self._divide, chunk, parts))

    def _without_stream(self, chunk: ChunkRecord) -> OpenAttempt:
        return OpenAttempt(id=intend(self._pass, chunk))

    def _divide_after(self, attempt: Attempt, state: AttemptState, parts: Parts) -> Sequence[ChunkRecord]:
        """As `_divide`, with the end of an attempt at the chunk."""
        replaced = self._divide(attempt.chunk, parts)
        attempt.finish(self._world, state, ChunkState.SPLIT)
        return replaced

    def _divide(self, chunk: ChunkRecord, parts: Parts) -> Sequence[ChunkRecord]:
        """Replace a chunk by parts. A part of a job.

        Lists are written before the ledger: a list that no chunk names does no harm.
        """
        number = self._passes.next_chunk_number(self._pass.pass_id)
        written: list[tuple[Chunk, str]] = []
        for offset, (part, brick) in enumerate(parts):
            piece = Chunk(
                number=number + offset,
                kind=chunk.kind,
                tree=chunk.tree,
                # A ranged file counts when it is put in place.
                files=0 if chunk.kind is ChunkKind.RANGES else len(part),
                size_bytes=total_bytes(part),
                brick=brick,
            )
            written.append((piece, self._world.chunk_lists.write_split(self._pass.pass_id, piece, part)))
        return self._passes.split(chunk.id, written)

    def _done(self, chunk: ChunkRecord) -> None:
        self._pass.tally.add(chunk)
        self._meter.chunk_done(chunk)
        self._pass.failures.pop(chunk.id, None)

    def bad(self, problems: Sequence[FileProblem]) -> None:
        """Count and report bad files."""
        self._meter.file_bad(len(problems))
        for problem in problems:
            self._pass.invocation.say(
                EventKind.FILE_BAD, Severity.WARNING, show(problem.path), f"{show(problem.path)}: {problem.reason}"
            )

    def _retried(self, chunk: ChunkRecord, why: str) -> None:
        self._say(EventKind.CHUNK_RETRIED, Severity.INFO, chunk, f"chunk {chunk.number} is tried again: {why}")

    def _count_failure(self, chunk: ChunkRecord) -> int:
        count = self._pass.failures[chunk.id] = self._pass.failures.get(chunk.id, 0) + 1
        return count

    def _say(self, kind: EventKind, severity: Severity, chunk: ChunkRecord, message: str) -> None:
        subject = f"batch {self._pass.batch.number}, chunk {chunk.number}"
        self._pass.invocation.say(kind, severity, subject, message)

    def tree_gone(self, chunk: ChunkRecord) -> None:
        """Report once that a whole tree has vanished."""
        if chunk.tree not in self._pass.trees_gone:
            self._pass.trees_gone.add(chunk.tree)
            message = f"the user tree {show(chunk.tree)} has vanished since the scan: nothing of it can be copied"
            self._say(EventKind.FILE_BAD, Severity.WARNING, chunk, message)


def _is_part_of_tried(passes: "PassRecords", chunk: ChunkRecord) -> bool:
    """Whether there was an attempt at a chunk that this one is a part of."""
    if chunk.parent_id is None:
        return False
    return bool(passes.attempts_of_chunk(chunk.parent_id)) or _is_part_of_tried(passes, passes.chunk(chunk.parent_id))


# The next chunk is the largest one of the brick with the fewest streams; failed chunks follow once their delay is over.


_AHEAD = 64


class ChunkQueue:
    """Distributes the chunks of some kinds of one pass to concurrent workers. The ledger has the pending chunks, this
    queue the delayed ones.

    Every lane takes the chunks that its routes allow, evenly from all its bricks: each has its own disks, and the
    slowest brick determines the end. `finished` is set when no chunk is left for any lane.
    """

    def __init__(self, under_way: PassUnderWay, routes: Routes, kinds: Sequence[ChunkKind]) -> None:
        self._passes = under_way.world.ledger.passes
        self._governor = under_way.governor
        self._clock = under_way.world.clock
        self._pass_id = under_way.pass_id
        self._kinds = tuple(kinds)
        self._routes = routes
        self._but_trees = under_way.left_alone
        self._bricks = self._passes.bricks(self._pass_id)
        self._ahead: dict[str | None, deque[ChunkRecord]] = {}
        self._exhausted: set[str | None] = set()
        """Bricks without more pending chunks in the ledger than read ahead, until a chunk is given back."""
        self._version = routes.version
        self._delayed: list[tuple[float, int, ChunkRecord]] = []
        self._taken: dict[int, tuple[str, str | None]] = {}
        """The host of each chunk in flight, and the brick that it reads."""
        self._confirming: set[int] = set()
        """Chunks that are not given back yet; the ledger may have them as pending already."""
        self._changed = asyncio.Event()
        self.finished = asyncio.Event()

    async def take(self, lane: HostLane) -> ChunkRecord | None:
        """The next chunk. Waits while others are in flight, since they may fail or be split. None if all are done, or
        if the host of the lane was lost. Another queue takes unconfirmed chunks that are given back later: the workers
        of this one may have ended.
        """
        while not self.finished.is_set():
            if (chunk := self._next(lane)) is not None:
                self._taken[chunk.id] = lane.host, self._routes.copy_on(lane, chunk.brick) or chunk.brick
                if self._governor is not None:
                    hosts = self._hosts_with_work()
                    self._governor.begin(chunk.id, lane.host, hosts=hosts, chunks=self._few_chunks())
                return chunk
            if not self._taken and not self._delayed and not self._pending(1):
                self.finished.set()
                self.wake()
                return None
            if lane.host in self._routes.lost or self._routes.unwatched(lane):
                return None
            await self._change()
        return None

    def brick_for(self, lane: HostLane) -> str | None:
        """A brick of the pass that the lane may read now; None: of none."""
        return next(filter(None, (self._routes.copy_on(lane, brick) for brick in self._bricks)), None)

    def confirm(self, chunk: ChunkRecord) -> None:
        """Record that the stream of a chunk has ended; its confirmation is still in flight."""
        self._end(chunk)
        self._confirming.add(chunk.id)
        self.wake()

    def give_back(self, chunk: ChunkRecord, delay_s: float | None = None, *, done: bool = False) -> None:
        """Return a taken chunk that is done, split or failed, or that waits again for `delay_s`. After one that is not
        `done`, the ledger may have more pending chunks than before.
        """
        self._end(chunk)
        if not done:
            self._exhausted.clear()
        if delay_s:
            self._delayed.append((self._clock.monotonic_s() + delay_s, chunk.id, chunk))
        self.wake()

    def release(self, chunk: ChunkRecord, delay_s: float | None) -> None:
        """As `give_back`, unless the chunk waits for its confirmation."""
        if chunk.id in self._taken:
            self.give_back(chunk, delay_s)

    async def pause(self, duration_s: float) -> None:
        """Sleep, but no longer than until the queue is finished."""
        await self.unless_finished(self._clock.sleep(duration_s))

    async def unless_finished(self, work: Coroutine[Any, Any, object]) -> None:
        """Wait for this work. If the queue finishes first, the work is cancelled."""
        await self._wait(self.finished, work)

    def wake(self) -> None:
        """Wake all waiting workers."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _end(self, chunk: ChunkRecord) -> None:
        self._taken.pop(chunk.id, None)
        self._confirming.discard(chunk.id)
        if self._governor is not None:
            self._governor.end(chunk.id)

    def _next(self, lane: HostLane) -> ChunkRecord | None:
        if self._governor is not None:
            hosts = self._hosts_with_work()
            if not self._governor.may_begin(lane.host, hosts=hosts, chunks=self._few_chunks()):
                return None
        eligible = self._routes.eligible(lane, self._bricks)
        now_s = self._clock.monotonic_s()
        due = [waiting for waiting in self._delayed if waiting[0] <= now_s and waiting[2].brick in eligible]
        if due:
            first = min(due)
            self._delayed.remove(first)
            return first[2]
        if self._version != self._routes.version:
            self._version = self._routes.version
            self._ahead.clear()
            self._exhausted.clear()
        readers = Counter(brick for _, brick in self._taken.values())
        first_of = {brick: found for brick in eligible if (found := self._first(brick)) is not None}
        if not first_of:
            return None

        def order(brick: str | None) -> tuple[int, int, int]:
            read, first = self._routes.copy_on(lane, brick) or brick, first_of[brick]
            return readers[read], -first.size_bytes, first.number

        return self._ahead[min(first_of, key=order)].popleft()

    def _hosts_with_work(self) -> frozenset[str]:
        """Hosts with a chunk to take, or with streams: only those need a share of a limit."""
        bricks = {brick for brick in self._bricks if self._first(brick) is not None}
        able = (lane.host for lane in self._routes.open if bricks & self._routes.eligible(lane, bricks))
        return frozenset([*able, *(host for host, _ in self._taken.values())])

    def _few_chunks(self) -> int | None:
        """The number of chunks in flight and waiting, if the read-ahead has all of them."""
        if not self._exhausted.issuperset(self._bricks):
            return None
        return len(self._taken) + len(self._delayed) + sum(map(len, self._ahead.values()))

    def _first(self, brick: str | None) -> ChunkRecord | None:
        """The largest pending chunk of a brick; it stays at the head of the read-ahead."""
        ahead = self._ahead.setdefault(brick, deque())
        while ahead and ahead[0].id in self._taken:
            ahead.popleft()
        if not ahead and brick not in self._exhausted:
            aside = {*self._taken, *self._confirming, *(chunk_id for _, chunk_id, _ in self._delayed)}
            found = [chunk for chunk in self._pending(_AHEAD + len(aside), bricks={brick}) if chunk.id not in aside]
            ahead.extend(found[:_AHEAD])
            if len(found) < _AHEAD:
                self._exhausted.add(brick)
        return ahead[0] if ahead else None

    def _pending(self, limit: int, bricks: Collection[str | None] | None = None) -> list[ChunkRecord]:
        """The first pending chunks of all kinds together; the first of each kind suffice for that."""
        found = [
            chunk
            for kind in self._kinds
            for chunk in self._passes.pending(
                self._pass_id, kind.value, limit, bricks=bricks, but_trees=self._but_trees
            )
        ]
        return sorted(found, key=lambda chunk: (-chunk.size_bytes, chunk.number))[:limit]

    async def _change(self) -> None:
        """Wait until a chunk is given back, or the next delay is over. Chunks that are due already belong to other
        lanes.
        """
        now_s = self._clock.monotonic_s()
        left_s = min((due_s - now_s for due_s, *_ in self._delayed if due_s > now_s), default=None)
        await self._wait(self._changed, *([] if left_s is None else [self._clock.sleep(left_s)]))

    async def _wait(self, event: asyncio.Event, *others: Coroutine[Any, Any, object]) -> None:
        waiting: set[asyncio.Task[object]] = {asyncio.create_task(one) for one in (event.wait(), *others)}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()


# One worker: it takes chunks for its lane one after the other, and continues after the loss of its host.


_FIRST_PAUSE_S = 2.0
_LONGEST_PAUSE_S = 60.0


@dataclass(slots=True, kw_only=True)
class Worker:
    """Copies one chunk after the other, until none is left or the pool stops. Call `work` once."""

    under_way: PassUnderWay
    routes: Routes
    queue: ChunkQueue
    meter: Meter
    lane: HostLane
    slot: int
    _settle: Settlement = field(init=False)

    def __post_init__(self) -> None:
        self._settle = Settlement(self.under_way, self.meter)

    async def work(self) -> None:
        """Take chunks until none is left. Raises only defects of this program."""
        while self.under_way.stop_found is None and not self.queue.finished.is_set():
            if self.lane.host in self.routes.lost:
                await self._reach_again()
                continue
            if self.routes.unwatched(self.lane):
                await self._watch_volume()
                continue
            if self.under_way.storage is not None and self.under_way.storage.lost and self.under_way.waits_for_storage:
                self.under_way.storage.begin()
                await self.queue.pause(LOOK_EVERY_S)
                continue
            chunk = await self.queue.take(self.lane)
            if chunk is None:
                continue
            again_after_s: float | None = None
            try:
                again_after_s = await self._handle(chunk)
            finally:
                self.queue.release(chunk, again_after_s)

    async def _handle(self, chunk: ChunkRecord) -> float | None:
        """Try a chunk once. Returns its delay if it has to wait again. A chunk that awaits confirmation is given back
        after that.
        """
        if not await self._tree_is_there(chunk):
            return None
        paths, tried = await self.under_way.world.blocking(partial(self._read, chunk), timeout_s=math.inf)
        if await self._divided(chunk, paths):
            return None
        brick = self.routes.copy_on(self.lane, chunk.brick)
        if not self.lane.reads_mount and (brick is None or not await self.routes.quiet_before(brick)):
            self.queue.wake()
            return None
        try:
            with self.routes.reading(brick):
                return await self._copy(chunk, paths, brick, tried=tried)
        except LockHeld as error:
            # A drain of this brick is audited, to be committed: the mount is read, because that may take long.
            self.routes.refuse(str(brick), error)
            return None

    async def _copy(self, chunk: ChunkRecord, paths: "ListedPaths", brick: str | None, *, tried: bool) -> float | None:
        finds = self.routes.finds.get(self.lane.host, 0)
        try:
            way = await self.lane.way(brick)
            engine = self._engine(way, chunk)
        except HostLost as error:
            self.routes.lose(self.lane, error)
            return None
        except BrickRefused as error:
            self.routes.refuse(str(brick), error)
            return None
        except (Refused, ToolFailed) as error:
            # The host answers but cannot run streams: the worker uses another way, if there is one.
            if self.lane.reads_mount:
                self.under_way.stop(StopReason.TOOL_MISSING, error.message)
            else:
                self.routes.lose(self.lane, HostLost(error.message, cause=error.cause, hint=error.hint), unfit=True)
            return None
        if engine is None:
            await self._settle.without_stream(chunk, AttemptState.SUCCEEDED, ChunkState.DONE)
            return None
        made = self.under_way, self.routes, self.meter, chunk, paths
        attempt = Attempt(*made, tried=tried, slot=self.slot, way=way, engine=engine)
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
            return await self._in_doubt(attempt, error, finds)
        if held_s is not None:
            return held_s
        if result.verdict is not Verdict.DONE:
            return await to_the_end(self._settle.follow(attempt, result))
        self.queue.confirm(chunk)

        def abandoned() -> None:
            self._settle.abandoned(attempt)
            self.queue.give_back(chunk)

        confirmation = partial(self._confirm, attempt, result, finds)
        await self.under_way.confirmations.begin(confirmation, abandoned)
        return None

    def _read(self, chunk: ChunkRecord) -> "tuple[ListedPaths, bool]":
        """The paths of a chunk, and whether it was tried before, by itself or in a larger one. Blocking."""
        world, chunk_list = self.under_way.world, chunk.list_path or self.under_way.chunk_list
        passes = world.ledger.passes
        tried = bool(passes.attempts_of_chunk(chunk.id)) or _is_part_of_tried(passes, chunk)
        return world.chunk_lists.paths(chunk_list, chunk.number), tried

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

    async def _confirm(self, attempt: Attempt, result: Result, finds: int) -> None:
        """Confirm an attempt whose stream has ended, and give its chunk back."""
        done = False
        try:
            confirmed = await attempt.confirm(result)
            again_after_s = await self._settle.held(attempt, confirmed)
            if again_after_s is None:
                # A cancellation meanwhile changes nothing: the result is recorded.
                again_after_s = await through_cancellation(self._settle.follow(attempt, confirmed))
                done = confirmed.verdict is Verdict.DONE and not (confirmed.bad or confirmed.again)
        except HostLost as error:
            # The stream has ended; only whether its files are on the disks is unknown. If the doubt concerns an earlier
            # connection, the host itself answers.
            if not error.in_doubt:
                self.routes.lose(self.lane, error, finds=finds)
            await self._settle.interrupted(attempt)
            again_after_s = delay_s(1)
        self.queue.give_back(attempt.chunk, again_after_s, done=done)

    def _engine(self, way: Way, chunk: ChunkRecord) -> Engine | None:
        """Chunks of links need no stream; any engine serves for their attempt."""
        name = choose_engine(self.under_way.request.engine, chunk.kind, from_brick=way.brick is not None)
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

    async def _in_doubt(self, attempt: Attempt, error: HostLost, finds: int) -> float | None:
        """Settle a chunk whose host was lost while a stream was in flight there. The chunk is reissued only when the
        stream is known to be dead: the host confirmed it, or its lease is over.
        """
        self.routes.lose(self.lane, error, finds=finds)
        self.queue.wake()
        clock = self.under_way.world.clock
        lease_s = self.under_way.request.lease_s + LEASE_MARGIN_S
        deadline_s = clock.monotonic_s() + lease_s
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
            # The attempt stays unfinished in the ledger: the next run checks for it on its host.
            name = f"attempt {attempt.id} on host {self.lane.host}, token {attempt.token}"
            self.under_way.unended.append(name)
            raise
        await self._settle.interrupted(attempt)
        return delay_s(1)

    async def _has_ended(self, attempt: Attempt) -> bool:
        try:
            left = await self.lane.end_orphans([attempt.token])
        except HostLost:
            return False
        if not left:
            self.routes.find_again(self.lane)
            self.queue.wake()
        return not left

    async def _reach_again(self) -> None:
        """Wait until the host answers again, or the queue is finished."""
        pause_s = _FIRST_PAUSE_S
        while not self.queue.finished.is_set() and self.under_way.stop_found is None:
            await self.queue.pause(pause_s)
            if self.lane.host not in self.routes.lost:
                return
            brick = self.queue.brick_for(self.lane)
            if not self.lane.reads_mount and brick is None:
                continue
            try:
                await self.lane.end_orphans(())
                with suppress(BrickRefused):
                    # A host that answers may still be unusable.
                    await self.lane.way(brick)
            except MigratorError:
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
                continue
            self.routes.find_again(self.lane)
            self.queue.wake()
            return

    async def _watch_volume(self) -> None:
        """Poll the volume until the bricks may be read again, or never in this run, or the queue is finished."""
        pause_s = _FIRST_PAUSE_S
        self.routes.watched = True
        try:
            while self.routes.unfit and not self.routes.lasting and self.under_way.stop_found is None:
                await self.queue.pause(pause_s)
                await self.queue.unless_finished(self.routes.quiet_now())
                if self.queue.finished.is_set():
                    return
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
        finally:
            self.routes.watched = False
            self.queue.wake()

    async def _tree_is_there(self, chunk: ChunkRecord) -> bool:
        """Whether the chunk's tree is still a directory on the source. If not, settles the chunk."""
        looks = await look_at_all(self.under_way, [chunk.tree])
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


# The pool over the chunks of one step: each lane has as many workers as it may have streams.


async def run_step(under_way: PassUnderWay, routes: Routes, step: Sequence[ChunkKind]) -> None:
    """Copy all chunks of these kinds concurrently, until they are done or the pool stops (`under_way.stop_found`).

    Raises the errors of workers; CancelledError after every stream has ended.
    """
    ledger, alone = under_way.world.ledger, under_way.left_alone
    kinds = [kind for kind in step if ledger.passes.pending(under_way.pass_id, kind.value, 1, but_trees=alone)]
    if not kinds:
        return
    governor = under_way.governor
    queue = ChunkQueue(under_way, routes, kinds)
    meter = Meter(under_way, kinds, ledger.passes.totals(under_way.pass_id))
    try:
        async with task_group() as group:
            watching = group.create_task(meter.watch())
            counts: Counter[str] = Counter()

            def employ() -> None:
                """Start as many workers for each lane as it may have streams; surplus ones wait."""
                for lane in routes.lanes:
                    ceilings = {} if governor is None else governor.ceilings
                    while counts[lane.host] < ceilings.get(lane.host, lane.jobs):
                        counts[lane.host] += 1
                        worker = Worker(
                            under_way=under_way, routes=routes, queue=queue, meter=meter, lane=lane, slot=counts.total()
                        )
                        under_way.workers.add(group.create_task(worker.work()))

            def allowed_anew() -> None:
                employ()
                queue.wake()

            employ()
            unfollow = governor.on_change(allowed_anew) if governor is not None else None
            try:
                while at_work := [worker for worker in under_way.workers if not worker.done()]:
                    await asyncio.wait(at_work)
            finally:
                if unfollow is not None:
                    unfollow()
            await cancel_and_wait(watching)
    finally:
        under_way.workers.clear()
        meter.finish()
