"""One attempt at one chunk: the stream, the files that did not arrive, and the sync that confirms it."""

import asyncio
import errno
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from migrator.catalog.model import ListedPath
from migrator.core.entry import Entry, EntryType
from migrator.core.errors import LockHeld, MigratorError, Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.paths import is_beneath, name, parent, show
from migrator.core.states import AttemptState, ChunkKind, ChunkState, PassKind
from migrator.core.tasks import SharedCall, through_cancellation
from migrator.core.units import MIB, several
from migrator.fs.ports import FileSystem, SourceFileSystem, TargetFileSystem
from migrator.gluster.volume import split_brain
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed, HostLost
from migrator.ledger.locks import of_call
from migrator.ledger.model import RunRecord, SiteRecord
from migrator.operations.run_files import last_heard_s
from migrator.site.model import DIRECT
from migrator.site.rules_guards import health_problems
from migrator.transfer import model
from migrator.transfer.context import LOG, Invocation, PassUnderWay, World
from migrator.transfer.executors import Executor
from migrator.transfer.guards import mounts_changed
from migrator.transfer.meter import Meter
from migrator.transfer.ports import ChunkWork, Engine, StreamReader, Way
from migrator.transfer.rules import is_leftover, is_stream_leftover, marks_name, part_name, stop_reason, temporary_marks

if TYPE_CHECKING:
    from migrator.plan.chunk_lists import ListedPaths
    from migrator.transfer.routes import Routes

Stop = tuple[model.StopReason, str]
"""The reason for stopping the pool of streams, and the detail."""

# Following one stream to its end, or ending it.


_END_TIMEOUT_S = 60.0

Start = Callable[..., Coroutine[Any, Any, Completed]]
"""Runs a command to its end on a host; it takes `tree`, `on_start`, `on_stdout` and `on_stderr`."""


class Unended(Exception):
    """A stream could not be ended: its attempt stays unfinished, and its chunk is not reissued."""


@dataclass(slots=True, kw_only=True, eq=False)
class OpenAttempt:
    """An attempt at a chunk, and the outcome of its last stream. `id` is that of the ledger."""

    id: int = 0
    counters: model.StreamCounters = field(default_factory=model.StreamCounters)
    exit_code: int | None = None
    stderr_tail: bytes = b""

    def finish(
        self,
        world: World,
        state: AttemptState,
        chunk_state: ChunkState,
        problems: Sequence[model.FileProblem] = (),
    ) -> None:
        """Record its end in the ledger, with the new state of its chunk. A part of a job of `Ledger.write`."""
        world.ledger.passes.finish(
            self.id,
            at_s=world.clock.now_s(),
            state=state.value,
            exit_code=self.exit_code,
            counters=self.counters,
            stderr_tail=self.stderr_tail,
            chunk_state=chunk_state,
            problems=problems,
        )


BY_DESCRIPTOR = "descriptor"
"""The engine name of attempts that start no process."""


def intend(
    under_way: PassUnderWay,
    chunk: model.ChunkRecord,
    *,
    engine: str = "",
    host: str = "",
    command: Command | None = None,
) -> int:
    """Record an attempt before it starts: from now on the ledger has the token of all its processes. A part of a job of
    `Ledger.write`.

    Without a command this process does the work itself: a crash leaves no other process behind.
    """
    world, passes = under_way.world, under_way.world.ledger.passes
    attempt_id = passes.intend(
        chunk_id=chunk.id,
        run_id=under_way.invocation.run_id,
        token=str(command.token) if command else world.tokens(),
        host=host or world.own_host,
        engine=engine if command else BY_DESCRIPTOR,
        argv=[show(word) for word in command.argv] if command else (),
        at_s=world.clock.now_s(),
    )
    if command is None:
        passes.started(attempt_id, ProcessIdentity(pid=under_way.request.pid, start_ticks=0, boot_id=""))
    return attempt_id


