"""The governor's search for a number of streams, against fixed numbers: simulated hours on systems of six kinds."""

import random
import statistics
from collections.abc import Callable, Mapping

from bench.options import Options
from bench.results import Section
from migrator.transfer.rules_governor import Flow, climbed, first_climb

NAME = "governor"
MOST, FIXED, HOURS = 32, (4, 8, 16, 32), (1, 8)
_ROUNDS = 20
_SAMPLE_S, _SETTLE_S, _NOISE = 10.0, 60.0, 0.15

RateOf = Callable[[int], float]

SYSTEMS: Mapping[str, RateOf] = {
    "grows to 4 streams, then flat": lambda streams: min(streams, 4) / 4,
    "grows to 16, then flat": lambda streams: min(streams, 16) / 16,
    "grows beyond the limit": lambda streams: streams / 64,
    "grows to 4, half of it at 32": lambda streams: min(streams / 4, 1 - 0.5 * (streams - 4) / 28),
    "grows to 12, 30 % less at 32": lambda streams: min(streams / 12, 1 - 0.3 * (streams - 12) / 20),
    "disks that seek beyond 8": lambda streams: min(streams / 8, (8 / streams) ** 0.7),
}
"""Relative rates by the number of streams."""


def governor(options: Options) -> Section:
    generator = random.Random(options.seed)
    return Section(
        name=NAME,
        title="Streams: measured or fixed",
        facts={name: _shares(rate, generator) for name, rate in SYSTEMS.items()},
        tables=(),
        notes=(
            f"Share of the rate that the best number of streams up to {MOST} gives. The search runs {_ROUNDS} times on samples "
            f"of {_SAMPLE_S:.0f} s with {_NOISE * 100:.0f} % of noise; its mean counts the time of its tries.",
        ),
    )


def _shares(rate: RateOf, generator: random.Random) -> str:
    best = max(rate(streams) for streams in range(1, MOST + 1))
    searched = ", ".join(
        f"{statistics.mean(_searched(rate, hours, generator) for _ in range(_ROUNDS)) / best:.2f} in {hours} h"
        for hours in HOURS
    )
    fixed = ", ".join(f"{rate(streams) / best:.2f} with {streams}" for streams in FIXED)
    return f"search {searched}; fixed {fixed}"


def _searched(rate: RateOf, hours: int, generator: random.Random) -> float:
    """The mean rate of a search that begins anew."""
    climb, samples = first_climb(MOST), round(hours * 3600 / _SAMPLE_S)
    work = 0.0
    for _ in range(samples):
        done = _SAMPLE_S * rate(climb.level) * max(generator.gauss(1, _NOISE), 0.0)
        work += done
        climb = climbed(climb, Flow(interval_s=_SAMPLE_S, work=done), ceiling=MOST, settle_s=_SETTLE_S)
    return work / (samples * _SAMPLE_S)
