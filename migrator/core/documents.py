"""Values as JSON: structs by their fields, bytes percent-escaped. Text may hold lone surrogates."""

import json
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec
import msgspec.structs

from migrator.core.paths import percent_escape, percent_unescape


class Unreadable(ValueError):
    """A value of a document has the wrong type; the message names its place."""


def plain(value: object) -> Any:  # noqa: ANN401 - what JSON has, and bytes
    """A value as dictionaries, lists, text, numbers and bytes."""
    return msgspec.to_builtins(value, builtin_types=(bytes,))


def encode(value: object, **options: Any) -> str:  # noqa: ANN401 - as of `json.dumps`
    """A value as ASCII text. Equal values are equal text."""
    return json.dumps(plain(value), allow_nan=False, default=percent_escape, **options)


def decode(kind: Any, value: Any, where: str = "it") -> Any:  # noqa: ANN401 - a type, and a value of it
    """A value from what `json.loads` returned. Raises Unreadable."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        inner = next(one for one in arguments if one is not types.NoneType)
        return None if value is None else decode(inner, value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise Unreadable(f"{where} is no list")
        kinds = arguments[:1] * len(value) if arguments[-1] is Ellipsis else arguments
        if len(kinds) != len(value):
            raise Unreadable(f"{where} has {len(value)} items")
        pairs = zip(kinds, value, strict=True)
        return tuple(decode(one, item, f"{where}[{index}]") for index, (one, item) in enumerate(pairs))
    if origin is Mapping:
        if not isinstance(value, dict):
            raise Unreadable(f"{where} is no object")
        return {decode(arguments[0], key, where): decode(arguments[1], value[key], f"{where}.{key}") for key in value}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _decode_object(kind, value, where)
    return _decode_plain(kind, value, where)


def _decode_plain(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
    if kind is bytes:
        if not isinstance(value, str):
            raise Unreadable(f"{where} is no path")
        return percent_unescape(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        try:
            return kind(value)
        except ValueError as error:
            raise Unreadable(f"{where}: {error}") from error
    if kind not in (str, int, bool) or type(value) is not kind:
        raise Unreadable(f"{where} has type {type(value).__name__}")
    return value


_fields = cache(msgspec.structs.fields)


def _decode_object(kind: Any, value: Any, where: str) -> Any:  # noqa: ANN401 - as above
    if not isinstance(value, dict):
        raise Unreadable(f"{where} is no object")
    if unknown := sorted(value.keys() - set(kind.__struct_fields__)):
        raise Unreadable(f"{where} has the unknown key {unknown[0]!r}")
    decoded: dict[str, Any] = {}
    for field in _fields(kind):
        if field.name in value:
            decoded[field.name] = decode(field.type, value[field.name], f"{where}.{field.name}")
        elif field.required:
            raise Unreadable(f"{where} lacks {field.name!r}")
    return kind(**decoded)
