"""The tables of plans, and of the room on both sides that plans are made by."""

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from migrator.beegfs.model import StorageTarget
from migrator.core.states import BatchState
from migrator.fs.model import Side
from migrator.ledger.tables import Base, EnumText, JsonText
from migrator.plan.model import TransferCost


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
    cost: Mapped[TransferCost] = mapped_column(JsonText(TransferCost))
    forecast_s: Mapped[float]
    activated_at_s: Mapped[float | None]


class BatchRow(Base):
    """A batch of a plan."""

    __tablename__ = "batches"

    plan: Mapped[str] = mapped_column(sa.ForeignKey("plans.name"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[BatchState] = mapped_column(EnumText(BatchState))
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


class OwnerLimitRow(Base):
    """A limit on the target that was confirmed, in place of those of the source on `trees`."""

    __tablename__ = "owner_limits"

    uid: Mapped[int] = mapped_column(primary_key=True)
    size_bytes: Mapped[int]
    trees: Mapped[tuple[bytes, ...]] = mapped_column(JsonText(tuple[bytes, ...]))


class CapacitySampleRow(Base):
    """Capacity of one side: at the beginning and end of a run, and every hour between."""

    __tablename__ = "capacity_samples"
    __table_args__ = {"sqlite_with_rowid": False}

    side: Mapped[Side] = mapped_column(EnumText(Side), primary_key=True)
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
    targets: Mapped[tuple[StorageTarget, ...]] = mapped_column(JsonText(tuple[StorageTarget, ...]))
