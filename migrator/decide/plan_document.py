# ruff: noqa: ANN401 - the values of a JSON document have every type until they are decoded.
"""The plan as a document: canonical JSON with a checksum over its content, readable in a code review.

Keys are sorted, one value a line, bytes percent-escaped, so that the same plan is the same text and a difference
between two plans shows as one.
"""

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Any

from migrator.domain.errors import Refused, UsageError
from migrator.domain.paths import percent_escape, percent_unescape
from migrator.domain.plan import Plan

FORMAT = 1
_CHECKSUM = "checksum"
_FORMAT = "format"
_PLAN_AGAIN = "make a new plan with `migrator plan`"


class _Unreadable(ValueError):
    """A value of the document does not have the type that the plan needs; says where."""


def write_document(plan: Plan) -> tuple[str, str]:
    """The text of a plan's document, and its checksum."""
    content: dict[str, Any] = {_FORMAT: FORMAT, **_encode(plan)}
    checksum = _checksum(content)
    return _canonical({**content, _CHECKSUM: checksum}), checksum


def read_document(text: str, *, name: str, site_id: str | None = None) -> tuple[Plan, str]:
    """The plan in a document, and its checksum. `name` is the plan's, by its file; `site_id` is this site's, where
    there is one to compare with.

    Raises UsageError where the text is no plan of this format, Refused where it was changed after it was written, or
    where it is a plan of another site or of another name.
    """
    content = _parse(text, name)
    checksum = content.pop(_CHECKSUM, None)
    version = content.get(_FORMAT)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise UsageError(f"plan {name!r} has no format number", cause="it is no plan document", hint=_PLAN_AGAIN)
    if version > FORMAT:
        raise UsageError(
            f"plan {name!r} has format {version}; this version of migrator reads up to {FORMAT}",
            cause="it was made by a newer version",
            hint="use that version, or " + _PLAN_AGAIN,
        )
    if checksum != _checksum(content):
        raise Refused(
            f"plan {name!r} is not what was written: its checksum is off",
            cause="the document was edited by hand, or damaged",
            hint=f"{_PLAN_AGAIN}, with the limits and the order that you want; a plan is never edited",
        )
    del content[_FORMAT]
    try:
        plan = _decode(Plan, content, "plan")
    except _Unreadable as error:
        raise UsageError(
            f"plan {name!r} cannot be read: {error}", cause="it was made by another version", hint=_PLAN_AGAIN
        ) from error
    if not isinstance(plan, Plan):
        raise TypeError("the decoded document is no plan")
    if site_id is not None and plan.site_id != site_id:
        raise Refused(
            f"plan {name!r} is for another site ({plan.site!r})",
            cause="the plan was copied from another site, or `init` was run anew",
            hint=_PLAN_AGAIN,
        )
    if plan.name != name:
        raise Refused(
            f"plan {name!r} says that it is plan {plan.name!r}",
            cause="the document was renamed or copied; its chunk lists were not",
            hint=f"give it its name back, or {_PLAN_AGAIN}",
        )
    return plan, str(checksum)


def _parse(text: str, name: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UsageError(
            f"plan {name!r} is no JSON document: {error}", cause="the file was cut off or replaced", hint=_PLAN_AGAIN
        ) from error
    if not isinstance(content, dict):
        raise UsageError(f"plan {name!r} is no plan document: it holds no object at the top", hint=_PLAN_AGAIN)
    return content


def _canonical(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.blake2b(_canonical(content).encode("ascii"), digest_size=32).hexdigest()


def _encode(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return percent_escape(value)
    if isinstance(value, tuple):
        return [_encode(item) for item in value]
    if isinstance(value, StrEnum):
        return value.value
    return value


@cache
def _field_types(kind: type) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _decode(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode_optional(kind, value, where)
    if origin is tuple:
        item_kind = typing.get_args(kind)[0]
        if not isinstance(value, list):
            raise _Unreadable(f"{where} is no list")
        return tuple(_decode(item_kind, item, f"{where}[{index}]") for index, item in enumerate(value))
    if dataclasses.is_dataclass(kind):
        return _decode_object(kind, value, where)
    if kind is bytes:
        if not isinstance(value, str):
            raise _Unreadable(f"{where} is no path")
        return percent_unescape(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        try:
            return kind(value)
        except ValueError as error:
            raise _Unreadable(f"{where}: {error}") from error
    if kind not in (str, int, bool) or type(value) is not kind:
        raise _Unreadable(f"{where} has type {type(value).__name__}")
    return value


def _decode_optional(kind: Any, value: Any, where: str) -> Any:
    if value is None:
        return None
    some = next(choice for choice in typing.get_args(kind) if choice is not types.NoneType)
    return _decode(some, value, where)


def _decode_object(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _Unreadable(f"{where} is no object")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    unknown = sorted(value.keys() - fields.keys())
    if unknown:
        raise _Unreadable(f"{where} has the unknown key {unknown[0]!r}")
    hints = _field_types(kind)
    decoded: dict[str, Any] = {}
    for name, field in fields.items():
        if name in value:
            decoded[name] = _decode(hints[name], value[name], f"{where}.{name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise _Unreadable(f"{where} lacks {name!r}")
    return kind(**decoded)
