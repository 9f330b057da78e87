"""One attempt at one chunk: the stream, the files that did not arrive, the sync that makes it count."""

import asyncio
import errno
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from migrator.core.entry import Entry, EntryType
from migrator.core.errors import MigratorError, Refused, ToolFailed
from migrator.core.paths import is_beneath, join, name, parent, show
from migrator.core.states import ChunkKind, ChunkState, PassKind
from migrator.core.tasks import through_cancellation
from migrator.core.units import MIB
from migrator.fs.ports import FileSystem, SourceFileSystem, TargetFileSystem
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed, HostLost
from migrator.plan.model import ListedPath
from migrator.transfer.context import LOG, Invocation, PassUnderWay, World
from migrator.transfer.lanes import Routes
from migrator.transfer.meter import Meter
from migrator.transfer.model import (
    DIRECT,
    AttemptRecord,
    ChunkRecord,
    FileProblem,
    FileProblemKind,
    Outcome,
    StopReason,
    StreamCounters,
    Verdict,
)
from migrator.transfer.ports import ChunkWork, Engine, Executor, Settler, StreamReader, Way
from migrator.transfer.rules import is_leftover, is_stream_leftover, marks_name, part_name, stop_reason, temporary_marks
from migrator.transfer.run_files import AttemptFiles

# Following one stream to its end, or ending it.


class Start(Protocol):
    """Runs a program to its end on some host."""

    def __call__(
        self,
        *,
        on_start: Callable[[ProcessIdentity], None],
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
    ) -> Coroutine[Any, Any, Completed]:
        """The call that starts it."""


class Unended(Exception):
    """A stream could not be ended: its attempt stays unfinished, and its chunk is not reissued."""


class Stream:
    """The streams of one attempt, one after the other. `counters`, `exit_code` and `stderr_tail` are the last one's."""

    def __init__(
        self,
        under_way: PassUnderWay,
        meter: Meter,
        chunk: ChunkRecord,
        *,
        attempt_id: int,
        token: str,
        slot: int,
        executor: Executor,
    ) -> None:
        self._pass = under_way
        self._meter = meter
        self._chunk = chunk
        self._attempt_id = attempt_id
        self._token = token
        self._slot = slot
        self._executor = executor
        self.counters = StreamCounters()
        self.exit_code: int | None = None
        self.stderr_tail = b""

    async def follow(
        self,
        start: Start,
        reader: StreamReader,
        *,
        files: AttemptFiles | None = None,
        on_start: Callable[[ProcessIdentity], None] = lambda _: None,
    ) -> Outcome:
        """Run a stream to its end, and judge it. Raises CancelledError after it has ended, Unended if it could not be ended,
        HostLost if that is unknown.
        """

        def on_stdout(piece: bytes) -> None:
            if files is not None:
                files.stdout(piece)
            reader.stdout(piece)

        def on_stderr(piece: bytes) -> None:
            if files is not None:
                files.stderr(piece)
            reader.stderr(piece)

        stream = asyncio.create_task(start(on_start=on_start, on_stdout=on_stdout, on_stderr=on_stderr))
        live = self._meter.begin(
            number=self._slot,
            attempt_id=self._attempt_id,
            token=self._token,
            host=self._executor.host,
            chunk=self._chunk,
            counters=lambda: reader.counters,
            end=stream.cancel,
        )
        arrived = False
        try:
            completed = await asyncio.shield(stream)
            outcome = self._outcome(reader, completed)
            arrived = outcome.verdict is Verdict.DONE and not outcome.suspects
        except asyncio.CancelledError:
            ended = await self._end(stream)
            self.counters, self.stderr_tail = reader.counters, reader.stderr_tail
            if not ended:
                self._leave_unended()
            task = asyncio.current_task()
            if not live.stalled or (task is not None and task.cancelling()):
                raise
            detail = (
                f"chunk {self._chunk.number} of {show(self._chunk.tree)} has not moved for "
                f"{self._pass.request.stall_timeout_s:.0f} s"
            )
            return Outcome(verdict=Verdict.STOP, counters=reader.counters, stop=StopReason.TARGET_STUCK, message=detail)
        except ToolFailed as error:
            if self._executor.host != self._pass.world.own_host:
                # The host may have been reconnected meanwhile, and lost the files placed there before.
                return Outcome(verdict=Verdict.INTERRUPTED, counters=reader.counters, message=error.message)
            return Outcome(
                verdict=Verdict.STOP, counters=reader.counters, stop=StopReason.TOOL_MISSING, message=error.message
            )
        finally:
            self._meter.ended(live)
            if files is not None:
                files.close(keep_list=not arrived)
        return outcome

    def _outcome(self, reader: StreamReader, completed: Completed) -> Outcome:
        outcome = reader.outcome(completed)
        self.exit_code, self.counters, self.stderr_tail = completed.exit_code, outcome.counters, reader.stderr_tail
        return outcome

    async def _end(self, stream: "asyncio.Task[Completed]") -> bool:
        """End the stream, through any cancellation. Returns whether nothing of it is left."""
        stream.cancel()
        await through_cancellation(asyncio.wait({stream}, timeout=self._pass.request.end_timeout_s))
        try:
            left = await through_cancellation(self._executor.end_orphans([self._token]))
        except HostLost as error:
            LOG.error("whether a stream has ended is not known: %s", error.message, extra={"attempt": self._attempt_id})
            return False
        return stream.done() and not left

    def _leave_unended(self) -> None:
        name = f"attempt {self._attempt_id} at chunk {self._chunk.number}, token {self._token}"
        self._pass.unended.append(name)
        LOG.error("a stream cannot be ended: %s", name)
        raise Unended(name)


