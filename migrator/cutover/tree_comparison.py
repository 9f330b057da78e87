"""Measurements of a tree before and after its cutover, outside the freeze."""

import asyncio
import zlib
from dataclasses import dataclass

from msgspec.structs import replace

from migrator.core.entry import UserTree
from migrator.core.errors import MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.units import format_duration
from migrator.cutover import model
from migrator.cutover.call import ActiveSession, Comparing
from migrator.cutover.model_calls import CutoverOutcome
from migrator.cutover.records import SpeedUpRecords
from migrator.cutover.rules_speed import TreeVisited, describe_user, speed_ups
from migrator.cutover.steps import TreeCutover
from migrator.fs.model import Side
from migrator.operations.engine import reason_of

_FILES = 200
"""Number of files to sample."""


@dataclass(slots=True, kw_only=True)
class TreeComparison:
    """Measures one tree around its cutover: `before` when all preflight checks have passed, and `after` when its user works on the
    target. `keep` records the first measurements once the cutover has a record. A call that resumes has no files to read again.
    """

    session: ActiveSession
    _before: TreeVisited | None = None

    @property
    def _speed_ups(self) -> SpeedUpRecords:
        return self.session.ledger.speed_ups

    async def before(self, tree: UserTree) -> None:
        """Measure on the source. A failure is only an event; a cancellation is raised, before anything has begun."""
        comparing = self.session.call.comparing
        if comparing is None:
            return
        passes, seed = self.session.ledger.passes.over_tree(tree.path), zlib.crc32(tree.path)
        try:
            files: tuple[bytes, ...] = ()
            if passes:
                files = await self.session.blocking(
                    lambda: tuple(comparing.samples.draw(passes[-1].catalog, tree.path, count=_FILES, seed=seed))
                )
            self._before = await self._visit(comparing, tree, Side.SOURCE, files)
        except (MigratorError, OSError) as error:
            self._failed(tree, Side.SOURCE, reason_of(error))

    def keep(self, record: model.CutoverRecord) -> None:
        """Record the measurements on the source, replacing those of an earlier call."""
        comparing = self.session.call.comparing
        if comparing is not None and self._before is not None:
            self._speed_ups.forget(record.id, Side.SOURCE)
            self._speed_ups.add(record.id, self._before.measurements)

    async def after(self, machine: TreeCutover, outcome: CutoverOutcome, record: model.CutoverRecord) -> CutoverOutcome:
        """Measure on the target, if the user works there now and the source was measured. A cancellation ends the
        measurement and is remembered.
        """
        comparing, state = self.session.call.comparing, outcome.cutover.state if outcome.cutover else None
        if comparing is None or state not in model.SETTLED_STATES or machine.cancellation.requested:
            return outcome
        try:
            if not self._speed_ups.of(record.id):
                return outcome
            files = () if self._before is None else self._before.files
            visited = await self._visit(comparing, record.tree, Side.TARGET, files)
            self._speed_ups.add(record.id, visited.measurements)
            found = speed_ups(self._speed_ups.of(record.id))
            if message := describe_user(record.tree.user, found):
                self.session.emit(EventKind.TREE_COMPARED, Severity.INFO, record.subject(), message)
        except asyncio.CancelledError:
            machine.cancellation.defer()
            return outcome
        except (MigratorError, OSError) as error:
            self._failed(record.tree, Side.TARGET, reason_of(error))
            return outcome
        return replace(outcome, speed_ups=found)

    async def _visit(self, comparing: Comparing, tree: UserTree, side: Side, files: tuple[bytes, ...]) -> TreeVisited:
        session = self.session
        message = f"measuring listings and reads on the {side.value}, {format_duration(comparing.limit_s)} at most"
        session.emit(EventKind.CUTOVER_STEP, Severity.INFO, tree.user, message)
        visited = await comparing.visit(
            side=side,
            tree=tree.path,
            directory=f"{session.invocation.directory.path}/compared",
            files=files,
            limit_s=comparing.limit_s,
            token=session.ports.tokens(),
            now_s=session.now_s,
        )
        if visited.problem:
            self._failed(tree, side, visited.problem)
        return visited

    def _failed(self, tree: UserTree, side: Side, why: str) -> None:
        message = f"the tree could not be measured on the {side.value}: {why}; that changes nothing of the cutover"
        self.session.emit(EventKind.COMPARISON_FAILED, Severity.WARNING, tree.user, message)
