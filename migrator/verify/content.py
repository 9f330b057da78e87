"""Content read by hosts: each group of files on a host of its brick or of a copy, both sides at once, or the target alone."""

import asyncio
import itertools
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
from msgspec import Struct

from migrator.catalog.copy_digests import no_digests, read_lines
from migrator.catalog.model import CatalogRecord, ContentReading
from migrator.core.clock import Clock
from migrator.core.errors import MigratorError, Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.states import ChunkKind
from migrator.core.tasks import task_group
from migrator.core.units import GIB, NS_PER_S
from migrator.fs.model import DigestPolicy
from migrator.hosts.ports import HostLost
from migrator.scan.marks import ReadMarks
from migrator.transfer.governor import Governing, Governor
from migrator.transfer.model import ChunkRecord, CopiedChunk, PassRecord
from migrator.transfer.pool import run_pool
from migrator.transfer.ports import BrickRefused, ConnectedHost
from migrator.transfer.queue import WorkQueue
from migrator.transfer.routes import HostLane, Routes, VolumeGuard
from migrator.verify.digests import Known, equal_readings, known_of, reported_of

if TYPE_CHECKING:
    from migrator.catalog.copy_digests import CopyDigests
    from migrator.catalog.manifest import ReadingParts
    from migrator.plan.chunk_lists import ChunkListFiles

HOSTS_ALGORITHM = "xxh3_128"
"""The algorithm of the compiled program. Content is read with others by this machine alone."""

KINDS = (ChunkKind.FILES, ChunkKind.RANGED_FILES)
"""Kinds of chunks that list every file once, by its whole name."""
PATIENCE_S = 180.0
"""How long a host may fail, or its job may wait for a node, until its files are left to the others and to the comparison."""
_TRIES = 5
"""A group that hosts failed to read this often is left to the comparison."""
_GROUP_FILES, _GROUP_BYTES = 1000, GIB
"""The most that is read in one group."""


class Readers(Struct, frozen=True, kw_only=True):
    """The hosts that read content, and the chunk lists of the batch's passes."""

    lanes: Sequence[HostLane]
    guard: VolumeGuard | None
    """None: the source has no bricks."""
    chunk_lists: "ChunkListFiles"
    copy_digests: "CopyDigests | None" = None
    """The digests of what streams copied; None: all content of the source is read."""
    governing: Governing | None = None
    """The limits of streams; None: there are none."""
    scan: Callable[[Sequence[bytes]], Awaitable[CatalogRecord]] | None = None
    """Lists trees from the bricks; raises Refused if it cannot. None: no host reads bricks."""
    marks: ReadMarks | None = None
    """Reads the marks on all copies; None as for `scan`."""
    frozen: bool = False
    """A user waits for the result, so pauses and windows do not hold."""


class _Listed(Struct, frozen=True):
    of_pass: PassRecord
    copied: CopiedChunk

    @property
    def chunk(self) -> ChunkRecord:
        return self.copied.chunk

    @property
    def name(self) -> str:
        return f"{self.of_pass.id:06d}-{self.chunk.number:08d}"


class FileGroup(Struct, frozen=True, kw_only=True):
    """Files that are read together: the work of a lane. Their readings are recorded under `name`, so it has to name the same files
    when the work is resumed. `brick` is the one with their content; None: it is read through the mount. `known` returns what is
    known of them (blocking).
    """

    number: int
    name: str
    brick: str | None = None
    files: int
    size_bytes: int
    known: Callable[[], Known]

    @property
    def id(self) -> int:
        """See `Work`."""
        return self.number


class WaitingGroups:
    """The groups that are not read (see `Backlog`)."""

    def __init__(self, groups: Iterable[FileGroup]) -> None:
        self._of_brick: dict[str | None, dict[int, FileGroup]] = {}
        for group in sorted(groups, key=_largest_first):
            self._of_brick.setdefault(group.brick, {})[group.number] = group

    @property
    def bricks(self) -> Collection[str | None]:
        """See `Backlog`."""
        return self._of_brick.keys()

    def waiting(self, limit: int, bricks: Collection[str | None] | None = None) -> Sequence[FileGroup]:
        """See `Backlog`."""
        some = self._of_brick.keys() if bricks is None else bricks
        found = [group for brick in some for group in islice(self._of_brick.get(brick, {}).values(), limit)]
        return sorted(found, key=_largest_first)[:limit]

    def remove(self, group: FileGroup) -> None:
        """Remove a group that was read, or that no lane can read."""
        self._of_brick[group.brick].pop(group.number, None)


