"""Rows as values: a field of a dataclass is the column of the same name."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_type_hints

from sqlalchemy import Row, Table

from migrator.core.entry import UserTree
from migrator.ledger.database import (
    decode_counts,
    decode_paths,
    decode_trees,
    decode_words,
    encode_counts,
    encode_paths,
    encode_trees,
    encode_words,
)

Value = TypeVar("Value")
_Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]

_CODECS: Mapping[Any, _Codec] = {
    bool: (int, bool),
    tuple[str, ...]: (encode_words, decode_words),
    tuple[bytes, ...]: (encode_paths, decode_paths),
    tuple[UserTree, ...]: (encode_trees, decode_trees),
    Mapping[str, int]: (encode_counts, decode_counts),
}


@cache
def _codecs(kind: Any) -> Mapping[str, _Codec | None]:  # noqa: ANN401 - a dataclass
    """The codec of each field by the field's type; None for a column that holds the value itself."""
    hints = get_type_hints(kind)
    codecs: dict[str, _Codec | None] = {}
    for field in fields(kind):
        hint = hints[field.name]
        if isinstance(hint, UnionType):
            hint = next(one for one in get_args(hint) if one is not NoneType)
        is_enum = isinstance(hint, type) and issubclass(hint, StrEnum)
        codecs[field.name] = (str, hint) if is_enum else _CODECS.get(hint)
    return codecs


@cache
def _read(kind: Any, columns: tuple[str, ...]) -> tuple[tuple[str, int, Callable[[Any], Any] | None], ...]:  # noqa: ANN401
    """Each field that has a column, the column's place, and its decoder."""
    codecs = _codecs(kind)
    found = ((name, at, codecs[name]) for at, name in enumerate(columns) if name in codecs)
    return tuple((name, at, None if codec is None else codec[1]) for name, at, codec in found)


def record_of(row: Row[Any], kind: type[Value], **given: Any) -> Value:  # noqa: ANN401 - values of any field
    """A dataclass from a row. `given` fields are not read; a field without a column keeps its default."""
    values: dict[str, Any] = {}
    for name, at, decode in _read(cast("Hashable", kind), row._fields):
        value = row[at]
        values[name] = value if decode is None or value is None else decode(value)
    return cast("Callable[..., Value]", kind)(**{**values, **given})


def columns_of(table: Table, record: Any, **given: Any) -> dict[str, Any]:  # noqa: ANN401 - any dataclass
    """The columns of a table that a record has, except its id; and `given`, already encoded."""
    columns = dict(given)
    for name, codec in _codecs(cast("Hashable", type(record))).items():
        if name not in given and name != "id" and name in table.c:
            value = getattr(record, name)
            columns[name] = value if codec is None or value is None else codec[0](value)
    return columns
