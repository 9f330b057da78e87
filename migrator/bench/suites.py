"""The field's suites as lists of steps. Pure."""

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

from migrator.bench.model import FigureUnit, PlaceRoom, Reference, Step, Suite, SuiteName
from migrator.core.units import format_count, format_size

_NEED_MARGIN = 1.5
"""Sizes of trees are random, and file systems need more than the content."""
_KEPT_FREE_SHARE = 0.1
"""The share of the free space that is left to users, who continue to write."""
_INODE_BYTES = 4096
"""The most that an entry needs in addition to its content."""


def suite(name: SuiteName, scale: float) -> Suite:
    """A suite at a scale; at 1 its counts and sizes are the published ones. Raises ValueError for a scale not above
    0.
    """
    if not scale > 0:
        raise ValueError("a scale is above 0")
    planned = _data()["suites"][name]
    amounts = {word: max(least, round(full * scale)) for word, (full, least) in planned["amounts"].items()}
    shown = {
        word: format_size(amount) if word.endswith("_bytes") else format_count(amount)
        for word, amount in amounts.items()
    }
    return Suite(
        name=name,
        title=planned["title"],
        scale=scale,
        sizes=planned["sizes"].format(**shown),
        steps=tuple(_step(one, amounts, shown) for one in planned["steps"]),
        need_bytes=amounts["need_bytes"] + _INODE_BYTES * amounts["need_inodes"],
        need_inodes=amounts["need_inodes"],
    )


def publications() -> Mapping[str, Mapping[str, str]]:
    """The publications whose figures are shown, by their letters: `title` (who measured, and when) and `setting`."""
    found: Mapping[str, Mapping[str, str]] = _data()["publications"]
    return found


def room_problems(room: PlaceRoom, *, inodes_free: int | None, accept_unknown_inodes: bool) -> tuple[str, ...]:
    """Why a benchmark must not start, as sentences. `inodes_free` counts if the file system does not report inodes."""
    problems = []
    usable_bytes = room.free_bytes * (1 - _KEPT_FREE_SHARE)
    if room.need_bytes * _NEED_MARGIN > usable_bytes:
        problems.append(
            f"{room.place.shown} has {format_size(room.free_bytes)} free: a tenth of that is kept free, and "
            f"{format_size(room.need_bytes * _NEED_MARGIN)} are needed, with a margin of a half"
        )
    free_inodes = room.free_inodes if room.free_inodes is not None else inodes_free
    if free_inodes is None:
        if not accept_unknown_inodes:
            problems.append(
                f"{room.place.shown} does not report how many files it can hold: {format_count(room.need_inodes)} are created"
            )
    elif room.need_inodes * _NEED_MARGIN > free_inodes * (1 - _KEPT_FREE_SHARE):
        problems.append(
            f"{room.place.shown} can take {format_count(free_inodes)} more files: a tenth of that is kept, and "
            f"{format_count(round(room.need_inodes * _NEED_MARGIN))} are needed, with a margin of a half"
        )
    return tuple(problems)


@cache
def _data() -> Mapping[str, Any]:
    return tomllib.loads(resources.files(__package__).joinpath("suites.toml").read_text(encoding="utf-8"))


def _step(one: Mapping[str, Any], amounts: Mapping[str, int], shown: Mapping[str, str]) -> Step:
    words = one["run"].split()
    moved, bytes_each = one.get("moves", (None, 0))
    return Step(
        name=one.get("name", ""),
        title=one.get("title", "prepare").format(**shown),
        lanes=tuple(tuple(word.format(**amounts, lane=lane) for word in words) for lane in range(one.get("lanes", 1))),
        unit=FigureUnit(one["unit"]) if "unit" in one else None,
        size_bytes=amounts[moved] * bytes_each if moved else 0,
        synced=one.get("synced", False),
        programs=tuple(one.get("programs", () if words[0].startswith("@") else words[:1])),
        warm=tuple(one.get("warm", "").split()),
        fio=one.get("fio", False),
        published=tuple(
            Reference(publication=each["by"], work=each["work"], figures=each["figures"], hosts=each.get("hosts", 1))
            for each in one.get("published", ())
        ),
    )
