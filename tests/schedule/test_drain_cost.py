"""What a drain costs, by drains that have ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.units import DAY_S, MIB, TIB
from migrator.schedule import rules_drains
from tests.support.volumes import drain_sample


def drain(files: int, size_bytes: int, *, s_per_file: float, s_per_byte: float) -> rules_drains.DrainTally:
    return rules_drains.DrainTally(
        files=files, size_bytes=size_bytes, moving_s=files * s_per_file + size_bytes * s_per_byte
    )


def test_a_drain_is_counted_by_its_last_looks() -> None:
    samples = [
        drain_sample(1, 10, at_s=10, runtime_s=10),
        drain_sample(5, 50, at_s=20, runtime_s=20),
        drain_sample(2, 20, at_s=20, host="b", runtime_s=18),
        # Begun again after a failure, an hour later.
        drain_sample(3, 30, at_s=3600, task_id="u", runtime_s=7),
    ]
    assert rules_drains.drain_tally(samples) == rules_drains.DrainTally(files=10, size_bytes=100, moving_s=27)
    assert rules_drains.drain_tally([]) == rules_drains.DrainTally(files=0, size_bytes=0, moving_s=0)


def test_one_drain_tells_how_much_faster_or_slower_it_is() -> None:
    # Twice as fast as assumed, both for files and bytes.
    found = rules_drains.drain_cost([drain(10**6, TIB, s_per_file=0.007, s_per_byte=1 / (100 * MIB))])
    assert found.s_per_file == pytest.approx(0.007)
    assert found.s_per_byte == pytest.approx(1 / (100 * MIB))
    assert found.basis == (
        "measured here: 1 drain of 1,000,000 files and 1.0 TiB took 4 h 51 min, so 100 MiB/s and 7.0 ms a file"
    )


tally = st.builds(
    rules_drains.DrainTally,
    files=st.integers(0, 10**8),
    size_bytes=st.integers(1, 10**14),
    moving_s=st.floats(rules_drains.ENOUGH_S, 100 * DAY_S),
)


@given(st.lists(tally, min_size=1, max_size=6))
def test_in_sum_it_gives_what_was_measured(tallies: list[rules_drains.DrainTally]) -> None:
    found = rules_drains.drain_cost(tallies)
    assert found.s_per_file > 0
    assert found.s_per_byte > 0
    told = sum(one.files * found.s_per_file + one.size_bytes * found.s_per_byte for one in tallies)
    assert told == pytest.approx(sum(one.moving_s for one in tallies))
