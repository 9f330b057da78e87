"""`report`: history, forecast and proofs for management. Reads the ledger only; works at any time, also during a run."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from migrator.bench.model import BenchmarkResult, BenchmarkState
from migrator.bricks.add.model import AdditionState
from migrator.bricks.drain.model import DrainState
from migrator.core.errors import ExitCode, Interrupted, Refused
from migrator.core.paths import show
from migrator.core.tasks import Blocking
from migrator.core.units import DAY_S, HOUR_S
from migrator.cutover.announce import hook_calls
from migrator.cutover.records import ended_freezes
from migrator.cutover.rules_speed import sums, users_of
from migrator.hooks.calls import HookedStep, Hooks, HookSkipped, find_hooks
from migrator.hooks.model import HookEvent, HookFacts, HookStep
from migrator.hooks.rules import in_order
from migrator.ledger.locks import Holders
from migrator.operations.run_files import CallPorts
from migrator.plan.document import PlanFiles
from migrator.plan.model import Plan, ThroughputPoint, UsageRanking
from migrator.plan.usage import compare_usage
from migrator.report import model, rules, rules_history, rules_incidents, rules_outlook, rules_promise
from migrator.report.status import chosen_plan, first_start, read_document, read_done, status_by, work_between

if TYPE_CHECKING:
    from migrator.report.records import ReportLedger

CHART_POINTS = 240
"""The most spans that a chart on paper can show."""

NOTHING_EARLIER = model.EarlierReports()

INCIDENTS = 200
_ATTENTION, _EVENTS = 200, 30

_DAYS_FOR_DAYS = 3.0
"""From this length on, the history is shown by the day, before by the hour."""


def read_report(
    ledger: "ReportLedger",
    plans: PlanFiles,
    *,
    now_s: float,
    plan: str | None = None,
    holders: Holders = tuple,
    against: model.EarlierReports = NOTHING_EARLIER,
    usage: UsageRanking | None = None,
    settings: model.ForecastSettings = model.DEFAULT_SETTINGS,
) -> model.ReportFacts:
    """The report, with the batches of `plan` (default: the active one), compared with earlier reports; `usage` is what
    was known before the scan. A missing or edited plan document is reported in `plan_problem`. Raises UsageError if the
    plan is not in the ledger.
    """
    document, problem = read_document(plans.read, chosen_plan(ledger, plan))
    status = status_by(
        ledger,
        document,
        now_s=now_s,
        plan=plan,
        attention_limit=_ATTENTION,
        events_limit=_EVENTS,
        holders=holders,
        settings=settings,
    )
    name = None if status.plan is None else status.plan.name
    capacity = tuple(ledger.capacity.all())
    if capacity:
        width_s = rules.span_width(capacity[-1].at_s - capacity[0].at_s, CHART_POINTS)
        capacity = tuple(ledger.capacity.all(span_s=width_s))
    bricks = rules_outlook.brick_outlooks(
        status.drains,
        document,
        now_s=now_s,
        retirement=status.retirement,
        cleared=next((one for one in status.milestones if one.goal is model.Goal.CLEARED), None),
    )
    facts = model.ReportFacts(
        status=status,
        done=_done(ledger, status),
        verifications=tuple(ledger.verifications.of_plan(name)) if name else (),
        plan=document,
        plan_problem=problem,
        days=tuple(_days(ledger)),
        capacity=capacity,
        outlook=rules_outlook.target_outlook(capacity, status.overall, status.forecast, now_s=now_s),
        bricks=bricks,
        servers=rules_outlook.server_outlooks(bricks, document),
        reaped=_reaped(ledger, status, document),
        incidents=rules_incidents.incidents(
            ledger.facts.event_groups(INCIDENTS),
            ledger.facts.endings(rules_incidents.ENDING_KINDS),
        ),
        benchmarks=_benchmarks(ledger),
        freezes=ended_freezes(ledger, now_s=now_s),
        speed_ups=(users := users_of(ledger.speed_ups.settled())),
        speed_up_sums=sums(users),
        streams=tuple(ledger.facts.stream_sums()),
        usage=usage,
        usage_differences=() if usage is None else compare_usage(usage, document),
    )
    return _compared(ledger, plans, facts, against)


def _days(ledger: "ReportLedger") -> Sequence[ThroughputPoint]:
    """The throughput by day, or by hour in a short history."""
    span = ledger.samples.sampled_span()
    if span is None:
        return ()
    first_s, last_s = span
    day_s = DAY_S if last_s - first_s >= _DAYS_FOR_DAYS * DAY_S else HOUR_S
    return ledger.samples.throughput(from_s=first_s // day_s * day_s, to_s=last_s, span_s=day_s)


def _reaped(ledger: "ReportLedger", status: model.MigrationStatus, plan: Plan | None) -> model.ReapedFacts | None:
    if status.plan is None:
        return None
    archives = ledger.archives.of_plan(status.plan.name)
    released = ledger.releases.of_trees({tree.tree.path for tree in status.trees})
    return rules_outlook.summarize_reaped(plan.reap if plan is not None else None, archives, len(released))


def _benchmarks(ledger: "ReportLedger") -> tuple[BenchmarkResult, ...]:
    return tuple(
        BenchmarkResult(record=record, measurements=tuple(ledger.benchmarks.measurements(record.id)))
        for record in ledger.benchmarks.all()
        if record.state is BenchmarkState.DONE
    )


def _compared(
    ledger: "ReportLedger", plans: PlanFiles, facts: model.ReportFacts, against: model.EarlierReports
) -> model.ReportFacts:
    """The report with its dates, and the verdict on them."""
    status, began_s = facts.status, first_start(ledger, facts.status.trees)
    since = None if against.earlier is None else _since(ledger, facts, against.earlier)
    promise = None
    if against.baseline is not None:
        before = _work(ledger, began_s, against.baseline.at_s)
        promise = rules_promise.promise_of_report(against.baseline, before)
    promise = promise or _promise(ledger, plans, facts)
    dates = rules_promise.promised(status.milestones, promise)
    weeks = _weeks(ledger, status)
    since_s = began_s if began_s is None or promise is None else max(began_s, promise.at_s)
    return replace(
        facts,
        since=since,
        promise=promise,
        milestones=dates,
        weeks=weeks,
        verdict=rules_promise.verdict(
            promise,
            dates,
            now_s=status.at_s,
            overall=status.overall,
            began_s=began_s,
            work=_work(ledger, since_s, status.at_s),
            since=since,
        ),
    )


def _weeks(ledger: "ReportLedger", status: model.MigrationStatus) -> tuple[model.WeekFacts, ...]:
    names = ledger.plans.names()
    first = ledger.facts.plan(names[0]) if names else None
    if first is None:
        return ()
    drains = [(one.times.get(DrainState.COMMITTED), len(one.bricks)) for one in ledger.drains.all()]
    additions = [(one.times.get(AdditionState.SETTLED), len(one.bricks)) for one in ledger.additions.all()]
    cutovers = ledger.cutovers.all()
    return tuple(
        rules_history.week(
            span,
            work=_work(ledger, *span),
            trees=status.trees,
            cutovers=cutovers,
            cleared=[(at_s, bricks) for at_s, bricks in drains if at_s is not None],
            added=[(at_s, bricks) for at_s, bricks in additions if at_s is not None],
            incidents=ledger.facts.event_groups(INCIDENTS, span=span),
        )
        for span in rules_history.spans(status.at_s, first.created_at_s)
    )


def _promise(ledger: "ReportLedger", plans: PlanFiles, facts: model.ReportFacts) -> model.Promise | None:
    """The dates of the first plan: it was active as soon as it was made."""
    names = ledger.plans.names()
    first = ledger.facts.plan(names[0]) if names else None
    if first is None:
        return None
    document = facts.plan
    if document is None or document.name != first.name:
        document, _ = read_document(plans.read, first)
    return rules_promise.promise_of_plan(first, ledger.plans.trees(first.name), document)


def _work(ledger: "ReportLedger", from_s: float | None, to_s: float) -> ThroughputPoint | None:
    # A sample covers the time before it: one taken at the begin of a span belongs to the earlier span.
    return None if from_s is None else work_between(ledger, math.nextafter(from_s, math.inf), to_s)


def _since(ledger: "ReportLedger", facts: model.ReportFacts, earlier: model.EarlierReport) -> model.SinceReport:
    status = facts.status
    first_s = facts.done[0].at_s if facts.done else earlier.at_s
    return rules_history.since_report(
        earlier,
        now_s=status.at_s,
        plan=None if status.plan is None else status.plan.name,
        overall=status.overall,
        forecast=status.forecast,
        before=_work(ledger, first_s, earlier.at_s),
        after=_work(ledger, earlier.at_s, status.at_s),
    )


def _done(ledger: "ReportLedger", status: model.MigrationStatus) -> tuple[model.DonePoint, ...]:
    started = first_start(ledger, status.trees)
    if started is None:
        return ()
    points = read_done(ledger, status.trees, now_s=status.at_s, started_at_s=started)
    return (model.DonePoint(at_s=started, done_files=0, done_bytes=0), *points)


# --- `report --send`: hooks get a report that was written


VERB = "report"


async def require_report_hooks(hooks: Hooks, blocking: Blocking) -> None:
    """Raises Refused if no hook would send a report. Called before the report is made."""
    found = await find_hooks(hooks, blocking)
    stage = _step(b"").stage(HookEvent.POST)
    if not found.problems and not in_order(found.hooks, stage):
        raise Refused(
            f"cannot send the report: there is no hook in {stage.name}.d of {show(hooks.directory)}",
            cause="migrator sends nothing itself; hooks do",
            hint="add one, such as the sample hooks/post-report.d/50-mail-report (docs/reports.md)",
        )


async def send_report(world: CallPorts, directory: bytes, plan: str | None, *, notices: bytes | None, pid: int) -> str:
    """Call the `report` hooks for a report that counts by `plan`, written to an absolute directory, and for the notices to
    users in another. Returns why it was not sent; empty if it was. A second call sends it again. Raises as `hook_calls`.
    """
    async with hook_calls(
        world,
        HookStep.REPORT,
        verb=VERB,
        doing="sending a report",
        pid=pid,
        interrupted=Interrupted("sending the report was interrupted", hint="run the same command again"),
    ) as (calls, run):
        facts = HookFacts(run_id=run.id, plan=plan, report=directory, notices=notices, started_at_s=world.clock.now_s())
        try:
            sent = await calls.call_all(_step(directory), facts)
            problem = "" if sent else "a hook failed: see the events in `migrator status`"
        except HookSkipped as skipped:
            problem = skipped.message
        run.exit_code = ExitCode.FAILED if problem else ExitCode.DONE
    return problem


def _step(directory: bytes) -> HookedStep:
    return HookedStep(
        step=HookStep.REPORT,
        key=f"report in {show(directory)}",
        subject=VERB,
        words=f"sending the report in {show(directory)}",
    )
