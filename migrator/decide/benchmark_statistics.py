"""Statistics of repeated measurements: what is told of one series, and whether two of them differ beyond their noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

_T_975 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Student's t for a two-sided interval of 95 %, by degrees of freedom from 1 on (any table of the distribution)."""

_NORMAL_975 = 1.959964
_WIDEST = math.log(20)
"""An interval that goes further than that to either side is told as none."""

TRIMMED_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """What is told of measurements of one thing. `sem` is None for a single one. `trimmed_mean` leaves out 25 % of them, half
    at either end (a whole number at each end, rounded down); None where they are too few for that, below 8.
    """

    values: tuple[float, ...]
    mean: float
    sem: float | None
    median: float
    least: float
    most: float
    trimmed_mean: float | None

    @property
    def count(self) -> int:
        """How many."""
        return len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """How many times as high one series is as another: the geometric mean, with its interval of 95 %.

    `low` and `high` are None where too little was measured to know of noise. `count` is the pairs, or the smaller series.
    """

    factor: float
    low: float | None
    high: float | None
    count: int
    paired: bool

    @property
    def beyond_noise(self) -> bool | None:
        """Whether the interval leaves out 1, which is no difference; None: not known."""
        if self.low is None or self.high is None:
            return None
        return self.low > 1 or self.high < 1


def series(values: Sequence[float]) -> Series:
    """Sums up at least one value. Raises ValueError for none."""
    if not values:
        raise ValueError("nothing was measured")
    ordered = sorted(values)
    count = len(ordered)
    mean = math.fsum(ordered) / count
    out = math.floor(count * TRIMMED_SHARE / 2)
    kept = ordered[out : count - out]
    return Series(
        values=tuple(values),
        mean=mean,
        sem=math.sqrt(_variance(ordered) / count) if count > 1 else None,
        median=(ordered[(count - 1) // 2] + ordered[count // 2]) / 2,
        least=ordered[0],
        most=ordered[-1],
        trimmed_mean=math.fsum(kept) / len(kept) if out else None,
    )


def paired_factor(base: Sequence[float], other: Sequence[float]) -> Factor | None:
    """`other` over `base`, pair by pair: what burdened both of a pair alike does not count. None: there is no ratio.

    Ratios are averaged by their logarithms, so that twice and half weigh the same; the interval is Student's. Pairs that
    measured exactly the same ratio have no noise that could be seen: then there is no interval.
    """
    pairs = list(zip(base, other, strict=False))
    if not pairs or any(not (one > 0 and two > 0) for one, two in pairs):
        return None
    logs = [math.log(two / one) for one, two in pairs]
    return _factor(math.fsum(logs) / len(logs), _paired_half(logs), count=len(logs), paired=True)


def unpaired_factor(base: Sequence[float], other: Sequence[float]) -> Factor | None:
    """`other` over `base`, measured at different times: Welch's interval on the logarithms. None: there is no ratio."""
    if not base or not other or min(*base, *other) <= 0:
        return None
    ones, twos = ([math.log(value) for value in values] for values in (base, other))
    centre = math.fsum(twos) / len(twos) - math.fsum(ones) / len(ones)
    half = None
    if len(ones) > 1 and len(twos) > 1:
        parts = [(_variance(logs) / len(logs), len(logs) - 1) for logs in (ones, twos)]
        error = sum(part for part, _ in parts)
        if error > 0:
            freedom = error**2 / sum(part**2 / degrees for part, degrees in parts)
            half = _t_975(freedom) * math.sqrt(error)
    return _factor(centre, half, count=min(len(ones), len(twos)), paired=False)


def _paired_half(logs: Sequence[float]) -> float | None:
    variance = _variance(logs) if len(logs) > 1 else 0.0
    return _t_975(len(logs) - 1) * math.sqrt(variance / len(logs)) if variance > 0 else None


def _factor(centre: float, half: float | None, *, count: int, paired: bool) -> Factor:
    # Two pairs can give an interval from a thousandth to a thousand, which says as much as none.
    within = half is not None and half < _WIDEST
    return Factor(
        factor=math.exp(centre),
        low=math.exp(centre - half) if half is not None and within else None,
        high=math.exp(centre + half) if half is not None and within else None,
        count=count,
        paired=paired,
    )


def _variance(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _t_975(freedom: float) -> float:
    """Of whole degrees below: wider rather than narrower. Beyond the table by the usual series around the normal one."""
    degrees = max(1, math.floor(freedom))
    if degrees <= len(_T_975):
        return _T_975[degrees - 1]
    z = _NORMAL_975
    return z + (z**3 + z) / (4 * degrees)
