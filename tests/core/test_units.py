"""How figures are shown to people."""

import pytest

from migrator.core.units import DAY_S, HOUR_S, YEAR_S, by_numbers, format_age, format_factor


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (by_numbers([3], "batch", "batches"), "batch 3"),
        (by_numbers([1, 2, 10], "batch", "batches"), "batches 1, 2, 10"),
        (by_numbers([], "batch", "batches"), "batches "),
        (by_numbers([1, 2], "drain"), "drains 1, 2"),
        (format_factor(0.854), "0.85"),
        (format_factor(2.237), "2.24"),
        (format_factor(17.43), "17.4"),
        (format_factor(174.22), "174"),
        (format_factor(1391.12), "1,391"),
        (format_age(5.0), "5.0 s"),
        (format_age(3 * HOUR_S), "3 h"),
        (format_age(34.4 * DAY_S), "34 d"),
        (format_age(729 * DAY_S), "729 d"),
        (format_age(3.72 * YEAR_S), "3.7 y"),
    ],
)
def test_a_figure_in_words(shown: str, words: str) -> None:
    assert shown == words
