"""One attempt at one chunk: the stream, the files that did not arrive, and the sync that confirms it."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from migrator.core.entry import Entry, EntryType
from migrator.core.paths import show
from migrator.core.states import ChunkKind, PassKind
from migrator.site.model import DIRECT
from migrator.transfer import model
from migrator.transfer.context import LOG, PassUnderWay
from migrator.transfer.judging import Result, judge, look_up_all
from migrator.transfer.leftovers import remove_before_stream
from migrator.transfer.links import make_links
from migrator.transfer.meter import Meter
from migrator.transfer.ports import ChunkWork, ConnectedHost, CopyEngine
from migrator.transfer.stream import Stream, sync_problem

if TYPE_CHECKING:
    from migrator.plan.chunk_lists import ListedPaths
    from migrator.transfer.routes import Routes

_MAY_BLOCK = frozenset({EntryType.FIFO, EntryType.CHARACTER, EntryType.BLOCK})


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
        connected: ConnectedHost,
        engine: CopyEngine,
    ) -> None:
        request = under_way.request
        self._routes = routes
        self._closings = routes.closings_of(chunk.brick)
        self._engine = engine
        self._from_brick = connected.brick is not None
        self.listed = paths
        self._links = chunk.kind is ChunkKind.LINKS
        self._view = connected.executor.view(chunk.tree)
        self._again = request.recopy or tried or chunk.tree in under_way.doubtful_trees
        self._work = ChunkWork(
            kind=ChunkKind.FILES if self._links else chunk.kind,
            tree=chunk.tree,
            paths=paths.within(chunk.tree),
            capabilities=under_way.capabilities,
            bwlimit_bytes_per_s=None if under_way.governor is None else under_way.governor.share_of(chunk.id),
            # Files listed after the seed are known to differ, even if size and times are the same.
            recopy=self._again or under_way.kind is not PassKind.SEED,
            # Where an attempt may have left files, each of these costs a call that fails.
            own_names=under_way.kind is PassKind.SEED and not self._again,
            digest=under_way.digests and chunk.kind in (ChunkKind.FILES, ChunkKind.RANGED_FILES),
            brick=connected.brick,
        )
        streams = bool(self._work.paths) and not self._links
        command = engine.command(self._work, self._view) if streams else None
        super().__init__(
            under_way, meter, chunk, slot=slot, executor=connected.executor, engine=engine.name, command=command
        )

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
        LOG.info("attempt begins", extra=self.facts)
        linked = await self._link() if self._links else Result()
        if self.command is None or linked.stop is not None:
            return linked
        parts = self._engine.name != DIRECT and self.chunk.kind is ChunkKind.RANGED_FILES
        if parts or (self._again and self.chunk.kind in (ChunkKind.FILES, ChunkKind.RANGED_FILES)):
            await remove_before_stream(self.under_way, [listed.path for listed in self._work.paths], parts=parts)
        start = partial(self.executor.execute, program=self._engine.program)
        reader = self._engine.reader(self._work, self._view)
        if (governor := self.under_way.governor) is not None and self._engine.name == DIRECT:
            change = partial(self.executor.limit, self.token)
            governor.follow(self.chunk.id, change, lambda: reader.counters.size_bytes)
        outcome = await self.follow(self.command, start, reader)
        if self.stalled:
            outcome = await self._of_stalled(outcome)
        if outcome.verdict is model.AttemptVerdict.STOP:
            return Result().stop_for(outcome.stop or model.StopReason.IO_ERROR, outcome.message)
        if outcome.verdict is not model.AttemptVerdict.DONE:
            return Result(verdict=outcome.verdict, message=outcome.message)
        by_kind: dict[model.FileProblemKind, list[model.FileProblem]] = {kind: [] for kind in model.FileProblemKind}
        for suspect in outcome.suspects:
            by_kind[suspect.kind].append(suspect)
        changed, moved = by_kind.pop(model.FileProblemKind.CHANGED), by_kind.pop(model.FileProblemKind.MOVED)
        result = await judge(self.under_way, [suspect for some in by_kind.values() for suspect in some])
        if result.stop is not None:
            return result
        result.changed, result.again, result.bad = changed, [*result.again, *moved], [*linked.bad, *result.bad]
        if self._from_brick:
            # The mount may have a file that the brick refuses: the next try reads it there before it counts as bad.
            result.again, result.bad = [*result.again, *result.bad], []
        return result

    async def _link(self) -> Result:
        """Make the links of the chunk; a stream has to copy the paths that cannot be linked."""
        result, made, instead = await make_links(self.under_way, self.listed)
        self.counters = model.StreamCounters(files=made)
        self.meter.wrote(self.counters)
        if instead:
            self._work = replace(self._work, paths=type(self._work.paths).of(instead))
            self.command = self._engine.command(self._work, self._view)
        return result

    async def confirm(self, result: Result) -> Result:
        """Confirm the result of `copy`. Files count as arrived when a later sync has reached the target's disks; files
        of a brick also need a later check that finds the volume unchanged. Raises CancelledError, HostLost.
        """
        if result.verdict is not model.AttemptVerdict.DONE:
            return result
        quiet = asyncio.create_task(self._routes.quiet_now(self.chunk.brick)) if self._from_brick else None
        try:
            result = await self._synced(result)
            if quiet is not None and (not await quiet or self._routes.closings_of(self.chunk.brick) != self._closings):
                result.message = "the volume did not stay as it was while its brick was read"
                result.verdict, result.reported = model.AttemptVerdict.INTERRUPTED, True
        finally:
            if quiet is not None:
                quiet.cancel()
                await asyncio.wait({quiet})
        return result

    def keep_digests(self) -> None:
        """Keep the digests that the stream reported, instead of its output, which has a line for each file. Blocking; may be called
        again. Without them, a verification reads the source.
        """
        if not self._work.digest or self.command is None:
            return
        directory, output = self.under_way.invocation.directory, (self.chunk.number, self.id)
        try:
            self.under_way.world.copy_digests.keep(self.token, directory.output(*output))
            directory.remove_output(*output)
        except OSError as error:
            LOG.warning("digests of a chunk are not kept: %s", error.strerror or error, extra=self.facts)

    async def _synced(self, result: Result) -> Result:
        # A chunk is done when a sync that started after the end of its stream has reached the disks.
        syncs = [self.under_way.sync_of(self.executor)] if self.command is not None else []
        if self.command is None or self._links:
            syncs.append(self.under_way.sync)
        for sync in syncs:
            if (stop := await sync_problem(sync)) is not None:
                return Result().stop_for(*stop)
        return result

    async def _of_stalled(self, outcome: model.StreamOutcome) -> model.StreamOutcome:
        """Interpret a stalled stream. It stops the pool, unless one file explains the stall or both sides answer. Then
        it costs only its chunk, which is tried again and divided until the file is alone.

        A file that became a FIFO after rsync's look-up stalls a stream: rsync opens it without O_NONBLOCK, and waits
        for a writer.
        """
        seen = await look_up_all(self.under_way, [listed.path for listed in self._work.paths])
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
        return replace(outcome, verdict=model.AttemptVerdict.RETRY, stop=None, message=message)
