"""The next step of an addition, from its record and a snapshot of the volume. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

from migrator.bricks.add import model, rules_guards
from migrator.bricks.add.model import AdditionSnapshot
from migrator.bricks.add.rules_guards import describe_end
from migrator.bricks.progress import TaskRate, TaskSample, last_polled, progress_fields, rebalance_remedy
from migrator.bricks.volume import (
    Membership,
    halt_until,
    membership,
    only_some,
    parts_missing,
    path_of,
    volume_unknown,
    wrong_volume,
)
from migrator.core.blocker import Blocker
from migrator.core.paths import show
from migrator.core.units import several
from migrator.gluster.model import (
    Brick,
    NewPlace,
    TaskKind,
    TaskProgress,
    TaskStatus,
    VolumeState,
    VolumeTask,
    remove_brick_of,
)
from migrator.gluster.rules import are_few
from migrator.operations.model import Act, Finished, Halt

# A brick that gets a new disk at the same path (`reset-brick`).
#
# Gluster's brick list is the same before, during and after the replacement. Two facts show the progress: whether the
# brick is up, and which file system is mounted there. The record has the identity of the old file system, and that of
# the new one once it was found empty.
#
# - The brick is taken offline and put back only while every other copy of its set is up and complete.
# - A brick that comes up by itself before the replacement (after a reboot) is taken offline again.
# - The old content can be served again until a new file system was put in.


_S, _A = model.AdditionState, model.AdditionStep

_INTENT_AND_RESULT = {
    _A.RESET: (_S.RESETTING, _S.OFFLINE),
    _A.PREPARE: (_S.PREPARING, _S.PREPARED),
    _A.ADD: (_S.ADDING, _S.ADDED),
    _A.HEAL: (_S.HEALING, _S.HEALED),
    _A.TAKE_BACK: (_S.TAKING_BACK, _S.TAKING_BACK),
    _A.HAND_OVER: (_S.HANDING, _S.SEEN),
    _A.GIVE_UP: (_S.FAILED, _S.FAILED),
}


def _act(step: model.AdditionStep, **facts: Any) -> model.AdditionAct:  # noqa: ANN401 - the fields of an act
    intent, result = _INTENT_AND_RESULT[step]
    return Act(step=step, intent=intent, result=result, **facts)


def give_up(reason: str) -> model.AdditionAct:
    """Record why an admin must act."""
    return _act(_A.GIVE_UP, reason=reason)


def next_in_place(record: model.AdditionRecord, snapshot: AdditionSnapshot, wish: model.Wish) -> model.Step:
    """Return the next step of an in-place replacement, in every state before the last ones."""
    name = record.bricks[0]
    brick = next((one for one in snapshot.state.bricks if one.name == name), None)
    if brick is None and record.state in model.UNTOUCHED_STATES:
        return rules_guards.against(record, problems_before(record, snapshot, wish, prepared=False))
    if brick is None:
        # Gluster does not list the brick for a moment while the commit puts it in.
        words = f"{name} is not in volume {record.volume}: it was removed outside of this program"
        return halt_until(words, "see `gluster volume info`, correct it by hand", look_again=True)
    if record.state is _S.TAKING_BACK:
        return _taking_back(record, snapshot, brick)
    if wish.take_back:
        return _take_back(record, snapshot, brick)
    place = snapshot.place(name)
    if record.state in model.IN_STATES:
        return _in_again(record, snapshot, brick, place)
    if brick.online is None:
        words, remedy = f"the state of brick {name} is unknown", f"see that glusterd runs on {brick.host}"
        return halt_until(words, remedy, look_again=True)
    if record.state in (_S.PREPARED, _S.ADDING):
        return _put_in(record, snapshot, wish, brick, place)
    if record.state in model.REVERSIBLE_STATES and brick.online and _is_another(record, place):
        return _act(_A.ADD, seen_done=True)
    if record.state is _S.RESETTING and not brick.online:
        return _act(_A.RESET, seen_done=True)
    if record.state in (_S.OFFLINE, _S.PREPARING) and not brick.online:
        return _unless_refused(_A.PREPARE, record, snapshot, wish)
    return _unless_refused(_A.RESET, record, snapshot, wish)


def healed(record: model.AdditionRecord, state: VolumeState) -> bool:
    """Return whether all copies are equal. Gluster lists neither a brick that was just put in nor its pending heals at
    once.
    """
    heals = state.heals or ()
    listed = record.bricks[0] in {one.brick for one in heals}
    return listed and all(one.status == "Connected" and one.entries == 0 for one in heals)


def _unless_refused(
    step: model.AdditionStep,
    record: model.AdditionRecord,
    snapshot: AdditionSnapshot,
    wish: model.Wish,
    *,
    prepared: bool = False,
) -> model.Step:
    problems = problems_before(record, snapshot, wish, prepared=prepared)
    return rules_guards.against(record, problems) if problems else _act(step)


def _put_in(
    record: model.AdditionRecord, snapshot: AdditionSnapshot, wish: model.Wish, brick: Brick, place: NewPlace
) -> model.Step:
    if place.unread:
        words = f"the content of {brick.name} is unknown: {place.unread}"
        return halt_until(words, f"see that {brick.host} is reached", look_again=True)
    new = _is_new(record, place)
    if brick.online and not new:
        # The old disk was mounted again, so the brick serves its old content: nothing was put in.
        return _unless_refused(_A.RESET, record, snapshot, wish)
    if brick.online or (new and place.volume_id and place.entries):
        # If it is down, it was healed from the other copies before.
        return _act(_A.ADD, seen_done=True)
    if any(rules_guards.place_problems(record, snapshot, wish)):
        # The place was right before. After a reboot the hooks may mount it again.
        return _act(_A.RESET, seen_done=True) if record.state is _S.ADDING else _act(_A.PREPARE)
    return _unless_refused(_A.ADD, record, snapshot, wish)


def _in_again(record: model.AdditionRecord, snapshot: AdditionSnapshot, brick: Brick, place: NewPlace) -> model.Step:
    if not place.unread and not _is_new(record, place):
        where = f"{brick.host}:{place.mount or '/'}"
        return halt_until(
            f"{record.shown_bricks} is on another file system ({where}) than the one that was put in",
            "its content may be incomplete. End the brick's process, mount the file system that was put in, "
            f"start the brick (`gluster volume start {record.volume} force`)",
        )
    return _act(_A.HEAL, seen_done=bool(brick.online) and healed(record, snapshot.state))


def _is_new(record: model.AdditionRecord, place: NewPlace) -> bool:
    """Return whether the mounted file system is the one that was found empty."""
    return place.own and place.filesystem_id == (record.notes.filesystem_id or "")


def _is_another(record: model.AdditionRecord, place: NewPlace) -> bool:
    """Return whether an admin has mounted a file system other than the previous one."""
    before = record.notes.filesystem_before
    return bool(before and place.own and place.filesystem_id not in ("", before))


def _take_back(record: model.AdditionRecord, snapshot: AdditionSnapshot, brick: Brick) -> model.Step:
    if record.state in model.UNTOUCHED_STATES:
        return Halt(words=f"there is nothing to take back: {brick.name} was not taken offline", hint="")
    # Once the brick was healed on another disk, the other copies may have dropped the pending heals of the old disk.
    if record.state not in model.REVERSIBLE_STATES or _S.ADDING in record.times:
        return Halt(
            words=f"{brick.name} is {record.state.value}: a new file system was put in, or may have been",
            hint="its old content may be incomplete: run the same command without --take-back",
        )
    return _serve_again(record, snapshot, brick)


def _serve_again(record: model.AdditionRecord, snapshot: AdditionSnapshot, brick: Brick) -> model.Step:
    if reason := _gone(record, snapshot, brick):
        words = f"{brick.name} cannot serve again what it held: {reason}"
        return halt_until(words, "mount its old file system there (or continue with a new one, without --take-back)")
    return _act(_A.TAKE_BACK, seen_done=bool(brick.online))


def _gone(record: model.AdditionRecord, snapshot: AdditionSnapshot, brick: Brick) -> str:
    """Return why the brick's old content is not there; empty if it is."""
    place = snapshot.place(brick.name)
    if place.unread:
        return f"its content is unknown ({place.unread})"
    if not place.own:
        return f"no file system is mounted at {path_of(brick.name)}"
    if place.volume_id != snapshot.state.volume_id.replace("-", "") or not place.has_gluster_directory:
        return "the file system mounted there is no brick of this volume"
    if _is_another(record, place):
        return "another file system is mounted there than before"
    return ""


