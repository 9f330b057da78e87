"""What people set by `pause`, `resume` and `tune`, and what the governor allowed."""

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, Table

from migrator.adapters.ledger.tables.columns import PlainText, metadata, required

# A row a command that pauses, resumes or tunes: the newest of each kind is what is set. Times are those of the commands.
controls = Table(
    "controls",
    metadata,
    Column("id", Integer, primary_key=True),
    required("kind", PlainText),
    required("at_s", Float),
    required("by", PlainText),
    required("paused", Integer),
    required("reason", PlainText),
    Column("jobs", Integer),
    Column("bwlimit_bytes_per_s", Integer),
    Column("max_latency_s", Float),
    Column("max_load", Float),
    Index("ix_controls_kind", "kind", "id"),
)

# What a run is allowed from then on: a row whenever that changes, old ones are removed. `hosts` is JSON.
governor_records = Table(
    "governor_records",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", Integer, ForeignKey("runs.id"), nullable=False),
    required("at_s", Float),
    required("gate", PlainText),
    required("bound", PlainText),
    required("streams", Integer),
    required("most", Integer),
    required("hosts", PlainText),
    Column("bwlimit_bytes_per_s", Integer),
    required("reason", PlainText),
    Column("until_s", Float),
    Column("max_latency_s", Float),
    Column("max_load", Float),
    Index("ix_governor_records_run_id", "run_id"),
)

# What the governor read last of the hosts that have streams: all rows are replaced at once.
host_loads = Table(
    "host_loads",
    metadata,
    Column("host", PlainText, primary_key=True),
    required("at_s", Float),
    required("load", Float),
)
