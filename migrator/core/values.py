"""`dataclass`, whose frozen values get their methods at the first use of one of them.

`dataclasses` compiles six functions for each class, in half a millisecond. A verb loads some 400 classes and uses few, so
that this was the largest part of its start (Python 3.11).
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, asdict, astuple, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

__all__ = ["KW_ONLY", "asdict", "astuple", "dataclass", "field", "fields", "replace"]

_MADE_LATER = (
    "__init__",
    "__repr__",
    "__eq__",
    "__hash__",
    "__setattr__",
    "__delattr__",
    "__getstate__",
    "__setstate__",
)

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(kind: type | None = None, /, **options: bool) -> Any:  # noqa: ANN401 - as the one it stands for
        """As `dataclasses.dataclass`. What is more than frozen, with slots, or has such methods of its own, is made there."""
        if kind is None:
            return partial(dataclass, **options)
        plain = options.keys() <= {"frozen", "slots", "kw_only"} and options.get("frozen") and options.get("slots")
        if not plain or not vars(kind).keys().isdisjoint(_MADE_LATER):
            return dataclasses.dataclass(**options)(kind)
        kind.__doc__ = kind.__doc__ or kind.__name__  # or else it is made of the signature
        # Frozen at once, it would have two of the methods; what inherits from a frozen class has to be.
        quickly = {**options, "frozen": any(map(dataclasses.is_dataclass, kind.__bases__))}
        made: Any = dataclasses.dataclass(**quickly, init=False, repr=False, eq=False)(kind)
        made.__dataclass_params__.frozen = True
        for name in _MADE_LATER:
            setattr(made, name, _made_at_first_use(made, name, options))
        return made


def _made_at_first_use(kind: type, name: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    """The method of this name, which gives the class all methods as `dataclasses` makes them. Two threads may do so."""

    def method(self: object, /, *arguments: object, **named: object) -> object:
        own = {
            each: getattr(kind, each) for each in ("__doc__", "__qualname__", "__post_init__") if hasattr(kind, each)
        }
        every = [(one.name, one.type, one) for one in fields(kind)]
        whole = dataclasses.make_dataclass(kind.__name__, every, namespace=own, **options)
        for each in _MADE_LATER:
            setattr(kind, each, vars(whole)[each])
        return getattr(kind, name)(self, *arguments, **named)

    return method
