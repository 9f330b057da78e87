"""The tables of the ledger. Units are in the names of columns; paths are BLOBs; times are seconds since the epoch.

No table has a row per file, except for files that need attention: files are in the catalog. Before the first release the tables are
the schema. A change raises `SCHEMA_VERSION`, and a ledger of another version is refused.
"""

from typing import Any

from sqlalchemy import (
    CheckConstraint,
    Column,
    Dialect,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    text,
)

APPLICATION_ID = 0x4D494752
"""Marks an SQLite file as a ledger ("MIGR"), in `PRAGMA application_id`."""
SCHEMA_VERSION = 1
"""The schema that this code reads and writes, in `PRAGMA user_version`."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class PlainText(TypeDecorator[str]):
    """Text that can always be stored: lone surrogates, which UTF-8 cannot hold, become escapes."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape what cannot be encoded."""
        del dialect
        return None if value is None else storable(value)


def storable(value: str) -> str:
    """Text that can always be stored and shown."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def required(kind: Any, *names: str) -> list[Column[Any]]:  # noqa: ANN401 - a column's type is SQLAlchemy's business
    """Columns of one type that are never null."""
    return [Column(name, kind, nullable=False) for name in names]


def optional(kind: Any, *names: str) -> list[Column[Any]]:  # noqa: ANN401 - as above
    """Columns of one type that may be null."""
    return [Column(name, kind) for name in names]


# The site, runs, events, hooks.


site = Table(
    "site",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(PlainText, "site_id", "name"),
    *required(Float, "created_at_s"),
    *required(PlainText, "source", "target"),
    *optional(PlainText, "capabilities"),
    *optional(Float, "capabilities_probed_at_s"),
    CheckConstraint("id = 1", name="one_row"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(PlainText, "verb"),
    *required(Integer, "pid"),
    *required(Float, "started_at_s", "heartbeat_at_s"),
    *optional(Float, "finished_at_s"),
    *optional(Integer, "exit_code"),
    *required(PlainText, "directory"),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", Integer, ForeignKey("runs.id")),
    *required(Float, "at_s"),
    *required(PlainText, "kind", "severity", "subject", "message"),
    Index("ix_events_severity", "severity"),
)

hook_steps = Table(
    "hook_steps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", Integer, ForeignKey("runs.id"), nullable=False),
    *required(PlainText, "step", "subject"),
    *required(Float, "opened_at_s"),
    *optional(Float, "closed_at_s"),
    *optional(PlainText, "state"),
    Index("ix_hook_steps_open", "step", "subject", sqlite_where=text("closed_at_s IS NULL")),
)

hook_calls = Table(
    "hook_calls",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("step_id", Integer, ForeignKey("hook_steps.id"), nullable=False),
    *required(PlainText, "stage"),
    *required(LargeBinary, "name"),
    *required(PlainText, "token"),
    *required(Float, "started_at_s"),
    *optional(Float, "finished_at_s"),
    *optional(Integer, "exit_code"),
    *optional(PlainText, "outcome"),
    *required(LargeBinary, "output"),
    UniqueConstraint("token"),
    Index("ix_hook_calls_step_id", "step_id"),
    Index("ix_hook_calls_unfinished", "id", sqlite_where=text("finished_at_s IS NULL")),
)


# Scans and plans.


scans = Table(
    "scans",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(PlainText, "catalog", "via"),
    # The paths of the user trees that it covers; empty for the whole source.
    *required(PlainText, "scope"),
    *required(Float, "started_at_s"),
    *optional(Float, "finished_at_s"),
    *required(PlainText, "trees", "parts"),
    *required(Integer, "whole"),
    *required(PlainText, "reasons"),
    *required(Integer, "rows", "files", "directories", "size_bytes", "problems"),
    *required(PlainText, "health_fingerprint"),
    # Files that were put on bricks without Gluster, by brick.
    *required(PlainText, "strange"),
    UniqueConstraint("catalog"),
)

# `scan_id` is no foreign key: a plan may be made from a catalog whose ledger was restored from an older backup.
plans = Table(
    "plans",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(PlainText, "name", "path", "checksum"),
    *required(Float, "created_at_s"),
    *required(Integer, "scan_id"),
    *required(PlainText, "catalog"),
    *required(Integer, "size_bytes", "files", "directories"),
    *required(PlainText, "cost"),
    *required(Float, "forecast_s"),
    UniqueConstraint("name"),
)

batches = Table(
    "batches",
    metadata,
    Column("plan", PlainText, ForeignKey("plans.name"), primary_key=True),
    Column("number", Integer, primary_key=True),
    *required(PlainText, "state"),
    *required(Integer, "size_bytes", "files", "directories", "chunks"),
    *required(Float, "forecast_s"),
)

batch_trees = Table(
    "batch_trees",
    metadata,
    Column("plan", PlainText, primary_key=True),
    Column("batch", Integer, primary_key=True),
    Column("tree", LargeBinary, primary_key=True),
    *required(PlainText, "user"),
    *required(Integer, "rank", "size_bytes", "files", "directories"),
    # The part of these bytes and files that is archived or skipped instead of copied.
    *required(Integer, "reaped_bytes", "reaped_files"),
    ForeignKeyConstraint(["plan", "batch"], ["batches.plan", "batches.number"]),
)


# Passes, chunks, attempts, predictions.


UNFINISHED = text("state IN ('intended', 'running')")
"""Attempts that a crash may have left. A query has to repeat the condition of the index word for word to use that index."""

passes = Table(
    "passes",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(PlainText, "plan"),
    *required(Integer, "batch"),
    *required(PlainText, "kind"),
    *required(Integer, "number"),
    *required(PlainText, "state", "catalog"),
    *optional(PlainText, "base_catalog"),
    *required(PlainText, "chunk_list"),
    *optional(PlainText, "move_list", "move_list_digest"),
    *optional(Float, "moved_at_s", "scan_s"),
    *required(Float, "started_at_s"),
    *optional(Float, "finished_at_s"),
    *required(Integer, "total_files", "total_bytes"),
    UniqueConstraint("plan", "batch", "kind", "number"),
    CheckConstraint("(kind = 'seed') = (number = 0) AND number >= 0", name="number"),
)

# What changed before a pass after the seed: by tree, and by tree and kind of change.
pass_trees = Table(
    "pass_trees",
    metadata,
    Column("pass_id", Integer, ForeignKey("passes.id"), primary_key=True),
    Column("tree", LargeBinary, primary_key=True),
    *required(Integer, "names_before", "bytes_before"),
    sqlite_with_rowid=False,
)

pass_changes = Table(
    "pass_changes",
    metadata,
    Column("pass_id", Integer, primary_key=True),
    Column("tree", LargeBinary, primary_key=True),
    Column("kind", PlainText, primary_key=True),
    *required(Integer, "paths", "directories", "size_bytes"),
    ForeignKeyConstraint(["pass_id", "tree"], ["pass_trees.pass_id", "pass_trees.tree"]),
    sqlite_with_rowid=False,
)

chunks = Table(
    "chunks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("pass_id", Integer, ForeignKey("passes.id"), nullable=False),
    *required(Integer, "number"),
    *required(PlainText, "kind"),
    *required(LargeBinary, "tree"),
    *required(Integer, "files", "size_bytes"),
    *required(PlainText, "state"),
    *required(Integer, "tries"),
    *optional(PlainText, "list_path", "brick"),
    Column("parent_id", Integer, ForeignKey("chunks.id")),
    UniqueConstraint("pass_id", "number"),
    # For pending chunks, the largest first, also of some bricks, and for the sums of a pass: no other row is read.
    Index("ix_chunks_pending", "pass_id", "kind", "state", "size_bytes", "number", "brick"),
    Index("ix_chunks_totals", "pass_id", "tree", "kind", "state", "files", "size_bytes"),
    Index("ix_chunks_parent_id", "parent_id", sqlite_where=text("parent_id IS NOT NULL")),
)

attempts = Table(
    "attempts",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("chunk_id", Integer, ForeignKey("chunks.id"), nullable=False),
    *required(Integer, "number"),
    *required(PlainText, "token", "host", "engine", "state"),
    *optional(Integer, "pid", "start_ticks"),
    *optional(PlainText, "boot_id"),
    *required(PlainText, "argv"),
    *required(Float, "started_at_s"),
    *optional(Float, "finished_at_s"),
    *optional(Integer, "exit_code"),
    *required(Integer, "files", "size_bytes"),
    *required(LargeBinary, "stderr_tail"),
    UniqueConstraint("token"),
    UniqueConstraint("chunk_id", "number"),
    Index("ix_attempts_unfinished", "state", sqlite_where=UNFINISHED),
    # Sums over attempts are answered from this index, because the rows are long: argv, the end of standard error.
    Index("ix_attempts_results", "state", "chunk_id", "started_at_s", "finished_at_s", "files", "size_bytes"),
    Index("ix_attempts_hosts", "host", "engine", "state", "files", "size_bytes"),
)

attention = Table(
    "attention",
    metadata,
    Column("pass_id", Integer, ForeignKey("passes.id"), primary_key=True),
    Column("path", LargeBinary, primary_key=True),
    Column("chunk_id", Integer, ForeignKey("chunks.id")),
    *required(PlainText, "kind"),
    *optional(Integer, "errno"),
    *required(PlainText, "reason"),
    *required(Float, "at_s"),
    Index("ix_attention_chunk_id", "chunk_id"),
    Index("ix_attention_kind", "pass_id", "kind"),
    sqlite_with_rowid=False,
)

# The prediction after a pass. The churn by tree is JSON, because it is only read as a whole.
predictions = Table(
    "predictions",
    metadata,
    Column("pass_id", Integer, ForeignKey("passes.id"), primary_key=True),
    *required(Float, "at_s"),
    *required(PlainText, "decision"),
    *required(
        Float, "max_freeze_s", "next_pass_s", "freeze_s", "least_freeze_s", "churn_files_per_h", "churn_bytes_per_h"
    ),
    *required(PlainText, "churn_of_trees"),
)


# Measurements while a migration runs: throughput, capacity, latency.


# `attempt_id` 0 stands for all streams together. Clustered by time, without a second index: this table grows by one row per
# stream every few seconds. Old rows of single streams are merged by the hour.
samples = Table(
    "samples",
    metadata,
    Column("pass_id", Integer, ForeignKey("passes.id"), primary_key=True),
    Column("attempt_id", Integer, primary_key=True),
    Column("at_s", Float, primary_key=True),
    *required(Float, "interval_s"),
    *required(Integer, "streams", "files", "size_bytes"),
    sqlite_with_rowid=False,
)

# One row: the samples of attempts up to this one have been merged by the hour.
thinned_samples = Table(
    "thinned_samples",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(Integer, "attempt_id"),
    CheckConstraint("id = 1", name="one_row"),
)

# Capacity of both sides: one row per side at the beginning and end of a run, and every hour between.
capacity_samples = Table(
    "capacity_samples",
    metadata,
    Column("side", PlainText, primary_key=True),
    Column("at_s", Float, primary_key=True),
    *required(Integer, "total_bytes", "free_bytes"),
    *optional(Integer, "total_inodes", "free_inodes"),
    sqlite_with_rowid=False,
)

# One row per minute and side; old rows are thinned out. A row without times had no answer, or failed.
probes = Table(
    "probes",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(PlainText, "side"),
    *required(Float, "at_s"),
    *optional(Float, "create_s", "write_s", "sync_s", "stat_s", "unlink_s", "readdir_s", "waited_s"),
    *required(PlainText, "failure"),
    Index("ix_probes_side_at_s", "side", "at_s"),
)


# Limits set by operators, and what the governor allowed.


# One row per command that pauses, resumes or tunes; the newest of each kind applies. `at_s` is the time of the command.
controls = Table(
    "controls",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(PlainText, "kind"),
    *required(Float, "at_s"),
    *required(PlainText, "by"),
    *required(Integer, "paused"),
    *required(PlainText, "reason"),
    *optional(Integer, "jobs", "bwlimit_bytes_per_s"),
    *optional(Float, "max_latency_s", "max_load"),
    Index("ix_controls_kind", "kind", "id"),
)

# What a run is allowed from `at_s` on: a row for every change. Old rows are removed. `hosts` is JSON.
governor_records = Table(
    "governor_records",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", Integer, ForeignKey("runs.id"), nullable=False),
    *required(Float, "at_s"),
    *required(PlainText, "gate", "bound"),
    *required(Integer, "streams", "most"),
    *required(PlainText, "hosts"),
    *optional(Integer, "bwlimit_bytes_per_s"),
    *required(PlainText, "reason"),
    *optional(Float, "until_s", "max_latency_s", "max_load"),
    Index("ix_governor_records_run_id", "run_id"),
)

# The latest load of the hosts that have streams: all rows are replaced at once.
host_loads = Table(
    "host_loads",
    metadata,
    Column("host", PlainText, primary_key=True),
    *required(Float, "at_s", "load"),
)


# Verifications.


verifications = Table(
    "verifications",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(PlainText, "plan"),
    *required(Integer, "batch"),
    *required(Float, "started_at_s"),
    *optional(Float, "finished_at_s"),
    *required(PlainText, "algorithm"),
    *required(Float, "share"),
    *required(Integer, "seed", "paths", "size_bytes", "digested_files", "digested_bytes", "proven_gone"),
    *required(PlainText, "differences", "expected"),
    *required(Integer, "whole"),
    *required(PlainText, "reasons"),
    *optional(PlainText, "manifest", "manifest_digest"),
    *required(Integer, "files", "equal_paths"),
    *optional(PlainText, "differences_file"),
    *required(PlainText, "trees"),
    *required(Integer, "carried_files", "carried_bytes"),
    Index("ix_verifications_plan", "plan", "batch"),
)


# Around cutovers: backups of the target, speed of users' trees.


# Backups of the target, made by other software; `at_s` is when one began.
target_backups = Table(
    "target_backups",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(LargeBinary, "tree"),
    *required(Float, "at_s"),
    *required(PlainText, "note"),
    Index("ix_target_backups_tree", "tree"),
)

# `cold` is null for tests that read nothing; `amount` is lines or bytes.
tree_measurements = Table(
    "tree_measurements",
    metadata,
    Column("cutover_id", Integer, ForeignKey("operations.id"), primary_key=True),
    Column("side", PlainText, primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("test", PlainText, primary_key=True),
    *required(Float, "at_s", "seconds"),
    *required(Integer, "amount", "complete"),
    *optional(Integer, "cold"),
    *required(PlainText, "failure"),
    sqlite_with_rowid=False,
)


# Tracked operations.


# One row per attempt. `subject` is a tree, or bricks of a volume. `times` and `facts` are JSON, because they are only read as a
# whole.
operations = Table(
    "operations",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(PlainText, "kind"),
    *required(LargeBinary, "subject"),
    *required(Integer, "attempt"),
    *required(PlainText, "state", "times", "failure", "facts"),
    UniqueConstraint("kind", "subject", "attempt"),
)

# The steps of operations, each with its intent and its result.
operation_steps = Table(
    "operation_steps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("operation_id", Integer, ForeignKey("operations.id"), nullable=False),
    *required(PlainText, "step"),
    *required(Float, "intended_at_s"),
    *optional(Float, "ended_at_s"),
    *optional(PlainText, "result"),
    *required(PlainText, "message"),
    Index("ix_operation_steps_operation_id", "operation_id"),
)

# Gluster's counters over time. Clustered by time: one row per host and poll, for weeks.
operation_samples = Table(
    "operation_samples",
    metadata,
    Column("operation_id", Integer, ForeignKey("operations.id"), primary_key=True),
    Column("at_s", Float, primary_key=True),
    Column("task_id", PlainText, primary_key=True),
    Column("host", PlainText, primary_key=True),
    *required(Integer, "files", "size_bytes", "lookups", "failures", "skipped"),
    *required(PlainText, "status"),
    *required(Float, "runtime_s"),
    sqlite_with_rowid=False,
)


# Archives, and paths released for deletion with the source.


# Archives of old and tiny files in user trees on the target. `number` is the name of an archive in its tree.
archives = Table(
    "archives",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(PlainText, "plan"),
    *required(Integer, "batch"),
    *required(LargeBinary, "tree"),
    *required(Integer, "number", "members", "content_bytes", "archive_bytes", "index_bytes"),
    *required(PlainText, "archive_digest", "index_digest", "state"),
    *required(Float, "at_s"),
    *required(PlainText, "reason"),
    UniqueConstraint("tree", "number"),
    Index("ix_archives_plan", "plan", "batch"),
)

# Skipped paths released for deletion with the source. `pattern` is a path below the tree, or a glob.
reap_releases = Table(
    "reap_releases",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(LargeBinary, "tree", "pattern"),
    *required(Integer, "is_glob"),
    *required(PlainText, "by"),
    *required(Float, "at_s"),
)


# Benchmarks.


# One row per suite and call. `places`, `hosts` and `notes` are JSON, because they are only read as a whole.
benchmarks = Table(
    "benchmarks",
    metadata,
    Column("id", Integer, primary_key=True),
    *required(PlainText, "suite"),
    *required(Float, "scale"),
    *required(Integer, "seed", "runs"),
    *required(PlainText, "places", "hosts", "token", "state"),
    *required(Float, "started_at_s"),
    *optional(Float, "ended_at_s"),
    *required(PlainText, "notes"),
)

# `document` is the whole measurement as JSON; value and unit are columns for queries by hand.
benchmark_measurements = Table(
    "benchmark_measurements",
    metadata,
    Column("benchmark_id", Integer, ForeignKey("benchmarks.id"), primary_key=True),
    Column("place", PlainText, primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("step", PlainText, primary_key=True),
    *required(Float, "at_s", "value"),
    *required(PlainText, "unit", "document"),
    sqlite_with_rowid=False,
)
