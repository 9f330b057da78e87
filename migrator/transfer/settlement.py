"""The consequences of an attempt: its chunk is done, tried again, split or failed, or the pool stops."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from migrator.catalog.model import ListedPath
from migrator.catalog.rules_packing import divisible, halves, set_apart, total_bytes
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.states import AttemptState, ChunkKind, ChunkState
from migrator.plan.model import Chunk
from migrator.transfer.attempt import Attempt
from migrator.transfer.context import LOG, PassUnderWay
from migrator.transfer.judging import Result
from migrator.transfer.meter import Meter
from migrator.transfer.model import AttemptRecord, AttemptVerdict, ChunkRecord, FileProblem, FileProblemKind, StopReason
from migrator.transfer.rules import MOST_INTERRUPTIONS, TRIES, delay_s
from migrator.transfer.stream import OpenAttempt, intend

if TYPE_CHECKING:
    from migrator.transfer.records import PassRecords

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
        outcome = {"verdict": result.verdict.value, "exit_code": attempt.exit_code, "detail": result.message}
        LOG.info("attempt ended", extra={**attempt.facts, **outcome})
        if result.verdict is AttemptVerdict.STOP and result.stop is not None:
            await self.interrupted(attempt)
            self._pass.stop(*result.stop)
            return None
        if result.verdict is AttemptVerdict.INTERRUPTED:
            count = self._pass.interruptions[chunk.id] = self._pass.interruptions.get(chunk.id, 0) + 1
            if count <= MOST_INTERRUPTIONS:
                await self.interrupted(attempt)
                if not result.reported:
                    self._retried(chunk, f"its stream was ended by something else: {result.message}")
                return delay_s(count)
        if result.verdict is not AttemptVerdict.DONE:
            return await self._failed(attempt, result)
        if bad := (*result.bad, *result.again):
            return await self._with_bad_files(attempt, result, bad)
        await asyncio.to_thread(attempt.keep_digests)
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
            problems = [problem for problem in (*result.vanished, *result.changed) if problem.path in in_rest]

            def record() -> Sequence[ChunkRecord]:
                done, waiting = self._divide_after(attempt, AttemptState.SUCCEEDED, parts)
                self._without_stream(done).finish(self._world, AttemptState.SUCCEEDED, ChunkState.DONE, problems)
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
        elif divisible(paths) and (is_last or is_part_of_tried(self._passes, chunk)):
            parts = [(half, chunk.brick) for half in halves(paths)]
            record = partial(self._divide_after, attempt, AttemptState.FAILED, parts)
            first, second = await self._world.ledger.write(record)
            message = (
                f"chunk {chunk.number} keeps failing ({result.message}): split into {first.number} and {second.number}"
            )
            self._report(EventKind.CHUNK_SPLIT, Severity.WARNING, chunk, message)
        elif not is_last:
            return await self._try_again(attempt, failures, result.message)
        else:
            stderr_text = show(attempt.stderr_tail[-_SHOWN_STDERR_BYTES:].strip())
            reason = f"{result.message}; {stderr_text}" if stderr_text else result.message
            bad = [
                FileProblem(path=listed.path, kind=FileProblemKind.BAD, errno=None, reason=reason) for listed in paths
            ]
            await self._finish(attempt, AttemptState.FAILED, ChunkState.FAILED, bad)
            self._report(EventKind.CHUNK_FAILED, Severity.ERROR, chunk, f"chunk {chunk.number} failed: {reason}")
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
        self._report(EventKind.CHUNK_RETRIED, Severity.INFO, chunk, message)

    async def held(self, attempt: Attempt, result: Result) -> float | None:
        """Settle an attempt that failed while storage of the target is lost, since the chunk is not to blame. The chunk
        waits for at least the returned time (None: not settled). A stop of the pool names the storage target.
        """
        watch, reason = self._pass.storage, result.stop[0] if result.stop else None
        if reason is StopReason.DISCONNECTED and self._pass.beside_commit:
            await self.interrupted(attempt)
            self._retried(attempt.chunk, f"{result.message}; {_BESIDE_COMMIT}")
            return delay_s(1)
        if watch is None or (result.verdict is AttemptVerdict.DONE and not result.bad):
            return None
        words = ""
        if reason is StopReason.TARGET_FULL:
            words = await watch.fullest_targets()
        elif (result.verdict is not AttemptVerdict.STOP or reason in _HELD_REASONS) and (lost := await watch.look()):
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
        return OpenAttempt(id=intend(self._pass, chunk, token=self._world.tokens()))

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
            self._pass.invocation.report(
                EventKind.FILE_BAD, Severity.WARNING, show(problem.path), f"{show(problem.path)}: {problem.reason}"
            )

    def _retried(self, chunk: ChunkRecord, why: str) -> None:
        self._report(EventKind.CHUNK_RETRIED, Severity.INFO, chunk, f"chunk {chunk.number} is tried again: {why}")

    def _count_failure(self, chunk: ChunkRecord) -> int:
        count = self._pass.failures[chunk.id] = self._pass.failures.get(chunk.id, 0) + 1
        return count

    def _report(self, kind: EventKind, severity: Severity, chunk: ChunkRecord, message: str) -> None:
        subject = f"batch {self._pass.batch.number}, chunk {chunk.number}"
        self._pass.invocation.report(kind, severity, subject, message)

    def tree_gone(self, chunk: ChunkRecord) -> None:
        """Report once that a whole tree has vanished."""
        if chunk.tree not in self._pass.trees_gone:
            self._pass.trees_gone.add(chunk.tree)
            message = f"the user tree {show(chunk.tree)} has vanished since the scan: nothing of it can be copied"
            self._report(EventKind.FILE_BAD, Severity.WARNING, chunk, message)


def is_part_of_tried(passes: "PassRecords", chunk: ChunkRecord) -> bool:
    """Whether there was an attempt at a chunk that this one is a part of."""
    return bool(attempts_before(passes, chunk.parent_id))


def attempts_before(passes: "PassRecords", chunk_id: int | None) -> Sequence[AttemptRecord]:
    """The attempts at a chunk and at those that it is a part of (None: there is none)."""
    if chunk_id is None:
        return ()
    return (*attempts_before(passes, passes.chunk(chunk_id).parent_id), *passes.attempts_of_chunk(chunk_id))
