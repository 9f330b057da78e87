"""A fix-layout or a rebalance after an addition: begun once, watched to its end. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from migrator.decide.addition_words import AGAIN
from migrator.decide.drain_facts import parts_missing
from migrator.decide.lost_movers import rebalance_way_out
from migrator.decide.task_failures import are_few
from migrator.domain.addition import AdditionRecord, AdditionState, AdditionStep
from migrator.domain.addition_seen import Act, AdditionSeen, Halt, Step
from migrator.domain.units import several
from migrator.domain.volume_tasks import TaskKind, TaskProgress, TaskStatus, VolumeTask

_MOVING = (TaskStatus.IN_PROGRESS, TaskStatus.NOT_STARTED)
"""A host is `not started` for a moment after a start; for longer it stands still, which has a limit of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """What a task is begun with, and what is written when it has come to its end. `by_fix_layout`: one that only puts layouts
    right is enough.
    """

    begin: Act
    done: Act
    by_fix_layout: bool
    words: str


def watched(record: AdditionRecord, seen: AdditionSeen, what: Watching, *, anew: bool = False) -> Step:
    """Begin, watch, or end. `anew`: whatever is listed now came before, unless it moves files."""
    missing = ("the state of the volume is not known",) if seen.state is None else parts_missing(seen.state)
    if missing:
        return Halt(
            words=f"whether the {what.words} of volume {record.volume} goes on, not every host tells",
            reasons=missing,
            hint=f"bring glusterd and the bricks up on every host, {AGAIN}",
            look_again=True,
        )
    if halt := _drained(record, seen):
        return halt
    task = next((one for one in seen.tasks or () if one.kind is TaskKind.REBALANCE), None)
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


def give_up(reason: str) -> Act:
    """It is written down why people have to look."""
    return Act(step=AdditionStep.GIVE_UP, intent=AdditionState.FAILED, result=AdditionState.FAILED, reason=reason)


def _after_others(record: AdditionRecord, task: VolumeTask | None, what: Watching) -> Step:
    """Begin it, where nothing else is at work."""
    if task is not None and task.unfinished:
        at_work = f"{task.name} ({task.status.value}) is at work already: {task.id}"
        own = (
            f"; where it has ended without a word, {rebalance_way_out(record.volume)}"
            if task.id == record.notes.task_id
            else ""
        )
        return _busy(record, at_work + own)
    return replace(what.begin, task_before="" if task is None else task.id)


def _own(record: AdditionRecord, seen: AdditionSeen, what: Watching, task: VolumeTask) -> Step:
    progress = seen.progress
    if progress is None or progress.task_id != task.id or not progress.counters:
        return Halt(
            words=f"how far the {what.words} of volume {record.volume} is, Gluster does not tell",
            hint=f"see `gluster volume rebalance {record.volume} status`, {AGAIN}",
            look_again=True,
        )
    if any(one.status in _MOVING for one in progress.counters):
        if seen.stalled:
            return give_up(f"the {what.words} stands still: {seen.stalled}; {rebalance_way_out(record.volume)}")
        return Act(step=AdditionStep.WATCH, intent=record.state, result=record.state)
    if problems := tuple(_failures(progress, what)):
        return give_up(f"{what.words}: {'; '.join(problems)}")
    if not what.by_fix_layout and any(one.fix_layout for one in progress.counters):
        return replace(what.begin, task_before=task.id)
    return what.done


def _failures(progress: TaskProgress, what: Watching) -> Iterator[str]:
    """Skipped files are no failure: Gluster leaves hard links and files that would not even out where they are. Nor are a few
    that a rebalance could not move: they stay where they are found, and while users work some fail every time.
    """
    broken = [one for one in progress.counters if one.status is not TaskStatus.COMPLETED]
    yield from (f"on {one.host} it is {one.status.value}" for one in broken)
    few = not (broken or what.by_fix_layout) and are_few(progress.failures, moved_files=progress.files)
    if progress.failures and not few:
        yield f"{several(progress.failures, 'file')} could not be moved (failures): they are where they were"


def _drained(record: AdditionRecord, seen: AdditionSeen) -> Halt | None:
    other = next((one for one in seen.tasks or () if one.unfinished and one.kind is not TaskKind.REBALANCE), None)
    if other is None:
        return None
    of = f" of {', '.join(other.bricks)}" if other.bricks else ""
    return _busy(record, f"{other.name} ({other.status.value}){of} is not over")


def _busy(record: AdditionRecord, reason: str) -> Halt:
    return Halt(
        words=f"{record.shown_bricks} is in the volume, and something else moves files or waits for a commit",
        reasons=(reason,),
        hint=f"when that has ended, {AGAIN.removeprefix('then ')}",
        look_again=True,
    )
