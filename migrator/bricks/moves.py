"""What drains and additions do around Gluster's moves of files: lookups on all bricks, throttle, shields, warnings, progress."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migrator.bricks.model import BrickOperation, BrickStanding
from migrator.bricks.shields import Shields
from migrator.bricks.throttle import Throttle
from migrator.core.errors import MigratorError
from migrator.core.events import EventKind, Severity
from migrator.core.progress import DrainProgress
from migrator.core.units import several
from migrator.gluster.changes import GlusterVolumeCommands
from migrator.gluster.rules import LOOKUP_OPTION, is_on
from migrator.operations.call import Call
from migrator.operations.engine import reason_of

if TYPE_CHECKING:
    from migrator.bricks.records import BrickLedger
    from migrator.operations.records import OperationStore

BRICKS_LOCK = "drain"
"""Held by drains and additions: only one runs at a time, because each moves files that the other checks. Gluster may
continue a drain without a call.
"""


@dataclass(slots=True, kw_only=True)
class FileMoves:
    """For one call. `warning` is the kind of its warnings."""

    call: Call[Any, Any]
    volume: GlusterVolumeCommands
    ledger: "BrickLedger"
    records: "OperationStore[Any, Any, Any, Any]"
    throttle: Throttle
    shields: Shields | None
    warning: EventKind
    _last_warning: str = ""

    def warn(self, record: BrickOperation[Any, Any], message: str) -> None:
        """Warn, unless the last warning was the same. An empty message: its cause is gone."""
        if message not in ("", self._last_warning):
            self.call.emit(self.warning, Severity.WARNING, record.subject(), message)
        self._last_warning = message

    async def follow_throttle(self, record: BrickOperation[Any, Any]) -> None:
        """Set the throttle for now. A failure is only reported."""
        try:
            await self.throttle.follow(record)
        except MigratorError as error:
            self.warn(record, f"the throttle could not be changed: {error.message}")

    async def restore_throttle(self, record: BrickOperation[Any, Any]) -> None:
        """Restore the options. A failure is only reported: the next call restores options that remain changed."""
        try:
            await self.throttle.restore(record)
        except MigratorError as error:
            self.warn(record, f"the throttle could not be restored: {error.message}")

    async def look_up_everywhere(self, record: BrickOperation[Any, Any]) -> None:
        """Make clients look up a name on all bricks, before layouts change. May be called again. Raises ToolFailed."""
        message = await look_up_everywhere(self.volume)
        if message:
            self.call.emit(EventKind.OPTION_SET, Severity.WARNING, record.subject(), message)

    async def shield(self) -> str:
        """Keep files that are moved from getting the default ACL of their directory. Return a summary as text. Needs the
        lock of the volume: no verification may begin before it and end after `unshield`. May be called again. Raises
        MigratorError.
        """
        if self.shields is None:
            return ""
        state, _ = await self.volume.state_and_tasks()
        found = await self.shields.put_on(state)
        return f"; {several(found, 'file')} shielded from default ACLs meanwhile" if found else ""

    async def unshield(self, record: BrickOperation[Any, Any], *, begins: bool = False) -> None:
        """Remove shields, also those that killed calls have left, unless Gluster moves files or is about to; `begins`: the
        rebalance of an addition, which sets them again. A failure is only reported: the next step or call tries again, and
        no scan is whole until then.
        """
        if self.shields is None or not self.shields.on or self.ledger.drains.under_way():
            return
        if not begins and self.records.read(record.id).moves_files():
            return
        try:
            state, tasks = await self.volume.state_and_tasks()
            # A host without bricks, such as one that was drained and switched off, holds no file.
            if all(brick.online for brick in state.bricks) and not any(task.unfinished for task in tasks):
                await self.shields.take_off(state)
        except (MigratorError, OSError, TimeoutError) as error:
            self.warn(record, f"shields stay on files: {reason_of(error)}")

    def show(self, found: BrickStanding, step: str, elapsed_s: float, *, totals: bool = True) -> None:
        """Show the progress. Without `totals` the number of files to move is unknown."""
        self.call.ports.progress.show(
            DrainProgress(
                bricks=found.bricks,
                step=step,
                elapsed_s=elapsed_s,
                files=found.moved_files,
                size_bytes=found.moved_bytes,
                total_files=found.files if totals else None,
                total_bytes=found.size_bytes if totals else None,
                failures=found.failures,
                skipped=found.skipped,
                files_per_s=found.files_per_s,
                bytes_per_s=found.bytes_per_s,
                left_s=found.left_s,
            )
        )


# Lookups by name after a change of the layout.
#
# With `cluster.lookup-optimize` (the default) a client looks up a name only on the brick in the layout of its
# directory. A drain and a fix-layout change layouts but leave the files of the remaining bricks in place. Those files
# are still listed, but an open by name fails with ENOENT, and a program that then creates the name makes a second file
# (GlusterFS 10.3, observed; #118 and #1918 there). So the option is turned off before the layout changes, and stays
# off.


async def look_up_everywhere(volume: GlusterVolumeCommands) -> str:
    """Make clients look up a name on all bricks if the brick of its layout does not have it. Return a sentence about
    the change; empty if there is none. The option is not restored: only a rebalance of the whole volume moves every
    file to the brick of its layout. May be called again. Raises ToolFailed.
    """
    before = await volume.option(LOOKUP_OPTION)
    # Gluster may report an option that was never set as `on (DEFAULT)`.
    if before.split() and is_on({LOOKUP_OPTION: before.split()[0]}, LOOKUP_OPTION, default=True) is False:
        return ""
    await volume.set_option(LOOKUP_OPTION, "off")
    return (
        f"{LOOKUP_OPTION} is off now (it was {before}), and must stay off: otherwise files that stay on their bricks can no "
        "longer be found by name"
    )
