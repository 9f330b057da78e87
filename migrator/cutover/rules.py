"""The next step of a cutover or rollback, from its record and a snapshot. Pure.

The caller writes the intent, acts, writes the result, and asks again with a new snapshot. If an act fails and the next
answer is the same act, the caller ends with that failure.

- Before the switch every failure and every missing proof thaws the user without moving them.
- Between intent and result of the switch the snapshot decides whether it was made.
- After the switch failures are retried; nothing is reverted automatically.
- A state that the record does not explain is left untouched.
"""

from collections.abc import Iterator, Sequence
from typing import assert_never

from migrator.core.units import several
from migrator.cutover import model
from migrator.cutover.model import CutoverState as State
from migrator.cutover.model import Phase
from migrator.cutover.model_snapshot import FinalPassResult, LinkState, TopState, TreeProof, TreeSnapshot
from migrator.cutover.rules_agreement import unexplained, unexplained_start
from migrator.cutover.rules_directions import BACK, POSITIONS, Direction
from migrator.cutover.rules_preflight import NO_BACKUP
from migrator.cutover.rules_states import describe_state
from migrator.operations.model import Finished, Halt

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
    """Whether a user in this state moves back to the source, or is back there."""
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
