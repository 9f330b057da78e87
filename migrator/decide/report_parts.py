"""Bricks, room and what was reaped, as a report tells them. Pure."""

import math
from collections.abc import Iterable, Iterator, Sequence

from migrator.domain.archives import ArchiveRecord, ArchiveState
from migrator.domain.capacity import CapacityOutlook, CapacitySample, Side
from migrator.domain.drain import OUT_STATES, UNDER_WAY_STATES, DrainState
from migrator.domain.drain_standing import DrainStanding
from migrator.domain.forecast import CopyForecast
from migrator.domain.plan import Plan
from migrator.domain.reap import PlanReap, ReapAction, ReapedTree
from migrator.domain.report import Tally
from migrator.domain.report_parts import BrickOutlook, ReapedFacts, ServerOutlook
from migrator.domain.retirement import RetirementRecord, RetirementState
from migrator.domain.units import DAY_S

_SCHEDULED = "by the schedule of the plan; bytes are the most that its drain has to move"
_LATE = "late: by the schedule of the plan it would be free by now; a new plan says when it can be"


def brick_outlooks(
    drains: Sequence[DrainStanding],
    plan: Plan | None,
    *,
    now_s: float,
    retirement: RetirementRecord | None = None,
) -> tuple[BrickOutlook, ...]:
    """Every brick that was drained or is in the schedule, in that order. What drains say comes before what was planned, and once
    the volume is retired no brick is in it any more.
    """
    found = {outlook.brick: outlook for drain in drains for outlook in _of_drain(drain, now_s)}
    for outlook in _of_schedule(plan, now_s):
        known = found.get(outlook.brick)
        if known is None or known.state == DrainState.STOPPED:
            found[outlook.brick] = outlook
    if retirement is None or retirement.state is not RetirementState.RETIRED:
        return tuple(found.values())
    out = {state.value for state in OUT_STATES}
    return tuple(one if one.state in out else _retired(one, retirement) for one in found.values())


def _retired(brick: BrickOutlook, retirement: RetirementRecord) -> BrickOutlook:
    at_s = retirement.intended_at_s if retirement.ended_at_s is None else retirement.ended_at_s
    return BrickOutlook(
        brick=brick.brick,
        state=retirement.state.value,
        left_files=0,
        left_bytes=0,
        free_at_s=at_s,
        basis="the volume is stopped for good, and everything in it is proven to be on the target",
    )


def _of_drain(drain: DrainStanding, now_s: float) -> Iterator[BrickOutlook]:
    out = drain.state in OUT_STATES
    free_at_s, basis = None, ""
    if out:
        free_at_s, basis = drain.since_s, "it is out of the volume"
    elif drain.state in UNDER_WAY_STATES and drain.left_s is not None:
        free_at_s, basis = now_s + drain.left_s, "by the pace of the drain, before its audit"
    for brick in drain.bricks:
        yield BrickOutlook(
            brick=brick,
            state=drain.state.value,
            left_files=0 if out else drain.left_files,
            left_bytes=0 if out else drain.left_bytes,
            free_at_s=free_at_s,
            basis=basis,
        )


def _of_schedule(plan: Plan | None, now_s: float) -> Iterator[BrickOutlook]:
    if plan is None or plan.schedule is None or not plan.schedule.orders:
        return
    for step in plan.schedule.orders[0].outcome.subvolumes:
        for brick in step.bricks:
            free_at_s = None if step.cleared_day is None else plan.created_at_s + step.cleared_day * DAY_S
            late = free_at_s is not None and free_at_s < now_s
            yield BrickOutlook(
                brick=brick,
                state="in the volume",
                left_files=None,
                left_bytes=step.moved_bytes,
                free_at_s=None if late else free_at_s,
                basis=_LATE if late else _SCHEDULED,
            )


def server_outlooks(bricks: Sequence[BrickOutlook], plan: Plan | None) -> tuple[ServerOutlook, ...]:
    """Every server with a brick among these, by name. None without a schedule: only that knows all bricks of a server."""
    if plan is None or plan.schedule is None or not plan.schedule.orders:
        return ()
    found: dict[str, list[BrickOutlook]] = {}
    for one in bricks:
        found.setdefault(one.brick.partition(":/")[0], []).append(one)
    return tuple(_server(server, own) for server, own in sorted(found.items()))


def _server(server: str, own: Sequence[BrickOutlook]) -> ServerOutlook:
    last = max(own, key=lambda one: math.inf if one.free_at_s is None else one.free_at_s)
    out = {RetirementState.RETIRED.value, *(state.value for state in OUT_STATES)}
    return ServerOutlook(
        server=server,
        bricks=len(own),
        free_bricks=sum(one.state in out for one in own),
        free_at_s=last.free_at_s,
        basis=last.basis,
    )


def target_outlook(
    samples: Sequence[CapacitySample], left: Tally, forecast: CopyForecast | None, *, now_s: float
) -> CapacityOutlook | None:
    """How full the target will be when all is copied; None before it was ever looked at, and when all is copied: then it is as
    it was seen. What is left goes on top of the newest sample.
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


def reaped_facts(reap: PlanReap | None, archives: Iterable[ArchiveRecord], released: int) -> ReapedFacts | None:
    """What a plan does not move as it is; None where it moves everything and nothing was archived."""
    proven = [one for one in archives if one.state is ArchiveState.PROVEN]
    trees: Sequence[ReapedTree] = () if reap is None else reap.trees
    to_archive = [tree for tree in trees if tree.action is ReapAction.ARCHIVE]
    skipped = [tree for tree in trees if tree.action is ReapAction.SKIP]
    if not (to_archive or skipped or proven):
        return None
    return ReapedFacts(
        to_archive_bytes=sum(tree.size_bytes for tree in to_archive),
        to_archive_inodes=sum(tree.inodes for tree in to_archive),
        skipped_bytes=sum(tree.size_bytes for tree in skipped),
        skipped_inodes=sum(tree.inodes for tree in skipped),
        archives=len(proven),
        archived_files=sum(one.written.members for one in proven),
        archived_bytes=sum(one.written.content_bytes for one in proven),
        archive_bytes=sum(one.written.archive_bytes for one in proven),
        released=released,
    )
