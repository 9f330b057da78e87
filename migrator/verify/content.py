"""Content read by hosts: each unit of files on a host of its brick or of a copy, both sides at once, or the target alone."""

import asyncio
import itertools
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

from migrator.catalog.model import CatalogRecord, ContentReading
from migrator.core.clock import Clock
from migrator.core.errors import MigratorError, Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.states import ChunkKind
from migrator.core.tasks import SharedCall, task_group
from migrator.core.units import GIB, NS_PER_S
from migrator.fs.model import DigestPolicy
from migrator.operations.run_files import output_of
from migrator.scan.marks import ReadMarks
from migrator.transfer.governor import LOOK_EVERY_S, Governing, Governor
from migrator.transfer.model import ChunkRecord, CopiedChunk, PassRecord
from migrator.transfer.ports import BrickLook, BrickRefused, Way
from migrator.transfer.routes import HostLane, VolumeGuard, copy_on, shared_looks
from migrator.verify.digests import Known, equal_readings, known_of, read_lines, told_of

if TYPE_CHECKING:
    from migrator.catalog.manifest import ReadingParts
    from migrator.plan.chunk_lists import ChunkListFiles

HOSTS_ALGORITHM = "xxh3_128"
"""The algorithm of the compiled program. Content is read with others by this machine alone."""

KINDS = (ChunkKind.FILES, ChunkKind.RANGED_FILES)
"""Kinds of chunks that list every file once, by its whole name."""
_PAUSES_S = (2.0, 5.0, 10.0, 30.0, 60.0, 60.0)
"""Pauses between tries on a host that fails, or whose job still waits for a node."""
_UNIT_FILES, _UNIT_BYTES = 1000, GIB
"""The most that is read together of several chunks."""


class Readers(Struct, frozen=True, kw_only=True):
    """The hosts that read content, and the chunk lists of the batch's passes. `guard` None: the source has no bricks. `scan`
    lists trees from the bricks, and raises Refused if that cannot be, and `marks` reads those on all copies; None: no host reads
    bricks. `governing` has the limits of
    streams; None: there are none. `reread`: read the source's content even if it was digested while it was copied.
    `frozen`: a user waits for the result, so pauses and windows do not hold.
    """

    lanes: Sequence[HostLane]
    guard: VolumeGuard | None
    chunk_lists: "ChunkListFiles"
    governing: Governing | None = None
    scan: Callable[[Sequence[bytes]], Awaitable[CatalogRecord]] | None = None
    marks: ReadMarks | None = None
    reread: bool = False
    frozen: bool = False


class _Listed(Struct, frozen=True):
    of_pass: PassRecord
    copied: CopiedChunk

    @property
    def chunk(self) -> ChunkRecord:
        return self.copied.chunk

    @property
    def name(self) -> str:
        return f"{self.of_pass.id:06d}-{self.chunk.number:08d}"


class Unit(Struct, frozen=True, kw_only=True):
    """Files that are read together. Their readings are recorded under `name`, so it has to name the same files when the work is
    resumed. `brick` is the one with their content; None: it is read through the mount. `known` returns what is known of them
    (blocking).
    """

    name: str
    brick: str | None = None
    files: int
    size_bytes: int
    known: Callable[[], Known]


class Filling(Struct):
    """How much is in a unit so far."""

    files: int = 0
    size_bytes: int = 0

    def takes(self, files: int, size_bytes: int) -> bool:
        """Count more files, if there is room. The first always fit."""
        more = self.files + files, self.size_bytes + size_bytes
        if self.files and (more[0] > _UNIT_FILES or more[1] > _UNIT_BYTES):
            return False
        self.files, self.size_bytes = more
        return True


def _groups(listed: Iterable[_Listed]) -> list[list[_Listed]]:
    """Chunks of one brick that are read together, in the order of their passes: nightly passes leave hundreds of chunks of a few
    files each, and the start of a program for each would take longer than to read them.
    """
    groups: list[list[_Listed]] = []
    filling: dict[str | None, tuple[list[_Listed], Filling]] = {}
    for one in listed:
        chunk = one.chunk
        group, filled = filling.get(chunk.brick, ([], Filling()))
        if not group or not filled.takes(chunk.files, chunk.size_bytes):
            group, filled = filling[chunk.brick] = [], Filling(chunk.files, chunk.size_bytes)
            groups.append(group)
        group.append(one)
    return groups


