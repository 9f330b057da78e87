"""One value of site.toml: from what TOML gave to what the program works with."""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar, assert_never

from migrator.config.keys import Form, Key
from migrator.config.quantities import parse_duration, parse_growth, parse_rate, parse_share, parse_size
from migrator.config.windows import parse_window
from migrator.domain.errors import UsageError
from migrator.domain.windows import Window

Item = TypeVar("Item")
Value = str | int | float | Path | tuple[str, ...] | tuple[Window, ...] | None

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_MOST_JOBS = 1024
_TOML_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (str, "a text"),
    (int, "a whole number"),
    (float, "a number"),
    (list, "a list"),
    (dict, "a table"),
)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant."""
    choices = {choice.lower(): choice for choice in known}
    near = get_close_matches(word.lower(), choices, n=1, cutoff=0.6)
    return choices[near[0]] if near else None


def read_value(key: Key, given: object, directory: Path) -> Value:
    """The value of a key as the sections of a site hold it. `directory` is where site.toml lies.

    Raises UsageError with one sentence that says what is wrong with the value.
    """
    value = _of_form(key, given, directory)
    if isinstance(value, int | float):
        if key.minimum is not None and value < key.minimum:
            raise UsageError(f"{given} is too small: the least is {_plain(key.minimum)}")
        if key.maximum is not None and value > key.maximum:
            raise UsageError(f"{given} is too large: the most is {_plain(key.maximum)}")
    return value


def _of_form(key: Key, given: object, directory: Path) -> Value:
    match key.form:
        case Form.TEXT:
            return _text(given)
        case Form.NAME:
            return _name(given)
        case Form.PATH:
            return directory / _path(given)
        case Form.BELOW:
            return _below(given)
        case Form.CHOICE:
            return _choice(key, given)
        case Form.SIZE:
            return _quantity(given, parse_size, "10GiB")
        case Form.RATE:
            return _quantity(given, parse_rate, "200MiB/s")
        case Form.GROWTH:
            return _quantity(given, parse_growth, "500GiB/d")
        case Form.DURATION:
            return _duration(given)
        case Form.SECONDS:
            return _whole_seconds(given)
        case Form.FLAG:
            return _flag(given)
        case Form.COUNT:
            return _count(given)
        case Form.NUMBER:
            return _number(given)
        case Form.SHARE:
            return _share(given)
        case Form.TEXTS:
            return tuple(_items(given, _text))
        case Form.GLOBS:
            return _globs(key, given)
        case Form.WINDOWS:
            return tuple(_items(given, lambda item: parse_window(_text(item))))
        case Form.LIMITED_WINDOWS:
            return tuple(_items(given, _limited_window))
        case _ as never:
            assert_never(never)


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _kind(given: object) -> str:
    for kind, words in _TOML_TYPES:
        if isinstance(given, kind):
            return words
    return "a date or time"


def _wrong_type(given: object, wanted: str) -> UsageError:
    return UsageError(f"needs {wanted}, not {_kind(given)}")


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise _wrong_type(given, "a text in quotes")
    if not given or "\0" in given:
        raise UsageError("must not be empty" if not given else "must not hold a NUL")
    return given


def _name(given: object) -> str:
    text = _text(given)
    if not _NAME.fullmatch(text):
        raise UsageError(f'"{text}" is no name: letters, digits, ".", "_" and "-", the first a letter or digit')
    return text


def _path(given: object) -> Path:
    return Path(_text(given))


def _below(given: object) -> str:
    if given == "":
        return ""
    text = _text(given)
    parts = text.rstrip("/").split("/")
    if text.startswith("/"):
        raise UsageError(f'"{text}" begins with "/": it is relative to the mount')
    if any(part in ("", ".", "..") for part in parts):
        raise UsageError(f'"{text}" holds an empty part, "." or "..": it must lead straight down')
    return "/".join(parts)


def _choice(key: Key, given: object) -> str:
    text = _text(given)
    if text not in key.choices:
        near = nearest(text, key.choices)
        meant = f'; did you mean "{near}"?' if near else ""
        valid = ", ".join(f'"{choice}"' for choice in key.choices)
        raise UsageError(f'"{text}" is no choice; valid: {valid}{meant}')
    return text


def _quantity(given: object, parse: Callable[[str | int], int], example: str) -> int:
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise _wrong_type(given, f'a number of bytes or a text like "{example}"')
    return parse(given)


def _duration(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, str):
        raise _wrong_type(given, 'a text like "10min" or "90d"')
    return parse_duration(given)


def _whole_seconds(given: object) -> int:
    seconds = _duration(given)
    if seconds != int(seconds):
        raise UsageError(f'"{given}" is no whole number of seconds')
    return int(seconds)


def _flag(given: object) -> bool:
    if not isinstance(given, bool):
        raise _wrong_type(given, "true or false, without quotes")
    return given


def _count(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise _wrong_type(given, "a whole number")
    return given


def _number(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise _wrong_type(given, "a number")
    if not math.isfinite(given):
        # A limit that is compared with it would never be passed.
        raise UsageError(f"{given} is no number that anything can be compared with")
    return float(given)


def _share(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, str | int | float):
        raise _wrong_type(given, 'a share like 0.05 or "5%"')
    return parse_share(given)


def _items(given: object, read: Callable[[object], Item]) -> Iterator[Item]:
    if not isinstance(given, list):
        raise _wrong_type(given, "a list in brackets")
    return (read(item) for item in given)


def _globs(key: Key, given: object) -> tuple[str, ...]:
    globs = tuple(_items(given, _glob))
    if key.required and not globs:
        raise UsageError('needs at least one glob, as in ["home/*"]')
    return globs


def _limited_window(given: object) -> Window:
    """A window as a text, or as a table that also has limits."""
    if not isinstance(given, dict):
        return parse_window(_text(given))
    known = ("when", "jobs", "bwlimit")
    for name in given:
        if name not in known:
            near = nearest(str(name), known)
            raise UsageError(f"unknown key {name} in a window" + (f"; did you mean {near}?" if near else ""))
    if "when" not in given:
        raise UsageError('a window needs `when`, as in when = "Mon-Fri 19:00-07:00"')
    window = parse_window(_text(given["when"]))
    jobs = _count(given["jobs"]) if "jobs" in given else None
    bwlimit = _quantity(given["bwlimit"], parse_rate, "200MiB/s") if "bwlimit" in given else None
    if jobs is not None and not 1 <= jobs <= _MOST_JOBS:
        raise UsageError(f"jobs of a window: {jobs} is not from 1 to {_MOST_JOBS}")
    if bwlimit is not None and bwlimit < 1:
        raise UsageError("bwlimit of a window: the least is 1 byte per second")
    return replace(window, jobs=jobs, bwlimit_bytes_per_s=bwlimit)


def _glob(given: object) -> str:
    return _below(_text(given))
