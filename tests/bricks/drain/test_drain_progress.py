"""Rate, end and standstill of a drain."""

from dataclasses import replace

import pytest

from migrator.bricks.drain.model import DrainSample, last_counts
from migrator.bricks.drain.rules_progress import DrainRate, drain_left_s, drain_rate, stalled
from migrator.gluster.model import TaskStatus


def sample(at_s: float, files: int, *, host: str = "gl1", task_id: str = "t", lookups: int = 0) -> DrainSample:
    return DrainSample(
        task_id=task_id,
        at_s=at_s,
        host=host,
        files=files,
        size_bytes=files * 100,
        lookups=lookups,
        failures=0,
        skipped=0,
        status=TaskStatus.IN_PROGRESS,
        runtime_s=0.0,
    )


def rate(*samples: DrainSample, window_s: float = 100.0) -> DrainRate | None:
    return drain_rate(samples, task_id="t", window_s=window_s)


def test_a_rate_needs_two_looks_at_the_same_task() -> None:
    assert rate() is None
    assert rate(sample(1.0, 5)) is None
    assert rate(sample(1.0, 5), sample(2.0, 9, task_id="other")) is None
    assert rate(sample(1.0, 5), sample(3.0, 9)) == DrainRate(span_s=2.0, files_per_s=2.0, bytes_per_s=200.0)


def test_only_the_window_counts_and_two_looks_at_least() -> None:
    looks = [sample(0.0, 0), sample(100.0, 1000), sample(190.0, 1000), sample(200.0, 1010)]
    assert rate(*looks, window_s=10.0) == DrainRate(span_s=10.0, files_per_s=1.0, bytes_per_s=100.0)
    assert rate(*looks, window_s=1.0) == rate(*looks, window_s=10.0)
    assert rate(*looks, window_s=1000.0) == DrainRate(span_s=200.0, files_per_s=5.05, bytes_per_s=505.0)


def test_hosts_are_added_up_and_one_that_does_not_tell_takes_nothing_away() -> None:
    first = [sample(0.0, 10), sample(0.0, 20, host="gl2")]
    assert rate(*first, sample(10.0, 20), sample(10.0, 50, host="gl2")) == DrainRate(
        span_s=10.0, files_per_s=4.0, bytes_per_s=400.0
    )
    assert rate(*first, sample(10.0, 20)) == DrainRate(span_s=10.0, files_per_s=1.0, bytes_per_s=100.0)
    looked_at = [sample(0.0, 0, lookups=5), sample(10.0, 0, lookups=25)]
    assert rate(*looked_at) == DrainRate(span_s=10.0, files_per_s=0.0, bytes_per_s=0.0, lookups_per_s=2.0)
    # Counters of a host that begin anew are no work undone.
    assert rate(*first, sample(10.0, 0)) == DrainRate(span_s=10.0, files_per_s=0.0, bytes_per_s=0.0)


def test_what_was_moved_before_a_reboot_counts_and_nothing_twice() -> None:
    def looks(*files_and_runtimes: tuple[int, float], task_id: str = "t") -> list[DrainSample]:
        return [
            replace(sample(float(number), files, task_id=task_id), runtime_s=runtime_s)
            for number, (files, runtime_s) in enumerate(files_and_runtimes)
        ]

    def moved(*samples: DrainSample) -> int:
        return sum(one.files for one in last_counts(samples))

    assert moved() == 0
    assert moved(*looks((5, 1.0), (9, 2.0))) == 9
    rebooted = looks((5, 1.0), (9, 2.0), (0, 0.0), (0, 0.0))
    assert moved(*rebooted) == 9
    assert moved(*looks((5, 1.0), (9, 2.0), (0, 0.0), (3, 1.0), (20, 9.0))) == 29
    assert moved(*looks((9, 2.0), (4, 0.5), (2, 0.2), (1, 0.1))) == 16
    # glusterd was away from a process that has run on.
    assert moved(*looks((5, 1.0), (9, 2.0), (0, 0.0), (12, 4.0))) == 12
    assert moved(*rebooted, *looks((7, 1.0), task_id="other"), sample(9.0, 2, host="gl2")) == 18


@pytest.mark.parametrize(
    ("files", "size_bytes", "left_s"),
    [(20, 100, 10.0), (2, 1000, 100.0), (0, 0, 0.0), (-5, 0, 0.0), (None, 1, None), (1, None, None)],
)
def test_how_long_it_still_takes(files: int | None, size_bytes: int | None, left_s: float | None) -> None:
    going = DrainRate(span_s=1.0, files_per_s=2.0, bytes_per_s=10.0)
    assert drain_left_s(going, left_files=files, left_bytes=size_bytes) == left_s


def test_nothing_is_said_of_the_end_without_a_rate() -> None:
    assert drain_left_s(None, left_files=1, left_bytes=1) is None
    still = DrainRate(span_s=1.0, files_per_s=0.0, bytes_per_s=0.0)
    assert drain_left_s(still, left_files=1, left_bytes=0) is None
    assert drain_left_s(still, left_files=0, left_bytes=0) == 0.0


def said(*samples: DrainSample, now_s: float = 200.0) -> str:
    return stalled(samples, task_id="t", now_s=now_s, limit_s=50.0, names={"id of gl3": "gl3"})


def test_a_host_that_counts_nothing_stands_still() -> None:
    assert "gl1 has counted nothing for 1 min 40 s" in said(sample(90.0, 4), sample(100.0, 5), sample(190.0, 5))
    assert said(sample(100.0, 5), sample(160.0, 6)) == ""
    # Looking through directories is work too.
    assert said(sample(100.0, 5), sample(190.0, 5, lookups=1)) == ""
    # As it was once before.
    assert said(sample(10.0, 5), sample(100.0, 6), sample(190.0, 5)) == ""
    # People know a host by its name, and samples by the id of its glusterd.
    assert said(sample(100.0, 5, host="id of gl3"), sample(190.0, 5, host="id of gl3")).startswith("gl3 has counted")
    assert said() == ""
    assert said(sample(100.0, 5, task_id="other")) == ""


def test_one_of_several_hosts_is_enough() -> None:
    looks = [sample(100.0, 5), sample(190.0, 5), sample(190.0, 9, host="gl2")]
    assert said(*looks).startswith("gl1 ")
    assert "gl2" not in said(*looks)


@pytest.mark.parametrize("status", [TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.STOPPED])
def test_a_host_that_has_ended_does_not_stand_still(status: TaskStatus) -> None:
    assert said(replace(sample(100.0, 5), status=status)) == ""


def test_a_host_that_was_never_begun_stands_still_too() -> None:
    """As after a reboot: it is neither at work nor at its end."""
    assert said(replace(sample(100.0, 0), status=TaskStatus.NOT_STARTED))
