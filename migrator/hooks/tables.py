"""The tables of hooked steps and calls of hooks."""

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from migrator.hooks.model import HookOutcome, HookStep
from migrator.ledger.tables import Base, EnumText


class HookStepRow(Base):
    """A step with hooks around it."""

    __tablename__ = "hook_steps"
    __table_args__ = (sa.Index("ix_hook_steps_open", "step", "subject", sqlite_where=sa.text("closed_at_s IS NULL")),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(sa.ForeignKey("runs.id"))
    step: Mapped[HookStep] = mapped_column(EnumText(HookStep))
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
    outcome: Mapped[HookOutcome | None] = mapped_column(EnumText(HookOutcome))
    output: Mapped[bytes]
