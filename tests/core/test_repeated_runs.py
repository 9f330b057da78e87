"""Statistics of repeated runs: by hand, and by drawing."""

import random

import pytest

from migrator.core.statistics import factor_between, series


def test_a_series_is_summed_up() -> None:
    found = series([4.0, 1.0, 3.0, 2.0, 10.0])
    assert (found.median, found.least, found.most, found.count) == (3.0, 1.0, 10.0, 5)
    assert found.values == (4.0, 1.0, 3.0, 2.0, 10.0)
    with pytest.raises(ValueError, match="nothing"):
        series([])


def test_series_of_different_times_differ_where_their_ranges_lie_apart() -> None:
    found = factor_between([1.0, 1.1, 0.9, 1.0], [3.0, 3.2, 2.9])
    assert found is not None
    assert (found.low, found.factor, found.high) == pytest.approx((2.9 / 1.1, 3.0, 3.2 / 0.9))
    assert found.beyond_noise
    assert found.count == 3
    assert factor_between([1.0], []) is None
    assert factor_between([1.0, 0.0], [1.0]) is None
    mixed = factor_between([1.0, 3.0, 2.0], [1.1, 2.9, 2.2])
    assert mixed is not None
    assert mixed.beyond_noise is False
    few = factor_between([1.0, 1.0], [9.0, 9.0, 9.0])
    assert few is not None
    assert few.beyond_noise is None


@pytest.mark.parametrize("runs", [5, 8, 12, 40])
def test_of_file_systems_that_are_alike_at_most_one_in_ten_is_told_to_differ(runs: int) -> None:
    source = random.Random(runs)
    rounds, told = 1000, 0
    for _ in range(rounds):
        burden = [source.lognormvariate(0, 1) for _ in range(runs)]
        one, two = ([each * source.lognormvariate(0, 0.2) for each in burden] for _ in range(2))
        found = factor_between(one, two)
        told += bool(found and found.beyond_noise)
    assert told / rounds < 0.12
