"""The plan of a migration: ranking, batches, chunk lists, surprises, forecast. Nothing on either file system changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from migrator.config.site import Site
from migrator.decide.batching import BatchLimits, LinkSpan, batch_trees, without_trees
from migrator.decide.forecast import choose_cost, inodes_known
from migrator.decide.ordering import emptying_curves
from migrator.decide.ranking import rank
from migrator.decide.schedule_words import schedule_problem
from migrator.decide.surprises import (
    finding_surprises,
    link_surprises,
    outside_surprises,
    quota_surprises,
    sort_surprises,
    symlink_surprises,
)
from migrator.domain.errors import Refused, UsageError
from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.paths import RSYNC_PATH_LIMIT_BYTES, show
from migrator.domain.plan import Batch, Order, Plan, Surprise, TransferCost, TreeUsage
from migrator.domain.reap import PlanReap
from migrator.domain.scan import CatalogRecord
from migrator.domain.schedule import Schedule
from migrator.domain.site import Capacity, Need, TargetCapabilities
from migrator.domain.units import format_size, several
from migrator.ports.clock import Clock
from migrator.ports.ledger import Ledger
from migrator.ports.plans import NewPlans
from migrator.ports.site import SiteRecord
from migrator.ports.usage import CatalogQueries, CatalogReader, ChunkListWriter, Usages
from migrator.stages.plan_batches import BatchWriter
from migrator.stages.plan_catalog import choose_catalog, moved_trees, require_usable
from migrator.stages.plan_quotas import AskLimits, no_limits, quota_problems
from migrator.stages.plan_reaping import PlanReaping, reap_for_plan
from migrator.stages.plan_schedule import Planned, PlanScheduling, read_history, schedule_for_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest:
    """What was asked for. `name` None: the next free one; `catalog` None: the newest that was finished."""

    name: str | None = None
    catalog: str | None = None
    order: Order = Order.HEAVIEST
    accept_unknown_inodes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """The plan as written. `plan.problems` says what speaks against relying on it. `left_out` are the user trees of the
    catalog that are in no batch, because their users work on the target.
    """

    plan: Plan
    path: str
    checksum: str
    left_out: tuple[bytes, ...] = ()


def make_plan(
    request: PlanRequest,
    *,
    site: Site,
    catalogs: CatalogReader,
    documents: NewPlans,
    lists: ChunkListWriter,
    ledger: Ledger,
    quotas: Sequence[tuple[bytes, int]],
    capacity: Capacity,
    clock: Clock,
    reaping: PlanReaping | None = None,
    scheduling: PlanScheduling | None = None,
    limits: AskLimits = no_limits,
) -> PlanResult:
    """Make a plan, write its chunk lists and its document, and record it.

    `quotas` are the source's limits, `capacity` is the target's room now. A plan is written also where the target has
    not the room for all batches, or not even for the first: planning is how that is found out, and room comes as the
    migration goes on. Such batches have `fits` False and are named in `problems`; it is `run` that refuses them.
    `limits` tells the limits of users on the target, by their numbers; who would be beyond his is a problem too.
    Without `reaping` the rules of [reap] count for nothing, without `scheduling` there is no conversion schedule. Trees whose users work on the target are left out.

    Raises UsageError where there is no site, no scan, no user tree, or the name is taken; Refused where the catalog is
    half written or another site's, and where the target does not tell its inodes and nobody else did.
    """
    record = ledger.site.read()
    if record is None:
        raise UsageError(
            "this site has no record in the ledger", cause="`init` was not run", hint="run `migrator init`"
        )
    _require_inodes(capacity, site.target.inodes_free, request)
    name = _next_name(documents, ledger) if request.name is None else request.name
    documents.require_free(name)
    with catalogs.open(choose_catalog(request.catalog, ledger)) as queries:
        require_usable(queries.record, record)
        moved = moved_trees(queries.record, ledger)
        maker = _Maker(
            request=request,
            site=site,
            record=record,
            capacity=capacity,
            arrived=ledger.passes.arrived(before_plan=name),
            now_s=clock.now_s(),
            reaping=reaping,
            scheduling=scheduling,
            moved=moved,
            limits=limits,
        )
        plan = maker.make(name, queries, lists, ledger, quotas)
    path, checksum = documents.write(plan)
    ledger.plans.record(plan, path=path, checksum=checksum)
    ledger.events.add(_written(plan, clock.now_s()))
    return PlanResult(plan=plan, path=path, checksum=checksum, left_out=tuple(sorted(moved)))


def _next_name(documents: NewPlans, ledger: Ledger) -> str:
    """The next name that neither a document has nor a plan that the ledger remembers without its document."""
    return documents.next_name(taken=ledger.plans.names())


def _require_inodes(capacity: Capacity, inodes_free: int | None, request: PlanRequest) -> None:
    if inodes_known(capacity, inodes_free) or request.accept_unknown_inodes:
        return
    raise Refused(
        "it is not known how many files the target can take: its file system reports 0 inodes, which means unknown",
        cause="BeeGFS and some others do not count inodes in statfs",
        hint="set [target] inodes_free (BeeGFS: `beegfs target list --capacity`, the metadata targets), "
        "or plan with --accept-unknown-inodes",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Maker:
    """One planning, once it is known that it may go ahead."""

    request: PlanRequest
    site: Site
    record: SiteRecord
    capacity: Capacity
    arrived: Mapping[bytes, Need]
    now_s: float
    reaping: PlanReaping | None
    scheduling: PlanScheduling | None
    moved: frozenset[bytes]
    limits: AskLimits

    def make(
        self,
        name: str,
        queries: CatalogQueries,
        lists: ChunkListWriter,
        ledger: Ledger,
        quotas: Sequence[tuple[bytes, int]],
    ) -> Plan:
        catalog = queries.record
        usages = queries.usages(now_s=self.now_s)
        spans = without_trees(queries.link_spans(), self.moved)
        ranking = tuple(rank([one for one in usages.trees if one.tree.path not in self.moved], self.request.order))
        cost = choose_cost(ledger.samples.measured_cost(), self.site.transfer.jobs)
        parts = batch_trees(ranking, spans, self._batch_limits())
        surprises = self._surprises(queries, usages, spans, parts, quotas)
        reap = self._reap(name, queries, ranking, cost)
        writer = BatchWriter(site=self.site, capacity=self.capacity, arrived=self.arrived)
        batches, problems = writer.write(name, queries, lists, parts, cost)
        schedule = self._schedule(queries, ledger, ranking=ranking, batches=batches, cost=cost, reap=reap)
        owners = tuple(one for one in queries.owners() if one.tree not in self.moved)
        return Plan(
            name=name,
            site=self.record.name,
            site_id=self.record.site_id,
            created_at_s=self.now_s,
            order=self.request.order,
            catalog=catalog.name,
            scan_id=catalog.scan_id,
            catalog_whole=catalog.whole,
            size_bytes=_bytes_once(ranking, spans),
            files=sum(usage.files for usage in ranking),
            directories=sum(usage.directories for usage in ranking),
            ranking=ranking,
            outside=usages.outside,
            batches=batches,
            surprises=surprises,
            cost=cost,
            forecast_s=sum(batch.forecast_s for batch in batches),
            target=self.capacity,
            problems=(
                *self._catalog_problems(catalog, ledger),
                *problems,
                *quota_problems(self.limits, owners, ranking, arrived=self.arrived, reap=reap, meant=bool(quotas)),
                *_schedule_problems(schedule, self.now_s),
            ),
            emptying=emptying_curves(ranking, cost),
            reap=reap,
            schedule=schedule,
            owners=owners,
        )

    def _reap(
        self, name: str, queries: CatalogQueries, ranking: Sequence[TreeUsage], cost: TransferCost
    ) -> PlanReap | None:
        if self.reaping is None:
            return None
        trees = {usage.tree.path for usage in ranking}
        return reap_for_plan(name, queries, self.reaping, site=self.site, trees=trees, cost=cost, now_s=self.now_s)

    def _schedule(
        self,
        queries: CatalogQueries,
        ledger: Ledger,
        *,
        ranking: Sequence[TreeUsage],
        batches: Sequence[Batch],
        cost: TransferCost,
        reap: PlanReap | None,
    ) -> Schedule | None:
        if self.scheduling is None:
            return None
        planned = Planned(
            ranking=ranking,
            batches=batches,
            cost=cost,
            reap=reap,
            arrived=self.arrived,
            settled={tree: record for tree in self.moved if (record := ledger.cutovers.latest(tree)) is not None},
            capacity=self.capacity,
            history=read_history(ledger, cost),
            now_s=self.now_s,
        )
        return schedule_for_plan(queries, self.scheduling, planned, site=self.site)

    def _batch_limits(self) -> BatchLimits:
        limits = self.site.batch
        return BatchLimits(max_bytes=limits.max_bytes, max_files=limits.max_files, max_users=limits.max_users)

    def _surprises(
        self,
        queries: CatalogQueries,
        usages: Usages,
        spans: Sequence[LinkSpan],
        parts: Sequence[Sequence[TreeUsage]],
        quotas: Sequence[tuple[bytes, int]],
    ) -> tuple[Surprise, ...]:
        trees = frozenset(usage.tree.path for usage in usages.trees)
        batch_of = {usage.tree.path: number for number, part in enumerate(parts, start=1) for usage in part}
        source_root = bytes(self.site.source.mount)
        known = self.record.capabilities
        findings = queries.findings(
            known or TargetCapabilities(), long_path_bytes=RSYNC_PATH_LIMIT_BYTES - len(source_root) - 1
        )
        if known is None:
            # What the target keeps was not probed: rather say so (in the problems) than name the losses of another.
            findings = [finding for finding in findings if not finding.kind.startswith("loss-")]
        return sort_surprises(
            (
                *link_surprises(spans, batch_of),
                *symlink_surprises(queries.symlinks(), trees, source_root),
                *quota_surprises(quotas, trees),
                *outside_surprises(usages.outside, usages.outside_examples),
                *finding_surprises(findings, known or TargetCapabilities(), trees),
            )
        )

    def _catalog_problems(self, catalog: CatalogRecord, ledger: Ledger) -> Iterator[str]:
        if not catalog.whole:
            reasons = "; ".join(catalog.reasons) or "no reason is recorded"
            yield f"the catalog is not whole, so this plan may miss files: {reasons}"
        newer = ledger.scans.unfinished()
        if newer is not None and newer.scan_id > catalog.scan_id:
            yield f"a newer scan ({newer.name}) is not finished; this plan rests on {catalog.name}"
        if self.record.capabilities is None:
            yield "what the target keeps of a file is not known yet, so losses are not listed: run `migrator doctor`"


def _schedule_problems(schedule: Schedule | None, begins_at_s: float) -> tuple[str, ...]:
    problem = None if schedule is None else schedule_problem(schedule, begins_at_s)
    return () if problem is None else (problem,)


def _bytes_once(ranking: Sequence[TreeUsage], spans: Sequence[LinkSpan]) -> int:
    """Bytes of all trees, with link groups over several of them counted once."""
    again = sum(span.size_bytes * (len(span.trees - {None}) - 1) for span in spans)
    return sum(usage.size_bytes for usage in ranking) - again


def _told(problems: Sequence[str]) -> str:
    if not problems:
        return ""
    more = f" (and {several(len(problems) - 1, 'other problem')})" if len(problems) > 1 else ""
    return f". {problems[0]}{more}"


def _written(plan: Plan, at_s: float) -> Event:
    heaviest = show(plan.ranking[0].tree.path)
    return Event(
        at_s=at_s,
        kind=EventKind.PLAN_WRITTEN,
        severity=Severity.WARNING if plan.problems else Severity.INFO,
        subject=f"plan {plan.name}",
        message=(
            f"{several(len(plan.batches), 'batch', 'batches')} of {several(len(plan.ranking), 'user tree')}, {several(plan.files, 'file')}, "
            f"{format_size(plan.size_bytes)}; {plan.order} first: {heaviest}{_told(plan.problems)}"
        ),
    )
