"""The tables around cutovers: backups of the target, announcements, measurements of trees."""

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from migrator.cutover.rules_speed import TreeTest
from migrator.fs.model import Side
from migrator.ledger.tables import Base, EnumText


class TargetBackupRow(Base):
    """A tree in a backup of the target, made by other software; `at_s` is when the backup began."""

    __tablename__ = "target_backups"
    __table_args__ = (sa.Index("ix_target_backups_tree", "tree"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    tree: Mapped[bytes]
    at_s: Mapped[float]
    note: Mapped[str]


class AnnouncementRow(Base):
    """A cutover that the hooks of `announce` announced to a user."""

    __tablename__ = "announcements"

    id: Mapped[int] = mapped_column(primary_key=True)
    plan: Mapped[str]
    tree: Mapped[bytes]
    begins_at_s: Mapped[float]
    at_s: Mapped[float]


class TreeMeasurementRow(Base):
    """A measurement of a user's tree around its cutover. `cold` is null for tests that do not read; `amount` is lines or bytes."""

    __tablename__ = "tree_measurements"
    __table_args__ = {"sqlite_with_rowid": False}

    cutover_id: Mapped[int] = mapped_column(sa.ForeignKey("operations.id"), primary_key=True)
    side: Mapped[Side] = mapped_column(EnumText(Side), primary_key=True)
    run: Mapped[int] = mapped_column(primary_key=True)
    test: Mapped[TreeTest] = mapped_column(EnumText(TreeTest), primary_key=True)
    at_s: Mapped[float]
    seconds: Mapped[float]
    amount: Mapped[int]
    complete: Mapped[bool]
    cold: Mapped[bool | None]
    failure: Mapped[str]
