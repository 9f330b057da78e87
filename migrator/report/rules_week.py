"""The figures of one week of the migration. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from migrator.core.units import DAY_S
from migrator.cutover.model import CutoverRecord
from migrator.plan.model import ThroughputPoint
from migrator.report import model
from migrator.report.rules import MOVED

WEEK_S = 7 * DAY_S


def spans(now_s: float, first_s: float | None) -> tuple[tuple[float, float], ...]:
    """The last seven days, and the seven before if the migration is older than a week. `first_s` is its first plan."""
    weeks = ((now_s - WEEK_S, now_s), (now_s - 2 * WEEK_S, now_s - WEEK_S))
    return weeks if first_s is not None and first_s < now_s - WEEK_S else weeks[:1]


def week(
    span: tuple[float, float],
    *,
    work: ThroughputPoint | None,
    trees: Sequence[model.TreeStatus],
    cutovers: Sequence[CutoverRecord],
    cleared: Iterable[tuple[float, int]],
    added: Iterable[tuple[float, int]],
    incidents: Sequence[model.Incident],
) -> model.WeekFacts:
    """The week of a span. `work` is its throughput, `incidents` are those of the span; `cutovers` are all attempts.
    `cleared` and `added` have times with numbers of bricks.
    """
    from_s, to_s = span
    freezes = [
        one.freeze_s
        for one in cutovers
        if one.freeze_s is not None and one.thawed_at_s is not None and from_s < one.thawed_at_s <= to_s
    ]
    return model.WeekFacts(
        from_s=from_s,
        to_s=to_s,
        users_moved=sum(from_s < at_s <= to_s for at_s in moved_at_s(trees, cutovers).values()),
        size_bytes=0 if work is None else work.size_bytes,
        files=0 if work is None else work.files,
        busy_s=0.0 if work is None else work.busy_s,
        bricks_cleared=sum(bricks for at_s, bricks in cleared if from_s < at_s <= to_s),
        bricks_added=sum(bricks for at_s, bricks in added if from_s < at_s <= to_s),
        incidents=len(incidents),
        freezes=len(freezes),
        longest_freeze_s=max(freezes, default=None),
    )


def moved_at_s(trees: Sequence[model.TreeStatus], cutovers: Sequence[CutoverRecord]) -> dict[str, float]:
    """When each moved user was: with the last of their trees. `cutovers` are oldest first."""
    thawed = {one.tree.path: one.thawed_at_s for one in cutovers if one.thawed_at_s is not None}
    by_user: dict[str, list[float | None]] = defaultdict(list)
    for tree in trees:
        if tree.state is not model.TreeState.EXCLUDED:
            by_user[tree.tree.user].append(thawed.get(tree.tree.path) if tree.state in MOVED else None)
    found = {user: [one for one in times if one is not None] for user, times in by_user.items()}
    return {user: max(times) for user, times in found.items() if len(times) == len(by_user[user])}
