"""The conversion schedule of a plan, from the catalog, the ledger, the volume and the target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from migrator.catalog.model import CatalogRecord
from migrator.core.units import DAY_S, HOUR_S
from migrator.cutover.model import CutoverRecord
from migrator.fs.model import Capacity, CapacitySample, Need
from migrator.gluster.volume import VolumeOverview
from migrator.plan.model import Batch, TransferCost, TreeUsage
from migrator.plan.rules_forecast import choose_growth, copy_s
from migrator.reap.model import PlanReap, ReapAction, ReapedTree
from migrator.schedule.model import Schedule, ScheduleFacts, StorageParts, TargetPart
from migrator.schedule.rules import (
    HANDOVER_DAYS,
    NoSchedule,
    Placement,
    Rates,
    assumptions,
    batch_facts,
    kept_facts,
    make_schedule,
    volume_facts,
)
from migrator.schedule.rules_drains import (
    MOVED_STATES,
    DrainCost,
    SlowerInDrains,
    drain_cost,
    drain_tally,
    slower_in_drains,
)
from migrator.site.config import Site

if TYPE_CHECKING:
    from migrator.ledger.ledger import Ledger
    from migrator.plan.store import CatalogQueries


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanScheduling:
    """Input of a schedule beyond the plan: the volume now, or why it is unknown; and the room of single storage targets, if
    known.
    """

    volume: VolumeOverview | None
    problem: str = ""
    storage: StorageParts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Measurements of this site so far, from the ledger. `cutovers` are all attempts of all plans."""

    slower: SlowerInDrains
    drains: DrainCost
    samples: Sequence[CapacitySample]
    catalogs: Sequence[CatalogRecord]
    cutovers: Sequence[CutoverRecord]


def read_history(ledger: "Ledger", cost: TransferCost) -> History:
    """Read the measurements from the ledger."""
    moved = [one for one in ledger.drains.all() if one.state in MOVED_STATES]
    return History(
        slower=slower_in_drains(ledger.drains.copying(), cost),
        drains=drain_cost([drain_tally(ledger.drains.samples(one.id)) for one in moved]),
        samples=ledger.capacity.all(span_s=HOUR_S),
        catalogs=ledger.scans.all(),
        cutovers=[one for plan in ledger.plans.names() for one in ledger.cutovers.of_plan(plan)],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """The plan so far. `settled` are the newest cutovers of trees whose users work on the target."""

    ranking: Sequence[TreeUsage]
    batches: Sequence[Batch]
    cost: TransferCost
    reap: PlanReap | None
    arrived: Mapping[bytes, Need]
    settled: Mapping[bytes, CutoverRecord]
    capacity: Capacity
    history: History
    now_s: float


def schedule_for_plan(
    queries: "CatalogQueries", scheduling: PlanScheduling, planned: Planned, *, site: Site
) -> Schedule:
    """The schedule, or one with only the problem."""
    try:
        return _schedule(queries, scheduling, planned, site)
    except NoSchedule as reason:
        return Schedule(problem=str(reason))


def _schedule(queries: "CatalogQueries", scheduling: PlanScheduling, planned: Planned, site: Site) -> Schedule:
    if not queries.record.bricks:
        raise NoSchedule(
            f"catalog {queries.record.name} was scanned through the mount, which does not tell who uses which brick: "
            "run `migrator scan --via bricks`, and plan again"
        )
    if scheduling.volume is None:
        raise NoSchedule(f"the bricks of the volume are not known: {scheduling.problem}")
    sets = volume_facts(scheduling.volume.state, scheduling.volume.rooms)
    placement = Placement(sets, queries.brick_uses())
    reaped = {tree.tree.path: tree for tree in (planned.reap.trees if planned.reap else ())}
    whole = TargetPart(total_bytes=planned.capacity.total_bytes, free_bytes=planned.capacity.free_bytes)
    inodes, storage = planned.capacity.free_inodes, scheduling.storage
    usages = {usage.tree.path: usage for usage in planned.ranking}
    history = planned.history
    growth = choose_growth(
        history.samples,
        history.catalogs,
        history.cutovers,
        {tree.path: placement.of([tree.path]).all_bytes for tree in queries.record.trees},
        configured_bytes_per_day=site.capacity.growth_bytes_per_day,
    )
    facts = ScheduleFacts(
        subvolumes=sets,
        batches=tuple(
            batch_facts(
                batch,
                usages,
                placement,
                arrived=planned.arrived,
                reaped=reaped,
                archived_s=_archived_s(batch, reaped, planned.cost),
                cost=planned.cost,
                slower=history.slower,
            )
            for batch in planned.batches
        ),
        kept=kept_facts(planned.settled, placement, now_s=planned.now_s, retain_s=site.cutover.retain_s),
        outside=placement.of([None]),
        target=(whole,) if storage is None else storage.parts,
        target_low_bytes=None if storage is None else storage.low_bytes,
        target_inodes_free=site.target.inodes_free if inodes is None else inodes,
        max_fill=site.capacity.max_fill,
        reserve_bytes=site.transfer.reserve_bytes,
        growth_bytes_per_day=growth.bytes_per_day,
        retain_days=site.cutover.retain_s / DAY_S,
        trash_keep_days=site.transfer.trash_keep_s / DAY_S,
        purge_days_per_file=1.0 / (site.cutover.purge_rate * DAY_S),
        drain_days_per_byte=history.drains.s_per_byte / DAY_S,
        drain_days_per_file=history.drains.s_per_file / DAY_S,
        handover_days=HANDOVER_DAYS,
    )
    rates = Rates(copying=planned.cost, slower=history.slower, drains=history.drains, growth=growth)
    schedule = make_schedule(facts, assumptions=assumptions(facts, rates, reaped))
    return replace(schedule, growth_basis=growth.basis)


def _archived_s(batch: Batch, reaped: Mapping[bytes, ReapedTree], cost: TransferCost) -> float:
    """Time to read what is archived, which the forecast of a batch does not include."""
    found = [reaped[tree.path] for tree in batch.trees if tree.path in reaped]
    archived = [tree for tree in found if tree.action is ReapAction.ARCHIVE]
    return copy_s(sum(tree.files for tree in archived), sum(tree.size_bytes for tree in archived), cost)
