"""What probes say, and how a throttle follows curves of latency."""

import math
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.decide.probing import (
    NEWEST,
    OVER_PROBES,
    STALE_S,
    UNDER_PROBES,
    Pace,
    pace_after,
    paced,
    readings,
)
from migrator.decide.throttle import SLOWEST_FIRST, slowed, steps_below
from migrator.domain.probe import Probe, ProbeSide, ProbeTimes

LIMIT_S = 0.05


def probe(latency_s: float | None, at_s: float = 0.0, side: ProbeSide = ProbeSide.SOURCE) -> Probe:
    if latency_s is None:
        return Probe(side=side, at_s=at_s, failure="Read-only file system")
    times = ProbeTimes(
        create_s=latency_s, write_s=9.0, sync_s=9.0, stat_s=latency_s / 2, unlink_s=latency_s / 3, readdir_s=0.0
    )
    return Probe(side=side, at_s=at_s, times=times)


def downs(curve: Iterable[float], lowest: int = 2) -> list[int]:
    pace, found = Pace(), []
    for latency_s in curve:
        pace = paced(pace, latency_s, limit_s=LIMIT_S, lowest=lowest)
        found.append(pace.down)
    return found


def test_the_slowest_operation_on_metadata_counts_and_writing_does_not() -> None:
    assert probe(0.02).latency_s == 0.02
    assert Probe(side=ProbeSide.SOURCE, at_s=0.0, waited_s=30.0).latency_s == 30.0
    assert probe(None).latency_s is None


@pytest.mark.parametrize("name", ["create_s", "stat_s", "unlink_s", "readdir_s"])
def test_every_operation_on_metadata_may_be_the_slowest(name: str) -> None:
    times = dict.fromkeys(("create_s", "write_s", "sync_s", "stat_s", "unlink_s", "readdir_s"), 0.001)
    found = Probe(side=ProbeSide.SOURCE, at_s=0.0, times=ProbeTimes(**{**times, name: 0.5}))
    assert found.latency_s == 0.5


def test_the_median_of_the_newest_probes_of_each_side_counts() -> None:
    target = ProbeSide.TARGET
    probes = [probe(5.0, at_s=1000.0 + number) for number in range(NEWEST)]
    probes += [
        probe(latency_s, at_s=1100.0 + number) for number, latency_s in enumerate([0.1, 9.0, 0.2, 0.3, None, 0.2])
    ]
    probes += [probe(0.7, at_s=1000.0, side=target), Probe(side=target, at_s=1060.0, waited_s=30.0)]

    found = readings(reversed(probes), now_s=1200.0)

    source = found[ProbeSide.SOURCE]
    assert (source.latency_s, source.probes, source.at_s) == (0.2, NEWEST, 1105.0)
    assert found[target].latency_s == pytest.approx(15.35)
    assert found[target].probes == 2
    assert source.passes(0.1)
    assert not source.passes(0.2)
    assert not source.passes(None)


def test_what_is_old_or_failed_says_nothing() -> None:
    probes = [probe(9.0, at_s=0.0), probe(None, at_s=STALE_S)]
    assert readings(probes, now_s=STALE_S + 1.0) == {}


def test_a_throttle_goes_down_a_step_at_a_time_and_up_again_when_it_is_calm() -> None:
    busy, calm = [0.2] * (2 * OVER_PROBES), [0.01] * (2 * UNDER_PROBES)
    assert downs([*busy, *calm]) == [0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0]


def test_a_single_slow_probe_changes_nothing() -> None:
    assert set(downs([0.01, 9.0, 0.01, 9.0, 9.0, 0.01] * 50)) == {0}


def test_just_below_the_limit_nothing_swings() -> None:
    assert downs([*[0.2] * OVER_PROBES, *[0.045] * 500])[-1] == 1
    assert set(downs([0.045] * 500)) == {0}


def test_a_curve_that_hovers_about_the_limit_does_not_make_it_swing() -> None:
    curve = [LIMIT_S * (1.0 + 0.15 * math.sin(number / 3.0)) for number in range(1000)]
    found = downs(curve)
    assert sum(before > after for before, after in pairwise(found)) == 0


def test_over_a_day_it_is_slow_while_users_work_and_fast_at_night() -> None:
    # A probe a minute: busy from 8 to 18, and the load of the drain itself comes on top of it.
    pace, shown = Pace(), {}
    for minute in range(2 * 24 * 60):
        hour = minute / 60 % 24
        load_s = 0.06 if 8 <= hour < 18 else 0.005
        latency_s = load_s + 0.01 * (2 - pace.down)
        pace = paced(pace, latency_s, limit_s=LIMIT_S, lowest=2)
        shown[minute] = pace.down
    assert shown[24 * 60 + 7 * 60] == 0
    assert shown[24 * 60 + 9 * 60] == 2
    assert shown[24 * 60 + 17 * 60] == 2
    assert shown[24 * 60 + 19 * 60] == 0


def test_what_says_nothing_leaves_the_pace_as_it_is() -> None:
    probes = [probe(0.2), probe(None), probe(0.2), probe(None), probe(0.2)]
    assert pace_after(probes, limit_s=LIMIT_S, lowest=2) == Pace(down=1)
    assert pace_after([probe(0.2)], limit_s=LIMIT_S, lowest=2, pace=Pace(down=1, over=2)).down == 2


@given(curve=st.lists(st.floats(0.0, 1.0)), lowest=st.integers(0, 2))
def test_it_never_leaves_its_steps_and_takes_one_at_a_time(curve: list[float], lowest: int) -> None:
    found = downs(curve, lowest)
    assert all(0 <= down <= lowest for down in found)
    assert all(abs(after - before) <= 1 for before, after in zip([0, *found], found, strict=False))


@given(curve=st.lists(st.floats(0.0, 1.0)), cut=st.integers(0, 50))
def test_a_history_may_be_taken_in_pieces(curve: list[float], cut: int) -> None:
    probes = [probe(latency_s) for latency_s in curve]
    first = pace_after(probes[:cut], limit_s=LIMIT_S, lowest=2)
    assert pace_after(probes[cut:], limit_s=LIMIT_S, lowest=2, pace=first) == pace_after(
        probes, limit_s=LIMIT_S, lowest=2
    )


def test_a_value_is_taken_down_to_the_slowest_at_most() -> None:
    assert [slowed("aggressive", down) for down in range(4)] == ["aggressive", "normal", "lazy", "lazy"]
    assert slowed("lazy", 1) == "lazy"
    assert [steps_below(value) for value in SLOWEST_FIRST] == [0, 1, 2]
