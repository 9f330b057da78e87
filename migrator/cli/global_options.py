"""The options before the verb: the site file, and the form of the output."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FILE_WIDTH = 132


@dataclass(slots=True)
class GlobalOptions:
    """`site_file` is site.toml; with `as_json` standard output is one JSON document."""

    site_file: Path
    as_json: bool = False

    @property
    def width(self) -> int | None:
        """The width of standard output: COLUMNS, or that of the terminal (None), or wide enough for uncut tables."""
        return output_width(os.environ, is_terminal=sys.stdout.isatty())


def output_width(environment: Mapping[str, str], *, is_terminal: bool) -> int | None:
    """The width of the output in characters; None for that of the terminal."""
    columns = environment.get("COLUMNS", "")
    if columns.isascii() and columns.isdigit() and int(columns) > 0:
        return int(columns)
    return None if is_terminal else _FILE_WIDTH
