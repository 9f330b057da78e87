"""Samples of streams that are put together by the hour: no sum changes, and nothing young is touched."""

from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.transfer.model import FINE_S, SPAN_S, Sample, SampledAttempt, due, thinned

NOW_S = 1_800_000_000.0

counts = st.integers(min_value=0, max_value=2**53)
times = st.lists(st.integers(min_value=0, max_value=20_000), unique=True, max_size=40).map(sorted)


def sample(at_s: float, files: int = 1, size_bytes: int = 10) -> Sample:
    return Sample(at_s=at_s, interval_s=5.0, attempt_id=7, streams=1, files=files, size_bytes=size_bytes)


@given(times.flatmap(lambda found: st.tuples(*(st.builds(sample, st.just(float(at)), counts, counts) for at in found))))
def test_sums_of_every_hour_stay_what_they_are(samples: Sequence[Sample]) -> None:
    def sums(of: Sequence[Sample]) -> dict[float, tuple[int, int, float]]:
        found: dict[float, tuple[int, int, float]] = defaultdict(lambda: (0, 0, 0.0))
        for one in of:
            files, size_bytes, interval_s = found[one.at_s // SPAN_S]
            found[one.at_s // SPAN_S] = (files + one.files, size_bytes + one.size_bytes, interval_s + one.interval_s)
        return found

    kept = thinned(samples)
    assert sums(kept) == sums(samples)
    assert len(kept) == len(sums(samples))
    assert [one.at_s for one in kept] == sorted({one.at_s for one in kept})
    assert {one.at_s for one in kept} <= {one.at_s for one in samples}
    assert thinned(kept) == kept


def attempt(number: int, last_s: float) -> SampledAttempt:
    return SampledAttempt(attempt_id=number, pass_id=1, last_s=last_s)


@pytest.mark.parametrize(
    ("ages_s", "taken"),
    [
        ((), 0),
        ((FINE_S + 1, FINE_S + 0.5), 2),
        ((FINE_S,), 0),
        ((FINE_S + 1, 10.0, FINE_S + 2), 1),
        ((0.0,), 0),
        ((-60.0,), 0),
    ],
)
def test_attempts_are_taken_in_order_up_to_the_first_that_is_young(ages_s: tuple[float, ...], taken: int) -> None:
    attempts = [attempt(number, NOW_S - age_s) for number, age_s in enumerate(ages_s, 1)]
    assert due(attempts, now_s=NOW_S) == attempts[:taken]
