"""What was put on bricks past Gluster: what the newest scan of the bricks found, and what is left of it now."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from migrator.decide.strange_files import still_strange
from migrator.domain.brick import Brick
from migrator.domain.scan import StrangeFiles
from migrator.ports.scans import ScanRecords

StrangeLook = Callable[[Brick, str, Sequence[bytes]], Awaitable[frozenset[bytes]]]
"""Which of these paths of a brick of a volume (by id) are there and have no gfid; all of them where that cannot be seen."""


async def strange_now(
    scans: ScanRecords, look: StrangeLook | None, bricks: Sequence[Brick], volume_id: str
) -> tuple[StrangeFiles, ...] | None:
    """What lies on these bricks still; None where no scan has read them. What was put there since is not known. Never raises for what cannot be seen: then
    it counts as left.
    """
    record = scans.of_bricks()
    if record is None:
        return None
    known = {one.brick: one for one in record.strange}
    of_these = [(brick, known[brick.name]) for brick in bricks if brick.name in known]
    if look is None:
        return tuple(one for _, one in of_these)
    still = await asyncio.gather(*(look(brick, volume_id, one.paths) for brick, one in of_these))
    left = [still_strange(one, paths) for (_, one), paths in zip(of_these, still, strict=True)]
    return tuple(one for one in left if one is not None)
