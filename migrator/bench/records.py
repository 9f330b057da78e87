"""The records of benchmarks in the ledger."""

from collections.abc import Sequence

from msgspec.structs import replace
from sqlalchemy import select, update

from migrator.bench.model import BenchmarkRecord, BenchmarkState, Measurement
from migrator.bench.tables import BenchmarkMeasurementRow, BenchmarkRow
from migrator.core.errors import UsageError
from migrator.ledger.ledger import Ledger
from migrator.ledger.rows import Records, columns_of


class BenchmarkRecords(Records):
    """Benchmarks and their measurements."""

    def start(self, record: BenchmarkRecord) -> BenchmarkRecord:
        """Record a new benchmark; return it with its id."""
        return replace(record, id=self._add(BenchmarkRow, **columns_of(BenchmarkRow, record)))

    def measured(self, benchmark_id: int, measurement: Measurement) -> None:
        """Record the measurement of one step."""
        row = columns_of(BenchmarkMeasurementRow, measurement, benchmark_id=benchmark_id, document=measurement)
        self._put(BenchmarkMeasurementRow, [row])

    def finish(
        self, benchmark_id: int, state: BenchmarkState, *, at_s: float, notes: Sequence[str] = ()
    ) -> BenchmarkRecord:
        """Record the end of a benchmark. The first end counts."""
        unfinished = (BenchmarkRow.id == benchmark_id, BenchmarkRow.ended_at_s.is_(None))
        ended = {"state": state, "ended_at_s": at_s, "notes": notes}
        with self._database.write() as connection:
            connection.execute(update(BenchmarkRow).where(*unfinished).values(ended))
        return self.read(benchmark_id)

    def read(self, benchmark_id: int) -> BenchmarkRecord:
        """One benchmark. Raises UsageError if there is none."""
        found = self._first(BenchmarkRecord, select(BenchmarkRow).where(BenchmarkRow.id == benchmark_id))
        if found is None:
            raise UsageError(f"there is no benchmark {benchmark_id}", hint="`migrator bench list` has their numbers")
        return found

    def all(self) -> Sequence[BenchmarkRecord]:
        """Every benchmark, oldest first."""
        return self._all(BenchmarkRecord, select(BenchmarkRow).order_by(BenchmarkRow.id))

    def measurements(self, benchmark_id: int) -> Sequence[Measurement]:
        """Measurements in the order in which they were made."""
        made = BenchmarkMeasurementRow
        query = select(made.document).where(made.benchmark_id == benchmark_id)
        rows = self._rows(query.order_by(made.at_s, made.run, made.place, made.step))
        return [document for (document,) in rows]


class BenchLedger(Ledger):
    """The ledger with the records of benchmarks."""

    benchmarks: BenchmarkRecords
