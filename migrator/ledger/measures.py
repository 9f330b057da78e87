"""Samples of throughput, probes, capacity, limits set by operators, benchmarks."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Float, Integer, Row, cast, delete, func, insert, select, update

from migrator.bench.model import BenchmarkRecord, BenchmarkState, Measurement, Place
from migrator.core.errors import UsageError
from migrator.core.probe import Probe, ProbeSide, ProbeTimes
from migrator.core.states import AttemptState, ChunkKind
from migrator.core.units import DAY_S, HOUR_S
from migrator.fs.model import CapacitySample, Side
from migrator.ledger import tables
from migrator.ledger.database import Database, decode, encode, encode_words
from migrator.ledger.rows import record_of
from migrator.plan.model import CostSums, TransferCost, fit_cost
from migrator.transfer.model import (
    ATTEMPTS_AT_ONCE,
    Controls,
    GovernorRecord,
    Hold,
    HostLoad,
    Limits,
    Sample,
    SampledAttempt,
    Tuned,
    due,
    thinned,
)

# Throughput, and the measured cost of transfers.


ALL_STREAMS = 0
"""In the column `attempt_id`: all streams together."""


class SampleRecords:
    """Throughput over time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, pass_id: int, samples: Sequence[Sample]) -> None:
        """Store samples, replacing those of the same time and attempt."""
        if not samples:
            return
        with self._database.write() as connection:
            connection.execute(
                insert(tables.samples).prefix_with("OR REPLACE"),
                [_row(pass_id, sample) for sample in samples],
            )

    def whole(self, pass_id: int) -> Sequence[Sample]:
        """The samples of all streams together, in order of time."""
        with self._database.read() as connection:
            rows = connection.execute(
                select(tables.samples)
                .where(tables.samples.c.pass_id == pass_id, tables.samples.c.attempt_id == ALL_STREAMS)
                .order_by(tables.samples.c.at_s)
            ).all()
        return [sample_record(row) for row in rows]

    def measured_cost(self) -> TransferCost | None:
        """Cost per file and per byte, fitted from attempts that succeeded; None until there are enough."""
        files = cast(tables.attempts.c.files, Float)
        size_bytes = cast(tables.attempts.c.size_bytes, Float)
        seconds = tables.attempts.c.finished_at_s - tables.attempts.c.started_at_s
        sums = (files, size_bytes, seconds, files * files, files * size_bytes, size_bytes * size_bytes)
        query = (
            select(
                func.count(),
                *(func.coalesce(func.sum(term), 0.0) for term in (*sums, files * seconds, size_bytes * seconds)),
            )
            .join(tables.chunks, tables.chunks.c.id == tables.attempts.c.chunk_id)
            .where(
                tables.attempts.c.state == AttemptState.SUCCEEDED.value,
                tables.chunks.c.kind.in_((ChunkKind.RANGES, ChunkKind.FILES, ChunkKind.RANGED_FILES)),
                seconds > 0,
            )
        )
        busy = select(
            func.coalesce(
                func.sum(tables.samples.c.streams * tables.samples.c.interval_s)
                / func.nullif(func.sum(tables.samples.c.interval_s), 0.0),
                1.0,
            )
        ).where(tables.samples.c.attempt_id == ALL_STREAMS, tables.samples.c.streams > 0)
        with self._database.read() as connection:
            count, *terms = connection.execute(query).one()
            streams = connection.execute(busy).scalar_one()
        return fit_cost(
            CostSums(
                attempts=count,
                files=terms[0],
                size_bytes=terms[1],
                seconds=terms[2],
                files_files=terms[3],
                files_bytes=terms[4],
                bytes_bytes=terms[5],
                files_seconds=terms[6],
                bytes_seconds=terms[7],
            ),
            round(streams),
        )

    def thin(self, *, now_s: float) -> bool:
        """Merge old samples of single streams by the hour, for a few attempts; return whether there may be more."""
        with self._database.write() as connection:
            mark = connection.execute(select(tables.thinned_samples.c.attempt_id)).scalar_one_or_none()
            ended = due(_attempts_after(connection, mark or 0), now_s=now_s)
            for attempt in ended:
                _thin(connection, attempt)
            if ended:
                row = {"id": 1, "attempt_id": ended[-1].attempt_id}
                connection.execute(insert(tables.thinned_samples).prefix_with("OR REPLACE"), [row])
        return len(ended) == ATTEMPTS_AT_ONCE


