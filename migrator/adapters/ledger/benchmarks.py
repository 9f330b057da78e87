"""Benchmarks in the ledger."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, insert, select, update

from migrator.adapters.ledger import tables
from migrator.adapters.ledger.codec import decode, decode_words, encode, encode_words
from migrator.adapters.ledger.database import Database
from migrator.domain.benchmark import BenchmarkRecord, BenchmarkState, Measurement, Place, SuiteName
from migrator.domain.errors import UsageError

_benchmarks = tables.benchmarks
_measurements = tables.benchmark_measurements


class SqliteBenchmarks:
    """The `BenchmarkRecords` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def start(self, record: BenchmarkRecord) -> BenchmarkRecord:
        """A benchmark begins; its id is given here."""
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
        """One step was measured."""
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
        """It ended. The first end counts."""
        with self._database.write() as connection:
            connection.execute(
                update(_benchmarks)
                .where(_benchmarks.c.id == benchmark_id, _benchmarks.c.ended_at_s.is_(None))
                .values(state=state.value, ended_at_s=at_s, notes=encode_words(notes))
            )
        return self.read(benchmark_id)

    def read(self, benchmark_id: int) -> BenchmarkRecord:
        """One benchmark. Raises UsageError where there is none."""
        with self._database.read() as connection:
            row = connection.execute(select(_benchmarks).where(_benchmarks.c.id == benchmark_id)).one_or_none()
        if row is None:
            raise UsageError(f"there is no benchmark {benchmark_id}", hint="`migrator bench list` has their numbers")
        return _record(row)

    def all(self) -> Sequence[BenchmarkRecord]:
        """Every benchmark, oldest first."""
        with self._database.read() as connection:
            rows = connection.execute(select(_benchmarks).order_by(_benchmarks.c.id)).all()
        return [_record(row) for row in rows]

    def measurements(self, benchmark_id: int) -> Sequence[Measurement]:
        """In the order in which they were made."""
        query = (
            select(_measurements.c.document)
            .where(_measurements.c.benchmark_id == benchmark_id)
            .order_by(_measurements.c.at_s, _measurements.c.run, _measurements.c.place, _measurements.c.step)
        )
        with self._database.read() as connection:
            documents = connection.execute(query).scalars().all()
        return [decode(document, Measurement) for document in documents]


def _record(row: Row[Any]) -> BenchmarkRecord:
    return BenchmarkRecord(
        id=row.id,
        suite=SuiteName(row.suite),
        scale=row.scale,
        seed=row.seed,
        runs=row.runs,
        places=decode(row.places, tuple[Place, ...]),
        hosts=decode_words(row.hosts),
        token=row.token,
        state=BenchmarkState(row.state),
        started_at_s=row.started_at_s,
        ended_at_s=row.ended_at_s,
        notes=decode_words(row.notes),
    )
