"""The scan of bricks: each is walked on its own host, and all rows go into one catalog."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.model import BrickFindings, BrickWalk, CatalogRecord, PathFinding, ScanTimes, StrangeFiles
from migrator.catalog.ports import CatalogTotals
from migrator.core.clock import Clock
from migrator.core.entry import UserTree
from migrator.core.errors import Interrupted, MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.progress import BrickProgress
from migrator.core.units import NS_PER_S, format_count, format_duration, several
from migrator.fs.model import ScanProblem, SourceHealth
from migrator.gluster.model import Brick, BrickRules, Mark, VolumeState, volume_state
from migrator.gluster.rules import subvolumes
from migrator.gluster.volume import GlusterSource
from migrator.gluster.walks import BrickHello, BrickTotals, HostBrickWalks, WalkProblems
from migrator.scan import rules
from migrator.scan.marks import MarksFound, MountAnswers, forget_marked
from migrator.scan.session import Session, catalog_name, describe_trees
from migrator.site.rules_guards import health_problems

if TYPE_CHECKING:
    from migrator.catalog.brick_parts import BrickPartsWriter

# --- Walks of the chosen bricks, in parallel, each on its own host
#
# Each walk pauses after its first message, until all bricks have proven to be those that glusterd names.


_STALLED_S = 3600.0
"""A walk is stalled if it sends nothing for this long: even at a hundred entries per second, a block fills sooner."""
_TO_ASK_LIMIT = 100_000
"""Paths kept for look-ups through the mount: far more than are ever looked up, in bounded memory."""

_STRANGE_KEPT = 1_000
"""Paths of one brick that are kept as examples."""

_Add = Callable[[str, int, memoryview], CatalogTotals]


class Walker:
    """One brick: stores and counts what its walk sends. The `BrickListener` port."""

    def __init__(self, brick: Brick, team: "BrickTeam", *, marks_only: bool) -> None:
        self.brick = brick
        self.marks_only = marks_only
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
        """Check the identity of the brick, and wait for the others."""
        self.failure = rules.brick_problem(
            self.brick,
            volume_id=self._team.state.volume_id,
            found_volume_id=hello.volume_id,
            found_root_gfid=hello.root_gfid,
        )
        self._device = hello.device
        self.greeted.set()
        await self._team.gate.wait()
        self.began_s = self.heard_s = self._team.clock.monotonic_s()

    async def rows(self, payload: memoryview) -> None:
        """Add entries other than directories to the catalog."""
        await self._write(self._team.writer.add_rows, payload)

    async def directories(self, payload: memoryview) -> None:
        """Add directories to the catalog."""
        await self._write(self._team.writer.add_directories, payload)

    async def listings(self, payload: memoryview) -> None:
        """Keep the sums of names of directories."""
        self.heard_s = self._team.clock.monotonic_s()
        await asyncio.to_thread(self._team.writer.add_listings, self.brick.name, payload)

    async def problems(self, found: WalkProblems) -> None:
        """Take unreadable paths, paths to look up through the mount later, and paths that must not be looked up there."""
        team = self._team
        team.problems += len(found.unreadable)
        team.writer.note(found.unreadable)
        self.heard_s = team.clock.monotonic_s()
        room = max(_TO_ASK_LIMIT - len(team.to_ask), 0)
        team.to_ask.extend(problem.path for problem in found.to_ask[:room])
        team.marks.add(found.marked)
        self.strange_count += len(found.strange)
        self.strange.extend(problem.path for problem in found.strange[: _STRANGE_KEPT - len(self.strange)])
        team.not_to_ask.update(problem.path for problem in found.strange)

    async def walk(self, walks: HostBrickWalks, trees: Sequence[bytes], *, only_trees: bool, rules: BrickRules) -> None:
        """Walk the brick. `failure` is set if the walk fails; only errors of the catalog's disk are raised."""
        try:
            totals = await walks.walk(
                self.brick,
                trees=trees,
                only_trees=only_trees,
                rules=rules,
                listener=self,
                marks_only=self.marks_only,
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
        """Wait until all received blocks are in the catalog. Raises errors of writing."""
        writing, self._writing = self._writing, None
        if writing is not None:
            counted = await asyncio.shield(writing)
            self.row_count += counted.rows
            self.directory_count += counted.directories

    async def settle(self) -> None:
        """Wait for a thread that still writes, and ignore its result."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.exception()

    def facts(self) -> BrickWalk:
        """The facts for the closing record."""
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
        """The number of entries of both kinds in the catalog."""
        return self.row_count + self.directory_count

    def elapsed_s(self) -> float:
        """Seconds since the walk was released; 0 before."""
        if self.began_s is None:
            return 0.0
        return (self._team.clock.monotonic_s() if self.ended_s is None else self.ended_s) - self.began_s

    async def _write(self, add: _Add, payload: memoryview) -> None:
        """Write one block while the next one arrives, and no more than that, to bound memory."""
        self.heard_s = self._team.clock.monotonic_s()
        await self.written()
        self._writing = asyncio.ensure_future(asyncio.to_thread(add, self.brick.name, self._device, payload))


class BrickTeam:
    """The walks of all bricks. `state` is the volume before them, with its peers and heals. `bricks` are read, one of each
    subvolume; of `copies`, which hold the same files, only marks and names are. `stop` must be called at the end in any
    case.
    """

    def __init__(
        self,
        walks: HostBrickWalks,
        bricks: Sequence[Brick],
        state: VolumeState,
        *,
        copies: Sequence[Brick] = (),
        rules: BrickRules,
        clock: Clock,
    ) -> None:
        self.state = state
        self.clock = clock
        self.gate = asyncio.Event()
        self.walkers = tuple(
            Walker(brick, self, marks_only=marks_only)
            for some, marks_only in ((bricks, False), (copies, True))
            for brick in some
        )
        self.marks = MarksFound()
        self.problems = 0
        self.to_ask: list[bytes] = []
        self.not_to_ask: set[bytes] = set()
        self._walks = walks
        self._rules = rules
        self._writer: BrickPartsWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def writer(self) -> "BrickPartsWriter":
        """The writer of the catalog, set by `go`."""
        if self._writer is None:
            raise ValueError("the walks were not let go yet")
        return self._writer

    async def greet(self, trees: Sequence[bytes], *, only_trees: bool) -> tuple[str, ...]:
        """Start all walks and wait for their first messages; return a sentence for each unexpected brick. With
        `only_trees`, nothing outside the trees is walked.
        """
        self._tasks = [
            asyncio.ensure_future(walker.walk(self._walks, trees, only_trees=only_trees, rules=self._rules))
            for walker in self.walkers
        ]
        for walker in self.walkers:
            await walker.greeted.wait()
        return tuple(walker.failure for walker in self.walkers if walker.failure is not None)

    async def go(self, writer: "BrickPartsWriter") -> None:
        """Release the walks, and wait until all have ended. Raises OSError if the catalog cannot be written."""
        self._writer = writer
        self.gate.set()
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()

    def end_stalled(self) -> None:
        """End stalled walks. Their bricks are missing from this scan."""
        now_s = self.clock.monotonic_s()
        for walker, task in zip(self.walkers, self._tasks, strict=True):
            if not task.done() and now_s - walker.heard_s > _STALLED_S:
                walker.failure = f"its walk sent nothing for {format_duration(now_s - walker.heard_s)}"
                task.cancel()

    async def stop(self) -> None:
        """End the remaining walks, and wait for pending writes. May be called again."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for walker in self.walkers:
            await walker.settle()

    @property
    def rows(self) -> int:
        """Rows of all bricks so far, without directories."""
        return sum(walker.row_count for walker in self.walkers)

    def may_be_asked(self, paths: Iterable[bytes]) -> list[bytes]:
        """The paths that may be looked up through the mount, in order: a client that looks up a name that lacks a gfid
        on any brick can hang (GlusterFS #3688).
        """
        return sorted(set(paths) - self.not_to_ask)

    def strange(self) -> tuple[StrangeFiles, ...]:
        """Files that were written to bricks past Gluster."""
        return tuple(
            StrangeFiles(brick=walker.brick.name, files=walker.strange_count, paths=tuple(sorted(walker.strange)))
            for walker in self.walkers
            if walker.strange_count
        )

    def progress(self) -> tuple[BrickProgress, ...]:
        """The progress of each brick."""
        return tuple(
            BrickProgress(
                brick=walker.brick.name,
                rows=walker.entries,
                elapsed_s=walker.elapsed_s(),
                ended=walker.ended_s is not None,
            )
            for walker in self.walkers
        )


# --- The scan of bricks
#
# It is whole only if the volume was quiet and unchanged from before the first row until after the last. An interrupted scan of
# bricks starts over.


VIA = "bricks"
_LOOK_EVERY_S = 15.0
"""The interval of polls of the volume during the walk. Gluster's status keeps no trace of a task that began and stopped
between two polls, so they are frequent."""
_ASK_LIMIT = 10_000
"""The most paths to look up through the mount, at some thousands per second."""
_UNSETTLED_S = 60.0
"""Directories that changed less than this before a scan began may differ between two walks of it, also if the clocks of clients
differ by some seconds.
"""


class BrickScan(Struct, frozen=True, kw_only=True):
    """One scan of the bricks. `team` has passed `greet`."""

    session: Session
    team: BrickTeam
    trees: tuple[UserTree, ...]
    before: SourceHealth

    async def run(self) -> CatalogRecord:
        """Scan, and close the catalog. Raises Interrupted, MigratorError. The caller stops the team."""
        session = self.session
        record = session.new_record(
            name=catalog_name(session.clock.now_s()),
            at_s=session.clock.now_s(),
            via=VIA,
            trees=self.trees,
            fingerprint=self.before.fingerprint,
        )
        try:
            writer = await asyncio.to_thread(session.catalogs.create_from_bricks, record, bricks=len(self.team.walkers))
            hosts = len({walker.brick.host for walker in self.team.walkers})
            session.event(
                EventKind.SCAN_STARTED,
                Severity.INFO,
                record.name,
                f"the scan begins: {describe_trees(len(self.trees), record.scope)}, from "
                f"{several(len(self.team.walkers), 'brick')} on {several(hosts, 'host')}",
            )
            checked_s = session.elapsed_s()
            async with session.watching(self._show, self._look, every_s=_LOOK_EVERY_S):
                await self.team.go(writer)
            return await self._close(record, writer, checked_s, walked_s=session.elapsed_s())
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._drop(record)))
            raise Interrupted(
                "the scan was stopped", hint=f"run {session.command} again: a scan of bricks starts over"
            ) from None
        except OSError as error:
            raise session.not_written(error, "a scan of bricks starts over") from error

    async def _look(self) -> None:
        self.team.end_stalled()
        health = await self.session.source.health()
        self.session.note(health.problems)
        if (state := volume_state(health)) is not None:
            self.session.note(rules.reasons_against_bricks(replace(state, peers_down=(), heals=())))
            self.session.note(rules.task_changes(self.team.state, state))

    def _show(self) -> None:
        # A directory is on every brick, but is one path of the catalog.
        directories = max((walker.directory_count for walker in self.team.walkers), default=0)
        self.session.show(
            rows=self.team.rows + directories,
            directories_waiting=0,
            problems=self.team.problems,
            bricks=self.team.progress(),
        )

    async def _drop(self, record: CatalogRecord) -> None:
        await self.team.stop()
        await asyncio.to_thread(self.session.catalogs.discard, record.name)
        self.session.event(
            EventKind.SCAN_INTERRUPTED, Severity.WARNING, record.name, "the scan was stopped; it starts over"
        )

    async def _close(
        self, record: CatalogRecord, writer: "BrickPartsWriter", checked_s: float, *, walked_s: float
    ) -> CatalogRecord:
        session, team = self.session, self.team
        doubts, totals = await asyncio.to_thread(self._unite, record, writer)
        united_s = session.elapsed_s()
        against = [*session.noted, *await self._changes(), *self._lost(), *doubts.doubts]
        rechecked_s = session.elapsed_s()
        record = replace(
            record,
            findings=doubts.findings,
            strange=team.strange(),
            bricks=tuple(walker.facts() for walker in team.walkers if not walker.marks_only),
            times=ScanTimes(
                checks_s=checked_s + rechecked_s - united_s,
                walk_s=walked_s - checked_s,
                finish_s=united_s - walked_s,
            ),
        )
        totals = replace(totals, problems=team.problems)
        return await session.close(record, writer, against=against, trees=self.trees, totals=totals)

    async def _changes(self) -> list[str]:
        """Changes of the volume since the start, and reasons against reading bricks now. A failed poll is a reason too."""
        after = await self.session.source.health()
        reasons = [*await self.session.mount_problems(), *health_problems(self.before, after)]
        source = self.session.source
        if not isinstance(source, GlusterSource):
            raise TypeError("only a volume has bricks")
        try:
            state = await source.state_for_bricks(volume_state(after))
        except MigratorError as error:
            return [*reasons, f"the volume's state after the scan is unknown: {error.message}"]
        against = rules.reasons_against_bricks(state)
        return [*reasons, *against, *rules.task_changes(self.team.state, state)]

    def _lost(self) -> list[str]:
        """The bricks whose walk failed, and why."""
        return [
            f"brick {walker.brick.name} was not read to its end: {walker.failure}"
            for walker in self.team.walkers
            if walker.failure is not None
        ]

    def _unite(self, record: CatalogRecord, writer: "BrickPartsWriter") -> tuple[rules.BrickDoubts, CatalogTotals]:
        """Merge all rows into one catalog, and look up through the mount what the bricks leave uncertain. Blocking."""
        team = self.team
        walked = {walker.brick.name for walker in team.walkers}
        sets = [[brick.name for brick in bricks if brick.name in walked] for bricks in subvolumes(team.state)]
        settled_before_ns = int((record.started_at_s - _UNSETTLED_S) * NS_PER_S)
        findings = writer.unite(sets, settled_before_ns=settled_before_ns, limit=_ASK_LIMIT)
        # Entries of a directory with a pending heal differ between its copies.
        pending = team.marks.of(Mark.PENDING)
        unlike = tuple(path for path in findings.unlike.paths if path not in pending)
        explained = len(findings.unlike.paths) - len(unlike)
        findings = replace(findings, unlike=PathFinding(count=findings.unlike.count - explained, paths=unlike))
        unread = self._ask_the_mount(writer, findings)
        if len(team.to_ask) > _ASK_LIMIT:
            unread.append(
                ScanProblem(
                    path=b"",
                    operation="look",
                    errno=None,
                    reason=f"{format_count(len(team.to_ask))} paths had to be looked at through the mount; "
                    f"the first {format_count(_ASK_LIMIT)} were",
                )
            )
        counted = [walker.totals for walker in team.walkers if walker.totals is not None]
        doubts = rules.judge_bricks(
            findings,
            marks=team.marks.found,
            vanished=sum(totals.vanished for totals in counted),
            hidden_marks=sum(totals.hidden_marks for totals in counted),
            strange=team.strange(),
            limit=_ASK_LIMIT,
        )
        writer.note([*unread, *doubts.unread])
        team.problems += len(unread) + len(doubts.unread)
        return doubts, writer.totals()

    def _ask_the_mount(self, writer: "BrickPartsWriter", findings: BrickFindings) -> list[ScanProblem]:
        """Take from the mount every path that the bricks leave uncertain; return those that could not be read."""
        team = self.team
        asked = team.may_be_asked(team.to_ask)[:_ASK_LIMIT]
        lacking = writer.lacks(asked) if asked else ()
        incomplete, trees = frozenset(findings.incomplete.paths), rules.TreeIndex(self.trees)
        mount = MountAnswers(self.session.source, writer, trees, incomplete=incomplete, limit=_ASK_LIMIT)
        for path in team.may_be_asked((*lacking, *findings.doubled_paths.paths, *findings.differing.paths)):
            mount.look(path, lacking=path in lacking)
        marked = team.may_be_asked(team.marks.paths)
        kept = forget_marked(self.session.source.root, marked[:_ASK_LIMIT])
        for path in marked:
            mount.read_again(path)
        for path in team.may_be_asked(findings.renamed.paths):
            mount.read_again(path)
        return [*kept, *mount.finish()]
