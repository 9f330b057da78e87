"""Sizes, durations, rates and shares in words."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.errors import UsageError
from migrator.site import quantities


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("10GiB", 10 * 2**30),
        ("10GB", 10**10),
        ("10G", 10 * 2**30),
        ("4096", 4096),
        (4096, 4096),
        (0, 0),
        (" 1.5 TiB ", 3 * 2**39),
        ("10gib", 10 * 2**30),
        ("20tib", 20 * 2**40),
        ("1.0001K", 1024),
        ("0.1PB", 10**14),
        ("7B", 7),
    ],
)
def test_sizes(text: str | int, size_bytes: int) -> None:
    assert quantities.parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "GiB", "10 Gi B", "-1GiB", "1e3", "1,5GiB", "10GiBs", "1_000", "٣GiB", "1" * 40, -1]
)
def test_what_is_no_size(text: str | int) -> None:
    with pytest.raises(UsageError):
        quantities.parse_size(text)
    with pytest.raises(UsageError, match=r'unknown size unit "GX"; valid units: B, KiB, .*PB.* "G" is the'):
        quantities.parse_size("10GX")


@given(st.text(max_size=12))
def test_no_text_gives_anything_but_a_size_or_a_usage_error(text: str) -> None:
    with suppress(UsageError):
        assert quantities.parse_size(text) >= 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90d", 90 * 86400),
        ("10min", 600),
        ("30s", 30),
        ("20ms", 0.02),
        ("4h", 14400),
        ("2w", 14 * 86400),
        ("1.5 h", 5400),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert quantities.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10m", '"min" is the nearest'),
        ("30", "has no unit"),
        ("5days", '"d" is the nearest'),
        ("soon", "is no duration"),
        ("10X", "valid units: ms, s, min, h, d, w, y"),
    ],
)
def test_what_is_no_duration(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        quantities.parse_duration(text)
    assert said in caught.value.message


def test_rates_and_growth() -> None:
    assert quantities.parse_rate("200MiB/s") == quantities.parse_rate("200MiB") == quantities.parse_rate(200 * 2**20)
    with pytest.raises(UsageError):
        quantities.parse_rate("200MiB/min")
    assert (
        quantities.parse_growth("7GiB/w")
        == quantities.parse_growth("1GiB/d")
        == quantities.parse_growth("1GiB")
        == 2**30
    )
    with pytest.raises(UsageError, match="unknown growth unit"):
        quantities.parse_growth("1GiB/s")


@pytest.mark.parametrize(("text", "share"), [(1, 1.0), (0.25, 0.25), ("5%", 0.05), ("0.5", 0.5), ("100 %", 1.0)])
def test_shares(text: str | float, share: float) -> None:
    assert quantities.parse_share(text) == share


@pytest.mark.parametrize("text", ["", "%", "101%", 1.01, -0.1, "half", float("nan")])
def test_what_is_no_share(text: str | float) -> None:
    with pytest.raises(UsageError):
        quantities.parse_share(text)


def test_every_unit_is_read() -> None:
    assert all(quantities.parse_size(f"1{unit}") == factor for unit, factor in quantities.SIZE_UNITS.items())
    assert all(
        quantities.parse_duration(f"1{unit}") == float(factor) for unit, factor in quantities.DURATION_UNITS.items()
    )
