"""JSON for programs: the fields of our values under their own names, then their computed properties.

The rules, which `docs/json.md` repeats: keys are the names in `migrator.domain`, sorted; bytes (paths) are percent-escaped
text; times are seconds since the epoch, durations seconds, sizes bytes (the key says which); states are words; what is
not known is null. Only ASCII: everything else is escaped in JSON's own way. Keys are added over time, never renamed.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path

from migrator.domain.errors import MigratorError
from migrator.domain.paths import percent_escape


def to_json(value: object, *, indent: int | None = 1) -> str:
    """A value of ours as one JSON document, ending with a line feed. Raises TypeError for what has no such form."""
    return json.dumps(plain(value), indent=indent, ensure_ascii=True, allow_nan=False, sort_keys=True) + "\n"


def plain(value: object) -> object:
    """A value of ours as dictionaries, lists, strings and numbers. Raises TypeError for what has no such form."""
    match value:
        case None | bool():
            return value
        case Enum():
            return plain(value.value)
        case int():
            return int(value)
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return percent_escape(value)
        case str():
            return value.encode("utf-8", "backslashreplace").decode("utf-8")
        case Path():
            return plain(str(value))
        case Mapping():
            return {_key(key): plain(item) for key, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
        case set() | frozenset():
            return sorted((plain(item) for item in value), key=str)
        case MigratorError():
            return {"message": plain(value.message), "cause": plain(value.cause), "hint": plain(value.hint)}
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _record(value)
        case _:
            raise TypeError(f"{type(value).__name__} has no form in JSON")


def _record(value: object) -> dict[str, object]:
    record = {field.name: plain(getattr(value, field.name)) for field in fields(value)}  # type: ignore[arg-type]
    for name in dir(type(value)):
        if not name.startswith("_") and isinstance(getattr(type(value), name), property):
            record[name] = plain(getattr(value, name))
    return record


def _key(key: object) -> str:
    form = plain(key)
    return form if isinstance(form, str) else str(form)
