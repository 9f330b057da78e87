"""The age buckets of the ranking."""

from migrator.domain.units import DAY_S, YEAR_S

AGE_BOUNDS: tuple[tuple[str, int | None], ...] = (
    ("in the future", 0),
    ("< 30 days", 30 * DAY_S),
    ("< 90 days", 90 * DAY_S),
    ("< 180 days", 180 * DAY_S),
    ("< 1 year", YEAR_S),
    ("< 2 years", 2 * YEAR_S),
    ("< 5 years", 5 * YEAR_S),
    ("older", None),
)
"""Label and upper bound of every bucket, the youngest first. A file belongs to the first whose bound is above its age."""
