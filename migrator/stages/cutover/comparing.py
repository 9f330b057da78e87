"""What a user's tree is like before and after: measured outside the freeze, and never a reason to stop anything."""

import asyncio
import zlib
from dataclasses import dataclass, replace
from pathlib import Path

from migrator.decide.speed_up import speed_ups, user_words
from migrator.domain.capacity import Side
from migrator.domain.cutover import SETTLED_STATES, CutoverRecord
from migrator.domain.cutover_run import TreeOutcome
from migrator.domain.errors import MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.speed_up import SpeedUp
from migrator.domain.tree import UserTree
from migrator.ports.speed_ups import TreeVisit, TreeVisited
from migrator.stages.cutover.context import Comparing, Cutting
from migrator.stages.cutover.machine import TreeMachine

_FILES = 200
"""So many files are drawn."""


@dataclass(slots=True, kw_only=True)
class TreeComparison:
    """Measures one tree around its cutover: `before` once nothing speaks against it any more, which `keep` writes down when there
    is a record of the cutover, and `after` when its user works on the target and everybody has been told. A call that goes on
    with one that was killed has no files to read again.
    """

    cutting: Cutting
    _before: TreeVisited | None = None

    @classmethod
    def of(cls, cutting: Cutting) -> "TreeComparison":
        """Of one tree in one call."""
        return cls(cutting=cutting)

    async def before(self, tree: UserTree) -> None:
        """Measure on the source. What goes wrong is an event; a cancellation goes through, and nothing was begun."""
        comparing = self.cutting.world.comparing
        if comparing is None:
            return
        try:
            drawn = await self.cutting.blocking(lambda: self._draw(comparing, tree.path))
            self._before = await self._visit(comparing, tree, Side.SOURCE, drawn)
        except (MigratorError, OSError) as error:
            self._failed(tree, Side.SOURCE, _reason(error))

    def keep(self, record: CutoverRecord) -> None:
        """Write down what was measured before, in place of what an earlier call has measured."""
        comparing = self.cutting.world.comparing
        if comparing is not None and self._before is not None:
            comparing.records.forget(record.id, Side.SOURCE)
            comparing.records.add(record.id, self._before.measurements)

    async def after(self, machine: TreeMachine, outcome: TreeOutcome, record: CutoverRecord) -> TreeOutcome:
        """Measure on the target, where he works there by now, and something was measured before. A cancellation ends the
        measurement, and is remembered.
        """
        comparing, state = self.cutting.world.comparing, outcome.cutover.state if outcome.cutover else None
        if comparing is None or state not in SETTLED_STATES or machine.interrupted:
            return outcome
        try:
            found = await self._compared(comparing, record)
        except asyncio.CancelledError:
            machine.note_cancelled()
            return outcome
        except (MigratorError, OSError) as error:
            self._failed(record.tree, Side.TARGET, _reason(error))
            return outcome
        return replace(outcome, speed_ups=found)

    async def _compared(self, comparing: Comparing, record: CutoverRecord) -> tuple[SpeedUp, ...]:
        if not comparing.records.of(record.id):
            return ()
        files = () if self._before is None else self._before.files
        visited = await self._visit(comparing, record.tree, Side.TARGET, files)
        comparing.records.add(record.id, visited.measurements)
        found = speed_ups(comparing.records.of(record.id))
        if words := user_words(record.tree.user, found):
            self.cutting.say(EventKind.TREE_COMPARED, Severity.INFO, record, words)
        return found

    def _draw(self, comparing: Comparing, tree: bytes) -> tuple[bytes, ...]:
        passes = self.cutting.ledger.passes.over_tree(tree)
        if not passes:
            return ()
        return tuple(comparing.samples.draw(passes[-1].catalog, tree, count=_FILES, seed=zlib.crc32(tree)))

    async def _visit(self, comparing: Comparing, tree: UserTree, side: Side, files: tuple[bytes, ...]) -> TreeVisited:
        cutting = self.cutting
        visit = TreeVisit(
            side=side,
            tree=tree.path,
            directory=Path(cutting.invocation.directory.path) / "compared",
            files=files,
            limit_s=comparing.limit_s,
            token=cutting.run.tokens(),
        )
        visited = await comparing.timing.visit(visit, now_s=cutting.now_s)
        if visited.problem:
            self._failed(tree, side, visited.problem)
        return visited

    def _failed(self, tree: UserTree, side: Side, why: str) -> None:
        subject = f"{tree.user}: {self.cutting.verb}"
        message = f"the tree could not be measured on the {side.value}: {why}; that changes nothing of the cutover"
        self.cutting.invocation.say(EventKind.COMPARISON_FAILED, Severity.WARNING, subject, message)


def _reason(error: MigratorError | OSError) -> str:
    return error.message if isinstance(error, MigratorError) else error.strerror or str(error)
