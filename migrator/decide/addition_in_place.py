"""A brick whose disk is exchanged in the same place (`reset-brick`): what is done next. Pure.

Gluster's brick list looks the same before, meanwhile and afterwards. What tells how far it is, is whether the brick is up, and which
file system lies there: the record has the identity of the one before, and that of the new one from when it was seen to be empty.

- The brick is taken offline only while every other copy of its set is up and whole, and put in again only then.
- A brick that comes up by itself before its file system was exchanged (a reboot) is taken offline again.
- What it held can be served again as long as no new file system was put in.
"""

from migrator.decide.addition_guards import health_problems, swap_problems
from migrator.decide.addition_places import place_problems
from migrator.decide.addition_words import AGAIN, against, host_of, path_of
from migrator.domain.addition import (
    IN_STATES,
    REVERSIBLE_STATES,
    UNTOUCHED_STATES,
    AdditionRecord,
    AdditionState,
    AdditionStep,
)
from migrator.domain.addition_seen import Act, AdditionSeen, Halt, NewPlace, Step, Wish
from migrator.domain.brick import Brick

_S, _A = AdditionState, AdditionStep

_RESET = Act(step=_A.RESET, intent=_S.RESETTING, result=_S.OFFLINE)
_RESET_SEEN = Act(step=_A.RESET, intent=_S.RESETTING, result=_S.OFFLINE, seen_done=True)
_PREPARE = Act(step=_A.PREPARE, intent=_S.PREPARING, result=_S.PREPARED)
_PUT_IN = Act(step=_A.ADD, intent=_S.ADDING, result=_S.ADDED)
_PUT_IN_SEEN = Act(step=_A.ADD, intent=_S.ADDING, result=_S.ADDED, seen_done=True)
_HEAL = Act(step=_A.HEAL, intent=_S.HEALING, result=_S.HEALED)
_HEALED = Act(step=_A.HEAL, intent=_S.HEALING, result=_S.HEALED, seen_done=True)
_SERVE_AGAIN = Act(step=_A.TAKE_BACK, intent=_S.TAKING_BACK, result=_S.TAKING_BACK)
_SERVED_AGAIN = Act(step=_A.TAKE_BACK, intent=_S.TAKING_BACK, result=_S.TAKING_BACK, seen_done=True)
_HEAL_BACK = Act(step=_A.HEAL, intent=_S.TAKING_BACK, result=_S.TAKING_BACK)
_END_BACK = Act(step=_A.FINISH, intent=_S.TAKING_BACK, result=_S.TAKEN_BACK)


