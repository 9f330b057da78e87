"""How full both sides are, looked at from time to time beside a run, for whoever reports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from migrator.domain.capacity import CapacitySample, Side
from migrator.domain.units import HOUR_S
from migrator.stages.run.context import World

EVERY_S = 1.0 * HOUR_S
"""More often nothing is to be seen in a migration that takes weeks."""

_TIMEOUT_S = 20.0
_LAST_TIMEOUT_S = 5.0


@asynccontextmanager
async def capacity_watch(world: World) -> AsyncIterator[None]:
    """A sample of both sides when the block begins, every hour, and when it has ended in order. A side that does not answer
    is left out: nothing waits for it.
    """

    async def watch() -> None:
        while True:
            await _sample(world, _TIMEOUT_S)
            await world.clock.sleep(EVERY_S)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
    await _sample(world, _LAST_TIMEOUT_S)


async def _sample(world: World, timeout_s: float) -> None:
    samples = []
    for side, filesystem in ((Side.SOURCE, world.source), (Side.TARGET, world.target)):
        try:
            seen = await world.blocking(filesystem.capacity, timeout_s=timeout_s)
        except (OSError, TimeoutError):
            continue
        samples.append(
            CapacitySample(
                side=side,
                at_s=world.clock.now_s(),
                total_bytes=seen.total_bytes,
                free_bytes=seen.free_bytes,
                total_inodes=seen.total_inodes,
                free_inodes=seen.free_inodes,
            )
        )
    world.ledger.capacity.add(samples)
