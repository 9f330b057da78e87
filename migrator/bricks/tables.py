"""The table of Gluster's counters while bricks are drained or added."""

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from migrator.gluster.model import TaskStatus
from migrator.ledger.tables import Base, EnumText


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
    status: Mapped[TaskStatus] = mapped_column(EnumText(TaskStatus))
    runtime_s: Mapped[float]
