"""Watching streams: samples for the ledger, snapshots for the screen, and stalled streams."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from migrator.core.progress import RunProgress, StreamProgress
from migrator.core.states import CONTENT_KINDS, ChunkKind
from migrator.core.tasks import cancel_and_wait, result_or_none, task_group
from migrator.hosts.ports import Activity
from migrator.transfer.context import PassUnderWay
from migrator.transfer.model import ChunkRecord, PassTotals, Sample, StreamCounters
from migrator.transfer.storage_watch import QUIET_S

if TYPE_CHECKING:
    from migrator.transfer.ports import StreamReader
    from migrator.transfer.stream import Stream

_RECENT_S = 60.0
_ANSWER_WITHIN_S = 5.0


class Meter:
    """Counts the work of all streams of one step, over chunks of these kinds."""

    def __init__(
        self,
        under_way: PassUnderWay,
        kinds: Sequence[ChunkKind],
        totals: PassTotals,
        *,
        activity: Activity | None = None,
    ) -> None:
        """`activity` is that of streams on this machine; None: use that of the world."""
        self._pass = under_way
        self._clock = under_way.world.clock
        self._activity = activity or under_way.world.activity
        self._storage = under_way.storage
        self._step = " and ".join(kind.value for kind in kinds)
        self._totals = totals
        self._live: dict[Stream, StreamReader] = {}
        self._done_files = totals.done_files
        self._done_bytes = totals.done_bytes
        self._bad = len(under_way.world.ledger.passes.attention(under_way.pass_id))
        self._ended = StreamCounters()
        self._sampled = StreamCounters()
        self._started_s = self._sampled_s = self._clock.monotonic_s()
        self._recent: deque[tuple[float, int, int]] = deque()
        """Moments within `_RECENT_S`: monotonic seconds, files, bytes."""

    def begin(self, stream: "Stream", reader: "StreamReader") -> None:
        """Record that a stream has started, and who reads its output."""
        stream.started_s = stream.moved_s = stream.sampled_s = self._clock.monotonic_s()
        self._live[stream] = reader

    def ended(self, stream: "Stream") -> None:
        """Record that a stream has ended, with any result."""
        self.wrote(self._live.pop(stream).counters)

    def wrote(self, counters: StreamCounters) -> None:
        """Count a copy that no stream counts."""
        self._ended += counters
        self._pass.tally.written_bytes += counters.size_bytes

    def chunk_done(self, chunk: ChunkRecord) -> None:
        """Record that a chunk of this step is done."""
        if chunk.kind in CONTENT_KINDS:
            self._done_files += chunk.files
            self._done_bytes += chunk.size_bytes

    def file_bad(self, count: int) -> None:
        """Count files that need attention."""
        self._bad += count

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Sample and show during the block, and after its end."""
        try:
            async with task_group() as group:
                watching = group.create_task(self._watch())
                yield
                await cancel_and_wait(watching)
        finally:
            self.finish()

    async def _watch(self) -> None:
        request = self._pass.request
        while True:
            await self._clock.sleep(request.progress_interval_s)
            now_s = self._clock.monotonic_s()
            await self._end_stalled(now_s)
            if self._storage is not None and self._storage.lost:
                self._storage.begin()
            self.show(now_s)
            if now_s - self._sampled_s >= request.sample_interval_s:
                before_s, before = self._sampled_s, self._sampled
                self.sample(now_s)
                if (governor := self._pass.governor) is not None:
                    governor.flowed(_minus(self._sampled, before), now_s - before_s)

    def finish(self) -> None:
        """Record the last sample, and show the last snapshot."""
        now_s = self._clock.monotonic_s()
        self.sample(now_s)
        self.show(now_s)

    def sample(self, now_s: float) -> None:
        """Record the throughput since the last sample, of all streams and of each."""
        whole = self._all_counters()
        interval_s = now_s - self._sampled_s
        if interval_s <= 0:
            return
        at_s = self._clock.now_s()

        def sample(attempt_id: int | None, interval_s: float, streams: int, moved: StreamCounters) -> Sample:
            return Sample(
                at_s=at_s,
                interval_s=interval_s,
                attempt_id=attempt_id,
                streams=streams,
                files=moved.files,
                size_bytes=moved.size_bytes,
            )

        samples = [sample(None, interval_s, len(self._live), _minus(whole, self._sampled))]
        for stream, reader in self._live.items():
            counters = reader.counters
            since_s = max(now_s - stream.sampled_s, 0.0)
            samples.append(sample(stream.id, since_s, 1, _minus(counters, stream.sampled)))
            stream.sampled, stream.sampled_s = counters, now_s
        self._sampled, self._sampled_s = whole, now_s
        ledger = self._pass.world.ledger
        ledger.later(partial(ledger.samples.add, self._pass.pass_id, samples))

    def show(self, now_s: float) -> None:
        """Publish a snapshot."""
        files, size_bytes = self._done_files, self._done_bytes
        for stream, reader in self._live.items():
            if stream.chunk.kind in CONTENT_KINDS:
                counters = reader.counters
                files += min(counters.files, stream.chunk.files)
                size_bytes += min(counters.size_bytes, stream.chunk.size_bytes)
        most = self._pass.tally.shown
        files, size_bytes = max(files, most.files), max(size_bytes, most.size_bytes)
        self._pass.tally.shown = StreamCounters(files=files, size_bytes=size_bytes)
        now = (now_s, files, size_bytes)
        self._recent.append(now)
        while now_s - self._recent[0][0] > _RECENT_S:
            self._recent.popleft()
        files_per_s, bytes_per_s = rates(self._recent[0], now)
        self._pass.world.progress.show(
            RunProgress(
                batch=self._pass.batch.number,
                step=self._step,
                elapsed_s=now_s - self._started_s,
                files=files,
                size_bytes=size_bytes,
                total_files=self._totals.files,
                total_bytes=self._totals.size_bytes,
                rate_bytes_per_s=bytes_per_s,
                rate_files_per_s=files_per_s,
                eta_s=seconds_left(
                    self._totals.files - files,
                    self._totals.size_bytes - size_bytes,
                    files_per_s=files_per_s,
                    bytes_per_s=bytes_per_s,
                ),
                bad_files=self._bad,
                streams=tuple(_progress_of(stream, one.counters, now_s) for stream, one in self._live.items()),
            )
        )

    def _all_counters(self) -> StreamCounters:
        return sum((reader.counters for reader in self._live.values()), self._ended)

    async def _end_stalled(self, now_s: float) -> None:
        """End streams that neither report progress nor move bytes or use the processor."""
        timeout_s = self._pass.request.stall_timeout_s
        quiet_s = timeout_s / 10 if self._storage is None else min(timeout_s / 10, QUIET_S)
        quiet: list[Stream] = []
        for stream, reader in self._live.items():
            counters = reader.counters
            if counters != stream.seen:
                stream.seen, stream.moved_s = counters, now_s
            elif now_s - stream.moved_s >= quiet_s:
                quiet.append(stream)
        if not quiet:
            return
        found = await self._activity_of(quiet)
        for stream in quiet:
            activity = found.get(stream.token)
            if activity is not None and activity != stream.activity:
                stream.activity, stream.moved_s = activity, now_s
                continue
            if self._waits_for_storage():
                # The stream gets the full timeout again when the storage is back.
                stream.moved_s = now_s - quiet_s
            elif now_s - stream.moved_s >= timeout_s and not stream.stalled:
                stream.stalled = True
                stream.end()

    async def _activity_of(self, streams: Sequence["Stream"]) -> Mapping[str, int]:
        """The activity of streams on their hosts, by token. A host that does not answer soon shows none."""
        world, timeout_s = self._pass.world, self._pass.request.stall_timeout_s
        by_host: dict[str, list[Stream]] = {}
        for stream in streams:
            by_host.setdefault(stream.executor.host, []).append(stream)

        async def ask(host: str, there: Sequence["Stream"]) -> Mapping[str, int]:
            tokens = [stream.token for stream in there]
            if host == world.own_host:
                asked = world.blocking(lambda: self._activity(tokens), timeout_s=timeout_s)
            else:
                asked = asyncio.wait_for(there[0].executor.activity(tokens), min(timeout_s, _ANSWER_WITHIN_S))
            return await result_or_none(asked) or {}

        answers = await asyncio.gather(*(ask(*one) for one in by_host.items()))
        return {token: value for answer in answers for token, value in answer.items()}

    def _waits_for_storage(self) -> bool:
        """Whether a quiet stream waits for a server of the target that is known to be down."""
        if self._storage is None:
            return False
        self._storage.begin()
        return bool(self._storage.lost) and self._pass.waits_for_storage