def _attempts_after(connection: Connection, attempt_id: int) -> list[SampledAttempt]:
    attempt, chunk, sample = tables.attempts.c, tables.chunks.c, tables.samples.c
    last_sample = (
        select(func.max(sample.at_s))
        .where(sample.pass_id == chunk.pass_id, sample.attempt_id == attempt.id)
        .scalar_subquery()
    )
    query = (
        select(attempt.id, chunk.pass_id, func.coalesce(attempt.finished_at_s, last_sample, attempt.started_at_s))
        .join(tables.chunks, chunk.id == attempt.chunk_id)
        .where(attempt.id > attempt_id)
        .order_by(attempt.id)
        .limit(ATTEMPTS_AT_ONCE)
    )
    return [
        SampledAttempt(attempt_id=number, pass_id=pass_id, last_s=last_s)
        for number, pass_id, last_s in connection.execute(query)
    ]


def _thin(connection: Connection, attempt: SampledAttempt) -> None:
    sample = tables.samples.c
    of_attempt = (sample.pass_id == attempt.pass_id, sample.attempt_id == attempt.attempt_id)
    rows = connection.execute(select(tables.samples).where(*of_attempt).order_by(sample.at_s)).all()
    kept = thinned([sample_record(row) for row in rows])
    if len(kept) < len(rows):
        connection.execute(delete(tables.samples).where(*of_attempt))
        connection.execute(insert(tables.samples), [_row(attempt.pass_id, one) for one in kept])


def _row(pass_id: int, sample: Sample) -> dict[str, Any]:
    return {
        "pass_id": pass_id,
        "attempt_id": ALL_STREAMS if sample.attempt_id is None else sample.attempt_id,
        "at_s": sample.at_s,
        "interval_s": sample.interval_s,
        "streams": sample.streams,
        "files": sample.files,
        "size_bytes": sample.size_bytes,
    }


def sample_record(row: Row[Any]) -> Sample:
    """A sample, from its row."""
    return record_of(row, Sample, attempt_id=None if row.attempt_id == ALL_STREAMS else row.attempt_id)


# Probes.


_probes = tables.probes

ALL_KEPT_S = 2 * DAY_S
"""How long every probe is kept; after that, one per hour until `KEPT_S`."""
KEPT_S = 90 * DAY_S

_THIN_EVERY = 64
"""Old rows are removed after this many new ones."""
_TIMES = ("create_s", "write_s", "sync_s", "stat_s", "unlink_s", "readdir_s")