def _taking_back(record: model.AdditionRecord, snapshot: AdditionSnapshot, brick: Brick) -> model.Step:
    if not brick.online:
        return _serve_again(record, snapshot, brick)
    step, result = (_A.FINISH, _S.TAKEN_BACK) if healed(record, snapshot.state) else (_A.HEAL, _S.TAKING_BACK)
    return Act(step=step, intent=_S.TAKING_BACK, result=result)


# Fix-layout and rebalance after an addition: started once, watched until they end. A full rebalance fixes every layout
# too. A rebalance is not satisfied by a task that only fixes layouts.


_TASKS = {_S.LAYOUT: (_A.LAY_OUT, _S.LAID_OUT, "fix-layout"), _S.BALANCING: (_A.BALANCE, _S.BALANCED, "rebalance")}
"""By the state in which it runs: the step that begins a task, the state after it has ended, and its name."""


def _begin(running: model.AdditionState, **facts: Any) -> model.AdditionAct:  # noqa: ANN401 - the fields of an act
    return Act(step=_TASKS[running][0], intent=running, result=running, **facts)


def watched(
    record: model.AdditionRecord, snapshot: AdditionSnapshot, running: model.AdditionState, *, anew: bool = False
) -> model.Step:
    """Begin, watch or end the task of the state `running`. With `anew`, a listed task counts as an earlier one, and
    nothing begins while it runs.
    """
    notes, name = record.notes, _TASKS[running][2]
    if missing := parts_missing(snapshot.state):
        words = f"the state of the {name} of volume {record.volume} is unknown: not every host answers"
        return halt_until(words, "bring glusterd and the bricks up on every host", reasons=missing, look_again=True)
    if busy := [one for one in snapshot.tasks if one.unfinished and one.kind is not TaskKind.REBALANCE]:
        return _busy(record, busy[0].text)
    task = next((one for one in snapshot.tasks if one.kind is TaskKind.REBALANCE), None)
    if task is None:
        if notes.task_id and not anew:
            return give_up(f"the {name} was stopped outside of this program, or Gluster has lost it")
        return _begin(running, task_before="")
    if anew or task.id == notes.task_before:
        if not task.unfinished:
            return _begin(running, task_before=task.id)
        lost = f" (if its process has died, {rebalance_remedy(record.volume)})" if task.id == notes.task_id else ""
        return _busy(record, f"{task.text}: {task.id}{lost}")
    if task.id != notes.task_id:
        return _begin(running, seen_done=True, task_id=task.id)
    return _own(record, snapshot, running, task)


