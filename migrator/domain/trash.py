"""The trash of the target: where delta passes put what they take away, for some days."""

import re
from datetime import UTC, datetime

TRASH_NAME = b".migrator-trash"
"""The directory in the target's root. It is root's alone, and no data: nothing scans or compares it."""

STAGED_NAME = b".migrator-staged"
"""In a place of the trash: where renamed paths wait for their new names."""

_FORM = "%Y%m%dT%H%M%SZ"
_PLACE = re.compile(r"([0-9]{8}T[0-9]{6}Z)-[a-z0-9-]{1,100}", re.ASCII)


def trash_place(at_s: float, batch: int, kind: str, number: int) -> str:
    """The place of one pass: `20260314T150926Z-batch-0001-delta-0002`. A pass keeps the place that it began with."""
    return f"{datetime.fromtimestamp(at_s, UTC).strftime(_FORM)}-batch-{batch:04d}-{kind}-{number:04d}"


def place_time_s(place: str) -> float | None:
    """When a place was begun, by its name; None where it is no name of a place."""
    found = _PLACE.fullmatch(place)
    if found is None:
        return None
    try:
        return datetime.strptime(found[1], _FORM).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