class Stream(OpenAttempt):
    """The streams of one attempt, one after the other, after `intend`. `end` ends the present one if it stalls; `stalled`
    is set then.
    """

    end: Callable[[], object]

    def __init__(
        self,
        under_way: PassUnderWay,
        meter: Meter,
        chunk: model.ChunkRecord,
        *,
        slot: int,
        executor: Executor,
        engine: str,
        command: Command | None,
    ) -> None:
        super().__init__()
        self._intend = partial(intend, under_way, chunk, engine=engine, host=executor.host, command=command)
        self.under_way = under_way
        self.meter = meter
        self.chunk = chunk
        self.command = command
        self.slot = slot
        self.executor = executor
        self.stalled = False
        self.started_s = self.moved_s = self.sampled_s = under_way.world.clock.monotonic_s()
        self.seen = self.sampled = model.StreamCounters()
        self.activity: int | None = None

    @property
    def token(self) -> str:
        """The token in the environment of every process of the attempt."""
        return str(self.command.token) if self.command else ""

    async def intend(self) -> None:
        """Record the attempt. A cancellation takes effect when that is on the disk."""

        def record() -> None:
            self.id = self._intend()

        await self.under_way.world.ledger.write(record)

    async def follow(
        self, command: Command, start: Start, reader: StreamReader, trouble: Callable[[], Stop | None] = lambda: None
    ) -> model.Outcome:
        """Run a stream to its end, and judge it. `trouble` in its output ends it at once. Raises CancelledError after
        it has ended, Unended if it could not be ended, HostLost if that is unknown.
        """
        files = self.under_way.invocation.directory.attempt(self.chunk.number, self.id, command)
        ledger = self.under_way.world.ledger

        def taking(keep: Callable[[bytes], None], read: Callable[[bytes], None]) -> Callable[[bytes], None]:
            def take(piece: bytes) -> None:
                keep(piece)
                read(piece)
                if trouble() is not None:
                    stream.cancel()

            return take

        stream: asyncio.Task[Completed] = asyncio.create_task(
            start(
                command,
                tree=self.chunk.tree,
                # A stream that is not known to have started counts as one that has.
                on_start=lambda process: ledger.later(partial(ledger.passes.started, self.id, process)),
                on_stdout=taking(files.stdout, reader.stdout),
                on_stderr=taking(files.stderr, reader.stderr),
            )
        )
        self.end = stream.cancel
        self.meter.begin(self, reader)
        arrived = False
        try:
            completed = await asyncio.shield(stream)
            outcome = reader.outcome(completed)
            self.exit_code, self.counters, self.stderr_tail = completed.exit_code, outcome.counters, reader.stderr_tail
            arrived = outcome.verdict is model.Verdict.DONE and not outcome.suspects
        except asyncio.CancelledError:
            ended = await self._end(stream)
            self.counters, self.stderr_tail = reader.counters, reader.stderr_tail
            if not ended:
                self._leave_unended()
            task = asyncio.current_task()
            stop = trouble()
            self.stalled = self.stalled and stop is None
            if (stop is None and not self.stalled) or (task is not None and task.cancelling()):
                raise
            reason, detail = stop or (
                model.StopReason.TARGET_STUCK,
                f"chunk {self.chunk.number} of {show(self.chunk.tree)} has not moved for "
                f"{self.under_way.request.stall_timeout_s:.0f} s",
            )
            return model.Outcome(verdict=model.Verdict.STOP, counters=reader.counters, stop=reason, message=detail)
        except ToolFailed as error:
            outcome = model.Outcome(verdict=model.Verdict.INTERRUPTED, counters=reader.counters, message=error.message)
            # Another host may have reconnected meanwhile, and lost the files placed there before.
            if self.executor.host == self.under_way.world.own_host:
                outcome = replace(outcome, verdict=model.Verdict.STOP, stop=model.StopReason.TOOL_MISSING)
        finally:
            self.meter.ended(self)
            files.close(keep_list=not arrived)
        return outcome

    async def _end(self, stream: "asyncio.Task[Completed]") -> bool:
        """End the stream, even during cancellation. Returns whether all of its processes have ended."""
        stream.cancel()
        await through_cancellation(asyncio.wait({stream}, timeout=_END_TIMEOUT_S))
        try:
            left = await through_cancellation(self.executor.end_orphans([self.token]))
        except HostLost as error:
            LOG.error("whether a stream has ended is not known: %s", error.message, extra={"attempt": self.id})
            return False
        return stream.done() and not left

    def _leave_unended(self) -> None:
        name = f"attempt {self.id} at chunk {self.chunk.number}, token {self.token}"
        self.under_way.unended.append(name)
        LOG.error("a stream cannot be ended: %s", name)
        raise Unended(name)


_MAY_BLOCK = frozenset({EntryType.FIFO, EntryType.CHARACTER, EntryType.BLOCK})


async def sync_problem(sync: SharedCall[None]) -> Stop | None:
    """Sync the target, starting after this call; None if all earlier writes have reached its disks."""
    try:
        await sync.begun_after_now()
    except TimeoutError:
        return model.StopReason.TARGET_STUCK, "what was written has not reached the target's disks in time"
    except OSError as error:
        return stop_reason(error.errno) or model.StopReason.IO_ERROR, f"sync of the target: {error.strerror or error}"
    return None


# Judging files that did not arrive, by look-ups on the source.


_AT_ONCE = 256