class ProbeRecords:
    """Probes over time; old ones are thinned out."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, probe: Probe) -> None:
        """Store a probe. Some calls also remove old ones."""
        times: dict[str, Any] = dict.fromkeys(_TIMES) if probe.times is None else asdict(probe.times)
        row = {"side": probe.side.value, "at_s": probe.at_s, "waited_s": probe.waited_s, "failure": probe.failure}
        with self._database.write() as connection:
            added = connection.execute(insert(_probes).values(**row, **times))
            if added.inserted_primary_key is not None and added.inserted_primary_key[0] % _THIN_EVERY == 0:
                _thin_probes(connection, probe.at_s)

    def since(self, side: ProbeSide, at_s: float) -> Sequence[Probe]:
        """Probes of one side that began after `at_s`, oldest first."""
        query = (
            select(_probes)
            .where(_probes.c.side == side.value, _probes.c.at_s > at_s)
            .order_by(_probes.c.at_s, _probes.c.id)
        )
        with self._database.read() as connection:
            return [_probe(row) for row in connection.execute(query)]

    def after(self, number: int) -> Sequence[tuple[int, Probe]]:
        """Probes of both sides after a number, with their numbers, in order."""
        query = select(_probes).where(_probes.c.id > number).order_by(_probes.c.id)
        with self._database.read() as connection:
            return [(row.id, _probe(row)) for row in connection.execute(query)]

    def last(self) -> int:
        """The number of the newest probe, 0 if there is none."""
        with self._database.read() as connection:
            return int(connection.execute(select(func.coalesce(func.max(_probes.c.id), 0))).scalar_one())

    def newest(self) -> Sequence[Probe]:
        """The newest probe of each side, in the order of `ProbeSide`."""
        found: list[Probe] = []
        with self._database.read() as connection:
            for side in ProbeSide:
                query = select(_probes).where(_probes.c.side == side.value)
                row = connection.execute(
                    query.order_by(_probes.c.at_s.desc(), _probes.c.id.desc()).limit(1)
                ).one_or_none()
                if row is not None:
                    found.append(_probe(row))
        return found


def _thin_probes(connection: Connection, now_s: float) -> None:
    old = _probes.c.at_s < now_s - ALL_KEPT_S
    kept = select(func.min(_probes.c.id)).where(old).group_by(_probes.c.side, cast(_probes.c.at_s / HOUR_S, Integer))
    connection.execute(delete(_probes).where(old, _probes.c.id.not_in(kept)))
    connection.execute(delete(_probes).where(_probes.c.at_s < now_s - KEPT_S))


def _probe(row: Row[Any]) -> Probe:
    return Probe(
        side=ProbeSide(row.side),
        at_s=row.at_s,
        times=None if row.create_s is None else ProbeTimes(**{name: getattr(row, name) for name in _TIMES}),
        waited_s=row.waited_s,
        failure=row.failure,
    )


# Capacity.


_capacity = tables.capacity_samples


class CapacityRecords:
    """How full both sides were."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, samples: Sequence[CapacitySample]) -> None:
        """Store samples, replacing those of the same side and time."""
        rows = [
            {
                "side": sample.side.value,
                "at_s": sample.at_s,
                "total_bytes": sample.total_bytes,
                "free_bytes": sample.free_bytes,
                "total_inodes": sample.total_inodes,
                "free_inodes": sample.free_inodes,
            }
            for sample in samples
        ]
        if rows:
            with self._database.write() as connection:
                connection.execute(insert(_capacity).prefix_with("OR REPLACE"), rows)

    def all(self, *, span_s: float = 0.0) -> Sequence[CapacitySample]:
        """All samples in order of time; with `span_s` only the last one of each side per span."""
        query = select(_capacity).order_by(_capacity.c.at_s, _capacity.c.side)
        if span_s > 0:
            # SQLite takes the other columns from the row that has the maximum; that is documented.
            span = cast(_capacity.c.at_s / span_s, Integer)
            query = (
                select(_capacity, func.max(_capacity.c.at_s))
                .group_by(_capacity.c.side, span)
                .order_by(_capacity.c.at_s, _capacity.c.side)
            )
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [
            CapacitySample(
                side=Side(row.side),
                at_s=row.at_s,
                total_bytes=row.total_bytes,
                free_bytes=row.free_bytes,
                total_inodes=row.total_inodes,
                free_inodes=row.free_inodes,
            )
            for row in rows
        ]


# Limits that operators set, and what runs were allowed.


_controls = tables.controls
_records = tables.governor_records

_HOLD, _TUNE = "hold", "tune"

KEPT_RECORDS = 5000
"""About a fortnight of runs, with a change every few minutes."""


