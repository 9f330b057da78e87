"""The site, invocations of verbs, hooks, and the log."""

from sqlalchemy import (
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    UniqueConstraint,
    text,
)

from migrator.adapters.ledger.tables.columns import PlainText, metadata, required

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