# Judging files that did not arrive, by looking them up on the source.


_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judged suspects. `reappeared` may exist although they were not found: retry them.

    `stop`: the look-ups failed for a reason that concerns more than one file.
    """

    vanished: tuple[FileProblem, ...] = ()
    bad: tuple[FileProblem, ...] = ()
    reappeared: tuple[FileProblem, ...] = ()
    stop: tuple[StopReason, str] | None = None


async def judge(under_way: PassUnderWay, suspects: Sequence[FileProblem]) -> Judgement:
    """A path is vanished only if a look-up proves its absence on a whole source; all others are bad."""
    vanished: list[FileProblem] = []
    bad: list[FileProblem] = []
    reappeared: list[FileProblem] = []
    for first in range(0, len(suspects), _AT_ONCE):
        some = suspects[first : first + _AT_ONCE]
        looks = await look_at_all(under_way, [suspect.path for suspect in some])
        if looks is None:
            return Judgement(stop=(StopReason.DISCONNECTED, "the source does not answer"))
        for suspect, seen in zip(some, looks, strict=True):
            if seen is None:
                vanished.append(replace(suspect, kind=FileProblemKind.VANISHED))
            elif isinstance(seen, OSError):
                problem = bad_file(suspect.path, seen)
                reason = None if suspect.path in under_way.known_io_errors else stop_reason(seen.errno)
                if reason is not None:
                    recorded = (problem,) if reason is StopReason.IO_ERROR else ()
                    return Judgement(bad=recorded, stop=(reason, f"{show(suspect.path)}: {problem.reason}"))
                bad.append(problem)
            elif suspect.kind is FileProblemKind.VANISHED:
                reappeared.append(
                    replace(
                        suspect,
                        kind=FileProblemKind.BAD,
                        errno=errno.ESTALE,
                        reason=f"{suspect.reason} (but it is there)",
                    )
                )
            else:
                bad.append(suspect)
    settled = await settle_vanished(under_way, vanished)
    if settled.stop is not None:
        return settled
    return Judgement(vanished=settled.vanished, bad=tuple(bad), reappeared=(*reappeared, *settled.reappeared))


async def settle_vanished(under_way: PassUnderWay, vanished: Sequence[FileProblem]) -> Judgement:
    """Paths that were not found are gone only if the source was whole after the look-ups. During a rebalance process no path
    is known to be gone: it is retried.
    """
    if not vanished:
        return Judgement()
    health = await under_way.health.begun_after_now()
    if health.problems:
        return Judgement(stop=(StopReason.SOURCE_UNHEALTHY, "; ".join(health.problems)))
    if health.doubts:
        reason = f"not there, but it may be all the same: {'; '.join(health.doubts)}"
        return Judgement(
            reappeared=tuple(
                replace(problem, kind=FileProblemKind.BAD, errno=errno.ENOENT, reason=reason) for problem in vanished
            )
        )
    return Judgement(vanished=tuple(vanished))


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
    """A look-up whose failure is a value."""
    try:
        return filesystem.look(path)
    except OSError as error:
        return error


def bad_file(path: bytes, error: OSError) -> FileProblem:
    """A file for which a system call failed."""
    reason = error.strerror or str(error)
    return FileProblem(path=path, kind=FileProblemKind.BAD, errno=error.errno, reason=reason)


# Removing temporary files of killed streams. The verification lists any that remain.


Looks = Callable[[bytes, Collection[bytes]], bool]


async def remove_after_crash(invocation: Invocation, attempt: AttemptRecord) -> None:
    """Remove temporary files of an attempt of a killed run, while no stream runs. The caller has checked both mounts and the
    source's health. Raises Refused if the target does not answer.
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


