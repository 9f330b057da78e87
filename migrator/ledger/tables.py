"""The tables of the ledger. Units are in the names of columns; paths are BLOBs; times are seconds since the epoch.

No table has a row per file, except for files that need attention: files are in the catalog. A change of a table needs a
revision in `migrations/versions` (`schema.py`).
"""

from typing import Any, ClassVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class PlainText(sa.TypeDecorator[str]):
    """Text that can always be stored: lone surrogates, which UTF-8 cannot hold, become escapes."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Escape characters that cannot be encoded."""
        del dialect
        return None if value is None else storable(value)


def storable(value: str) -> str:
    """Text that can always be stored and shown."""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


class Base(DeclarativeBase):
    """The base of all tables."""

    metadata = sa.MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {str: PlainText, float: sa.Float}
    __table__: ClassVar[sa.Table]


# The site, runs, events, hooks.


class SchemaVersionRow(Base):
    """Which program made the tables as they are: a row at the ledger's creation, and one for each upgrade."""

    __tablename__ = "schema_versions"

    id: Mapped[int] = mapped_column(primary_key=True)
    revision: Mapped[str]
    program: Mapped[str]
    at_s: Mapped[float]


class SiteRow(Base):
    """The one row about the site."""

    __tablename__ = "site"
    __table_args__ = (sa.CheckConstraint("id = 1", name="one_row"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    site_id: Mapped[str]
    name: Mapped[str]
    created_at_s: Mapped[float]
    source: Mapped[str]
    target: Mapped[str]
    capabilities: Mapped[str | None]
    capabilities_probed_at_s: Mapped[float | None]


class RunRow(Base):
    """One call of a verb that writes."""

    __tablename__ = "runs"

    id: Mapped[int] = mapped_column(primary_key=True)
    verb: Mapped[str]
    pid: Mapped[int]
    started_at_s: Mapped[float]
    heartbeat_at_s: Mapped[float]
    finished_at_s: Mapped[float | None]
    exit_code: Mapped[int | None]
    directory: Mapped[str]


class JournalRow(Base):
    """What the site's commands have begun, as in the journal on the target. A number is never used again."""

    __tablename__ = "journal"
    __table_args__ = {"sqlite_autoincrement": True}

    id: Mapped[int] = mapped_column(primary_key=True)
    token: Mapped[str]
    at_s: Mapped[float]
    what: Mapped[str]


class EventRow(Base):
    """One event."""

    __tablename__ = "events"
    __table_args__ = (sa.Index("ix_events_severity", "severity"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int | None] = mapped_column(sa.ForeignKey("runs.id"))
    at_s: Mapped[float]
    kind: Mapped[str]
    severity: Mapped[str]
    subject: Mapped[str]
    message: Mapped[str]
