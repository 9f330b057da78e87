"""A drain with its hooks, to the end of all that is asked for, killed before every call of anything it works with: in the audit,
the wipe and the hand-over too.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from migrator.decide.drain_standing import wipe_word
from migrator.domain.drain import DrainState
from migrator.domain.drain_run import DrainEnding
from migrator.domain.drain_seen import PlaceSeen
from migrator.domain.hooks import HookStep
from migrator.stages.bricks.drain_context import DrainWorld
from tests.deaths import Death, Killed, dying
from tests.drain_site import Site
from tests.kills import DoingHooks, Left, copied, deaths, new_ledger, ticking
from tests.unit.decide.drain_world import LEAVING

S = DrainState
STEPS = (HookStep.DRAIN, HookStep.COMMIT, HookStep.WIPE, HookStep.HAND_OVER)
EVERYTHING = set(range(1, 10))
WORD = wipe_word("s", "v", (LEAVING,))


@dataclass
class Whole(Site):
    """A site with hooks, whose every part may be killed."""

    given: int = 0
    hooks: DoingHooks = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        deeds = dict.fromkeys(STEPS, lambda: None)
        self.hooks = DoingHooks(deeds | {HookStep.WIPE: self._wipe, HookStep.HAND_OVER: self._give})

    def _wipe(self) -> None:
        # The volume is asked by the simulation: nothing is wiped that is in it, or has a file.
        self.volume.wipe()

    def _give(self) -> None:
        assert self.volume.place is PlaceSeen.EMPTY
        self.given += 1

    def world(self, death: Death) -> DrainWorld:
        world = super().world(death)
        assert world.marks is not None
        return replace(
            world,
            walks=dying(world.walks, death),
            versions=ticking(world.versions, death),
            open_files=ticking(world.open_files, death),
            places=ticking(world.places, death),
            marks=ticking(world.marks, death),
            back_up=ticking(world.back_up, death),
            hooks=dying(self.hooks, death),
            ledger=dying(self.ledger, death),
            tokens=self.hooks.new_token,
        )


def test_killed_before_any_call_the_same_command_comes_to_the_same_end(memory: Path) -> None:
    prepared, died_in, left = new_ledger(memory / "prepared.db"), set[DrainState | None](), Left()
    for death in deaths():
        with copied(prepared, memory / "ledger.db") as ledger:
            site = Whole(ledger)
            with suppress(Killed):
                site.drain(death=death, confirm=WORD)
            died_in.add(site.state)
            assert site.volume.reachable() == EVERYTHING
            if not left.is_new(memory / "ledger.db", site.volume, site.hooks):
                continue
            if death.happened:
                done = site.drain(confirm=WORD)
                assert done.ending is DrainEnding.DONE, done
            assert (site.state, site.locks.held) == (S.HANDED_OVER, set())
            assert site.volume.reachable() == EVERYTHING
            assert (LEAVING in site.volume.inside, site.volume.options) == (False, {})
            assert site.given
            assert sorted(site.hooks.told()) == sorted(f"post-{step.value}" for step in STEPS)
            assert not site.ledger.hooks.unfinished(STEPS)
    assert died_in >= set(S) - {S.FAILED, S.STOPPING, S.SETTLING, S.STOPPED}
