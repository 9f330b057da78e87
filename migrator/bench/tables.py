"""The tables of benchmarks."""

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from migrator.bench.model import BenchmarkState, FigureUnit, MeasuredFileSystem, Measurement, SuiteName
from migrator.ledger.tables import Base, EnumText, JsonText


class BenchmarkRow(Base):
    """One call of a suite. `places`, `hosts` and `notes` are JSON: they are only read as a whole."""

    __tablename__ = "benchmarks"

    id: Mapped[int] = mapped_column(primary_key=True)
    suite: Mapped[SuiteName] = mapped_column(EnumText(SuiteName))
    scale: Mapped[float]
    seed: Mapped[int]
    runs: Mapped[int]
    places: Mapped[tuple[MeasuredFileSystem, ...]] = mapped_column(JsonText(tuple[MeasuredFileSystem, ...]))
    hosts: Mapped[tuple[str, ...]] = mapped_column(JsonText(tuple[str, ...]))
    token: Mapped[str]
    state: Mapped[BenchmarkState] = mapped_column(EnumText(BenchmarkState))
    started_at_s: Mapped[float]
    ended_at_s: Mapped[float | None]
    notes: Mapped[tuple[str, ...]] = mapped_column(JsonText(tuple[str, ...]))


class BenchmarkMeasurementRow(Base):
    """A measurement. `document` is all of it as JSON; value and unit are columns for queries by hand."""

    __tablename__ = "benchmark_measurements"
    __table_args__ = {"sqlite_with_rowid": False}

    benchmark_id: Mapped[int] = mapped_column(sa.ForeignKey("benchmarks.id"), primary_key=True)
    place: Mapped[str] = mapped_column(primary_key=True)
    run: Mapped[int] = mapped_column(primary_key=True)
    step: Mapped[str] = mapped_column(primary_key=True)
    at_s: Mapped[float]
    value: Mapped[float]
    unit: Mapped[FigureUnit] = mapped_column(EnumText(FigureUnit))
    document: Mapped[Measurement] = mapped_column(JsonText(Measurement))
