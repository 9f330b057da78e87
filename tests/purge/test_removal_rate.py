"""How many names per second a purge removes, by what probes tell."""

from collections.abc import Iterable

import pytest

from migrator.core.probe import OVER_PROBES, UNDER_PROBES, ProbeSide
from migrator.purge.rules import RemovalRate, after_probe, names_per_s
from migrator.transfer.rules_governor import KEPT_SHARE

LIMIT_S, CEILING = 0.05, 1000
SLOW, FINE, BETWEEN = 0.2, 0.01, 0.045


def after(
    latencies: Iterable[float],
    rate: RemovalRate | None = None,
    *,
    side: ProbeSide = ProbeSide.SOURCE,
    removing: float = CEILING,
) -> RemovalRate:
    found = rate or RemovalRate()
    for latency_s in latencies:
        found = after_probe(found, side, latency_s, limit_s=LIMIT_S, removing=removing, ceiling=CEILING)
    return found


def test_without_probes_all_that_may_go_goes() -> None:
    assert names_per_s(RemovalRate(), CEILING) == CEILING


@pytest.mark.parametrize("side", ProbeSide)
def test_it_gives_way_after_as_many_slow_probes_as_a_run_does(side: ProbeSide) -> None:
    assert names_per_s(after([SLOW] * (OVER_PROBES - 1), side=side), CEILING) == CEILING
    assert names_per_s(after([SLOW] * OVER_PROBES, side=side), CEILING) == int(CEILING * KEPT_SHARE)


def test_it_gives_way_from_what_really_goes_however_much_may() -> None:
    slowed = after([SLOW] * OVER_PROBES, removing=200.0)
    assert names_per_s(slowed, CEILING) == int(200 * KEPT_SHARE)


def test_it_never_stops_and_comes_back_when_users_feel_it_no_more() -> None:
    slowest = after([SLOW] * OVER_PROBES * 40)
    assert names_per_s(slowest, CEILING) == 1
    assert names_per_s(after([BETWEEN] * 50, slowest), CEILING) == 1
    assert names_per_s(after([FINE] * (UNDER_PROBES - 1), slowest), CEILING) == 1
    assert names_per_s(after([FINE] * UNDER_PROBES, slowest), CEILING) == 2
    assert names_per_s(after([FINE] * UNDER_PROBES * 60, slowest), CEILING) == CEILING


def test_the_slower_side_counts() -> None:
    source = after([SLOW] * OVER_PROBES)
    both = after([SLOW] * OVER_PROBES * 2, source, side=ProbeSide.TARGET)
    assert names_per_s(both, CEILING) < names_per_s(source, CEILING)
    assert names_per_s(after([FINE] * UNDER_PROBES * 60, both), CEILING) == names_per_s(
        after([SLOW] * OVER_PROBES * 2, side=ProbeSide.TARGET, removing=names_per_s(source, CEILING)), CEILING
    )
