"""The outlook of bricks, servers and the target, and the sums of reaped files. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from migrator.bricks.drain.model import OUT_STATES, UNDER_WAY_STATES, DrainStanding, DrainState
from migrator.bricks.retire.model import Retirement, RetirementState
from migrator.core.units import (
    DAY_S,
)
from migrator.fs.model import CapacityOutlook, CapacitySample, Side
from migrator.plan.model import Plan
from migrator.plan.schedule.model import SubvolumeStep
from migrator.plan.schedule.rules import scheduled_outcome
from migrator.reap.model import ArchiveRecord, ArchiveState, PlanReap
from migrator.report import model
from migrator.site.model import ReapAction

OUT_OF_THE_VOLUME = {RetirementState.RETIRED.value, *(state.value for state in OUT_STATES)}
"""States of a brick that has left the source."""
_SCHEDULED = (
    "by the order of the schedule and the expected date of the last brick; bytes: the maximum that the drain moves"
)


def brick_outlooks(
    drains: Sequence[DrainStanding],
    plan: Plan | None,
    *,
    now_s: float,
    retirement: Retirement | None = None,
    cleared: model.Milestone | None = None,
) -> tuple[model.BrickOutlook, ...]:
    """Every brick that was drained or is in the schedule, in that order. Drains take precedence over the schedule, whose
    dates end with the expected one of the last brick (`cleared`); a retired volume has no bricks any more.
    """
    found = {outlook.brick: outlook for drain in drains for outlook in _of_drain(drain, now_s)}
    out = frozenset(brick for brick, one in found.items() if one.state in OUT_OF_THE_VOLUME)
    for outlook in _of_schedule(plan, out, cleared, now_s):
        known = found.get(outlook.brick)
        if known is None or known.state == DrainState.STOPPED:
            found[outlook.brick] = outlook
    if retirement is not None and retirement.state is RetirementState.RETIRED:
        gone = model.BrickOutlook(
            brick="",
            state=retirement.state.value,
            left_files=0,
            left_bytes=0,
            free_at_s=retirement.since_s,
            basis="the volume is retired; its content is proven to be on the target",
        )
        found = {
            brick: one if one.state in OUT_OF_THE_VOLUME else replace(gone, brick=brick) for brick, one in found.items()
        }
    return tuple(found.values())


def _of_drain(drain: DrainStanding, now_s: float) -> Iterator[model.BrickOutlook]:
    out = drain.state in OUT_STATES
    free_at_s, basis = None, ""
    if out:
        free_at_s, basis = drain.since_s, "it is out of the volume"
    elif drain.state in UNDER_WAY_STATES and drain.left_s is not None:
        free_at_s, basis = now_s + drain.left_s, "by the pace of the drain, before its audit"
    for brick in drain.bricks:
        yield model.BrickOutlook(
            brick=brick,
            state=drain.state.value,
            left_files=0 if out else drain.left_files,
            left_bytes=0 if out else drain.left_bytes,
            free_at_s=free_at_s,
            basis=basis,
        )


def _of_schedule(
    plan: Plan | None, out: frozenset[str], cleared: model.Milestone | None, now_s: float
) -> Iterator[model.BrickOutlook]:
    outcome = scheduled_outcome(plan)
    if plan is None or outcome is None:
        return
    steps = outcome.subvolumes
    ends = (None, None, None) if cleared is None else (cleared.at_s, cleared.earliest_at_s, cleared.latest_at_s)
    free_at = _stretched(steps, out, (now_s - plan.created_at_s) / DAY_S)
    for step in steps:
        share = free_at.get(step.subvolume)
        at_s, earliest_at_s, latest_at_s = (
            None if share is None or end_s is None else now_s + share * (end_s - now_s) for end_s in ends
        )
        for brick in step.bricks:
            yield model.BrickOutlook(
                brick=brick,
                state="in the volume",
                left_files=None,
                left_bytes=step.moved_bytes,
                free_at_s=at_s,
                earliest_at_s=earliest_at_s,
                latest_at_s=latest_at_s,
                basis=_SCHEDULED if ends[0] is not None else "" if cleared is None else cleared.unknown,
            )


def _stretched(steps: Sequence[SubvolumeStep], out: frozenset[str], today: float) -> Mapping[int, float]:
    """For each subvolume left, the share of the time until the last one is cleared that has passed then: as in the
    schedule, from today on, or from the last brick that is out if the schedule is ahead of the migration.
    """
    left = {one.subvolume: one.cleared_day for one in steps if not out.issuperset(one.bricks)}
    days = [day for day in left.values() if day is not None]
    if not days:
        return {}
    done = [one.cleared_day for one in steps if one.cleared_day is not None and out.issuperset(one.bricks)]
    from_day = today if today < min(days) else min(max((0.0, *done)), *days)
    whole = max(days) - from_day
    return {number: (day - from_day) / whole if whole > 0 else 1.0 for number, day in left.items() if day is not None}


def server_outlooks(bricks: Sequence[model.BrickOutlook], plan: Plan | None) -> tuple[model.ServerOutlook, ...]:
    """Every server of these bricks, by name. Empty without a schedule: only the schedule has all bricks of a server."""
    if scheduled_outcome(plan) is None:
        return ()
    found: dict[str, list[model.BrickOutlook]] = defaultdict(list)
    for one in bricks:
        found[one.brick.partition(":/")[0]].append(one)
    last = {
        server: max(own, key=lambda one: math.inf if one.free_at_s is None else one.free_at_s)
        for server, own in found.items()
    }
    return tuple(
        model.ServerOutlook(
            server=server,
            bricks=len(own),
            free_bricks=sum(one.state in OUT_OF_THE_VOLUME for one in own),
            free_at_s=last[server].free_at_s,
            basis=last[server].basis,
        )
        for server, own in sorted(found.items())
    )


def target_outlook(
    samples: Sequence[CapacitySample], left: model.ProgressCounts, forecast: model.CopyForecast | None, *, now_s: float
) -> CapacityOutlook | None:
    """The usage of the target after the copying: the newest sample plus the files left to copy. None without a sample,
    or if nothing is left.
    """
    newest = next((sample for sample in reversed(samples) if sample.side is Side.TARGET), None)
    if newest is None or (left.left_bytes <= 0 and left.left_files <= 0):
        return None
    used = newest.used_inodes
    return CapacityOutlook(
        side=Side.TARGET,
        at_s=forecast.likely_at_s if forecast is not None else now_s,
        used_bytes=newest.used_bytes + max(left.left_bytes, 0),
        total_bytes=newest.total_bytes,
        used_inodes=None if used is None else used + max(left.left_files, 0),
        total_inodes=newest.total_inodes,
    )


def summarize_reaped(
    reap: PlanReap | None, archives: Iterable[ArchiveRecord], released: int
) -> model.ReapedFacts | None:
    """The files that a plan archives or skips; None if it moves everything and nothing was archived."""
    proven = [one for one in archives if one.state is ArchiveState.PROVEN]
    trees = () if reap is None else reap.trees
    to_archive = [tree for tree in trees if tree.action is ReapAction.ARCHIVE]
    skipped = [tree for tree in trees if tree.action is ReapAction.SKIP]
    if not (to_archive or skipped or proven):
        return None
    return model.ReapedFacts(
        to_archive_bytes=sum(tree.size_bytes for tree in to_archive),
        to_archive_inodes=sum(tree.files for tree in to_archive),
        skipped_bytes=sum(tree.size_bytes for tree in skipped),
        skipped_inodes=sum(tree.files for tree in skipped),
        archives=len(proven),
        archived_files=sum(one.written.members for one in proven),
        archived_bytes=sum(one.written.content_bytes for one in proven),
        archive_bytes=sum(one.written.archive_bytes for one in proven),
        released=released,
    )
