"""How many names per second a purge removes, by what users feel. Pure.

The rule is the one that takes streams away from a run: in the place of streams there are names per second.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from migrator.decide.braking import Brake, braked
from migrator.domain.probe import ProbeSide


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalRate:
    """What the probes so far have made of it."""

    latencies: Mapping[ProbeSide, Brake] = field(default_factory=dict)


def after_probe(
    rate: RemovalRate, side: ProbeSide, latency_s: float, *, limit_s: float, removing: float, ceiling: int
) -> RemovalRate:
    """After one more probe that says something; `removing` is how many names per second go now, however many may."""
    now = max(min(names_per_s(rate, ceiling), int(removing)), 1)
    brake = braked(rate.latencies.get(side, Brake()), latency_s, limit=limit_s, streams=now, ceiling=ceiling)
    return replace(rate, latencies={**rate.latencies, side: brake})


def names_per_s(rate: RemovalRate, ceiling: int) -> int:
    """How many may go; never more than `ceiling`, never less than 1."""
    caps = [brake.cap for brake in rate.latencies.values() if brake.cap is not None]
    return max(min((ceiling, *caps)), 1)
