"""What a key of site.toml is: its name, its form, its default and what it is for."""

from dataclasses import dataclass
from enum import StrEnum


class Form(StrEnum):
    """What a value looks like."""

    TEXT = "text"
    NAME = "name"
    PATH = "path"
    BELOW = "relative path"
    CHOICE = "one of"
    SIZE = "size"
    RATE = "rate"
    GROWTH = "growth"
    DURATION = "duration"
    SECONDS = "whole duration"
    FLAG = "true or false"
    COUNT = "count"
    NUMBER = "number"
    SHARE = "share"
    TEXTS = "list of texts"
    GLOBS = "list of globs"
    WINDOWS = "list of windows"
    LIMITED_WINDOWS = "list of windows with limits"


FORM_MEANINGS: dict[Form, str] = {
    Form.TEXT: "text in quotes",
    Form.NAME: "letters, digits, `.`, `_` and `-`",
    Form.PATH: "a path; a relative one is relative to site.toml",
    Form.BELOW: "a path below the mount, without `..`",
    Form.CHOICE: "one of the words listed",
    Form.SIZE: 'bytes: `"10GiB"`, `"10GB"` (decimal), `"10G"` (binary), `4096`',
    Form.RATE: 'bytes per second: `"200MiB"`, `"200MiB/s"`',
    Form.GROWTH: 'bytes over time: `"500GiB/d"`, `"2TiB/w"`',
    Form.DURATION: '`"20ms"`, `"30s"`, `"10min"`, `"4h"`, `"90d"`, `"2w"`, `"1y"`',
    Form.SECONDS: '`"30s"`, `"10min"`, `"4h"`, `"90d"`, `"2w"`, `"1y"`; whole seconds',
    Form.FLAG: "`true` or `false`, without quotes",
    Form.COUNT: "a whole number",
    Form.NUMBER: "a number",
    Form.SHARE: '`0.05` or `"5%"`',
    Form.TEXTS: "a list of texts",
    Form.GLOBS: 'a list of globs below the source\'s mount, in `[reap]` below a user tree: `["home/*", "projects/*"]`',
    Form.WINDOWS: 'a list of `"DAYS HH:MM-HH:MM"`, as in `["Mon-Fri 19:00-07:00", "Sat,Sun 00:00-24:00"]`',
    Form.LIMITED_WINDOWS: 'the same, or tables with limits of their own: `{ when = "Mon-Fri 07:00-19:00", jobs = 2, '
    'bwlimit = "50MiB/s" }`, also written as `[[transfer.windows]]`',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key. `field` is the name in the section's dataclass; `default` is written as in TOML, empty where there is
    none; `minimum` and `maximum` hold for the parsed value.
    """

    name: str
    form: Form
    description: str
    default: str = ""
    field: str = ""
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    sample: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section. `per_name` sections are tables of tables: `[source.hosts."gl1"]`."""

    name: str
    description: str
    keys: tuple[Key, ...]
    required: bool = False
    per_name: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """The dotted name in parts."""
        return tuple(self.name.split("."))
