"""A purge removes no more than so many names per second, also after a pause."""

import asyncio

import pytest

from migrator.purge.removal import Pace


class SteppingClock:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def now_s(self) -> float:
        return self.at_s

    def monotonic_s(self) -> float:
        return self.at_s

    async def sleep(self, duration_s: float) -> None:
        self.at_s += duration_s


@pytest.mark.parametrize("part", [1, 64])
def test_names_go_at_the_rate_and_what_was_not_used_is_not_saved_up(part: int) -> None:
    clock = SteppingClock()
    pace = Pace(clock, lambda _names: 100)

    async def take(parts: int) -> float:
        began_s = clock.at_s
        for _ in range(parts):
            await pace.take(part)
        return clock.at_s - began_s

    assert asyncio.run(take(50)) == pytest.approx(49 * part / 100)
    clock.at_s += 1000.0
    assert asyncio.run(take(50)) == pytest.approx(49 * part / 100)
