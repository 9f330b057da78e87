"""The walks of all chosen bricks, side by side, each on its own host.

Each waits after its first words until all have proven to be what glusterd says, and goes on only then.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from migrator.decide.scan_way import brick_problem
from migrator.domain.brick import Brick, VolumeState
from migrator.domain.errors import MigratorError
from migrator.domain.progress import BrickProgress
from migrator.domain.scan import BrickWalk, ScanProblem, StrangeFiles
from migrator.domain.units import format_duration
from migrator.ports.bricks import BrickHello, BrickTotals, BrickWalks
from migrator.ports.catalog import BrickCatalogWriter, CatalogTotals
from migrator.ports.clock import Clock

_STALLED_S = 3600.0
"""A walk that sends nothing for so long hangs: even a brick of a hundred entries a second fills its blocks sooner."""
_TO_ASK_LIMIT = 100_000
"""Paths for the mount that are kept: far more than are asked, and no more memory than that."""

_STRANGE_KEPT = 1_000
"""Paths of one brick that are kept for people."""

_Add = Callable[[str, int, memoryview], CatalogTotals]


class Walker:
    """One brick: takes what its walk finds, and counts it. The `BrickListener` port."""

    def __init__(self, brick: Brick, team: "BrickTeam") -> None:
        self.brick = brick
        self.row_count = 0
        self.directory_count = 0
        self.began_s: float | None = None
        self.ended_s: float | None = None
        self.failure: str | None = None
        self.totals: BrickTotals | None = None
        self.strange: list[bytes] = []
        self.strange_count = 0
        self.greeted = asyncio.Event()
        self._team = team
        self.heard_s = team.clock.monotonic_s()
        self._device = 0
        self._writing: asyncio.Future[CatalogTotals] | None = None

    async def hello(self, hello: BrickHello) -> None:
        """Prove what the brick is, and wait for the others."""
        self.failure = brick_problem(
            self.brick,
            volume_id=self._team.volume_id,
            found_volume_id=hello.volume_id,
            found_root_gfid=hello.root_gfid,
        )
        self._device = hello.device
        self.greeted.set()
        await self._team.gate.wait()
        self.began_s = self.heard_s = self._team.clock.monotonic_s()

    async def rows(self, payload: memoryview) -> None:
        """Entries that are no directories, into the catalog."""
        await self._write(self._team.writer.add_rows, payload)

    async def directories(self, payload: memoryview) -> None:
        """Directories, into the catalog."""
        await self._write(self._team.writer.add_directories, payload)

    async def problems(
        self, problems: Sequence[ScanProblem], to_ask: Sequence[ScanProblem], strange: Sequence[ScanProblem]
    ) -> None:
        """What could not be read, what the mount is asked later, and what nobody may ask it for."""
        self._team.problems += len(problems)
        self._team.writer.note(problems)
        self.heard_s = self._team.clock.monotonic_s()
        room = max(_TO_ASK_LIMIT - len(self._team.to_ask), 0)
        self._team.to_ask.extend(problem.path for problem in to_ask[:room])
        self.strange_count += len(strange)
        self.strange.extend(problem.path for problem in strange[: _STRANGE_KEPT - len(self.strange)])
        self._team.not_to_ask.update(problem.path for problem in strange)

    async def walk(
        self, walks: BrickWalks, trees: Sequence[bytes], *, only_trees: bool, times_from_mdata: bool
    ) -> None:
        """To its end. A walk that fails says so in `failure`; only what the catalog's disk raises is raised."""
        try:
            totals = await walks.walk(
                self.brick, trees=trees, only_trees=only_trees, times_from_mdata=times_from_mdata, listener=self
            )
            await self.written()
            await asyncio.to_thread(self._team.writer.brick_done, self.brick.name)
            self.totals = totals
            if (self.row_count, self.directory_count) != (totals.rows, totals.directories):
                self.failure = f"of {totals.rows + totals.directories} entries {self.entries} arrived"
        except MigratorError as error:
            self.failure = self.failure or error.message
        except asyncio.CancelledError:
            if self.failure is None:
                raise
        finally:
            self.ended_s = self._team.clock.monotonic_s()
            self.greeted.set()

    async def written(self) -> None:
        """Wait until what was handed over is in the catalog. Raises what the writing raises."""
        writing, self._writing = self._writing, None
        if writing is not None:
            self._count(await asyncio.shield(writing))

    async def settle(self) -> None:
        """Wait for a thread that still writes, whatever comes of it."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.exception()

    def facts(self) -> BrickWalk:
        """For the closing record."""
        return BrickWalk(
            brick=self.brick.name,
            host=self.brick.host,
            rows=self.row_count,
            directories=self.directory_count,
            elapsed_s=self.elapsed_s(),
            whole=self.failure is None and self.totals is not None,
        )

    @property
    def entries(self) -> int:
        """Entries of both kinds that are in the catalog."""
        return self.row_count + self.directory_count

    def elapsed_s(self) -> float:
        """Since it was let go; 0 before."""
        if self.began_s is None:
            return 0.0
        return (self._team.clock.monotonic_s() if self.ended_s is None else self.ended_s) - self.began_s

    async def _write(self, add: _Add, payload: memoryview) -> None:
        """One block is written while the next one is on its way: no more, so that memory stays flat."""
        self.heard_s = self._team.clock.monotonic_s()
        await self.written()
        self._writing = asyncio.ensure_future(asyncio.to_thread(add, self.brick.name, self._device, payload))

    def _count(self, counted: CatalogTotals) -> None:
        self.row_count += counted.rows
        self.directory_count += counted.directories
        self._team.count(counted)


class BrickTeam:
    """All of them. `stop` must be called in the end, whatever happened."""

    def __init__(
        self, walks: BrickWalks, bricks: Sequence[Brick], state: VolumeState, *, times_from_mdata: bool, clock: Clock
    ) -> None:
        self.volume_id = state.volume_id
        self.clock = clock
        self.gate = asyncio.Event()
        self.walkers = tuple(Walker(brick, self) for brick in bricks)
        self.problems = 0
        self.to_ask: list[bytes] = []
        self.not_to_ask: set[bytes] = set()
        self._walks = walks
        self._times_from_mdata = times_from_mdata
        self._writer: BrickCatalogWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._by_tree: Counter[bytes | None] = Counter()
        self._bytes_by_tree: Counter[bytes | None] = Counter()

    @property
    def writer(self) -> BrickCatalogWriter:
        """The catalog, from `go` on."""
        if self._writer is None:
            raise ValueError("the walks were not let go yet")
        return self._writer

    async def greet(self, trees: Sequence[bytes], *, only_trees: bool) -> tuple[str, ...]:
        """Start all walks and hear their first words; returns a sentence for each that is not what it should be. With
        `only_trees` nothing else is walked.
        """
        self._tasks = [
            asyncio.ensure_future(
                walker.walk(self._walks, trees, only_trees=only_trees, times_from_mdata=self._times_from_mdata)
            )
            for walker in self.walkers
        ]
        for walker in self.walkers:
            await walker.greeted.wait()
        return tuple(walker.failure for walker in self.walkers if walker.failure is not None)

    async def go(self, writer: BrickCatalogWriter) -> None:
        """Let them walk, until all have ended. Raises OSError where the catalog cannot be written."""
        self._writer = writer
        self.gate.set()
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    def end_stalled(self) -> None:
        """End walks that have sent nothing for an hour: their bricks are lost to this scan."""
        now_s = self.clock.monotonic_s()
        for walker, task in zip(self.walkers, self._tasks, strict=True):
            if not task.done() and now_s - walker.heard_s > _STALLED_S:
                walker.failure = f"its walk sent nothing for {format_duration(now_s - walker.heard_s)}"
                task.cancel()

    async def stop(self) -> None:
        """End what still walks, and wait for what is being written. May be called again."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for walker in self.walkers:
            await walker.settle()

    def count(self, counted: CatalogTotals) -> None:
        """Add what a block held."""
        for tree, (rows, size_bytes) in counted.by_tree.items():
            self._by_tree[tree] += rows
            self._bytes_by_tree[tree] += size_bytes

    def by_tree(self) -> Mapping[bytes | None, tuple[int, int]]:
        """Rows (no directories) and bytes of each tree so far."""
        return {tree: (rows, self._bytes_by_tree[tree]) for tree, rows in self._by_tree.items()}

    def may_be_asked(self, paths: Iterable[bytes]) -> list[bytes]:
        """Those of these paths that the mount may be asked for, in order: a client that asks for a name without a gfid can hang
        (GlusterFS #3688), whatever another brick has under it.
        """
        return sorted(set(paths) - self.not_to_ask)

    def strange(self) -> tuple[StrangeFiles, ...]:
        """What was put on bricks past Gluster."""
        return tuple(
            StrangeFiles(brick=walker.brick.name, files=walker.strange_count, paths=tuple(sorted(walker.strange)))
            for walker in self.walkers
            if walker.strange_count
        )

    def progress(self) -> tuple[BrickProgress, ...]:
        """How far each is."""
        return tuple(
            BrickProgress(
                brick=walker.brick.name,
                rows=walker.entries,
                elapsed_s=walker.elapsed_s(),
                ended=walker.ended_s is not None,
            )
            for walker in self.walkers
        )
