"""Whether a file system has room for a benchmark."""

from migrator.domain.benchmark_run import PlaceRoom
from migrator.domain.units import format_count, format_size

_NEED_MARGIN = 1.5
"""Sizes of trees are drawn, and file systems take more than the content."""

_KEPT_FREE_SHARE = 0.1
"""So much of what is free is left to the users, who go on writing meanwhile."""


def room_problems(room: PlaceRoom, *, inodes_free: int | None, accept_unknown_inodes: bool) -> tuple[str, ...]:
    """Why a benchmark must not begin, as sentences. `inodes_free` counts where the file system does not tell."""
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
                f"{room.place.shown} does not tell how many files it can take: {format_count(room.need_inodes)} are made"
            )
    elif room.need_inodes * _NEED_MARGIN > free_inodes * (1 - _KEPT_FREE_SHARE):
        problems.append(
            f"{room.place.shown} can take {format_count(free_inodes)} more files: a tenth of that is kept, and "
            f"{format_count(round(room.need_inodes * _NEED_MARGIN))} are needed, with a margin of a half"
        )
    return tuple(problems)
