"""Benchmarks and what they measured."""

from sqlalchemy import Column, Float, ForeignKey, Integer, Table

from migrator.adapters.ledger.tables.columns import PlainText, metadata, required

# One row a suite and call; `places`, `hosts` and `notes` are JSON, as they are read as a whole.
benchmarks = Table(
    "benchmarks",
    metadata,
    Column("id", Integer, primary_key=True),
    required("suite", PlainText),
    required("scale", Float),
    required("seed", Integer),
    required("runs", Integer),
    required("places", PlainText),
    required("hosts", PlainText),
    required("token", PlainText),
    required("state", PlainText),
    required("started_at_s", Float),
    Column("ended_at_s", Float),
    required("notes", PlainText),
)

# `document` is the whole measurement as JSON; value and unit stand beside it for whoever asks the database.
benchmark_measurements = Table(
    "benchmark_measurements",
    metadata,
    Column("benchmark_id", Integer, ForeignKey("benchmarks.id"), primary_key=True),
    Column("place", PlainText, primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("step", PlainText, primary_key=True),
    required("at_s", Float),
    required("value", Float),
    required("unit", PlainText),
    required("document", PlainText),
    sqlite_with_rowid=False,
)
