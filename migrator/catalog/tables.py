"""The tables of scans and verifications."""

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from migrator.ledger.tables import Base


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
