"""The tables of scans and verifications."""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from migrator.catalog.model import StrangeFiles
from migrator.core.entry import UserTree
from migrator.ledger.tables import Base, JsonText


class ScanRow(Base):
    """A scan. `scope` has the paths of the covered user trees (none: the whole source), `strange` the files put on bricks
    without Gluster.
    """

    __tablename__ = "scans"
    __table_args__ = (sa.UniqueConstraint("catalog"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    catalog: Mapped[str]
    via: Mapped[str]
    scope: Mapped[tuple[bytes, ...]] = mapped_column(JsonText(tuple[bytes, ...]))
    started_at_s: Mapped[float]
    finished_at_s: Mapped[float | None]
    trees: Mapped[tuple[UserTree, ...]] = mapped_column(JsonText(tuple[UserTree, ...]))
    parts: Mapped[tuple[str, ...]] = mapped_column(JsonText(tuple[str, ...]))
    whole: Mapped[bool]
    reasons: Mapped[tuple[str, ...]] = mapped_column(JsonText(tuple[str, ...]))
    rows: Mapped[int]
    files: Mapped[int]
    directories: Mapped[int]
    size_bytes: Mapped[int]
    problems: Mapped[int]
    health_fingerprint: Mapped[str]
    strange: Mapped[tuple[StrangeFiles, ...]] = mapped_column(JsonText(tuple[StrangeFiles, ...]))
    digest: Mapped[str]
    set_apart: Mapped[tuple[bytes, ...]] = mapped_column(JsonText(tuple[bytes, ...]))
    selected_by: Mapped[tuple[str, ...]] = mapped_column(JsonText(tuple[str, ...]))


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
    differences: Mapped[Mapping[str, int]] = mapped_column(JsonText(Mapping[str, int]))
    expected: Mapped[Mapping[str, int]] = mapped_column(JsonText(Mapping[str, int]))
    whole: Mapped[bool]
    reasons: Mapped[tuple[str, ...]] = mapped_column(JsonText(tuple[str, ...]))
    manifest: Mapped[str | None]
    manifest_digest: Mapped[str | None]
    files: Mapped[int]
    equal_paths: Mapped[int]
    differences_file: Mapped[str | None]
    differences_digest: Mapped[str | None]
    trees: Mapped[tuple[bytes, ...]] = mapped_column(JsonText(tuple[bytes, ...]))
    carried_files: Mapped[int]
    carried_bytes: Mapped[int]
