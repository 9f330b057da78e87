"""The next step of an addition, from its record and a snapshot of the volume. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from migrator.bricks.add import model, rules_guards
from migrator.bricks.drain.model import DrainSample
from migrator.bricks.drain.rules import parts_missing
from migrator.bricks.drain.rules_progress import DrainRate, counted, last_looked, rebalance_way_out
from migrator.core.paths import show
from migrator.core.units import several
from migrator.gluster.model import Brick, TaskKind, TaskProgress, TaskStatus, VolumeState, VolumeTask, remove_brick_of
from migrator.gluster.rules import are_few
from migrator.operations.model import Finished, Halt
from migrator.report.model import Blocker

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

_RESET = model.AdditionAct(step=_A.RESET, intent=_S.RESETTING, result=_S.OFFLINE)
_RESET_SEEN = model.AdditionAct(step=_A.RESET, intent=_S.RESETTING, result=_S.OFFLINE, seen_done=True)
_PREPARE = model.AdditionAct(step=_A.PREPARE, intent=_S.PREPARING, result=_S.PREPARED)
_ADD = model.AdditionAct(step=_A.ADD, intent=_S.ADDING, result=_S.ADDED)
_ADD_SEEN = model.AdditionAct(step=_A.ADD, intent=_S.ADDING, result=_S.ADDED, seen_done=True)
_HEAL = model.AdditionAct(step=_A.HEAL, intent=_S.HEALING, result=_S.HEALED)
_HEALED = model.AdditionAct(step=_A.HEAL, intent=_S.HEALING, result=_S.HEALED, seen_done=True)
_SERVE_AGAIN = model.AdditionAct(step=_A.TAKE_BACK, intent=_S.TAKING_BACK, result=_S.TAKING_BACK)
_SERVED_AGAIN = model.AdditionAct(step=_A.TAKE_BACK, intent=_S.TAKING_BACK, result=_S.TAKING_BACK, seen_done=True)
_HEAL_BACK = model.AdditionAct(step=_A.HEAL, intent=_S.TAKING_BACK, result=_S.TAKING_BACK)
_END_BACK = model.AdditionAct(step=_A.FINISH, intent=_S.TAKING_BACK, result=_S.TAKEN_BACK)


def next_in_place(record: model.AdditionRecord, seen: model.AdditionSeen, wish: model.Wish) -> model.Step:
    """Return the next step of an in-place replacement, in every state before the last ones."""
    name = record.bricks[0]
    brick = next((one for one in seen.state.bricks if one.name == name), None)
    if brick is None and record.state in model.UNTOUCHED_STATES:
        return rules_guards.against(record, problems_before(record, seen, wish, prepared=False))
    if brick is None:
        # Gluster does not list the brick for a moment while the commit puts it in.
        return Halt(
            words=f"{name} is not in volume {record.volume}: somebody else has taken it out",
            hint=f"look at `gluster volume info`, correct it by hand, {rules_guards.AGAIN}",
            look_again=True,
        )
    if record.state is _S.TAKING_BACK:
        return _taking_back(record, seen, brick)
    if wish.take_back:
        return _take_back(record, seen, brick)
    place = (seen.places or {}).get(name)
    if record.state in model.IN_STATES:
        return _in_again(record, seen, brick, place)
    if brick.online is None:
        return Halt(
            words=f"whether brick {name} is up, Gluster does not tell",
            hint=f"see that glusterd runs on {rules_guards.host_of(name)}, {rules_guards.AGAIN}",
            look_again=True,
        )
    if record.state in (_S.PREPARED, _S.ADDING):
        return _put_in(record, seen, wish, brick, place)
    if record.state in model.REVERSIBLE_STATES and brick.online and _is_another(record, place):
        return _ADD_SEEN
    if record.state is _S.RESETTING and not brick.online:
        return _RESET_SEEN
    if record.state in (_S.OFFLINE, _S.PREPARING) and not brick.online:
        return _unless_refused(_PREPARE, record, seen, wish)
    return _unless_refused(_RESET, record, seen, wish)


def healed(record: model.AdditionRecord, state: VolumeState) -> bool:
    """Return whether all copies are equal. Gluster lists neither a brick that was just put in nor its pending heals at
    once.
    """
    heals = state.heals or ()
    listed = record.bricks[0] in {one.brick for one in heals}
    return listed and all(one.status == "Connected" and one.entries == 0 for one in heals)


def _unless_refused(
    act: model.AdditionAct,
    record: model.AdditionRecord,
    seen: model.AdditionSeen,
    wish: model.Wish,
    *,
    prepared: bool = False,
) -> model.Step:
    problems = problems_before(record, seen, wish, prepared=prepared)
    return rules_guards.against(record, problems) if problems else act


def _put_in(
    record: model.AdditionRecord, seen: model.AdditionSeen, wish: model.Wish, brick: Brick, place: model.NewPlace | None
) -> model.Step:
    if place is None or place.unread:
        why = "it was not looked at" if place is None else place.unread
        return Halt(
            words=f"what lies at {brick.name} is not known: {why}",
            hint=f"see that {brick.host} is reached, {rules_guards.AGAIN}",
            look_again=True,
        )
    new = _is_new(record, place)
    if brick.online:
        # The old disk was mounted again, so the brick serves its old content: nothing was put in.
        return _ADD_SEEN if new else _unless_refused(_RESET, record, seen, wish)
    if new and place.volume_id and place.entries:
        # It was healed from the other copies before, and is down again.
        return _ADD_SEEN
    if any(rules_guards.place_problems(record, seen, wish)):
        # The place was right before. After a reboot the hooks may mount it again.
        return _RESET_SEEN if record.state is _S.ADDING else _PREPARE
    return _unless_refused(_ADD, record, seen, wish)


def _in_again(
    record: model.AdditionRecord, seen: model.AdditionSeen, brick: Brick, place: model.NewPlace | None
) -> model.Step:
    if place is not None and not place.unread and not _is_new(record, place):
        mount = place.mount or "/"
        return Halt(
            words=f"{record.shown_bricks} lies on another file system ({rules_guards.host_of(place.name)}:{mount}) than the one that was put in",
            hint="what lies there is not known to be whole. End the brick's process, mount the file system that was put in, "
            f"start the brick (`gluster volume start {record.volume} force`), {rules_guards.AGAIN}",
        )
    return _HEALED if brick.online and healed(record, seen.state) else _HEAL


def _is_new(record: model.AdditionRecord, place: model.NewPlace) -> bool:
    """Return whether the mounted file system is the one that was found empty."""
    return place.own and place.filesystem_id == (record.notes.filesystem_id or "")


def _is_another(record: model.AdditionRecord, place: model.NewPlace | None) -> bool:
    """Return whether an admin has mounted a file system other than the previous one."""
    before = record.notes.filesystem_before
    return bool(before and place is not None and place.own and place.filesystem_id not in ("", before))


def _take_back(record: model.AdditionRecord, seen: model.AdditionSeen, brick: Brick) -> model.Step:
    if record.state in model.UNTOUCHED_STATES:
        return Halt(words=f"there is nothing to take back: {brick.name} was not taken offline", hint="")
    # Once the brick was healed on another disk, the other copies may have dropped the pending heals of the old disk.
    if record.state not in model.REVERSIBLE_STATES or _S.ADDING in record.times:
        return Halt(
            words=f"{brick.name} is {record.state.value}: a new file system was put in, or may have been",
            hint="what it held before is not known to be whole any more: run the same command without --take-back",
        )
    return _serve_again(record, seen, brick)


def _serve_again(record: model.AdditionRecord, seen: model.AdditionSeen, brick: Brick) -> model.Step:
    if reason := _gone(record, seen, brick):
        return Halt(
            words=f"{brick.name} cannot serve again what it held: {reason}",
            hint="mount its old file system there, then run the same command again; or continue with a new one, without --take-back",
        )
    return _SERVED_AGAIN if brick.online else _SERVE_AGAIN


def _gone(record: model.AdditionRecord, seen: model.AdditionSeen, brick: Brick) -> str:
    """Return why the brick's old content is not there; empty if it is."""
    place = (seen.places or {}).get(brick.name)
    if place is None or place.unread:
        return "what lies there is not known" + (f" ({place.unread})" if place is not None else "")
    volume_id = seen.state.volume_id.replace("-", "")
    if not place.own:
        return f"no file system is mounted at {rules_guards.path_of(brick.name)}"
    if place.volume_id != volume_id or not place.has_gluster_directory:
        return "what is mounted there is no brick of this volume"
    if _is_another(record, place):
        return "another file system is mounted there than before"
    return ""