class ControlRecords:
    """Limits that operators set while the migration runs. Earlier settings are kept."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> Controls:
        """The current settings."""
        with self._database.read() as connection:
            hold, tuned = _newest(connection, _HOLD), _newest(connection, _TUNE)
        limits = Limits() if tuned is None else record_of(tuned, Limits)
        return Controls(
            hold=Hold(since_s=hold.at_s, by=hold.by, reason=hold.reason) if hold is not None and hold.paused else None,
            tuned=None if tuned is None or limits.nothing else Tuned(limits=limits, since_s=tuned.at_s, by=tuned.by),
        )

    def hold(self, *, by: str, reason: str, at_s: float) -> None:
        """Pause. A pause that is already set keeps its time and author."""
        self._set_paused(paused=True, by=by, reason=reason, at_s=at_s)

    def resume(self, *, by: str, at_s: float) -> None:
        """End a pause, if there is one."""
        self._set_paused(paused=False, by=by, reason="", at_s=at_s)

    def tune(self, limits: Limits, *, by: str, at_s: float, instead_of: Limits | None = None) -> bool:
        """Replace all limits; `Limits()` removes them. Returns False, and changes nothing, if the current ones are not `instead_of`."""
        with self._database.write() as connection:
            newest = _newest(connection, _TUNE)
            before = Limits() if newest is None else record_of(newest, Limits)
            if instead_of not in (None, before):
                return False
            if before == limits:
                return True
            connection.execute(
                insert(_controls).values(
                    kind=_TUNE,
                    at_s=at_s,
                    by=by,
                    paused=0,
                    reason="",
                    jobs=limits.jobs,
                    bwlimit_bytes_per_s=limits.bwlimit_bytes_per_s,
                    max_latency_s=limits.max_latency_s,
                    max_load=limits.max_load,
                )
            )
        return True

    def _set_paused(self, *, paused: bool, by: str, reason: str, at_s: float) -> None:
        with self._database.write() as connection:
            newest = _newest(connection, _HOLD)
            if (newest is not None and bool(newest.paused)) is paused:
                return
            connection.execute(
                insert(_controls).values(kind=_HOLD, at_s=at_s, by=by, paused=int(paused), reason=reason)
            )


class GovernorRecords:
    """What runs were allowed over time; old records are removed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, record: GovernorRecord) -> None:
        """Store a record. Some calls also remove old ones."""
        with self._database.write() as connection:
            added = connection.execute(
                insert(_records).values(
                    run_id=record.run_id,
                    at_s=record.at_s,
                    gate=record.gate.value,
                    bound=record.bound.value,
                    streams=record.streams,
                    most=record.most,
                    hosts=json.dumps(record.hosts),
                    bwlimit_bytes_per_s=record.bwlimit_bytes_per_s,
                    reason=record.reason,
                    until_s=record.until_s,
                    max_latency_s=record.max_latency_s,
                    max_load=record.max_load,
                )
            )
            number = added.inserted_primary_key[0] if added.inserted_primary_key is not None else 0
            if number % _THIN_EVERY == 0:
                connection.execute(delete(_records).where(_records.c.id <= number - KEPT_RECORDS))

    def newest(self) -> GovernorRecord | None:
        """The newest record of any run."""
        with self._database.read() as connection:
            row = connection.execute(select(_records).order_by(_records.c.id.desc()).limit(1)).one_or_none()
        return None if row is None else _record(row)

    def of_run(self, run_id: int) -> Sequence[GovernorRecord]:
        """The records of a run, oldest first."""
        query = select(_records).where(_records.c.run_id == run_id).order_by(_records.c.id)
        with self._database.read() as connection:
            return [_record(row) for row in connection.execute(query)]

    def keep_loads(self, loads: Sequence[HostLoad]) -> None:
        """Store the current load of hosts, replacing all earlier values."""
        with self._database.write() as connection:
            connection.execute(delete(tables.host_loads))
            if loads:
                connection.execute(insert(tables.host_loads), [asdict(one) for one in loads])

    def loads(self) -> Sequence[HostLoad]:
        """The latest loads, in order of host."""
        query = select(tables.host_loads).order_by(tables.host_loads.c.host)
        with self._database.read() as connection:
            return [HostLoad(host=row.host, at_s=row.at_s, load=row.load) for row in connection.execute(query)]