def _progress_of(stream: "Stream", counters: StreamCounters, now_s: float) -> StreamProgress:
    elapsed_s = now_s - stream.started_s
    return StreamProgress(
        stream=stream.slot,
        host=stream.executor.host,
        chunk=stream.chunk.number,
        tree=stream.chunk.tree,
        files=counters.files,
        size_bytes=counters.size_bytes,
        total_files=stream.chunk.files,
        total_bytes=stream.chunk.size_bytes,
        rate_bytes_per_s=counters.size_bytes / elapsed_s if elapsed_s > 0 else 0.0,
        elapsed_s=elapsed_s,
    )


def _minus(one: StreamCounters, other: StreamCounters) -> StreamCounters:
    return StreamCounters(files=max(one.files - other.files, 0), size_bytes=max(one.size_bytes - other.size_bytes, 0))


def rates(before: tuple[float, int, int], now: tuple[float, int, int]) -> tuple[float, float]:
    """Files and bytes per second between two points, each a time in seconds, files and bytes. 0 if no time has passed."""
    over_s = now[0] - before[0]
    if over_s <= 0:
        return 0.0, 0.0
    return max(now[1] - before[1], 0) / over_s, max(now[2] - before[2], 0) / over_s


def seconds_left(files: int, size_bytes: int, *, files_per_s: float, bytes_per_s: float) -> float | None:
    """The remaining time at this rate; None if the rate does not cover the remaining work. The slower of files and
    bytes counts, since files per second bound many small files.
    """
    left = [(one, per_s) for one, per_s in ((files, files_per_s), (size_bytes, bytes_per_s)) if one > 0]
    if any(per_s <= 0 for _, per_s in left):
        return None
    return max((one / per_s for one, per_s in left), default=0.0)