def _taking_back(record: model.AdditionRecord, seen: model.AdditionSeen, brick: Brick) -> model.Step:
    if not brick.online:
        return _serve_again(record, seen, brick)
    return _END_BACK if healed(record, seen.state) else _HEAL_BACK


# Fix-layout and rebalance after an addition: started once, watched until they end.


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """A task: the act that begins it, and the state after it has ended. A full rebalance fixes every layout too. A
    rebalance is not satisfied by a task that only fixes layouts.
    """

    begin: model.AdditionAct
    result: model.AdditionState
    words: str

    @property
    def done(self) -> model.AdditionAct:
        begin = self.begin
        return model.AdditionAct(step=begin.step, intent=begin.intent, result=self.result, seen_done=True)

    @property
    def moves_files(self) -> bool:
        return self.begin.step is _A.BALANCE


_LAYOUT = Watching(
    begin=model.AdditionAct(step=_A.LAY_OUT, intent=_S.LAYOUT, result=_S.LAYOUT), result=_S.LAID_OUT, words="fix-layout"
)
_BALANCE = Watching(
    begin=model.AdditionAct(step=_A.BALANCE, intent=_S.BALANCING, result=_S.BALANCING),
    result=_S.BALANCED,
    words="rebalance",
)


def watched(
    record: model.AdditionRecord, seen: model.AdditionSeen, what: Watching, *, anew: bool = False
) -> model.Step:
    """Begin, watch or end the task. With `anew`, a listed task counts as an earlier one, and nothing begins while it
    runs.
    """
    if missing := parts_missing(seen.state):
        return Halt(
            words=f"whether the {what.words} of volume {record.volume} still runs is not known: not every host answers",
            reasons=missing,
            hint=f"bring glusterd and the bricks up on every host, {rules_guards.AGAIN}",
            look_again=True,
        )
    if halt := _drained(record, seen):
        return halt
    task = next((one for one in seen.tasks if one.kind is TaskKind.REBALANCE), None)
    if anew:
        return _after_others(record, task, what)
    notes = record.notes
    if task is None:
        if notes.task_id:
            return give_up(f"the {what.words} was stopped by somebody else, or Gluster has forgotten it")
        return replace(what.begin, task_before="")
    if task.id == notes.task_before:
        return _after_others(record, task, what)
    if task.id != notes.task_id:
        return replace(what.begin, seen_done=True, task_id=task.id)
    return _own(record, seen, what, task)


