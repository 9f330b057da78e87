"""Which copies of a replica set lack something, as the bricks of the set that are up know it."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping

from migrator.adapters.bricks.asking import ask_brick
from migrator.decide.subvolumes import subvolumes
from migrator.domain.brick import Brick, VolumeState
from migrator.domain.errors import MigratorError
from migrator.ports.hosts import Hosts


async def blamed_in_set(hosts: Hosts, state: VolumeState, name: str) -> Mapping[str, int] | None:
    """By brick of the set that a brick belongs to the entries that have to be healed there, those of the brick with most to tell.
    None where one that is up does not tell, or where the brick has no set.
    """
    members = next((one for one in subvolumes(state) if name in {brick.name for brick in one}), ())
    if len(members) <= 1:
        return None
    told = await asyncio.gather(*(_of(hosts, state, brick, name) for brick in members if brick.online))
    counts: Counter[str] = Counter()
    for one in told:
        if one is None:
            return None
        counts |= Counter(one)
    return counts


async def _of(hosts: Hosts, state: VolumeState, brick: Brick, but: str) -> dict[str, int] | None:
    pieces: list[bytes] = []
    question = {"volume": state.volume, "but": but}
    try:
        failed = await ask_brick(hosts, brick, ("far_blamed",), question, volume_id=state.volume_id, take=pieces.append)
        if failed is not None:
            return None
        answer: dict[str, int] = json.loads(b"".join(pieces))["blamed"]
    except (MigratorError, ValueError, KeyError, TypeError):
        return None
    return answer
