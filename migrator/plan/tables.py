"""The tables of plans."""

from sqlalchemy.orm import Mapped, mapped_column

from migrator.ledger.tables import Base


class OwnerLimitRow(Base):
    """A limit on the target that was confirmed, in place of those of the source on `trees`."""

    __tablename__ = "owner_limits"

    uid: Mapped[int] = mapped_column(primary_key=True)
    size_bytes: Mapped[int]
    trees: Mapped[str]
