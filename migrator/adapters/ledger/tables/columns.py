"""What the tables of the ledger are made of: their metadata, types of columns, and forms that several tables have."""

from typing import Any

from sqlalchemy import Column, Dialect, Float, ForeignKey, Index, Integer, MetaData, Table, Text, TypeDecorator

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class PlainText(TypeDecorator[str]):
    """Text that can always be stored: lone surrogates, which UTF-8 cannot hold, become escapes."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape what cannot be encoded."""
        del dialect
        return None if value is None else value.encode("utf-8", "backslashreplace").decode("utf-8")


def required(name: str, kind: Any) -> Column[Any]:  # noqa: ANN401 - a column's type is SQLAlchemy's business
    """A column that is never null."""
    return Column(name, kind, nullable=False)


def steps_table(attempt: str) -> Table:
    """The steps of attempts of one kind (`drain`), each with its intent and its end; see `attempt_steps`."""
    owner = f"{attempt}_id"
    return Table(
        f"{attempt}_steps",
        metadata,
        Column("id", Integer, primary_key=True),
        Column(owner, Integer, ForeignKey(f"{attempt}s.id"), nullable=False),
        required("step", PlainText),
        required("intended_at_s", Float),
        Column("ended_at_s", Float),
        Column("result", PlainText),
        required("message", PlainText),
        Index(f"ix_{attempt}_steps_{owner}", owner),
    )


def task_samples_table(attempt: str) -> Table:
    """Gluster's counters over time in attempts of one kind. Clustered by time: a row a host at every look, for weeks."""
    return Table(
        f"{attempt}_samples",
        metadata,
        Column(f"{attempt}_id", Integer, ForeignKey(f"{attempt}s.id"), primary_key=True),
        Column("at_s", Float, primary_key=True),
        Column("task_id", PlainText, primary_key=True),
        Column("host", PlainText, primary_key=True),
        required("files", Integer),
        required("size_bytes", Integer),
        required("lookups", Integer),
        required("failures", Integer),
        required("skipped", Integer),
        required("status", PlainText),
        required("runtime_s", Float),
        sqlite_with_rowid=False,
    )