async def remove_before_stream(under_way: PassUnderWay, paths: Sequence[bytes]) -> None:
    """Remove temporary files of earlier streams over these paths, while other streams run.

    Removes nothing while the source may not show all of its files: a suspect could be a user's file.
    """
    world, timeout_s = under_way.world, under_way.request.stall_timeout_s
    try:
        found = await world.blocking(lambda: list(_find(world, paths, is_stream_leftover)), timeout_s=timeout_s)
        if not found or (await under_way.health.begun_after_now()).doubts:
            return
        removed = await world.blocking(lambda: sum(map(partial(_remove, world), found)), timeout_s=timeout_s)
    except TimeoutError:
        LOG.warning("the target does not answer in time: temporary files of an earlier stream stay")
        return
    LOG.info("temporary files of earlier streams removed: %s", removed)


async def remove_parts(under_way: PassUnderWay, paths: Sequence[bytes]) -> None:
    """Remove the ranges of these files that have arrived: another engine copies them whole."""
    world = under_way.world

    def remove() -> None:
        for path in paths:
            for of_part in (part_name, marks_name):
                part = join(parent(path), of_part(name(path)))
                # A file that exists on the source is a user's; if the look-up fails it may be.
                if look(world.source, part) is None and isinstance(look(world.target, part), Entry):
                    _remove(world, part)

    try:
        if not (await under_way.health.begun_after_now()).doubts:
            await world.blocking(remove, timeout_s=under_way.request.stall_timeout_s)
    except TimeoutError:
        LOG.warning("the target does not answer in time: parts of big files stay")


def _remove_of_attempt(world: World, attempt: AttemptRecord) -> int:
    chunk = world.ledger.passes.chunk(attempt.chunk_id)
    if chunk.state is not ChunkState.RUNNING:
        return 0
    try:
        chunk_list = chunk.list_path or world.ledger.passes.read(chunk.pass_id).chunk_list
        paths = [listed.path for listed in world.chunk_lists.paths(chunk_list, chunk.number)]
    except MigratorError as error:
        # The plan may be an older one whose files are gone: that must not block another.
        LOG.warning("temporary files of attempt %s stay: %s", attempt.id, error.message)
        return 0
    return sum(map(partial(_remove, world), list(_find(world, paths, is_leftover))))


