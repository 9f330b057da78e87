"""How figures are shown to people."""

import pytest

from migrator.core.units import DAY_S, HOUR_S, YEAR_S, by_numbers, format_age, format_factor


@pytest.mark.parametrize(("numbers", "words"), [([3], "batch 3"), ([1, 2, 10], "batches 1, 2, 10"), ([], "batches ")])
def test_several_things_by_their_numbers_are_told_in_the_plural(numbers: list[int], words: str) -> None:
    assert by_numbers(numbers, "batch", "batches") == words


def test_a_noun_without_an_irregular_plural_gets_an_s() -> None:
    assert by_numbers([1, 2], "drain") == "drains 1, 2"


@pytest.mark.parametrize(
    ("factor", "shown"), [(0.854, "0.85"), (2.237, "2.24"), (17.43, "17.4"), (174.22, "174"), (1391.12, "1,391")]
)
def test_how_many_times_has_three_digits(factor: float, shown: str) -> None:
    assert format_factor(factor) == shown


@pytest.mark.parametrize(
    ("age_s", "shown"),
    [(5.0, "5.0 s"), (3 * HOUR_S, "3 h"), (34.4 * DAY_S, "34 d"), (729 * DAY_S, "729 d"), (3.72 * YEAR_S, "3.7 y")],
)
def test_an_age_has_one_unit_that_people_count_in(age_s: float, shown: str) -> None:
    assert format_age(age_s) == shown
