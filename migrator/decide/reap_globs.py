"""Globs over the paths of a user tree, by bytes: for what is left out of reaping, and what is released. Pure.

A glob without a slash is a name, wherever it stands below the tree; one with a slash is a path from the top of the tree.
Either matches a path itself, and everything below a directory that it matches. `*`, `?` and `[...]` match bytes within
one name, also a dot at its beginning: to leave out more is safe.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

ANY = None
"""The token of `*`: any bytes of one name."""

Token = frozenset[int] | None

_SLASH = ord("/")
_NAME_BYTES = frozenset(range(256)) - {_SLASH}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReapGlob:
    """One glob, by component: each a sequence of tokens, which are sets of bytes or `ANY`."""

    components: tuple[tuple[Token, ...], ...]

    @property
    def anywhere(self) -> bool:
        """Whether it is a name and not a path."""
        return len(self.components) == 1


def parse_glob(text: bytes) -> ReapGlob:
    """A glob without a leading slash, `.` and `..`."""
    return ReapGlob(components=tuple(_tokens(component) for component in text.rstrip(b"/").split(b"/")))


def parse_globs(texts: Iterable[str]) -> tuple[ReapGlob, ...]:
    """Globs as site.toml has them."""
    return tuple(parse_glob(text.encode("utf-8", "surrogateescape")) for text in texts)


class GlobMatcher:
    """Asks several globs at once."""

    def __init__(self, globs: Sequence[ReapGlob]) -> None:
        alternatives = b"|".join(b"(?:.*/)?" * glob.anywhere + _pattern(glob) for glob in globs)
        self._pattern = re.compile(b"(?:" + alternatives + b")(?:/|\\Z)", re.DOTALL) if globs else None

    def matches(self, path: bytes) -> bool:
        """Whether one of them matches a path, which is relative to the top of its tree."""
        return self._pattern is not None and self._pattern.match(path) is not None


def _tokens(component: bytes) -> tuple[Token, ...]:
    found: list[Token] = []
    place = 0
    while place < len(component):
        end = place + 1
        match component[place : place + 1]:
            case b"*":
                found.append(ANY)
            case b"?":
                found.append(_NAME_BYTES)
            case b"[" if (close := _class_end(component, place)) is not None:
                end = close + 1
                chosen = component[place:end]
                found.append(frozenset(byte for byte in _NAME_BYTES if fnmatchcase(bytes((byte,)), chosen)))
            case plain:
                found.append(frozenset(plain))
        place = end
    return tuple(found)


def _class_end(component: bytes, place: int) -> int | None:
    """Where a class that begins here is closed; as in fnmatch, a bracket right behind its beginning belongs to it."""
    start = place + 1
    if component[start : start + 1] == b"!":
        start += 1
    if component[start : start + 1] == b"]":
        start += 1
    close = component.find(b"]", start)
    return None if close < 0 else close


def _pattern(glob: ReapGlob) -> bytes:
    return b"/".join(b"".join(map(_token_pattern, component)) for component in glob.components)


def _token_pattern(token: Token) -> bytes:
    if token is ANY:
        return b"[^/]*"
    if not token:
        return b"(?!)"
    return b"[" + b"".join(re.escape(bytes((byte,))) for byte in sorted(token)) + b"]"
