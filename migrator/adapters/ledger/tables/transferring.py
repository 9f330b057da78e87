"""Passes over batches: what each was made for, its chunks, the attempts at them, and what was predicted after it."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    Table,
    UniqueConstraint,
    text,
)

from migrator.adapters.ledger.tables.columns import PlainText, metadata, required

UNFINISHED = text("state IN ('intended', 'running')")
"""Attempts that a crash may have left. In a query it must stand word for word as in the index, or all are read."""

passes = Table(
    "passes",
    metadata,
    Column("id", Integer, primary_key=True),
    required("plan", PlainText),
    required("batch", Integer),
    required("kind", PlainText),
    required("number", Integer),
    required("state", PlainText),
    required("catalog", PlainText),
    Column("base_catalog", PlainText),
    required("chunk_list", PlainText),
    Column("move_list", PlainText),
    Column("move_list_digest", PlainText),
    Column("moved_at_s", Float),
    Column("scan_s", Float),
    required("started_at_s", Float),
    Column("finished_at_s", Float),
    required("total_files", Integer),
    required("total_bytes", Integer),
    UniqueConstraint("plan", "batch", "kind", "number"),
    CheckConstraint("(kind = 'seed') = (number = 0) AND number >= 0", name="number"),
)

# What a pass after the seed was made for: by tree, and by tree and kind of change.
pass_trees = Table(
    "pass_trees",
    metadata,
    Column("pass_id", Integer, ForeignKey("passes.id"), primary_key=True),
    Column("tree", LargeBinary, primary_key=True),
    required("names_before", Integer),
    required("bytes_before", Integer),
    sqlite_with_rowid=False,
)

pass_changes = Table(
    "pass_changes",
    metadata,
    Column("pass_id", Integer, primary_key=True),
    Column("tree", LargeBinary, primary_key=True),
    Column("kind", PlainText, primary_key=True),
    required("paths", Integer),
    required("directories", Integer),
    required("size_bytes", Integer),
    ForeignKeyConstraint(["pass_id", "tree"], ["pass_trees.pass_id", "pass_trees.tree"]),
    sqlite_with_rowid=False,
)

chunks = Table(
    "chunks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("pass_id", Integer, ForeignKey("passes.id"), nullable=False),
    required("number", Integer),
    required("kind", PlainText),
    required("tree", LargeBinary),
    required("files", Integer),
    required("size_bytes", Integer),
    required("state", PlainText),
    required("tries", Integer),
    Column("list_path", PlainText),
    Column("brick", PlainText),
    Column("parent_id", Integer, ForeignKey("chunks.id")),
    UniqueConstraint("pass_id", "number"),
    # What waits, the largest first, also of some bricks, and the sums of a pass: no row is read that is not asked for.
    Index("ix_chunks_pending", "pass_id", "kind", "state", "size_bytes", "number", "brick"),
    Index("ix_chunks_totals", "pass_id", "tree", "kind", "state", "files", "size_bytes"),
    Index("ix_chunks_parent_id", "parent_id", sqlite_where=text("parent_id IS NOT NULL")),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("chunk_id", Integer, ForeignKey("chunks.id"), nullable=False),
    required("number", Integer),
    required("token", PlainText),
    required("host", PlainText),
    required("engine", PlainText),
    required("state", PlainText),
    Column("pid", Integer),
    Column("start_ticks", Integer),
    Column("boot_id", PlainText),
    required("argv", PlainText),
    required("started_at_s", Float),
    Column("finished_at_s", Float),
    Column("exit_code", Integer),
    required("files", Integer),
    required("size_bytes", Integer),
    required("stderr_tail", LargeBinary),
    UniqueConstraint("token"),
    UniqueConstraint("chunk_id", "number"),
    Index("ix_attempts_unfinished", "state", sqlite_where=UNFINISHED),
    # Sums over attempts (what is done when, what a file costs) come from this index: the rows are long, with argv and
    # the end of standard error.
    Index("ix_attempts_results", "state", "chunk_id", "started_at_s", "finished_at_s", "files", "size_bytes"),
    Index("ix_attempts_hosts", "host", "engine", "state", "files", "size_bytes"),
)

attention = Table(
    "attention",
    metadata,
    Column("pass_id", Integer, ForeignKey("passes.id"), primary_key=True),
    Column("path", LargeBinary, primary_key=True),
    Column("chunk_id", Integer, ForeignKey("chunks.id")),
    required("kind", PlainText),
    Column("errno", Integer),
    required("reason", PlainText),
    required("at_s", Float),
    Index("ix_attention_chunk_id", "chunk_id"),
    Index("ix_attention_kind", "pass_id", "kind"),
    sqlite_with_rowid=False,
)

# What was predicted after a pass; the churn by tree is JSON, as it is read as a whole.
predictions = Table(
    "predictions",
    metadata,
    Column("pass_id", Integer, ForeignKey("passes.id"), primary_key=True),
    required("at_s", Float),
    required("decision", PlainText),
    required("max_freeze_s", Float),
    required("next_pass_s", Float),
    required("freeze_s", Float),
    required("least_freeze_s", Float),
    required("churn_files_per_h", Float),
    required("churn_bytes_per_h", Float),
    required("churn_of_trees", PlainText),
)
