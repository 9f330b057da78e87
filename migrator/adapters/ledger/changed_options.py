"""Options of a volume that are changed for a while, as JSON in a column."""

import json
from collections.abc import Iterable
from dataclasses import asdict

from migrator.domain.drain import ChangedOption


def encode_options(options: Iterable[ChangedOption]) -> str:
    """As text."""
    return json.dumps([asdict(option) for option in options])


def decode_options(text: str | None) -> tuple[ChangedOption, ...] | None:
    """From the text; None where nothing was written down."""
    if text is None:
        return None
    return tuple(
        ChangedOption(name=option["name"], before=option["before"], given=tuple(option["given"]))
        for option in json.loads(text)
    )
