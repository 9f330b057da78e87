"""The tables of the ledger. Units are in the names of columns; paths are BLOBs; times are seconds since the epoch.

No table has a row per file, except for files that need attention: files are in the catalog. A change of a table needs a
revision in `migrations/versions` (`schema.py`).
"""

import json
from enum import StrEnum
from typing import Any, ClassVar, TypeVar

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from migrator.core import documents
from migrator.core.events import EventKind, Severity
from migrator.fs.model import MountIdentity, TargetCapabilities
from migrator.ledger.database import damaged

Word = TypeVar("Word", bound=StrEnum)


class PlainText(sa.TypeDecorator[str]):
    """Text that can always be stored: lone surrogates, which UTF-8 cannot hold, become escapes."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """Escape characters that cannot be encoded."""
        del dialect
        return None if value is None else storable(value)


class EnumText(sa.TypeDecorator[Word]):
    """A member of an enumeration, stored as its value. Raises LedgerCorrupt for any other value in the ledger."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: type[Word]) -> None:
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        """The value of a member, which is text itself."""
        del dialect
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Word | None:
        """The member of a value."""
        del dialect
        try:
            return None if value is None else self.kind(value)
        except ValueError as error:
            raise damaged(f"a {self.kind.__name__} cannot be read: {error}") from error


class JsonText(sa.TypeDecorator[Any]):
    """A value as JSON: structs, tuples and mappings, with bytes and lone surrogates. Equal values are equal text. Raises
    LedgerCorrupt if the ledger has a value of another form.
    """

    impl = sa.Text
    cache_ok = True

    def __init__(self, kind: Any) -> None:  # noqa: ANN401 - a type
        super().__init__()
        self.kind = kind

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:  # noqa: ANN401 - of the kind
        """A value as text."""
        del dialect
        return None if value is None else documents.encode(value)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:  # noqa: ANN401 - of the kind
        """The value of a text."""
        del dialect
        try:
            return None if value is None else documents.decode(self.kind, json.loads(value))
        except ValueError as error:
            raise damaged(f"a value of {self.kind} cannot be read: {error}") from error


class Flag(sa.TypeDecorator[bool]):
    """True or False, stored as 1 or 0."""

    impl = sa.Integer
    cache_ok = True

    def process_bind_param(self, value: bool | None, dialect: sa.Dialect) -> int | None:
        """As an integer."""
        del dialect
        return None if value is None else int(value)

    def process_result_value(self, value: int | None, dialect: sa.Dialect) -> bool | None:
        """From an integer."""
        del dialect
        return None if value is None else bool(value)


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
    type_annotation_map: ClassVar[dict[Any, Any]] = {str: PlainText, float: sa.Float, bool: Flag}
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
    source: Mapped[MountIdentity] = mapped_column(JsonText(MountIdentity))
    target: Mapped[MountIdentity] = mapped_column(JsonText(MountIdentity))
    capabilities: Mapped[TargetCapabilities | None] = mapped_column(JsonText(TargetCapabilities))
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
    kind: Mapped[EventKind] = mapped_column(EnumText(EventKind))
    severity: Mapped[Severity] = mapped_column(EnumText(Severity))
    subject: Mapped[str]
    message: Mapped[str]
