"""The progress of a drain, and drains that wait for an admin. Pure."""

from collections.abc import Iterator, Sequence

from migrator.bricks.drain import model
from migrator.bricks.progress import TaskRate, TaskSample, last_polled, progress_fields
from migrator.core.blocker import Blocker


def drain_left_s(rate: TaskRate | None, *, left_files: int | None, left_bytes: int | None) -> float | None:
    """Return the time left in seconds: the longer of that for files and that for bytes. None if neither can be
    estimated.
    """
    if rate is None or left_files is None or left_bytes is None:
        return None
    left = [
        (size, per_s) for size, per_s in ((left_files, rate.files_per_s), (left_bytes, rate.bytes_per_s)) if size > 0
    ]
    return None if any(per_s <= 0 for _, per_s in left) else max((size / per_s for size, per_s in left), default=0.0)


def standing(record: model.DrainRecord, samples: Sequence[TaskSample]) -> model.DrainStanding:
    """Return the progress of one attempt."""
    notes, moving = record.notes, record.state in (model.DrainState.STARTED, model.DrainState.DRAINING)
    facts, rate, _ = progress_fields(record, samples, moving=moving)
    left_files = None if notes.files is None else notes.files - facts["moved_files"]
    left_bytes = None if notes.size_bytes is None else notes.size_bytes - facts["moved_bytes"]
    # Users continue to create files there. Once all counted files are moved and more move, the end is unknown.
    known = left_files is not None and left_bytes is not None and (left_files > 0 or left_bytes > 0)
    left_s = drain_left_s(rate, left_files=left_files, left_bytes=left_bytes) if known else None
    return model.DrainStanding(
        **facts,
        started_at_s=record.times.get(model.DrainState.STARTED),
        left_s=left_s,
        times_kept=notes.times_kept,
        times_lost=notes.times_lost,
    )


def drain_blockers(drains: Sequence[model.DrainStanding], *, at_work: bool, now_s: float) -> Iterator[Blocker]:
    """Return the drains that wait for an admin. `at_work`: a command watches."""
    for one in drains:
        if one.state in model.DRAIN_ENDED_STATES | model.OUT_STATES | model.UNTOUCHED_STATES or at_work:
            continue
        names = " ".join(one.bricks)
        back = one.state in (model.DrainState.STOPPING, model.DrainState.SETTLING)
        if one.state is model.DrainState.FAILED:
            hint = f"fix the cause, then `migrator brick drain {names}`, or stop it: `migrator brick stop {names}`"
            yield Blocker(subject=f"drain of {names}", on=f"it has failed: {one.failure}", hint=hint)
        else:
            looked = last_polled(one.looked_at_s, now_s)
            yield Blocker(
                subject=f"drain of {names}",
                on=f"it is {one.state.value}, and no command watches it{looked}",
                hint=f"migrator brick {'stop' if back else 'drain'} {names}",
            )
