"""Cutovers, what was measured in trees around them, and backups of the target."""

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, LargeBinary, Table, UniqueConstraint

from migrator.adapters.ledger.tables.columns import PlainText, metadata, required, steps_table

# One row a tree and attempt; `times` is JSON, as it is read as a whole.
cutovers = Table(
    "cutovers",
    metadata,
    Column("id", Integer, primary_key=True),
    required("plan", PlainText),
    required("batch", Integer),
    required("tree", LargeBinary),
    required("user", PlainText),
    required("attempt", Integer),
    # Directories of one attempt are named by its number and this: a ledger that was restored gives the number again.
    required("token", PlainText),
    required("state", PlainText),
    required("times", PlainText),
    Column("predicted_freeze_s", Float),
    Column("frozen_at_s", Float),
    Column("thawed_at_s", Float),
    required("failure", PlainText),
    Column("frozen_top", PlainText),
    Column("frozen_target_top", PlainText),
    Column("link", LargeBinary),
    Column("link_before", LargeBinary),
    Column("link_after", LargeBinary),
    Column("passes_before", Integer),
    Column("proofs_before", Integer),
    Column("final_pass_id", Integer),
    Column("verification_id", Integer),
    Column("manifest", PlainText),
    Column("changed_files", Integer),
    Column("changed_bytes", Integer),
    Column("changed_gone", Integer),
    Column("purge_names", Integer),
    Column("purge_inodes", Integer),
    Column("purge_bytes", Integer),
    UniqueConstraint("tree", "attempt"),
)

cutover_steps = steps_table("cutover")

# Backups of the target that somebody else makes; `at_s` is when one began.
target_backups = Table(
    "target_backups",
    metadata,
    Column("id", Integer, primary_key=True),
    required("tree", LargeBinary),
    required("at_s", Float),
    required("note", PlainText),
    Index("ix_target_backups_tree", "tree"),
)

# `cold` is null where nothing is read; `amount` are lines or bytes.
tree_measurements = Table(
    "tree_measurements",
    metadata,
    Column("cutover_id", Integer, ForeignKey("cutovers.id"), primary_key=True),
    Column("side", PlainText, primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("test", PlainText, primary_key=True),
    required("at_s", Float),
    required("seconds", Float),
    required("amount", Integer),
    required("complete", Integer),
    Column("cold", Integer),
    required("failure", PlainText),
    sqlite_with_rowid=False,
)
