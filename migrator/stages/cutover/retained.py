"""Whether somebody changed the retained source of a user, before a rollback lets him work on it again."""

import asyncio
from dataclasses import dataclass

from migrator.domain.cutover import CutoverRecord, CutoverState
from migrator.domain.errors import MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.units import several
from migrator.ports.carrying_back import SourceChange
from migrator.stages.cutover.context import Cutting

_SHOWN = 10
_KEPT = (CutoverState.THAWED, CutoverState.RETAINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedSource:
    """Compares the source of one user with what the final pass saw there. Nobody is frozen meanwhile."""

    cutting: Cutting

    async def problem(self, record: CutoverRecord) -> str:
        """Why the user is not moved back, as a sentence; empty where nothing speaks against it. Where the request overwrites
        what was changed, that is kept in the trash of the source. A source that cannot be compared speaks against it too.
        """
        if record.state not in _KEPT:
            return ""
        name = f"{show(record.tree.path)} on the source"
        overwrite = self.cutting.request.overwrite_source
        try:
            changes = await self._changes(record)
        except (MigratorError, OSError) as error:
            if overwrite and isinstance(error, MigratorError):
                self._say(record, f"what was changed in {name} cannot be told, and is overwritten: {error.message}")
                return ""
            why = error.message if isinstance(error, MigratorError) else error.strerror or str(error)
            return f"whether somebody changed {name} since the cutover cannot be told: {why}"
        if not changes:
            return ""
        words = f"{several(len(changes), 'path')} of {name} {'was' if len(changes) == 1 else 'were'} changed since the cutover"
        if not overwrite:
            return f"{words}: {_listed(changes)}"
        back = self.cutting.world.back
        try:
            kept = await asyncio.to_thread(back.give_up_source, record, changes)
        except OSError as error:
            return f"{words}, and cannot be moved to the trash of the source: {error.strerror or error}"
        self._say(
            record, f"{words}, and {several(kept, 'path')} of these went to the trash of the source: {_listed(changes)}"
        )
        return ""

    async def _changes(self, record: CutoverRecord) -> tuple[SourceChange, ...]:
        cutting, pass_id = self.cutting, record.notes.final_pass_id
        if pass_id is None:
            raise MigratorError("the ledger does not know its final pass")
        before = cutting.ledger.passes.read(pass_id).catalog
        now = await cutting.world.deltas.scan([record.tree.path])
        back = cutting.world.back
        return tuple(await asyncio.to_thread(lambda: back.changed_source(record, before=before, now=now.name)))

    def _say(self, record: CutoverRecord, message: str) -> None:
        self.cutting.say(EventKind.CUTOVER_STEP, Severity.WARNING, record, message)


def _listed(changes: tuple[SourceChange, ...]) -> str:
    shown = "; ".join(f"{show(one.path)} ({one.kind.value})" for one in changes[:_SHOWN])
    return shown if len(changes) <= _SHOWN else f"{shown}; and {len(changes) - _SHOWN:,} more"
