"""The rates of copies: the expected end from the recent rate, and sums by host, brick, engine and size. Pure."""

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from migrator.transfer.model import SizeClass, StreamSum


def rates(before: tuple[float, int, int], now: tuple[float, int, int]) -> tuple[float, float]:
    """Files and bytes per second between two points, each a time in seconds, files and bytes. 0 if no time has passed."""
    over_s = now[0] - before[0]
    if over_s <= 0:
        return 0.0, 0.0
    return max(now[1] - before[1], 0) / over_s, max(now[2] - before[2], 0) / over_s


def seconds_left(files: int, size_bytes: int, *, files_per_s: float, bytes_per_s: float) -> float | None:
    """The remaining time at this rate; None if the rate does not cover the remaining work. The slower of files and
    bytes counts, since files per second bound many small files.
    """
    left = [(one, per_s) for one, per_s in ((files, files_per_s), (size_bytes, bytes_per_s)) if one > 0]
    if any(per_s <= 0 for _, per_s in left):
        return None
    return max((one / per_s for one, per_s in left), default=0.0)


BY: Mapping[str, Callable[[StreamSum], str]] = {
    "size of files": lambda one: one.size_class.value,
    "host": lambda one: one.host,
    "brick": lambda one: one.brick or "the mount",
    "engine": lambda one: one.engine,
}
"""The properties that sums can be grouped by."""


def added_up(sums: Sequence[StreamSum], by: str) -> Sequence[tuple[str, StreamSum]]:
    """The sums for each value of one property; sizes in ascending order, everything else by name."""
    name_of, found = BY[by], dict[str, StreamSum]()
    for one in sums:
        name = name_of(one)
        so_far = found.get(name)
        found[name] = one if so_far is None else _together(so_far, one)
    order = [size_class.value for size_class in SizeClass]
    return sorted(found.items(), key=lambda item: (order.index(item[0]) if item[0] in order else 0, item[0]))


def _together(one: StreamSum, other: StreamSum) -> StreamSum:
    return replace(
        one,
        attempts=one.attempts + other.attempts,
        files=one.files + other.files,
        size_bytes=one.size_bytes + other.size_bytes,
        stream_s=one.stream_s + other.stream_s,
    )
