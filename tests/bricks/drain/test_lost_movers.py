"""Hosts whose process that moves files has ended without a word."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.bricks.drain.model import DrainSample
from migrator.bricks.drain.rules import lost_after_s, lost_movers
from migrator.bricks.drain.rules_progress import samples_of
from migrator.gluster.model import TaskStatus
from tests.support.drain_looks import counters, progress

LIMIT_S = 60.0


def look(at_s: float, runtime_s: float, *, host: str = "gl1", task_id: str = "t") -> DrainSample:
    told = counters(host=host, host_id=f"id of {host}", status=TaskStatus.IN_PROGRESS, runtime_s=runtime_s)
    (sample,) = samples_of(progress(told, task_id=task_id), at_s)
    return sample


def said(*samples: DrainSample, now_s: float = 200.0, since_s: float = 0.0) -> str:
    return lost_movers(samples, task_id="t", since_s=since_s, now_s=now_s, limit_s=LIMIT_S, names={"id of gl1": "gl1"})


def looks(*runtimes_s: float) -> list[DrainSample]:
    """Every 30 s, the last one now."""
    return [look(200.0 - 30.0 * back, runtime_s) for back, runtime_s in enumerate(reversed(runtimes_s))]


def test_a_run_time_that_stands_still_for_long_is_of_no_process() -> None:
    assert said(*looks(3.0, 4.0, 4.0, 4.0, 4.0)) == (
        "on gl1 no process moves files any more: its run time has stood still for 1 min 30 s"
    )
    # After a restart of its glusterd nothing is told any more.
    assert "on gl1" in said(*looks(40.0, 0.0, 0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    "runtimes_s", [(1.0, 1.0, 1.0), (4.0, 4.0, 4.0, 4.0, 5.0), (5.0, 5.0, 5.0, 5.0, 0.0), (0.0,), ()]
)
def test_what_has_just_begun_and_what_goes_on_is_not_lost(runtimes_s: tuple[float, ...]) -> None:
    assert said(*looks(*runtimes_s)) == ""


@given(st.lists(st.floats(0.5, 1000.0), min_size=1, max_size=20))
def test_a_process_that_lives_is_never_taken_for_lost_however_seldom_it_is_looked_at(gaps_s: list[float]) -> None:
    at_s, samples = 0.0, []
    for gap_s in gaps_s:
        at_s += gap_s
        samples.append(look(at_s, float(int(at_s))))
        assert said(*samples, now_s=at_s) == ""


def test_what_was_seen_while_a_part_was_missing_proves_nothing() -> None:
    seen = looks(4.0, 4.0, 4.0, 4.0, 4.0)[::-1]
    assert "for 1 min 30 s" in said(*seen, since_s=seen[0].at_s)
    assert said(*seen, since_s=seen[2].at_s) == ""
    assert said(*seen, since_s=seen[-1].at_s) == ""


def test_looks_that_are_far_apart_prove_nothing() -> None:
    """The host may have been begun anew in between, and be as far as it was."""
    assert said(look(10.0, 1.0), look(200.0, 1.0)) == ""
    assert said(look(10.0, 1.0), look(20.0, 1.0)) == ""
    assert said(look(10.0, 1.0), look(140.0, 1.0), look(170.0, 1.0), look(200.0, 1.0)) == ""


@pytest.mark.parametrize("status", [one for one in TaskStatus if one is not TaskStatus.IN_PROGRESS])
def test_only_what_is_in_progress_can_be_lost(status: TaskStatus) -> None:
    assert said(*(replace(one, status=status) for one in looks(1.0, 1.0, 1.0, 1.0, 1.0))) == ""


def test_every_host_and_task_by_itself() -> None:
    others = [look(one.at_s, one.at_s, host="gl2") for one in looks(0.0, 0.0, 0.0, 0.0)]
    older = [look(one.at_s, 1.0, task_id="before") for one in looks(0.0, 0.0, 0.0, 0.0)]
    assert said(*others, *older) == ""
    assert said(*others, *older, *looks(2.0, 2.0, 2.0, 2.0)).startswith("on gl1 ")


def test_the_limit_leaves_time_for_several_looks() -> None:
    assert (lost_after_s(0.2), lost_after_s(15.0), lost_after_s(30.0)) == (60.0, 60.0, 120.0)
