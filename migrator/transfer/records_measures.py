"""The records of throughput, probes, and limits that operators and the governor set."""

from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, Float, Integer, cast, delete, func, select

from migrator.core.probe import Probe, ProbeSide, ProbeTimes
from migrator.core.states import AttemptState, ChunkKind
from migrator.core.units import DAY_S, HOUR_S
from migrator.ledger.rows import AnyRow, AnySelect, Records, add, columns_of, put, record_of
from migrator.plan.model import CostSums, ThroughputPoint, TransferCost, fit_cost
from migrator.transfer import tables
from migrator.transfer.model import Sample
from migrator.transfer.model_governor import Controls, GovernorRecord, Hold, HostLoad, Limits, Tuned

# Throughput, and the measured cost of transfers.


ALL_STREAMS = 0
"""In the column `attempt_id`: all streams together."""

_passes, _samples = tables.PassRow, tables.SampleRow


class SampleRecords(Records):
    """Throughput over time."""

    def add(self, pass_id: int, samples: Sequence[Sample]) -> None:
        """Store samples, replacing those of the same time and attempt."""
        table = tables.SampleRow
        rows = [columns_of(table, one, pass_id=pass_id, attempt_id=one.attempt_id or ALL_STREAMS) for one in samples]
        self._put(table, rows)

    def whole(self, pass_id: int) -> Sequence[Sample]:
        """The samples of all streams together, in order of time."""
        query = select(tables.SampleRow).where(_samples.pass_id == pass_id, _samples.attempt_id == ALL_STREAMS)
        return [_sample(row) for row in self._rows(query.order_by(_samples.at_s))]

    def measured_cost(self) -> TransferCost | None:
        """Cost per file and per byte, fitted from attempts that succeeded; None until there are enough."""
        interval_s = func.nullif(func.sum(_samples.interval_s), 0.0)
        busy = select(func.coalesce(func.sum(_samples.streams * _samples.interval_s) / interval_s, 1.0)).where(
            _samples.attempt_id == ALL_STREAMS, _samples.streams > 0
        )
        (sums,) = self._all(CostSums, cost_sums())
        return fit_cost(sums, round(self._value(busy)))

    def sampled_span(self) -> tuple[float, float] | None:
        """The times of the first and the last sample of any pass; None without samples."""
        query = select(func.min(_samples.at_s), func.max(_samples.at_s)).where(*_of_all_streams())
        ((first, last),) = self._rows(query)
        return None if first is None else (first, last)

    def throughput(self, *, from_s: float, to_s: float, span_s: float) -> Sequence[ThroughputPoint]:
        """The samples of all passes, summed by spans, in order of time; idle spans are left out."""
        within = (_samples.at_s >= from_s, _samples.at_s <= to_s)
        return self._all(ThroughputPoint, throughput_by_span(from_s, span_s).where(*_of_all_streams(), *within))


def _of_all_streams() -> tuple[ColumnElement[bool], ...]:
    # Pass by pass: the samples of single streams, which are most of the table, are not read.
    return _samples.pass_id.in_(select(_passes.id)), _samples.attempt_id == ALL_STREAMS


def throughput_by_span(from_s: float, span_s: float) -> AnySelect:
    """The samples by spans from a time on, in order of time."""
    span = cast((_samples.at_s - from_s) / span_s, Integer)
    busy_s, stream_s = func.sum(_samples.interval_s), func.sum(_samples.streams * _samples.interval_s)
    return (
        select(
            (from_s + (span + 1) * span_s).label("at_s"),
            cast(span_s, Float).label("span_s"),
            busy_s.label("busy_s"),
            func.coalesce(stream_s / func.nullif(busy_s, 0.0), 0.0).label("streams"),
            func.sum(_samples.files).label("files"),
            func.sum(_samples.size_bytes).label("size_bytes"),
        )
        .group_by(span)
        .order_by(span)
    )


def cost_sums() -> AnySelect:
    """The sums of a fit over all attempts that succeeded."""
    attempt = tables.AttemptRow
    files, size_bytes = cast(attempt.files, Float), cast(attempt.size_bytes, Float)
    seconds = attempt.finished_at_s - attempt.started_at_s
    terms = {
        "files": files,
        "size_bytes": size_bytes,
        "seconds": seconds,
        "files_files": files * files,
        "files_bytes": files * size_bytes,
        "bytes_bytes": size_bytes * size_bytes,
        "files_seconds": files * seconds,
        "bytes_seconds": size_bytes * seconds,
    }
    return (
        select(func.count().label("attempts"), *(func.sum(term).label(name) for name, term in terms.items()))
        .join(tables.ChunkRow, tables.ChunkRow.id == attempt.chunk_id)
        .where(
            attempt.state == AttemptState.SUCCEEDED,
            tables.ChunkRow.kind.in_((ChunkKind.RANGES, ChunkKind.FILES, ChunkKind.RANGED_FILES)),
            seconds > 0,
        )
    )


def _sample(row: AnyRow) -> Sample:
    return record_of(row, Sample, attempt_id=None if row.attempt_id == ALL_STREAMS else row.attempt_id)


# Probes.


_probes = tables.ProbeRow

ALL_KEPT_S = 2 * DAY_S
"""Every probe is kept for this time; after that, one per hour until `KEPT_S`."""
KEPT_S = 90 * DAY_S

_THIN_EVERY = 64
"""Old rows are removed after this many new ones."""


