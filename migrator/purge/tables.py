"""The table of second copies."""

import sqlalchemy as sa
from sqlalchemy.orm import Mapped, mapped_column

from migrator.ledger.tables import Base


class SecondCopyRow(Base):
    """An archive of the site that is proven to hold a tree. `manifests` are the digests of the manifests that were compared."""

    __tablename__ = "second_copies"
    __table_args__ = (sa.Index("ix_second_copies_tree", "tree"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    tree: Mapped[bytes]
    name: Mapped[str]
    place: Mapped[str]
    manifests: Mapped[str]
    algorithm: Mapped[str]
    files: Mapped[int]
    size_bytes: Mapped[int]
    extra: Mapped[int]
    list_digest: Mapped[str]
    at_s: Mapped[float]
