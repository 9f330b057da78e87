"""Windows of time in which something may be done, by weekday and time of day on this machine."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """On `days` (0 is Monday) from `start_minute` of the day on; an end that is not after the start lies on the next day.

    `jobs` is how many streams may be at work on each host meanwhile, `bwlimit_bytes_per_s` how much all streams together may
    move; None: what holds otherwise.
    """

    days: tuple[int, ...]
    start_minute: int
    end_minute: int
    jobs: int | None = None
    bwlimit_bytes_per_s: int | None = None