class ProbeRecords(Records):
    """Probes over time; old ones are thinned out."""

    def add(self, probe: Probe) -> None:
        """Store a probe. Some calls also remove old ones."""
        with self._database.write() as connection:
            row = columns_of(tables.ProbeRow, probe) | (
                {} if probe.times is None else columns_of(tables.ProbeRow, probe.times)
            )
            if add(connection, tables.ProbeRow, **row) % _THIN_EVERY == 0:
                old, hour = _probes.at_s < probe.at_s - ALL_KEPT_S, cast(_probes.at_s / HOUR_S, Integer)
                kept = select(func.min(_probes.id)).where(old).group_by(_probes.side, hour)
                connection.execute(delete(tables.ProbeRow).where(old, _probes.id.not_in(kept)))
                connection.execute(delete(tables.ProbeRow).where(_probes.at_s < probe.at_s - KEPT_S))

    def since(self, side: ProbeSide, at_s: float) -> Sequence[Probe]:
        """Probes of one side that began after `at_s`, oldest first."""
        query = select(tables.ProbeRow).where(_probes.side == side, _probes.at_s > at_s)
        return [_probe(row) for row in self._rows(query.order_by(_probes.at_s, _probes.id))]

    def after(self, number: int) -> Sequence[tuple[int, Probe]]:
        """Probes of both sides after a number, with their numbers, in order."""
        query = select(tables.ProbeRow).where(_probes.id > number).order_by(_probes.id)
        return [(row.id, _probe(row)) for row in self._rows(query)]

    def last(self) -> int:
        """The number of the newest probe, 0 if there is none."""
        return int(self._value(select(func.max(_probes.id))) or 0)

    def newest(self) -> Sequence[Probe]:
        """The newest probe of each side, in the order of `ProbeSide`."""
        newest = select(tables.ProbeRow).order_by(_probes.at_s.desc(), _probes.id.desc())
        rows = (self._rows(newest.where(_probes.side == side).limit(1)) for side in ProbeSide)
        return [_probe(row) for found in rows for row in found]


def _probe(row: AnyRow) -> Probe:
    return record_of(row, Probe, times=None if row.create_s is None else record_of(row, ProbeTimes))


# Limits that operators set, and the limits that the governor set for runs.


_controls = tables.ControlRow
_records = tables.GovernorRow

_HOLD, _TUNE = "hold", "tune"

KEPT_RECORDS = 5000
"""About a fortnight of runs, with a change every few minutes."""


class ControlRecords(Records):
    """Limits that operators set while the migration runs. Earlier settings are kept."""

    def now(self) -> Controls:
        """The current settings."""
        with self._database.read() as connection:
            hold, tuned = _newest(connection, _HOLD), _newest(connection, _TUNE)
        limits = _limits(tuned)
        return Controls(
            hold=record_of(hold, Hold, since_s=hold.at_s) if hold is not None and hold.paused else None,
            tuned=None if tuned is None or limits.nothing else Tuned(limits=limits, since_s=tuned.at_s, by=tuned.by),
        )

    def hold(self, *, by: str, reason: str, at_s: float) -> None:
        """Pause. A pause that is already set keeps its time and author."""
        self._set_paused(paused=True, by=by, reason=reason, at_s=at_s)

    def resume(self, *, by: str, at_s: float) -> None:
        """End a pause, if there is one."""
        self._set_paused(paused=False, by=by, reason="", at_s=at_s)

    def tune(self, limits: Limits, *, by: str, at_s: float) -> None:
        """Replace all limits; `Limits()` removes them."""
        with self._database.write() as connection:
            if _limits(_newest(connection, _TUNE)) != limits:
                row = columns_of(_controls, limits, kind=_TUNE, at_s=at_s, by=by, paused=0, reason="")
                add(connection, _controls, **row)

    def _set_paused(self, *, paused: bool, by: str, reason: str, at_s: float) -> None:
        with self._database.write() as connection:
            newest = _newest(connection, _HOLD)
            if (newest is not None and bool(newest.paused)) is not paused:
                add(connection, _controls, kind=_HOLD, at_s=at_s, by=by, paused=int(paused), reason=reason)


def _newest(connection: Connection, kind: str) -> AnyRow | None:
    query = select(_controls).where(_controls.kind == kind).order_by(_controls.id.desc()).limit(1)
    return connection.execute(query).one_or_none()


def _limits(row: AnyRow | None) -> Limits:
    return Limits() if row is None else record_of(row, Limits)


class GovernorRecords(Records):
    """Limits that the governor set for runs over time. Old records are removed."""

    def add(self, record: GovernorRecord) -> None:
        """Store a record. Some calls also remove old ones."""
        with self._database.write() as connection:
            number = add(connection, _records, **columns_of(_records, record))
            if number % _THIN_EVERY == 0:
                connection.execute(delete(_records).where(_records.id <= number - KEPT_RECORDS))

    def newest(self, runs: Collection[int] | None = None) -> GovernorRecord | None:
        """The newest record of these runs, or of any."""
        query = select(_records).order_by(_records.id.desc())
        return self._first(GovernorRecord, query if runs is None else query.where(_records.run_id.in_(runs)))

    def of_run(self, run_id: int) -> Sequence[GovernorRecord]:
        """The records of a run, oldest first."""
        return self._all(GovernorRecord, select(_records).where(_records.run_id == run_id).order_by(_records.id))

    def keep_loads(self, loads: Sequence[HostLoad]) -> None:
        """Store the current load of hosts, replacing all earlier values."""
        with self._database.write() as connection:
            connection.execute(delete(tables.HostLoadRow))
            put(connection, tables.HostLoadRow, [columns_of(tables.HostLoadRow, one) for one in loads])

    def loads(self) -> Sequence[HostLoad]:
        """The latest loads, in order of host."""
        return self._all(HostLoad, select(tables.HostLoadRow).order_by(tables.HostLoadRow.host))
