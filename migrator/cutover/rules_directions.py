"""The two directions of a cutover, which have the same phases under different names of states and steps. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from migrator.cutover import model
from migrator.cutover.model import CutoverState as State
from migrator.cutover.model import Phase


class Way(Struct, frozen=True, kw_only=True):
    """The steps of the way from one side, on which the user works before, to the other; their path leads to `side`
    before the switch, and to `other_side` after it.
    """

    forward: bool
    side: model.LinkSeen
    other_side: model.LinkSeen
    freeze: model.CutoverStep
    copy: model.CutoverStep
    verify: model.CutoverStep
    switch: model.CutoverStep
    thaw: model.CutoverStep
    revert: model.CutoverStep

    def top_here(self, seen: model.Seen) -> model.TopSeen:
        """The top directory on the side that the way leaves."""
        return seen.source_top if self.forward else seen.target_top

    def top_there(self, seen: model.Seen) -> model.TopSeen:
        """The top directory on the side that the way leads to."""
        return seen.target_top if self.forward else seen.source_top


THERE = Way(
    forward=True,
    side=model.LinkSeen.SOURCE,
    other_side=model.LinkSeen.TARGET,
    freeze=model.CutoverStep.FREEZE,
    copy=model.CutoverStep.FINAL_PASS,
    verify=model.CutoverStep.VERIFY,
    switch=model.CutoverStep.SWITCH,
    thaw=model.CutoverStep.THAW,
    revert=model.CutoverStep.REVERT,
)

BACK = Way(
    forward=False,
    side=model.LinkSeen.TARGET,
    other_side=model.LinkSeen.SOURCE,
    freeze=model.CutoverStep.ROLLBACK_FREEZE,
    copy=model.CutoverStep.CARRY_BACK,
    verify=model.CutoverStep.ROLLBACK_VERIFY,
    switch=model.CutoverStep.SWITCH_BACK,
    thaw=model.CutoverStep.ROLLBACK_THAW,
    revert=model.CutoverStep.ROLLBACK_REVERT,
)

PLACES: Mapping[State, tuple[Way, Phase]] = {
    State.PLANNED: (THERE, Phase.START),
    State.THAWED: (THERE, Phase.ARRIVED),
} | {
    state: (way, phase)
    for phase, states in model.PHASES.items()
    for way, state in zip((THERE, BACK), states, strict=True)
}
"""The way and phase of every state that has a next step."""
