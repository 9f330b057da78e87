"""Dividing the list of a chunk, with link groups whole."""

from collections.abc import Collection, Sequence

from migrator.domain.plan import ListedPath

Paths = tuple[ListedPath, ...]


def units(paths: Sequence[ListedPath]) -> tuple[Paths, ...]:
    """What cannot be divided: single paths, and the names of one link group; in order of their first path."""
    found: dict[object, list[ListedPath]] = {}
    for listed in paths:
        key: object = listed.path if listed.link_group is None else listed.link_group
        found.setdefault(key, []).append(listed)
    return tuple(tuple(unit) for unit in found.values())


def divisible(paths: Sequence[ListedPath]) -> bool:
    """Whether the list holds more than one unit."""
    return len(units(paths)) > 1


def halves(paths: Sequence[ListedPath]) -> tuple[Paths, Paths]:
    """Two lists with about half of the paths each, none of them empty. Raises ValueError where there is one unit."""
    whole = units(paths)
    if len(whole) < 2:
        raise ValueError("a single unit cannot be split")
    first: list[ListedPath] = []
    index = 0
    while index < len(whole) - 1 and (index == 0 or len(first) + len(whole[index]) <= len(paths) // 2):
        first.extend(whole[index])
        index += 1
    return tuple(first), tuple(listed for unit in whole[index:] for listed in unit)


def set_apart(paths: Sequence[ListedPath], chosen: Collection[bytes]) -> tuple[Paths, Paths]:
    """The rest, and the chosen paths with the other names of their link groups; either may be empty."""
    if not chosen:
        return tuple(paths), ()
    rest: list[ListedPath] = []
    apart: list[ListedPath] = []
    for unit in units(paths):
        (apart if any(listed.path in chosen for listed in unit) else rest).extend(unit)
    return tuple(rest), tuple(apart)


def total_bytes(paths: Sequence[ListedPath]) -> int:
    """Bytes of a list (which counts a link group once: its further names have 0)."""
    return sum(listed.size_bytes for listed in paths)