def _largest_first(group: FileGroup) -> tuple[int, int]:
    return -group.size_bytes, group.number


class Filling(Struct):
    """How much is in a group so far."""

    files: int = 0
    size_bytes: int = 0

    def takes(self, files: int, size_bytes: int) -> bool:
        """Count more files, if there is room. The first always fit."""
        more = self.files + files, self.size_bytes + size_bytes
        if self.files and (more[0] > _GROUP_FILES or more[1] > _GROUP_BYTES):
            return False
        self.files, self.size_bytes = more
        return True


def _together(listed: Iterable[_Listed]) -> list[list[_Listed]]:
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
class ContentReader:
    """The kind of work (see `WorkKind`) that reads files, and records in `parts` those whose content is equal on both sides; with
    `of_target`, those that have the known content on the target, which every host can read.

    It decides nothing: a reading counts only as long as both files are what they were (`is_carried_over`), and the comparison
    reads through the mounts whatever has no such reading: files that changed, differ, cannot be read, or are not listed, and
    groups that every host failed to read. A brick is read only while the volume is quiet before and after the group.

    `reading` has the clocks of both sides from before any content is read; `copies` are as in `Routes`.
    """

    readers: Readers
    parts: "ReadingParts"
    reading: ContentReading
    policy: DigestPolicy
    clock: Clock
    report: Callable[[EventKind, Severity, str], None]
    of_target: bool = False
    copies: Mapping[str, Sequence[str]] = field(default_factory=dict)
    governor: Governor | None = None
    read_files: int = field(init=False, default=0)
    read_bytes: int = field(init=False, default=0)
    _routes: Routes = field(init=False)
    _waiting: WaitingGroups = field(init=False)
    _failures: Counter[int] = field(init=False, default_factory=Counter)
    _said: set[str] = field(init=False, default_factory=set)
    _synced: dict[str, asyncio.Task[None]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._routes = Routes(
            clock=self.clock,
            report=lambda kind, severity, _subject, message: self.report(kind, severity, message),
            lanes=[lane for lane in self.readers.lanes if lane.jobs],
            guard=self.readers.guard,
            copies=self.copies,
            target_alone=self.of_target,
            # While a user waits frozen, this machine reads what a host does not.
            patience_s=0.0 if self.readers.frozen else PATIENCE_S,
        )

    async def read_chunks(
        self, passes: Iterable[tuple[PassRecord, Sequence[CopiedChunk]]], trees: Collection[bytes]
    ) -> None:
        """Read the listed files of some trees: all chunks of `KINDS`. As `read`."""
        listed = [_Listed(one, copied) for one, some in passes for copied in some if copied.chunk.tree in trees]
        await self.read(map(self._group, itertools.count(), _together(listed)))

    def _group(self, number: int, listed: Sequence[_Listed]) -> FileGroup:
        return FileGroup(
            number=number,
            name=f"{listed[0].name}-{listed[-1].name}",
            brick=listed[0].chunk.brick,
            files=sum(one.chunk.files for one in listed),
            size_bytes=sum(one.chunk.size_bytes for one in listed),
            known=partial(self._known_of, listed),
        )

    async def read(self, groups: Iterable[FileGroup]) -> None:
        """Read all groups that were not read before. May be called once. Raises OSError if the results cannot be written."""
        self._waiting = WaitingGroups(group for group in groups if not self.parts.has(group.name))
        queue = WorkQueue[FileGroup](self._waiting, self._routes, clock=self.clock, governor=self.governor)
        try:
            await run_pool(self, queue, self._routes, governor=self.governor, workers=set())
        finally:
            self._routes.abandon()

    @property
    def stopped(self) -> bool:
        """See `WorkKind`."""
        return False

    def held(self) -> bool:
        """See `WorkKind`."""
        return False

    async def carry_out(self, group: FileGroup, lane: HostLane, _slot: int, /) -> float | None:
        """See `WorkKind`: read both sides of a group."""
        brick = self._routes.copy_on(lane, group.brick)
        finds = self._routes.finds.get(lane.host, 0)
        if brick is None and not self._routes.reads_without_brick(lane):
            return None
        try:
            was_read = await self._read(group, lane, brick)
        except BrickRefused as error:
            self._routes.refuse(str(brick), error)
            return None
        except MigratorError as error:
            lost = HostLost(error.message, cause=error.cause, hint=error.hint)
            self._routes.lose(lane, lost, unfit=not isinstance(error, HostLost), finds=finds)
            self._failures[group.number] += 1
            if self._failures[group.number] >= _TRIES:
                self._waiting.remove(group)
            return None
        self._routes.worked(lane)
        if was_read:
            self._waiting.remove(group)
        return None

    async def _read(self, group: FileGroup, lane: HostLane, brick: str | None) -> bool:
        """Read both sides of a group, each within the limit; False if the volume was not quiet. Raises MigratorError."""
        known = await asyncio.to_thread(group.known)
        to_read = [known.paths[place] for place in known.unread]
        of_brick = brick if to_read else None
        closings = self._routes.closings_of(of_brick)
        if of_brick is not None and not await self._routes.quiet_before(of_brick):
            return False
        connected = await lane.connect(brick)
        await self._sync(lane, connected)
        async with task_group() as tasks:
            tokens = [secrets.token_hex(16) for _side in ("source", "target")]

            def change(share: int | None) -> None:
                for token in tokens:
                    connected.executor.limit(token, share)

            share = None if self.governor is None else self.governor.share_of(group.id)
            if self.governor is not None:
                self.governor.follow(group.id, change)
            source, target = (
                tasks.create_task(
                    self._digests(connected, some, token, of_target=bool(side), bwlimit_bytes_per_s=share)
                )
                for side, (token, some) in enumerate(zip(tokens, (to_read, known.paths), strict=True))
            )
        if of_brick is not None:
            quiet = await self._routes.quiet_now(of_brick)
            if not quiet or self._routes.closings_of(of_brick) != closings:
                return False
        equal = await asyncio.to_thread(equal_readings, known, source.result(), target.result(), self.reading)
        await asyncio.to_thread(self.parts.add, group.name, equal)
        self.read_files += len(known.paths)
        self.read_bytes += known.size_bytes
        return True

    def _known_of(self, chunks: Sequence[_Listed]) -> Known:
        """The paths to compare, and what the streams that copied them digested."""
        reported: list[pa.RecordBatch] = []
        for listed in chunks:
            chunk, copied = listed.chunk, listed.copied
            try:
                paths = self.readers.chunk_lists.paths(chunk.list_path or listed.of_pass.chunk_list, chunk.number)
            except Refused as error:
                # A list of a finished pass was removed since: that is no reason against a verification.
                self._report_once(f"hosts do not read the files of a pass: {error.message}")
                continue
            digests = no_digests()
            if copied.token is not None and self.readers.copy_digests is not None:
                digests = self.readers.copy_digests.read(copied.token)
            begun_ns = int(listed.of_pass.started_at_s * NS_PER_S)
            reported.append(reported_of(paths.columns, digests, tree=chunk.tree, clock_ns=begun_ns))
        return known_of(reported, self.policy)

    async def _sync(self, lane: HostLane, connected: ConnectedHost) -> None:
        """Sync the target on a host once, before it reads there: only clean pages are dropped from its cache."""
        synced = self._synced.get(lane.host)
        if synced is None or (synced.done() and (synced.cancelled() or synced.exception() is not None)):
            self._synced[lane.host] = asyncio.create_task(connected.executor.sync())
        with ToolFailed.of_files("the target cannot be synced there"):
            await asyncio.shield(self._synced[lane.host])

    async def _digests(
        self,
        connected: ConnectedHost,
        paths: Sequence[bytes],
        token: str,
        *,
        of_target: bool,
        bwlimit_bytes_per_s: int | None,
    ) -> pa.RecordBatch:
        output = bytearray()
        if paths:
            completed = await connected.executor.digest(
                paths,
                token=token,
                of_target=of_target,
                brick=None if of_target else connected.brick,
                bwlimit_bytes_per_s=bwlimit_bytes_per_s,
                on_stdout=output.extend,
            )
            if completed.exit_code != 0:
                raise ToolFailed(f"the program that reads content ended with exit code {completed.exit_code}")
        return await asyncio.to_thread(read_lines, output)

    def _report_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            self.report(EventKind.VERIFY_STARTED, Severity.WARNING, message)