@dataclass(slots=True, kw_only=True)
class Result:
    """The judged result of one attempt. `bad` and `vanished` are final; `again` is worth another try (of files from a
    brick, through the mount); `changed` files arrived while a user wrote to them. `told`: its message has been reported
    already, for all chunks that it concerns. `stop`: a reason that concerns more than one file.
    """

    verdict: model.Verdict = model.Verdict.DONE
    message: str = ""
    vanished: list[model.FileProblem] = field(default_factory=list)
    bad: list[model.FileProblem] = field(default_factory=list)
    again: list[model.FileProblem] = field(default_factory=list)
    changed: list[model.FileProblem] = field(default_factory=list)
    told: bool = False
    stop: Stop | None = None

    def stop_for(self, reason: model.StopReason, detail: str) -> "Result":
        """Stop the pool. A stop blames no file, so `bad` becomes empty."""
        self.verdict, self.message, self.stop = model.Verdict.STOP, detail, (reason, detail)
        self.bad = []
        return self


async def judge(under_way: PassUnderWay, suspects: Sequence[model.FileProblem]) -> Result:
    """Judge each suspect. A path counts as vanished only if a look-up on a whole source proves its absence. All others
    are bad, or, if reported as gone but present, to be tried again.
    """
    result = Result()
    gone: list[model.FileProblem] = []
    for first in range(0, len(suspects), _AT_ONCE):
        some = suspects[first : first + _AT_ONCE]
        looks = await look_at_all(under_way, [suspect.path for suspect in some])
        if looks is None:
            return Result().stop_for(model.StopReason.DISCONNECTED, "the source does not answer")
        for suspect, seen in zip(some, looks, strict=True):
            if seen is None:
                gone.append(replace(suspect, kind=model.FileProblemKind.VANISHED))
            elif isinstance(seen, OSError):
                problem = bad_file(suspect.path, seen)
                if (stop := _stops(problem)) is not None:
                    return Result().stop_for(*stop)
                result.bad.append(problem)
            elif suspect.kind is model.FileProblemKind.VANISHED:
                reason = f"{suspect.reason} (but it is there)"
                result.again.append(replace(suspect, kind=model.FileProblemKind.BAD, errno=errno.ESTALE, reason=reason))
            else:
                result.bad.append(suspect)
    result.bad = [await _named(under_way, problem) for problem in result.bad]
    return await _settle_vanished(under_way, gone, result)


async def _named(under_way: PassUnderWay, problem: model.FileProblem) -> model.FileProblem:
    """A file that cannot be read, with the words that its copies are in split-brain, if they are."""
    words = ""
    if problem.errno == errno.EIO:
        ask = partial(split_brain, under_way.world.source.root, problem.path)
        with suppress(TimeoutError):
            words = await under_way.world.blocking(ask, timeout_s=under_way.request.stall_timeout_s)
    return replace(problem, reason=f"{problem.reason}: {words}") if words else problem


async def _settle_vanished(under_way: PassUnderWay, gone: Sequence[model.FileProblem], result: Result) -> Result:
    """Paths that were not found are gone only if the source was whole after the look-ups. During a rebalance process no
    path counts as gone: it is retried.
    """
    if not gone:
        return result
    health = await under_way.health.begun_after_now()
    if health.problems:
        return Result().stop_for(model.StopReason.SOURCE_UNHEALTHY, "; ".join(health.problems))
    if health.doubts:
        reason = f"not there, but it may be all the same: {'; '.join(health.doubts)}"
        result.again += (
            replace(problem, kind=model.FileProblemKind.BAD, errno=errno.ENOENT, reason=reason) for problem in gone
        )
    else:
        result.vanished += gone
    return result


def _stops(problem: model.FileProblem) -> Stop | None:
    """The stop of the pool that the problem of a file causes, if any. An EIO costs only its file: the source may be the
    unreadable side.
    """
    reason = stop_reason(problem.errno)
    if reason is None or reason is model.StopReason.IO_ERROR:
        return None
    return reason, f"{show(problem.path)}: {problem.reason}"


async def look_at_all(under_way: PassUnderWay, paths: Sequence[bytes]) -> list[Entry | OSError | None] | None:
    """Look each path up on the source; None if the source does not answer in time."""
    source = under_way.world.source
    try:
        return await under_way.world.blocking(
            lambda: [look(source, path) for path in paths], timeout_s=under_way.request.stall_timeout_s
        )
    except TimeoutError:
        return None


def look(filesystem: FileSystem, path: bytes) -> Entry | OSError | None:
    """A look-up that returns its error as a value."""
    try:
        return filesystem.look(path)
    except OSError as error:
        return error


