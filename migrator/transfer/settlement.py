"""The consequences of an attempt: chunk done, retried, split, failed, or a stop of the pool."""

from collections.abc import Sequence

from migrator.catalog.rules_packing import Paths, divisible, halves, set_apart, total_bytes
from migrator.core.events import EventKind, Severity
from migrator.core.paths import show
from migrator.core.states import AttemptState, ChunkKind, ChunkState
from migrator.plan.model import Chunk, ListedPath
from migrator.transfer.attempt import Attempt, OpenAttempt, Result, intend
from migrator.transfer.context import LOG, PassUnderWay
from migrator.transfer.meter import Meter
from migrator.transfer.model import ChunkRecord, FileProblem, FileProblemKind, StopReason, Verdict
from migrator.transfer.rules import MOST_INTERRUPTIONS, TRIES, delay_s

_SHOWN_STDERR_BYTES = 300
_HELD_REASONS = frozenset({StopReason.TARGET_STUCK, StopReason.IO_ERROR, StopReason.DISCONNECTED})
"""Symptoms of a server that is down: they do not stop a pass that can wait."""


class Settlement:
    """Records the results of attempts and chunks. Only `held` awaits anything, so a cancellation cannot separate the
    parts.
    """

    def __init__(self, under_way: PassUnderWay, meter: Meter) -> None:
        self._pass = under_way
        self._world = under_way.world
        self._passes = under_way.world.ledger.passes
        self._meter = meter

    def follow(self, chunk: ChunkRecord, paths: Sequence[ListedPath], attempt: Attempt, result: Result) -> float | None:
        """Record the result of an attempt and its consequences. Returns the delay of a chunk that is tried again."""
        outcome = {"verdict": result.verdict.value, "exit_code": attempt.exit_code, "said": result.message}
        LOG.info("attempt ended", extra={**attempt.facts, **outcome})
        if result.verdict is Verdict.STOP and result.stop is not None:
            self.interrupted(attempt)
            self._pass.stop(*result.stop)
            return None
        if result.verdict is Verdict.INTERRUPTED:
            count = self._pass.interruptions[chunk.id] = self._pass.interruptions.get(chunk.id, 0) + 1
            if count <= MOST_INTERRUPTIONS:
                self.interrupted(attempt)
                if not result.told:
                    self._retried(chunk, f"its stream was ended by something else: {result.message}")
                return delay_s(count)
        if result.verdict is not Verdict.DONE:
            return self._failed(chunk, paths, attempt, result)
        if bad := (*result.bad, *result.again):
            return self._with_bad_files(chunk, paths, attempt, result, bad)
        attempt.finish(self._world, AttemptState.SUCCEEDED, ChunkState.DONE, (*result.vanished, *result.changed))
        self._done(chunk, paths)
        return None

    def _with_bad_files(
        self,
        chunk: ChunkRecord,
        paths: Sequence[ListedPath],
        attempt: Attempt,
        result: Result,
        bad: Sequence[FileProblem],
    ) -> float | None:
        """Set bad files apart in a chunk of their own, and finish the rest: bad files do not fail their chunk. Files
        that a brick did not yield are read through the mount next: only that proves that a file is bad, or has moved.
        """
        rest, apart = set_apart(paths, {problem.path for problem in bad})
        why = f"{show(bad[0].path)}: {bad[0].reason}"
        if rest and apart:
            parts = ((rest, chunk.brick), (apart, None))
            done, waiting = self.divide(chunk, attempt, AttemptState.SUCCEEDED, parts)
            LOG.info("chunk %s: bad files set apart in chunk %s: %s", chunk.number, waiting.number, len(bad))
            in_rest = {listed.path for listed in rest}
            told = [problem for problem in (*result.vanished, *result.changed) if problem.path in in_rest]
            self.without_stream(done).finish(self._world, AttemptState.SUCCEEDED, ChunkState.DONE, told)
            self._done(done, rest)
            return None
        if chunk.brick is not None:
            self._through_mount(chunk, paths, attempt, why)
            return None
        failures = self._count_failure(chunk)
        if failures < TRIES:
            return self._try_again(chunk, attempt, failures, why)
        attempt.finish(self._world, AttemptState.FAILED, ChunkState.FAILED, (*bad, *result.vanished))
        self.bad(bad)
        return None

    def _failed(
        self, chunk: ChunkRecord, paths: Sequence[ListedPath], attempt: Attempt, result: Result
    ) -> float | None:
        """Settle an attempt that failed and blamed no file. A part of a split chunk is split again at once, and only a
        single path gets all its tries. So finding one bad file among n costs about 2 log2(n) attempts.
        """
        failures = self._count_failure(chunk)
        is_last = failures >= TRIES
        if chunk.brick is not None and is_last:
            self._through_mount(chunk, paths, attempt, result.message)
        elif divisible(paths) and (is_last or chunk.list_path is not None):
            parts = [(half, chunk.brick) for half in halves(paths)]
            first, second = self.divide(chunk, attempt, AttemptState.FAILED, parts)
            message = (
                f"chunk {chunk.number} keeps failing ({result.message}): split into {first.number} and {second.number}"
            )
            self._say(EventKind.CHUNK_SPLIT, Severity.WARNING, chunk, message)
        elif not is_last:
            return self._try_again(chunk, attempt, failures, result.message)
        else:
            said = show(attempt.stderr_tail[-_SHOWN_STDERR_BYTES:].strip())
            reason = f"{result.message}; {said}" if said else result.message
            bad = [
                FileProblem(path=listed.path, kind=FileProblemKind.BAD, errno=None, reason=reason) for listed in paths
            ]
            attempt.finish(self._world, AttemptState.FAILED, ChunkState.FAILED, bad)
            self._say(EventKind.CHUNK_FAILED, Severity.ERROR, chunk, f"chunk {chunk.number} failed: {reason}")
            self.bad(bad)
        return None

    def _try_again(self, chunk: ChunkRecord, attempt: Attempt, failures: int, why: str) -> float:
        attempt.finish(self._world, AttemptState.FAILED, ChunkState.PENDING)
        self._retried(chunk, why)
        return delay_s(failures)

    def interrupted(self, attempt: Attempt) -> None:
        """Record an attempt that was ended from outside, with its progress: its chunk is pending again."""
        attempt.finish(self._world, AttemptState.INTERRUPTED, ChunkState.PENDING)

    def _through_mount(self, chunk: ChunkRecord, paths: Sequence[ListedPath], attempt: Attempt, why: str) -> None:
        """Replace the chunk by one that is read through the mount, after its brick failed."""
        (instead,) = self.divide(chunk, attempt, AttemptState.FAILED, [(tuple(paths), None)])
        message = f"chunk {chunk.number} is read through the mount, as chunk {instead.number}: {why}"
        self._say(EventKind.CHUNK_RETRIED, Severity.INFO, chunk, message)

    async def held(self, chunk: ChunkRecord, attempt: Attempt, result: Result) -> float | None:
        """Settle an attempt that failed while storage of the target is lost, since the chunk is not to blame. The chunk
        waits for at least the returned time (None: not settled). A stop of the pool names the storage target.
        """
        watch, reason = self._pass.storage, result.stop[0] if result.stop else None
        if watch is None or (result.verdict is Verdict.DONE and not result.bad):
            return None
        words = ""
        if reason is StopReason.TARGET_FULL:
            words = await watch.full_words()
        elif (result.verdict is not Verdict.STOP or reason in _HELD_REASONS) and (lost := await watch.look()):
            words = "; ".join(lost)
            if self._pass.waits_for_storage:
                self.interrupted(attempt)
                self._retried(chunk, f"storage of the target is lost ({words})")
                return delay_s(1)
        if result.stop is not None and words:
            stop, detail = result.stop
            result.stop = stop, f"{detail}; {words}" if detail else words
        return None

    def without_stream(self, chunk: ChunkRecord) -> OpenAttempt:
        """Record an attempt that starts no stream."""
        return OpenAttempt(id=intend(self._pass, chunk))

    def divide(
        self,
        chunk: ChunkRecord,
        attempt: OpenAttempt,
        state: AttemptState,
        parts: Sequence[tuple[Paths, str | None]],
    ) -> Sequence[ChunkRecord]:
        """Replace a chunk by parts, each with the brick that it is read from (None: the mount).

        Lists are written before the ledger: a list that no chunk names does no harm.
        """
        number = self._passes.next_chunk_number(self._pass.pass_id)
        written: list[tuple[Chunk, str]] = []
        for offset, (part, brick) in enumerate(parts):
            piece = Chunk(
                number=number + offset,
                kind=chunk.kind,
                tree=chunk.tree,
                files=_files(chunk, part),
                size_bytes=total_bytes(part),
                brick=brick,
            )
            written.append((piece, self._world.chunk_lists.write_split(self._pass.pass_id, piece, part)))
        replaced = self._passes.split(chunk.id, written)
        attempt.finish(self._world, state, ChunkState.SPLIT)
        return replaced

    def _done(self, chunk: ChunkRecord, paths: Sequence[ListedPath]) -> None:
        files, size_bytes = _files(chunk, paths), total_bytes(paths)
        self._pass.tally.add(chunk, files, size_bytes)
        self._meter.chunk_done(chunk, files, size_bytes)
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


def _files(chunk: ChunkRecord, paths: Sequence[ListedPath]) -> int:
    """The number of files that these paths of a chunk count for: a ranged file counts when it is put in place."""
    return 0 if chunk.kind is ChunkKind.RANGES else len(paths)
