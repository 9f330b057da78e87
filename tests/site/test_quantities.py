"""Sizes, durations, rates and shares in words."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.errors import UsageError
from migrator.site import quantities


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        *((quantities.parse_size, f"1{unit}", factor) for unit, factor in quantities.SIZE_UNITS.items()),
        *((quantities.parse_duration, f"1{unit}", float(each)) for unit, each in quantities.DURATION_UNITS.items()),
        (quantities.parse_size, "10G", 10 * 2**30),
        (quantities.parse_size, 4096, 4096),
        (quantities.parse_size, " 1.5 TiB ", 3 * 2**39),
        (quantities.parse_size, "1.0001K", 1024),
        (quantities.parse_duration, "1.5 h", 5400),
        (quantities.parse_rate, "200MiB/s", 200 * 2**20),
        (quantities.parse_rate, "200MiB", 200 * 2**20),
        (quantities.parse_growth, "7GiB/w", 2**30),
        (quantities.parse_growth, "1GiB", 2**30),
        (quantities.parse_share, 1, 1.0),
        (quantities.parse_share, "5%", 0.05),
        (quantities.parse_share, "0.5", 0.5),
    ],
)
def test_quantities(parse: Callable[[str | float], float], text: str | float, value: float) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "said"),
    [
        *((quantities.parse_size, text, "size") for text in ("", "GiB", "-1GiB", "1,5GiB", "٣GiB", "1" * 40, -1)),
        (quantities.parse_size, "10GX", 'unknown size unit "GX"; valid units: B, KiB, .*PB.* "G" is the'),
        (quantities.parse_duration, "10m", '"min" is the nearest'),
        (quantities.parse_duration, "30", "has no unit"),
        (quantities.parse_duration, "soon", "is no duration"),
        (quantities.parse_rate, "200MiB/min", "is no size"),
        (quantities.parse_growth, "1GiB/s", "unknown growth unit"),
        *((quantities.parse_share, text, "share") for text in ("", "101%", 1.01, -0.1, "half", float("nan"))),
    ],
)
def test_what_is_no_quantity(parse: Callable[[str | float], float], text: str | float, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(text)


@given(st.text(max_size=12))
def test_no_text_gives_anything_but_a_size_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert quantities.parse_size(text) >= 0