def bad_file(path: bytes, error: OSError) -> model.FileProblem:
    """A file for which a system call failed."""
    reason = error.strerror or str(error)
    return model.FileProblem(path=path, kind=model.FileProblemKind.BAD, errno=error.errno, reason=reason)


# Removing temporary files of killed streams. The verification lists any that remain.


Looks = Callable[[bytes, Collection[bytes]], bool]


async def remove_after_crash(invocation: Invocation, attempt: model.AttemptRecord) -> None:
    """Remove temporary files of an attempt of a killed run, while no stream runs. The caller has checked both mounts
    and the source's health. Raises Refused if the target does not answer.
    """
    world = invocation.world
    try:
        removed = await world.blocking(
            lambda: _remove_of_attempt(world, attempt), timeout_s=invocation.request.stall_timeout_s
        )
    except TimeoutError as error:
        raise Refused(
            "the target does not answer",
            cause="a server of the target is down or frozen",
            hint="check the target, then run the same command again",
        ) from error
    if removed:
        LOG.info("attempt %s: temporary files removed: %s", attempt.id, removed)


async def remove_before_stream(under_way: PassUnderWay, paths: Sequence[bytes], *, parts: bool = False) -> None:
    """Remove temporary files of earlier streams over these paths, while other streams run. With `parts`, also remove
    the ranges of these files that have arrived: another engine copies them whole.

    Removes nothing while the source may not show all of its files: a suspect could be a user's file.
    """
    world, timeout_s = under_way.world, under_way.request.stall_timeout_s
    seed = world.ledger.site.required().name_seed
    of_parts = {of_part(name(path), seed) for path in paths for of_part in (part_name, marks_name)} if parts else set()

    def looks(candidate: bytes, marks: Collection[bytes]) -> bool:
        return candidate in of_parts or is_stream_leftover(candidate, marks)

    try:
        found = await world.blocking(lambda: list(_find(world, paths, looks)), timeout_s=timeout_s)
        if not found or (await under_way.health.begun_after_now()).doubts:
            return
        removed = await world.blocking(lambda: sum(map(partial(_remove, world), found)), timeout_s=timeout_s)
    except TimeoutError:
        LOG.warning("the target does not answer in time: temporary files of an earlier stream stay")
        return
    LOG.info("temporary files of earlier streams removed: %s", removed)


def _remove_of_attempt(world: World, attempt: model.AttemptRecord) -> int:
    chunk = world.ledger.passes.chunk(attempt.chunk_id)
    if chunk.state is not ChunkState.RUNNING:
        return 0
    try:
        chunk_list = chunk.list_path or world.ledger.passes.read(chunk.pass_id).chunk_list
        paths = [listed.path for listed in world.chunk_lists.paths(chunk_list, chunk.number)]
    except MigratorError as error:
        # The plan may be an older one whose files are gone: that must not block another plan.
        LOG.warning("temporary files of attempt %s stay: %s", attempt.id, error.message)
        return 0
    return sum(map(partial(_remove, world), list(_find(world, paths, is_leftover))))


def _find(world: World, paths: Sequence[bytes], looks_left_over: Looks) -> Iterator[bytes]:
    """Files of the target that look like temporary ones of these paths, and are absent from the source."""
    listed = frozenset(paths)
    marks: dict[bytes, set[bytes]] = {}
    seed = world.ledger.site.required().name_seed
    for path in paths:
        marks.setdefault(parent(path), set()).update(temporary_marks(name(path), seed))
    for directory, marks_there in marks.items():
        for block in world.target.read_directory(directory):
            for entry in block.entries:
                suspect = looks_left_over(name(entry.path), marks_there) and entry.path not in listed
                # If the look-up fails, the path may be a user's file: it stays.
                if suspect and look(world.source, entry.path) is None:
                    yield entry.path


def _remove(world: World, path: bytes) -> int:
    try:
        world.target.remove_leftover(path)
    except OSError as error:
        LOG.warning("%s cannot be removed: %s", show(path), error.strerror)
        return 0
    return 1


# Work that streams cannot do: copies of paths that are too long for them, and hard links to existing names.


_COPY_INSTEAD = frozenset({errno.ENOENT, errno.EMLINK, errno.EXDEV, errno.EPERM})
"""The existing name is missing, or cannot get another name."""
_SLOWEST_COPY_BYTES_PER_S = MIB
"""A copy by descriptor reports no progress: it may take the stall timeout, plus its size at this rate."""


