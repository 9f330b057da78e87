"""Additions with their hooks, to the source and to the target, killed before every call of anything that they work with."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from migrator.bricks.add import model as add_model
from migrator.core.units import GIB
from migrator.hooks.model import HookStep
from migrator.ledger.ledger import Ledger
from tests.bricks.add.addition_site import Quick, Site
from tests.bricks.add.addition_world import EMPTY, NEW
from tests.support.fakes import VirtualClock
from tests.support.kills import DoingHooks, killed_everywhere, new_ledger

pytestmark = pytest.mark.exhaustive

S = add_model.AdditionState
STALE = replace(EMPTY, exists=True, volume_id="76", entries=("home",))


@dataclass
class Dying(Site):
    """What a brick has left is on the place of the new one until a hook makes a file system."""

    throttle: str | None = "normal"
    max_latency_s: float | None = None
    glusterd_of: Callable[[Any, Ledger, VirtualClock], Any] = Quick
    given: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.volume.place = STALE
        self.called = self.hooks = DoingHooks({HookStep.ADD: self._hook})
        self.ports = {"target_room": self._room}

    async def _room(self) -> add_model.TargetRoom:
        return add_model.TargetRoom(total_bytes=50 * GIB, storage_targets=3 + len(self.given))

    def _hook(self) -> None:
        if self.side is add_model.AdditionSide.TARGET:
            # As the lab's own hook: what was given is not given twice.
            self.given.add(NEW)
            return
        assert NEW not in self.volume.inside, "a file system was made on a brick that is in use"
        self.volume.place = EMPTY

    def has_left(self) -> tuple[object, ...]:
        """What is simulated, as it lies there."""
        return (self.volume, self.glusterd.options, self.called, sorted(self.given))

    def comes_to_its_end(self) -> None:
        """By the same command."""
        done = self.add()
        assert (done.ending, self.state) == (add_model.AdditionEnding.DONE, S.SETTLED), done
        assert self.glusterd.options == {}
        assert self.locks.held == []
        (record,) = self.ledger.additions.all()
        assert not record.notes.options
        assert self.called.told() == ["post-add"]
        assert not self.ledger.hooks.unfinished((HookStep.ADD,))


def every_remains(memory: Path, died_in: set[add_model.AdditionState | None], **of: Any) -> Iterator[Dying]:
    """A site for everything that a killed addition can leave; the states that they died in are added to the set."""
    prepared = new_ledger(memory / "prepared.db")
    for site, _ in killed_everywhere(prepared, lambda ledger: Dying(ledger, **of), Dying.add, died_in):
        yield site


@pytest.mark.parametrize("rebalance", [True, False])
def test_killed_before_any_call_a_brick_is_added_once_and_used(memory: Path, rebalance: bool) -> None:
    died_in: set[add_model.AdditionState | None] = set()
    for site in every_remains(memory, died_in, wish=add_model.Wish(rebalance=rebalance)):
        site.comes_to_its_end()
        assert site.volume.added == 1
        assert site.volume.layout_right
        assert site.volume.even is rebalance
    balanced = {S.BALANCING, S.BALANCED} if rebalance else set()
    assert died_in >= {S.PLANNED, S.PREPARING, S.PREPARED, S.ADDING, S.ADDED, S.LAYOUT, S.LAID_OUT, *balanced}


def test_killed_before_any_call_a_disk_is_given_to_the_target(memory: Path) -> None:
    died_in: set[add_model.AdditionState | None] = set()
    for site in every_remains(memory, died_in, side=add_model.AdditionSide.TARGET):
        site.comes_to_its_end()
        assert (site.given, site.volume.added) == ({NEW}, 0)
        # What the target had before it was given anything is known, whenever the program died.
        (record,) = site.ledger.additions.all()
        assert record.notes.room_before == add_model.TargetRoom(total_bytes=50 * GIB, storage_targets=3)
    assert died_in >= {S.PLANNED, S.PREPARING, S.PREPARED, S.HANDING, S.SEEN}
