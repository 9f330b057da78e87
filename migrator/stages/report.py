"""`report`: the status with its history and its proofs, for management. Reads only; works at any time."""

from migrator.decide.progress_facts import span_width
from migrator.domain.errors import MigratorError
from migrator.domain.plan import Plan
from migrator.domain.report import DonePoint, ReportFacts, StatusFacts, ThroughputPoint
from migrator.ports.ledger_facts import ReadableLedger
from migrator.ports.plans import PlanDocuments
from migrator.stages.status import IsGone, read_done, read_status

CHART_POINTS = 240
"""As many spans as a chart on paper can show apart."""


def read_report(
    ledger: ReadableLedger,
    plans: PlanDocuments,
    *,
    now_s: float,
    plan: str | None = None,
    attention_limit: int = 200,
    events_limit: int = 30,
    is_gone: IsGone | None = None,
) -> ReportFacts:
    """All facts, by the plan that was recorded last, or by the one named. Raises UsageError where that one is not in
    the ledger; a plan document that is gone or was edited is said in the report, and does not stop it.
    """
    status = read_status(
        ledger,
        now_s=now_s,
        plan=plan,
        attention_limit=attention_limit,
        events_limit=events_limit,
        is_gone=is_gone,
    )
    span = ledger.facts.sampled_span()
    throughput: tuple[ThroughputPoint, ...] = ()
    if span is not None:
        first_s, last_s = span
        width_s = span_width(last_s - first_s, CHART_POINTS)
        throughput = tuple(ledger.facts.throughput(from_s=first_s, to_s=last_s, span_s=width_s))
    document, problem = _document(plans, status)
    return ReportFacts(
        status=status,
        throughput=throughput,
        done=_done(ledger, status),
        verifications=tuple(ledger.verifications.of_plan(status.plan.name)) if status.plan else (),
        plan=document,
        plan_problem=problem,
    )


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
