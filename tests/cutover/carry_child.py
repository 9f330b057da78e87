"""Carrying back in a process of its own, to be killed: `python -m tests.cutover.carry_child SITE_FILE SOURCE PHASE`.

It stands still in its phase, and half-sent where that is over by then.
"""

import asyncio
import contextlib
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from migrator.fs.moving import MovingTarget
from migrator.ledger.ledger import PassRecords
from tests.support.back_world import BackWorld, opened
from tests.support.run_site import RealSite
from tests.support.standing_still import stand_still_when
from tests.support.xfs import XfsMount


def ask(world: BackWorld, query: str) -> list[tuple[object, ...]]:
    """Of the ledger of the rollback; nothing while it is being made."""
    file = world.directory / "ledger.db"
    if not file.exists():
        return []
    with (
        contextlib.suppress(sqlite3.OperationalError),
        closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=600)) as ledger,
    ):
        return ledger.execute(query).fetchall()
    return []


def attempts(world: BackWorld, state: str) -> int:
    return len(ask(world, f"SELECT id FROM attempts WHERE state = '{state}'"))


def staged(world: BackWorld) -> int:
    return sum(1 for _ in world.site.source.path.glob(".migrator-trash/*/.migrator-staged/0*/*"))


def under_new_names(world: BackWorld) -> int:
    with contextlib.suppress(FileNotFoundError):
        return len(os.listdir(world.source / "new names"))
    return 0


PHASES: dict[str, Callable[[BackWorld], object]] = {
    "ledger": lambda world: (world.directory / "ledger.db").exists(),
    "scan": lambda world: (world.directory / "catalogs").exists(),
    "switch-written": lambda world: any(world.directory.glob("catalogs/switch-*/part-000000.parquet")),
    "switch-noted": lambda world: ask(world, "SELECT id FROM passes WHERE kind = 'seed'"),
    "lists": lambda world: any(world.directory.rglob("*-final-0001.parquet")),
    "pass-recorded": lambda world: ask(world, "SELECT id FROM passes WHERE kind = 'final'"),
    "taking-out": lambda world: staged(world) > 100,
    "putting-in": lambda world: under_new_names(world) > 100,
    "sending": lambda world: attempts(world, "running"),
    "half-sent": lambda world: attempts(world, "succeeded") > 3,
}
_REACHED_BY: dict[str, tuple[type, str]] = {
    "taking-out": (MovingTarget, "move"),
    "putting-in": (MovingTarget, "move"),
    "sending": (PassRecords, "started"),
    "half-sent": (PassRecords, "finish"),
}
"""What the program calls in a phase. The others are never over again: they are seen from outside, at any moment of theirs."""


if __name__ == "__main__":
    file, source, phase = sys.argv[1:]
    not_used = XfsMount(Path("/nowhere"), "")
    seen = BackWorld(RealSite(Path(file).parent, XfsMount(Path(source), ""), not_used))
    for name in dict.fromkeys((phase, "half-sent")):
        if name in _REACHED_BY:
            stand_still_when(lambda holds=PHASES[name]: holds(seen), [_REACHED_BY[name]])  # type: ignore[misc]
    with opened(Path(file)) as (back, record):
        asyncio.run(back.carry(record))
