"""The tables of tracked operations."""

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from migrator.ledger.tables import Base, EnumText
from migrator.operations.model import StepResult


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
    result: Mapped[StepResult | None] = mapped_column(EnumText(StepResult))
    message: Mapped[str]
