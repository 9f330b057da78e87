"""The two directions of a cutover, which have the same phases under different names of states and steps. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from migrator.cutover import model
from migrator.cutover.model import CutoverState as State
from migrator.cutover.model import Phase
from migrator.cutover.model_snapshot import LinkState, TopState, TreeSnapshot


class Direction(Struct, frozen=True, kw_only=True):
    """The steps from one side, on which the user works before, to the other. The user's path leads to `side`
    before the switch, and to `other_side` after it.
    """

    forward: bool
    side: LinkState
    other_side: LinkState
    freeze: model.CutoverStep
    copy: model.CutoverStep
    verify: model.CutoverStep
    switch: model.CutoverStep
    thaw: model.CutoverStep
    revert: model.CutoverStep

    def top_here(self, snapshot: TreeSnapshot) -> TopState:
        """The top directory on the side that the user leaves."""
        return snapshot.source_top if self.forward else snapshot.target_top

    def top_there(self, snapshot: TreeSnapshot) -> TopState:
        """The top directory on the side to which the user moves."""
        return snapshot.target_top if self.forward else snapshot.source_top


FORWARD = Direction(
    forward=True,
    side=LinkState.SOURCE,
    other_side=LinkState.TARGET,
    freeze=model.CutoverStep.FREEZE,
    copy=model.CutoverStep.FINAL_PASS,
    verify=model.CutoverStep.VERIFY,
    switch=model.CutoverStep.SWITCH,
    thaw=model.CutoverStep.THAW,
    revert=model.CutoverStep.REVERT,
)

BACK = Direction(
    forward=False,
    side=LinkState.TARGET,
    other_side=LinkState.SOURCE,
    freeze=model.CutoverStep.ROLLBACK_FREEZE,
    copy=model.CutoverStep.CARRY_BACK,
    verify=model.CutoverStep.ROLLBACK_VERIFY,
    switch=model.CutoverStep.SWITCH_BACK,
    thaw=model.CutoverStep.ROLLBACK_THAW,
    revert=model.CutoverStep.ROLLBACK_REVERT,
)

POSITIONS: Mapping[State, tuple[Direction, Phase]] = {
    State.PLANNED: (FORWARD, Phase.START),
    State.THAWED: (FORWARD, Phase.ARRIVED),
} | {
    state: (direction, phase)
    for phase, states in model.PHASES.items()
    for direction, state in zip((FORWARD, BACK), states, strict=True)
}
"""The direction and phase of every state that has a next step."""
