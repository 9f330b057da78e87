"""The two ways of a cutover, there and back, and how far a state has come on its way. Pure.

Both go through the same phases; what they call their states and steps is all that differs, so each rule is written once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from migrator.domain.cutover import CutoverState as State
from migrator.domain.cutover import CutoverStep
from migrator.domain.cutover_seen import LinkSeen, Seen, TopSeen


class Phase(Enum):
    """How far a tree is on its way."""

    START = auto()
    FREEZING = auto()
    FROZEN = auto()
    COPYING = auto()
    VERIFYING = auto()
    VERIFIED = auto()
    SWITCHING = auto()
    SWITCHED = auto()
    THAWING = auto()
    ARRIVED = auto()
    REVERTING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """From one side, where the user works before, to the other: by phase the states, and the steps.

    `start` are the states from which it is begun, `arrived` those in which nothing of it is left to do but `retain`.
    """

    forward: bool
    side: str
    other_side: str
    link_before: LinkSeen
    link_after: LinkSeen
    start: tuple[State, ...]
    freezing: State
    frozen: State
    copying: State
    verifying: State
    verified: State
    switching: State
    switched: State
    thawing: State
    arrived: tuple[State, ...]
    reverting: State
    reverted: State
    freeze: CutoverStep
    copy: CutoverStep
    verify: CutoverStep
    switch: CutoverStep
    thaw: CutoverStep
    revert: CutoverStep

    def phases(self) -> Iterator[tuple[State, Phase]]:
        """Every state that lies on this way and on no other, with its phase."""
        if self.forward:
            yield from ((state, Phase.START) for state in self.start)
            yield from ((state, Phase.ARRIVED) for state in self.arrived)
        yield self.freezing, Phase.FREEZING
        yield self.frozen, Phase.FROZEN
        yield self.copying, Phase.COPYING
        yield self.verifying, Phase.VERIFYING
        yield self.verified, Phase.VERIFIED
        yield self.switching, Phase.SWITCHING
        yield self.switched, Phase.SWITCHED
        yield self.thawing, Phase.THAWING
        yield self.reverting, Phase.REVERTING

    def top_here(self, seen: Seen) -> TopSeen:
        """The top directory on the side that the way leads away from."""
        return seen.source_top if self.forward else seen.target_top

    def top_there(self, seen: Seen) -> TopSeen:
        """The top directory on the side that the way leads to."""
        return seen.target_top if self.forward else seen.source_top


THERE = Way(
    forward=True,
    side="source",
    other_side="target",
    link_before=LinkSeen.SOURCE,
    link_after=LinkSeen.TARGET,
    start=(State.PLANNED,),
    freezing=State.FREEZING,
    frozen=State.FROZEN,
    copying=State.FINAL_PASS,
    verifying=State.VERIFYING,
    verified=State.VERIFIED,
    switching=State.SWITCHING,
    switched=State.SWITCHED,
    thawing=State.THAWING,
    arrived=(State.THAWED,),
    reverting=State.REVERTING,
    reverted=State.REVERTED,
    freeze=CutoverStep.FREEZE,
    copy=CutoverStep.FINAL_PASS,
    verify=CutoverStep.VERIFY,
    switch=CutoverStep.SWITCH,
    thaw=CutoverStep.THAW,
    revert=CutoverStep.REVERT,
)

BACK = Way(
    forward=False,
    side="target",
    other_side="source",
    link_before=LinkSeen.TARGET,
    link_after=LinkSeen.SOURCE,
    start=(State.SWITCHED, State.THAWED, State.RETAINED),
    freezing=State.ROLLBACK_FREEZING,
    frozen=State.ROLLBACK_FROZEN,
    copying=State.CARRYING_BACK,
    verifying=State.ROLLBACK_VERIFYING,
    verified=State.ROLLBACK_VERIFIED,
    switching=State.SWITCHING_BACK,
    switched=State.SWITCHED_BACK,
    thawing=State.ROLLBACK_THAWING,
    arrived=(State.ROLLED_BACK,),
    reverting=State.ROLLBACK_REVERTING,
    reverted=State.THAWED,
    freeze=CutoverStep.ROLLBACK_FREEZE,
    copy=CutoverStep.CARRY_BACK,
    verify=CutoverStep.ROLLBACK_VERIFY,
    switch=CutoverStep.SWITCH_BACK,
    thaw=CutoverStep.ROLLBACK_THAW,
    revert=CutoverStep.ROLLBACK_REVERT,
)

PLACES: Mapping[State, tuple[Way, Phase]] = {
    state: (way, phase) for way in (THERE, BACK) for state, phase in way.phases()
}
"""Where every state lies in which a cutover or a rollback has something left to do."""
