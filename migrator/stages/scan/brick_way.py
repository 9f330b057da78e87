"""The fast way: every brick is walked on its own host, and all their rows make one catalog.

It is whole only where the volume was quiet and unchanged from before the first row to after the last one. A scan of
bricks that is stopped starts over.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from migrator.decide.brick_doubts import BrickDoubts, Seen, judge_bricks
from migrator.decide.scan_way import reasons_against_bricks, task_changes
from migrator.decide.site_guards import health_problems
from migrator.decide.trees import TreeIndex
from migrator.domain.brick import SourceHealth, VolumeState
from migrator.domain.entry import Entry, EntryType
from migrator.domain.errors import Interrupted, MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.scan import CatalogRecord, ScanProblem, ScanTimes
from migrator.domain.tree import UserTree
from migrator.domain.units import format_count, several
from migrator.ports.bricks import BrickVolume
from migrator.ports.catalog import BrickCatalogWriter, BrickFindings, CatalogTotals, PathFinding
from migrator.stages.scan.brick_team import BrickTeam
from migrator.stages.scan.session import Session, catalog_name, trees_in_words

VIA = "bricks"
_SHOW_EVERY_S = 0.5
_LOOK_EVERY_S = 15.0
"""How often the volume is looked at during the walk: a task that was begun and stopped between two looks leaves no trace
in Gluster's own status."""
_ASK_LIMIT = 10_000
"""So many paths are looked at through the mount at most, at some thousands a second."""


