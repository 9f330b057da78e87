"""Reading and writing rows, for the records of all features.

The columns convert values (`EnumText`, `JsonText`), so a field of a record and the column of the same name have the same value.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Generic, TypeVar

from msgspec import Struct
from sqlalchemy import Connection, Executable, Row, Select, bindparam, insert, select, update

from migrator.ledger.database import Database, State, check, expect_one, missing
from migrator.ledger.tables import Base

Value = TypeVar("Value", bound=Struct)
AnyRow = Row[*tuple[Any, ...]]
AnySelect = Select[*tuple[Any, ...]]


def record_of(row: AnyRow, kind: type[Value], **given: Any) -> Value:  # noqa: ANN401 - values of any field
    """A record from the columns that have the names of its fields; `given` fields replace those of the row."""
    names = kind.__struct_fields__
    return kind(**{name: value for name, value in row._mapping.items() if name in names} | given)  # noqa: SLF001 - SQLAlchemy's public name


def columns_of(table: type[Base], record: Struct, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - values of any column
    """The fields of a record that have columns, except the id; `given` values replace those of the record."""
    columns = table.__table__.c
    return {
        name: getattr(record, name) for name in record.__struct_fields__ if name in columns and name != "id"
    } | given


# In a transaction.


@cache
def _insert(table: type[Base]) -> Executable:
    # SQLAlchemy compiles a statement once, but takes a new object of the same statement apart to find that out.
    return insert(table.__table__).returning(table.__table__.c.id)


def add(connection: Connection, table: type[Base], **values: Any) -> int:  # noqa: ANN401 - values of any column
    """Insert a row; return its id."""
    return int(connection.execute(_insert(table), values).scalar_one())


def put(connection: Connection, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, which replace those of the same key."""
    if rows:
        connection.execute(insert(table.__table__).prefix_with("OR REPLACE"), rows)


def change(connection: Connection, table: type[Base], row_id: int, what: str, **values: Any) -> None:  # noqa: ANN401 - as above
    """Change the row of an id. Raises LedgerCorrupt if there is none."""
    rows = table.__table__
    expect_one(connection.execute(update(rows).where(rows.c.id == row_id).values(values)).rowcount, what)


class States(Generic[State]):
    """The states of the rows of a table, which these columns identify."""

    def __init__(self, table: type[Base], transitions: Mapping[State, frozenset[State]], *key: str) -> None:
        self._transitions = transitions
        self._key = [f"of_{name}" for name in key]
        rows = table.__table__
        this = [rows.c[name] == bindparam(f"of_{name}") for name in key]
        self._find, self._update = select(rows.c.state).where(*this), update(rows).where(*this)

    def enter(
        self,
        connection: Connection,
        key: Sequence[object],
        state: State,
        what: str,
        **values: Any,  # noqa: ANN401 - values of any column
    ) -> bool:
        """Put one row into a state, with other values; False, without a change, if it is in that state. Raises
        LedgerCorrupt if there is no such row, or if the state may not follow.
        """
        this = dict(zip(self._key, key, strict=True))
        found = connection.execute(self._find, this).scalar_one_or_none()
        if found is None:
            raise missing(what)
        changes = check(self._transitions, type(state)(found), state, what)
        if changes:
            connection.execute(self._update, {**this, "state": state.value, **values})
        return changes


class Records:
    """A group of tables, read and written one transaction at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _rows(self, query: Executable) -> Sequence[AnyRow]:
        with self._database.read() as connection:
            return connection.execute(query).all()

    def _value(self, query: AnySelect) -> Any:  # noqa: ANN401 - of a column
        """The first column of the first row; None without a row."""
        with self._database.read() as connection:
            return connection.execute(query).scalar()

    def _all(self, kind: type[Value], query: AnySelect) -> list[Value]:
        return [record_of(row, kind) for row in self._rows(query)]

    def _first(self, kind: type[Value], query: AnySelect) -> Value | None:
        return next(iter(self._all(kind, query.limit(1))), None)

    def _add(self, table: type[Base], **values: Any) -> int:  # noqa: ANN401 - values of any column
        with self._database.write() as connection:
            return add(connection, table, **values)

    def _put(self, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            with self._database.write() as connection:
                put(connection, table, rows)

    def _change(self, table: type[Base], row_id: int, what: str, **values: Any) -> None:  # noqa: ANN401 - as above
        with self._database.write() as connection:
            change(connection, table, row_id, what, **values)
