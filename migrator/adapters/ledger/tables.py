"""The tables of the ledger. Units stand in the names of columns; paths are BLOBs; times are seconds since the epoch.

There is no row per file here (that is the catalog's part), except for files that need attention.
A change needs a revision in `migrations/versions`; a test compares both.
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

HEAD_REVISION = "0001"
"""The revision that this code reads and writes; a test compares it with the newest file in `migrations/versions`."""


class PlainText(TypeDecorator[str]):
    """Text that can always be stored: lone surrogates, which UTF-8 cannot hold, become escapes."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape what cannot be encoded."""
        del dialect
        return None if value is None else value.encode("utf-8", "backslashreplace").decode("utf-8")


UNFINISHED = text("state IN ('intended', 'running')")
"""Attempts that a crash may have left. In a query it must stand word for word as in the index, or all are read."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _required(name: str, kind: Any) -> Column[Any]:  # noqa: ANN401 - a column's type is SQLAlchemy's business
    return Column(name, kind, nullable=False)


site = Table(
    "site",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("site_id", PlainText),
    _required("name", PlainText),
    _required("created_at_s", Float),
    _required("source", PlainText),
    _required("target", PlainText),
    Column("capabilities", PlainText),
    Column("capabilities_probed_at_s", Float),
    CheckConstraint("id = 1", name="one_row"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("verb", PlainText),
    _required("pid", Integer),
    _required("started_at_s", Float),
    _required("heartbeat_at_s", Float),
    Column("finished_at_s", Float),
    Column("exit_code", Integer),
    _required("directory", PlainText),
)

scans = Table(
    "scans",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("catalog", PlainText),
    _required("via", PlainText),
    # The paths of the user trees that it covers; an empty list is the whole source.
    _required("scope", PlainText),
    _required("started_at_s", Float),
    Column("finished_at_s", Float),
    _required("trees", PlainText),
    _required("parts", PlainText),
    _required("whole", Integer),
    _required("reasons", PlainText),
    _required("rows", Integer),
    _required("files", Integer),
    _required("directories", Integer),
    _required("size_bytes", Integer),
    _required("problems", Integer),
    _required("health_fingerprint", PlainText),
    UniqueConstraint("catalog"),
)

# `scan_id` is no foreign key: a plan may be made from a catalog whose ledger was restored from an older backup.
plans = Table(
    "plans",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("name", PlainText),
    _required("path", PlainText),
    _required("checksum", PlainText),
    _required("created_at_s", Float),
    _required("scan_id", Integer),
    _required("catalog", PlainText),
    _required("size_bytes", Integer),
    _required("files", Integer),
    _required("directories", Integer),
    _required("cost", PlainText),
    _required("forecast_s", Float),
    UniqueConstraint("name"),
)

batches = Table(
    "batches",
    metadata,
    Column("plan", PlainText, ForeignKey("plans.name"), primary_key=True),
    Column("number", Integer, primary_key=True),
    _required("state", PlainText),
    _required("size_bytes", Integer),
    _required("files", Integer),
    _required("directories", Integer),
    _required("chunks", Integer),
    _required("forecast_s", Float),
)

batch_trees = Table(
    "batch_trees",
    metadata,
    Column("plan", PlainText, primary_key=True),
    Column("batch", Integer, primary_key=True),
    Column("tree", LargeBinary, primary_key=True),
    _required("user", PlainText),
    _required("rank", Integer),
    _required("size_bytes", Integer),
    _required("files", Integer),
    _required("directories", Integer),
    ForeignKeyConstraint(["plan", "batch"], ["batches.plan", "batches.number"]),
)

passes = Table(
    "passes",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("plan", PlainText),
    _required("batch", Integer),
    _required("kind", PlainText),
    _required("number", Integer),
    _required("state", PlainText),
    _required("catalog", PlainText),
    Column("base_catalog", PlainText),
    _required("chunk_list", PlainText),
    Column("move_list", PlainText),
    Column("move_list_digest", PlainText),
    Column("moved_at_s", Float),
    Column("scan_s", Float),
    _required("started_at_s", Float),
    Column("finished_at_s", Float),
    _required("total_files", Integer),
    _required("total_bytes", Integer),
    UniqueConstraint("plan", "batch", "kind", "number"),
    CheckConstraint("(kind = 'seed') = (number = 0) AND number >= 0", name="number"),
)

# What a pass after the seed was made for: by tree, and by tree and kind of change.
pass_trees = Table(
    "pass_trees",
    metadata,
    Column("pass_id", Integer, ForeignKey("passes.id"), primary_key=True),
    Column("tree", LargeBinary, primary_key=True),
    _required("names_before", Integer),
    _required("bytes_before", Integer),
    sqlite_with_rowid=False,
)

pass_changes = Table(
    "pass_changes",
    metadata,
    Column("pass_id", Integer, primary_key=True),
    Column("tree", LargeBinary, primary_key=True),
    Column("kind", PlainText, primary_key=True),
    _required("paths", Integer),
    _required("directories", Integer),
    _required("size_bytes", Integer),
    ForeignKeyConstraint(["pass_id", "tree"], ["pass_trees.pass_id", "pass_trees.tree"]),
    sqlite_with_rowid=False,
)

chunks = Table(
    "chunks",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("pass_id", Integer, ForeignKey("passes.id"), nullable=False),
    _required("number", Integer),
    _required("kind", PlainText),
    _required("tree", LargeBinary),
    _required("files", Integer),
    _required("size_bytes", Integer),
    _required("state", PlainText),
    _required("tries", Integer),
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
    _required("number", Integer),
    _required("token", PlainText),
    _required("host", PlainText),
    _required("engine", PlainText),
    _required("state", PlainText),
    Column("pid", Integer),
    Column("start_ticks", Integer),
    Column("boot_id", PlainText),
    _required("argv", PlainText),
    _required("started_at_s", Float),
    Column("finished_at_s", Float),
    Column("exit_code", Integer),
    _required("files", Integer),
    _required("size_bytes", Integer),
    _required("stderr_tail", LargeBinary),
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
    _required("kind", PlainText),
    Column("errno", Integer),
    _required("reason", PlainText),
    _required("at_s", Float),
    Index("ix_attention_chunk_id", "chunk_id"),
    Index("ix_attention_kind", "pass_id", "kind"),
    sqlite_with_rowid=False,
)

# `attempt_id` 0 stands for all streams together. Clustered by time, without a second index: this is the table that
# grows while streams work (a row a stream every few seconds).
samples = Table(
    "samples",
    metadata,
    Column("pass_id", Integer, ForeignKey("passes.id"), primary_key=True),
    Column("attempt_id", Integer, primary_key=True),
    Column("at_s", Float, primary_key=True),
    _required("interval_s", Float),
    _required("streams", Integer),
    _required("files", Integer),
    _required("size_bytes", Integer),
    sqlite_with_rowid=False,
)

# How full both sides were: a row a side at the begin and end of a run, and every hour of it.
capacity_samples = Table(
    "capacity_samples",
    metadata,
    Column("side", PlainText, primary_key=True),
    Column("at_s", Float, primary_key=True),
    _required("total_bytes", Integer),
    _required("free_bytes", Integer),
    Column("total_inodes", Integer),
    Column("free_inodes", Integer),
    sqlite_with_rowid=False,
)

# A row a minute and side, thinned out when they are old; without times it had no answer, or failed.
probes = Table(
    "probes",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("side", PlainText),
    _required("at_s", Float),
    Column("create_s", Float),
    Column("write_s", Float),
    Column("sync_s", Float),
    Column("stat_s", Float),
    Column("unlink_s", Float),
    Column("readdir_s", Float),
    Column("waited_s", Float),
    _required("failure", PlainText),
    Index("ix_probes_side_at_s", "side", "at_s"),
)

# A row a command that pauses, resumes or tunes: the newest of each kind is what is set. Times are those of the commands.
controls = Table(
    "controls",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("kind", PlainText),
    _required("at_s", Float),
    _required("by", PlainText),
    _required("paused", Integer),
    _required("reason", PlainText),
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
    _required("at_s", Float),
    _required("gate", PlainText),
    _required("bound", PlainText),
    _required("streams", Integer),
    _required("most", Integer),
    _required("hosts", PlainText),
    Column("bwlimit_bytes_per_s", Integer),
    _required("reason", PlainText),
    Column("until_s", Float),
    Index("ix_governor_records_run_id", "run_id"),
)

events = Table(
    "events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", Integer, ForeignKey("runs.id")),
    _required("at_s", Float),
    _required("kind", PlainText),
    _required("severity", PlainText),
    _required("subject", PlainText),
    _required("message", PlainText),
    Index("ix_events_severity", "severity"),
)

verifications = Table(
    "verifications",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("plan", PlainText),
    _required("batch", Integer),
    _required("started_at_s", Float),
    Column("finished_at_s", Float),
    _required("algorithm", PlainText),
    _required("share", Float),
    _required("seed", Integer),
    _required("paths", Integer),
    _required("size_bytes", Integer),
    _required("digested_files", Integer),
    _required("digested_bytes", Integer),
    _required("proven_gone", Integer),
    _required("differences", PlainText),
    _required("expected", PlainText),
    _required("whole", Integer),
    _required("reasons", PlainText),
    Column("manifest", PlainText),
    Column("manifest_digest", PlainText),
    _required("files", Integer),
    _required("equal_paths", Integer),
    Column("differences_file", PlainText),
    _required("trees", PlainText),
    _required("carried_files", Integer),
    _required("carried_bytes", Integer),
    Index("ix_verifications_plan", "plan", "batch"),
)

hook_steps = Table(
    "hook_steps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", Integer, ForeignKey("runs.id"), nullable=False),
    _required("step", PlainText),
    _required("subject", PlainText),
    _required("opened_at_s", Float),
    Column("closed_at_s", Float),
    Column("state", PlainText),
    Index("ix_hook_steps_open", "step", "subject", sqlite_where=text("closed_at_s IS NULL")),
)

hook_calls = Table(
    "hook_calls",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("step_id", Integer, ForeignKey("hook_steps.id"), nullable=False),
    _required("stage", PlainText),
    _required("name", LargeBinary),
    _required("token", PlainText),
    _required("started_at_s", Float),
    Column("finished_at_s", Float),
    Column("exit_code", Integer),
    Column("outcome", PlainText),
    _required("output", LargeBinary),
    UniqueConstraint("token"),
    Index("ix_hook_calls_step_id", "step_id"),
    Index("ix_hook_calls_unfinished", "id", sqlite_where=text("finished_at_s IS NULL")),
)

# What was predicted after a pass; the churn by tree is JSON, as it is read as a whole.
predictions = Table(
    "predictions",
    metadata,
    Column("pass_id", Integer, ForeignKey("passes.id"), primary_key=True),
    _required("at_s", Float),
    _required("decision", PlainText),
    _required("max_freeze_s", Float),
    _required("next_pass_s", Float),
    _required("freeze_s", Float),
    _required("least_freeze_s", Float),
    _required("churn_files_per_h", Float),
    _required("churn_bytes_per_h", Float),
    _required("churn_of_trees", PlainText),
)

# One row a tree and attempt; `times` is JSON, as it is read as a whole.
cutovers = Table(
    "cutovers",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("plan", PlainText),
    _required("batch", Integer),
    _required("tree", LargeBinary),
    _required("user", PlainText),
    _required("attempt", Integer),
    # Directories of one attempt are named by its number and this: a ledger that was restored gives the number again.
    _required("token", PlainText),
    _required("state", PlainText),
    _required("times", PlainText),
    Column("predicted_freeze_s", Float),
    Column("frozen_at_s", Float),
    Column("thawed_at_s", Float),
    _required("failure", PlainText),
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

cutover_steps = Table(
    "cutover_steps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("cutover_id", Integer, ForeignKey("cutovers.id"), nullable=False),
    _required("step", PlainText),
    _required("intended_at_s", Float),
    Column("ended_at_s", Float),
    Column("result", PlainText),
    _required("message", PlainText),
    Index("ix_cutover_steps_cutover_id", "cutover_id"),
)

# Backups of the target that somebody else makes; `at_s` is when one began.
target_backups = Table(
    "target_backups",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("tree", LargeBinary),
    _required("at_s", Float),
    _required("note", PlainText),
    Index("ix_target_backups_tree", "tree"),
)

# Archives of old and tiny files in user trees on the target. `number` is the name of an archive in its tree.
archives = Table(
    "archives",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("plan", PlainText),
    _required("batch", Integer),
    _required("tree", LargeBinary),
    _required("number", Integer),
    _required("members", Integer),
    _required("content_bytes", Integer),
    _required("archive_bytes", Integer),
    _required("index_bytes", Integer),
    _required("archive_digest", PlainText),
    _required("index_digest", PlainText),
    _required("state", PlainText),
    _required("at_s", Float),
    _required("reason", PlainText),
    UniqueConstraint("tree", "number"),
    Index("ix_archives_plan", "plan", "batch"),
)

# Skipped paths that somebody gave up for deletion with the source. `pattern` is a path below the tree, or a glob.
reap_releases = Table(
    "reap_releases",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("tree", LargeBinary),
    _required("pattern", LargeBinary),
    _required("is_glob", Integer),
    _required("by", PlainText),
    _required("at_s", Float),
)

# One row an attempt; `bricks`, `times` and `options` are JSON, as they are read as a whole.
drains = Table(
    "drains",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("volume", PlainText),
    _required("volume_id", PlainText),
    _required("bricks", PlainText),
    _required("attempt", Integer),
    _required("state", PlainText),
    _required("times", PlainText),
    _required("failure", PlainText),
    Column("options", PlainText),
    Column("task_id", PlainText),
    Column("task_before", PlainText),
    Column("layout_task_id", PlainText),
    Column("files", Integer),
    Column("size_bytes", Integer),
    Index("ix_drains_volume_id", "volume_id"),
)

drain_steps = Table(
    "drain_steps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("drain_id", Integer, ForeignKey("drains.id"), nullable=False),
    _required("step", PlainText),
    _required("intended_at_s", Float),
    Column("ended_at_s", Float),
    Column("result", PlainText),
    _required("message", PlainText),
    Index("ix_drain_steps_drain_id", "drain_id"),
)

# Clustered by time: a row a host at every look, for weeks.
drain_samples = Table(
    "drain_samples",
    metadata,
    Column("drain_id", Integer, ForeignKey("drains.id"), primary_key=True),
    Column("at_s", Float, primary_key=True),
    Column("task_id", PlainText, primary_key=True),
    Column("host", PlainText, primary_key=True),
    _required("files", Integer),
    _required("size_bytes", Integer),
    _required("lookups", Integer),
    _required("failures", Integer),
    _required("skipped", Integer),
    _required("status", PlainText),
    _required("runtime_s", Float),
    sqlite_with_rowid=False,
)

# One row an attempt; `bricks`, `times`, `options` and `room_before` are JSON, as they are read as a whole.
additions = Table(
    "additions",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("side", PlainText),
    _required("volume", PlainText),
    _required("volume_id", PlainText),
    _required("bricks", PlainText),
    Column("instead_of", PlainText),
    _required("attempt", Integer),
    _required("state", PlainText),
    _required("times", PlainText),
    _required("failure", PlainText),
    Column("task_id", PlainText),
    Column("task_before", PlainText),
    Column("room_before", PlainText),
    Column("size_bytes", Integer),
    Column("files", Integer),
    Column("options", PlainText),
    Index("ix_additions_volume_id", "volume_id"),
)

addition_steps = Table(
    "addition_steps",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("addition_id", Integer, ForeignKey("additions.id"), nullable=False),
    _required("step", PlainText),
    _required("intended_at_s", Float),
    Column("ended_at_s", Float),
    Column("result", PlainText),
    _required("message", PlainText),
    Index("ix_addition_steps_addition_id", "addition_id"),
)

# As those of drains.
addition_samples = Table(
    "addition_samples",
    metadata,
    Column("addition_id", Integer, ForeignKey("additions.id"), primary_key=True),
    Column("at_s", Float, primary_key=True),
    Column("task_id", PlainText, primary_key=True),
    Column("host", PlainText, primary_key=True),
    _required("files", Integer),
    _required("size_bytes", Integer),
    _required("lookups", Integer),
    _required("failures", Integer),
    _required("skipped", Integer),
    _required("status", PlainText),
    _required("runtime_s", Float),
    sqlite_with_rowid=False,
)

# One row an attempt to stop the source volume for good. `files` and `size_bytes` were proven to be on the target before.
retirements = Table(
    "retirements",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("volume", PlainText),
    _required("volume_id", PlainText),
    _required("state", PlainText),
    _required("intended_at_s", Float),
    Column("ended_at_s", Float),
    _required("catalog", PlainText),
    _required("files", Integer),
    _required("size_bytes", Integer),
    _required("failure", PlainText),
)

# One row a suite and call; `places`, `hosts` and `notes` are JSON, as they are read as a whole.
benchmarks = Table(
    "benchmarks",
    metadata,
    Column("id", Integer, primary_key=True),
    _required("suite", PlainText),
    _required("scale", Float),
    _required("seed", Integer),
    _required("runs", Integer),
    _required("places", PlainText),
    _required("hosts", PlainText),
    _required("token", PlainText),
    _required("state", PlainText),
    _required("started_at_s", Float),
    Column("ended_at_s", Float),
    _required("notes", PlainText),
)

# `document` is the whole measurement as JSON; value and unit stand beside it for whoever asks the database.
benchmark_measurements = Table(
    "benchmark_measurements",
    metadata,
    Column("benchmark_id", Integer, ForeignKey("benchmarks.id"), primary_key=True),
    Column("place", PlainText, primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("step", PlainText, primary_key=True),
    _required("at_s", Float),
    _required("value", Float),
    _required("unit", PlainText),
    _required("document", PlainText),
    sqlite_with_rowid=False,
)

# `cold` is null where nothing is read; `amount` are lines or bytes.
tree_measurements = Table(
    "tree_measurements",
    metadata,
    Column("cutover_id", Integer, ForeignKey("cutovers.id"), primary_key=True),
    Column("side", PlainText, primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("test", PlainText, primary_key=True),
    _required("at_s", Float),
    _required("seconds", Float),
    _required("amount", Integer),
    _required("complete", Integer),
    Column("cold", Integer),
    _required("failure", PlainText),
    sqlite_with_rowid=False,
)
