"""Drains and additions of bricks, and the retirement of the source volume."""

from sqlalchemy import Column, Float, Index, Integer, Table

from migrator.adapters.ledger.tables.columns import PlainText, metadata, required, steps_table, task_samples_table

# One row an attempt; `bricks`, `times` and `options` are JSON, as they are read as a whole.
drains = Table(
    "drains",
    metadata,
    Column("id", Integer, primary_key=True),
    required("volume", PlainText),
    required("volume_id", PlainText),
    required("bricks", PlainText),
    required("attempt", Integer),
    required("state", PlainText),
    required("times", PlainText),
    required("failure", PlainText),
    Column("options", PlainText),
    Column("task_id", PlainText),
    Column("task_before", PlainText),
    Column("layout_task_id", PlainText),
    Column("files", Integer),
    Column("size_bytes", Integer),
    Index("ix_drains_volume_id", "volume_id"),
)

drain_steps = steps_table("drain")

drain_samples = task_samples_table("drain")

# One row an attempt; `bricks`, `times`, `options`, `room_before` and `directories` are JSON, as they are read as a whole.
additions = Table(
    "additions",
    metadata,
    Column("id", Integer, primary_key=True),
    required("side", PlainText),
    required("volume", PlainText),
    required("volume_id", PlainText),
    required("bricks", PlainText),
    Column("instead_of", PlainText),
    required("attempt", Integer),
    required("state", PlainText),
    required("times", PlainText),
    required("failure", PlainText),
    Column("task_id", PlainText),
    Column("task_before", PlainText),
    Column("room_before", PlainText),
    Column("size_bytes", Integer),
    Column("files", Integer),
    Column("options", PlainText),
    Column("directories", PlainText),
    Column("filesystem_before", PlainText),
    Column("filesystem_id", PlainText),
    Index("ix_additions_volume_id", "volume_id"),
)

addition_steps = steps_table("addition")

addition_samples = task_samples_table("addition")

# One row an attempt to stop the source volume for good. `files` and `size_bytes` were proven to be on the target before.
retirements = Table(
    "retirements",
    metadata,
    Column("id", Integer, primary_key=True),
    required("volume", PlainText),
    required("volume_id", PlainText),
    required("state", PlainText),
    required("intended_at_s", Float),
    Column("ended_at_s", Float),
    required("catalog", PlainText),
    required("files", Integer),
    required("size_bytes", Integer),
    required("failure", PlainText),
)
