"""How far additions of bricks are, and what has to be said of them. Pure."""

from collections.abc import Iterator, Sequence

from migrator.decide.drain_progress import DrainRate, drain_rate
from migrator.decide.drain_standing import RATE_WINDOW_S, last_looked
from migrator.domain.addition import (
    AWAY_STATES,
    ENDED_STATES,
    UNTOUCHED_STATES,
    AdditionRecord,
    AdditionSide,
    AdditionState,
)
from migrator.domain.addition_standing import AdditionStanding
from migrator.domain.drain import DrainSample
from migrator.domain.paths import show
from migrator.domain.report import Blocker
from migrator.domain.units import several

_MOVING = (AdditionState.LAYOUT, AdditionState.BALANCING)
_DIRECTORIES = 5
"""So many directories stand among what waits, each with its command."""


def standing(record: AdditionRecord, samples: Sequence[DrainSample]) -> AdditionStanding:
    """One attempt. Every task counts from nothing: of what was moved the last counters of all of them add up."""
    last = {(one.task_id, one.host): one for one in samples}
    newest = samples[-1].task_id if samples else None
    own = [one for (task_id, _), one in last.items() if task_id == newest]
    # A task that was begun anew has no samples yet, and those of the one before tell nothing of it.
    moving = record.state in _MOVING and newest is not None and newest == record.notes.task_id
    rate = drain_rate(samples, task_id=newest, window_s=RATE_WINDOW_S) if moving and newest is not None else None
    lookups = sum(one.lookups for one in own)
    balancing = record.state is AdditionState.BALANCING
    return AdditionStanding(
        id=record.id,
        side=record.side,
        volume=record.volume,
        bricks=record.bricks,
        instead_of=record.instead_of,
        attempt=record.attempt,
        state=record.state,
        since_s=record.times[record.state],
        size_bytes=record.notes.size_bytes,
        files=record.notes.files,
        lookups=lookups,
        moved_files=sum(one.files for one in last.values()),
        moved_bytes=sum(one.size_bytes for one in last.values()),
        failures=sum(one.failures for one in own),
        skipped=sum(one.skipped for one in own),
        files_per_s=None if rate is None else rate.files_per_s,
        bytes_per_s=None if rate is None else rate.bytes_per_s,
        left_s=_left_s(rate, record.notes.files, lookups) if balancing else None,
        looked_at_s=samples[-1].at_s if samples else None,
        failure=record.failure,
        directories=record.notes.directories or (),
    )


def _left_s(rate: DrainRate | None, files: int | None, lookups: int) -> float | None:
    """A rebalance looks at every file on every brick, and finds out on its way which it moves. It counts link-to files too: one
    that has looked at more than there should be has an end that is not known.
    """
    if rate is None or rate.lookups_per_s <= 0 or files is None or lookups > files:
        return None
    return (files - lookups) / rate.lookups_per_s


def newest_attempts(records: Sequence[AdditionRecord]) -> tuple[AdditionRecord, ...]:
    """Of every set of bricks on either side the newest attempt, oldest first."""
    newest = {(record.volume_id, record.side, frozenset(record.bricks)): record for record in records}
    return tuple(sorted(newest.values(), key=lambda record: record.id))


def addition_blockers(additions: Sequence[AdditionStanding], *, at_work: bool, now_s: float) -> Iterator[Blocker]:
    """Additions that wait for somebody, and directories that they have changed. `at_work`: a command goes on with one."""
    for one in additions:
        yield from _directories(one)
        if one.state in ENDED_STATES | UNTOUCHED_STATES or at_work:
            continue
        subject = f"addition of {' '.join(one.bricks)} to the {one.side.value}"
        if one.state is AdditionState.FAILED:
            yield Blocker(
                subject=subject, on=f"it has failed: {one.failure}", hint=f"put that right, then `{again(one)}`"
            )
            continue
        looked = last_looked(one.looked_at_s, now_s)
        failed = f"; its last step failed: {one.failure}" if one.failure else ""
        yield Blocker(
            subject=subject,
            on=f"it is {one.state.value}, and no command goes on with it{_away(one)}{looked}{failed}",
            hint=f"{again(one)} (with the options of the first time)",
        )


def _away(one: AdditionStanding) -> str:
    """A brick that takes its own place is not served meanwhile."""
    if one.instead_of not in one.bricks or one.state not in AWAY_STATES:
        return ""
    return "; the brick is offline for the exchange of its disk, and its files have a copy less"


def _directories(one: AdditionStanding) -> Iterator[Blocker]:
    for directory in one.directories[:_DIRECTORIES]:
        yield Blocker(subject=show(directory.path), on=directory.reason, hint=f"`{directory.command}`")
    if (more := len(one.directories) - _DIRECTORIES) > 0:
        yield Blocker(
            subject=f"addition of {' '.join(one.bricks)} to the {one.side.value}",
            on=f"{several(more, 'more directory waits', 'more directories wait')} for somebody",
            hint="`migrator brick status --json` has the command for each (`directories`)",
        )


def again(one: AdditionStanding) -> str:
    """The command that goes on with it."""
    instead = "" if one.instead_of is None else f" --instead-of {one.instead_of}"
    side = AdditionSide(one.side).value
    return f"migrator brick add {' '.join(one.bricks)} --to {side}{instead}"