def _own(
    record: model.AdditionRecord, snapshot: AdditionSnapshot, running: model.AdditionState, task: VolumeTask
) -> model.Step:
    progress, (step, result, name) = snapshot.progress, _TASKS[running]
    if progress is None or progress.task_id != task.id or not progress.counters:
        words, remedy = f"the progress of the {name} of volume {record.volume} is unknown", "check"
        return halt_until(words, f"{remedy} `gluster volume rebalance {record.volume} status`", look_again=True)
    if progress.moving:
        if snapshot.stalled:
            return give_up(f"the {name} is stalled: {snapshot.stalled}; {rebalance_remedy(record.volume)}")
        return Act(step=_A.WATCH, intent=record.state, result=record.state)
    if problems := tuple(_failures(progress, moves_files=running is _S.BALANCING)):
        return give_up(f"{name}: {'; '.join(problems)}")
    if running is _S.BALANCING and any(one.fix_layout for one in progress.counters):
        return _begin(running, task_before=task.id)
    return Act(step=step, intent=running, result=result, seen_done=True)


def _failures(progress: TaskProgress, *, moves_files: bool) -> Iterator[str]:
    """Skipped files are not failures: Gluster leaves hard links, and files whose move would not improve the balance. A
    few failed moves do not count either. Such files stay where they are found, and some moves always fail while users
    work.
    """
    broken = [one for one in progress.counters if one.status is not TaskStatus.COMPLETED]
    yield from (f"on {one.host} it is {one.status.value}" for one in broken)
    few = moves_files and not broken and are_few(progress.failures, moved_files=progress.files)
    if progress.failures and not few:
        yield f"{several(progress.failures, 'file')} could not be moved (failures): they are where they were"


