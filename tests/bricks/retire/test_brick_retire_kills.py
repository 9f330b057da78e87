"""A retirement with its hooks, killed before every call of anything that it works with."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from migrator.bricks.retire.model import RetireEnding, RetirementState
from migrator.bricks.retire.stage import RetirementWorld
from migrator.hooks.model import HookStep
from migrator.ledger.ledger import Ledger
from tests.bricks.retire.retire_site import Rooted, Site, Volume, found
from tests.support.kills import Death, DoingHooks, dying, killed_everywhere, new_ledger, ticking

pytestmark = pytest.mark.exhaustive

S = RetirementState
CHANGED = b"home/alice/y"


@dataclass
class Dying(Site):
    """A site with hooks, whose every part may be killed."""

    death: Death | None = None

    def __post_init__(self) -> None:
        self.called = self.hooks = DoingHooks({HookStep.RETIRE: lambda: None})

    def world(self) -> RetirementWorld:
        world, death = super().world(), self.death or Death(left=1 << 30)
        return replace(
            world,
            volume=dying(world.volume, death),
            source=dying(world.source, death),
            writers=ticking(world.writers, death),
            endpoints=ticking(world.endpoints, death),
            scan=ticking(world.scan, death),
            cover=ticking(world.cover, death),
            list_to=ticking(world.list_to, death),
            back_up=ticking(world.back_up, death),
            hooks=dying(self.called, death),
            ledger=dying(self.ledger, death),
        )

    @property
    def state(self) -> RetirementState | None:
        newest = self.ledger.retirements.newest()
        return newest.state if newest else None

    def has_left(self) -> tuple[object, ...]:
        return (self.volume.stops, self.called)

    def killed(self, death: Death) -> None:
        self.death = death
        self.retire()


def test_killed_before_any_call_the_volume_is_stopped_once_by_the_same_command(memory: Path) -> None:
    died_in: set[RetirementState | None] = set()

    def make(ledger: Ledger) -> Dying:
        site = Dying(ledger, Volume(ledger=ledger), [[found(b"home/alice/x"), found(CHANGED, ctime_ns=2)]], Rooted())
        site.source.add(CHANGED, b"content")
        return site

    for site, _ in killed_everywhere(new_ledger(memory / "prepared.db"), make, Dying.killed, died_in):
        ledger = site.ledger
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
