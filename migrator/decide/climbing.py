"""How many streams throughput rises with, found by trying. Pure.

Throughput with a number of streams is measured for a while, then with another number, and what the streams between the two
brought is held against what they would have brought if each of them did as much as those before. More streams are kept where
that share is large enough, fewer where it is small: so the number comes to rest near the knee of the curve, and not at its
end, where every further stream only makes users wait. What the mean of the samples cannot tell for their noise is measured
for longer; what stays unclear is left as it was.

A unit of work is what a stream does in one second by the measured cost of files and bytes, so that a part of the migration
with small files is not taken for a loss of speed.
"""

from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean, stdev

FIRST_LEVEL = 8
"""So many streams a host gets at once, where its limit is larger; then twice as many as long as that helps."""

KEEP_MORE = 0.3
"""More streams stay where they bring at least this share of what as many streams before brought."""
KEEP_FEWER = 0.15
"""Fewer streams stay where no more than this share was lost. Between the two nothing changes, so that it does not swing."""

_STEP = 4
"""After the doubling: a quarter more or fewer."""
_LONGEST_LOOKS = 3
"""What is unclear is measured for so many times `settle_s` at most."""
_FEWEST_SAMPLES = 3
REST_S = 600.0
"""After a try in both directions that changed nothing: so long nothing is tried; twice as long each time."""
LONGEST_REST_S = 4 * REST_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Work that was done over an interval, while all hosts that had work had as many streams as they may have."""

    interval_s: float
    work: float

    @property
    def rate(self) -> float:
        """Work per second."""
        return self.work / self.interval_s if self.interval_s > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured with a number of streams: the mean rate, and its standard error."""

    level: int
    rate: float
    error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Climb:
    """Where the search stands. `level` is how many streams a host may have by it; `base` what it is tried against."""

    level: int
    flows: tuple[Flow, ...] = ()
    base: Measured | None = None
    up: bool = True
    doubling: bool = True
    fruitless: int = 0
    rest_left_s: float = 0.0

    @property
    def trying(self) -> bool:
        """Whether the level is another one than that which is known to be good."""
        return self.base is not None and self.base.level != self.level


def first_climb(ceiling: int) -> Climb:
    """At the beginning of a run, or when the limit has changed."""
    return Climb(level=max(min(ceiling, FIRST_LEVEL), 1))


def limited(climb: Climb, ceiling: int) -> Climb:
    """The search under a limit that was lowered: what was measured above it says nothing any more."""
    ceiling = max(ceiling, 1)
    return climb if climb.level <= ceiling else Climb(level=ceiling, doubling=False)


def climbed(climb: Climb, flow: Flow, *, ceiling: int, settle_s: float) -> Climb:
    """The search after one more sample, taken at its level. The level is never beyond the ceiling, and never below 1."""
    climb = limited(climb, ceiling)
    if climb.rest_left_s > 0:
        return replace(climb, rest_left_s=max(climb.rest_left_s - flow.interval_s, 0.0))
    climb = replace(climb, flows=(*climb.flows, flow))
    measured_s = sum(one.interval_s for one in climb.flows)
    if measured_s < settle_s or len(climb.flows) < _FEWEST_SAMPLES:
        return climb
    found = _measured(climb)
    if climb.base is None or climb.base.level == climb.level:
        return _try_another(replace(climb, base=found, flows=()), ceiling)
    return _judge(climb, found, climb.base, ceiling, last=measured_s >= _LONGEST_LOOKS * settle_s)


def _judge(climb: Climb, found: Measured, base: Measured, ceiling: int, *, last: bool) -> Climb:
    if base.rate <= 0:
        return _back(climb, base) if climb.level > base.level else replace(climb, base=found, flows=())
    share = (found.rate / base.rate - 1) / (found.level / base.level - 1)
    error = abs(_ratio_error(found, base) / (found.level / base.level - 1))
    more = climb.level > base.level
    border = KEEP_MORE if more else KEEP_FEWER
    if abs(share - border) < error and not last:
        return climb
    # What is unclear to the end is left as it was.
    kept = share - error >= border if more else share + error <= border
    if not last:
        kept = share >= border if more else share <= border
    if kept:
        return _try_another(replace(climb, base=found, flows=(), fruitless=0), ceiling)
    return _back(climb, base)


def _back(climb: Climb, base: Measured) -> Climb:
    """To the number before; the next try goes the other way, after two in vain only after a rest."""
    fruitless = climb.fruitless + 1
    rest_s = min(REST_S * 2.0 ** (fruitless // 2 - 1), LONGEST_REST_S) if fruitless % 2 == 0 else 0.0
    return Climb(level=base.level, up=not climb.up, doubling=False, fruitless=fruitless, rest_left_s=rest_s)


def _try_another(climb: Climb, ceiling: int) -> Climb:
    """One step in its direction; where there is none, in the other; where there is none either, the same is measured anew."""
    level = climb.level
    more = min(2 * level if climb.doubling else level + max(level // _STEP, 1), ceiling)
    fewer = max(level - max(level // _STEP, 1), 1)
    if climb.up and more > level:
        return replace(climb, level=more)
    if fewer < level:
        return replace(climb, level=fewer, up=False, doubling=False)
    if more > level:
        return replace(climb, level=more, up=True)
    return replace(climb, rest_left_s=REST_S, base=None)


def _measured(climb: Climb) -> Measured:
    rates = [flow.rate for flow in climb.flows]
    error = stdev(rates) / sqrt(len(rates))
    return Measured(level=climb.level, rate=fmean(rates), error=error)


def _ratio_error(one: Measured, other: Measured) -> float:
    """The standard error of the ratio of two rates."""
    if one.rate <= 0 or other.rate <= 0:
        return 0.0
    return one.rate / other.rate * sqrt((one.error / one.rate) ** 2 + (other.error / other.rate) ** 2)
