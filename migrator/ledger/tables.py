"""The tables of the ledger. Units are in the names of columns; paths are BLOBs; times are seconds since the epoch.

No table has a row per file, except for files that need attention: files are in the catalog. A change of a table needs a
revision in `migrations/versions` (`schema.py`).
"""

from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class PlainText(sa.TypeDecorator[str]):
    """Text that can always be stored: lone surrogates, which UTF-8 cannot hold, become escapes."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Escape characters that cannot be encoded."""
        del dialect
        return None if value is None else storable(value)


def storable(value: str) -> str:
    """Text that can always be stored and shown."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


class Base(DeclarativeBase):
    """The base of all tables."""

    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {str: PlainText, float: sa.Float}
    __table__: ClassVar[sa.Table]


# The site, runs, events, hooks.


class SchemaVersionRow(Base):
    """Which program made the tables as they are: a row at the ledger's creation, and one for each upgrade."""

    __tablename__ = "schema_versions"

    id: Mapped[int] = mapped_column(primary_key=True)
    revision: Mapped[str]
    program: Mapped[str]
    at_s: Mapped[float]


class SiteRow(Base):
    """The one row about the site."""

    __tablename__ = "site"
    __table_args__ = (sa.CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    site_id: Mapped[str]
    name: Mapped[str]
    created_at_s: Mapped[float]
    source: Mapped[str]
    target: Mapped[str]
    capabilities: Mapped[str | None]
    capabilities_probed_at_s: Mapped[float | None]


class RunRow(Base):
    """One call of a verb that writes."""

    __tablename__ = "runs"

    id: Mapped[int] = mapped_column(primary_key=True)
    verb: Mapped[str]
    pid: Mapped[int]
    started_at_s: Mapped[float]
    heartbeat_at_s: Mapped[float]
    finished_at_s: Mapped[float | None]
    exit_code: Mapped[int | None]
    directory: Mapped[str]


class JournalRow(Base):
    """What the site's commands have begun, as in the journal on the target. A number is never used again."""

    __tablename__ = "journal"
    __table_args__ = {"sqlite_autoincrement": True}

    id: Mapped[int] = mapped_column(primary_key=True)
    token: Mapped[str]
    at_s: Mapped[float]
    what: Mapped[str]


class EventRow(Base):
    """One event."""

    __tablename__ = "events"
    __table_args__ = (sa.Index("ix_events_severity", "severity"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int | None] = mapped_column(sa.ForeignKey("runs.id"))
    at_s: Mapped[float]
    kind: Mapped[str]
    severity: Mapped[str]
    subject: Mapped[str]
    message: Mapped[str]


class HookStepRow(Base):
    """A step with hooks around it."""

    __tablename__ = "hook_steps"
    __table_args__ = (sa.Index("ix_hook_steps_open", "step", "subject", sqlite_where=sa.text("closed_at_s IS NULL")),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(sa.ForeignKey("runs.id"))
    step: Mapped[str]
    subject: Mapped[str]
    opened_at_s: Mapped[float]
    closed_at_s: Mapped[float | None]
    state: Mapped[str | None]


class HookCallRow(Base):
    """One call of a hook."""

    __tablename__ = "hook_calls"
    __table_args__ = (
        sa.UniqueConstraint("token"),
        sa.Index("ix_hook_calls_step_id", "step_id"),
        sa.Index("ix_hook_calls_unfinished", "id", sqlite_where=sa.text("finished_at_s IS NULL")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    step_id: Mapped[int] = mapped_column(sa.ForeignKey("hook_steps.id"))
    stage: Mapped[str]
    name: Mapped[bytes]
    token: Mapped[str]
    started_at_s: Mapped[float]
    finished_at_s: Mapped[float | None]
    exit_code: Mapped[int | None]
    outcome: Mapped[str | None]
    output: Mapped[bytes]


# Scans and plans.


class ScanRow(Base):
    """A scan. `scope` has the paths of the covered user trees (none: the whole source), `strange` the files put on bricks
    without Gluster.
    """

    __tablename__ = "scans"
    __table_args__ = (sa.UniqueConstraint("catalog"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    catalog: Mapped[str]
    via: Mapped[str]
    scope: Mapped[str]
    started_at_s: Mapped[float]
    finished_at_s: Mapped[float | None]
    trees: Mapped[str]
    parts: Mapped[str]
    whole: Mapped[int]
    reasons: Mapped[str]
    rows: Mapped[int]
    files: Mapped[int]
    directories: Mapped[int]
    size_bytes: Mapped[int]
    problems: Mapped[int]
    health_fingerprint: Mapped[str]
    strange: Mapped[str]
    digest: Mapped[str]
    set_apart: Mapped[str]
    selected_by: Mapped[str]


class PlanRow(Base):
    """A plan. `scan_id` is no foreign key: a plan may be made from a catalog whose ledger was restored from an older backup."""

    __tablename__ = "plans"
    __table_args__ = (sa.UniqueConstraint("name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    path: Mapped[str]
    checksum: Mapped[str]
    created_at_s: Mapped[float]
    scan_id: Mapped[int]
    catalog: Mapped[str]
    size_bytes: Mapped[int]
    files: Mapped[int]
    directories: Mapped[int]
    cost: Mapped[str]
    forecast_s: Mapped[float]
    activated_at_s: Mapped[float | None]


class BatchRow(Base):
    """A batch of a plan."""

    __tablename__ = "batches"

    plan: Mapped[str] = mapped_column(sa.ForeignKey("plans.name"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str]
    size_bytes: Mapped[int]
    files: Mapped[int]
    directories: Mapped[int]
    chunks: Mapped[int]
    forecast_s: Mapped[float]


class BatchTreeRow(Base):
    """A user tree of a batch. `reaped_*` is the part of its bytes and files that is archived or skipped instead of copied."""

    __tablename__ = "batch_trees"
    __table_args__ = (sa.ForeignKeyConstraint(["plan", "batch"], ["batches.plan", "batches.number"]),)

    plan: Mapped[str] = mapped_column(primary_key=True)
    batch: Mapped[int] = mapped_column(primary_key=True)
    tree: Mapped[bytes] = mapped_column(primary_key=True)
    user: Mapped[str]
    rank: Mapped[int]
    size_bytes: Mapped[int]
    files: Mapped[int]
    directories: Mapped[int]
    reaped_bytes: Mapped[int]
    reaped_files: Mapped[int]


# Passes, chunks, attempts, predictions.


UNFINISHED = sa.text("state IN ('intended', 'running')")
"""Attempts that a crash may have left. A query has to repeat the condition of the index word for word to use that index."""


class PassRow(Base):
    """One pass over a batch."""

    __tablename__ = "passes"
    __table_args__ = (
        sa.UniqueConstraint("plan", "batch", "kind", "number"),
        sa.CheckConstraint("(kind = 'seed') = (number = 0) AND number >= 0", name="number"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    plan: Mapped[str]
    batch: Mapped[int]
    kind: Mapped[str]
    number: Mapped[int]
    state: Mapped[str]
    catalog: Mapped[str]
    base_catalog: Mapped[str | None]
    chunk_list: Mapped[str]
    move_list: Mapped[str | None]
    move_list_digest: Mapped[str | None]
    moved_at_s: Mapped[float | None]
    scan_s: Mapped[float | None]
    started_at_s: Mapped[float]
    finished_at_s: Mapped[float | None]
    total_files: Mapped[int]
    total_bytes: Mapped[int]


class PassTreeRow(Base):
    """A tree with changes before a pass after the seed."""

    __tablename__ = "pass_trees"
    __table_args__ = {"sqlite_with_rowid": False}

    pass_id: Mapped[int] = mapped_column(sa.ForeignKey("passes.id"), primary_key=True)
    tree: Mapped[bytes] = mapped_column(primary_key=True)
    names_before: Mapped[int]
    bytes_before: Mapped[int]


class PassChangeRow(Base):
    """The changes of one kind in a tree before a pass."""

    __tablename__ = "pass_changes"
    __table_args__ = (
        sa.ForeignKeyConstraint(["pass_id", "tree"], ["pass_trees.pass_id", "pass_trees.tree"]),
        {"sqlite_with_rowid": False},
    )

    pass_id: Mapped[int] = mapped_column(primary_key=True)
    tree: Mapped[bytes] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    paths: Mapped[int]
    directories: Mapped[int]
    size_bytes: Mapped[int]


class ChunkRow(Base):
    """A chunk of a pass. A half of a split chunk refers to it by `parent_id`."""

    __tablename__ = "chunks"
    __table_args__ = (
        sa.UniqueConstraint("pass_id", "number"),
        # For pending chunks, the largest first, also of some bricks, and for the sums of a pass: no other row is read.
        sa.Index("ix_chunks_pending", "pass_id", "kind", "state", "size_bytes", "number", "brick"),
        sa.Index("ix_chunks_totals", "pass_id", "tree", "kind", "state", "files", "size_bytes"),
        sa.Index("ix_chunks_parent_id", "parent_id", sqlite_where=sa.text("parent_id IS NOT NULL")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    pass_id: Mapped[int] = mapped_column(sa.ForeignKey("passes.id"))
    number: Mapped[int]
    kind: Mapped[str]
    tree: Mapped[bytes]
    files: Mapped[int]
    size_bytes: Mapped[int]
    state: Mapped[str]
    list_path: Mapped[str | None]
    brick: Mapped[str | None]
    parent_id: Mapped[int | None] = mapped_column(sa.ForeignKey("chunks.id"))


class AttemptRow(Base):
    """One attempt at a chunk."""

    __tablename__ = "attempts"
    __table_args__ = (
        sa.UniqueConstraint("token"),
        sa.UniqueConstraint("chunk_id", "number"),
        sa.Index("ix_attempts_unfinished", "state", sqlite_where=UNFINISHED),
        # Sums over attempts use only this index, because the rows are long: argv, the end of standard error.
        sa.Index("ix_attempts_results", "state", "chunk_id", "started_at_s", "finished_at_s", "files", "size_bytes"),
        sa.Index("ix_attempts_hosts", "host", "engine", "state", "files", "size_bytes"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    chunk_id: Mapped[int] = mapped_column(sa.ForeignKey("chunks.id"))
    run_id: Mapped[int] = mapped_column(sa.ForeignKey("runs.id"))
    number: Mapped[int]
    token: Mapped[str]
    host: Mapped[str]
    engine: Mapped[str]
    state: Mapped[str]
    pid: Mapped[int | None]
    start_ticks: Mapped[int | None]
    boot_id: Mapped[str | None]
    argv: Mapped[str]
    started_at_s: Mapped[float]
    finished_at_s: Mapped[float | None]
    exit_code: Mapped[int | None]
    files: Mapped[int]
    size_bytes: Mapped[int]
    stderr_tail: Mapped[bytes]


class AttentionRow(Base):
    """A file that needs attention."""

    __tablename__ = "attention"
    __table_args__ = (
        sa.Index("ix_attention_chunk_id", "chunk_id"),
        sa.Index("ix_attention_kind", "pass_id", "kind"),
        {"sqlite_with_rowid": False},
    )

    pass_id: Mapped[int] = mapped_column(sa.ForeignKey("passes.id"), primary_key=True)
    path: Mapped[bytes] = mapped_column(primary_key=True)
    chunk_id: Mapped[int | None] = mapped_column(sa.ForeignKey("chunks.id"))
    kind: Mapped[str]
    errno: Mapped[int | None]
    reason: Mapped[str]
    at_s: Mapped[float]


class PredictionRow(Base):
    """The prediction after a pass. The churn by tree is JSON: it is only read as a whole."""

    __tablename__ = "predictions"

    pass_id: Mapped[int] = mapped_column(sa.ForeignKey("passes.id"), primary_key=True)
    at_s: Mapped[float]
    decision: Mapped[str]
    max_freeze_s: Mapped[float]
    next_pass_s: Mapped[float]
    freeze_s: Mapped[float]
    least_freeze_s: Mapped[float]
    churn_files_per_h: Mapped[float]
    churn_bytes_per_h: Mapped[float]
    churn_of_trees: Mapped[str]


# Measurements while a migration runs: throughput, capacity, latency.


class SampleRow(Base):
    """Throughput. `attempt_id` 0 is the sum of all streams.

    Clustered by time, without a second index: this table grows by one row per stream every few seconds. Rows of a single
    stream are deleted when its attempt ends.
    """

    __tablename__ = "samples"
    __table_args__ = {"sqlite_with_rowid": False}

    pass_id: Mapped[int] = mapped_column(sa.ForeignKey("passes.id"), primary_key=True)
    attempt_id: Mapped[int] = mapped_column(primary_key=True)
    at_s: Mapped[float] = mapped_column(primary_key=True)
    interval_s: Mapped[float]
    streams: Mapped[int]
    files: Mapped[int]
    size_bytes: Mapped[int]


class CapacitySampleRow(Base):
    """Capacity of one side: at the beginning and end of a run, and every hour between."""

    __tablename__ = "capacity_samples"
    __table_args__ = {"sqlite_with_rowid": False}

    side: Mapped[str] = mapped_column(primary_key=True)
    at_s: Mapped[float] = mapped_column(primary_key=True)
    total_bytes: Mapped[int]
    free_bytes: Mapped[int]
    total_inodes: Mapped[int | None]
    free_inodes: Mapped[int | None]


class StorageSampleRow(Base):
    """The storage and metadata targets of a BeeGFS target: the newest sample of each day."""

    __tablename__ = "storage_samples"

    day: Mapped[int] = mapped_column(primary_key=True)
    at_s: Mapped[float]
    targets: Mapped[str]


class ProbeRow(Base):
    """One probe per minute and side; old rows are thinned out. A row without times had no answer, or failed."""

    __tablename__ = "probes"
    __table_args__ = (sa.Index("ix_probes_side_at_s", "side", "at_s"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    side: Mapped[str]
    at_s: Mapped[float]
    create_s: Mapped[float | None]
    write_s: Mapped[float | None]
    sync_s: Mapped[float | None]
    stat_s: Mapped[float | None]
    unlink_s: Mapped[float | None]
    readdir_s: Mapped[float | None]
    waited_s: Mapped[float | None]
    failure: Mapped[str]


# Limits set by operators, and those set by the governor.


class ControlRow(Base):
    """A command that pauses, resumes or tunes; the newest of each kind applies. `at_s` is the time of the command."""

    __tablename__ = "controls"
    __table_args__ = (sa.Index("ix_controls_kind", "kind", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    at_s: Mapped[float]
    by: Mapped[str]
    paused: Mapped[int]
    reason: Mapped[str]
    jobs: Mapped[int | None]
    bwlimit_bytes_per_s: Mapped[int | None]
    max_latency_s: Mapped[float | None]
    max_load: Mapped[float | None]


class GovernorRow(Base):
    """Limits of a run from `at_s` on: a row for every change. Old rows are removed. `hosts` is JSON."""

    __tablename__ = "governor_records"
    __table_args__ = (sa.Index("ix_governor_records_run_id", "run_id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(sa.ForeignKey("runs.id"))
    at_s: Mapped[float]
    gate: Mapped[str]
    bound: Mapped[str]
    streams: Mapped[int]
    most: Mapped[int]
    hosts: Mapped[str]
    bwlimit_bytes_per_s: Mapped[int | None]
    reason: Mapped[str]
    until_s: Mapped[float | None]
    max_latency_s: Mapped[float | None]
    max_load: Mapped[float | None]


class HostLoadRow(Base):
    """The latest load of a host that has streams: all rows are replaced at once."""

    __tablename__ = "host_loads"

    host: Mapped[str] = mapped_column(primary_key=True)
    at_s: Mapped[float]
    load: Mapped[float]


# Verifications.


class VerificationRow(Base):
    """One verification of a batch, or of some of its trees."""

    __tablename__ = "verifications"
    __table_args__ = (sa.Index("ix_verifications_plan", "plan", "batch"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    plan: Mapped[str]
    batch: Mapped[int]
    started_at_s: Mapped[float]
    finished_at_s: Mapped[float | None]
    algorithm: Mapped[str]
    share: Mapped[float]
    seed: Mapped[int]
    paths: Mapped[int]
    size_bytes: Mapped[int]
    digested_files: Mapped[int]
    digested_bytes: Mapped[int]
    proven_gone: Mapped[int]
    differences: Mapped[str]
    expected: Mapped[str]
    whole: Mapped[int]
    reasons: Mapped[str]
    manifest: Mapped[str | None]
    manifest_digest: Mapped[str | None]
    files: Mapped[int]
    equal_paths: Mapped[int]
    differences_file: Mapped[str | None]
    differences_digest: Mapped[str | None]
    trees: Mapped[str]
    carried_files: Mapped[int]
    carried_bytes: Mapped[int]


# Tracked operations.


class OperationRow(Base):
    """One attempt. `subject` is a tree, or bricks of a volume. `times` and `facts` are JSON: they are only read as a whole."""

    __tablename__ = "operations"
    __table_args__ = (sa.UniqueConstraint("kind", "subject", "attempt"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str]
    subject: Mapped[bytes]
    attempt: Mapped[int]
    state: Mapped[str]
    times: Mapped[str]
    failure: Mapped[str]
    facts: Mapped[str]


class OperationStepRow(Base):
    """A step of an operation, with its intent and its result."""

    __tablename__ = "operation_steps"
    __table_args__ = (sa.Index("ix_operation_steps_operation_id", "operation_id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    operation_id: Mapped[int] = mapped_column(sa.ForeignKey("operations.id"))
    step: Mapped[str]
    intended_at_s: Mapped[float]
    ended_at_s: Mapped[float | None]
    result: Mapped[str | None]
    message: Mapped[str]


class OperationSampleRow(Base):
    """Gluster's counters over time. Clustered by time: one row per host and poll, for weeks."""

    __tablename__ = "operation_samples"
    __table_args__ = {"sqlite_with_rowid": False}

    operation_id: Mapped[int] = mapped_column(sa.ForeignKey("operations.id"), primary_key=True)
    at_s: Mapped[float] = mapped_column(primary_key=True)
    task_id: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str] = mapped_column(primary_key=True)
    files: Mapped[int]
    size_bytes: Mapped[int]
    lookups: Mapped[int]
    failures: Mapped[int]
    skipped: Mapped[int]
    status: Mapped[str]
    runtime_s: Mapped[float]
