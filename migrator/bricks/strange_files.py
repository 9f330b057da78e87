"""Files that were created on bricks without Gluster: those of the newest scan that are still there."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from migrator.catalog.model import StrangeFiles
from migrator.gluster.model import Brick
from migrator.scan.rules import still_strange

if TYPE_CHECKING:
    from migrator.catalog.records import ScanRecords

StrangeLook = Callable[[Brick, str, Sequence[bytes]], Awaitable[frozenset[bytes]]]
"""Returns which of these paths of a brick of a volume (by id) exist without a gfid, or all of them if that is unknown."""


async def strange_now(
    scans: "ScanRecords", look: StrangeLook | None, bricks: Sequence[Brick], volume_id: str
) -> tuple[StrangeFiles, ...] | None:
    """Return the files that still lie on these bricks without a gfid; None if no scan has read the bricks. Files
    created since the scan are unknown. A path that cannot be read counts as still there, and does not raise.
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
