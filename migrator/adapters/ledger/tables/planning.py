"""Scans, plans, and the batches of plans."""

from sqlalchemy import Column, Float, ForeignKey, ForeignKeyConstraint, Integer, LargeBinary, Table, UniqueConstraint

from migrator.adapters.ledger.tables.columns import PlainText, metadata, required

scans = Table(
    "scans",
    metadata,
    Column("id", Integer, primary_key=True),
    required("catalog", PlainText),
    required("via", PlainText),
    # The paths of the user trees that it covers; an empty list is the whole source.
    required("scope", PlainText),
    required("started_at_s", Float),
    Column("finished_at_s", Float),
    required("trees", PlainText),
    required("parts", PlainText),
    required("whole", Integer),
    required("reasons", PlainText),
    required("rows", Integer),
    required("files", Integer),
    required("directories", Integer),
    required("size_bytes", Integer),
    required("problems", Integer),
    required("health_fingerprint", PlainText),
    # What was put on bricks past Gluster, by brick.
    required("strange", PlainText),
    UniqueConstraint("catalog"),
)

# `scan_id` is no foreign key: a plan may be made from a catalog whose ledger was restored from an older backup.
plans = Table(
    "plans",
    metadata,
    Column("id", Integer, primary_key=True),
    required("name", PlainText),
    required("path", PlainText),
    required("checksum", PlainText),
    required("created_at_s", Float),
    required("scan_id", Integer),
    required("catalog", PlainText),
    required("size_bytes", Integer),
    required("files", Integer),
    required("directories", Integer),
    required("cost", PlainText),
    required("forecast_s", Float),
    UniqueConstraint("name"),
)

batches = Table(
    "batches",
    metadata,
    Column("plan", PlainText, ForeignKey("plans.name"), primary_key=True),
    Column("number", Integer, primary_key=True),
    required("state", PlainText),
    required("size_bytes", Integer),
    required("files", Integer),
    required("directories", Integer),
    required("chunks", Integer),
    required("forecast_s", Float),
)

batch_trees = Table(
    "batch_trees",
    metadata,
    Column("plan", PlainText, primary_key=True),
    Column("batch", Integer, primary_key=True),
    Column("tree", LargeBinary, primary_key=True),
    required("user", PlainText),
    required("rank", Integer),
    required("size_bytes", Integer),
    required("files", Integer),
    required("directories", Integer),
    # Of these bytes and files, what is archived or skipped instead of being copied.
    required("reaped_bytes", Integer),
    required("reaped_files", Integer),
    ForeignKeyConstraint(["plan", "batch"], ["batches.plan", "batches.number"]),
)