def to_be_linked(paths: Iterable[ListedPath], by_stream: Iterable[ListedPath]) -> Iterator[tuple[ListedPath, int]]:
    """Paths to copy by descriptor. Each has the name in its link group that it is to be linked to, and the bytes that
    it may have to copy. Names of one group stay names of one file, even if a stream has copied some of them
    (`by_stream`).
    """
    paths = tuple(paths)
    first_names: dict[int, bytes] = {}
    group_bytes: dict[int, int] = {}
    for listed in (*by_stream, *paths):
        if listed.link_group is not None:
            first_names.setdefault(listed.link_group, listed.path)
            group_bytes[listed.link_group] = group_bytes.get(listed.link_group, 0) + listed.size_bytes
    for listed in paths:
        if listed.link_group is None:
            yield listed, listed.size_bytes
        else:
            first = first_names[listed.link_group]
            link_to = None if first == listed.path else first
            yield listed._replace(link_to=link_to), group_bytes[listed.link_group]


async def make_by_descriptor(
    under_way: PassUnderWay, tree: bytes, paths: Iterable[tuple[ListedPath, int]], result: Result
) -> tuple[Result, int, int]:
    """Make each path a hard link to its `link_to` if both are one file on the source, or else copy its present state.
    Returns the result with the paths that did not arrive, and the number of files and bytes that did.
    """
    linker = _Linker(under_way, tree)
    files = size_bytes = 0
    gone: list[model.FileProblem] = []
    for listed, may_copy_bytes in paths:
        timeout_s = under_way.request.stall_timeout_s + may_copy_bytes / _SLOWEST_COPY_BYTES_PER_S
        make = partial(linker.make, listed.path, listed.link_to)
        try:
            problem = await under_way.world.blocking(make, timeout_s=timeout_s)
        except TimeoutError:
            detail = f"{show(listed.path)} has not been copied after {timeout_s:.0f} s"
            return result.stop_for(model.StopReason.TARGET_STUCK, detail), files, size_bytes
        if problem is None:
            files, size_bytes = files + 1, size_bytes + listed.size_bytes
        elif problem.kind is model.FileProblemKind.VANISHED:
            gone.append(problem)
        else:
            result.bad.append(problem)
            if (stop := _stops(problem)) is not None:
                return result.stop_for(*stop), files, size_bytes
    return await _settle_vanished(under_way, gone, result), files, size_bytes


def copy_one(source: SourceFileSystem, target: TargetFileSystem, tree: bytes, path: bytes) -> model.FileProblem | None:
    """Copy one path after a fresh look-up; None if it has arrived. The tree's own directory stays closed."""
    if path == tree:
        return None
    # The second try is for a path that was replaced in between, or for a missing directory above it on the target.
    for last in (False, True):
        seen = look(source, path)
        if seen is None:
            return _vanished(path)
        if isinstance(seen, OSError):
            return bad_file(path, seen)
        try:
            target.copy_from(source.root, seen)
        except OSError as error:
            if last or error.errno not in (errno.ENOENT, errno.ESTALE):
                # A file that vanished during its copy is not bad.
                return _vanished(path) if look(source, path) is None else bad_file(path, error)
        else:
            return None
        if problem := _make_missing_directories(source, target, tree, path):
            return problem
    raise AssertionError("unreachable")


class _Linker:
    """Makes the links of one chunk. If the first name of a group is missing, the first link takes its place."""

    def __init__(self, under_way: PassUnderWay, tree: bytes) -> None:
        self._source = under_way.world.source
        self._target = under_way.world.target
        self._tree = tree
        self._keeps_links = under_way.capabilities.keeps_hard_links
        self._left_alone = under_way.left_alone
        self._instead: dict[bytes, bytes] = {}

    def make(self, path: bytes, link_to: bytes | None) -> model.FileProblem | None:
        """Link one path to the other if they are one file on the source; otherwise make a copy."""
        existing = None if link_to is None else self._instead.get(link_to, link_to)
        # The user of a tree that is left alone may have written to it on the target: a link would expose that in
        # another tree.
        may_link = existing is not None and not any(is_beneath(existing, tree) for tree in self._left_alone)
        if existing is not None and may_link and self._keeps_links:
            here, there = look(self._source, path), look(self._source, existing)
            if isinstance(here, Entry) and isinstance(there, Entry) and _same_file(here, there):
                try:
                    self._target.link(existing, path)
                except OSError as error:
                    if error.errno not in _COPY_INSTEAD:
                        return bad_file(path, error)
                else:
                    return None
        problem = copy_one(self._source, self._target, self._tree, path)
        if problem is None and link_to is not None:
            self._instead[link_to] = path
        return problem


def _same_file(one: Entry, other: Entry) -> bool:
    return (
        one.type is other.type and one.type is not EntryType.DIRECTORY and (one.dev, one.ino) == (other.dev, other.ino)
    )


