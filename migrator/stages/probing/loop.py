"""Probing both sides again and again, while something else goes on."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from migrator.domain.errors import LockHeld, MigratorError
from migrator.domain.probe import PROBE_LOCK, Probe, ProbeSide, ProbeTimes
from migrator.ports.blocking import Blocking
from migrator.ports.clock import Clock
from migrator.ports.locks import Locks
from migrator.ports.probing import Prober

LOG = logging.getLogger("migrator.probing")

NO_ANSWER_S = 30.0
"""So long a probe is waited for; it goes on by itself, and none follows it before it has ended."""

CLEANING_S = 5.0
"""So long the end of a program waits for what it has to remove; the next one removes what is left."""

_FOR_EVER_S = 365.0 * 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeWorld:
    """The ports. `interval_s` is from the beginning of one round to that of the next; `keep` is given every probe."""

    probers: Mapping[ProbeSide, Prober]
    keep: Callable[[Probe], None]
    locks: Locks
    clock: Clock
    blocking: Blocking
    interval_s: float
    no_answer_s: float = NO_ANSWER_S


@dataclass(slots=True, kw_only=True)
class _Probing:
    world: ProbeWorld
    _under_way: dict[ProbeSide, tuple[float, asyncio.Task[ProbeTimes]]] = field(default_factory=dict)

    async def go_on(self) -> None:
        """Probe while this process holds the lock; while another one does, wait for its end."""
        world = self.world
        while True:
            try:
                with world.locks.hold(PROBE_LOCK, "probing of both file systems"):
                    await self._rounds()
            except LockHeld:
                await world.clock.sleep(world.interval_s)

    async def _rounds(self) -> None:
        number, world = 0, self.world
        try:
            while True:
                # Not at once: a program that ends soon has nobody to give way to.
                await world.clock.sleep(world.interval_s)
                await asyncio.gather(*(self._probe(side, number) for side in world.probers))
                number += 1
        finally:
            await asyncio.gather(*(self._clean(side) for side in world.probers))

    async def _probe(self, side: ProbeSide, number: int) -> None:
        """One probe; where the one before hangs still, that is what is told of this round."""
        world, at_s = self.world, self.world.clock.now_s()
        hanging = self._under_way.get(side)
        if hanging is None:
            prober = world.probers[side]
            begun = world.clock.monotonic_s()
            work = asyncio.create_task(world.blocking(lambda: prober.probe(number), timeout_s=_FOR_EVER_S))
            self._under_way[side] = begun, work
        else:
            begun, work = hanging
        await asyncio.wait({work}, timeout=world.no_answer_s if hanging is None else 0.0)
        if not work.done():
            world.keep(Probe(side=side, at_s=at_s, waited_s=max(world.clock.monotonic_s() - begun, 0.0)))
            return
        del self._under_way[side]
        world.keep(_ended(side, at_s, work))

    async def _clean(self, side: ProbeSide) -> None:
        """Also what a killed program has left. Nothing is asked of a file system that does not answer."""
        hanging = self._under_way.pop(side, None)
        if hanging is not None:
            await asyncio.wait({hanging[1]}, timeout=CLEANING_S)
            if hanging[1].cancel():
                # Its thread cannot be ended, and does not hold the program.
                return
            hanging[1].exception()
        try:
            await self.world.blocking(self.world.probers[side].clean, timeout_s=CLEANING_S)
        except (OSError, TimeoutError):
            return


def _ended(side: ProbeSide, at_s: float, work: asyncio.Task[ProbeTimes]) -> Probe:
    try:
        return Probe(side=side, at_s=at_s, times=work.result())
    except (OSError, MigratorError) as error:
        return Probe(side=side, at_s=at_s, failure=_reason(error))


def _reason(error: OSError | MigratorError) -> str:
    if isinstance(error, MigratorError):
        return error.message
    return error.strerror or str(error) or type(error).__name__


@asynccontextmanager
async def probing(world: ProbeWorld | None) -> AsyncIterator[None]:
    """Probe both sides beside the block, unless another process of the site does; None: nothing is probed.

    At the end everything that probes make is removed. What goes wrong with probing itself is in the log, and hurts nobody.
    """
    if world is None:
        yield
        return
    task = asyncio.create_task(_Probing(world=world).go_on())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            LOG.error("probing ended: %s", error)
