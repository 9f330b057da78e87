"""How a drain is taken back, and how the options that it has changed are put back. Pure."""

from migrator.decide.drain_facts import another_drain, layout_settled, options_to_restore, others_at_work, own_task
from migrator.domain.drain import DrainRecord, DrainState, DrainStep
from migrator.domain.drain_seen import Act, DrainSeen, Halt, Step
from migrator.domain.volume_tasks import VolumeTask

_S, _D = DrainState, DrainStep
_AGAIN = "then run the same command again"


def stop(task: VolumeTask | None, reason: str) -> Act:
    """Take back the drain that Gluster shows; where it shows none, somebody else has ended it."""
    return Act(
        step=_D.STOP,
        intent=_S.STOPPING,
        result=_S.STOPPING,
        seen_done=task is None,
        reason=reason,
        task_id=None if task is None else task.id,
    )


def stopping(record: DrainRecord, seen: DrainSeen) -> Step:
    """What is done next between the intent of the stop and its end, which is seen by Gluster's tasks alone."""
    task = own_task(record, seen)
    if task is None:
        return _settle()
    if halt := another_drain(record, task):
        return halt
    if task.id not in (record.notes.task_id, record.notes.task_before):
        return Halt(
            words=f"somebody else has begun a drain of {record.shown_bricks} again, while it was taken back",
            hint=f"ask who did; stop it by hand (`gluster volume remove-brick ... stop`), {_AGAIN}",
        )
    return stop(task, record.failure)


def settling(record: DrainRecord, seen: DrainSeen) -> Step:
    """What is done next until the layout of directories is right again."""
    if layout_settled(record, seen):
        return _settle(seen_done=True)
    if others := others_at_work(seen):
        return Halt(
            words="the layout of directories cannot be put right yet: something else moves files or waits for a commit",
            reasons=others,
            hint=f"when that has ended, {_AGAIN.removeprefix('then ')}",
            look_again=True,
        )
    return _settle()


def _settle(*, seen_done: bool = False) -> Act:
    return Act(step=_D.SETTLE, intent=_S.SETTLING, result=_S.STOPPED, seen_done=seen_done)


def restore(record: DrainRecord, seen: DrainSeen) -> Step | None:
    """Options that the drain has changed are put back where it has come to rest; None where there are none."""
    if not record.notes.options:
        return None
    if seen.state is None:
        return Halt(
            words=f"whether options of volume {record.volume} have to be put back is not known",
            hint=f"see that glusterd runs, {_AGAIN}",
            look_again=True,
        )
    if not options_to_restore(record, seen.state):
        return None
    return Act(step=_D.RESTORE, intent=record.state, result=record.state)