def give_up(reason: str) -> model.AdditionAct:
    """Record why an admin must act."""
    return model.AdditionAct(
        step=model.AdditionStep.GIVE_UP,
        intent=model.AdditionState.FAILED,
        result=model.AdditionState.FAILED,
        reason=reason,
    )


def _after_others(record: model.AdditionRecord, task: VolumeTask | None, what: Watching) -> model.Step:
    """Begin the task if no other task runs."""
    if task is not None and task.unfinished:
        at_work = f"{task.name} ({task.status.value}) is at work already: {task.id}"
        own = (
            f"; where it has ended without a word, {rebalance_way_out(record.volume)}"
            if task.id == record.notes.task_id
            else ""
        )
        return _busy(record, at_work + own)
    return replace(what.begin, task_before="" if task is None else task.id)


def _own(record: model.AdditionRecord, seen: model.AdditionSeen, what: Watching, task: VolumeTask) -> model.Step:
    progress = seen.progress
    if progress is None or progress.task_id != task.id or not progress.counters:
        return Halt(
            words=f"how far the {what.words} of volume {record.volume} is, Gluster does not tell",
            hint=f"see `gluster volume rebalance {record.volume} status`, {rules_guards.AGAIN}",
            look_again=True,
        )
    if progress.moving:
        if seen.stalled:
            return give_up(f"the {what.words} stands still: {seen.stalled}; {rebalance_way_out(record.volume)}")
        return model.AdditionAct(step=model.AdditionStep.WATCH, intent=record.state, result=record.state)
    if problems := tuple(_failures(progress, what)):
        return give_up(f"{what.words}: {'; '.join(problems)}")
    if what.moves_files and any(one.fix_layout for one in progress.counters):
        return replace(what.begin, task_before=task.id)
    return what.done