class BrickWay:
    """One scan of the bricks. `team` has greeted; `state` is the volume before, with its peers and heals."""

    def __init__(
        self,
        session: Session,
        volume: BrickVolume,
        team: BrickTeam,
        *,
        trees: tuple[UserTree, ...],
        before: SourceHealth,
        state: VolumeState,
    ) -> None:
        self._session = session
        self._volume = volume
        self._team = team
        self._trees = trees
        self._before = before
        self._state = state
        self._noted: dict[str, None] = {}

    async def run(self) -> CatalogRecord:
        """Walk, and close the catalog. Raises Interrupted, MigratorError. The caller stops the team."""
        session = self._session
        record = session.new_record(
            name=catalog_name(session.clock.now_s()),
            at_s=session.clock.now_s(),
            via=VIA,
            trees=self._trees,
            fingerprint=self._before.fingerprint,
        )
        try:
            writer = await asyncio.to_thread(
                session.catalogs.create_from_bricks, record, bricks=len(self._team.walkers)
            )
            hosts = len({walker.brick.host for walker in self._team.walkers})
            session.event(
                EventKind.SCAN_STARTED,
                Severity.INFO,
                record.name,
                f"the scan begins: {trees_in_words(len(self._trees), record.scope)}, from "
                f"{several(len(self._team.walkers), 'brick')} on {several(hosts, 'host')}",
            )
            checked_s = session.elapsed_s()
            await self._walk(writer)
            return await self._close(record, writer, checked_s, walked_s=session.elapsed_s())
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.ensure_future(self._drop(record)))
            raise Interrupted(
                "the scan was stopped", hint=f"run {session.command} again: a scan of bricks starts over"
            ) from None
        except OSError as error:
            raise MigratorError(
                f"the catalog cannot be written: {error.strerror}",
                cause="the disk of the state directory is full or ill",
                hint=f"make room there, then run {session.command}: a scan of bricks starts over",
            ) from error

    async def _walk(self, writer: BrickCatalogWriter) -> None:
        """Until every walk has ended: show how far they are, and look at the volume now and then."""
        around = (
            asyncio.ensure_future(self._show_again_and_again()),
            asyncio.ensure_future(self._look_again_and_again()),
        )
        try:
            await self._team.go(writer)
        finally:
            for task in around:
                task.cancel()
            await asyncio.wait(around)
        self._show()

    async def _show_again_and_again(self) -> None:
        while True:
            self._show()
            await self._session.clock.sleep(_SHOW_EVERY_S)

    async def _look_again_and_again(self) -> None:
        while True:
            await self._session.clock.sleep(_LOOK_EVERY_S)
            self._team.end_stalled()
            health = await self._session.source.health()
            self._note(health.problems)
            if health.state is not None:
                self._note(reasons_against_bricks(replace(health.state, peers_down=(), heals=())))
                self._note(task_changes(self._state, health.state))

    def _show(self) -> None:
        by_tree = self._team.by_tree()
        # A directory lies on every brick, and is one path of the catalog.
        directories = max((walker.directory_count for walker in self._team.walkers), default=0)
        self._session.show(
            rows=sum(rows for rows, _ in by_tree.values()) + directories,
            directories_waiting=0,
            problems=self._team.problems,
            by_tree=by_tree,
            trees=self._trees,
            bricks=self._team.progress(),
        )

    def _note(self, problems: Sequence[str]) -> None:
        """Each problem once, at once."""
        for problem in problems:
            if problem not in self._noted:
                self._noted[problem] = None
                self._session.event(
                    EventKind.SOURCE_UNHEALTHY, Severity.WARNING, "scan", f"the scan will not be whole: {problem}"
                )

    async def _drop(self, record: CatalogRecord) -> None:
        await self._team.stop()
        await asyncio.to_thread(self._session.catalogs.discard, record.name)
        self._session.event(
            EventKind.SCAN_INTERRUPTED, Severity.WARNING, record.name, "the scan was stopped; it starts over"
        )

    async def _close(
        self, record: CatalogRecord, writer: BrickCatalogWriter, checked_s: float, *, walked_s: float
    ) -> CatalogRecord:
        session, team = self._session, self._team
        doubts, totals = await asyncio.to_thread(self._unite, writer)
        united_s = session.elapsed_s()
        reasons = [*session.lacking(self._trees), *self._noted, *await self._changes(), *self._lost(), *doubts.doubts]
        if team.problems:
            reasons.append(f"problems recorded while reading: {format_count(team.problems)}")
        rechecked_s = session.elapsed_s()
        closing = replace(
            record,
            finished_at_s=session.clock.now_s(),
            whole=not reasons,
            reasons=tuple(dict.fromkeys(reasons)),
            rows=totals.rows,
            files=totals.rows - totals.directories,
            directories=totals.directories,
            size_bytes=totals.size_bytes,
            problems=team.problems,
            findings=doubts.findings,
            strange=team.strange(),
            bricks=tuple(walker.facts() for walker in team.walkers),
            times=ScanTimes(
                checks_s=checked_s + rechecked_s - united_s,
                walk_s=walked_s - checked_s,
                finish_s=united_s - walked_s,
            ),
        )
        closed = await asyncio.to_thread(writer.close, closing)
        for finding in doubts.findings:
            session.event(EventKind.SCAN_FINISHED, Severity.WARNING, record.name, finding)
        await asyncio.to_thread(session.finish, closed)
        return closed

    async def _changes(self) -> list[str]:
        """What is another thing than before, or forbids to read the bricks now. A look that fails is a reason too."""
        after = await self._session.source.health()
        reasons = [*await self._session.mount_problems(), *health_problems(self._before, after)]
        try:
            state = await self._volume.state_for_bricks(after.state)
        except MigratorError as error:
            return [*reasons, f"the volume's state after the scan is not known: {error.message}"]
        return [*reasons, *reasons_against_bricks(state), *task_changes(self._state, state)]

    def _lost(self) -> list[str]:
        """The bricks whose walk came to no end, and why."""
        return [
            f"brick {walker.brick.name} was not read to its end: {walker.failure}"
            for walker in self._team.walkers
            if walker.failure is not None
        ]

    def _unite(self, writer: BrickCatalogWriter) -> tuple[BrickDoubts, CatalogTotals]:
        """One catalog of all rows, with the mount's word where the bricks are not certain. Blocking."""
        team = self._team
        findings = writer.unite(bricks=len(team.walkers), limit=_ASK_LIMIT)
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
        writer.note(unread)
        team.problems += len(unread)
        counted = [walker.totals for walker in team.walkers if walker.totals is not None]
        doubts = judge_bricks(
            doubled_paths=_seen(findings.doubled_paths),
            doubled_files=_seen(findings.doubled_inodes),
            conflicting=_seen(findings.conflicting),
            differing=_seen(findings.differing),
            incomplete=_seen(findings.incomplete),
            migrating=sum(totals.migrating for totals in counted),
            filling=sum(totals.filling_links for totals in counted),
            vanished=sum(totals.vanished for totals in counted),
            strange=team.strange(),
            limit=_ASK_LIMIT,
        )
        return doubts, writer.totals()

    def _ask_the_mount(self, writer: BrickCatalogWriter, findings: BrickFindings) -> list[ScanProblem]:
        """Look at every path that the bricks leave open; returns those that could not be looked at."""
        asked = self._team.may_be_asked(self._team.to_ask)[:_ASK_LIMIT]
        lacking = writer.lacks(asked) if asked else ()
        trees = TreeIndex(self._trees)
        unread: list[ScanProblem] = []
        rows: dict[bytes, tuple[bytes | None, Entry] | None] = {}
        for path in self._team.may_be_asked((*lacking, *findings.doubled_paths.paths, *findings.differing.paths)):
            try:
                entry = self._session.source.look(path)
            except OSError as error:
                unread.append(
                    ScanProblem(path=path, operation="look", errno=error.errno, reason=error.strerror or str(error))
                )
                continue
            rows[path] = None if entry is None else (trees.of(path), entry)
        known = set(lacking)
        for path, found in rows.items():
            if path in known and found is not None and found[1].type is EntryType.DIRECTORY:
                unread.append(
                    ScanProblem(
                        path=path,
                        operation="list",
                        errno=None,
                        reason=f"directory {show(path)} is there, and was not to be read on its bricks",
                    )
                )
        writer.replace(rows)
        return unread


def _seen(finding: PathFinding) -> Seen:
    return Seen(count=finding.count, paths=finding.paths)
