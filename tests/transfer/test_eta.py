"""Estimates: from what is left and the rates, never from nothing."""

from hypothesis import given
from hypothesis import strategies as st

from migrator.transfer.rules import Point, Rate, rate_over, seconds_left


def test_the_rate_is_taken_over_the_window() -> None:
    points = [Point(at_s=0.0, files=0, size_bytes=0), Point(at_s=50.0, files=10, size_bytes=100)]
    points.append(Point(at_s=60.0, files=30, size_bytes=400))
    assert rate_over(points, 10.0) == Rate(files_per_s=2.0, bytes_per_s=30.0, over_s=10.0)
    assert rate_over(points, float("inf")) == Rate(files_per_s=0.5, bytes_per_s=400 / 60, over_s=60.0)


def test_the_slower_of_files_and_bytes_counts() -> None:
    rate = Rate(files_per_s=10.0, bytes_per_s=1000.0, over_s=60.0)
    assert seconds_left(100, 1000, rate) == 10.0
    assert seconds_left(10, 5000, rate) == 5.0
    assert seconds_left(5, 10, Rate(files_per_s=0.0, bytes_per_s=10.0, over_s=60.0)) is None
    assert seconds_left(0, 0, None) == 0.0


@given(st.integers(0, 10**9), st.integers(0, 10**15), st.floats(0, 10**6), st.floats(0, 10**10))
def test_no_estimate_is_negative(files: int, size_bytes: int, files_per_s: float, bytes_per_s: float) -> None:
    left_s = seconds_left(files, size_bytes, Rate(files_per_s=files_per_s, bytes_per_s=bytes_per_s, over_s=1.0))
    assert left_s is None or left_s >= 0.0
