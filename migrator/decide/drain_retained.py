"""Sources of users who work on the target, that still lie on bricks that are to be drained: whether they are moved for nothing. Pure.

What is purged need not be moved, so a schedule may count on the purge before the drain (docs/scan-and-plan.md). Where it does and
nobody has purged, the drain is longer than planned, and may not even have the room that was planned for it.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence

from migrator.domain.cutover import SETTLED_STATES, CutoverRecord, CutoverState
from migrator.domain.drain_preflight import RetainedSource, TreeOnBricks
from migrator.domain.plan import Plan
from migrator.domain.units import DAY_S, format_duration, format_size, several

_DAY_DIGITS = 1e-3
"""Days of a schedule are rounded to so much."""

_SHOWN = 5


def retained_sources(
    trees: Sequence[TreeOnBricks],
    newest: Mapping[bytes, CutoverRecord],
    plan: Plan | None,
    *,
    bricks: Sequence[str],
    retain_s: float,
    now_s: float,
) -> tuple[RetainedSource, ...]:
    """Of `trees` on these bricks those of users who work on the target, by the newest cutover of each, with most bytes first.
    `plan` is the one in force; None where there is none, or where it cannot be read.
    """
    drained_day = _drained_day(plan, bricks)
    freed_days = _freed_days(plan)
    found = []
    for tree in trees:
        record = newest.get(tree.tree)
        if record is None or record.state not in SETTLED_STATES or record.state is CutoverState.PURGED:
            continue
        due_at_s = record.times.get(CutoverState.THAWED, record.since_s) + retain_s
        freed_day = freed_days.get(tree.tree)
        if freed_day is None and plan is not None and not _plans(plan, tree.tree):
            # He worked on the target already when it was made.
            freed_day = max(due_at_s - plan.created_at_s, 0.0) / DAY_S
        first = drained_day is not None and freed_day is not None and freed_day <= drained_day + _DAY_DIGITS
        found.append(
            RetainedSource(
                tree=tree.tree,
                user=record.tree.user,
                plan=record.plan,
                files=tree.files,
                size_bytes=tree.size_bytes,
                due_in_s=max(due_at_s - now_s, 0.0),
                purge_planned_first=first,
            )
        )
    return tuple(sorted(found, key=lambda one: (-one.size_bytes, one.tree)))


def _plans(plan: Plan, tree: bytes) -> bool:
    return any(one.path == tree for batch in plan.batches for one in batch.trees)


def _drained_day(plan: Plan | None, bricks: Sequence[str]) -> float | None:
    """When the schedule's own order begins to drain them; None where it does not."""
    if plan is None or plan.schedule is None or not plan.schedule.orders:
        return None
    steps = plan.schedule.orders[0].outcome.subvolumes
    return next((step.drain_begins_day for step in steps if set(step.bricks) & set(bricks)), None)


def _freed_days(plan: Plan | None) -> Mapping[bytes, float]:
    """When the schedule's own order has purged the trees of the plan, as far as it comes."""
    if plan is None or plan.schedule is None or not plan.schedule.orders:
        return {}
    day_of = {step.batch: step.freed_day for step in plan.schedule.orders[0].outcome.batches}
    return {tree.path: day_of[batch.number] for batch in plan.batches if batch.number in day_of for tree in batch.trees}


def retained_problems(sources: Sequence[RetainedSource] | None, *, unread_plan: str, accepted: bool) -> Iterator[str]:
    """Why a drain should wait for a purge. `unread_plan` says why the plan in force cannot be read, empty where it can."""
    if accepted:
        return
    if sources is None:
        yield "what users who work on the target still have on the bricks is not known: run `migrator scan --via bricks`"
    if not sources:
        return
    if unread_plan:
        yield (
            f"{retained_words(sources)}, and whether the plan has them purged first is not known: {unread_plan}; accept by name "
            "that they are moved (--accept-retained)"
        )
        return
    first = [one for one in sources if one.purge_planned_first]
    if first:
        later_s = max(one.due_in_s for one in first)
        due = f", in {format_duration(later_s)} when [cutover] retain is over" if later_s > 0 else ""
        yield (
            f"{retained_words(first)}, and the plan's schedule has them purged before this drain: purge them"
            f"{due} ({' and '.join(purge_commands(first))}, then with --confirm), or accept by name that they are moved for "
            "nothing (--accept-retained)"
        )


def retained_words(sources: Sequence[RetainedSource]) -> str:
    """What lies there of whom."""
    files, size_bytes = sum(one.files for one in sources), sum(one.size_bytes for one in sources)
    users = list(dict.fromkeys(one.user for one in sources))
    more = f" and {len(users) - _SHOWN} more" if len(users) > _SHOWN else ""
    return (
        f"{several(files, 'file')} ({format_size(size_bytes)}) of {several(len(users), 'user')} who work on the target still lie "
        f"on the bricks ({', '.join(users[:_SHOWN])}{more})"
    )


def purge_commands(sources: Sequence[RetainedSource]) -> tuple[str, ...]:
    """What tells how they are purged, for each plan that they were cut over by."""
    users: dict[str, list[str]] = {}
    for one in sources:
        own = users.setdefault(one.plan, [])
        if one.user not in own:
            own.append(one.user)
    return tuple(
        f"`migrator purge --plan {shlex.quote(plan)} {' '.join(f'--user {shlex.quote(user)}' for user in own)} --dry-run`"
        for plan, own in users.items()
    )
