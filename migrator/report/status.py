"""`status`: the progress of the migration now. Reads the ledger only; works at any time, also during a run."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from migrator import __version__
from migrator.bricks.add.rules import addition_blockers
from migrator.bricks.drain.rules_progress import drain_blockers
from migrator.bricks.progress import newest_of_bricks
from migrator.bricks.status import read_bricks
from migrator.catalog.model import VerificationRecord
from migrator.core.errors import MigratorError, UsageError
from migrator.core.states import PassKind, PassState
from migrator.core.units import HOUR_S, MINUTE_S
from migrator.core.windows import WindowStanding
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.cutover.rules_states import cutover_blockers, frozen_users, newest_attempts
from migrator.fs.model import Side
from migrator.ledger.locks import Holders, directories, is_at_work, of_tree
from migrator.ledger.model import Holder, RunRecord
from migrator.operations.run_files import last_heard_s
from migrator.plan.model import Plan, PlannedTree, ThroughputPoint, fit_cost, sum_of
from migrator.plan.rules import settled_trees
from migrator.plan.rules_forecast import choose_growth
from migrator.purge.model import SecondCopy
from migrator.report import model, rules, rules_blockers, rules_incidents
from migrator.report.rules_blockers import next_steps
from migrator.report.rules_forecast import forecast_copy, slot_width_s, slots_of
from migrator.report.rules_metrics import MetricFamily, families
from migrator.report.rules_milestones import is_copied, milestones, tree_courses
from migrator.site.config import Site
from migrator.transfer.delta.model import ChangeKind, Changes
from migrator.transfer.model import PassRecord
from migrator.transfer.rules_governor import governing_blockers
from migrator.transfer.tuning import read_governing

if TYPE_CHECKING:
    from migrator.report.records import ReportLedger

# --- Batches and their user trees, by passes


def read_passes(ledger: "ReportLedger", plan: str) -> Sequence[model.PassStatus]:
    """Every pass of a plan, oldest first."""
    changes = ledger.passes.changes_of_plan(plan)
    return [_pass(record, changes.get(record.id)) for record in ledger.passes.of_plan(plan)]


def _pass(record: PassRecord, changes: Changes | None) -> model.PassStatus:
    tallies = None if changes is None else {kind: changes.tally(kind) for kind in ChangeKind}
    return rules.of_record(model.PassStatus, record, changes=tallies)


def _whole(
    ledger: "ReportLedger",
    plans: Sequence[str],
    of_counting: Sequence[model.TreeStatus],
    cutovers: Sequence[CutoverRecord],
    not_taken: Sequence[bytes],
) -> tuple[tuple[model.TreeStatus, ...], Mapping[bytes, VerificationRecord], Mapping[bytes, float]]:
    """Every user tree of the migration, the newest proof of each, and the time of the first. `plans` are all that were
    active, the counting one last.
    """
    earlier = (read_batches(ledger, plan, read_passes(ledger, plan))[1] for plan in reversed(plans[:-1]))
    by_plan = [of_counting, *earlier]
    proofs: dict[bytes, VerificationRecord] = {}
    first: dict[bytes, float] = {}
    for plan, trees in zip(reversed(plans), by_plan, strict=True):
        for record in ledger.verifications.of_plan(plan):
            if record.whole and not any(record.differences.values()):
                covered = [one.tree.path for one in trees if one.batch == record.batch and record.covers(one.tree.path)]
                proofs |= {path: record for path in covered if path not in proofs or proofs[path].id < record.id}
                at_s = record.started_at_s if record.finished_at_s is None else record.finished_at_s
                first |= {path: min(first.get(path, at_s), at_s) for path in covered}
    return rules.over_all_plans(by_plan, {one.tree.path: one.state for one in cutovers}, not_taken), proofs, first


def _set_apart(ledger: "ReportLedger", plan: model.PlanFacts, cutovers: Sequence[CutoverRecord]) -> Sequence[bytes]:
    """The trees that a plan could not take, because its scan could not read them everywhere."""
    scan = ledger.scans.named(plan.catalog)
    newest = {one.tree.path: one for one in cutovers}
    moved = settled_trees({tree: newest[tree] for tree in (scan.set_apart if scan else ()) if tree in newest})
    return [tree for tree in (scan.set_apart if scan else ()) if tree not in moved]


def _rolled_back_since(
    plan: model.PlanFacts, own: Sequence[model.TreeStatus], cutovers: Sequence[CutoverRecord]
) -> Sequence[bytes]:
    """The trees that a plan left out because their users worked on the target, and that came back to the source later."""
    taken = {facts.tree.path for facts in own}
    back = (one for one in cutovers if one.state is CutoverState.ROLLED_BACK and one.since_s > plan.created_at_s)
    return [one.tree.path for one in back if one.tree.path not in taken]


def read_batches(
    ledger: "ReportLedger", plan: str, passes: Sequence[model.PassStatus]
) -> tuple[tuple[model.BatchStatus, ...], tuple[model.TreeStatus, ...]]:
    """The batches of a plan in their order, and its user trees by rank. `passes` are all passes of the plan, oldest first."""
    trees_of: dict[int, list[PlannedTree]] = defaultdict(list)
    for tree in ledger.plans.trees(plan):
        trees_of[tree.batch].append(tree)
    attention = ledger.facts.attention_counts(plan)
    verified = {record.batch: record for record in ledger.verifications.of_plan(plan) if not record.trees}
    predicted = {record.batch: record for record in ledger.predictions.of_plan(plan)}
    batches, trees = [], []
    for planned in ledger.facts.batches(plan):
        number = planned.number
        own = [one for one in passes if one.batch == number]
        sums = {one.id: ledger.facts.chunk_sums(one.id) for one in own if one.kind is PassKind.SEED or one is own[-1]}
        # The progress of a batch is that of its seed pass. Later passes carry changes.
        seed = next((one for one in reversed(own) if one.kind is PassKind.SEED), None)
        settled_sums = () if seed is None else _settled(ledger, sums[seed.id], own, trees_of[number])
        found = rules.tree_status(trees_of[number], settled_sums, planned.state, seed, plan)
        trees += found
        batches.append(
            model.BatchStatus(
                number=number,
                state=planned.state,
                tally=rules.add_up(found),
                users=tuple(dict.fromkeys(tree.tree.user for tree in found)),
                chunks=rules.chunk_counts(planned, sums[own[-1].id] if own else (), begun=bool(own)),
                passes=tuple(own),
                forecast_s=planned.forecast_s,
                attention=attention.get(number) or model.AttentionCount(bad=0, vanished=0),
                verification=verified.get(number),
                convergence=predicted.get(number),
            )
        )
    return tuple(batches), tuple(sorted(trees, key=lambda tree: tree.rank))


def _settled(
    ledger: "ReportLedger",
    sums: Sequence[model.ChunkSum],
    passes: Sequence[model.PassStatus],
    trees: Sequence[PlannedTree],
) -> Sequence[model.ChunkSum]:
    """The sums of a seed pass after the passes that followed: the newest finished one over a tree settles it."""
    left = {tree.tree.path for tree in trees}
    for one in reversed(passes):
        if one.kind is PassKind.SEED or one.state is not PassState.DONE or not left:
            continue
        changes = ledger.passes.changes(one.id)
        its_own = left if changes is None else left & {tree.tree for tree in changes.trees}
        sums = rules.settled(sums, ledger.facts.chunk_sums(one.id), its_own)
        left = left - its_own
    return sums


# --- The whole status


RATE_WINDOW_S = 5.0 * MINUTE_S
"""The current rate is a mean over minutes, because single samples vary a lot."""

DONE_POINTS = 400
"""The most points that a chart can show."""

_RUNS = 5
_SILENT_AFTER_S = 30.0
_COPYING_VERB = "run"


def read_status(
    ledger: "ReportLedger",
    *,
    now_s: float,
    plan: str | None = None,
    attention_limit: int = 20,
    events_limit: int = 10,
    holders: Holders = tuple,
    read_plan: model.ReadPlan | None = None,
    settings: model.ForecastSettings = model.DEFAULT_SETTINGS,
) -> model.MigrationStatus:
    """The current status of the whole migration, with the batches of `plan` (default: the active one); a site without a
    scan or a plan has a status too. By default no command runs. `read_plan` reads the schedule; without it, and if the
    document is missing or edited, dates that depend on it are unknown. Raises UsageError if the plan is not in the
    ledger.
    """
    document = None
    if read_plan is not None:
        document, _ = read_document(read_plan, chosen_plan(ledger, plan))
    return status_by(
        ledger,
        document,
        now_s=now_s,
        plan=plan,
        attention_limit=attention_limit,
        events_limit=events_limit,
        holders=holders,
        settings=settings,
    )


def forecast_settings(site: Site) -> model.ForecastSettings:
    """The settings of a site that the expected dates depend on."""
    return model.ForecastSettings(
        retain_s=site.cutover.retain_s,
        growth_bytes_per_day=site.capacity.growth_bytes_per_day,
        cutovers=site.cutover.times,
    )


def read_document(read_plan: model.ReadPlan, facts: model.PlanFacts | None) -> tuple[Plan | None, str]:
    """The document of a plan, or why there is none that counts."""
    if facts is None:
        return None, "there is no plan yet"
    try:
        plan, checksum = read_plan(facts.name)
    except MigratorError as error:
        return None, error.message
    if checksum != facts.checksum:
        return None, f"{facts.path} is not the recorded plan: its checksum differs"
    return plan, ""


def status_by(
    ledger: "ReportLedger",
    document: Plan | None,
    *,
    now_s: float,
    plan: str | None,
    attention_limit: int,
    events_limit: int,
    holders: Holders,
    settings: model.ForecastSettings,
) -> model.MigrationStatus:
    """As `read_status`, with the document of the plan."""
    site = ledger.site.read()
    chosen = chosen_plan(ledger, plan)
    scan = ledger.scans.unfinished() or ledger.scans.latest()
    batches: tuple[model.BatchStatus, ...] = ()
    trees: tuple[model.TreeStatus, ...] = ()
    proofs: Mapping[bytes, VerificationRecord] = {}
    verified: Mapping[bytes, float] = {}
    apart: Sequence[bytes] = ()
    returned: Sequence[bytes] = ()
    over: Collection[int] = ()
    cutovers = newest_attempts(ledger.cutovers.all())
    if chosen is not None:
        batches, own = read_batches(ledger, chosen.name, read_passes(ledger, chosen.name))
        apart = _set_apart(ledger, chosen, cutovers)
        returned = _rolled_back_since(chosen, own, cutovers)
        trees, proofs, verified = _whole(ledger, _plans_until(ledger, chosen.name), own, cutovers, (*apart, *returned))
        over = rules.verified_otherwise(batches, own, trees, proofs)
    overall = rules.add_up(trees)
    forecast = _forecast(ledger, trees, overall, now_s=now_s, settings=settings)
    at_work, runs = _at_work(ledger, now_s, holders)
    copying = [run for run in runs if run.verb == _COPYING_VERB and run.life is model.RunLife.AT_WORK]
    rate = _rate(ledger, now_s, copying[-1]) if copying else None
    last_rate = rate or _last_rate(ledger, runs)
    bricks = read_bricks(ledger)
    retirement = ledger.retirements.newest()
    held = {name for holder in at_work for name in holder.names}
    verbs = {run.verb for run in runs if run.life in model.ALIVE}
    governing = read_governing(ledger, at_work=at_work)
    name = None if site is None else site.name
    blocked = (
        *cutover_blockers(cutovers, at_work=[one.tree.path for one in cutovers if of_tree(one.tree.path) in held]),
        *governing_blockers(governing),
        *drain_blockers(bricks.drains, at_work=bool(verbs & {"brick-drain", "brick-stop"}), now_s=now_s),
        *addition_blockers(bricks.additions, at_work="brick-add" in verbs, now_s=now_s),
        *rules_blockers.blockers(
            scan=scan,
            scanning="scan" in held,
            plan=chosen,
            batches=batches,
            runs=runs,
            strange=ledger.scans.strange(),
            set_apart=apart,
            returned=returned,
            over=over,
        ),
    )
    return model.MigrationStatus(
        at_s=now_s,
        site=name,
        frozen=frozen_users(cutovers, at_work=lambda tree: of_tree(tree) in held),
        scan=scan,
        plan=chosen,
        storage=tuple(ledger.capacity.storage()),
        overall=overall,
        verified=rules.add_up(trees, counts=rules.PROVEN),
        verified_content_bytes=rules.verified_content_bytes(trees, proofs),
        moved=rules.add_up(trees, counts=rules.MOVED),
        batches=batches,
        trees=trees,
        forecast=forecast,
        milestones=()
        if chosen is None
        else milestones(
            now_s=now_s,
            overall=overall,
            trees=trees,
            forecast=forecast,
            copied_at_s=_end_of_copying(ledger, trees, now_s) if is_copied(overall, trees) else None,
            courses=tree_courses(trees, copied=_copied_at(ledger, trees), verified=verified, cutovers=cutovers),
            plan=document,
            drains=newest_of_bricks(ledger.drains.all()),
            standings=bricks.drains,
            additions=bricks.additions,
            retirement=retirement,
            retain_s=settings.retain_s,
            cutover_times=settings.cutovers,
        ),
        rate=rate,
        last_rate=last_rate,
        attention=tuple(ledger.facts.attention(chosen.name, attention_limit)) if chosen else (),
        attention_total=sum(batch.attention.bad for batch in batches),
        vanished_total=sum(batch.attention.vanished for batch in batches),
        runs=tuple(runs),
        events=rules_incidents.seen_events(
            ledger.facts.incidents(events_limit),
            ledger.facts.endings(rules_incidents.ENDING_KINDS),
        ),
        blocked=blocked,
        next_steps=next_steps(
            site=name,
            scan=scan,
            plan=chosen,
            batches=batches,
            trees=trees,
            cutovers=cutovers,
            busy={verb.partition(" ")[0] for verb in verbs} | {one.subject for one in blocked},
            over=over,
        ),
        at_work=tuple(at_work),
        cutovers=tuple(cutovers),
        archives=_archives(ledger, cutovers),
        probes=tuple(ledger.probes.newest()),
        drains=bricks.drains,
        additions=bricks.additions,
        retirement=retirement,
        governing=governing,
    )


def _end_of_copying(ledger: "ReportLedger", trees: Sequence[model.TreeStatus], now_s: float) -> float | None:
    """When seed passes last copied something; None if no stream has."""
    copied = ledger.facts.copied(trees_by_plan(trees).keys(), span_s=MINUTE_S)
    return min(copied[-1].at_s, now_s) if copied else None


def _copied_at(ledger: "ReportLedger", trees: Sequence[model.TreeStatus]) -> Mapping[bytes, float]:
    """When the seed pass over each tree ended, by the plan that counts for it."""
    ends = {
        (one.plan, one.batch): one.finished_at_s
        for plan in trees_by_plan(trees)
        for one in ledger.passes.of_plan(plan)
        if one.kind is PassKind.SEED and one.finished_at_s is not None
    }
    return {tree.tree.path: at_s for tree in trees if (at_s := ends.get((tree.plan, tree.batch))) is not None}


def _growth_per_day(
    ledger: "ReportLedger", trees: Sequence[model.TreeStatus], settings: model.ForecastSettings
) -> float:
    """The growth of the source, as a share of what its users have."""
    held = (model.TreeState.PURGED, model.TreeState.EXCLUDED)
    sizes = {tree.tree.path: tree.tally.total_bytes for tree in trees if tree.state not in held}
    growth = choose_growth(
        ledger.capacity.all(span_s=HOUR_S),
        ledger.scans.all(),
        ledger.cutovers.all(),
        sizes,
        configured_bytes_per_day=settings.growth_bytes_per_day,
    )
    return growth.bytes_per_day / max(sum(sizes.values()), 1)


def _forecast(
    ledger: "ReportLedger",
    trees: Sequence[model.TreeStatus],
    tally: model.ProgressCounts,
    *,
    now_s: float,
    settings: model.ForecastSettings,
) -> model.CopyForecast | None:
    if is_copied(tally, trees):
        return None
    began_s = first_start(ledger, trees)
    if began_s is None or began_s >= now_s:
        return None
    width_s = slot_width_s(now_s - began_s)
    plans = trees_by_plan(trees).keys()
    copied = ledger.facts.copied(plans, span_s=width_s)
    slots = slots_of([(point.at_s, point.files, point.size_bytes) for point in copied], from_s=began_s, now_s=now_s)
    groups = ledger.facts.cost_groups(plans)
    cost = fit_cost(sum_of(groups), streams=1)
    if cost is None:
        return None
    return forecast_copy(
        now_s=now_s,
        slots=_without_repeats(slots, tally.done_files, tally.done_bytes),
        left=tally,
        cost=cost,
        cost_groups=groups,
        growth_per_day=_growth_per_day(ledger, trees, settings),
    )


def _without_repeats(slots: Sequence[model.WorkSlot], done_files: int, done_bytes: int) -> Sequence[model.WorkSlot]:
    """Slots scaled to the work done: streams count repeated transfers, but not files that were already on the
    target.
    """
    files, size_bytes = sum(slot.files for slot in slots), sum(slot.size_bytes for slot in slots)
    by_files = done_files / files if files else 1.0
    by_bytes = done_bytes / size_bytes if size_bytes else 1.0
    return [
        replace(slot, files=round(slot.files * by_files), size_bytes=round(slot.size_bytes * by_bytes))
        for slot in slots
    ]


def _archives(ledger: "ReportLedger", cutovers: Sequence[CutoverRecord]) -> tuple[SecondCopy, ...]:
    copies = ledger.second_copies.all()
    plans = {one.plan for one in cutovers} if copies else set()
    digests = {one.id: one.manifest_digest for plan in plans for one in ledger.verifications.of_plan(plan)}
    now = {one.tree.path: digests.get(one.notes.verification_id or 0) for one in cutovers}
    return tuple(one for one in copies if one.manifests == now.get(one.tree))


def _rate(ledger: "ReportLedger", until_s: float, run: model.RunStatus | None) -> ThroughputPoint | None:
    """The throughput in the minutes before a time; None if no stream was at work. It does not reach back before the
    run: an earlier run may have had other limits.
    """
    from_s = until_s - RATE_WINDOW_S
    if run is not None and run.started_at_s < until_s:
        from_s = max(from_s, run.started_at_s)
    return work_between(ledger, from_s, until_s)


def work_between(ledger: "ReportLedger", from_s: float, to_s: float) -> ThroughputPoint | None:
    """The throughput of a span; None if no stream was at work, or for an empty span."""
    span_s = to_s - from_s
    found = ledger.samples.throughput(from_s=from_s, to_s=to_s, span_s=2.0 * span_s) if span_s > 0 else ()
    point = rules.together(found)
    return None if point is None else replace(point, at_s=to_s, span_s=span_s)


def _last_rate(ledger: "ReportLedger", runs: Sequence[model.RunStatus]) -> ThroughputPoint | None:
    """The throughput of the last minutes in which something was copied."""
    span = ledger.samples.sampled_span()
    if span is None:
        return None
    run = next((run for run in runs if run.verb == _COPYING_VERB and run.started_at_s < span[1]), None)
    return _rate(ledger, span[1], run)


def _plans_until(ledger: "ReportLedger", plan: str) -> Sequence[str]:
    """The plans that were active before a plan, and this one last."""
    activated = ledger.plans.activated()
    return [*activated[: activated.index(plan)], plan] if plan in activated else [*activated, plan]


def trees_by_plan(trees: Sequence[model.TreeStatus]) -> Mapping[str, Sequence[bytes]]:
    """The trees that each plan counts."""
    found: dict[str, list[bytes]] = defaultdict(list)
    for tree in trees:
        if tree.state is not model.TreeState.EXCLUDED:
            found[tree.plan].append(tree.tree.path)
    return found


def first_start(ledger: "ReportLedger", trees: Sequence[model.TreeStatus]) -> float | None:
    """The start of copying; None before it."""
    return min((one.started_at_s for plan in trees_by_plan(trees) for one in ledger.passes.of_plan(plan)), default=None)


def read_done(
    ledger: "ReportLedger", trees: Sequence[model.TreeStatus], *, now_s: float, started_at_s: float | None
) -> Sequence[model.DonePoint]:
    """The course of the progress, in at most as many points as a chart can show."""
    if started_at_s is None:
        return ()
    span_s = rules.span_width(max(now_s - started_at_s, 1.0), DONE_POINTS)
    return rules.with_rests(ledger.facts.done(trees_by_plan(trees), span_s=span_s), span_s)


def chosen_plan(ledger: "ReportLedger", name: str | None) -> model.PlanFacts | None:
    """The plan of that name, or the active one. Raises UsageError if it is not in the ledger."""
    if name is None:
        active = ledger.plans.active()
        return None if active is None else ledger.facts.plan(active.name)
    found = ledger.facts.plan(name)
    if found is None:
        raise UsageError(
            f"no plan is named {name} in the ledger",
            cause="the name is mistyped, or the plan was made for another site",
            hint="omit the name for the active plan, or see the files in plans/",
        )
    return found


def _at_work(
    ledger: "ReportLedger", now_s: float, holders: Holders
) -> tuple[Sequence[Holder], Sequence[model.RunStatus]]:
    """Everyone who holds a lock; the runs at work and the newest runs, newest first."""
    before = ledger.runs.latest()
    at_work = holders()
    # Read after the locks: a run records its end before it releases its lock.
    records = ledger.runs.newest(_RUNS, directories(at_work))
    begun_since = {record.id for record in records if before is None or record.id > before.id}
    return at_work, [
        run_status(record, now_s, held=record.id in begun_since or is_at_work(record, at_work)) for record in records
    ]


def run_status(record: RunRecord, now_s: float, *, held: bool) -> model.RunStatus:
    """One run; `held`: its lock is held, so its process lives."""
    silent_s = max(now_s - last_heard_s(record), 0.0)
    if record.finished_at_s is not None:
        life = model.RunLife.ENDED
    elif not held:
        life = model.RunLife.KILLED
    else:
        life = model.RunLife.SILENT if silent_s > _SILENT_AFTER_S else model.RunLife.AT_WORK
    return rules.of_record(model.RunStatus, record, life=life, silent_s=silent_s)


# --- Metrics: all in one snapshot of the ledger


def read_metrics(
    ledger: "ReportLedger",
    *,
    now_s: float,
    plan: str | None = None,
    holders: Holders = tuple,
    windows: Sequence[WindowStanding] = (),
    read_plan: model.ReadPlan | None = None,
    settings: model.ForecastSettings = model.DEFAULT_SETTINGS,
) -> tuple[MetricFamily, ...]:
    """Every current metric. Batches are those of `plan` (default: the active one); everything else covers all plans.
    `windows` are the current windows of [transfer]; `read_plan` and `settings` as in `read_status`. Raises UsageError if the plan is not in the ledger.
    """
    status = read_status(
        ledger,
        now_s=now_s,
        plan=plan,
        holders=holders,
        attention_limit=0,
        events_limit=0,
        read_plan=read_plan,
        settings=settings,
    )
    shown = {run.id for run in status.runs}
    older = [
        run_status(record, now_s, held=False)
        for record in ledger.metrics.newest_runs()
        if record.id < max(shown, default=0) and record.id not in shown
    ]
    runs = sorted((*status.runs, *older), key=lambda run: (run.life in model.ALIVE, run.id))
    newest = {sample.side: sample for sample in ledger.capacity.all()}
    frozen = [one.frozen_since_s for one in ledger.cutovers.under_way()]
    facts = model.MetricFacts(
        status=status,
        sums=ledger.metrics.sums(),
        runs=tuple({run.verb: run for run in runs}.values()),
        capacity=tuple(newest[side] for side in Side if side in newest),
        governing=replace(status.governing, windows=tuple(windows)),
        frozen_since_s=tuple(since_s for since_s in frozen if since_s is not None),
        version=__version__,
    )
    return families(facts)
