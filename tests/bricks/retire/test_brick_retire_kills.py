"""A retirement with its hooks, killed before every call of anything that it works with."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from migrator.bricks.retire.model import RetireEnding, RetirementState
from migrator.bricks.retire.stage import RetirementWorld
from migrator.hooks.model import HookStep
from tests.bricks.retire.retire_site import Rooted, Site, Volume, found
from tests.support.deaths import Death, Killed, dying
from tests.support.fakes import inline
from tests.support.kills import DoingHooks, Left, copied, deaths, new_ledger, ticking

pytestmark = pytest.mark.exhaustive

S = RetirementState
CHANGED = b"home/alice/y"


@dataclass
class Dying(Site):
    """A site with hooks, whose every part may be killed."""

    death: Death | None = None

    def __post_init__(self) -> None:
        self.called = DoingHooks({HookStep.RETIRE: lambda: None})

    def world(self) -> RetirementWorld:
        world, death = super().world(), self.death or Death(left=1 << 30)
        return replace(
            world,
            volume=dying(world.volume, death),
            source=dying(world.source, death),
            writers=dying(world.writers, death),
            endpoints=ticking(world.endpoints, death),
            scan=ticking(world.scan, death),
            cover=dying(world.cover, death),
            list_to=ticking(world.list_to, death),
            back_up=ticking(world.back_up, death),
            hooks=dying(self.called, death),
            ledger=dying(self.ledger, death),
            blocking=inline,
            tokens=self.called.new_token,
        )


def test_killed_before_any_call_the_volume_is_stopped_once_by_the_same_command(memory: Path) -> None:
    prepared, died_in, left = new_ledger(memory / "prepared.db"), set[RetirementState | None](), Left()
    for death in deaths():
        with copied(prepared, memory / "ledger.db") as ledger:
            site = Dying(
                ledger, Volume(ledger=ledger), [[found(b"home/alice/x"), found(CHANGED, ctime_ns=2)]], Rooted()
            )
            site.source.add(CHANGED, b"content")
            site.death = death
            with suppress(Killed):
                site.retire()
            newest = ledger.retirements.newest()
            died_in.add(newest.state if newest else None)
            if not left.is_new(memory / "ledger.db", site.volume.stops, site.called):
                continue
            site.death = None
            done = site.retire()
            assert done.ending in (RetireEnding.DONE, RetireEnding.DONE_BEFORE), done
            assert (site.volume.stops, site.volume.intents) == (1, [S.STOPPING])
            newest = ledger.retirements.newest()
            assert newest is not None
            assert (newest.id, newest.state) == (1, S.RETIRED)
            assert site.backups
            assert site.locks.held == set()
            assert site.called.told() == ["post-retire"]
            assert not ledger.hooks.unfinished((HookStep.RETIRE,))
    assert died_in >= {None, S.STOPPING, S.RETIRED}