def _find(world: World, paths: Sequence[bytes], looks_left_over: Looks) -> Iterator[bytes]:
    """Files of the target that look like temporary ones of these paths, and are not on the source."""
    listed = frozenset(paths)
    marks: dict[bytes, set[bytes]] = {}
    for path in paths:
        marks.setdefault(parent(path), set()).update(temporary_marks(name(path)))
    for directory, marks_there in marks.items():
        for block in world.target.read_directory(directory):
            for entry in block.entries:
                suspect = looks_left_over(name(entry.path), marks_there) and entry.path not in listed
                # If the look-up fails it may be a user's file: it stays.
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


_LINKS_AT_ONCE = 128
_COPY_INSTEAD = frozenset({errno.ENOENT, errno.EMLINK, errno.EXDEV, errno.EPERM})
"""The existing name is missing, or cannot have another name."""
_SLOWEST_COPY_BYTES_PER_S = MIB
"""A copy by descriptor reports no progress: it may take the stall timeout, plus its size at this rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """Results for some paths. `suspects` are vanished (confirmed by a look-up) or bad."""

    counters: StreamCounters
    suspects: tuple[FileProblem, ...] = ()
    stop: tuple[StopReason, str] | None = None


async def copy_by_descriptor(
    under_way: PassUnderWay, tree: bytes, paths: Sequence[ListedPath], *, by_stream: Sequence[ListedPath] = ()
) -> Handled:
    """Copy each path as it is now. Missing paths are reported as vanished, paths that cannot be copied as bad.

    Names of one link group stay names of one file, even if a stream has copied some of them (`by_stream`).
    """
    linker = _Linker.of(under_way, tree)
    first_names: dict[int, bytes] = {}
    group_bytes: dict[int, int] = {}
    for listed in (*by_stream, *paths):
        if listed.link_group is not None:
            first_names.setdefault(listed.link_group, listed.path)
            group_bytes[listed.link_group] = group_bytes.get(listed.link_group, 0) + listed.size_bytes
    files = size_bytes = 0
    suspects: list[FileProblem] = []
    for listed in paths:
        first = listed.path if listed.link_group is None else first_names[listed.link_group]
        may_copy_bytes = listed.size_bytes if listed.link_group is None else group_bytes[listed.link_group]
        timeout_s = under_way.request.stall_timeout_s + may_copy_bytes / _SLOWEST_COPY_BYTES_PER_S
        link_to = None if first == listed.path else first
        try:
            problem = await under_way.world.blocking(partial(linker.make, listed.path, link_to), timeout_s=timeout_s)
        except TimeoutError:
            detail = f"{show(listed.path)} has not been copied after {timeout_s:.0f} s"
            return Handled(counters=StreamCounters(), stop=(StopReason.TARGET_STUCK, detail))
        if problem is None:
            files, size_bytes = files + 1, size_bytes + listed.size_bytes
            continue
        suspects.append(problem)
        if stop := _stops(under_way, problem):
            return Handled(counters=_counters(files, size_bytes), suspects=_io_errors(suspects), stop=stop)
    return Handled(counters=_counters(files, size_bytes), suspects=tuple(suspects))


async def make_links(under_way: PassUnderWay, tree: bytes, paths: Sequence[ListedPath]) -> Handled:
    """Make each path a hard link to its listed one, if both are one file on the source."""
    linker = _Linker.of(under_way, tree)
    stopping = threading.Event()
    files = 0
    suspects: list[FileProblem] = []
    try:
        for first in range(0, len(paths), _LINKS_AT_ONCE):
            some = paths[first : first + _LINKS_AT_ONCE]
            copied_bytes = sum(listed.size_bytes for listed in some)
            timeout_s = under_way.request.stall_timeout_s + copied_bytes / _SLOWEST_COPY_BYTES_PER_S
            try:
                problems = await under_way.world.blocking(
                    partial(linker.make_all, some, stopping.is_set), timeout_s=timeout_s
                )
            except TimeoutError:
                return Handled(
                    counters=_counters(files, 0), stop=(StopReason.TARGET_STUCK, "links have not been made in time")
                )
            suspects.extend(problems)
            files += len(some) - len(problems)
            for problem in problems:
                if stop := _stops(under_way, problem):
                    return Handled(counters=_counters(files, 0), suspects=_io_errors(suspects), stop=stop)
    finally:
        stopping.set()
    return Handled(counters=_counters(files, 0), suspects=tuple(suspects))


def copy_one(source: SourceFileSystem, target: TargetFileSystem, tree: bytes, path: bytes) -> FileProblem | None:
    """Copy one path after a fresh look-up; None when it has arrived. The tree's own directory stays closed."""
    if path == tree:
        return None
    seen: Entry | OSError | None = None
    # A second time if it was replaced in between, or if a directory above it was missing on the target.
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

    def __init__(
        self,
        source: SourceFileSystem,
        target: TargetFileSystem,
        tree: bytes,
        *,
        keeps_links: bool,
        left_alone: Collection[bytes],
    ) -> None:
        self._source = source
        self._target = target
        self._tree = tree
        self._keeps_links = keeps_links
        self._left_alone = left_alone
        self._instead: dict[bytes, bytes] = {}

    @classmethod
    def of(cls, under_way: PassUnderWay, tree: bytes) -> "_Linker":
        """For one chunk of the pass."""
        world, keeps_links = under_way.world, under_way.capabilities.keeps_hard_links
        return cls(world.source, world.target, tree, keeps_links=keeps_links, left_alone=under_way.left_alone)

    def make_all(self, paths: Iterable[ListedPath], stopped: Callable[[], bool]) -> list[FileProblem]:
        problems: list[FileProblem] = []
        for listed in paths:
            if stopped():
                break
            if problem := self.make(listed.path, listed.link_to):
                problems.append(problem)
                if stop_reason(problem.errno) is not None:
                    break
        return problems

    def make(self, path: bytes, link_to: bytes | None) -> FileProblem | None:
        """Link one path to the other if they are one file on the source; otherwise make a copy."""
        existing = None if link_to is None else self._instead.get(link_to, link_to)
        if existing is not None and any(is_beneath(existing, tree) for tree in self._left_alone):
            # Its user may have written to it on the target: a link would show that in another tree.
            existing = None
        if existing is not None and self._keeps_links:
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
) -> FileProblem | None:
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


