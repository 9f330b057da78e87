"""Rows as structs, for all groups of tables: a field is stored in the column of the same name.

If a field is a struct and has no column of its name, its own fields have columns; it is None if all of these are
null. Other values that do not fit a plain column are stored as JSON.
"""

import json
from collections.abc import Callable, Container, Hashable, Mapping, Sequence
from enum import StrEnum
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Generic, TypeVar, cast, get_args

from msgspec import Struct
from msgspec.structs import fields
from sqlalchemy import Connection, Executable, Row, Select, bindparam, insert, select, update

from migrator.core import documents
from migrator.ledger.database import Database, State, check, damaged, expect_one, missing
from migrator.ledger.tables import Base, PlainText

Value = TypeVar("Value")
AnyRow = Row[*tuple[Any, ...]]
AnySelect = Select[*tuple[Any, ...]]
_Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]

_PLAIN = (int, float, str, bytes)


def _codec(hint: Any) -> _Codec | None:  # noqa: ANN401 - a type
    if hint in _PLAIN:
        return None
    if hint is bool:
        return int, bool
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return str, hint
    return documents.encode, partial(from_column, kind=hint)


def from_column(text: str, kind: Any) -> Any:  # noqa: ANN401 - a value of the type
    """The value of a column of JSON."""
    return documents.decode(kind, json.loads(text))


@cache
def _hints(kind: Any) -> Mapping[str, tuple[Any, bool]]:  # noqa: ANN401 - a struct
    """The type of each field without None, and whether it may be None."""
    found: dict[str, tuple[Any, bool]] = {}
    for field in fields(kind):
        hint, optional = field.type, isinstance(field.type, UnionType)
        found[field.name] = next(one for one in get_args(hint) if one is not NoneType) if optional else hint, optional
    return found


def _lies_in(hint: Any, columns: Container[str]) -> bool:  # noqa: ANN401 - a type
    return isinstance(hint, type) and issubclass(hint, Struct) and all(name in columns for name in _hints(hint))


@cache
def _reader(kind: Any, names: tuple[str, ...]) -> Callable[[AnyRow, Mapping[str, Any]], Any]:  # noqa: ANN401 - a struct
    """A function that reads a record from rows of these columns."""
    place = {name: at for at, name in enumerate(names)}
    own: list[tuple[str, int, Callable[[Any], Any] | None]] = []
    nested: list[tuple[str, Any, list[int]]] = []
    for name, (hint, optional) in _hints(kind).items():
        if name in place:
            codec = _codec(hint)
            own.append((name, place[name], None if codec is None else codec[1]))
        elif _lies_in(hint, place):
            nested.append((name, hint, [place[part] for part in _hints(hint)] if optional else []))

    def read(row: AnyRow, given: Mapping[str, Any]) -> Any:  # noqa: ANN401 - of the kind
        values = dict(given)
        for name, at, decode in own:
            if name not in given:
                value = row[at]
                values[name] = value if decode is None or value is None else decode(value)
        for name, hint, parts in nested:
            if name not in given:
                absent = parts and all(row[at] is None for at in parts)
                values[name] = None if absent else _reader(hint, names)(row, {})
        return kind(**values)

    return read


def record_of(row: AnyRow, kind: type[Value], **given: Any) -> Value:  # noqa: ANN401 - values of any field
    """A struct from a row; `given` fields replace those of the row. A field without a column keeps its default.
    Raises LedgerCorrupt if a value cannot be decoded.
    """
    try:
        return cast("Value", _reader(cast("Hashable", kind), row._fields)(row, given))
    except ValueError as error:
        raise damaged(f"a {kind.__name__} cannot be read: {error}") from error


def columns_of(table: type[Base], record: Any, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - any struct
    """The values of a record for the columns of a table, except the id. `given` values are already encoded and replace
    those of the record.
    """
    found = dict(given)
    for name, (hint, _) in _hints(cast("Hashable", type(record))).items():
        value = getattr(record, name)
        if name in {"id", *given}:
            continue
        if name in table.__table__.c:
            codec = _codec(hint)
            found[name] = value if codec is None or value is None else codec[0](value)
        elif value is not None and _lies_in(hint, table.__table__.c.keys()):
            found = columns_of(table, value) | found
    return found


def blank(table: type[Base]) -> dict[str, Any]:
    """A row of zeros and empty texts, without its id."""
    return {
        column.name: "" if isinstance(column.type, PlainText) else column.type.python_type()
        for column in table.__table__.c
        if not column.nullable and not column.primary_key
    }


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