def _busy(record: model.AdditionRecord, reason: str) -> Halt:
    words = f"{record.shown_bricks} is in the volume, and something else moves files or waits for a commit"
    return halt_until(words, "wait until that has ended", reasons=(reason,), look_again=True)


# The next step.
#
# The caller asks for a step, writes the intent, acts, writes the result or the failure, and asks again with a fresh
# snapshot. It does the same after a crash, a reboot or a restart of glusterd. Only the record is remembered: Gluster's
# own brick list and status decide what has happened. If an act fails and the answer is the same act again, the caller
# ends with that failure.
#
# - Bricks in the volume count as added, by any command. If only some of them are in it, another command is running, and
#   this one does nothing.
# - A task is started only when none runs. It is done when every host that reports it says so, without a failure. Any
#   task newer than those listed before the start counts as ours.
# - No step here takes a brick out again.


_TAKEN_OUT = "it is no longer in the volume: it was removed outside of this program"

GROWN_SHARE = 0.8
"""Share of the bricks' size that must appear: a file system reserves some of its device."""


def next_step(
    record: model.AdditionRecord, snapshot: AdditionSnapshot | None, wish: model.Wish, *, begins: bool = False
) -> model.Step:
    """Return the next step. `snapshot` is None if Gluster does not answer. A failed addition waits, unless the call
    `begins`.
    """
    state = record.state
    if state in (_S.HEALED, _S.SETTLED) and wish.take_back:
        return Halt(words=f"there is nothing to take back: {describe_end(record)}", hint="")
    if state in model.ADDITION_ENDED_STATES:
        return Finished(state=state, words=describe_end(record))
    if state in (_S.SEEN, _S.BALANCED, _S.HEALED):
        return _finish(state)
    if state is _S.FAILED and not begins:
        words = f"the addition of {record.shown_bricks} has failed: {record.failure or 'no reason was recorded'}"
        return halt_until(words, "fix that")
    if snapshot is None:
        return volume_unknown(record)
    if halt := wrong_volume(record, snapshot.state, started=record.side is model.AdditionSide.SOURCE):
        return halt
    if record.side is model.AdditionSide.TARGET:
        return _to_target(record, snapshot)
    if record.in_place:
        return next_in_place(record, snapshot, wish)
    bricks = membership(record, snapshot.state)
    inside = bricks is Membership.IN
    if bricks is Membership.SOME or (inside and any(one.name == record.instead_of for one in snapshot.state.bricks)):
        return only_some(record)
    if state is _S.FAILED and inside:
        return _after_addition(record, snapshot)
    if state in model.IN_STATES:
        return _in_the_volume(record, snapshot, wish) if inside else give_up(_TAKEN_OUT)
    return _act(_A.ADD, seen_done=True) if inside else _before(record, snapshot, wish)


