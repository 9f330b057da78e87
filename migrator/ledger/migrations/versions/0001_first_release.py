"""The schema of the first release."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "announcements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("tree", sa.LargeBinary(), nullable=False),
        sa.Column("begins_at_s", sa.Float(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_announcements")),
    )
    op.create_table(
        "archives",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("tree", sa.LargeBinary(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("members", sa.Integer(), nullable=False),
        sa.Column("content_bytes", sa.Integer(), nullable=False),
        sa.Column("archive_bytes", sa.Integer(), nullable=False),
        sa.Column("index_bytes", sa.Integer(), nullable=False),
        sa.Column("archive_digest", sa.Text(), nullable=False),
        sa.Column("index_digest", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_archives")),
        sa.UniqueConstraint("tree", "number", name=op.f("uq_archives_tree_number")),
    )
    op.create_index("ix_archives_plan", "archives", ["plan", "batch"], unique=False)
    op.create_table(
        "benchmarks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("scale", sa.Float(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("places", sa.Text(), nullable=False),
        sa.Column("hosts", sa.Text(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("started_at_s", sa.Float(), nullable=False),
        sa.Column("ended_at_s", sa.Float(), nullable=True),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_benchmarks")),
    )
    op.create_table(
        "capacity_samples",
        sa.Column("side", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("total_bytes", sa.Integer(), nullable=False),
        sa.Column("free_bytes", sa.Integer(), nullable=False),
        sa.Column("total_inodes", sa.Integer(), nullable=True),
        sa.Column("free_inodes", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("side", "at_s", name=op.f("pk_capacity_samples")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "controls",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("paused", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("jobs", sa.Integer(), nullable=True),
        sa.Column("bwlimit_bytes_per_s", sa.Integer(), nullable=True),
        sa.Column("max_latency_s", sa.Float(), nullable=True),
        sa.Column("max_load", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_controls")),
    )
    op.create_index("ix_controls_kind", "controls", ["kind", "id"], unique=False)
    op.create_table(
        "host_loads",
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("load", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("host", name=op.f("pk_host_loads")),
    )
    op.create_table(
        "journal",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("what", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_journal")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "operations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("subject", sa.LargeBinary(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("times", sa.Text(), nullable=False),
        sa.Column("failure", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operations")),
        sa.UniqueConstraint("kind", "subject", "attempt", name=op.f("uq_operations_kind_subject_attempt")),
    )
    op.create_table(
        "owner_limits",
        sa.Column("uid", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("trees", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_owner_limits")),
    )
    op.create_table(
        "passes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("catalog", sa.Text(), nullable=False),
        sa.Column("base_catalog", sa.Text(), nullable=True),
        sa.Column("chunk_list", sa.Text(), nullable=False),
        sa.Column("move_list", sa.Text(), nullable=True),
        sa.Column("move_list_digest", sa.Text(), nullable=True),
        sa.Column("moved_at_s", sa.Float(), nullable=True),
        sa.Column("scan_s", sa.Float(), nullable=True),
        sa.Column("started_at_s", sa.Float(), nullable=False),
        sa.Column("finished_at_s", sa.Float(), nullable=True),
        sa.Column("total_files", sa.Integer(), nullable=False),
        sa.Column("total_bytes", sa.Integer(), nullable=False),
        sa.CheckConstraint("(kind = 'seed') = (number = 0) AND number >= 0", name=op.f("ck_passes_number")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_passes")),
        sa.UniqueConstraint("plan", "batch", "kind", "number", name=op.f("uq_passes_plan_batch_kind_number")),
    )
    op.create_table(
        "plans",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("checksum", sa.Text(), nullable=False),
        sa.Column("created_at_s", sa.Float(), nullable=False),
        sa.Column("scan_id", sa.Integer(), nullable=False),
        sa.Column("catalog", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("directories", sa.Integer(), nullable=False),
        sa.Column("cost", sa.Text(), nullable=False),
        sa.Column("forecast_s", sa.Float(), nullable=False),
        sa.Column("activated_at_s", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_plans")),
        sa.UniqueConstraint("name", name=op.f("uq_plans_name")),
    )
    op.create_table(
        "probes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("side", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("create_s", sa.Float(), nullable=True),
        sa.Column("write_s", sa.Float(), nullable=True),
        sa.Column("sync_s", sa.Float(), nullable=True),
        sa.Column("stat_s", sa.Float(), nullable=True),
        sa.Column("unlink_s", sa.Float(), nullable=True),
        sa.Column("readdir_s", sa.Float(), nullable=True),
        sa.Column("waited_s", sa.Float(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probes")),
    )
    op.create_index("ix_probes_side_at_s", "probes", ["side", "at_s"], unique=False)
    op.create_table(
        "reap_releases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("tree", sa.LargeBinary(), nullable=False),
        sa.Column("pattern", sa.LargeBinary(), nullable=False),
        sa.Column("is_glob", sa.Integer(), nullable=False),
        sa.Column("by", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_reap_releases")),
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("verb", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("started_at_s", sa.Float(), nullable=False),
        sa.Column("heartbeat_at_s", sa.Float(), nullable=False),
        sa.Column("finished_at_s", sa.Float(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("directory", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_table(
        "scans",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("catalog", sa.Text(), nullable=False),
        sa.Column("via", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("started_at_s", sa.Float(), nullable=False),
        sa.Column("finished_at_s", sa.Float(), nullable=True),
        sa.Column("trees", sa.Text(), nullable=False),
        sa.Column("parts", sa.Text(), nullable=False),
        sa.Column("whole", sa.Integer(), nullable=False),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.Column("rows", sa.Integer(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("directories", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("problems", sa.Integer(), nullable=False),
        sa.Column("health_fingerprint", sa.Text(), nullable=False),
        sa.Column("strange", sa.Text(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("set_apart", sa.Text(), nullable=False),
        sa.Column("selected_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scans")),
        sa.UniqueConstraint("catalog", name=op.f("uq_scans_catalog")),
    )
    op.create_table(
        "schema_versions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Text(), nullable=False),
        sa.Column("program", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schema_versions")),
    )
    op.create_table(
        "second_copies",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("tree", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("manifests", sa.Text(), nullable=False),
        sa.Column("algorithm", sa.Text(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("extra", sa.Integer(), nullable=False),
        sa.Column("list_digest", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_second_copies")),
    )
    op.create_index("ix_second_copies_tree", "second_copies", ["tree"], unique=False)
    op.create_table(
        "site",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("site_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at_s", sa.Float(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("capabilities", sa.Text(), nullable=True),
        sa.Column("capabilities_probed_at_s", sa.Float(), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_site_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_site")),
    )
    op.create_table(
        "storage_samples",
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("targets", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("day", name=op.f("pk_storage_samples")),
    )
    op.create_table(
        "target_backups",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("tree", sa.LargeBinary(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_target_backups")),
    )
    op.create_index("ix_target_backups_tree", "target_backups", ["tree"], unique=False)
    op.create_table(
        "verifications",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("started_at_s", sa.Float(), nullable=False),
        sa.Column("finished_at_s", sa.Float(), nullable=True),
        sa.Column("algorithm", sa.Text(), nullable=False),
        sa.Column("share", sa.Float(), nullable=False),
        sa.Column("seed", sa.Integer(), nullable=False),
        sa.Column("paths", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("digested_files", sa.Integer(), nullable=False),
        sa.Column("digested_bytes", sa.Integer(), nullable=False),
        sa.Column("proven_gone", sa.Integer(), nullable=False),
        sa.Column("differences", sa.Text(), nullable=False),
        sa.Column("expected", sa.Text(), nullable=False),
        sa.Column("whole", sa.Integer(), nullable=False),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.Column("manifest", sa.Text(), nullable=True),
        sa.Column("manifest_digest", sa.Text(), nullable=True),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("equal_paths", sa.Integer(), nullable=False),
        sa.Column("differences_file", sa.Text(), nullable=True),
        sa.Column("differences_digest", sa.Text(), nullable=True),
        sa.Column("trees", sa.Text(), nullable=False),
        sa.Column("carried_files", sa.Integer(), nullable=False),
        sa.Column("carried_bytes", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_verifications")),
    )
    op.create_index("ix_verifications_plan", "verifications", ["plan", "batch"], unique=False)
    op.create_table(
        "batches",
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("directories", sa.Integer(), nullable=False),
        sa.Column("chunks", sa.Integer(), nullable=False),
        sa.Column("forecast_s", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["plan"], ["plans.name"], name=op.f("fk_batches_plan")),
        sa.PrimaryKeyConstraint("plan", "number", name=op.f("pk_batches")),
    )
    op.create_table(
        "benchmark_measurements",
        sa.Column("benchmark_id", sa.Integer(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("unit", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["benchmark_id"], ["benchmarks.id"], name=op.f("fk_benchmark_measurements_benchmark_id")
        ),
        sa.PrimaryKeyConstraint("benchmark_id", "place", "run", "step", name=op.f("pk_benchmark_measurements")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "chunks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("pass_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("tree", sa.LargeBinary(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("list_path", sa.Text(), nullable=True),
        sa.Column("brick", sa.Text(), nullable=True),
        sa.Column("parent_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["parent_id"], ["chunks.id"], name=op.f("fk_chunks_parent_id")),
        sa.ForeignKeyConstraint(["pass_id"], ["passes.id"], name=op.f("fk_chunks_pass_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_chunks")),
        sa.UniqueConstraint("pass_id", "number", name=op.f("uq_chunks_pass_id_number")),
    )
    op.create_index(
        "ix_chunks_parent_id", "chunks", ["parent_id"], unique=False, sqlite_where=sa.text("parent_id IS NOT NULL")
    )
    op.create_index(
        "ix_chunks_pending", "chunks", ["pass_id", "kind", "state", "size_bytes", "number", "brick"], unique=False
    )
    op.create_index(
        "ix_chunks_totals", "chunks", ["pass_id", "tree", "kind", "state", "files", "size_bytes"], unique=False
    )
    op.create_table(
        "events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=True),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_events_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_events")),
    )
    op.create_index("ix_events_severity", "events", ["severity"], unique=False)
    op.create_table(
        "governor_records",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("gate", sa.Text(), nullable=False),
        sa.Column("bound", sa.Text(), nullable=False),
        sa.Column("streams", sa.Integer(), nullable=False),
        sa.Column("most", sa.Integer(), nullable=False),
        sa.Column("hosts", sa.Text(), nullable=False),
        sa.Column("bwlimit_bytes_per_s", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("until_s", sa.Float(), nullable=True),
        sa.Column("max_latency_s", sa.Float(), nullable=True),
        sa.Column("max_load", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_governor_records_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_governor_records")),
    )
    op.create_index("ix_governor_records_run_id", "governor_records", ["run_id"], unique=False)
    op.create_table(
        "hook_steps",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("opened_at_s", sa.Float(), nullable=False),
        sa.Column("closed_at_s", sa.Float(), nullable=True),
        sa.Column("state", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_hook_steps_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hook_steps")),
    )
    op.create_index(
        "ix_hook_steps_open",
        "hook_steps",
        ["step", "subject"],
        unique=False,
        sqlite_where=sa.text("closed_at_s IS NULL"),
    )
    op.create_table(
        "operation_samples",
        sa.Column("operation_id", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("lookups", sa.Integer(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("skipped", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("runtime_s", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["operation_id"], ["operations.id"], name=op.f("fk_operation_samples_operation_id")),
        sa.PrimaryKeyConstraint("operation_id", "at_s", "task_id", "host", name=op.f("pk_operation_samples")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "operation_steps",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("operation_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("intended_at_s", sa.Float(), nullable=False),
        sa.Column("ended_at_s", sa.Float(), nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["operation_id"], ["operations.id"], name=op.f("fk_operation_steps_operation_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_operation_steps")),
    )
    op.create_index("ix_operation_steps_operation_id", "operation_steps", ["operation_id"], unique=False)
    op.create_table(
        "pass_trees",
        sa.Column("pass_id", sa.Integer(), nullable=False),
        sa.Column("tree", sa.LargeBinary(), nullable=False),
        sa.Column("names_before", sa.Integer(), nullable=False),
        sa.Column("bytes_before", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["pass_id"], ["passes.id"], name=op.f("fk_pass_trees_pass_id")),
        sa.PrimaryKeyConstraint("pass_id", "tree", name=op.f("pk_pass_trees")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "predictions",
        sa.Column("pass_id", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("decision", sa.Text(), nullable=False),
        sa.Column("max_freeze_s", sa.Float(), nullable=False),
        sa.Column("next_pass_s", sa.Float(), nullable=False),
        sa.Column("freeze_s", sa.Float(), nullable=False),
        sa.Column("least_freeze_s", sa.Float(), nullable=False),
        sa.Column("churn_files_per_h", sa.Float(), nullable=False),
        sa.Column("churn_bytes_per_h", sa.Float(), nullable=False),
        sa.Column("churn_of_trees", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["pass_id"], ["passes.id"], name=op.f("fk_predictions_pass_id")),
        sa.PrimaryKeyConstraint("pass_id", name=op.f("pk_predictions")),
    )
    op.create_table(
        "samples",
        sa.Column("pass_id", sa.Integer(), nullable=False),
        sa.Column("attempt_id", sa.Integer(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("interval_s", sa.Float(), nullable=False),
        sa.Column("streams", sa.Integer(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["pass_id"], ["passes.id"], name=op.f("fk_samples_pass_id")),
        sa.PrimaryKeyConstraint("pass_id", "attempt_id", "at_s", name=op.f("pk_samples")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "tree_measurements",
        sa.Column("cutover_id", sa.Integer(), nullable=False),
        sa.Column("side", sa.Text(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("test", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("amount", sa.Integer(), nullable=False),
        sa.Column("complete", sa.Integer(), nullable=False),
        sa.Column("cold", sa.Integer(), nullable=True),
        sa.Column("failure", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["cutover_id"], ["operations.id"], name=op.f("fk_tree_measurements_cutover_id")),
        sa.PrimaryKeyConstraint("cutover_id", "side", "run", "test", name=op.f("pk_tree_measurements")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "attempts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("chunk_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("start_ticks", sa.Integer(), nullable=True),
        sa.Column("boot_id", sa.Text(), nullable=True),
        sa.Column("argv", sa.Text(), nullable=False),
        sa.Column("started_at_s", sa.Float(), nullable=False),
        sa.Column("finished_at_s", sa.Float(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("stderr_tail", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunks.id"], name=op.f("fk_attempts_chunk_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_attempts_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempts")),
        sa.UniqueConstraint("chunk_id", "number", name=op.f("uq_attempts_chunk_id_number")),
        sa.UniqueConstraint("token", name=op.f("uq_attempts_token")),
    )
    op.create_index("ix_attempts_hosts", "attempts", ["host", "engine", "state", "files", "size_bytes"], unique=False)
    op.create_index(
        "ix_attempts_results",
        "attempts",
        ["state", "chunk_id", "started_at_s", "finished_at_s", "files", "size_bytes"],
        unique=False,
    )
    op.create_index(
        "ix_attempts_unfinished",
        "attempts",
        ["state"],
        unique=False,
        sqlite_where=sa.text("state IN ('intended', 'running')"),
    )
    op.create_table(
        "attention",
        sa.Column("pass_id", sa.Integer(), nullable=False),
        sa.Column("path", sa.LargeBinary(), nullable=False),
        sa.Column("chunk_id", sa.Integer(), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("errno", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at_s", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["chunk_id"], ["chunks.id"], name=op.f("fk_attention_chunk_id")),
        sa.ForeignKeyConstraint(["pass_id"], ["passes.id"], name=op.f("fk_attention_pass_id")),
        sa.PrimaryKeyConstraint("pass_id", "path", name=op.f("pk_attention")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_attention_chunk_id", "attention", ["chunk_id"], unique=False)
    op.create_index("ix_attention_kind", "attention", ["pass_id", "kind"], unique=False)
    op.create_table(
        "batch_trees",
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("tree", sa.LargeBinary(), nullable=False),
        sa.Column("user", sa.Text(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.Column("files", sa.Integer(), nullable=False),
        sa.Column("directories", sa.Integer(), nullable=False),
        sa.Column("reaped_bytes", sa.Integer(), nullable=False),
        sa.Column("reaped_files", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["plan", "batch"], ["batches.plan", "batches.number"], name=op.f("fk_batch_trees_plan_batch")
        ),
        sa.PrimaryKeyConstraint("plan", "batch", "tree", name=op.f("pk_batch_trees")),
    )
    op.create_table(
        "hook_calls",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("step_id", sa.Integer(), nullable=False),
        sa.Column("stage", sa.Text(), nullable=False),
        sa.Column("name", sa.LargeBinary(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("started_at_s", sa.Float(), nullable=False),
        sa.Column("finished_at_s", sa.Float(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("outcome", sa.Text(), nullable=True),
        sa.Column("output", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["step_id"], ["hook_steps.id"], name=op.f("fk_hook_calls_step_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hook_calls")),
        sa.UniqueConstraint("token", name=op.f("uq_hook_calls_token")),
    )
    op.create_index("ix_hook_calls_step_id", "hook_calls", ["step_id"], unique=False)
    op.create_index(
        "ix_hook_calls_unfinished", "hook_calls", ["id"], unique=False, sqlite_where=sa.text("finished_at_s IS NULL")
    )
    op.create_table(
        "pass_changes",
        sa.Column("pass_id", sa.Integer(), nullable=False),
        sa.Column("tree", sa.LargeBinary(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("paths", sa.Integer(), nullable=False),
        sa.Column("directories", sa.Integer(), nullable=False),
        sa.Column("size_bytes", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["pass_id", "tree"], ["pass_trees.pass_id", "pass_trees.tree"], name=op.f("fk_pass_changes_pass_id_tree")
        ),
        sa.PrimaryKeyConstraint("pass_id", "tree", "kind", name=op.f("pk_pass_changes")),
        sqlite_with_rowid=False,
    )
