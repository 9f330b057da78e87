"""What is measured while a migration goes on: throughput, room, what users feel."""

from sqlalchemy import CheckConstraint, Column, Float, ForeignKey, Index, Integer, Table

from migrator.adapters.ledger.tables.columns import PlainText, metadata, required

# `attempt_id` 0 stands for all streams together. Clustered by time, without a second index: this is the table that
# grows while streams work (a row a stream every few seconds). Of single streams old rows are put together by the hour.
samples = Table(
    "samples",
    metadata,
    Column("pass_id", Integer, ForeignKey("passes.id"), primary_key=True),
    Column("attempt_id", Integer, primary_key=True),
    Column("at_s", Float, primary_key=True),
    required("interval_s", Float),
    required("streams", Integer),
    required("files", Integer),
    required("size_bytes", Integer),
    sqlite_with_rowid=False,
)

# One row: the samples of attempts up to this one have been put together by the hour.
thinned_samples = Table(
    "thinned_samples",
    metadata,
    Column("id", Integer, primary_key=True),
    required("attempt_id", Integer),
    CheckConstraint("id = 1", name="one_row"),
)

# How full both sides were: a row a side at the begin and end of a run, and every hour of it.
capacity_samples = Table(
    "capacity_samples",
    metadata,
    Column("side", PlainText, primary_key=True),
    Column("at_s", Float, primary_key=True),
    required("total_bytes", Integer),
    required("free_bytes", Integer),
    Column("total_inodes", Integer),
    Column("free_inodes", Integer),
    sqlite_with_rowid=False,
)

# A row a minute and side, thinned out when they are old; without times it had no answer, or failed.
probes = Table(
    "probes",
    metadata,
    Column("id", Integer, primary_key=True),
    required("side", PlainText),
    required("at_s", Float),
    Column("create_s", Float),
    Column("write_s", Float),
    Column("sync_s", Float),
    Column("stat_s", Float),
    Column("unlink_s", Float),
    Column("readdir_s", Float),
    Column("waited_s", Float),
    required("failure", PlainText),
    Index("ix_probes_side_at_s", "side", "at_s"),
)
