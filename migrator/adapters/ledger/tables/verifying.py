"""Verifications, with what they found."""

from sqlalchemy import Column, Float, Index, Integer, Table

from migrator.adapters.ledger.tables.columns import PlainText, metadata, required

verifications = Table(
    "verifications",
    metadata,
    Column("id", Integer, primary_key=True),
    required("plan", PlainText),
    required("batch", Integer),
    required("started_at_s", Float),
    Column("finished_at_s", Float),
    required("algorithm", PlainText),
    required("share", Float),
    required("seed", Integer),
    required("paths", Integer),
    required("size_bytes", Integer),
    required("digested_files", Integer),
    required("digested_bytes", Integer),
    required("proven_gone", Integer),
    required("differences", PlainText),
    required("expected", PlainText),
    required("whole", Integer),
    required("reasons", PlainText),
    Column("manifest", PlainText),
    Column("manifest_digest", PlainText),
    required("files", Integer),
    required("equal_paths", Integer),
    Column("differences_file", PlainText),
    required("trees", PlainText),
    required("carried_files", Integer),
    required("carried_bytes", Integer),
    Index("ix_verifications_plan", "plan", "batch"),
)
