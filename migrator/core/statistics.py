"""Repeated measurements: the median of a series with its range, and how many times as high one series is as another. Pure.

Everything goes by ranks, so no distribution is assumed and one outlier cannot decide. Intervals hold in at least nine of ten cases.
"""

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import comb
from statistics import median

_MISSED = 0.1
"""How often an interval may miss."""
_PAIRS, _SIDES = 20, 8
"""One in so many medians may lie below its interval: that of pairs (a tenth lies outside at either end together), and those of two
independent series, whose intervals then lie apart by chance in less than a tenth (simulated for 3 to 40 runs).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Measurements of one thing, in their order."""

    values: tuple[float, ...]
    median: float
    least: float
    most: float

    @property
    def count(self) -> int:
        """How many."""
        return len(self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """How many times as high one series is as another. `count` is the pairs, or the smaller series. `low` and `high` are None where
    too little was measured to know of noise: fewer than 5 pairs, or two series of fewer than 3 values.
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
    """Of at least one value. Raises ValueError for none."""
    if not values:
        raise ValueError("nothing was measured")
    return Series(values=tuple(values), median=median(values), least=min(values), most=max(values))


def paired_factor(base: Sequence[float], other: Sequence[float]) -> Factor | None:
    """The median of `other` over `base`, pair by pair: what burdened both of a pair alike cancels. None: there is no ratio.

    The interval goes from one of these ratios to another: of 5 to 7 pairs from the least to the highest.
    """
    if not base or not other or min(*base, *other) <= 0:
        return None
    ratios = [two / one for one, two in zip(base, other, strict=True)]
    known = 2 / 2 ** len(ratios) <= _MISSED
    low, high = _middle(ratios, _PAIRS)
    return Factor(
        factor=median(ratios),
        low=low if known else None,
        high=high if known else None,
        count=len(ratios),
        paired=True,
    )


def unpaired_factor(base: Sequence[float], other: Sequence[float]) -> Factor | None:
    """The median of `other` over that of `base`, measured at different times. None: there is no ratio.

    Its interval leaves out 1 where the ranges of the two (of 6 values or more: without the outermost) lie apart.
    """
    if not base or not other or min(*base, *other) <= 0:
        return None
    known = 2 / comb(len(base) + len(other), len(base)) <= _MISSED
    (least, most), (low, high) = _middle(base, _SIDES), _middle(other, _SIDES)
    return Factor(
        factor=median(other) / median(base),
        low=low / most if known else None,
        high=high / least if known else None,
        count=min(len(base), len(other)),
        paired=False,
    )


def _middle(values: Sequence[float], one_in: int) -> tuple[float, float]:
    """The values between which the median lies: as many are left out at either end as one in so many medians allows, if any."""
    ordered, count = sorted(values), len(values)
    chances = accumulate(comb(count, below) for below in range(count // 2))
    out = max(0, bisect(list(chances), 2**count // one_in) - 1)
    return ordered[out], ordered[count - 1 - out]
