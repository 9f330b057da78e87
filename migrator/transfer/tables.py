"""The tables of passes, chunks and attempts, of what is measured meanwhile, and of limits on the transfer."""

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from migrator.core.probe import ProbeSide
from migrator.core.states import AttemptState, ChunkKind, ChunkState, PassKind, PassState
from migrator.ledger.tables import Base, EnumText, JsonText
from migrator.transfer.delta.model import ChangeKind
from migrator.transfer.model import FileProblemKind
from migrator.transfer.model_convergence import ConvergenceOutcome, TreeChurn
from migrator.transfer.model_governor import Bound, Gate

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
    kind: Mapped[PassKind] = mapped_column(EnumText(PassKind))
    number: Mapped[int]
    state: Mapped[PassState] = mapped_column(EnumText(PassState))
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
    kind: Mapped[ChangeKind] = mapped_column(EnumText(ChangeKind), primary_key=True)
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
    kind: Mapped[ChunkKind] = mapped_column(EnumText(ChunkKind))
    tree: Mapped[bytes]
    files: Mapped[int]
    size_bytes: Mapped[int]
    state: Mapped[ChunkState] = mapped_column(EnumText(ChunkState))
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
    state: Mapped[AttemptState] = mapped_column(EnumText(AttemptState))
    pid: Mapped[int | None]
    start_ticks: Mapped[int | None]
    boot_id: Mapped[str | None]
    argv: Mapped[tuple[str, ...]] = mapped_column(JsonText(tuple[str, ...]))
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
    kind: Mapped[FileProblemKind] = mapped_column(EnumText(FileProblemKind))
    errno: Mapped[int | None]
    reason: Mapped[str]
    at_s: Mapped[float]


class PredictionRow(Base):
    """The prediction after a pass. The churn by tree is JSON: it is only read as a whole."""

    __tablename__ = "predictions"

    pass_id: Mapped[int] = mapped_column(sa.ForeignKey("passes.id"), primary_key=True)
    at_s: Mapped[float]
    decision: Mapped[ConvergenceOutcome] = mapped_column(EnumText(ConvergenceOutcome))
    max_freeze_s: Mapped[float]
    next_pass_s: Mapped[float]
    freeze_s: Mapped[float]
    least_freeze_s: Mapped[float]
    churn_files_per_h: Mapped[float]
    churn_bytes_per_h: Mapped[float]
    churn_of_trees: Mapped[tuple[TreeChurn, ...]] = mapped_column(JsonText(tuple[TreeChurn, ...]))


# Measurements: throughput and latency.


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


class ProbeRow(Base):
    """One probe per minute and side; old rows are thinned out. A row without times had no answer, or failed."""

    __tablename__ = "probes"
    __table_args__ = (sa.Index("ix_probes_side_at_s", "side", "at_s"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    side: Mapped[ProbeSide] = mapped_column(EnumText(ProbeSide))
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
    paused: Mapped[bool]
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
    gate: Mapped[Gate] = mapped_column(EnumText(Gate))
    bound: Mapped[Bound] = mapped_column(EnumText(Bound))
    streams: Mapped[int]
    most: Mapped[int]
    hosts: Mapped[tuple[tuple[str, int], ...]] = mapped_column(JsonText(tuple[tuple[str, int], ...]))
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
