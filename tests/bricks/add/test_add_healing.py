"""Waiting for a copy that GlusterFS fills."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from migrator.bricks.add.model import AdditionRecord, AdditionState
from migrator.bricks.add.stage import until_healed
from migrator.core.errors import ToolFailed
from migrator.gluster.model import BrickHeal
from tests.support.fakes import VirtualClock
from tests.support.making import made

OLD, NEW = "gl1:/b", "gl2:/new"
RECORD = made(
    AdditionRecord, bricks=(NEW,), instead_of="gl2:/b", state=AdditionState.HEALING, times={AdditionState.HEALING: 1.0}
)


class Healing:
    """What waits by the number of the look; None: the volume does not tell, `STOP` ends a test that would wait on."""

    def __init__(self, entries: Callable[[int], int | None]) -> None:
        self._entries = entries
        self.refuses = False
        self.looks = 0
        self.nudges: list[float] = []
        self.said: list[str] = []
        self.clock = VirtualClock()

    async def state_and_tasks(self) -> Any:
        self.looks += 1
        entries = self._entries(self.looks)
        if entries is None:
            raise ToolFailed("glusterd does not answer")
        # The new brick is listed from the third look on.
        heals = [BrickHeal(brick=OLD, status="Connected", entries=entries)]
        if self.looks > 2:
            heals.append(BrickHeal(brick=NEW, status="Connected", entries=0))
        return SimpleNamespace(heals=tuple(heals)), ()

    async def heal(self) -> None:
        self.nudges.append(self.clock.monotonic_s())
        if self.refuses:
            raise ToolFailed("a brick is not up")

    def wait(self, *, poll_s: float = 60.0) -> None:
        call: Any = SimpleNamespace(
            world=SimpleNamespace(volume=self, clock=self.clock),
            request=SimpleNamespace(poll_s=poll_s, stall_s=6 * 3600.0),
            say=lambda *words: self.said.append(words[-1]),
        )
        asyncio.run(until_healed(call, RECORD))


@pytest.mark.parametrize(
    ("entries", "looks", "told"),
    [
        (lambda _: 0, 3, []),
        (lambda look: max(1000 - 100 * (look - 1), 0), 11, [1000, 500, 200, 100]),
        # A crawl finds more on its way: that is no standing still. It is told every hour.
        (lambda look: look if look < 600 else 0, 600, [1, *range(61, 600, 60)]),
    ],
)
def test_it_ends_when_the_new_brick_is_listed_and_nothing_waits(
    entries: Callable[[int], int], looks: int, told: list[int]
) -> None:
    healing = Healing(entries)
    healing.wait()
    assert healing.looks == looks
    assert [int(words.split()[5].replace(",", "")) for words in healing.said] == told


def test_what_does_not_change_for_too_long_is_given_to_people() -> None:
    healing = Healing(lambda look: 10 if look < 5 else 2)
    with pytest.raises(ToolFailed, match="2 entries on gl1:/b, and that has not changed for 6 h") as raised:
        healing.wait()
    assert healing.looks == 5 + 360
    assert "split-brain" in raised.value.hint
    with pytest.raises(ToolFailed, match="not known, and that has not changed"):
        Healing(lambda _: None).wait()


@pytest.mark.parametrize(
    ("entries", "poll_s", "refuses", "asked_s"),
    [
        # From the third look on, with the new brick, the same waits.
        *((lambda look: 5 if look < 18 else 0, 10.0, refuses, [60.0, 120.0]) for refuses in (False, True)),
        (lambda look: max(100 - look, 0), 30.0, False, []),
    ],
)
def test_daemons_that_do_nothing_are_asked_to_look_every_minute_and_those_at_work_are_not(
    entries: Callable[[int], int], poll_s: float, refuses: bool, asked_s: list[float]
) -> None:
    healing = Healing(entries)
    healing.refuses, begun_s = refuses, healing.clock.monotonic_s()
    healing.wait(poll_s=poll_s)
    assert [at_s - begun_s for at_s in healing.nudges] == asked_s