def grown(
    before: model.TargetRoom | None, now: model.TargetRoom | None, *, bricks: int, size_bytes: int | None
) -> bool:
    """Return whether the target has grown as expected: by the number of storage targets, or by nearly all of the bytes.
    If the number of bytes is unknown, any growth suffices.
    """
    if before is None or now is None:
        return False
    if before.storage_targets is not None and now.storage_targets is not None:
        # The target's own list is exact. Bytes may have another cause.
        return now.storage_targets >= before.storage_targets + bricks
    if before.total_bytes is None or now.total_bytes is None:
        return False
    return now.total_bytes - before.total_bytes >= max(GROWN_SHARE * (size_bytes or 0), 1)


def may_add(record: model.AdditionRecord) -> bool:
    """Return whether the snapshot must include the places of the bricks and all other facts for the preflight checks.
    In an in-place replacement the mounted file system shows the progress.
    """
    if record.in_place:
        return record.state not in model.ADDITION_ENDED_STATES
    return record.state in (_S.PLANNED, _S.PREPARING, _S.PREPARED, _S.ADDING, _S.HANDING, _S.FAILED)


def problems_before(
    record: model.AdditionRecord, snapshot: AdditionSnapshot, wish: model.Wish, *, prepared: bool
) -> tuple[str, ...]:
    """Yield every reason against adding now, with `prepared` also those about the places of the bricks."""
    if record.side is model.AdditionSide.TARGET:
        return tuple(rules_guards.target_problems(record, snapshot, prepared=prepared))
    found = [
        *rules_guards.health_problems(record, snapshot),
        *(
            rules_guards.swap_problems(record, snapshot)
            if record.instead_of
            else rules_guards.before_problems(record, snapshot, wish)
        ),
        *(rules_guards.place_problems(record, snapshot, wish) if prepared else ()),
    ]
    return tuple(dict.fromkeys(found))


def _before(record: model.AdditionRecord, snapshot: AdditionSnapshot, wish: model.Wish) -> model.Step:
    # The place was right when it was prepared. After a reboot the hooks may mount it again.
    if record.state in (_S.PLANNED, _S.PREPARING, _S.FAILED) or (
        record.state is _S.PREPARED and any(rules_guards.place_problems(record, snapshot, wish))
    ):
        return _unless_refused(_A.PREPARE, record, snapshot, wish)
    return _unless_refused(_A.ADD, record, snapshot, wish, prepared=True)


def _to_target(record: model.AdditionRecord, snapshot: AdditionSnapshot) -> model.Step:
    mounted = all(disk.mount or disk.unread for disk in snapshot.disks.values())
    prepared = record.state not in (_S.PLANNED, _S.PREPARING) and (mounted or record.state is _S.HANDING)
    if problems := tuple(rules_guards.target_problems(record, snapshot, prepared=prepared)):
        return rules_guards.against(record, problems)
    # After a reboot the hooks may mount it again. They are also called again after a crash while they hand it over: growth
    # meanwhile does not prove that they had finished.
    return _act(_A.HAND_OVER if prepared else _A.PREPARE)


def _in_the_volume(record: model.AdditionRecord, snapshot: AdditionSnapshot, wish: model.Wish) -> model.Step:
    leaving = remove_brick_of(snapshot.tasks, record.bricks)
    if leaving is not None:
        words = f"{', '.join(leaving.bricks)} is being drained again, outside of this operation"
        return halt_until(words, "finish or stop that drain (`migrator brick list`)", look_again=True)
    if record.state in (_S.ADDED, _S.HEALING):
        return _after_addition(record, snapshot)
    if record.state is _S.LAYOUT:
        return watched(record, snapshot, _S.LAYOUT)
    if not wish.rebalance:
        task = next((one for one in snapshot.tasks if one.id == record.notes.task_id), None)
        if task is not None and task.unfinished:
            remedy = f"stop it with `gluster volume rebalance {record.volume} stop`, or wait for its end"
            return halt_until(f"a rebalance is in progress, and none is wanted: {task.id}", remedy)
        return _finish(record.state)
    return watched(record, snapshot, _S.BALANCING, anew=record.state is _S.LAID_OUT)


