"""Measuring the free space of both sides during a run, for reports."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from migrator.beegfs.model import StorageSample
from migrator.beegfs.tool import read_storage
from migrator.core.tasks import beside
from migrator.core.units import DAY_S, HOUR_S
from migrator.fs.model import CapacitySample, Side
from migrator.transfer.context import TransferPorts

EVERY_S = 1.0 * HOUR_S
"""Sufficient for a migration of weeks."""

_TIMEOUT_S = 20.0
_LAST_TIMEOUT_S = 5.0


@asynccontextmanager
async def capacity_watch(world: TransferPorts) -> AsyncIterator[None]:
    """Sample both sides at the start of the block, every hour, and at its regular end. A side that does not answer is
    omitted: nothing waits for it.
    """

    async def watch() -> None:
        while True:
            await _sample(world, _TIMEOUT_S)
            await world.clock.sleep(EVERY_S)

    async with beside(watch(), "the watch of free space"):
        yield
    await _sample(world, _LAST_TIMEOUT_S)


async def _sample(world: TransferPorts, timeout_s: float) -> None:
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
    world.ledger.later(partial(world.ledger.capacity.add, samples))
    if (storage := (await read_storage(world.storage)).seen) is not None:
        at_s = world.clock.now_s()
        sample = StorageSample(day=int(at_s // DAY_S), at_s=at_s, targets=storage.targets)
        world.ledger.later(partial(world.ledger.capacity.add_storage, sample))