@dataclass(slots=True, kw_only=True)
class ContentPass:
    """Reads files, and records in `parts` those whose content is equal on both sides; with `of_target`, those that have the known
    content on the target, which every host can read.

    It decides nothing: a reading counts only as long as both files are what they were (`is_carried_over`), and the comparison
    reads through the mounts whatever has no such reading: files that changed, differ, cannot be read, or are not listed, and
    chunks of lost hosts. A brick is read only while the volume is quiet before and after the chunk.

    `reading` has the clocks of both sides from before any content is read; `copies` are as in `Routes`.
    """

    readers: Readers
    parts: "ReadingParts"
    reading: ContentReading
    policy: DigestPolicy
    clock: Clock
    say: Callable[[EventKind, Severity, str], None]
    of_target: bool = False
    copies: Mapping[str, Sequence[str]] = field(default_factory=dict)
    governor: Governor | None = None
    read_files: int = field(init=False, default=0)
    read_bytes: int = field(init=False, default=0)
    _looks: SharedCall[BrickLook] = field(init=False)
    _lost: set[str] = field(init=False, default_factory=set)
    _failures: dict[str, int] = field(init=False, default_factory=dict)
    _lanes: Sequence[HostLane] = field(init=False, default=())
    _queues: dict[str | None, deque[Unit]] = field(init=False, default_factory=dict)
    _at_work: Counter[str] = field(init=False, default_factory=Counter)
    _said: set[str] = field(init=False, default_factory=set)
    _synced: dict[str, asyncio.Task[None]] = field(init=False, default_factory=dict)
    _numbers: "itertools.count[int]" = field(init=False, default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._looks = shared_looks(self.readers.guard, self.clock)

    async def run(self, passes: Iterable[tuple[PassRecord, Sequence[CopiedChunk]]], trees: Collection[bytes]) -> None:
        """Read the listed files of some trees: all chunks of `KINDS`. As `read`."""
        listed = [_Listed(one, copied) for one, some in passes for copied in some if copied.chunk.tree in trees]
        await self.read(map(self._unit, _groups(listed)))

    def _unit(self, group: Sequence[_Listed]) -> Unit:
        return Unit(
            name=f"{group[0].name}-{group[-1].name}",
            brick=group[0].chunk.brick,
            files=sum(one.chunk.files for one in group),
            size_bytes=sum(one.chunk.size_bytes for one in group),
            known=partial(self._known_of, group),
        )

    async def read(self, units: Iterable[Unit]) -> None:
        """Read all units that were not read before. May be called once. Raises OSError if the results cannot be written."""
        waiting = [unit for unit in units if not self.parts.has(unit.name)]
        try:
            left = await self._read_all(waiting, by_bricks=True)
            await self._read_all(left, by_bricks=False)
        finally:
            self._looks.abandon()

    async def _read_all(self, units: Iterable[Unit], *, by_bricks: bool) -> list[Unit]:
        """Read units on their lanes; return those that were not read."""
        self._lanes = [lane for lane in self.readers.lanes if lane.jobs and (by_bricks or self._serves(lane, None))]
        self._queues = {}
        for unit in units:
            served = any(unit.brick is not None and self._serves(lane, unit.brick) for lane in self._lanes)
            self._queues.setdefault(unit.brick if served else None, deque()).append(unit)
        left: list[Unit] = []
        async with task_group() as group:
            for lane in self._lanes:
                for _ in range(min(lane.jobs, sum(map(len, self._of(lane))))):
                    group.create_task(self._work(lane, left))
        return [*left, *(unit for queue in self._queues.values() for unit in queue)]

    def _of(self, lane: HostLane) -> list[deque[Unit]]:
        """The queues with units that a lane may take."""
        return [queue for brick, queue in self._queues.items() if queue and self._serves(lane, brick)]

    def _serves(self, lane: HostLane, brick: str | None) -> bool:
        if brick is None:
            return lane.reads_mount or self.of_target
        return copy_on(lane, brick, self.copies) is not None

    async def _work(self, lane: HostLane, left: list[Unit]) -> None:
        while (queues := self._of(lane)) and lane.host not in self._lost:
            if not self._may_begin(lane):
                await self.clock.sleep(LOOK_EVERY_S)
                continue
            queue = max(queues, key=len)
            unit, number = queue.popleft(), next(self._numbers)
            self._at_work[lane.host] += 1
            if self.governor is not None:
                self.governor.begin(number, lane.host, hosts=self._hosts)
            pause_s = 0.0
            try:
                was_read = await self._read(lane, unit, number)
                self._failures.pop(lane.host, None)
            except BrickRefused as error:
                was_read = False
                self._say_once(f"the content of a brick is read through the mount: {error.message}")
            except MigratorError as error:
                was_read, pause_s = False, self._after_failure(lane, error)
            finally:
                self._at_work[lane.host] -= 1
                if self.governor is not None:
                    self.governor.end(number)
            if pause_s:
                queue.append(unit)
                await self.clock.sleep(pause_s)
            elif not was_read:
                left.append(unit)

    def _after_failure(self, lane: HostLane, error: MigratorError) -> float:
        """Seconds until the chunk is tried again on this host; 0 if the host counts as lost."""
        failures = self._failures[lane.host] = self._failures.get(lane.host, 0) + 1
        # While a user waits frozen, this machine reads what a host does not.
        if lane.host not in self._lost and failures <= len(_PAUSES_S) and not self.readers.frozen:
            return _PAUSES_S[failures - 1]
        self._lost.add(lane.host)
        self._say_once(f"host {lane.host} reads no content any more: {error.message}")
        return 0.0

    @property
    def _hosts(self) -> set[str]:
        """Hosts with a chunk to take, or with streams: only those need a share of a limit."""
        return {lane.host for lane in self._lanes if self._at_work[lane.host] or self._of(lane)} - self._lost

    def _may_begin(self, lane: HostLane) -> bool:
        return self.governor is None or self.governor.may_begin(lane.host, hosts=self._hosts)

    async def _read(self, lane: HostLane, unit: Unit, number: int) -> bool:
        """Read both sides of a unit, each within the limit; False if the volume was not quiet. Raises MigratorError."""
        known = await asyncio.to_thread(unit.known)
        to_read = [known.paths[place] for place in known.unread]
        brick = copy_on(lane, unit.brick, self.copies)
        if brick is not None and to_read and not await self._is_quiet(brick):
            return False
        way = await lane.way(brick)
        await self._sync(lane, way)
        async with task_group() as group:
            tokens = [secrets.token_hex(16) for _side in ("source", "target")]

            def change(share: int | None) -> None:
                for token in tokens:
                    way.executor.limit(token, share)

            share = None if self.governor is None else self.governor.share_of(number)
            if self.governor is not None:
                self.governor.follow(number, change)
            source, target = (
                group.create_task(self._digests(way, some, token, of_target=bool(side), bwlimit_bytes_per_s=share))
                for side, (token, some) in enumerate(zip(tokens, (to_read, known.paths), strict=True))
            )
        if brick is not None and to_read and not await self._is_quiet(brick):
            return False
        equal = await asyncio.to_thread(equal_readings, known, source.result(), target.result(), self.reading)
        await asyncio.to_thread(self.parts.add, unit.name, equal)
        self.read_files += len(known.paths)
        self.read_bytes += known.size_bytes
        return True

    def _known_of(self, group: Sequence[_Listed]) -> Known:
        """The paths to compare, and what the streams that copied them digested."""
        told: list[pa.RecordBatch] = []
        for listed in group:
            chunk, copied = listed.chunk, listed.copied
            try:
                paths = self.readers.chunk_lists.paths(chunk.list_path or listed.of_pass.chunk_list, chunk.number)
            except Refused as error:
                # A list of a finished pass was removed since: that is no reason against a verification.
                self._say_once(f"hosts do not read the files of a pass: {error.message}")
                continue
            output = b""
            if copied.directory is not None and copied.attempt_id is not None and not self.readers.reread:
                with suppress(OSError):
                    output = output_of(copied.directory, chunk.number, copied.attempt_id).read_bytes()
            begun_ns = int(listed.of_pass.started_at_s * NS_PER_S)
            told.append(told_of(paths.columns, output, tree=chunk.tree, clock_ns=begun_ns))
        return known_of(told, self.policy)

    async def _sync(self, lane: HostLane, way: Way) -> None:
        """Sync the target on a host once, before it reads there: only clean pages are dropped from its cache."""
        synced = self._synced.get(lane.host)
        if synced is None or (synced.done() and (synced.cancelled() or synced.exception() is not None)):
            self._synced[lane.host] = asyncio.create_task(way.executor.sync())
        with ToolFailed.of_files("the target cannot be synced there"):
            await asyncio.shield(self._synced[lane.host])

    async def _digests(
        self, way: Way, paths: Sequence[bytes], token: str, *, of_target: bool, bwlimit_bytes_per_s: int | None
    ) -> pa.RecordBatch:
        output = bytearray()
        if paths:
            completed = await way.executor.digest(
                paths,
                token=token,
                of_target=of_target,
                brick=None if of_target else way.brick,
                bwlimit_bytes_per_s=bwlimit_bytes_per_s,
                on_stdout=output.extend,
            )
            if completed.exit_code != 0:
                raise ToolFailed(f"the program that reads content ended with exit code {completed.exit_code}")
        return await asyncio.to_thread(read_lines, output)

    async def _is_quiet(self, brick: str) -> bool:
        look = await self._looks.begun_after_now()
        reasons = "; ".join(look.reasons) or look.held.get(brick, "")
        if reasons:
            self._say_once(f"the bricks are not read now, the mount is: {reasons}")
        return not reasons

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self.say(EventKind.VERIFY_STARTED, Severity.WARNING, message)
