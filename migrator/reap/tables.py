"""The tables of archives and released paths."""

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from migrator.ledger.tables import Base, EnumText
from migrator.reap.model import ArchiveState


class ArchiveRow(Base):
    """An archive of old and tiny files in a user tree on the target. `number` is its name in the tree."""

    __tablename__ = "archives"
    __table_args__ = (
        sa.UniqueConstraint("tree", "number"),
        sa.Index("ix_archives_plan", "plan", "batch"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    plan: Mapped[str]
    batch: Mapped[int]
    tree: Mapped[bytes]
    number: Mapped[int]
    members: Mapped[int]
    content_bytes: Mapped[int]
    archive_bytes: Mapped[int]
    index_bytes: Mapped[int]
    archive_digest: Mapped[str]
    index_digest: Mapped[str]
    state: Mapped[ArchiveState] = mapped_column(EnumText(ArchiveState))
    at_s: Mapped[float]
    reason: Mapped[str]


class ReapReleaseRow(Base):
    """Skipped paths released for deletion with the source. `pattern` is a path below the tree, or a glob."""

    __tablename__ = "reap_releases"

    id: Mapped[int] = mapped_column(primary_key=True)
    tree: Mapped[bytes]
    pattern: Mapped[bytes]
    is_glob: Mapped[bool]
    by: Mapped[str]
    at_s: Mapped[float]