def _vanished(path: bytes) -> FileProblem:
    return FileProblem(path=path, kind=FileProblemKind.VANISHED, errno=errno.ENOENT, reason="gone on the source")


def _stops(under_way: PassUnderWay, problem: FileProblem) -> tuple[StopReason, str] | None:
    if problem.kind is FileProblemKind.VANISHED:
        return None
    reason = stop_reason(problem.errno)
    if reason is None or (reason is StopReason.IO_ERROR and problem.path in under_way.known_io_errors):
        return None
    return reason, f"{show(problem.path)}: {problem.reason}"


def _io_errors(problems: Sequence[FileProblem]) -> tuple[FileProblem, ...]:
    return tuple(problem for problem in problems if problem.errno == errno.EIO)


def _counters(files: int, size_bytes: int) -> StreamCounters:
    return StreamCounters(files=files, size_bytes=size_bytes)


# One attempt at one chunk.


BY_DESCRIPTOR = "descriptor"
"""The engine name of attempts that start no process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The judged result of one attempt. `bad` and `vanished` are final, `again` is worth another try (of files from a brick,
    through the mount); `changed` arrived while being written to. `told`: its message has been reported already, for all
    chunks that it concerns.
    """

    verdict: Verdict
    counters: StreamCounters
    message: str = ""
    vanished: tuple[FileProblem, ...] = ()
    bad: tuple[FileProblem, ...] = ()
    again: tuple[FileProblem, ...] = ()
    changed: tuple[FileProblem, ...] = ()
    told: bool = False
    stop: tuple[StopReason, str] | None = None
    exit_code: int | None = None
    stderr_tail: bytes = b""


