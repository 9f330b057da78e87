"""The sections between the first page of a report and its details: pictures, and the table of users."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from migrator.core.units import DAY_S, several
from migrator.fs.model import CapacitySample
from migrator.plan.schedule.rules import scheduled_outcome
from migrator.render import document as doc
from migrator.report import model
from migrator.report.rules import expected_purges
from migrator.report.rules_history import WEEK_S, moved_at_s
from migrator.report.rules_outlook import OUT_OF_THE_VOLUME
from migrator.report.view_batches import tree_table

_MOST_WEEKS = 260


def users_moved(report: model.ReportFacts) -> Iterator[doc.Block]:
    """Users moved in each seven days, which end at the time of day of the report. So the last bar is that of the first page."""
    status, now_s = report.status, report.status.at_s
    if not status.trees:
        return
    if not status.moved.done_users:
        yield doc.paragraph("No user works on the target yet.")
        return
    times = sorted(min(at_s, now_s) for at_s in moved_at_s(status.trees, status.cutovers).values())
    began = [times[0] if times else now_s, *(one.at_s for one in report.done[:1])]
    if status.plan is not None:
        began.append(status.plan.created_at_s)
    weeks = min(max(math.ceil((now_s - min(began)) / WEEK_S), 1), _MOST_WEEKS)
    ends = [now_s - WEEK_S * index for index in reversed(range(weeks))]
    counts = [bisect_right(times, end_s) - bisect_right(times, end_s - WEEK_S) for end_s in ends]
    best = max(range(weeks), key=counts.__getitem__)
    words = f"{several(status.moved.done_users, 'user')} of {status.moved.total_users:,} work on the target."
    most = f"The busiest week ended on {doc.when(ends[best])}: {several(counts[best], 'user')}."
    yield doc.Chart(
        title="Users moved per week",
        summary=f"{words} {most if counts[best] else 'The times of their moves are unknown.'}",
        label="users per week",
        points=tuple((end_s, float(count)) for end_s, count in zip(ends, counts, strict=True)),
        span_s=WEEK_S,
        counted="users",
    )


def bricks_cleared(report: model.ReportFacts) -> Iterator[doc.Block]:
    """Bricks out of the source over time, with the plan and the expected dates."""
    bricks, now_s = report.bricks, report.status.at_s
    if not bricks:
        return
    out = [one for one in bricks if one.state in OUT_OF_THE_VOLUME]
    cleared = sorted(min(now_s if one.free_at_s is None else one.free_at_s, now_s) for one in out)
    coming = sorted(one.free_at_s for one in bricks if one not in out and one.free_at_s is not None)
    began_s = min([now_s, *cleared, *(one.at_s for one in report.done[:1])])
    series = []
    plan, outcome = report.plan, scheduled_outcome(report.plan)
    if plan is not None and outcome is not None:
        steps = outcome.subvolumes
        began_s = min(began_s, plan.created_at_s)
        days = sorted(step.cleared_day for step in steps if step.cleared_day is not None for _ in step.bricks)
        planned = [plan.created_at_s + day * DAY_S for day in days]
        series.append(doc.ChartLine(label="planned", points=_steps(plan.created_at_s, 0, planned)))
    if coming:
        series.append(doc.ChartLine(label="expected", points=_steps(now_s, len(out), coming)))
    left = len(bricks) - len(out)
    last = "" if not coming else f" The last known date is {doc.when(max(coming))}."
    unknown = left - len(coming)
    lacking = "" if not unknown else f" {several(unknown, 'brick has', 'bricks have')} no expected date."
    yield doc.Chart(
        title="Bricks cleared",
        summary=f"{len(out):,} of {several(len(bricks), 'brick')} left the source by {doc.when(now_s)}.{last}{lacking}",
        label="cleared",
        points=(*_steps(began_s, 0, cleared), (now_s, float(len(out)))),
        series=tuple(series),
        limit=("all bricks", float(len(bricks))),
        counted="bricks",
    )


def _steps(from_s: float, before: int, times: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """A line that rises by one at each time."""
    found = [(from_s, float(before))]
    for count, at_s in enumerate(times, before + 1):
        found += [(at_s, count - 1.0), (at_s, float(count))]
    return tuple(found)


def source_after_purges(report: model.ReportFacts, source: CapacitySample) -> tuple[tuple[float, float], ...]:
    """The use of the source after each expected purge; empty if none is expected."""
    sizes = {batch.number: batch.tally.total_bytes for batch in report.status.batches}
    left, found = float(source.used_bytes), [(source.at_s, float(source.used_bytes))]
    for at_s, batch in sorted((at_s, batch) for batch, at_s in expected_purges(report.status, report.plan).items()):
        left = max(left - sizes[batch], 0.0)
        found.append((at_s, left))
    return tuple(found) if len(found) > 1 else ()


def user_blocks(status: model.MigrationStatus, *, rows: int | None) -> Iterator[doc.Block]:
    """How many trees are in each state, and all trees with their state, the heaviest first."""
    counts = Counter(tree.state for tree in status.trees)
    if counts:
        yield doc.facts(
            (state.value, several(counts[state], "user tree")) for state in model.TreeState if counts[state]
        )
    yield tree_table(status.trees, status.batches, status.plan.name if status.plan else "", limit=rows)
