"""Beside a run, old samples of single streams are put together, so that the ledger does not grow by them without end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from migrator.decide.sample_thinning import BLOCKS_AT_ONCE
from migrator.domain.units import HOUR_S
from migrator.stages.run.context import World

EVERY_S = 1.0 * HOUR_S


@asynccontextmanager
async def sample_thinning(world: World) -> AsyncIterator[None]:
    """When the block begins, every hour, and when it has ended in order."""

    async def every_hour() -> None:
        while True:
            await _thin(world)
            await world.clock.sleep(EVERY_S)

    task = asyncio.create_task(every_hour())
    try:
        yield
    finally:
        task.cancel()
    await _thin(world)


async def _thin(world: World) -> None:
    """A bounded part: what is left comes an hour later."""
    for _ in range(BLOCKS_AT_ONCE):
        if not world.ledger.samples.thin(now_s=world.clock.now_s()):
            return
        # Between two transactions streams are watched and given out.
        await asyncio.sleep(0)
