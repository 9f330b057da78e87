"""Statistics of benchmarks: by hand, by other means, and by drawing."""

import math
import random
import statistics

import pytest

from migrator.decide.benchmark_statistics import paired_factor, series, unpaired_factor


def test_a_series_is_summed_up() -> None:
    found = series([4.0, 1.0, 3.0, 2.0, 10.0])
    assert (found.mean, found.median, found.least, found.most, found.count) == (4.0, 3.0, 1.0, 10.0, 5)
    assert found.sem == pytest.approx(statistics.stdev([4, 1, 3, 2, 10]) / math.sqrt(5))
    assert found.values == (4.0, 1.0, 3.0, 2.0, 10.0)


def test_the_trimmed_mean_leaves_out_an_eighth_at_either_end() -> None:
    assert series([100.0, *range(1, 7), 0.0]).trimmed_mean == pytest.approx(3.5)
    assert series([0.0, 1.0, 2.0, 9.0]).trimmed_mean is None


def test_one_value_has_no_error_and_none_is_no_series() -> None:
    assert series([2.0]).sem is None
    with pytest.raises(ValueError, match="nothing"):
        series([])


def test_pairs_cancel_what_burdened_both() -> None:
    base = [1.0, 5.0, 25.0, 2.0, 10.0]
    found = paired_factor(base, [2.02 * base[0], 1.98 * base[1], 2.0 * base[2], 2.01 * base[3], 1.99 * base[4]])
    assert found is not None
    assert found.factor == pytest.approx(2.0, rel=0.01)
    assert found.beyond_noise
    assert found.paired


def test_the_interval_is_students() -> None:
    logs = [0.1, 0.2, 0.3, 0.6]
    found = paired_factor([1.0] * 4, [math.exp(log) for log in logs])
    half = 3.182 * statistics.stdev(logs) / 2
    assert found is not None
    assert found.low == pytest.approx(math.exp(0.3 - half))
    assert found.high == pytest.approx(math.exp(0.3 + half))
    assert found.beyond_noise is False


def test_which_side_is_the_base_turns_the_interval_around() -> None:
    one, two = [1.0, 1.2, 0.9], [2.1, 2.0, 2.2]
    there, back = paired_factor(one, two), paired_factor(two, one)
    assert there is not None
    assert back is not None
    assert there.low is not None
    assert there.factor == pytest.approx(1 / back.factor)
    assert there.low == pytest.approx(1 / (back.high or 0.0))


@pytest.mark.parametrize(("base", "other"), [([1.0], [2.0]), ([1.0, 1.0], [2.0, 2.0]), ([1.0, 100.0], [100.0, 1.0])])
def test_too_little_says_nothing_of_noise(base: list[float], other: list[float]) -> None:
    found = paired_factor(base, other)
    assert found is not None
    assert found.beyond_noise is None
    assert (found.low, found.high) == (None, None)


def test_what_took_no_time_has_no_ratio() -> None:
    assert paired_factor([0.0], [1.0]) is None
    assert paired_factor([], []) is None
    assert unpaired_factor([1.0], []) is None
    assert unpaired_factor([1.0, 0.0], [1.0]) is None


def test_series_of_different_times_are_compared_by_welch() -> None:
    found = unpaired_factor([1.0, 1.1, 0.9, 1.0], [3.0, 3.2, 2.9])
    assert found is not None
    assert found.beyond_noise
    assert not found.paired
    assert found.count == 3
    mixed = unpaired_factor([1.0, 3.0, 2.0], [1.1, 2.9, 2.2])
    assert mixed is not None
    assert mixed.beyond_noise is False


@pytest.mark.parametrize("pairs", [3, 5, 12, 40])
def test_of_file_systems_that_are_alike_one_in_twenty_is_told_to_differ(pairs: int) -> None:
    source = random.Random(pairs)
    rounds, told = 2000, 0
    for _ in range(rounds):
        burden = [source.lognormvariate(0, 1) for _ in range(pairs)]
        one, two = ([each * source.lognormvariate(0, 0.2) for each in burden] for _ in range(2))
        found = paired_factor(one, two)
        told += bool(found and found.beyond_noise)
    assert 0.03 < told / rounds < 0.07
