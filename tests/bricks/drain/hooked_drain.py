"""A drain over a simulated volume with the site's hooks around its steps, whose every part may be killed."""

from copy import deepcopy
from dataclasses import dataclass, field

from migrator.bricks.drain.model import DrainState, PlaceSeen
from migrator.bricks.drain.rules_progress import wipe_word
from migrator.bricks.drain.stage import DrainCall
from migrator.core.events import EventKind
from migrator.core.units import DAY_S
from migrator.gluster.model import DiskFacts
from migrator.hooks.model import HookStep
from migrator.ledger.ledger import Ledger
from tests.bricks.drain.drain_site import Site
from tests.bricks.drain.drain_world import LEAVING
from tests.support.kills import DoingHooks

S = DrainState
EVERYTHING = set(range(1, 10))
WORD = wipe_word("s", "v", {LEAVING: DiskFacts(name=LEAVING, identity="serial-1")})


@dataclass
class HookedSite(Site):
    """One hook on either side of every step of a drain."""

    given: int = 0
    pause_s: float = DAY_S
    hooks: DoingHooks = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        deeds = dict.fromkeys(DrainCall.steps, lambda: None)
        self.hooks = DoingHooks(deeds | {HookStep.WIPE: self._wipe, HookStep.HAND_OVER: self._give})

    def _wipe(self) -> None:
        # The volume is asked by the simulation: nothing is wiped that is in it, or has a file.
        self.volume.wipe()

    def _give(self) -> None:
        assert self.volume.place is PlaceSeen.EMPTY
        self.given += 1

    def has_left(self) -> tuple[object, ...]:
        """What is simulated, as it lies there."""
        return (self.glusterd, self.hooks)

    def again(self, ledger: Ledger) -> "HookedSite":
        """One like this, over a copy of its ledger."""
        site = HookedSite(ledger, volume=deepcopy(self.volume))
        site.hooks.tokens_given = self.hooks.tokens_given
        return site

    def owes_nothing(self) -> bool:
        """Whether no step with hooks is open, and no call without an end."""
        record = self.ledger.drains.latest("v", (LEAVING,))
        keys = (
            ()
            if record is None
            else (f"drain {record.id}", *(f"drain {record.id}: {step}" for step in DrainCall.steps))
        )
        still = [key for key in keys for step in DrainCall.steps if self.ledger.hooks.open_since(step, key)]
        return not still and not self.ledger.hooks.unfinished(DrainCall.steps)

    def warnings(self) -> list[str]:
        """What was said of hooks that failed."""
        return [one.message for one in self.ledger.events.latest(500) if one.kind is EventKind.HOOK_FAILED]
