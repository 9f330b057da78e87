"""When a copy will be done, from what is left and how fast it went of late."""

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.domain.units import format_duration, format_rate


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """How much had been done at one moment (monotonic seconds)."""

    at_s: float
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Seconds left, None where nothing supports a figure, and what the figure rests on, in words."""

    left_s: float | None
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How fast it goes over a span of time."""

    files_per_s: float
    bytes_per_s: float
    over_s: float


def rate_over(points: Sequence[Point], window_s: float) -> Rate | None:
    """The rate between the newest point and the oldest within the window; None below two points or without time."""
    if len(points) < 2:
        return None
    last = points[-1]
    first = next(point for point in points if last.at_s - point.at_s <= window_s)
    over_s = last.at_s - first.at_s
    if over_s <= 0:
        return None
    return Rate(
        files_per_s=max(last.files - first.files, 0) / over_s,
        bytes_per_s=max(last.size_bytes - first.size_bytes, 0) / over_s,
        over_s=over_s,
    )


def estimate(*, left_files: int, left_bytes: int, recent: Rate | None, whole: Rate | None) -> Estimate:
    """Seconds left: the slower of files and bytes counts, since many small files are bound by files per second.

    The rate of late is used where it moves what is left, the rate of the whole run otherwise.
    """
    if left_files <= 0 and left_bytes <= 0:
        return Estimate(left_s=0.0, basis="nothing is left")
    for rate, words in ((recent, "the last"), (whole, "the whole run,")):
        if rate is None:
            continue
        left_s = _left_s(left_files, left_bytes, rate)
        if left_s is not None:
            span = format_duration(rate.over_s)
            speed = f"{format_rate(rate.bytes_per_s)} and {rate.files_per_s:.0f} files/s"
            return Estimate(left_s=left_s, basis=f"{words} {span}: {speed}; the slower of the two counts")
    return Estimate(left_s=None, basis="nothing has been copied yet")


def _left_s(left_files: int, left_bytes: int, rate: Rate) -> float | None:
    needed: list[float] = []
    for left, per_s in ((left_files, rate.files_per_s), (left_bytes, rate.bytes_per_s)):
        if left <= 0:
            continue
        if per_s <= 0:
            return None
        needed.append(left / per_s)
    return max(needed)
