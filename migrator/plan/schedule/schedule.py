"""The conversion schedule of a plan, from the catalog, the ledger, the volume and the target."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.core.states import PassKind
from migrator.core.units import DAY_S, HOUR_S
from migrator.fs.model import Capacity, Need
from migrator.gluster.volume import VolumeOverview
from migrator.operations.ports import TreeMove
from migrator.plan.model import Batch, TransferCost, TreeUsage
from migrator.plan.rules_forecast import choose_growth, copy_s
from migrator.plan.schedule import rules
from migrator.plan.schedule.model import Schedule, ScheduledSubvolume, ScheduleInput
from migrator.plan.schedule.rules_drains import drain_cost, slower_in_drains
from migrator.plan.schedule.rules_habits import Habits, habits
from migrator.reap.model import PlanReap, ReapedTree
from migrator.site.config import Site
from migrator.site.model import ReapAction

if TYPE_CHECKING:
    from migrator.plan.records import PlanLedger
    from migrator.plan.store import CatalogQueries


class PlanScheduling(Struct, frozen=True, kw_only=True):
    """Input of a schedule beyond the plan: the volume now, or why it is unknown."""

    volume: VolumeOverview | None
    problem: str = ""


def schedule_for_plan(
    queries: "CatalogQueries",
    scheduling: PlanScheduling,
    ledger: "PlanLedger",
    *,
    site: Site,
    ranking: Sequence[TreeUsage],
    batches: Sequence[Batch],
    cost: TransferCost,
    reap: PlanReap | None,
    arrived: Mapping[bytes, Need],
    settled: Mapping[bytes, TreeMove],
    capacity: Capacity,
    now_s: float,
) -> Schedule:
    """The schedule of a plan in progress, by the measurements in the ledger, or one with only the problem. `settled`
    are the newest cutovers of trees whose users work on the target; `arrived` is the usage copied by earlier plans, by
    tree.
    """
    try:
        sets, placement = _bricks(queries, scheduling)
    except rules.NoSchedule as reason:
        return Schedule(problem=str(reason))
    reaped = {tree.tree.path: tree for tree in (reap.trees if reap else ())}
    usages = {usage.tree.path: usage for usage in ranking}
    slower = slower_in_drains(ledger.drains.copying(), cost)
    drains = drain_cost(ledger.drains.tallies())
    growth = choose_growth(
        ledger.capacity.all(span_s=HOUR_S),
        ledger.scans.all(),
        [one for plan in ledger.plans.names() for one in ledger.cutovers.of_plan(plan)],
        {tree.path: placement.of([tree.path]).all_bytes for tree in queries.record.trees},
        configured_bytes_per_day=site.capacity.growth_bytes_per_day,
    )
    usual = _habits(ledger)
    facts = ScheduleInput(
        subvolumes=sets,
        batches=tuple(
            rules.scheduled_batch(
                batch,
                usages,
                placement,
                arrived=arrived,
                reaped=reaped,
                archived_s=_archived_s(batch, reaped, cost),
                cost=cost,
                slower=slower,
                run_share=usual.run_share,
            )
            for batch in batches
        ),
        kept=rules.unpurged_sources(settled, placement, now_s=now_s, retain_s=site.cutover.retain_s),
        outside=placement.of([None]),
        target_total_bytes=capacity.total_bytes,
        target_free_bytes=capacity.free_bytes,
        target_inodes_free=site.target.inodes_free if capacity.free_inodes is None else capacity.free_inodes,
        max_fill=site.capacity.max_fill,
        reserve_bytes=site.transfer.reserve_bytes,
        growth_bytes_per_day=growth.bytes_per_day,
        retain_days=site.cutover.retain_s / DAY_S,
        trash_keep_days=site.transfer.trash_keep_s / DAY_S,
        purge_days_per_file=1.0 / (site.cutover.purge_rate * DAY_S),
        drain_days_per_byte=drains.s_per_byte / DAY_S,
        drain_days_per_file=drains.s_per_file / DAY_S,
        handover_days=rules.HANDOVER_DAYS,
        move_days=usual.move_days,
        begins_at_s=now_s,
        cutovers=site.cutover.times,
    )
    sentences = rules.assumptions(
        facts, copying=cost, slower=slower, drains=drains, growth=growth, reaped=reaped, habits=usual
    )
    schedule = rules.make_schedule(facts, assumptions=sentences)
    return replace(schedule, growth_basis=growth.basis)


def _habits(ledger: "PlanLedger") -> Habits:
    """How the site has worked under all plans."""
    span = ledger.samples.sampled_span()
    days = []
    if span is not None:
        first_s, last_s = span
        days = list(ledger.samples.throughput(from_s=first_s // DAY_S * DAY_S, to_s=last_s, span_s=DAY_S))
    waits = []
    for plan in ledger.plans.names():
        ends = {one.batch: one.finished_at_s for one in ledger.passes.of_plan(plan) if one.kind is PassKind.SEED}
        for cutover in ledger.cutovers.of_plan(plan):
            copied_at_s, moved_at_s = ends.get(cutover.batch), cutover.let_in_s
            if copied_at_s is not None and moved_at_s is not None and cutover.is_settled():
                waits.append((moved_at_s, moved_at_s - copied_at_s))
    return habits([(day.busy_s, day.span_s) for day in days], [wait_s for _, wait_s in sorted(waits)])


def _bricks(
    queries: "CatalogQueries", scheduling: PlanScheduling
) -> tuple[tuple[ScheduledSubvolume, ...], rules.Placement]:
    """The subvolumes, and the distribution of users over them. Raises NoSchedule."""
    if not queries.record.bricks:
        raise rules.NoSchedule(
            f"catalog {queries.record.name} was scanned through the mount, which does not show the bricks of files: "
            "run `migrator scan --via bricks`, and plan again"
        )
    if scheduling.volume is None:
        raise rules.NoSchedule(f"the bricks of the volume are unknown: {scheduling.problem}")
    sets = rules.scheduled_subvolumes(scheduling.volume.state, scheduling.volume.rooms)
    return sets, rules.Placement(sets, queries.brick_uses())


def _archived_s(batch: Batch, reaped: Mapping[bytes, ReapedTree], cost: TransferCost) -> float:
    """Time to read the files to archive, which the forecast of a batch does not include."""
    found = [reaped[tree.path] for tree in batch.trees if tree.path in reaped]
    archived = [tree for tree in found if tree.action is ReapAction.ARCHIVE]
    return copy_s(sum(tree.files for tree in archived), sum(tree.size_bytes for tree in archived), cost)