class Attempt:
    """One attempt that is in the ledger. Call `copy` once, then `confirm`."""

    def __init__(
        self,
        under_way: PassUnderWay,
        routes: Routes,
        meter: Meter,
        chunk: ChunkRecord,
        paths: Sequence[ListedPath],
        *,
        slot: int,
        way: Way,
        engine: Engine,
    ) -> None:
        world, request = under_way.world, under_way.request
        self._pass = under_way
        self._routes = routes
        self._way = way
        self._engine = engine
        self._settler = way.settler if engine.name != DIRECT else None
        self._from_brick = way.brick is not None
        self._world = world
        self._meter = meter
        self._chunk = chunk
        self._token = world.tokens()
        self._listed = tuple(paths)
        by_stream, self._by_descriptor = ((), ()) if chunk.kind is ChunkKind.LINKS else _divided(engine, chunk, paths)
        self._view = way.executor.view(chunk.tree)
        self._again = (
            request.recopy
            or chunk.list_path is not None
            or chunk.tree in under_way.doubtful_trees
            or bool(world.ledger.passes.attempts_of_chunk(chunk.id))
        )
        self._work = ChunkWork(
            kind=chunk.kind,
            tree=chunk.tree,
            paths=by_stream,
            capabilities=under_way.capabilities,
            bwlimit_bytes_per_s=(
                _share(request.bwlimit_bytes_per_s, routes.streams)
                if under_way.governor is None
                else under_way.governor.share_of(chunk.id)
            ),
            # Files listed after the seed are known to differ, even if size and times are the same.
            recopy=self._again or under_way.kind is not PassKind.SEED,
            brick=way.brick,
        )
        self._command: Command | None = None
        if by_stream:
            self._command = replace(engine.command(self._work, self._view), token=self._token)
        # Intent before the act: from here on the ledger has the token that every process of it carries.
        self.id = world.ledger.passes.intend(
            chunk_id=chunk.id,
            token=self._token,
            host=way.executor.host,
            engine=engine.name if self._command else BY_DESCRIPTOR,
            argv=[show(word) for word in self._command.argv] if self._command else (),
            at_s=world.clock.now_s(),
        )
        self._stream = Stream(
            under_way,
            meter,
            chunk,
            attempt_id=self.id,
            token=self._token,
            slot=slot,
            executor=way.executor,
        )
        LOG.info("attempt begins", extra=self.facts)

    @property
    def facts(self) -> Mapping[str, object]:
        """Identification for the log."""
        return {
            "run": self._pass.invocation.run_id,
            "batch": self._pass.batch.number,
            "chunk": self._chunk.number,
            "chunk_kind": self._chunk.kind.value,
            "tree": self._chunk.tree,
            "attempt": self.id,
            "paths": len(self._listed),
        }

    @property
    def counters(self) -> StreamCounters:
        """What has been written so far."""
        return self._stream.counters

    @property
    def exit_code(self) -> int | None:
        """Of the last stream; None if there was none."""
        return self._stream.exit_code

    @property
    def stderr_tail(self) -> bytes:
        """The end of the last stream's standard error."""
        return self._stream.stderr_tail

    @property
    def token(self) -> str:
        """In the environment of every process of it."""
        return self._token

    async def confirm(self, result: Result) -> Result:
        """After `copy`: files count as arrived when a later sync has reached the target's disks; files of a brick, when also
        a later check finds the volume unchanged. Raises CancelledError, HostLost.
        """
        if result.verdict is not Verdict.DONE:
            return result
        quiet = asyncio.create_task(self._routes.quiet_now()) if self._from_brick else None
        try:
            synced = await self._synced(result)
            if quiet is not None and not await quiet:
                message = "the volume did not stay as it was while its brick was read"
                return replace(synced, verdict=Verdict.INTERRUPTED, message=message, told=True)
        finally:
            if quiet is not None:
                quiet.cancel()
                await asyncio.wait({quiet})
        return synced

    async def _synced(self, result: Result) -> Result:
        # Done means that a sync which started after the end of the stream has reached the disks.
        try:
            if self._command is not None:
                await self._pass.sync_of(self._way.executor).begun_after_now()
            if self._command is None or self._by_descriptor:
                await self._pass.sync.begun_after_now()
        except TimeoutError:
            detail = "what was written has not reached the target's disks in time"
            return self._stopped(StopReason.TARGET_STUCK, detail)
        except OSError as error:
            reason = stop_reason(error.errno) or StopReason.IO_ERROR
            return self._stopped(reason, f"sync of the target: {error.strerror or error}")
        return result

    async def copy(self) -> Result:
        """Copy and judge. Raises CancelledError after the stream has ended, Unended if it could not be ended, HostLost if
        that is unknown.
        """
        bad: tuple[FileProblem, ...] = ()
        vanished: tuple[FileProblem, ...] = ()
        again: tuple[FileProblem, ...] = ()
        changed: tuple[FileProblem, ...] = ()
        if self._command is not None:
            names = [listed.path for listed in self._work.paths]
            if self._again and self._chunk.kind in (ChunkKind.FILES, ChunkKind.RANGED_FILES):
                await remove_before_stream(self._pass, names)
            if self._engine.name != DIRECT and self._chunk.kind is ChunkKind.RANGED_FILES:
                await remove_parts(self._pass, names)
            outcome = await self._copy_by_stream(self._command)
            if outcome.verdict is Verdict.DONE and self._settler is not None:
                outcome = await self._settle(self._settler, outcome)
            if outcome.verdict is Verdict.STOP:
                outcome = self._without_known_io_errors(outcome)
            if outcome.verdict is not Verdict.DONE:
                return self._as_it_is(outcome)
            changed, moved, suspects = _by_kind(outcome.suspects)
            judgement = await judge(self._pass, suspects)
            if judgement.stop is not None:
                return self._stopped(*judgement.stop, bad=judgement.bad)
            bad, vanished, again = judgement.bad, judgement.vanished, (*judgement.reappeared, *moved)
            if self._from_brick:
                # The mount may have a file that the brick refuses: it is tried before the file counts as bad.
                bad, again = (), (*again, *bad)
        else:
            # This process does the work itself: a crash leaves no other process behind.
            own = ProcessIdentity(pid=self._pass.request.pid, start_ticks=0, boot_id="")
            self._world.ledger.passes.started(self.id, own)
        handled = await self._without_stream()
        if handled.counters.files:
            self._stream.counters = self.counters + handled.counters
            self._meter.wrote(handled.counters)
        if handled.stop is not None:
            return self._stopped(*handled.stop, bad=(*bad, *handled.suspects))
        gone = [problem for problem in handled.suspects if problem.kind is FileProblemKind.VANISHED]
        settled = await settle_vanished(self._pass, gone)
        if settled.stop is not None:
            return self._stopped(*settled.stop)
        return Result(
            verdict=Verdict.DONE,
            counters=self.counters,
            vanished=(*vanished, *settled.vanished),
            bad=(*bad, *(problem for problem in handled.suspects if problem.kind is FileProblemKind.BAD)),
            again=(*again, *settled.reappeared),
            changed=changed,
            exit_code=self.exit_code,
            stderr_tail=self.stderr_tail,
        )

    async def _copy_by_stream(self, command: Command) -> Outcome:
        start: Start = partial(self._way.executor.execute, command, program=self._engine.program, tree=self._chunk.tree)
        files = self._pass.invocation.directory.attempt(self._chunk.number, self.id, command)
        on_start = partial(self._world.ledger.passes.started, self.id)
        return await self._stream.follow(
            start, self._engine.reader(self._work, self._view), files=files, on_start=on_start
        )

    async def _without_stream(self) -> Handled:
        if self._chunk.kind is ChunkKind.LINKS:
            return await make_links(self._pass, self._chunk.tree, self._listed)
        return await copy_by_descriptor(self._pass, self._chunk.tree, self._by_descriptor, by_stream=self._work.paths)

    async def _settle(self, settler: Settler, copied: Outcome) -> Outcome:
        """Repair times and find moved names after a copy from a brick; the outcome of both steps. Files that did not arrive
        cannot be repaired; if both steps report a file, the second one counts, because it knows bricks.
        """
        command = settler.settle_command(self._work, self._view)
        if command is None:
            return copied
        command = replace(command, token=self._token)
        start: Start = partial(self._way.executor.execute, command, program=settler.program, tree=self._chunk.tree)
        settled = await self._stream.follow(start, settler.reader(self._work, self._view))
        told = {suspect.path for suspect in settled.suspects}
        suspects = (*settled.suspects, *(suspect for suspect in copied.suspects if suspect.path not in told))
        self._stream.counters = copied.counters
        return replace(settled, counters=copied.counters, suspects=suspects)

    def _without_known_io_errors(self, outcome: Outcome) -> Outcome:
        """If all EIO files were recorded by an earlier run, the pool does not stop: those files are bad."""
        failing = [suspect for suspect in outcome.suspects if suspect.errno == errno.EIO]
        known = self._pass.known_io_errors
        if outcome.stop is StopReason.IO_ERROR and failing and all(suspect.path in known for suspect in failing):
            return replace(outcome, verdict=Verdict.DONE, stop=None)
        return outcome

    def _as_it_is(self, outcome: Outcome) -> Result:
        if outcome.verdict is Verdict.STOP:
            failing = tuple(
                replace(suspect, kind=FileProblemKind.BAD) for suspect in outcome.suspects if suspect.errno == errno.EIO
            )
            return self._stopped(outcome.stop or StopReason.IO_ERROR, outcome.message, bad=failing)
        return Result(
            verdict=outcome.verdict,
            counters=self.counters,
            message=outcome.message,
            exit_code=self.exit_code,
            stderr_tail=self.stderr_tail,
        )

    def _stopped(self, reason: StopReason, detail: str, bad: tuple[FileProblem, ...] = ()) -> Result:
        """Only files that fail with EIO are recorded: other reasons for a stop blame no file."""
        return Result(
            verdict=Verdict.STOP,
            counters=self.counters,
            message=detail,
            bad=tuple(problem for problem in bad if problem.errno == errno.EIO),
            stop=(reason, detail),
            exit_code=self.exit_code,
            stderr_tail=self.stderr_tail,
        )


