"""The audit of drained bricks: walks each brick on its own host and counts the leftovers. Changes nothing."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from msgspec.structs import replace

from migrator.bricks.drain.model_audit import DrainAudit, LeftKind, Leftover
from migrator.bricks.drain.rules_audit import MOST_EXAMPLES, MOST_LEFTOVERS, BrickAudit, audit_of
from migrator.catalog.walk_rows import BrickEntry
from migrator.core.clock import Clock
from migrator.core.errors import MigratorError
from migrator.core.paths import percent_escape, show
from migrator.core.probe import is_probe
from migrator.gluster.model import Brick, BrickRules
from migrator.gluster.walks import BrickHello, BrickLost, HostBrickWalks, WalkProblems
from migrator.scan.rules import brick_problem

ReadBlock = Callable[[memoryview], Sequence[BrickEntry]]
"""Reads a block of a walk. Raises MigratorError."""


_NAME = "left.tsv"


class LeftListFile:
    """All findings of the audits of one run, as a file in its directory: one line per path, with the brick, the kind,
    the path percent-escaped, and of a file its size in bytes and its gfid. Replaces the file of an earlier audit in the
    same directory.
    """

    def __init__(self, directory: str) -> None:
        self._file = Path(directory) / _NAME
        self._file.unlink(missing_ok=True)
        self._lock = Lock()
        self._written = False

    @property
    def file(self) -> str | None:
        """Return the path of the file. None until something is written."""
        return str(self._file) if self._written else None

    def add(self, found: Iterable[Leftover]) -> None:
        """Add findings. May be called from any thread. Raises OSError."""
        with self._lock, self._file.open("a", encoding="utf-8") as opened:
            opened.writelines(map(_line, found))
            self._written = True


def _line(one: Leftover) -> str:
    facts = ("", "") if one.type is None else (str(one.size_bytes), one.gfid.hex())
    return "\t".join((one.brick, one.kind.value, percent_escape(one.path), *facts)) + "\n"


async def audit_bricks(
    bricks: Sequence[Brick],
    *,
    volume_id: str,
    walks: HostBrickWalks,
    read_block: ReadBlock,
    clock: Clock,
    left: LeftListFile | None = None,
) -> DrainAudit:
    """Walk every brick of a drain, including arbiters, in parallel. A walk that fails makes the audit incomplete. Every
    path that is found goes to `left`. Raises OSError if it cannot be written.
    """
    started_at_s = clock.now_s()
    listeners = [
        _Listener(
            brick=brick,
            volume_id=volume_id,
            read_block=read_block,
            left_list=left,
            found=BrickAudit(brick=brick.name),
        )
        for brick in bricks
    ]
    async with asyncio.TaskGroup() as group:
        for listener in listeners:
            group.create_task(_audit(walks, listener))
    audit = audit_of([listener.found for listener in listeners], started_at_s=started_at_s)
    return audit if left is None else replace(audit, list_file=left.file)


async def _audit(walks: HostBrickWalks, listener: "_Listener") -> None:
    found = listener.found
    try:
        # Times do not matter here. Those of the file save an attribute of every file.
        # The program's own directories on the source hold users' files too: those that a purge has not removed yet.
        rules = BrickRules(times_from_mdata=False, distributed=False, marks=False)
        totals = await walks.walk(listener.brick, trees=(), only_trees=False, rules=rules, listener=listener, own=True)
    except MigratorError as error:
        found.failure = error.message
        return
    found.listed, found.unreadable, found.vanished = totals.rows, totals.problems, totals.vanished
    found.unsure = totals.ask_the_mount + totals.strange


@dataclass(slots=True, kw_only=True)
class _Listener:
    """Counts the findings of a walk, and keeps the first paths. Implements the `BrickListener` port."""

    brick: Brick
    volume_id: str
    read_block: ReadBlock
    left_list: LeftListFile | None
    found: BrickAudit

    async def hello(self, hello: BrickHello) -> None:
        """An empty directory in the brick's place has nothing left either, so this must be the brick."""
        problem = brick_problem(
            self.brick,
            volume_id=self.volume_id,
            found_volume_id=hello.volume_id,
            found_root_gfid=hello.root_gfid,
        )
        if problem is not None:
            raise BrickLost(problem)

    async def rows(self, payload: memoryview) -> None:
        """Take entries that are not directories."""
        found = self.found
        entries = await asyncio.to_thread(self.read_block, payload)
        found.arrived += len(entries)
        left = [one for one in entries if not is_probe(one.path)]
        found.probes += len(entries) - len(left)
        await self._write(
            [
                Leftover(
                    brick=self.brick.name,
                    kind=LeftKind.FILE,
                    path=one.path,
                    type=one.type,
                    size_bytes=one.size_bytes,
                    gfid=one.gfid,
                    link_count=one.link_count,
                )
                for one in left
            ]
        )
        found.left.extend(one.path for one in left[: MOST_EXAMPLES - len(found.left)])

    async def directories(self, payload: memoryview) -> None:
        """Directories stay on every drained brick."""

    async def listings(self, payload: memoryview) -> None:
        """An audit looks at one brick."""

    async def problems(self, found: WalkProblems) -> None:
        """Take paths that could not be read, and paths that may be data."""
        audit, unread = self.found, found.unreadable
        audit.problems.extend(
            f"{show(one.path)}: {one.reason}" for one in unread[: MOST_EXAMPLES - len(audit.problems)]
        )
        unsure = [one for one in found.to_ask if not is_probe(one.path)]
        audit.probes_unsure += len(found.to_ask) - len(unsure)
        kinds = ((LeftKind.MAY_BE_DATA, unsure), (LeftKind.NO_GFID, found.strange), (LeftKind.UNREADABLE, unread))
        brick = self.brick.name
        await self._write(
            [
                Leftover(brick=brick, kind=kind, path=one.path, reason=one.reason)
                for kind, these in kinds
                for one in these
            ]
        )
        names = [one.path for one in (*unsure, *found.strange)]
        audit.may_be_data.extend(names[: MOST_EXAMPLES - len(audit.may_be_data)])

    async def _write(self, found: Sequence[Leftover]) -> None:
        self.found.leftovers.extend(found[: MOST_LEFTOVERS - len(self.found.leftovers)])
        if self.left_list is not None and found:
            await asyncio.to_thread(self.left_list.add, found)
