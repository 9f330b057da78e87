"""Values of which a test names only the facts that matter to it."""

import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin

from msgspec import Struct
from msgspec.structs import fields

T = TypeVar("T", bound=Struct)


def made(kind: type[T], /, **facts: Any) -> T:
    """A struct with these facts. Every other one that has no default is empty: 0, False, "", (), {}, None where it
    may be unknown, the first member of an enumeration, or a struct made in the same way.
    """
    for one in fields(kind):
        if one.required and one.name not in facts:
            facts[one.name] = _empty(one.type)
    return kind(**facts)


def _empty(hint: Any) -> Any:
    origin = get_origin(hint) or hint
    if origin in (Union, types.UnionType):
        choices = get_args(hint)
        return None if type(None) in choices else _empty(choices[0])
    if isinstance(origin, type) and issubclass(origin, Struct):
        return made(origin)
    if isinstance(origin, type) and issubclass(origin, Enum):
        return next(iter(origin))
    if origin is Mapping:
        return {}
    if origin is Sequence:
        return ()
    return origin()
