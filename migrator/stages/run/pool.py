"""The pool of streams over the chunks of one kind, and what follows from how each attempt ends."""

import asyncio
from collections.abc import Sequence

from migrator.decide.retry import NextStep, after_failure, delay_s, is_lasting
from migrator.decide.splitting import Paths, divisible, halves, set_apart, total_bytes
from migrator.domain.entry import Entry, EntryType
from migrator.domain.errors import MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.plan import Chunk, ListedPath
from migrator.domain.states import AttemptState, ChunkKind, ChunkState
from migrator.domain.transfer import (
    ChunkRecord,
    FileProblem,
    FileProblemKind,
    ProcessIdentity,
    StopReason,
    StreamCounters,
    Verdict,
)
from migrator.stages.run.attempt import BY_DESCRIPTOR, Attempt, Result, Unended
from migrator.stages.run.chunks import ChunkQueue
from migrator.stages.run.context import LOG, PassUnderWay
from migrator.stages.run.looking import look_at_all
from migrator.stages.run.meter import Meter, cancel_and_wait

_SHOWN_STDERR_BYTES = 300


async def run_step(under_way: PassUnderWay, kind: ChunkKind) -> None:
    """Bring all chunks of one kind to their end, or to a stop (`under_way.stop_found`).

    Raises what a worker raises; CancelledError after every stream has ended.
    """
    ledger = under_way.world.ledger
    if not ledger.passes.pending(under_way.pass_id, kind.value, 1):
        return
    queue = ChunkQueue(ledger.passes, under_way.world.clock, under_way.pass_id, kind)
    meter = Meter(under_way, kind, ledger.passes.totals(under_way.pass_id))
    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(meter.watch())
            for slot in range(1, under_way.request.jobs + 1):
                under_way.workers.add(group.create_task(_Worker(under_way, queue, meter, slot).work()))
            await asyncio.wait(under_way.workers)
            await cancel_and_wait(watching)
    except BaseExceptionGroup as group_error:
        raise _first(group_error) from group_error
    finally:
        under_way.workers.clear()
        now_s = under_way.world.clock.monotonic_s()
        meter.sample(now_s)
    meter.show(now_s)


