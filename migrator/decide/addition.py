"""What is done next with bricks that are added, from the record and a look at the world. Pure.

The caller asks, writes the intent, acts, writes the result or the failure, and asks again with a fresh look, also after a
crash, a reboot and a restart of glusterd: nothing but the record is remembered, and Gluster's own brick list and status
decide what has happened. Where an act has failed and the answer is the same act again, the caller ends with that failure.

- Bricks that are in the volume were added, whoever did it; only some of them in it is somebody else's work, and is left alone.
- A task is begun only where none is at work, and counts as done only when every host that tells of it says so, without a
  failure. Whatever is newer than what was listed before the beginning is taken for it, whoever has begun it.
- What was added stays added: nothing here ever takes a brick out.
"""

from migrator.decide.addition_guards import (
    before_problems,
    health_problems,
    swap_problems,
    target_problems,
)
from migrator.decide.addition_in_place import healed, next_in_place
from migrator.decide.addition_places import place_problems
from migrator.decide.addition_tasks import Watching, give_up, watched
from migrator.decide.addition_words import AGAIN, against, finished_words
from migrator.domain.addition import (
    ENDED_STATES,
    IN_STATES,
    AdditionRecord,
    AdditionSide,
    AdditionState,
    AdditionStep,
    TargetRoom,
)
from migrator.domain.addition_seen import Act, AdditionSeen, Finished, Halt, Step, Wish
from migrator.domain.volume_tasks import remove_brick_of

_S, _A = AdditionState, AdditionStep
_TAKEN_OUT = "it is not in the volume any more: somebody else has taken it out"

GROWN_SHARE = 0.8
"""Of the size of the bricks: a file system keeps some of a device to itself."""

_LAYOUT = Watching(
    begin=Act(step=_A.LAY_OUT, intent=_S.LAYOUT, result=_S.LAYOUT),
    done=Act(step=_A.LAY_OUT, intent=_S.LAYOUT, result=_S.LAID_OUT, seen_done=True),
    # A whole rebalance puts every layout right as well.
    by_fix_layout=True,
    words="fix-layout",
)
_BALANCE = Watching(
    begin=Act(step=_A.BALANCE, intent=_S.BALANCING, result=_S.BALANCING),
    done=Act(step=_A.BALANCE, intent=_S.BALANCING, result=_S.BALANCED, seen_done=True),
    by_fix_layout=False,
    words="rebalance",
)
_HEALED = Act(step=_A.HEAL, intent=_S.HEALING, result=_S.HEALED, seen_done=True)
_HEAL = Act(step=_A.HEAL, intent=_S.HEALING, result=_S.HEALED)
_HAND_OVER = Act(step=_A.HAND_OVER, intent=_S.HANDING, result=_S.SEEN)
_PREPARE = Act(step=_A.PREPARE, intent=_S.PREPARING, result=_S.PREPARED)
_ADD = Act(step=_A.ADD, intent=_S.ADDING, result=_S.ADDED)
_ADD_SEEN = Act(step=_A.ADD, intent=_S.ADDING, result=_S.ADDED, seen_done=True)