def _newest(connection: Connection, kind: str) -> Row[Any] | None:
    query = select(_controls).where(_controls.c.kind == kind).order_by(_controls.c.id.desc()).limit(1)
    return connection.execute(query).one_or_none()


def _record(row: Row[Any]) -> GovernorRecord:
    return record_of(row, GovernorRecord, hosts=tuple((host, streams) for host, streams in json.loads(row.hosts)))


# Benchmarks.


_benchmarks = tables.benchmarks
_measurements = tables.benchmark_measurements


class BenchmarkRecords:
    """Benchmarks and their measurements."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(self, record: BenchmarkRecord) -> BenchmarkRecord:
        """Record a new benchmark; return it with its id."""
        values = {
            "suite": record.suite.value,
            "scale": record.scale,
            "seed": record.seed,
            "runs": record.runs,
            "places": encode(record.places),
            "hosts": encode_words(record.hosts),
            "token": record.token,
            "state": record.state.value,
            "started_at_s": record.started_at_s,
            "notes": encode_words(record.notes),
        }
        with self._database.write() as connection:
            done = connection.execute(insert(_benchmarks).values(values))
            return replace(record, id=int((done.inserted_primary_key or (0,))[0]))

    def measured(self, benchmark_id: int, measurement: Measurement) -> None:
        """Record the measurement of one step."""
        with self._database.write() as connection:
            connection.execute(
                insert(_measurements).prefix_with("OR REPLACE"),
                {
                    "benchmark_id": benchmark_id,
                    "place": measurement.place,
                    "run": measurement.run,
                    "step": measurement.step,
                    "at_s": measurement.at_s,
                    "value": measurement.value,
                    "unit": measurement.unit.value,
                    "document": encode(measurement),
                },
            )

    def finish(
        self, benchmark_id: int, state: BenchmarkState, *, at_s: float, notes: Sequence[str] = ()
    ) -> BenchmarkRecord:
        """Record the end of a benchmark. The first end counts."""
        with self._database.write() as connection:
            connection.execute(
                update(_benchmarks)
                .where(_benchmarks.c.id == benchmark_id, _benchmarks.c.ended_at_s.is_(None))
                .values(state=state.value, ended_at_s=at_s, notes=encode_words(notes))
            )
        return self.read(benchmark_id)

    def read(self, benchmark_id: int) -> BenchmarkRecord:
        """One benchmark. Raises UsageError if there is none."""
        with self._database.read() as connection:
            row = connection.execute(select(_benchmarks).where(_benchmarks.c.id == benchmark_id)).one_or_none()
        if row is None:
            raise UsageError(f"there is no benchmark {benchmark_id}", hint="`migrator bench list` has their numbers")
        return _benchmark(row)

    def all(self) -> Sequence[BenchmarkRecord]:
        """Every benchmark, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(_benchmarks).order_by(_benchmarks.c.id)).all()
        return [_benchmark(row) for row in rows]

    def measurements(self, benchmark_id: int) -> Sequence[Measurement]:
        """Measurements in the order in which they were made."""
        query = (
            select(_measurements.c.document)
            .where(_measurements.c.benchmark_id == benchmark_id)
            .order_by(_measurements.c.at_s, _measurements.c.run, _measurements.c.place, _measurements.c.step)
        )
        with self._database.read() as connection:
            documents = connection.execute(query).scalars().all()
        return [decode(document, Measurement) for document in documents]


def _benchmark(row: Row[Any]) -> BenchmarkRecord:
    return record_of(row, BenchmarkRecord, places=decode(row.places, tuple[Place, ...]))
