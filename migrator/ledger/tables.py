"""The tables of the ledger. Units are in the names of columns; paths are BLOBs; times are seconds since the epoch."""

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

# ---
# What the tables of the ledger are made of: their metadata, types of columns, and forms that several tables have.


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


def required(name: str, kind: Any) -> Column[Any]:  # noqa: ANN401 - a column's type is SQLAlchemy's business
    """A column that is never null."""
    return Column(name, kind, nullable=False)


# ---
# The site, invocations of verbs, hooks, and the log.


site = Table(
    "site",
    metadata,
    Column("id", Integer, primary_key=True),
    required("site_id", PlainText),
    required("name", PlainText),
    required("created_at_s", Float),
    required("source", PlainText),
    required("target", PlainText),
    Column("capabilities", PlainText),
    Column("capabilities_probed_at_s", Float),
    CheckConstraint("id = 1", name="one_row"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    required("verb", PlainText),
    required("pid", Integer),
    required("started_at_s", Float),
    required("heartbeat_at_s", Float),
    Column("finished_at_s", Float),
    Column("exit_code", Integer),
    required("directory", PlainText),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", Integer, ForeignKey("runs.id")),
    required("at_s", Float),
    required("kind", PlainText),
    required("severity", PlainText),
    required("subject", PlainText),
    required("message", PlainText),
    Index("ix_events_severity", "severity"),
)

hook_steps = Table(
    "hook_steps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", Integer, ForeignKey("runs.id"), nullable=False),
    required("step", PlainText),
    required("subject", PlainText),
    required("opened_at_s", Float),
    Column("closed_at_s", Float),
    Column("state", PlainText),
    Index("ix_hook_steps_open", "step", "subject", sqlite_where=text("closed_at_s IS NULL")),
)

hook_calls = Table(
    "hook_calls",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("step_id", Integer, ForeignKey("hook_steps.id"), nullable=False),
    required("stage", PlainText),
    required("name", LargeBinary),
    required("token", PlainText),
    required("started_at_s", Float),
    Column("finished_at_s", Float),
    Column("exit_code", Integer),
    Column("outcome", PlainText),
    required("output", LargeBinary),
    UniqueConstraint("token"),
    Index("ix_hook_calls_step_id", "step_id"),
    Index("ix_hook_calls_unfinished", "id", sqlite_where=text("finished_at_s IS NULL")),
)


# ---
# Scans, plans, and the batches of plans.


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


# ---
# Passes over batches: what each was made for, its chunks, the attempts at them, and what was predicted after it.


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


# ---
# What is measured while a migration goes on: throughput, room, what users feel.


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


# ---
# What people set by `pause`, `resume` and `tune`, and what the governor allowed.


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


# ---
# Verifications, with what they found.


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


# ---
# What was measured in trees around cutovers, and backups of the target.


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
    Column("cutover_id", Integer, ForeignKey("operations.id"), primary_key=True),
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


# ---
# Tracked operations of every kind: drains, additions, cutovers, retirements.


# One row an attempt. `subject` is what it is about (a tree, or bricks of a volume). `times` and `facts` are JSON, as they are read
# as a whole.
operations = Table(
    "operations",
    metadata,
    Column("id", Integer, primary_key=True),
    required("kind", PlainText),
    required("subject", LargeBinary),
    required("attempt", Integer),
    required("state", PlainText),
    required("times", PlainText),
    required("failure", PlainText),
    required("facts", PlainText),
    UniqueConstraint("kind", "subject", "attempt"),
)

# The steps of operations, each with its intent and its end.
operation_steps = Table(
    "operation_steps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("operation_id", Integer, ForeignKey("operations.id"), nullable=False),
    required("step", PlainText),
    required("intended_at_s", Float),
    Column("ended_at_s", Float),
    Column("result", PlainText),
    required("message", PlainText),
    Index("ix_operation_steps_operation_id", "operation_id"),
)

# Gluster's counters over time. Clustered by time: a row a host at every look, for weeks.
operation_samples = Table(
    "operation_samples",
    metadata,
    Column("operation_id", Integer, ForeignKey("operations.id"), primary_key=True),
    Column("at_s", Float, primary_key=True),
    Column("task_id", PlainText, primary_key=True),
    Column("host", PlainText, primary_key=True),
    required("files", Integer),
    required("size_bytes", Integer),
    required("lookups", Integer),
    required("failures", Integer),
    required("skipped", Integer),
    required("status", PlainText),
    required("runtime_s", Float),
    sqlite_with_rowid=False,
)


# ---
# Archives, and what was given up for deletion with the source.


# Archives of old and tiny files in user trees on the target. `number` is the name of an archive in its tree.
archives = Table(
    "archives",
    metadata,
    Column("id", Integer, primary_key=True),
    required("plan", PlainText),
    required("batch", Integer),
    required("tree", LargeBinary),
    required("number", Integer),
    required("members", Integer),
    required("content_bytes", Integer),
    required("archive_bytes", Integer),
    required("index_bytes", Integer),
    required("archive_digest", PlainText),
    required("index_digest", PlainText),
    required("state", PlainText),
    required("at_s", Float),
    required("reason", PlainText),
    UniqueConstraint("tree", "number"),
    Index("ix_archives_plan", "plan", "batch"),
)

# Skipped paths that somebody gave up for deletion with the source. `pattern` is a path below the tree, or a glob.
reap_releases = Table(
    "reap_releases",
    metadata,
    Column("id", Integer, primary_key=True),
    required("tree", LargeBinary),
    required("pattern", LargeBinary),
    required("is_glob", Integer),
    required("by", PlainText),
    required("at_s", Float),
)


# ---
# Benchmarks and what they measured.


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


# ---
# The tables of the ledger. Units stand in the names of columns; paths are BLOBs; times are seconds since the epoch.
#
# There is no row per file here (that is the catalog's part), except for files that need attention.
# Before the first release the tables are the schema: a change raises `SCHEMA_VERSION`, and a ledger of another version is refused.


APPLICATION_ID = 0x4D494752
"""Marks an SQLite file as a ledger ("MIGR"), in `PRAGMA application_id`."""
SCHEMA_VERSION = 1
"""The schema that this code reads and writes, in `PRAGMA user_version`; raise it with every change of the tables."""
