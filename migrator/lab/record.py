"""`lab.json`: the parts of a lab, recorded before they are made, so that `down` finds them after a crash."""

import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from migrator.core.durable import write_durably
from migrator.core.errors import Refused
from migrator.core.paths import percent_escape, percent_unescape, show
from migrator.lab.model import LabBrick, LabHost, LabSpec, LabState

RECORD_NAME = b"lab.json"
_FORMAT = "migrator lab 1"

_BYTES_FIELDS = frozenset(
    field.name
    for kind in (LabSpec, LabState, LabHost, LabBrick)
    for field in fields(kind)
    if get_type_hints(kind)[field.name] in (bytes, tuple[bytes, ...])
)


def write_record(state: LabState) -> None:
    """Write `lab.json` into the lab's directory, atomically and durably. May be called again."""
    write_record_in(state.spec.directory, state)


def write_record_in(directory: bytes, state: LabState) -> None:
    """As `write_record`, into another directory (which is then renamed to the lab's)."""
    content = json.dumps({"format": _FORMAT, **asdict(state)}, indent=1, default=percent_escape).encode("ascii")
    write_durably(Path(os.fsdecode(directory), os.fsdecode(RECORD_NAME)), content)


def read_record(directory: bytes) -> LabState:
    """The lab in a directory. Raises Refused if there is none, or if this version cannot read it."""
    try:
        with open(directory + b"/" + RECORD_NAME, "rb") as file:
            document = json.loads(file.read())
    except (FileNotFoundError, NotADirectoryError):
        raise Refused(
            f"{show(directory)} is no lab",
            cause="it has no lab.json",
            hint="give the directory that `migrator lab up` made",
        ) from None
    except ValueError as error:
        raise _unreadable(directory, error) from error
    try:
        if document.pop("format", None) != _FORMAT:
            raise _unreadable(directory, ValueError("the record has another format"))
        return msgspec.convert(_unescaped(document), LabState, builtin_types=(bytes,))
    except (msgspec.ValidationError, AttributeError) as error:
        raise _unreadable(directory, error) from error


def _unreadable(directory: bytes, error: Exception) -> Refused:
    return Refused(
        f"the record of the lab in {show(directory)} cannot be read: {error}",
        cause="another version of the program made it, or it was edited",
        hint="take it down with the version that made it",
    )


def _unescaped(value: Any, *, is_path: bool = False) -> Any:  # noqa: ANN401 (JSON)
    if isinstance(value, str) and is_path:
        return percent_unescape(value)
    if isinstance(value, dict):
        return {key: _unescaped(inner, is_path=key in _BYTES_FIELDS) for key, inner in value.items()}
    if isinstance(value, list):
        return [_unescaped(inner, is_path=is_path) for inner in value]
    return value
