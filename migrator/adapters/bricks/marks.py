"""Marks of earlier drains on bricks, and files without a gfid: the script runs on each brick's host over its connection."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from migrator.adapters.bricks.asking import ask_brick
from migrator.domain.brick import Brick
from migrator.domain.drain_preflight import BrickMarks
from migrator.domain.errors import MigratorError
from migrator.ports.hosts import Hosts


async def marks_on_bricks(hosts: Hosts, bricks: Sequence[Brick], volume_id: str) -> tuple[BrickMarks, ...] | None:
    """What each brick has, all looked at side by side; None where one cannot be looked at. Reads every directory of the bricks,
    and changes nothing.
    """
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_seen(hosts, brick, volume_id)) for brick in bricks]
    found = [one for task in tasks if (one := task.result()) is not None]
    return tuple(found) if len(found) == len(bricks) else None


async def _seen(hosts: Hosts, brick: Brick, volume_id: str) -> BrickMarks | None:
    try:
        return await _marks(hosts, brick, volume_id)
    except (MigratorError, OSError, ValueError, KeyError, TypeError):
        return None


async def still_strange_on(hosts: Hosts, brick: Brick, volume_id: str, paths: Sequence[bytes]) -> frozenset[bytes]:
    """Those of these paths of a brick that are there and have no gfid; all of them where that cannot be seen."""
    try:
        answer = await _answer(hosts, brick, volume_id, {"paths": [path.decode("latin-1") for path in paths]})
        return frozenset(path.encode("latin-1") for path in answer["strange"])
    except (MigratorError, OSError, ValueError, KeyError, TypeError):
        return frozenset(paths)


async def _marks(hosts: Hosts, brick: Brick, volume_id: str) -> BrickMarks:
    answer = await _answer(hosts, brick, volume_id, {})
    return BrickMarks(
        brick=brick.name,
        files=int(answer["files"]),
        unseen=int(answer["unseen"]),
        examples=tuple(name.encode("latin-1") for name in answer["examples"]),
        strange=int(answer["strange"]),
        strange_examples=tuple(name.encode("latin-1") for name in answer["strange_examples"]),
    )


async def _answer(hosts: Hosts, brick: Brick, volume_id: str, question: dict[str, Any]) -> dict[str, Any]:
    pieces: list[bytes] = []
    if await ask_brick(hosts, brick, ("far_marks",), question, volume_id=volume_id, take=pieces.append) is not None:
        raise ValueError(brick.name)
    answer: dict[str, Any] = json.loads(b"".join(pieces))
    return answer