def _failures(progress: TaskProgress, what: Watching) -> Iterator[str]:
    """Skipped files are not failures: Gluster leaves hard links, and files whose move would not improve the balance. A
    few failed moves do not count either. Such files stay where they are found, and some moves always fail while users
    work.
    """
    broken = [one for one in progress.counters if one.status is not TaskStatus.COMPLETED]
    yield from (f"on {one.host} it is {one.status.value}" for one in broken)
    few = what.moves_files and not broken and are_few(progress.failures, moved_files=progress.files)
    if progress.failures and not few:
        yield f"{several(progress.failures, 'file')} could not be moved (failures): they are where they were"


def _drained(record: model.AdditionRecord, seen: model.AdditionSeen) -> Halt | None:
    other = next((one for one in seen.tasks if one.unfinished and one.kind is not TaskKind.REBALANCE), None)
    if other is None:
        return None
    of = f" of {', '.join(other.bricks)}" if other.bricks else ""
    return _busy(record, f"{other.name} ({other.status.value}){of} is not over")


def _busy(record: model.AdditionRecord, reason: str) -> Halt:
    return Halt(
        words=f"{record.shown_bricks} is in the volume, and something else moves files or waits for a commit",
        reasons=(reason,),
        hint=f"when that has ended, {rules_guards.AGAIN.removeprefix('then ')}",
        look_again=True,
    )


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


_TAKEN_OUT = "it is not in the volume any more: somebody else has taken it out"

GROWN_SHARE = 0.8
"""Share of the bricks' size that must appear: a file system reserves some of its device."""

_HAND_OVER = model.AdditionAct(step=_A.HAND_OVER, intent=_S.HANDING, result=_S.SEEN)


def next_step(
    record: model.AdditionRecord, seen: model.AdditionSeen | None, wish: model.Wish, *, begins: bool = False
) -> model.Step:
    """Return the next step. `seen` is None if Gluster does not answer. A failed addition waits, unless the call
    `begins`.
    """
    state = record.state
    if state in (_S.HEALED, _S.SETTLED) and wish.take_back:
        return Halt(words=f"there is nothing to take back: {rules_guards.finished_words(record)}", hint="")
    if state in model.ADDITION_ENDED_STATES:
        return Finished(state=state, words=rules_guards.finished_words(record))
    if state in (_S.SEEN, _S.BALANCED, _S.HEALED):
        return _finish(state)
    if state is _S.FAILED and not begins:
        return Halt(
            words=f"the addition of {record.shown_bricks} has failed: {record.failure or 'no reason was recorded'}",
            hint=f"put that right, {rules_guards.AGAIN}",
        )
    if seen is None:
        return _unknown(record)
    if halt := _elsewhere(record, seen.state):
        return halt
    if record.side is model.AdditionSide.TARGET:
        return _to_target(record, seen)
    if record.in_place:
        return next_in_place(record, seen, wish)
    inside = _inside(record, seen)
    if inside is None:
        return Halt(
            words=f"some of {record.shown_bricks} are in the volume and some are not: somebody else has changed it",
            hint=f"look at `gluster volume info`, correct it by hand, {rules_guards.AGAIN}",
        )
    if state is _S.FAILED and inside:
        return _heal(record, seen) if record.instead_of else watched(record, seen, _LAYOUT, anew=True)
    if state in model.IN_STATES:
        return _in_the_volume(record, seen, wish) if inside else give_up(_TAKEN_OUT)
    return _ADD_SEEN if inside else _before(record, seen, wish)


