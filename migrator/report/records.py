"""Sums over the ledger for `status` and `report`."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Float, Integer, case, cast, func, select, type_coerce
from sqlalchemy.orm import InstrumentedAttribute

from migrator.bench.records import BenchLedger
from migrator.bricks.records import BrickLedger
from migrator.core.events import Event, Severity
from migrator.core.states import CONTENT_KINDS, AttemptState, ChunkKind, ChunkState, PassKind
from migrator.ledger.rows import AnySelect, Records, record_of
from migrator.ledger.tables import EnumText, EventRow
from migrator.plan.model import CostSums, ThroughputPoint
from migrator.plan.tables import BatchRow, PlanRow
from migrator.purge.records import PurgeLedger
from migrator.report import model as report
from migrator.report.records_live import MetricRecords, WatchRecords
from migrator.transfer.model import FileProblem, FileProblemKind, SizeClass, StreamSum
from migrator.transfer.records_measures import ALL_STREAMS, cost_sums, throughput_by_span
from migrator.transfer.records_passes import unsettled
from migrator.transfer.tables import AttemptRow, AttentionRow, ChunkRow, PassRow, SampleRow

_attempts, _chunks, _passes, _samples = AttemptRow, ChunkRow, PassRow, SampleRow
_WARNINGS = (Severity.WARNING.value, Severity.ERROR.value)

COST_GROUPS = 20
"""Number of groups that attempts are divided into."""


class LedgerFacts(Records):
    """Sums over the ledger."""

    def plan(self, name: str) -> report.PlanFacts | None:
        """A plan, with what its forecast is based on."""
        for row in self._rows(select(PlanRow).where(PlanRow.name == name)):
            return record_of(row, report.PlanFacts, basis=row.cost.basis)
        return None

    def batches(self, plan: str) -> Sequence[report.PlannedBatch]:
        """The batches of a plan, in order of number."""
        batches = BatchRow
        query = select(BatchRow).where(batches.plan == plan).order_by(batches.number)
        return self._all(report.PlannedBatch, query)

    def chunk_sums(self, pass_id: int) -> Sequence[report.ChunkSum]:
        """The chunks of a pass by tree, kind and state, including split ones. Answered from one index."""
        keys = (_chunks.tree, _chunks.kind, _chunks.state)
        sums = (func.count().label("chunks"), *_sums(_chunks.files, _chunks.size_bytes))
        query = select(*keys, *sums).where(_chunks.pass_id == pass_id).group_by(*keys)
        return self._all(report.ChunkSum, query)

    def attention_counts(self, plan: str) -> Mapping[int, report.AttentionCount]:
        """Files of a plan that did not arrive, by batch, from passes that no later one has settled."""
        attention = AttentionRow
        keys = (_passes.batch, attention.kind)
        query = (
            select(*keys, func.count(attention.path.distinct()))
            .join(PassRow, _passes.id == attention.pass_id)
            .where(_passes.plan == plan, unsettled(attention.path))
            .group_by(*keys)
        )
        counts = {(batch, kind): count for batch, kind, count in self._rows(query)}
        return {
            batch: report.AttentionCount(
                bad=counts.get((batch, FileProblemKind.BAD.value), 0),
                vanished=counts.get((batch, FileProblemKind.VANISHED.value), 0),
            )
            for batch in {batch for batch, _ in counts}
        }

    def attention(self, plan: str, limit: int) -> Sequence[report.AttentionFile]:
        """The first files of a plan that need attention, from passes that no later one has settled, in order of batch and path."""
        attention = AttentionRow
        query = (
            # Each path gets the row of its newest pass: SQLite takes the other columns from the row with the maximum.
            select(_passes.batch, AttentionRow, func.max(attention.pass_id))
            .join(PassRow, _passes.id == attention.pass_id)
            .where(_passes.plan == plan, attention.kind == FileProblemKind.BAD.value, unsettled(attention.path))
            .group_by(_passes.batch, attention.path)
            .order_by(_passes.batch, attention.path)
            .limit(limit)
        )
        rows = self._rows(query)
        return [report.AttentionFile(batch=row.batch, problem=record_of(row, FileProblem)) for row in rows]

    def done(self, trees: Mapping[str, Sequence[bytes]], *, span_s: float) -> Sequence[report.DonePoint]:
        """The total done at the end of every span in which a chunk finished, in order of time. `trees` maps each plan
        to the trees that it counts. Only seed passes count, because later passes copy changes.
        """
        span = cast(_attempts.finished_at_s / span_s, Integer).label("span")
        by_span: dict[int, tuple[int, int]] = {}
        for plan, its_own in trees.items():
            query = (
                select(span, *_sums(_chunks.files, _chunks.size_bytes))
                .join_from(AttemptRow, ChunkRow, _chunks.id == _attempts.chunk_id)
                .join(PassRow, _passes.id == _chunks.pass_id)
                .where(
                    _passes.plan == plan,
                    _passes.kind == PassKind.SEED.value,
                    _attempts.state == AttemptState.SUCCEEDED.value,
                    _chunks.state == ChunkState.DONE.value,
                    _chunks.kind.in_(CONTENT_KINDS),
                    _chunks.tree.in_(its_own),
                )
                .group_by(span)
            )
            for number, files, size_bytes in self._rows(query):
                before = by_span.get(number, (0, 0))
                by_span[number] = (before[0] + files, before[1] + size_bytes)
        found: list[report.DonePoint] = []
        done_files = done_bytes = 0
        for number, (files, size_bytes) in sorted(by_span.items()):
            done_files, done_bytes = done_files + files, done_bytes + size_bytes
            found.append(report.DonePoint(at_s=(number + 1) * span_s, done_files=done_files, done_bytes=done_bytes))
        return found

    def incidents(self, limit: int) -> Sequence[Event]:
        """The newest events that are warnings or errors, newest first."""
        events = EventRow
        query = select(EventRow).where(events.severity.in_(_WARNINGS)).order_by(events.id.desc())
        return self._all(Event, query.limit(limit))

    def endings(self, kinds: Sequence[str]) -> Sequence[report.Incident]:
        """Events of these kinds, by kind, subject and severity, with the last of each. A later warning of the same kind
        hides no earlier end: the first of two pauses is over.
        """
        events = EventRow
        return self._all(report.Incident, _grouped().where(events.kind.in_(list(kinds))).group_by(events.severity))

    # For `report` alone.

    def copied(self, plans: Collection[str], *, span_s: float) -> Sequence[ThroughputPoint]:
        """Files and bytes that the seed passes of plans copied, by span, in order of time. Spans begin at multiples of
        `span_s`; idle spans are left out.
        """
        seeds = select(_passes.id).where(_passes.plan.in_(plans), _passes.kind == PassKind.SEED.value)
        of_seeds = (_samples.pass_id.in_(seeds), _samples.attempt_id == ALL_STREAMS)
        return self._all(ThroughputPoint, throughput_by_span(0.0, span_s).where(*of_seeds))

    def cost_groups(self, plans: Collection[str]) -> Sequence[CostSums]:
        """Attempts of plans that succeeded, in arbitrary groups."""
        group = _attempts.chunk_id % COST_GROUPS
        of_plans = _chunks.pass_id.in_(select(_passes.id).where(_passes.plan.in_(plans)))
        return self._all(CostSums, cost_sums().where(of_plans).group_by(group).order_by(group))

    def stream_sums(self) -> Sequence[StreamSum]:
        """Sums over the streams of all plans, by host, brick, engine and size class."""
        mean_bytes = cast(_chunks.size_bytes, Float) / _chunks.files
        by_size = case(
            (_chunks.kind == ChunkKind.RANGES.value, SizeClass.RANGES.value),
            *((mean_bytes < upper_bytes, name.value) for name, upper_bytes in report.UPPER_BYTES),
            else_=SizeClass.LARGE.value,
        )
        size_class = type_coerce(by_size, EnumText(SizeClass)).label("size_class")
        seconds = _attempts.finished_at_s - _attempts.started_at_s
        keys = (_attempts.host, _chunks.brick, _attempts.engine, size_class)
        sums = (func.count().label("attempts"), *_sums(_attempts.files, _attempts.size_bytes))
        query = (
            select(*keys, *sums, func.sum(seconds).label("stream_s"))
            .join(ChunkRow, _chunks.id == _attempts.chunk_id)
            .where(
                _attempts.state == AttemptState.SUCCEEDED.value,
                _chunks.kind.in_((ChunkKind.RANGES, ChunkKind.FILES)),
                seconds > 0,
            )
            .group_by(*keys)
            .order_by(*keys)
        )
        return self._all(StreamSum, query)

    def event_groups(self, limit: int, *, span: tuple[float, float] | None = None) -> Sequence[report.Incident]:
        """Warnings and errors by kind and subject, the latest first; those of a span, without its begin, or all."""
        events = EventRow
        within = () if span is None else (events.at_s > span[0], events.at_s <= span[1])
        query = _grouped().where(events.severity.in_(_WARNINGS), *within).order_by(func.max(events.id).desc())
        return self._all(report.Incident, query.limit(limit))


def _sums(*columns: InstrumentedAttribute[Any]) -> list[ColumnElement[Any]]:
    return [func.sum(column).label(column.key) for column in columns]


def _grouped() -> AnySelect:
    event = EventRow
    # SQLite takes the columns without a function from the row with max(id): the newest event of the group.
    return select(
        event.kind,
        event.subject,
        event.severity,
        event.message,
        func.count().label("count"),
        func.min(event.at_s).label("first_at_s"),
        event.at_s.label("last_at_s"),
        func.max(event.id),
    ).group_by(event.kind, event.subject)


class ReportLedger(BrickLedger, PurgeLedger, BenchLedger):
    """The whole ledger, with the sums that reports show."""

    facts: LedgerFacts
    live: WatchRecords
    metrics: MetricRecords
