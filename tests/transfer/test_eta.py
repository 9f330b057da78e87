"""Estimates: from what is left and the rates, never from nothing."""

from hypothesis import given
from hypothesis import strategies as st

from migrator.transfer.rules import Point, Rate, estimate, rate_over

POINTS = [Point(at_s=0.0, files=0, size_bytes=0), Point(at_s=50.0, files=10, size_bytes=100)]


def test_the_rate_is_taken_over_the_window() -> None:
    points = [*POINTS, Point(at_s=60.0, files=30, size_bytes=400)]
    assert rate_over(points, 10.0) == Rate(files_per_s=2.0, bytes_per_s=30.0, over_s=10.0)
    assert rate_over(points, float("inf")) == Rate(files_per_s=0.5, bytes_per_s=400 / 60, over_s=60.0)


def test_the_slower_of_files_and_bytes_counts() -> None:
    rate = Rate(files_per_s=10.0, bytes_per_s=1000.0, over_s=60.0)
    assert estimate(left_files=100, left_bytes=1000, recent=rate, whole=None).left_s == 10.0
    assert estimate(left_files=10, left_bytes=5000, recent=rate, whole=None).left_s == 5.0


def test_a_pause_of_late_falls_back_to_the_whole_run_and_says_so() -> None:
    still = Rate(files_per_s=0.0, bytes_per_s=0.0, over_s=60.0)
    whole = Rate(files_per_s=1.0, bytes_per_s=10.0, over_s=600.0)
    found = estimate(left_files=5, left_bytes=10, recent=still, whole=whole)
    assert found.left_s == 5.0
    assert "whole run" in found.basis


@given(st.integers(0, 10**9), st.integers(0, 10**15), st.floats(0, 10**6), st.floats(0, 10**10))
def test_no_estimate_is_negative(files: int, size_bytes: int, files_per_s: float, bytes_per_s: float) -> None:
    rate = Rate(files_per_s=files_per_s, bytes_per_s=bytes_per_s, over_s=1.0)
    left_s = estimate(left_files=files, left_bytes=size_bytes, recent=rate, whole=rate).left_s
    assert left_s is None or left_s >= 0.0