def _divided(
    engine: Engine, chunk: ChunkRecord, paths: Sequence[ListedPath]
) -> tuple[tuple[ListedPath, ...], tuple[ListedPath, ...]]:
    """Paths that the engine's stream can copy, and the others."""
    by_stream: list[ListedPath] = []
    rest: list[ListedPath] = []
    for listed in paths:
        (by_stream if engine.fits(chunk.tree, listed.path) else rest).append(listed)
    return tuple(by_stream), tuple(rest)


def _by_kind(
    suspects: Sequence[FileProblem],
) -> tuple[tuple[FileProblem, ...], tuple[FileProblem, ...], tuple[FileProblem, ...]]:
    """Suspects that changed during the copy, that left their brick, and that need a look-up."""
    changed = tuple(suspect for suspect in suspects if suspect.kind is FileProblemKind.CHANGED)
    moved = tuple(suspect for suspect in suspects if suspect.kind is FileProblemKind.MOVED)
    kinds = (FileProblemKind.CHANGED, FileProblemKind.MOVED)
    return changed, moved, tuple(suspect for suspect in suspects if suspect.kind not in kinds)


def _share(limit_bytes_per_s: int | None, streams: int) -> int | None:
    return None if limit_bytes_per_s is None else max(limit_bytes_per_s // max(streams, 1), 1)