def grown(
    before: model.TargetRoom | None, now: model.TargetRoom | None, *, bricks: int, size_bytes: int | None
) -> bool:
    """Return whether the target has grown as expected: by the number of storage targets, or by nearly all of the bytes.
    If the number of bytes is not known, any growth suffices.
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
    record: model.AdditionRecord, seen: model.AdditionSeen, wish: model.Wish, *, prepared: bool
) -> tuple[str, ...]:
    """Yield every reason against adding now, with `prepared` also those about the places of the bricks."""
    if record.side is model.AdditionSide.TARGET:
        return tuple(rules_guards.target_problems(record, seen))
    found = [
        *rules_guards.health_problems(record, seen),
        *(
            rules_guards.swap_problems(record, seen)
            if record.instead_of
            else rules_guards.before_problems(record, seen, wish)
        ),
        *(rules_guards.place_problems(record, seen, wish) if prepared else ()),
    ]
    return tuple(dict.fromkeys(found))


def _unknown(record: model.AdditionRecord) -> Halt:
    return Halt(
        words=f"the state of volume {record.volume} is not known",
        hint=f"see `gluster volume status`, and that glusterd runs, {rules_guards.AGAIN}",
        look_again=True,
    )


def _elsewhere(record: model.AdditionRecord, state: VolumeState) -> Halt | None:
    if (state.volume, state.volume_id) != (record.volume, record.volume_id):
        return Halt(
            words=f"volume {state.volume} is another one than the addition was begun on (its id is {state.volume_id})",
            hint="look at [source] volume in site.toml, and at which cluster the gluster command asks",
        )
    if not state.started and record.side is model.AdditionSide.SOURCE:
        return Halt(
            words=f"volume {record.volume} is not started", hint=f"start it, {rules_guards.AGAIN}", look_again=True
        )
    return None


def _inside(record: model.AdditionRecord, seen: model.AdditionSeen) -> bool | None:
    """Return whether the bricks are in the volume; None if only some are."""
    names = {brick.name for brick in seen.state.bricks}
    inside = names.intersection(record.bricks)
    if not inside:
        return False
    if record.instead_of in names:
        return None
    return True if inside == set(record.bricks) else None


def _before(record: model.AdditionRecord, seen: model.AdditionSeen, wish: model.Wish) -> model.Step:
    # The place was right when it was prepared. After a reboot the hooks may mount it again.
    if record.state in (_S.PLANNED, _S.PREPARING, _S.FAILED) or (
        record.state is _S.PREPARED and any(rules_guards.place_problems(record, seen, wish))
    ):
        return _unless_refused(_PREPARE, record, seen, wish)
    return _unless_refused(_ADD, record, seen, wish, prepared=True)


def _to_target(record: model.AdditionRecord, seen: model.AdditionSeen) -> model.Step:
    if problems := tuple(rules_guards.target_problems(record, seen)):
        return rules_guards.against(record, problems)
    if record.state in (_S.PLANNED, _S.PREPARING):
        return _PREPARE
    # The hooks are called again after a crash: growth meanwhile does not prove that they had finished.
    return _HAND_OVER


def _in_the_volume(record: model.AdditionRecord, seen: model.AdditionSeen, wish: model.Wish) -> model.Step:
    leaving = remove_brick_of(seen.tasks, record.bricks)
    if leaving is not None:
        return Halt(
            words=f"somebody drains {', '.join(leaving.bricks)} again",
            hint=f"finish or stop that drain (`migrator brick list`), {rules_guards.AGAIN}",
            look_again=True,
        )
    if record.state is _S.ADDED:
        return _heal(record, seen) if record.instead_of else watched(record, seen, _LAYOUT, anew=True)
    if record.state is _S.HEALING:
        return _heal(record, seen)
    if record.state is _S.LAYOUT:
        return watched(record, seen, _LAYOUT)
    if not wish.rebalance:
        task = next((one for one in seen.tasks if one.id == record.notes.task_id), None)
        if task is not None and task.unfinished:
            return Halt(
                words=f"a rebalance is in progress, and none is wanted: {task.id}",
                hint=f"stop it with `gluster volume rebalance {record.volume} stop`, or wait for its end, {rules_guards.AGAIN}",
            )
        return _finish(record.state)
    return watched(record, seen, _BALANCE, anew=record.state is _S.LAID_OUT)


def _heal(record: model.AdditionRecord, seen: model.AdditionSeen) -> model.Step:
    return _HEALED if healed(record, seen.state) else _HEAL


def _finish(state: model.AdditionState) -> model.AdditionAct:
    return model.AdditionAct(step=_A.FINISH, intent=state, result=_S.SETTLED)


# Progress and blockers of additions.


_ADDITION_STANDING_MOVING = (model.AdditionState.LAYOUT, model.AdditionState.BALANCING)
_DIRECTORIES = 5
"""Number of directories to list among the blockers, each with its command."""


def standing(record: model.AdditionRecord, samples: Sequence[DrainSample]) -> model.AdditionStanding:
    """Return the progress of one attempt."""
    # A restarted task has no samples yet, and those of its predecessor say nothing about it.
    own = bool(samples) and samples[-1].task_id == record.notes.task_id
    moving = own and record.state in _ADDITION_STANDING_MOVING
    facts, rate, lookups = counted(record, samples, moving=moving)
    balancing = record.state is model.AdditionState.BALANCING
    return model.AdditionStanding(
        **facts,
        side=record.side,
        instead_of=record.instead_of,
        lookups=lookups,
        left_s=_left_s(rate, record.notes.files, lookups) if balancing else None,
        directories=record.notes.directories or (),
    )


def _left_s(rate: DrainRate | None, files: int | None, lookups: int) -> float | None:
    """Estimate the time left in seconds. A rebalance examines every file on every brick and decides then which ones to
    move. It counts link-to files too, so the end is unknown once it has examined more files than expected.
    """
    if rate is None or rate.lookups_per_s <= 0 or files is None or lookups > files:
        return None
    return (files - lookups) / rate.lookups_per_s


def newest_attempts(records: Sequence[model.AdditionRecord]) -> tuple[model.AdditionRecord, ...]:
    """Return the newest attempt for each set of bricks on either side, oldest first."""
    newest = {(record.volume_id, record.side, frozenset(record.bricks)): record for record in records}
    return tuple(sorted(newest.values(), key=lambda record: record.id))


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
            yield Blocker(subject=subject, on=f"it has failed: {one.failure}", hint=f"solve that, then `{again(one)}`")
            continue
        looked = last_looked(one.looked_at_s, now_s)
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
    return "; the brick is offline for the exchange of its disk, and its files have a copy less"


def _directories(one: model.AdditionStanding) -> Iterator[Blocker]:
    for directory in one.directories[:_DIRECTORIES]:
        yield Blocker(subject=show(directory.path), on=directory.reason, hint=f"`{directory.command}`")
    if (more := len(one.directories) - _DIRECTORIES) > 0:
        yield Blocker(
            subject=f"addition of {' '.join(one.bricks)} to the {one.side.value}",
            on=f"{several(more, 'more directory waits', 'more directories wait')} for somebody",
            hint="`migrator brick status --json` has the command for each (`directories`)",
        )


def again(one: model.AdditionStanding) -> str:
    """Return the command that resumes it."""
    instead = "" if one.instead_of is None else f" --instead-of {one.instead_of}"
    side = model.AdditionSide(one.side).value
    return f"migrator brick add {' '.join(one.bricks)} --to {side}{instead}"