def _make_missing_directories(
    source: SourceFileSystem, target: TargetFileSystem, tree: bytes, path: bytes
) -> model.FileProblem | None:
    """Make the directories between a tree and a path that the target lacks, outermost first."""
    missing: list[bytes] = []
    above = parent(path)
    while above != tree and is_beneath(above, tree) and look(target, above) is None:
        missing.append(above)
        above = parent(above)
    for directory in reversed(missing):
        seen = look(source, directory)
        if seen is None:
            return _vanished(path)
        if isinstance(seen, OSError):
            return bad_file(path, seen)
        try:
            target.copy_from(source.root, seen)
        except OSError as error:
            return bad_file(path, error)
    return None


def _vanished(path: bytes) -> model.FileProblem:
    return model.FileProblem(
        path=path, kind=model.FileProblemKind.VANISHED, errno=errno.ENOENT, reason="gone on the source"
    )


# One attempt at one chunk.


class Attempt(Stream):
    """One attempt with one stream. Call `intend`, `copy` and `confirm` once, in this order."""

    def __init__(
        self,
        under_way: PassUnderWay,
        routes: "Routes",
        meter: Meter,
        chunk: model.ChunkRecord,
        paths: "ListedPaths",
        *,
        tried: bool,
        slot: int,
        way: Way,
        engine: Engine,
    ) -> None:
        world, request = under_way.world, under_way.request
        self._routes = routes
        self._closings = routes.closings_of(chunk.brick)
        self._way = way
        self._engine = engine
        self._from_brick = way.brick is not None
        self.listed = paths
        of_stream, too_long = paths.within(chunk.tree).by_length(chunk.tree, engine.longest_name_bytes)
        self._by_descriptor = list(too_long)
        self._view = way.executor.view(chunk.tree)
        self._again = request.recopy or tried or chunk.tree in under_way.doubtful_trees
        self._work = ChunkWork(
            kind=chunk.kind,
            tree=chunk.tree,
            paths=of_stream,
            capabilities=under_way.capabilities,
            bwlimit_bytes_per_s=None if under_way.governor is None else under_way.governor.share_of(chunk.id),
            # Files listed after the seed are known to differ, even if size and times are the same.
            recopy=self._again or under_way.kind is not PassKind.SEED,
            # Where an attempt may have left files, each of these costs a call that fails.
            own_names=under_way.kind is PassKind.SEED and not self._again,
            digest=under_way.digests and chunk.kind in (ChunkKind.FILES, ChunkKind.RANGED_FILES),
            brick=way.brick,
        )
        command = None
        if of_stream and chunk.kind is not ChunkKind.LINKS:
            command = replace(engine.command(self._work, self._view), token=world.tokens())
        super().__init__(under_way, meter, chunk, slot=slot, executor=way.executor, engine=engine.name, command=command)

    @property
    def facts(self) -> Mapping[str, object]:
        """Context for the log."""
        return {
            "run": self.under_way.invocation.run_id,
            "batch": self.under_way.batch.number,
            "chunk": self.chunk.number,
            "chunk_kind": self.chunk.kind.value,
            "tree": self.chunk.tree,
            "attempt": self.id,
            "paths": len(self.listed),
        }

    async def copy(self) -> Result:
        """Copy and judge. Raises CancelledError after the stream has ended, Unended if it could not be ended, HostLost
        if that is unknown.
        """
        result = Result()
        LOG.info("attempt begins", extra=self.facts)
        if self.command is not None:
            parts = self._engine.name != DIRECT and self.chunk.kind is ChunkKind.RANGED_FILES
            if parts or (self._again and self.chunk.kind in (ChunkKind.FILES, ChunkKind.RANGED_FILES)):
                await remove_before_stream(self.under_way, [listed.path for listed in self._work.paths], parts=parts)
            start = partial(self._way.executor.execute, program=self._engine.program)
            reader = self._engine.reader(self._work, self._view)
            if (governor := self.under_way.governor) is not None and self._engine.name == DIRECT:
                change = partial(self.executor.limit, self.token)
                governor.follow(self.chunk.id, change, lambda: reader.counters.size_bytes)
            outcome = await self.follow(self.command, start, reader)
            if self.stalled:
                outcome = await self._of_stalled(outcome)
            if outcome.verdict is model.Verdict.STOP:
                return result.stop_for(outcome.stop or model.StopReason.IO_ERROR, outcome.message)
            if outcome.verdict is not model.Verdict.DONE:
                return Result(verdict=outcome.verdict, message=outcome.message)
            by_kind: dict[model.FileProblemKind, list[model.FileProblem]] = {kind: [] for kind in model.FileProblemKind}
            for suspect in outcome.suspects:
                by_kind[suspect.kind].append(suspect)
            changed, moved = by_kind.pop(model.FileProblemKind.CHANGED), by_kind.pop(model.FileProblemKind.MOVED)
            result = await judge(self.under_way, [suspect for some in by_kind.values() for suspect in some])
            if result.stop is not None:
                return result
            result.changed, result.again = changed, [*result.again, *moved]
            if self._from_brick:
                # The mount may have a file that the brick refuses: the next try reads it there before it counts as bad.
                result.again, result.bad = [*result.again, *result.bad], []
            elif self._engine.name != DIRECT:
                self._take_from_stream(result, outcome.refused)
        return await self._without_stream(result)

    def _take_from_stream(self, result: Result, may_be_made: Collection[bytes]) -> None:
        """Leave files that the stream could not make on the target to the copy by descriptor, with all their names: it
        sets modes without /proc, knows more ways to remove an ACL than `removexattr(2)`, and leaves attributes out
        whose names are too long.
        """
        refused = {problem.path for problem in result.bad if problem.path in may_be_made}
        groups = {listed.link_group for listed in self._work.paths if listed.path in refused} - {None}
        left = [listed for listed in self._work.paths if listed.path in refused or listed.link_group in groups]
        made = {listed.path for listed in left}
        result.bad = [problem for problem in result.bad if problem.path not in made]
        self._by_descriptor += left

    async def confirm(self, result: Result) -> Result:
        """Confirm the result of `copy`. Files count as arrived when a later sync has reached the target's disks; files
        of a brick also need a later check that finds the volume unchanged. Raises CancelledError, HostLost.
        """
        if result.verdict is not model.Verdict.DONE:
            return result
        quiet = asyncio.create_task(self._routes.quiet_now(self.chunk.brick)) if self._from_brick else None
        try:
            result = await self._synced(result)
            if quiet is not None and (not await quiet or self._routes.closings_of(self.chunk.brick) != self._closings):
                result.message = "the volume did not stay as it was while its brick was read"
                result.verdict, result.told = model.Verdict.INTERRUPTED, True
        finally:
            if quiet is not None:
                quiet.cancel()
                await asyncio.wait({quiet})
        return result

    async def _synced(self, result: Result) -> Result:
        # A chunk is done when a sync that started after the end of its stream has reached the disks.
        syncs = [self.under_way.sync_of(self._way.executor)] if self.command is not None else []
        if self.command is None or self._by_descriptor:
            syncs.append(self.under_way.sync)
        for sync in syncs:
            if (stop := await sync_problem(sync)) is not None:
                return Result().stop_for(*stop)
        return result

    async def _of_stalled(self, outcome: model.Outcome) -> model.Outcome:
        """Interpret a stalled stream. It stops the pool, unless one file explains the stall or both sides answer. Then
        it costs only its chunk, which is tried again and divided until the file is alone.

        A file that became a FIFO after rsync's look-up stalls a stream: rsync opens it without O_NONBLOCK, and waits
        for a writer.
        """
        seen = await look_at_all(self.under_way, [listed.path for listed in self._work.paths])
        if seen is None:
            return outcome
        pairs = zip(self._work.paths, seen, strict=True)
        odd = [
            f"{show(listed.path)} is a {one.type.value} now"
            for listed, one in pairs
            if isinstance(one, Entry) and one.type in _MAY_BLOCK and one.mtime_ns != listed.mtime_ns
        ]
        if not odd:
            syncs = self.under_way.capabilities.syncfs_reaches_disks
            if not syncs or await sync_problem(self.under_way.sync) is not None:
                return outcome
        message = f"{outcome.message}: {odd[0] if odd else 'both sides answer'}"
        return replace(outcome, verdict=model.Verdict.RETRY, stop=None, message=message)

    async def _without_stream(self, result: Result) -> Result:
        """Make links, and copy the paths that no stream can take."""
        links = self.chunk.kind is ChunkKind.LINKS
        paths = (
            ((listed, listed.size_bytes) for listed in self.listed)
            if links
            else to_be_linked(self._by_descriptor, self._work.paths if self._by_descriptor else ())
        )
        result, files, size_bytes = await make_by_descriptor(self.under_way, self.chunk.tree, paths, result)
        if files:
            made = model.StreamCounters(files=files, size_bytes=0 if links else size_bytes)
            self.counters += made
            self.meter.wrote(made)
        return result


