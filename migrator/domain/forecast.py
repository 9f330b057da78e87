"""When the copying of a plan will be done, with a range, and what that rests on. Times in seconds since the epoch."""

from dataclasses import dataclass

from migrator.domain.units import DAY_S

RANGE_SHARE = 0.8
"""How often the true end shall lie in the range: as many ends are before it as after it."""

FARTHEST_S = 100 * 365 * DAY_S
"""No forecast goes further: what would take longer ends then in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSlot:
    """What was copied of a plan in one span of time, of which `seen_s` were lived through: the first one begins with the
    first stream, the last one ends now. Spans in which nothing was copied are slots too.
    """

    at_s: float
    seen_s: float
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConePoint:
    """Bytes that are left at one time: as likely as not, and the least and the most of the range."""

    at_s: float
    left_bytes: float
    least_bytes: float
    most_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyForecast:
    """When everything that is planned will have been copied once. `likely_at_s` is as likely too early as too late; with the
    probability `share` the end lies between `earliest_at_s` and `latest_at_s`. `by_day` says whether day and night were told
    apart, `by_weekday` whether weekends were. `history_s` is how long the history is. `basis` are sentences on how it was computed.
    """

    made_at_s: float
    likely_at_s: float
    earliest_at_s: float
    latest_at_s: float
    share: float
    history_s: float
    by_day: bool
    by_weekday: bool
    basis: tuple[str, ...]
    cone: tuple[ConePoint, ...]