def next_in_place(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> Step:
    """What is done next with a brick that takes its own place, in every state before the last ones."""
    name = record.bricks[0]
    brick = None if seen.state is None else next((one for one in seen.state.bricks if one.name == name), None)
    if brick is None and record.state in UNTOUCHED_STATES:
        return against(record, in_place_problems(record, seen, wish))
    if brick is None:
        # While it is put in, Gluster lists it not at all for a moment.
        return Halt(
            words=f"{name} is not in volume {record.volume}: somebody else has taken it out",
            hint=f"look at `gluster volume info`, put it right by hand, {AGAIN}",
            look_again=True,
        )
    if record.state is _S.TAKING_BACK:
        return _taking_back(record, seen, brick)
    if wish.take_back:
        return _take_back(record, seen, brick)
    place = (seen.places or {}).get(name)
    if record.state in IN_STATES:
        return _in_again(record, seen, brick, place)
    if brick.online is None:
        return Halt(
            words=f"whether brick {name} is up, Gluster does not tell",
            hint=f"see that glusterd runs on {host_of(name)}, {AGAIN}",
            look_again=True,
        )
    if record.state in (_S.PREPARED, _S.ADDING):
        return _put_in(record, seen, wish, brick, place)
    if record.state in REVERSIBLE_STATES and brick.online and _is_another(record, place):
        return _PUT_IN_SEEN
    if record.state is _S.RESETTING and not brick.online:
        return _RESET_SEEN
    if record.state in (_S.OFFLINE, _S.PREPARING) and not brick.online:
        problems = in_place_problems(record, seen, wish)
        return against(record, problems) if problems else _PREPARE
    return _reset(record, seen, wish)


def in_place_problems(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> tuple[str, ...]:
    """What speaks against taking the brick offline, and against putting it in again: as long as it is away, files rest on the others."""
    return tuple(dict.fromkeys((*health_problems(record, seen), *swap_problems(record, seen, wish))))


def healed(record: AdditionRecord, seen: AdditionSeen) -> bool:
    """Whether every copy is the same again: the exchanged brick is listed, and nothing waits."""
    heals = () if seen.state is None or seen.state.heals is None else seen.state.heals
    listed = record.bricks[0] in {one.brick for one in heals}
    return listed and all(one.status == "Connected" and one.entries == 0 for one in heals)


def _reset(record: AdditionRecord, seen: AdditionSeen, wish: Wish) -> Step:
    problems = in_place_problems(record, seen, wish)
    return against(record, problems) if problems else _RESET


def _put_in(record: AdditionRecord, seen: AdditionSeen, wish: Wish, brick: Brick, place: NewPlace | None) -> Step:
    if place is None or place.unread:
        why = "it was not looked at" if place is None else place.unread
        return Halt(
            words=f"what lies at {brick.name} is not known: {why}",
            hint=f"see that {brick.host} is reached, {AGAIN}",
            look_again=True,
        )
    new = _is_new(record, place)
    if brick.online:
        # What it held before, on a disk that was mounted again: nothing was put in.
        return _PUT_IN_SEEN if new else _reset(record, seen, wish)
    if new and place.volume_id and place.entries:
        # It has been filled from the others already, and is down again.
        return _PUT_IN_SEEN
    if place_problems(record, seen, wish):
        # It was right once: after a reboot hooks may mount it again.
        return _RESET_SEEN if record.state is _S.ADDING else _PREPARE
    problems = in_place_problems(record, seen, wish)
    return against(record, problems) if problems else _PUT_IN


def _in_again(record: AdditionRecord, seen: AdditionSeen, brick: Brick, place: NewPlace | None) -> Step:
    if place is not None and not place.unread and not _is_new(record, place):
        mount = place.mount or "/"
        return Halt(
            words=f"{record.shown_bricks} lies on another file system ({host_of(place.name)}:{mount}) than the one that was put in",
            hint="what lies there is not known to be whole. End the brick's process, mount the file system that was put in, "
            f"start the brick (`gluster volume start {record.volume} force`), {AGAIN}",
        )
    return _HEALED if brick.online and healed(record, seen) else _HEAL


def _is_new(record: AdditionRecord, place: NewPlace) -> bool:
    """Whether what is mounted there is what was seen to be empty."""
    return place.own and place.filesystem_id == (record.notes.filesystem_id or "")


def _is_another(record: AdditionRecord, place: NewPlace | None) -> bool:
    """Whether somebody has put another file system in by hand than the one that was there before."""
    before = record.notes.filesystem_before
    return bool(before and place is not None and place.own and place.filesystem_id not in ("", before))


def _take_back(record: AdditionRecord, seen: AdditionSeen, brick: Brick) -> Step:
    if record.state in UNTOUCHED_STATES:
        return Halt(words=f"there is nothing to take back: {brick.name} was not taken offline", hint="")
    # Once it was filled on another disk, the others may have forgotten what the one before lacks.
    if record.state not in REVERSIBLE_STATES or _S.ADDING in record.times:
        return Halt(
            words=f"{brick.name} is {record.state.value}: a new file system was put in, or may have been",
            hint="what it held before is not known to be whole any more: run the same command without --take-back",
        )
    return _serve_again(record, seen, brick)


def _serve_again(record: AdditionRecord, seen: AdditionSeen, brick: Brick) -> Step:
    if reason := _gone(record, seen, brick):
        return Halt(
            words=f"{brick.name} cannot serve again what it held: {reason}",
            hint="mount its old file system there, then run the same command again; or go on with a new one, without --take-back",
        )
    return _SERVED_AGAIN if brick.online else _SERVE_AGAIN


def _gone(record: AdditionRecord, seen: AdditionSeen, brick: Brick) -> str:
    """Why what the brick held is not there; empty where it is."""
    place = (seen.places or {}).get(brick.name)
    if place is None or place.unread:
        return "what lies there is not known" + (f" ({place.unread})" if place is not None else "")
    volume_id = "" if seen.state is None else seen.state.volume_id.replace("-", "")
    if not place.own:
        return f"no file system is mounted at {path_of(brick.name)}"
    if place.volume_id != volume_id or not place.has_gluster_directory:
        return "what is mounted there is no brick of this volume"
    if _is_another(record, place):
        return "another file system is mounted there than before"
    return ""


def _taking_back(record: AdditionRecord, seen: AdditionSeen, brick: Brick) -> Step:
    if not brick.online:
        return _serve_again(record, seen, brick)
    return _END_BACK if healed(record, seen) else _HEAL_BACK