# Recovery after a crash: end orphaned streams, remove their temporary files, give their chunks back.


LEASE_MARGIN_S = 15.0
"""Time for a host to end its streams after its lease (TERM, grace, KILL)."""


async def recover(invocation: Invocation, site: SiteRecord) -> None:
    """Finish every attempt that killed runs left unfinished. May be called again. Runs at work are left alone: they hold
    the lock of their call.

    Raises Refused if a process of an attempt cannot be ended: its chunk must not be reissued while that runs. Before it
    removes anything, raises Refused if the mounts are not the expected ones or the source is not whole: an apparent
    temporary file could be a user's.
    """
    world = invocation.world
    if not world.ledger.passes.runs_with_attempts():
        return
    with ExitStack() as held:
        await _take_turn(world, held)
        for run in world.ledger.passes.runs_with_attempts():
            try:
                held.enter_context(world.locks.hold("recovery", of_call(run.directory)))
            except LockHeld:
                continue
            await _recover_from(invocation, site, run)


async def _take_turn(world: World, held: ExitStack) -> None:
    """Wait while another call recovers: streams of the killed run may still write where this call is to copy."""
    while True:
        try:
            held.enter_context(world.locks.hold("recovery", "recovery"))
        except LockHeld:
            await world.clock.sleep(1.0)
        else:
            return