def _after_addition(record: model.AdditionRecord, snapshot: AdditionSnapshot) -> model.Step:
    if record.instead_of:
        return _act(_A.HEAL, seen_done=healed(record, snapshot.state))
    return watched(record, snapshot, _S.LAYOUT, anew=True)


def _finish(state: model.AdditionState) -> model.AdditionAct:
    return Act(step=_A.FINISH, intent=state, result=_S.SETTLED)


# Progress and blockers of additions.


_ADDITION_STANDING_MOVING = (model.AdditionState.LAYOUT, model.AdditionState.BALANCING)
_DIRECTORIES = 5
"""Number of directories to list among the blockers, each with its command."""


def standing(record: model.AdditionRecord, samples: Sequence[TaskSample]) -> model.AdditionStanding:
    """Return the progress of one attempt."""
    # A restarted task has no samples yet, and those of its predecessor say nothing about it.
    own = bool(samples) and samples[-1].task_id == record.notes.task_id
    moving = own and record.state in _ADDITION_STANDING_MOVING
    facts, rate, lookups = progress_fields(record, samples, moving=moving)
    balancing = record.state is model.AdditionState.BALANCING
    return model.AdditionStanding(
        **facts,
        side=record.side,
        instead_of=record.instead_of,
        lookups=lookups,
        left_s=_left_s(rate, record.notes.files, lookups) if balancing else None,
        directories=record.notes.directories or (),
    )


def _left_s(rate: TaskRate | None, files: int | None, lookups: int) -> float | None:
    """Estimate the time left in seconds. A rebalance examines every file on every brick and decides then which ones to
    move. It counts link-to files too, so the end is unknown once it has examined more files than expected.
    """
    if rate is None or rate.lookups_per_s <= 0 or files is None or lookups > files:
        return None
    return (files - lookups) / rate.lookups_per_s


def addition_blockers(additions: Sequence[model.AdditionStanding], *, at_work: bool, now_s: float) -> Iterator[Blocker]:
    """Return the additions that wait for an admin, and directories that additions have changed. `at_work`: a command is
    resuming one.
    """
    for one in additions:
        yield from _directories(one)
        if one.state in model.ADDITION_ENDED_STATES | model.UNTOUCHED_STATES or at_work:
            continue
        subject = f"addition of {' '.join(one.bricks)} to the {one.side.value}"
        if one.state is model.AdditionState.FAILED:
            yield Blocker(
                subject=subject, on=f"it has failed: {one.failure}", hint=f"fix the cause, then `{again(one)}`"
            )
            continue
        looked = last_polled(one.looked_at_s, now_s)
        failed = f"; its last step failed: {one.failure}" if one.failure else ""
        yield Blocker(
            subject=subject,
            on=f"it is {one.state.value}, and no command is resuming it{_away(one)}{looked}{failed}",
            hint=f"{again(one)} (with the options of the first time)",
        )


def _away(one: model.AdditionStanding) -> str:
    """An in-place replacement keeps its brick offline meanwhile."""
    if one.instead_of not in one.bricks or one.state not in model.AWAY_STATES:
        return ""
    return "; the brick is offline for the exchange of its disk, and its files have one copy less"


def _directories(one: model.AdditionStanding) -> Iterator[Blocker]:
    for directory in one.directories[:_DIRECTORIES]:
        yield Blocker(subject=show(directory.path), on=directory.reason, hint=f"`{directory.command}`")
    if (more := len(one.directories) - _DIRECTORIES) > 0:
        yield Blocker(
            subject=f"addition of {' '.join(one.bricks)} to the {one.side.value}",
            on=f"{several(more, 'more directory waits', 'more directories wait')} for an admin",
            hint="`migrator brick status --json` has the command for each (`directories`)",
        )


def again(one: model.AdditionStanding) -> str:
    """Return the command that resumes it."""
    instead = "" if one.instead_of is None else f" --instead-of {one.instead_of}"
    side = model.AdditionSide(one.side).value
    return f"migrator brick add {' '.join(one.bricks)} --to {side}{instead}"
