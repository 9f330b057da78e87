"""Directories that GlusterFS has shut while they were made on new bricks: found through the mount, and opened again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from migrator.domain.addition import AdditionRecord, AdditionSide
from migrator.domain.errors import MigratorError
from migrator.domain.events import EventKind, Severity
from migrator.domain.paths import show
from migrator.domain.units import several
from migrator.stages.bricks.add_context import AdditionCall, subject_of

_INTERVAL_S = 600.0
_TIMEOUT_S = 24 * 3600.0
BY_HAND = "`find MOUNT -type d -uid 0 -perm 0000` lists such directories"


@asynccontextmanager
async def keeping_open(call: AdditionCall, record: AdditionRecord) -> AsyncIterator[None]:
    """Look at them again and again for the length of the block: a layout of millions of directories takes days."""
    if call.world.put_owners_back is None or record.side is not AdditionSide.SOURCE or record.instead_of is not None:
        yield
        return
    task = asyncio.create_task(_again_and_again(call, record))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _again_and_again(call: AdditionCall, record: AdditionRecord) -> None:
    while True:
        await call.world.clock.sleep(_INTERVAL_S)
        await open_directories(call, record)


async def open_directories(call: AdditionCall, record: AdditionRecord) -> None:
    """Give every directory that the newest whole catalog knows, and that is root's with mode 0000 since, its owner and mode back.
    What was done, and what could not be, is told; nothing of it stops the addition. May be called again.
    """
    put_back = call.world.put_owners_back
    if put_back is None or record.side is not AdditionSide.SOURCE or record.instead_of is not None:
        return
    scans = [one for one in call.world.ledger.scans.all() if one.whole and not one.scope]
    if not scans:
        _warn(call, record, f"no whole catalog tells whether directories have lost owner and mode: {BY_HAND}")
        return
    catalog = scans[-1].name
    try:
        found = await call.world.blocking(lambda: put_back(catalog), timeout_s=_TIMEOUT_S)
    except (MigratorError, OSError, TimeoutError) as error:
        reason = error.message if isinstance(error, MigratorError) else str(error) or "no answer"
        _warn(call, record, f"whether directories have lost owner and mode cannot be seen ({reason}): {BY_HAND}")
        return
    examples = ", ".join(show(path) for path in found.examples)
    if found.mended:
        words = f"{several(found.mended, 'directory', 'directories')} had become root's with mode 0000 on the way to the new"
        _warn(call, record, f"{words} bricks, and have owner and mode back as of {catalog}: {examples}")
    if found.failed:
        words = f"{several(found.failed, 'directory', 'directories')} could not be looked at or given back to the owner"
        _warn(call, record, f"{words}: {examples}; {BY_HAND}")


def _warn(call: AdditionCall, record: AdditionRecord, words: str) -> None:
    call.say(EventKind.ADDITION_STEP, Severity.WARNING, subject_of(record), words)
