"""Statistics of repeated runs: by hand, and by drawing."""

import random

import pytest

from migrator.core.statistics import paired_factor, series, unpaired_factor


def test_a_series_is_summed_up() -> None:
    found = series([4.0, 1.0, 3.0, 2.0, 10.0])
    assert (found.median, found.least, found.most, found.count) == (3.0, 1.0, 10.0, 5)
    assert found.values == (4.0, 1.0, 3.0, 2.0, 10.0)
    with pytest.raises(ValueError, match="nothing"):
        series([])


def test_pairs_cancel_what_burdened_both() -> None:
    found = paired_factor([1.0, 5.0, 25.0, 2.0, 10.0], [2.02, 9.9, 50.0, 4.04, 19.8])
    assert found is not None
    assert (found.low, found.factor, found.high) == pytest.approx((1.98, 2.0, 2.02))
    assert found.beyond_noise
    assert found.paired


def test_of_many_pairs_the_outermost_do_not_count() -> None:
    found = paired_factor([1.0] * 8, [0.001, 2.0, 2.1, 2.2, 2.3, 2.4, 2.5, 1000.0])
    assert found is not None
    assert (found.low, found.high) == (2.0, 2.5)


def test_which_side_is_the_base_turns_the_interval_around() -> None:
    one, two = [1.0, 1.2, 0.9, 1.1, 1.0], [2.1, 2.0, 2.2, 0.5, 2.0]
    there, back = paired_factor(one, two), paired_factor(two, one)
    assert there is not None
    assert back is not None
    assert there.factor == pytest.approx(1 / back.factor)
    assert there.low == pytest.approx(1 / (back.high or 0.0))
    assert there.beyond_noise is False


@pytest.mark.parametrize("pairs", [1, 2, 4])
def test_too_few_pairs_say_nothing_of_noise(pairs: int) -> None:
    found = paired_factor([1.0] * pairs, [2.0] * pairs)
    assert found is not None
    assert (found.low, found.high, found.beyond_noise) == (None, None, None)


def test_what_took_no_time_has_no_ratio() -> None:
    assert paired_factor([0.0], [1.0]) is None
    assert paired_factor([], []) is None
    assert unpaired_factor([1.0], []) is None
    assert unpaired_factor([1.0, 0.0], [1.0]) is None


def test_series_of_different_times_differ_where_their_ranges_lie_apart() -> None:
    found = unpaired_factor([1.0, 1.1, 0.9, 1.0], [3.0, 3.2, 2.9])
    assert found is not None
    assert (found.low, found.factor, found.high) == pytest.approx((2.9 / 1.1, 3.0, 3.2 / 0.9))
    assert found.beyond_noise
    assert (found.paired, found.count) == (False, 3)
    mixed = unpaired_factor([1.0, 3.0, 2.0], [1.1, 2.9, 2.2])
    assert mixed is not None
    assert mixed.beyond_noise is False
    few = unpaired_factor([1.0, 1.0], [9.0, 9.0, 9.0])
    assert few is not None
    assert few.beyond_noise is None


@pytest.mark.parametrize("runs", [5, 8, 12, 40])
@pytest.mark.parametrize("paired", [True, False])
def test_of_file_systems_that_are_alike_at_most_one_in_ten_is_told_to_differ(runs: int, paired: bool) -> None:
    source = random.Random(runs)
    rounds, told = 1000, 0
    for _ in range(rounds):
        burden = [source.lognormvariate(0, 1) for _ in range(runs)]
        one, two = ([each * source.lognormvariate(0, 0.2) for each in burden] for _ in range(2))
        found = paired_factor(one, two) if paired else unpaired_factor(one, two)
        told += bool(found and found.beyond_noise)
    assert told / rounds < 0.12