class _Worker:
    """Works at one chunk after the other, until none is left or the pool stops."""

    def __init__(self, under_way: PassUnderWay, queue: ChunkQueue, meter: Meter, slot: int) -> None:
        self._pass = under_way
        self._world = under_way.world
        self._passes = under_way.world.ledger.passes
        self._queue = queue
        self._meter = meter
        self._slot = slot

    async def work(self) -> None:
        while self._pass.stop_found is None and (chunk := await self._queue.take()) is not None:
            again_after_s: float | None = None
            try:
                again_after_s = await self._handle(chunk)
            finally:
                self._queue.give_back(chunk, again_after_s)

    async def _handle(self, chunk: ChunkRecord) -> float | None:
        """Try a chunk once; how long it is to wait where it waits again."""
        paths = tuple(self._world.chunk_lists.paths(chunk.list_path or self._pass.batch.chunk_list, chunk.number))
        if not await self._tree_is_there(chunk):
            return None
        known = tuple(
            self._pass.known_io_errors[listed.path] for listed in paths if listed.path in self._pass.known_io_errors
        )
        rest, apart = set_apart(paths, {problem.path for problem in known})
        if rest and apart:
            attempt_id = self._intend_without_stream(chunk)
            self._divide(chunk, attempt_id, AttemptState.INTERRUPTED, None, (rest, apart), problems=known)
            return None
        attempt = Attempt(self._pass, self._meter, chunk, paths, self._slot)
        try:
            result = await attempt.run()
        except asyncio.CancelledError:
            self._finish(attempt.id, AttemptState.INTERRUPTED, ChunkState.PENDING, _nothing(attempt))
            raise
        except Unended:
            self._pass.stop(StopReason.TARGET_STUCK, f"chunk {chunk.number} of {show(chunk.tree)}")
            return None
        return self._follow(chunk, paths, attempt, result)

    def _follow(
        self, chunk: ChunkRecord, paths: Sequence[ListedPath], attempt: Attempt, result: Result
    ) -> float | None:
        """Record an attempt's result and what follows from it. Nothing is awaited here: no cancellation can come
        between the parts.
        """
        outcome = {"verdict": result.verdict.value, "exit_code": result.exit_code, "said": result.message}
        LOG.info("attempt ended", extra={**attempt.facts, **outcome})
        if result.verdict is Verdict.STOP and result.stop is not None:
            self._finish(attempt.id, AttemptState.INTERRUPTED, ChunkState.PENDING, result, result.bad)
            self._meter.file_bad(len(result.bad))
            self._pass.stop(*result.stop)
            return None
        if result.verdict is Verdict.INTERRUPTED:
            count = self._pass.interruptions[chunk.id] = self._pass.interruptions.get(chunk.id, 0) + 1
            if count <= self._pass.request.retry.interruptions:
                self._finish(attempt.id, AttemptState.INTERRUPTED, ChunkState.PENDING, result)
                self._retried(chunk, f"its stream was ended by something else: {result.message}")
                return delay_s(count, self._pass.request.retry)
        if result.verdict is not Verdict.DONE:
            return self._failed(chunk, paths, attempt, result)
        bad = (*result.bad, *result.again)
        if not bad:
            self._finish(attempt.id, AttemptState.SUCCEEDED, ChunkState.DONE, result, result.vanished)
            if arrived := [listed.path for listed in paths if listed.path in self._pass.known_io_errors]:
                self._passes.clear_attention(self._pass.pass_id, arrived)
            self._done(chunk, paths)
            return None
        return self._with_bad_files(chunk, paths, attempt, result, bad)

    def _with_bad_files(
        self,
        chunk: ChunkRecord,
        paths: Sequence[ListedPath],
        attempt: Attempt,
        result: Result,
        bad: Sequence[FileProblem],
    ) -> float | None:
        """Bad files do not sink their chunk: they are set apart in one of their own, and what is left is done."""
        rest, apart = set_apart(paths, {problem.path for problem in bad})
        if rest and apart:
            done, waiting = self._divide(chunk, attempt.id, AttemptState.SUCCEEDED, result, (rest, apart))
            LOG.info("chunk %s: bad files set apart in chunk %s: %s", chunk.number, waiting.number, len(bad))
            settled = self._intend_without_stream(done)
            in_rest = {listed.path for listed in rest}
            vanished = tuple(problem for problem in result.vanished if problem.path in in_rest)
            self._finish(settled, AttemptState.SUCCEEDED, ChunkState.DONE, None, vanished)
            self._done(done, rest)
            return None
        failures = self._count_failure(chunk)
        if failures < self._pass.request.retry.tries and not all(is_lasting(problem) for problem in bad):
            self._finish(attempt.id, AttemptState.FAILED, ChunkState.PENDING, result)
            self._retried(chunk, f"{show(bad[0].path)}: {bad[0].reason}")
            return delay_s(failures, self._pass.request.retry)
        self._finish(attempt.id, AttemptState.FAILED, ChunkState.FAILED, result, (*bad, *result.vanished))
        self._bad(bad)
        return None

    def _failed(
        self, chunk: ChunkRecord, paths: Sequence[ListedPath], attempt: Attempt, result: Result
    ) -> float | None:
        """An attempt failed and blamed no file."""
        failures = self._count_failure(chunk)
        policy = self._pass.request.retry
        step = after_failure(failures, policy, divisible=divisible(paths), is_part=chunk.list_path is not None)
        match step:
            case NextStep.RETRY:
                self._finish(attempt.id, AttemptState.FAILED, ChunkState.PENDING, result)
                self._retried(chunk, result.message)
                return delay_s(failures, policy)
            case NextStep.SPLIT:
                first, second = self._divide(chunk, attempt.id, AttemptState.FAILED, result, halves(paths))
                message = f"chunk {chunk.number} keeps failing ({result.message}): split into {first.number} and {second.number}"
                self._say(EventKind.CHUNK_SPLIT, Severity.WARNING, chunk, message)
                return None
            case NextStep.GIVE_UP:
                said = show(result.stderr_tail[-_SHOWN_STDERR_BYTES:].strip())
                reason = f"{result.message}; {said}" if said else result.message
                bad = tuple(
                    FileProblem(path=listed.path, kind=FileProblemKind.BAD, errno=None, reason=reason)
                    for listed in paths
                )
                self._finish(attempt.id, AttemptState.FAILED, ChunkState.FAILED, result, bad)
                self._say(EventKind.CHUNK_FAILED, Severity.ERROR, chunk, f"chunk {chunk.number} failed: {reason}")
                self._bad(bad)
                return None

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
        attempt_id = self._intend_without_stream(chunk)
        if seen is None:
            problem = FileProblem(
                path=chunk.tree, kind=FileProblemKind.VANISHED, errno=None, reason="the whole user tree is gone"
            )
            self._finish(attempt_id, AttemptState.SUCCEEDED, ChunkState.DONE, None, (problem,))
            self._tree_gone(chunk)
        else:
            reason = f"the user tree is no directory any more but a {seen.type.value}"
            problem = FileProblem(path=chunk.tree, kind=FileProblemKind.BAD, errno=None, reason=reason)
            self._finish(attempt_id, AttemptState.FAILED, ChunkState.FAILED, None, (problem,))
            self._bad((problem,))
        return False

    def _tree_gone(self, chunk: ChunkRecord) -> None:
        if chunk.tree not in self._pass.trees_gone:
            self._pass.trees_gone.add(chunk.tree)
            message = f"the user tree {show(chunk.tree)} has vanished since the scan: nothing of it can be copied"
            self._say(EventKind.FILE_BAD, Severity.WARNING, chunk, message)

    def _intend_without_stream(self, chunk: ChunkRecord) -> int:
        """An attempt for the record alone: nothing is started."""
        attempt_id = self._passes.intend(
            chunk_id=chunk.id,
            token=self._world.tokens(),
            host=self._world.executor.host,
            engine=BY_DESCRIPTOR,
            argv=(),
            at_s=self._world.clock.now_s(),
        )
        own = ProcessIdentity(pid=self._pass.request.pid, start_ticks=0, boot_id="")
        self._passes.started(attempt_id, own)
        return attempt_id

    def _divide(
        self,
        chunk: ChunkRecord,
        attempt_id: int,
        state: AttemptState,
        result: Result | None,
        parts: tuple[Paths, Paths],
        *,
        problems: Sequence[FileProblem] = (),
    ) -> tuple[ChunkRecord, ChunkRecord]:
        """Replace a chunk by two. Lists first, then the ledger: a list that no chunk names does no harm."""
        number = self._passes.next_chunk_number(self._pass.pass_id)
        written: list[tuple[Chunk, str]] = []
        for offset, part in enumerate(parts):
            half = Chunk(
                number=number + offset,
                kind=chunk.kind,
                tree=chunk.tree,
                files=len(part),
                size_bytes=total_bytes(part),
            )
            written.append((half, self._world.chunk_lists.write_split(self._pass.pass_id, half, part)))
        first, second = self._passes.split(chunk.id, written)
        self._finish(attempt_id, state, ChunkState.SPLIT, result, problems)
        return first, second

    def _finish(
        self,
        attempt_id: int,
        state: AttemptState,
        chunk_state: ChunkState,
        result: Result | None,
        problems: Sequence[FileProblem] = (),
    ) -> None:
        self._passes.finish(
            attempt_id,
            at_s=self._world.clock.now_s(),
            state=state.value,
            exit_code=result.exit_code if result else None,
            counters=result.counters if result else StreamCounters(),
            stderr_tail=result.stderr_tail if result else b"",
            chunk_state=chunk_state,
            problems=problems,
        )

    def _done(self, chunk: ChunkRecord, paths: Sequence[ListedPath]) -> None:
        size_bytes = total_bytes(paths)
        self._pass.tally.add(chunk, len(paths), size_bytes)
        self._meter.chunk_done(len(paths), size_bytes)
        self._pass.failures.pop(chunk.id, None)

    def _bad(self, problems: Sequence[FileProblem]) -> None:
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


def _nothing(attempt: Attempt) -> Result:
    return Result(
        verdict=Verdict.INTERRUPTED,
        counters=attempt.counters,
        exit_code=attempt.exit_code,
        stderr_tail=attempt.stderr_tail,
    )


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to tell people: one of the program's own where there is one."""
    leaves: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting:
        error = waiting.pop(0)
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(error.exceptions)
        else:
            leaves.append(error)
    return next((leaf for leaf in leaves if isinstance(leaf, MigratorError)), leaves[0])
