"""The next step of a cutover or rollback, from its record and a snapshot. Pure.

The caller writes the intent, acts, writes the result, and asks again with a new snapshot. If an act fails and the next
answer is the same act, the caller ends with that failure.

- Before the switch every failure and every missing proof thaws the user without moving them.
- Between intent and result of the switch the snapshot decides whether it was made.
- After the switch failures are retried; nothing is reverted automatically.
- A state that the record does not explain is left untouched.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

from msgspec import Struct

from migrator.core.paths import show
from migrator.core.units import several
from migrator.cutover import model
from migrator.cutover.model import CutoverState as State
from migrator.cutover.model import Phase
from migrator.cutover.model_snapshot import FinalPassResult, LinkState, TopState, TreeProof, TreeSnapshot
from migrator.cutover.rules_preflight import NO_BACKUP
from migrator.cutover.rules_states import describe_state
from migrator.operations.model import Finished, Halt

# The two directions, which have the same phases under different names of states and steps.


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


# Agreement of a snapshot with the record. Without it nothing may be changed.


_AGAIN = "then run the same command again: it resumes, or aborts the move"
_CLOSED = frozenset({TopState.FROZEN})
_ANY = frozenset(TopState) - {TopState.UNKNOWN}

# An interrupted freeze or thaw leaves any mixture of both ends. If a frozen top is open, somebody opened it by hand to
# let the user work again: before the switch this aborts the cutover.
_OPEN_OR_CLOSED = frozenset({TopState.OPEN, TopState.FROZEN})
_BETWEEN = _OPEN_OR_CLOSED | {TopState.PARTLY}
_TOP_HERE: Mapping[Phase, frozenset[TopState]] = {
    Phase.START: frozenset({TopState.OPEN}),
    Phase.FREEZING: _BETWEEN,
    Phase.REVERTING: _BETWEEN,
    **dict.fromkeys((Phase.SWITCHED, Phase.THAWING, Phase.ARRIVED), _CLOSED),
}
"""In every other phase it is open or closed."""

_LINK_AFTER = frozenset({Phase.SWITCHED, Phase.THAWING, Phase.ARRIVED})


def unexplained(direction: Direction, phase: Phase, record: model.CutoverRecord, snapshot: TreeSnapshot) -> Halt | None:
    """Why nothing may be changed; None if this program can have left everything that the snapshot shows."""
    return _link(direction, phase, record, snapshot) or _tops(direction, phase, record, snapshot)


def unexplained_start(direction: Direction, record: model.CutoverRecord, snapshot: TreeSnapshot) -> Halt | None:
    """The same check before a rollback begins: the user may have changed their top since."""
    if found := _link(direction, Phase.START, record, snapshot):
        return found
    here = _OPEN_OR_CLOSED if record.state is model.CutoverState.SWITCHED else _ANY
    return _both(direction, record, snapshot, here, _CLOSED)


def _tops(direction: Direction, phase: Phase, record: model.CutoverRecord, snapshot: TreeSnapshot) -> Halt | None:
    here, there = _TOP_HERE.get(phase, _OPEN_OR_CLOSED), _CLOSED
    if phase in (Phase.SWITCHED, Phase.THAWING):
        # A user who was switched may have been thawed by hand.
        there = _BETWEEN
    elif phase is Phase.ARRIVED:
        # The top belongs to the user again, who may give it any mode.
        there = _ANY
    elif phase is Phase.SWITCHING and snapshot.link is direction.other_side:
        here, there = _CLOSED, _OPEN_OR_CLOSED
    return _both(direction, record, snapshot, here, there)


def _both(
    direction: Direction,
    record: model.CutoverRecord,
    snapshot: TreeSnapshot,
    here: frozenset[TopState],
    there: frozenset[TopState],
) -> Halt | None:
    return _top(record, direction.side, direction.top_here(snapshot), here, snapshot.top_differences) or _top(
        record, direction.other_side, direction.top_there(snapshot), there, snapshot.top_differences
    )


def _link(direction: Direction, phase: Phase, record: model.CutoverRecord, snapshot: TreeSnapshot) -> Halt | None:
    name = show(record.notes.link) if record.notes.link is not None else f"the path of {record.tree.user}"
    if snapshot.link is LinkState.UNKNOWN:
        return Halt(
            words=f"the target of {name} cannot be read",
            hint=f"fix the error that prevents it, {_AGAIN}",
        )
    if snapshot.link is LinkState.BY_HOOK:
        return None
    side = direction.other_side if phase in _LINK_AFTER else direction.side
    if snapshot.link is side or (phase is Phase.SWITCHING and snapshot.link is direction.other_side):
        return None
    holds = "" if snapshot.link_holds is None else f" ({show(snapshot.link_holds)})"
    where = "elsewhere" if snapshot.link is LinkState.OTHER else f"to the {snapshot.link.value}"
    return Halt(
        words=f"{name} leads {where}{holds} although the cutover is {record.state.value}: another program or person has changed it",
        hint=f"find out on which side {record.tree.user} has worked since; make {name} lead to the {side}, {_AGAIN}",
    )


_TOP_WORDS = {
    TopState.OPEN: "open",
    TopState.FROZEN: "closed",
    TopState.PARTLY: "partly closed",
}


def _top(
    record: model.CutoverRecord,
    side: str,
    found: TopState,
    expected: frozenset[TopState],
    differences: Sequence[str],
) -> Halt | None:
    if found in expected:
        return None
    name = f"the top directory of {show(record.tree.path)} on the {side}"
    if found is TopState.UNKNOWN:
        return Halt(
            words=f"{name} cannot be read",
            hint=f"fix the findings of `migrator doctor`, {_AGAIN}",
        )
    why = "; ".join(differences) if found is TopState.OTHER else f"it is {_TOP_WORDS[found]}"
    wanted = "closed again (root's, mode 0700)" if TopState.OPEN not in expected else "as it was before the freeze"
    return Halt(
        words=f"{name} is not as the cutover left it ({record.state.value}): {why}",
        hint=f"find out who changed it, and check for changed files below it; make it {wanted}, {_AGAIN}",
    )


# The next step.


_MOVED = (State.SWITCHED, State.THAWED, State.RETAINED)
"""The states in which a rollback begins."""


_SHOWN = 3


def next_step(record: model.CutoverRecord, snapshot: TreeSnapshot) -> model.Step:
    """The next step of a cutover, or of a rollback that has begun."""
    place = POSITIONS.get(record.state)
    if place is None:
        return _finished(record)
    direction, phase = place
    if halt := unexplained(direction, phase, record, snapshot):
        return halt
    match phase:
        case Phase.START | Phase.FREEZING | Phase.FROZEN | Phase.COPYING | Phase.VERIFYING | Phase.VERIFIED:
            if why := _why_revert(direction, phase, record, snapshot):
                return _revert(direction, snapshot, why)
            return _forward(direction, phase, record, snapshot)
        case Phase.SWITCHING:
            return _switching(direction, record, snapshot)
        case Phase.REVERTING:
            return _revert(direction, snapshot, record.failure)
        case Phase.SWITCHED | Phase.THAWING:
            return model.act_of(direction.thaw, seen_done=direction.top_there(snapshot) is TopState.OPEN)
        case Phase.ARRIVED:
            return model.act_of(model.CutoverStep.RETAIN)
        case _:
            assert_never(phase)


def begin_rollback(record: model.CutoverRecord, snapshot: TreeSnapshot) -> model.Step:
    """The first steps of a rollback. Call it until the record has turned back (`turned_back`) or finished, then call
    `next_step`: otherwise a rollback that was given up would begin again.

    Before the switch this gives up the cutover. A switch or a thaw that has begun is finished first.
    """
    state = record.state
    if state in (model.CutoverState.PURGING, model.CutoverState.PURGED):
        return Halt(
            words=f"the source of {record.tree.user} {'is being' if state is model.CutoverState.PURGING else 'has been'} purged",
            hint="there is nothing to go back to: to move the user back, set up a site whose source is this target",
        )
    if state in _MOVED:
        if halt := unexplained_start(BACK, record, snapshot):
            return halt
        return model.act_of(BACK.freeze)
    place = POSITIONS.get(state)
    if place is None or turned_back(state) or state is State.THAWING:
        return next_step(record, snapshot)
    direction, phase = place
    if halt := unexplained(direction, phase, record, snapshot):
        return halt
    if phase is Phase.SWITCHING and snapshot.link is not direction.side:
        return _switching(direction, record, snapshot)
    return _revert(direction, snapshot, record.failure or "a rollback was requested before the switch")


def turned_back(state: model.CutoverState) -> bool:
    """True if a user in this state moves back to the source, or is back there."""
    return state in model.ROLLBACK_STATES or state in (
        model.CutoverState.REVERTING,
        model.CutoverState.REVERTED,
        model.CutoverState.ROLLED_BACK,
    )


def _finished(record: model.CutoverRecord) -> Finished:
    why = f": {record.failure}" if record.state is State.REVERTED and record.failure else ""
    return Finished(state=record.state, words=f"{record.tree.user} works {describe_state(record.state)}{why}")


def _revert(direction: Direction, snapshot: TreeSnapshot, reason: str) -> model.CutoverAct:
    return model.act_of(direction.revert, seen_done=direction.top_here(snapshot) is TopState.OPEN, reason=reason)


def _why_revert(direction: Direction, phase: Phase, record: model.CutoverRecord, snapshot: TreeSnapshot) -> str:
    """Why the cutover or rollback is reverted; empty if it continues."""
    if record.failure:
        return record.failure
    if phase is not Phase.START and snapshot.too_long:
        return snapshot.too_long
    if phase in (Phase.START, Phase.FREEZING):
        return ""
    if direction.top_here(snapshot) is TopState.OPEN:
        return f"the tree was opened on the {direction.side} by another program or person during the freeze"
    problems: list[str] = []
    match phase:
        case Phase.FROZEN:
            problems.extend(_writers(snapshot))
        case Phase.COPYING if _copied(record, snapshot) is not None:
            problems.extend(_pass_problems(direction, record, snapshot))
        case Phase.VERIFYING:
            problems.extend(_pass_problems(direction, record, snapshot))
            if _proof(record, snapshot) is not None:
                problems.extend(_proof_problems(direction, record, snapshot))
        case Phase.VERIFIED:
            problems.extend(switch_problems(direction, record, snapshot))
        case _:
            pass
    return "; ".join(problems)


def _forward(
    direction: Direction, phase: Phase, record: model.CutoverRecord, snapshot: TreeSnapshot
) -> model.CutoverAct:
    match phase:
        case Phase.START | Phase.FREEZING:
            return model.act_of(direction.freeze, seen_done=direction.top_here(snapshot) is TopState.FROZEN)
        case Phase.FROZEN | Phase.COPYING:
            if phase is Phase.FROZEN or _copied(record, snapshot) is None:
                return model.act_of(direction.copy)
            return model.act_of(direction.verify)
        case Phase.VERIFYING:
            return model.act_of(direction.verify, seen_done=_proof(record, snapshot) is not None)
        case _:
            return model.act_of(direction.switch)


def _switching(direction: Direction, record: model.CutoverRecord, snapshot: TreeSnapshot) -> model.Step:
    """Decide from the snapshot, between the intent of the switch and its result."""
    again = model.act_of(direction.switch)
    if snapshot.link is direction.other_side:
        return model.act_of(direction.switch, seen_done=True)
    opened = direction.top_here(snapshot) is TopState.OPEN
    problems = tuple(switch_problems(direction, record, snapshot))
    if snapshot.link is LinkState.BY_HOOK:
        # Forward is the only safe way as long as it is the same switch with the same proof: the hook may be called twice.
        if problems:
            return Halt(
                words=f"the switch of {record.tree.user} may have been made, and cannot be repeated now: "
                + "; ".join(problems),
                hint=f"find out to which side the hook has switched the path. The tree is closed on the {direction.other_side}, and "
                f"frozen on the {direction.side}: fix these problems, then run the same command again",
            )
        return again
    if opened:
        return _revert(
            direction,
            snapshot,
            f"the tree was opened on the {direction.side} by another program or person before the switch",
        )
    if why := record.failure or snapshot.too_long or "; ".join(problems):
        return _revert(direction, snapshot, why)
    return again


def switch_problems(direction: Direction, record: model.CutoverRecord, snapshot: TreeSnapshot) -> Iterator[str]:
    """Every reason against switching the path now. An unknown fact is a reason too."""
    if direction.top_here(snapshot) is not TopState.FROZEN:
        yield f"the tree is not frozen on the {direction.side}"
    if direction.top_there(snapshot) is not TopState.FROZEN:
        yield f"the tree is not closed on the {direction.other_side}"
    yield from _writers(snapshot)
    yield from _pass_problems(direction, record, snapshot)
    yield from _proof_problems(direction, record, snapshot)
    if direction.forward and snapshot.lacks_backup:
        yield NO_BACKUP


def _writers(snapshot: TreeSnapshot) -> Sequence[str]:
    return ("the frozen tree was not searched for writers",) if snapshot.writing is None else snapshot.writing


def _copied(record: model.CutoverRecord, snapshot: TreeSnapshot) -> FinalPassResult | None:
    """The pass that counts: it has ended, and is newer than the intent of the freeze. A pass makes its own scan."""
    found, before = snapshot.copied, record.notes.passes_before
    if found is None or found.finished_at_s is None or before is None or found.id <= before:
        return None
    return found


def _pass_problems(direction: Direction, record: model.CutoverRecord, snapshot: TreeSnapshot) -> Iterator[str]:
    found = _copied(record, snapshot)
    name = "the final pass" if direction.forward else "the pass that carries back"
    if found is None:
        yield f"{name} has not ended, or did not begin in the freeze"
        return
    if not found.whole:
        yield f"{name} is not whole: the {direction.side} could not be read everywhere, or was not healthy"
    for count, what in ((found.changed, "changed"), (found.vanished, "vanished")):
        if count:
            yield f"{several(count, 'file')} {what} during {name}"
    if found.failed:
        yield f"{several(found.failed, 'file')} did not arrive by {name}"


def _proof(record: model.CutoverRecord, snapshot: TreeSnapshot) -> TreeProof | None:
    """The verification that counts: it covers the result of the pass, and began after the intent to verify that."""
    found, copied, before = snapshot.proof, snapshot.copied, record.notes.proofs_before
    if found is None or copied is None or copied.finished_at_s is None:
        return None
    if before is None or found.id <= before:
        return None
    return found


def _proof_problems(direction: Direction, record: model.CutoverRecord, snapshot: TreeSnapshot) -> Iterator[str]:
    found = _proof(record, snapshot)
    name = "the final pass" if direction.forward else "the pass that carries back"
    if found is None:
        yield f"the result of {name} is not verified"
        return
    if not found.whole:
        reasons = "; ".join(found.reasons[:3]) or "no reason was recorded"
        yield f"the verification is not whole: {reasons}"
    if found.differences:
        shown = f" ({'; '.join(found.examples[:_SHOWN])})" if found.examples else ""
        yield f"the verification found {several(found.differences, 'difference')}{shown}"
    if not found.by_policy:
        yield "the verification compared the content of fewer files than [verify] sample asks for"
    if direction.forward and found.manifest is None:
        yield "the verification left no manifest"
