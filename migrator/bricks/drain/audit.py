"""The audit of drained bricks: walks each brick on its own host and counts what is left on it. Changes nothing."""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Protocol

from migrator.bricks.drain.model import AuditSeen, LeftKind
from migrator.bricks.drain.rules_progress import MOST_EXAMPLES, BrickAudit, audit_of
from migrator.catalog.model import ScanProblem
from migrator.core.clock import Clock
from migrator.core.errors import MigratorError
from migrator.core.paths import show
from migrator.core.probe import PROBE_NAMES, is_probe
from migrator.gluster.model import Brick
from migrator.gluster.walks import BrickHello, BrickLost, BrickTotals, BrickWalks
from migrator.scan.rules import brick_problem

ReadBlock = Callable[[memoryview, int], tuple[int, tuple[bytes, ...]]]
"""Reads a block of a walk: how many entries it has, and the paths of the first so many. Raises MigratorError."""


class LeftList(Protocol):
    """Where everything that audits find is written down, whatever of it is shown. `file` is None until something is."""

    @property
    def file(self) -> str | None:
        """Where it lies."""

    def add(self, brick: str, kind: LeftKind, paths: Iterable[bytes]) -> None:
        """Paths of a brick. May be called from any thread. Raises OSError."""


async def audit_bricks(
    bricks: Sequence[Brick],
    *,
    volume_id: str,
    walks: BrickWalks,
    read_block: ReadBlock,
    clock: Clock,
    explained: Mapping[str, AbstractSet[bytes]] | None = None,
    left: LeftList | None = None,
) -> AuditSeen:
    """Walk every brick of a drain, those of arbiters too, side by side. What cannot be walked makes the audit not whole.
    `explained` are names by brick that were just proven to be in the volume with the same content.
    Every other path that is found goes to `left`. Raises OSError where it cannot be written down.
    """
    started_at_s = clock.now_s()
    async with asyncio.TaskGroup() as group:
        walking = [
            group.create_task(
                _audit(
                    walks, _Listener(brick, volume_id, read_block, (explained or {}).get(brick.name, frozenset()), left)
                )
            )
            for brick in bricks
        ]
    found = audit_of([one.result() for one in walking], started_at_s=started_at_s)
    return found if left is None else replace(found, list_file=left.file)


async def _audit(walks: BrickWalks, listener: "_Listener") -> BrickAudit:
    brick = listener.brick
    failure, totals = "", BrickTotals(rows=0, directories=0, problems=0)
    try:
        # Times do not matter here: those of the file spare an attribute of every file.
        # What the program keeps on the source holds users' files, too: those that a purge has not removed yet.
        totals = await walks.walk(
            brick, trees=(), only_trees=False, times_from_mdata=False, listener=listener, own=True
        )
    except MigratorError as error:
        failure = error.message
    return BrickAudit(
        brick=brick.name,
        failure=failure,
        listed=totals.rows,
        unreadable=totals.problems,
        vanished=totals.vanished,
        unsure=totals.ask_the_mount + totals.filling_links + totals.strange,
        explained=listener.explained,
        explained_unsure=listener.explained_unsure,
        arrived=listener.row_count,
        left=tuple(listener.left),
        may_be_data=tuple(listener.unsure),
        problems=tuple(listener.failed),
    )


class _Listener:
    """Counts what a walk finds, and keeps the first paths. The `BrickListener` port."""

    def __init__(
        self,
        brick: Brick,
        volume_id: str,
        read_block: ReadBlock,
        explained: AbstractSet[bytes],
        left_list: LeftList | None,
    ) -> None:
        self.row_count = self.explained = self.explained_unsure = 0
        self.left: list[bytes] = []
        self.unsure: list[bytes] = []
        self.failed: list[str] = []
        self.brick = brick
        self._volume_id = volume_id
        self._read_block = read_block
        self._explained = explained
        self._left_list = left_list

    async def hello(self, hello: BrickHello) -> None:
        """An empty directory in the brick's place has nothing left either: it must be the brick."""
        problem = brick_problem(
            self.brick,
            volume_id=self._volume_id,
            found_volume_id=hello.volume_id,
            found_root_gfid=hello.root_gfid,
        )
        if problem is not None:
            raise BrickLost(problem)

    async def rows(self, payload: memoryview) -> None:
        """Entries that are no directories."""
        every = self._explained or self._left_list is not None
        wanted = sys.maxsize if every else MOST_EXAMPLES - len(self.left) + PROBE_NAMES
        rows, paths = await asyncio.to_thread(self._read_block, payload, wanted)
        self.row_count += rows
        left = [path for path in paths if path not in self._explained and not is_probe(path)]
        self.explained += len(paths) - len(left)
        await self._write(LeftKind.FILE, left)
        self.left.extend(left[: MOST_EXAMPLES - len(self.left)])

    async def directories(self, payload: memoryview) -> None:
        """They stay on every brick that was drained."""

    async def problems(
        self, problems: Sequence[ScanProblem], to_ask: Sequence[ScanProblem], strange: Sequence[ScanProblem]
    ) -> None:
        """What could not be read, and what may be data."""
        self.failed.extend(f"{show(one.path)}: {one.reason}" for one in problems[: MOST_EXAMPLES - len(self.failed)])
        unsure = [one.path for one in to_ask if one.path not in self._explained and not is_probe(one.path)]
        self.explained_unsure += len(to_ask) - len(unsure)
        # A file without a gfid is data, and nothing explains it.
        unsure += [one.path for one in strange]
        await self._write(LeftKind.MAY_BE_DATA, unsure)
        await self._write(LeftKind.UNREADABLE, [one.path for one in problems])
        self.unsure.extend(unsure[: MOST_EXAMPLES - len(self.unsure)])

    async def _write(self, kind: LeftKind, paths: Sequence[bytes]) -> None:
        if self._left_list is not None and paths:
            await asyncio.to_thread(self._left_list.add, self.brick.name, kind, paths)
