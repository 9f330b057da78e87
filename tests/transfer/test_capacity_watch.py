"""Looks at how full both sides are, beside a run."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from migrator.fs.model import Capacity, CapacitySample, Side
from migrator.transfer.meter import EVERY_S, capacity_watch

T = TypeVar("T")
ROOM = Capacity(total_bytes=100, free_bytes=40, total_inodes=None, free_inodes=None)


@dataclass
class Outside:
    """A run's world: hours pass when they are asked for, and a side may hang or fail."""

    broken: dict[Side, Exception] = field(default_factory=dict)
    kept: list[CapacitySample] = field(default_factory=list)
    now: float = 1000.0
    hours: int = 2

    def world(self) -> Any:
        return SimpleNamespace(
            source=SimpleNamespace(capacity=lambda: self._look(Side.SOURCE)),
            target=SimpleNamespace(capacity=lambda: self._look(Side.TARGET)),
            blocking=self._blocking,
            clock=SimpleNamespace(sleep=self._sleep, now_s=lambda: self.now),
            ledger=SimpleNamespace(capacity=SimpleNamespace(add=self._add)),
        )

    def _look(self, side: Side) -> Capacity:
        if side in self.broken:
            raise self.broken[side]
        return ROOM

    async def _blocking(self, work: Callable[[], T], *, timeout_s: float) -> T:
        return work()

    async def _sleep(self, seconds: float) -> None:
        if not self.hours:
            await asyncio.Event().wait()
        self.hours -= 1
        self.now += seconds

    def _add(self, samples: Sequence[CapacitySample]) -> None:
        self.kept.extend(samples)


async def run_of(outside: Outside, error: Exception | None = None) -> None:
    async with capacity_watch(outside.world()):
        while outside.hours:  # noqa: ASYNC110 - hours pass at the turns of the event loop
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        if error is not None:
            raise error


def test_at_the_begin_every_hour_and_at_the_end() -> None:
    outside = Outside()
    asyncio.run(run_of(outside))
    times = [sample.at_s - 1000.0 for sample in outside.kept if sample.side is Side.SOURCE]
    assert times == [0.0, EVERY_S, 2 * EVERY_S, 2 * EVERY_S]
    assert [sample.at_s for sample in outside.kept if sample.side is Side.TARGET] == [1000.0 + at_s for at_s in times]
    assert outside.kept[0].used_bytes == 60


@pytest.mark.parametrize("error", [TimeoutError(), OSError(5, "input/output error")])
def test_a_side_that_does_not_answer_is_left_out(error: Exception) -> None:
    outside = Outside(broken={Side.SOURCE: error})
    asyncio.run(run_of(outside))
    assert {sample.side for sample in outside.kept} == {Side.TARGET}
    assert len(outside.kept) == 4