async def _recover_from(invocation: Invocation, site: SiteRecord, run: RunRecord) -> None:
    world = invocation.world
    unfinished = world.ledger.passes.unfinished_attempts(run_id=run.id)
    stuck = await _end_on_all_hosts(invocation, unfinished, last_heard_s(run))
    await _refuse_in_doubt(invocation, site)
    for attempt in unfinished:
        if attempt.token in stuck:
            continue
        await remove_after_crash(invocation, attempt)
        left = OpenAttempt(id=attempt.id, counters=attempt.counters, stderr_tail=attempt.stderr_tail)
        left.finish(world, AttemptState.INTERRUPTED, ChunkState.PENDING)
        message = f"attempt {attempt.id} of an earlier run had not ended: its chunk is given out again"
        invocation.say(EventKind.ORPHAN_ENDED, Severity.INFO, f"attempt {attempt.id}", message)
    if stuck:
        raise Refused(
            f"{several(len(stuck), 'stream')} of an earlier run cannot be ended",
            cause="they hang in the kernel (D state), on a file system that does not answer",
            hint="check the servers of both file systems; when the processes are gone, run the same command again "
            f"(processes with MIGRATOR_TOKEN={stuck[0]} and others)",
        )


async def _refuse_in_doubt(invocation: Invocation, site: SiteRecord) -> None:
    world, timeout_s = invocation.world, invocation.request.stall_timeout_s
    health = await world.source.health()
    problems = (
        *await mounts_changed(world, site, timeout_s),
        *health_problems(health, health, tasks_count=False),
    )
    if problems:
        for problem in problems:
            invocation.say(EventKind.GUARD_REFUSED, Severity.ERROR, "recovery", problem)
        raise Refused(
            f"an earlier run was killed, and what it left cannot be cleared away: {'; '.join(problems)}",
            cause="something is not as it has to be, or could not be looked at, which counts the same",
            hint="see `migrator doctor` for the remedy of each, then run the same command again",
        )


async def _end_on_all_hosts(
    invocation: Invocation, unfinished: Sequence[model.AttemptRecord], heard_at_s: float
) -> Sequence[str]:
    """The tokens of streams that cannot be ended. An unreachable host ends its streams itself when its lease runs out.
    The lease counts from the last heartbeat of the previous run; raises Refused if it is not over.
    """
    world = invocation.world
    by_host: dict[str, list[model.AttemptRecord]] = {}
    for attempt in unfinished:
        by_host.setdefault(attempt.host, []).append(attempt)
    stuck: list[str] = []
    for host, attempts in by_host.items():
        lane = next((lane for lane in world.lanes if lane.host == host), None)
        tokens = [attempt.token for attempt in attempts]
        last_s = max([heard_at_s, *(attempt.started_at_s for attempt in attempts)])
        if lane is None:
            _require_lease_over(invocation, host, last_s, "site.toml does not name it any more")
            continue
        try:
            stuck += await lane.end_orphans(tokens)
        except HostLost as error:
            _require_lease_over(invocation, host, last_s, error.message)
    return stuck


def _require_lease_over(invocation: Invocation, host: str, last_s: float, why: str) -> None:
    left_s = last_s + invocation.request.lease_s + LEASE_MARGIN_S - invocation.world.clock.now_s()
    if left_s <= 0:
        return
    raise Refused(
        f"streams of an earlier run may still be at work on host {host}: {why}",
        cause="the host cannot be reached; it ends them by itself when its lease runs out",
        hint=f"run the same command again in {left_s:.0f} s, or when the host, or the batch system, answers",
    )
