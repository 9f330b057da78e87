"""Columns of Parquet files, and the sources of their values."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

import pyarrow as pa

Row = TypeVar("Row")

_MAP = pa.map_(pa.binary(), pa.binary())
"""The type `map`, which has no alias."""


class Columns(Generic[Row]):
    """Columns `name:type`, with `?` if they may be null. Their values are attributes of the rows: `=` names an
    attribute that is not called as its column, and `computed` has functions for others.
    """

    def __init__(self, columns: str, **computed: Callable[[Row], object]) -> None:
        fields: list[pa.Field[Any]] = []
        self._values: dict[str, Callable[[Row], object]] = {}
        for column in columns.split():
            described, _, attribute = column.partition("=")
            name, _, kind = described.partition(":")
            column_type: pa.DataType = _MAP if kind == "map" else pa.type_for_alias(kind.rstrip("?"))  # type: ignore[call-overload]
            fields.append(pa.field(name, column_type, nullable=kind.endswith("?")))
            self._values[name] = computed.get(name) or attrgetter(attribute or name)
        self.schema = pa.schema(fields)

    def batch(self, rows: Sequence[Row], **given: "Sequence[object] | pa.Array[Any]") -> pa.RecordBatch:
        """The columns of these rows; `given` ones are not read from the rows."""
        return self.of(
            {name: given[name] if name in given else list(map(value, rows)) for name, value in self._values.items()}
        )

    def of(self, columns: "Mapping[str, Sequence[object] | pa.Array[Any]]") -> pa.RecordBatch:
        """Columns that are there already."""
        arrays = [pa.array(columns[field.name], type=field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
