"""Values of which a test names only the facts that matter to it."""

import dataclasses
import types
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def made(kind: type[T], /, **facts: Any) -> T:
    """A dataclass with these facts. Every other one that has no default is empty: 0, False, "", (), {}, None where it
    may be unknown, the first member of an enumeration, or a dataclass made in the same way.
    """
    hints = get_type_hints(kind)
    for one in dataclasses.fields(kind):  # type: ignore[arg-type]
        has_default = one.default is not dataclasses.MISSING or one.default_factory is not dataclasses.MISSING
        if one.init and one.name not in facts and not has_default:
            facts[one.name] = _empty(hints[one.name])
    return kind(**facts)


def _empty(hint: Any) -> Any:
    origin = get_origin(hint) or hint
    if origin in (Union, types.UnionType):
        choices = get_args(hint)
        return None if type(None) in choices else _empty(choices[0])
    if dataclasses.is_dataclass(origin):
        return made(origin)  # type: ignore[arg-type]
    if isinstance(origin, type) and issubclass(origin, Enum):
        return next(iter(origin))
    if origin is Mapping:
        return {}
    if origin is Sequence:
        return ()
    return origin()
