"""One try at one chunk: the stream, what it leaves to judge, and the sync that makes it count."""

import asyncio
import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from migrator.decide.engine_choice import DIRECT
from migrator.decide.stopping import stop_reason
from migrator.domain.paths import show
from migrator.domain.plan import ListedPath
from migrator.domain.states import ChunkKind, PassKind
from migrator.domain.transfer import (
    ChunkRecord,
    FileProblem,
    FileProblemKind,
    Outcome,
    ProcessIdentity,
    StopReason,
    StreamCounters,
    Verdict,
)
from migrator.ports.lanes import Way
from migrator.ports.processes import Command
from migrator.ports.streams import ChunkWork, Engine, Settler
from migrator.stages.run.context import LOG, PassUnderWay
from migrator.stages.run.descriptor import Handled, copy_by_descriptor, make_links
from migrator.stages.run.leftovers import remove_before_stream, remove_parts
from migrator.stages.run.looking import judge, settle_vanished
from migrator.stages.run.meter import Meter
from migrator.stages.run.routes import Routes
from migrator.stages.run.stream import Start, Stream

BY_DESCRIPTOR = "descriptor"
"""Named as the engine of attempts that start no process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one attempt came to, judged. `bad` and `vanished` are final, `again` is worth another try (of what was read
    from a brick, through the mount); `changed` arrived, and was being written to. `told`: its message has been said
    already, for all chunks that it concerns.
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
    """One attempt that is in the ledger. `copy` is called once, then `confirm`."""

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
            # What is listed after the seed is known to differ, and its size and times may be the same all the same.
            recopy=self._again or under_way.kind is not PassKind.SEED,
            brick=way.brick,
        )
        self._command: Command | None = None
        if by_stream:
            self._command = replace(engine.command(self._work, self._view), token=self._token)
        # Intent before the act: from here on the ledger knows the token that every process of it will carry.
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
        """Which attempt this is, for the log."""
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
        """Of the stream that ended last; None where there was none."""
        return self._stream.exit_code

    @property
    def stderr_tail(self) -> bytes:
        """The end of what the last stream said."""
        return self._stream.stderr_tail

    @property
    def token(self) -> str:
        """In the environment of every process of it."""
        return self._token

    async def confirm(self, result: Result) -> Result:
        """After `copy`: what arrived counts when a sync that began afterwards has reached the target's disks, and a brick
        when a look that began afterwards finds the volume as it was. Raises CancelledError, HostLost.
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
        # Done means that a sync which began after the stream's end has reached the disks.
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
        """Copy and judge. Raises CancelledError after the stream has ended, Unended where it could not be ended, HostLost
        where nobody knows.
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
                # What a brick refuses, the mount may have: it is asked before a file counts as bad.
                bad, again = (), (*again, *bad)
        else:
            # This program itself does the work: there is no other process to be found after a crash.
            own = ProcessIdentity(pid=self._pass.request.pid, start_ticks=0, boot_id="")
            self._world.ledger.passes.started(self.id, own)
        handled = await self._without_stream()
        if handled.counters.files:
            self._stream.counters = _plus(self.counters, handled.counters)
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
        """Times and moved names of what was copied from a brick; the outcome of both steps. What did not arrive cannot
        be settled; where both steps tell of a file, the second one knows bricks.
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
        """A stop for source files alone that an earlier run recorded is none: those files are bad."""
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
        """Only files that cannot be read for EIO are recorded: the stop's other reasons blame no file."""
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
    """What the engine's stream can copy, and what it cannot."""
    by_stream: list[ListedPath] = []
    rest: list[ListedPath] = []
    for listed in paths:
        (by_stream if engine.fits(chunk.tree, listed.path) else rest).append(listed)
    return tuple(by_stream), tuple(rest)


def _by_kind(
    suspects: Sequence[FileProblem],
) -> tuple[tuple[FileProblem, ...], tuple[FileProblem, ...], tuple[FileProblem, ...]]:
    """Those that changed all the time, those that moved off their brick, and those that want a look."""
    changed = tuple(suspect for suspect in suspects if suspect.kind is FileProblemKind.CHANGED)
    moved = tuple(suspect for suspect in suspects if suspect.kind is FileProblemKind.MOVED)
    kinds = (FileProblemKind.CHANGED, FileProblemKind.MOVED)
    return changed, moved, tuple(suspect for suspect in suspects if suspect.kind not in kinds)


def _share(limit_bytes_per_s: int | None, streams: int) -> int | None:
    return None if limit_bytes_per_s is None else max(limit_bytes_per_s // max(streams, 1), 1)


def _plus(one: StreamCounters, other: StreamCounters) -> StreamCounters:
    return StreamCounters(files=one.files + other.files, size_bytes=one.size_bytes + other.size_bytes)
