"""What a drain costs, by drains that have ended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.bricks.drain.model import DrainSample
from migrator.core.units import DAY_S, MIB, TIB
from migrator.gluster.model import TaskStatus
from migrator.schedule import rules_drains as schedule_rules_drains


def sample(at_s: float, *, host: str = "a", task: str = "t", files: int, size_bytes: int, ran_s: float) -> DrainSample:
    return DrainSample(
        task_id=task,
        at_s=at_s,
        host=host,
        files=files,
        size_bytes=size_bytes,
        lookups=0,
        failures=0,
        skipped=0,
        status=TaskStatus.IN_PROGRESS,
        runtime_s=ran_s,
    )


def drain(files: int, size_bytes: int, *, s_per_file: float, s_per_byte: float) -> schedule_rules_drains.DrainTally:
    return schedule_rules_drains.DrainTally(
        files=files, size_bytes=size_bytes, moving_s=files * s_per_file + size_bytes * s_per_byte
    )


def test_a_drain_is_counted_by_its_last_looks() -> None:
    samples = [
        sample(10, files=1, size_bytes=10, ran_s=10),
        sample(20, files=5, size_bytes=50, ran_s=20),
        sample(20, host="b", files=2, size_bytes=20, ran_s=18),
        # Begun again after a failure, an hour later.
        sample(3600, task="u", files=3, size_bytes=30, ran_s=7),
    ]
    assert schedule_rules_drains.drain_tally(samples) == schedule_rules_drains.DrainTally(
        files=10, size_bytes=100, moving_s=27
    )
    assert schedule_rules_drains.drain_tally([]) == schedule_rules_drains.DrainTally(files=0, size_bytes=0, moving_s=0)


def test_one_drain_tells_how_much_faster_or_slower_it_is() -> None:
    # Twice as fast as assumed, both for files and bytes.
    found = schedule_rules_drains.drain_cost([drain(10**6, TIB, s_per_file=0.007, s_per_byte=1 / (100 * MIB))])
    assert found.s_per_file == pytest.approx(0.007)
    assert found.s_per_byte == pytest.approx(1 / (100 * MIB))
    assert found.basis == (
        "measured here: 1 drain of 1,000,000 files and 1.0 TiB took 4 h 51 min, so 100 MiB/s and 7.0 ms a file"
    )


tally = st.builds(
    schedule_rules_drains.DrainTally,
    files=st.integers(0, 10**8),
    size_bytes=st.integers(1, 10**14),
    moving_s=st.floats(schedule_rules_drains.ENOUGH_S, 100 * DAY_S),
)


@given(st.lists(tally, min_size=1, max_size=6))
def test_in_sum_it_gives_what_was_measured(tallies: list[schedule_rules_drains.DrainTally]) -> None:
    found = schedule_rules_drains.drain_cost(tallies)
    assert found.s_per_file > 0
    assert found.s_per_byte > 0
    told = sum(one.files * found.s_per_file + one.size_bytes * found.s_per_byte for one in tallies)
    assert told == pytest.approx(sum(one.moving_s for one in tallies))