def next_step(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> Step:
    """What is done next. An addition that has failed waits: see `begin_again`."""
    state = record.state
    if state in (_S.HEALED, _S.SETTLED) and wish.take_back:
        return Halt(words=f"there is nothing to take back: {finished_words(record)}", hint="")
    if state in ENDED_STATES:
        return Finished(state=state, words=finished_words(record))
    if state in (_S.SEEN, _S.BALANCED, _S.HEALED):
        return _finish(state)
    if state is _S.FAILED:
        return Halt(
            words=f"the addition of {record.shown_bricks} has failed: {record.failure or 'no reason was recorded'}",
            hint=f"put that right, {AGAIN}",
        )
    if halt := _cannot_tell(record, seen):
        return halt
    if record.side is AdditionSide.TARGET:
        return _to_target(record, seen)
    if record.in_place:
        return next_in_place(record, seen, wish)
    inside = _inside(record, seen)
    if inside is None:
        return Halt(
            words=f"some of {record.shown_bricks} are in the volume and some are not: somebody else has changed it",
            hint=f"look at `gluster volume info`, put it right by hand, {AGAIN}",
        )
    if state in IN_STATES:
        return _in_the_volume(record, seen, wish) if inside else give_up(_TAKEN_OUT)
    return _ADD_SEEN if inside else _before(record, seen, wish)


def begin_again(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> Step:
    """What the wish to add begins with where an attempt has failed. The caller asks this once, and then `next_step`; in every
    other state it is the same as `next_step`.
    """
    if record.state is not _S.FAILED:
        return next_step(record, seen, wish)
    if halt := _cannot_tell(record, seen):
        return halt
    if record.in_place:
        return next_in_place(record, seen, wish)
    inside = _inside(record, seen)
    if inside is None:
        return next_step(record, seen, wish)
    if not inside:
        return _prepare(record, seen, wish)
    return _heal(record, seen) if record.instead_of else watched(record, seen, _LAYOUT, anew=True)


def grown(before: TargetRoom | None, now: TargetRoom | None, *, bricks: int, size_bytes: int | None) -> bool:
    """Whether the target shows what it was given: so many storage targets more, or by far the most of the bytes. Where it is
    not known how many bytes these are, any growth is.
    """
    if before is None or now is None:
        return False
    if before.storage_targets is not None and now.storage_targets is not None:
        # Its own list is exact; bytes may have come from elsewhere.
        return now.storage_targets >= before.storage_targets + bricks
    if before.total_bytes is None or now.total_bytes is None:
        return False
    return now.total_bytes - before.total_bytes >= max(GROWN_SHARE * (size_bytes or 0), 1)


def may_add(record: AdditionRecord) -> bool:
    """Whether the places of the bricks and everything else that guards look at have to be looked at. Where a brick takes its own
    place, which file system lies there tells how far it is.
    """
    if record.in_place:
        return record.state not in ENDED_STATES
    return record.state in (_S.PLANNED, _S.PREPARING, _S.PREPARED, _S.ADDING, _S.HANDING, _S.FAILED)


def problems_before(record: AdditionRecord, seen: AdditionSeen, wish: Wish, *, prepared: bool) -> tuple[str, ...]:
    """All that speaks against adding now; with `prepared` also what lies where the bricks are to be."""
    if record.side is AdditionSide.TARGET:
        return target_problems(record, seen)
    found = [
        *health_problems(record, seen),
        *(swap_problems if record.instead_of else before_problems)(record, seen, wish),
    ]
    if prepared:
        found.extend(place_problems(record, seen, wish))
    return tuple(dict.fromkeys(found))


def _cannot_tell(record: AdditionRecord, seen: AdditionSeen) -> Halt | None:
    state = seen.state
    if state is None or seen.tasks is None:
        return Halt(
            words=f"the state of volume {record.volume} is not known",
            hint=f"see `gluster volume status`, and that glusterd runs, {AGAIN}",
            look_again=True,
        )
    if (state.volume, state.volume_id) != (record.volume, record.volume_id):
        return Halt(
            words=f"volume {state.volume} is another one than the addition was begun on (its id is {state.volume_id})",
            hint="look at [source] volume in site.toml, and at which cluster the gluster command asks",
        )
    if not state.started and record.side is AdditionSide.SOURCE:
        return Halt(words=f"volume {record.volume} is not started", hint=f"start it, {AGAIN}", look_again=True)
    return None


def _inside(record: AdditionRecord, seen: AdditionSeen) -> bool | None:
    """Whether the bricks are in the volume; None where only some of them are."""
    names = {brick.name for brick in seen.state.bricks} if seen.state is not None else set()
    inside = names.intersection(record.bricks)
    if not inside:
        return False
    if record.instead_of in names:
        return None
    return True if inside == set(record.bricks) else None


def _before(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> Step:
    if record.state in (_S.PLANNED, _S.PREPARING):
        return _prepare(record, seen, wish)
    if record.state is _S.PREPARED and place_problems(record, seen, wish):
        # It was right once: after a reboot hooks may mount it again.
        return _prepare(record, seen, wish)
    if problems := problems_before(record, seen, wish, prepared=True):
        return against(record, problems)
    return _ADD


def _prepare(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> Step:
    problems = problems_before(record, seen, wish, prepared=False)
    return against(record, problems) if problems else _PREPARE


def _to_target(record: AdditionRecord, seen: AdditionSeen) -> Step:
    if problems := target_problems(record, seen):
        return against(record, problems)
    if record.state in (_S.PLANNED, _S.PREPARING):
        return _PREPARE
    # The hooks are called again after a crash: whether they had done it cannot be seen from what grew meanwhile.
    return _HAND_OVER


def _in_the_volume(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> Step:
    leaving = remove_brick_of(seen.tasks or (), record.bricks)
    if leaving is not None:
        return Halt(
            words=f"somebody drains {', '.join(leaving.bricks)} again",
            hint=f"finish or stop that drain (`migrator brick list`), {AGAIN}",
            look_again=True,
        )
    if record.state is _S.ADDED:
        return _heal(record, seen) if record.instead_of else watched(record, seen, _LAYOUT, anew=True)
    if record.state is _S.HEALING:
        return _heal(record, seen)
    if record.state is _S.LAYOUT:
        return watched(record, seen, _LAYOUT)
    if not wish.rebalance:
        task = next((one for one in seen.tasks or () if one.id == record.notes.task_id), None)
        if task is not None and task.unfinished:
            return Halt(
                words=f"a rebalance is under way, and none is wanted: {task.id}",
                hint=f"stop it with `gluster volume rebalance {record.volume} stop`, or wait for its end, {AGAIN}",
            )
        return _finish(record.state)
    return watched(record, seen, _BALANCE, anew=record.state is _S.LAID_OUT)


def _heal(record: AdditionRecord, seen: AdditionSeen) -> Step:
    return _HEALED if healed(record, seen) else _HEAL


def _finish(state: AdditionState) -> Act:
    return Act(step=_A.FINISH, intent=state, result=_S.SETTLED)
