"""`report`: the status with its history, its forecast and its proofs, for management. Reads only; works at any time."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

from migrator.decide.copy_forecast import Left, forecast_copy
from migrator.decide.copy_slots import slot_width_s, slots_of
from migrator.decide.incidents import ENDING_KINDS, incidents
from migrator.decide.progress_facts import left_to_people, span_width, together
from migrator.decide.report_parts import brick_outlooks, reaped_facts, server_outlooks, target_outlook
from migrator.decide.report_since import since_report
from migrator.decide.speed_up import sums, users_of
from migrator.decide.transfer_cost import fit_cost, sum_of
from migrator.domain.benchmark import BenchmarkResult, BenchmarkState
from migrator.domain.errors import MigratorError
from migrator.domain.forecast import CopyForecast, WorkSlot
from migrator.domain.ledger_sums import DonePoint, ThroughputPoint
from migrator.domain.plan import Plan
from migrator.domain.report import ReportFacts, StatusFacts
from migrator.domain.report_parts import EarlierReport, ReapedFacts
from migrator.domain.units import DAY_S, HOUR_S
from migrator.ports.ledger_facts import ReadableLedger
from migrator.ports.plans import PlanDocuments
from migrator.stages.status import IsGone, read_done, read_status

CHART_POINTS = 240
"""As many spans as a chart on paper can show apart."""

INCIDENTS = 200

_DAYS_FOR_DAYS = 3.0
"""A shorter history is shown by the hour."""


def read_report(
    ledger: ReadableLedger,
    plans: PlanDocuments,
    *,
    now_s: float,
    plan: str | None = None,
    attention_limit: int = 200,
    events_limit: int = 30,
    is_gone: IsGone | None = None,
    earlier: EarlierReport | None = None,
) -> ReportFacts:
    """All facts, by the plan that was recorded last, or by the one named. Raises UsageError where that one is not in
    the ledger; a plan document that is gone or was edited is said in the report, and does not stop it. `earlier` is the report to
    compare with. The same ledger gives the same forecast at the same time.
    """
    status = read_status(
        ledger,
        now_s=now_s,
        plan=plan,
        attention_limit=attention_limit,
        events_limit=events_limit,
        is_gone=is_gone,
    )
    document, problem = _document(plans, status)
    name = None if status.plan is None else status.plan.name
    forecast = _forecast(ledger, status)
    capacity = tuple(ledger.capacity.all())
    if capacity:
        width_s = span_width(capacity[-1].at_s - capacity[0].at_s, CHART_POINTS)
        capacity = tuple(ledger.capacity.all(span_s=width_s))
    bricks = brick_outlooks(status.drains, document, now_s=now_s, retirement=status.retirement)
    facts = ReportFacts(
        status=status,
        throughput=_throughput(ledger),
        done=_done(ledger, status),
        verifications=tuple(ledger.verifications.of_plan(name)) if name else (),
        plan=document,
        plan_problem=problem,
        forecast=forecast,
        days=_days(ledger),
        capacity=capacity,
        outlook=target_outlook(capacity, status.overall, forecast, now_s=now_s),
        bricks=bricks,
        servers=server_outlooks(bricks, document),
        reaped=_reaped(ledger, status, document),
        incidents=incidents(
            ledger.report_sums.event_groups(INCIDENTS),
            ledger.report_sums.latest_events([kind.value for kind in ENDING_KINDS]),
        ),
        benchmarks=_benchmarks(ledger),
        speed_ups=(users := users_of(ledger.speed_ups.settled())),
        speed_up_sums=sums(users),
        streams=tuple(ledger.report_sums.stream_sums()),
    )
    return facts if earlier is None else _compared(ledger, facts, earlier)


def _throughput(ledger: ReadableLedger) -> tuple[ThroughputPoint, ...]:
    span = ledger.facts.sampled_span()
    if span is None:
        return ()
    first_s, last_s = span
    width_s = span_width(last_s - first_s, CHART_POINTS)
    return tuple(ledger.facts.throughput(from_s=first_s, to_s=last_s, span_s=width_s))


def _days(ledger: ReadableLedger) -> tuple[ThroughputPoint, ...]:
    span = ledger.facts.sampled_span()
    if span is None:
        return ()
    width_s = DAY_S if span[1] - span[0] >= _DAYS_FOR_DAYS * DAY_S else HOUR_S
    from_s = span[0] // width_s * width_s
    return tuple(ledger.facts.throughput(from_s=from_s, to_s=span[1], span_s=width_s))


def _forecast(ledger: ReadableLedger, status: StatusFacts) -> CopyForecast | None:
    if status.plan is None or status.overall.left_files <= 0 or left_to_people(status.trees):
        return None
    name = status.plan.name
    began_s = min((one.started_at_s for batch in status.batches for one in batch.passes), default=None)
    if began_s is None or began_s >= status.at_s:
        return None
    width_s = slot_width_s(status.at_s - began_s)
    copied = ledger.report_sums.copied(name, span_s=width_s)
    slots, slot_s = slots_of(
        [(point.at_s, point.files, point.size_bytes) for point in copied], from_s=began_s, now_s=status.at_s
    )
    groups = ledger.report_sums.cost_groups(name)
    cost = fit_cost(sum_of(groups), streams=1)
    if cost is None:
        return None
    tally = status.overall
    return forecast_copy(
        now_s=status.at_s,
        slots=_without_repeats(slots, tally.done_files, tally.done_bytes),
        slot_s=slot_s,
        left=Left(files=tally.left_files, size_bytes=tally.left_bytes),
        cost=cost,
        cost_groups=groups,
        chance=random.Random(round(status.at_s)).random,  # noqa: S311 - a draw that can be repeated is wanted
    )


def _without_repeats(slots: Sequence[WorkSlot], done_files: int, done_bytes: int) -> Sequence[WorkSlot]:
    """Streams count what they send again, and do not count what was there already: in sum the slots are what is done."""
    files, size_bytes = sum(slot.files for slot in slots), sum(slot.size_bytes for slot in slots)
    by_files = done_files / files if files else 1.0
    by_bytes = done_bytes / size_bytes if size_bytes else 1.0
    return [
        replace(slot, files=round(slot.files * by_files), size_bytes=round(slot.size_bytes * by_bytes))
        for slot in slots
    ]


def _reaped(ledger: ReadableLedger, status: StatusFacts, plan: Plan | None) -> ReapedFacts | None:
    if status.plan is None:
        return None
    archives = ledger.archives.of_plan(status.plan.name)
    released = ledger.releases.of_trees({tree.tree.path for tree in status.trees})
    return reaped_facts(plan.reap if plan is not None else None, archives, len(released))


def _benchmarks(ledger: ReadableLedger) -> tuple[BenchmarkResult, ...]:
    return tuple(
        BenchmarkResult(record=record, measurements=tuple(ledger.benchmarks.measurements(record.id)))
        for record in ledger.benchmarks.all()
        if record.state is BenchmarkState.DONE
    )


def _compared(ledger: ReadableLedger, facts: ReportFacts, earlier: EarlierReport) -> ReportFacts:
    status = facts.status
    first_s = facts.done[0].at_s if facts.done else earlier.at_s
    return replace(
        facts,
        since=since_report(
            earlier,
            now_s=status.at_s,
            plan=None if status.plan is None else status.plan.name,
            overall=status.overall,
            forecast=facts.forecast,
            before=_work_between(ledger, first_s, earlier.at_s),
            after=_work_between(ledger, earlier.at_s, status.at_s),
        ),
    )


def _work_between(ledger: ReadableLedger, from_s: float, to_s: float) -> ThroughputPoint | None:
    if to_s <= from_s:
        return None
    # A sample is of the time before it: one that was taken at `from_s` is of what came earlier.
    first_s = math.nextafter(from_s, to_s)
    point = together(ledger.facts.throughput(from_s=first_s, to_s=to_s, span_s=2.0 * (to_s - from_s)))
    return None if point is None else replace(point, at_s=to_s, span_s=to_s - from_s)


def _done(ledger: ReadableLedger, status: StatusFacts) -> tuple[DonePoint, ...]:
    if status.plan is None:
        return ()
    started = min((entry.started_at_s for batch in status.batches for entry in batch.passes), default=None)
    if started is None:
        return ()
    points = read_done(ledger, status.plan.name, now_s=status.at_s, started_at_s=started)
    return (DonePoint(at_s=started, done_files=0, done_bytes=0), *points)


def _document(plans: PlanDocuments, status: StatusFacts) -> tuple[Plan | None, str]:
    if status.plan is None:
        return None, "there is no plan yet"
    try:
        plan, checksum = plans.read(status.plan.name)
    except MigratorError as error:
        return None, error.message
    if checksum != status.plan.checksum:
        return None, f"{status.plan.path} is not the plan that was recorded: its checksum is another one"
    return plan, ""
