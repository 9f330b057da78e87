"""Rate, end and standstill of a drain, from all samples or a few, in a line; rebalance processes that died; the sums of an audit."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.app.ledger import MigrationLedger
from migrator.bricks.add.rules import standing as addition_standing
from migrator.bricks.drain import rules_progress
from migrator.bricks.drain.rules_audit import MOST_EXAMPLES, BrickAudit, audit_of
from migrator.bricks.progress import (
    RATE_WINDOW_S,
    TaskSample,
    last_counts,
    lost_after_s,
    lost_processes,
    stalled_hosts,
    task_rate,
)
from migrator.core.progress import DrainProgress
from migrator.core.units import GIB
from migrator.gluster.model import TaskStatus
from migrator.render.progress import snapshot_line
from tests.support.making import made
from tests.support.operations import CHECK, START, do, plan_addition, plan_drain
from tests.support.volumes import drain_sample

NAMES = {"id of gl3": "gl3"}


def sample(at_s: float, files: int = 0, **facts: Any) -> TaskSample:
    return drain_sample(files, files * 100, **{"at_s": at_s, "host": "gl1", **facts})


@pytest.mark.parametrize(
    ("samples", "window_s", "expected"),
    [
        ([], 100.0, None),
        ([sample(1.0, 5), sample(2.0, 9, task_id="other")], 100.0, None),
        ([sample(1.0, 5), sample(3.0, 9)], 100.0, (2.0, 2.0, 0.0)),
        # Only the window counts, and two polls at least.
        ([sample(0.0), sample(100.0, 1000), sample(190.0, 1000), sample(200.0, 1010)], 1.0, (10.0, 1.0, 0.0)),
        ([sample(0.0), sample(100.0, 1000), sample(190.0, 1000), sample(200.0, 1010)], 1000.0, (200.0, 5.05, 0.0)),
        # Hosts add up; one that does not report, or counts from 0 again, subtracts nothing.
        (
            [sample(0.0, 10), sample(0.0, 20, host="gl2"), sample(10.0, 20), sample(10.0, 50, host="gl2")],
            100.0,
            (10.0, 4.0, 0.0),
        ),
        ([sample(0.0, 10), sample(10.0)], 100.0, (10.0, 0.0, 0.0)),
        ([sample(0.0, lookups=5), sample(10.0, lookups=25)], 100.0, (10.0, 0.0, 2.0)),
    ],
)
def test_the_rate(samples: list[TaskSample], window_s: float, expected: tuple[float, float, float] | None) -> None:
    rate = task_rate(samples, task_id="t", window_s=window_s)
    assert expected == (rate and (rate.span_s, rate.files_per_s, rate.lookups_per_s))
    assert rate is None or rate.bytes_per_s == 100.0 * rate.files_per_s


@pytest.mark.parametrize(
    ("counted", "moved"),
    [
        ((), 0),
        (((5, 1.0), (9, 2.0)), 9),
        (((5, 1.0), (9, 2.0), (0, 0.0), (0, 0.0)), 9),
        (((5, 1.0), (9, 2.0), (0, 0.0), (3, 1.0), (20, 9.0)), 29),
        (((9, 2.0), (4, 0.5), (2, 0.2), (1, 0.1)), 16),
        # glusterd was away from a process that has run on.
        (((5, 1.0), (9, 2.0), (0, 0.0), (12, 4.0)), 12),
    ],
)
def test_files_that_were_moved_before_a_reboot_count_once(counted: tuple[tuple[int, float], ...], moved: int) -> None:
    samples = [sample(float(at), files, runtime_s=runtime_s) for at, (files, runtime_s) in enumerate(counted)]
    others = [sample(0.0, 7, task_id="other"), sample(9.0, 2, host="gl2")]
    assert sum(one.files for one in last_counts(samples)) == moved
    assert sum(one.files for one in last_counts([*samples, *others])) == moved + 9


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([sample(90.0, 4), sample(100.0, 5), sample(190.0, 5)], "gl1 has reported the same counters for 1 min 40 s"),
        ([sample(100.0, 5), sample(190.0, 5), sample(190.0, 9, host="gl2")], "gl1 "),
        # As after a reboot: it neither works nor has ended.
        ([sample(100.0, status=TaskStatus.NOT_STARTED)], "gl1 "),
        ([sample(100.0, 5), sample(160.0, 6)], ""),
        # Reading directories is work too.
        ([sample(100.0, 5), sample(190.0, 5, lookups=1)], ""),
        ([sample(10.0, 5), sample(100.0, 6), sample(190.0, 5)], ""),
        *(([sample(100.0, 5, status=one)], "") for one in (TaskStatus.COMPLETED, TaskStatus.FAILED)),
    ],
)
def test_a_host_with_unchanged_counters_is_stalled(samples: list[TaskSample], words: str) -> None:
    found = stalled_hosts(samples, task_id="t", now_s=200.0, limit_s=50.0, names=NAMES)
    assert found.startswith(words)
    assert bool(found) is bool(words)


def polls(*runtimes_s: float, **facts: Any) -> list[TaskSample]:
    """Every 30 s, the last one now."""
    every = enumerate(reversed(runtimes_s))
    return [sample(200.0 - 30.0 * back, runtime_s=runtime_s, **facts) for back, runtime_s in every]


def lost(samples: list[TaskSample], *, now_s: float = 200.0, since_s: float = 0.0) -> str:
    return lost_processes(samples, task_id="t", since_s=since_s, now_s=now_s, limit_s=60.0, names=NAMES)


def test_an_unchanged_run_time_means_a_lost_process() -> None:
    still = polls(3.0, 4.0, 4.0, 4.0, 4.0, host="id of gl3")
    assert lost(still).startswith("on gl3 ")
    assert lost(still).endswith(" 1 min 30 s")
    # After a restart of its glusterd nothing is reported any more.
    assert "on gl1" in lost(polls(40.0, 0.0, 0.0, 0.0, 0.0))
    # Every host and task by itself.
    others = [sample(one.at_s, runtime_s=one.at_s, host="gl2") for one in polls(0.0, 0.0, 0.0, 0.0)]
    older = polls(1.0, 1.0, 1.0, 1.0, task_id="before")
    assert lost([*others, *older]) == ""
    assert lost([*others, *older, *polls(2.0, 2.0, 2.0, 2.0)]).startswith("on gl1 ")
    # Polls while a part of the volume was missing prove nothing.
    assert lost(still, since_s=still[2].at_s) == ""
    assert (lost_after_s(0.2), lost_after_s(15.0), lost_after_s(30.0)) == (60.0, 60.0, 120.0)


@given(st.lists(st.floats(0.5, 1000.0), min_size=1, max_size=20))
def test_a_process_that_lives_is_never_taken_for_lost_however_seldom_it_is_polled(gaps_s: list[float]) -> None:
    at_s, samples = 0.0, []
    for gap_s in gaps_s:
        at_s += gap_s
        samples.append(sample(at_s, runtime_s=float(int(at_s))))
        assert lost(samples, now_s=at_s) == ""


@pytest.mark.parametrize(
    ("files", "size_bytes", "total", "words"),
    [
        (400, 4 * GIB, (1000, 10 * GIB), "400 of 1,000 files, 4.0 GiB of 10.0 GiB"),
        (1, 37, (None, None), "1 file, 37 B"),
        # A share of what lay there is not told where more than that was moved.
        (1, 37, (0, 0), "1 file, 37 B, with what other bricks had to move"),
        (1200, 4 * GIB, (1000, 10 * GIB), "1,200 files, 4.0 GiB, with what other bricks had to move"),
    ],
)
def test_progress_in_one_line(files: int, size_bytes: int, total: tuple[int | None, int | None], words: str) -> None:
    facts: dict[str, Any] = {"files": files, "size_bytes": size_bytes, "failures": 2, "skipped": 1, "elapsed_s": 60.0}
    facts |= {"bricks": ("gl3:/b",), "step": "draining", "total_files": total[0], "total_bytes": total[1]}
    line = f"draining gl3:/b: {words}, time left unknown, 2 failures, 1 skipped, 1 min"
    assert snapshot_line(made(DrainProgress, **facts)) == line


# Audits.


def walk(**facts: Any) -> BrickAudit:
    return BrickAudit(**{"brick": "gl1:/b", **facts})


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, None),
        ({"failure": "gl1 is lost"}, "gl1:/b: gl1 is lost"),
        ({"unreadable": 2, "problems": ("a: EIO", "b: EIO")}, "2 paths could not be read: a: EIO; b: EIO"),
        ({"vanished": 1}, "1 path vanished"),
        ({"listed": 3, "arrived": 2}, "of 3 entries 2 arrived"),
    ],
)
def test_an_audit_is_complete_only_if_every_walk_is(facts: dict[str, Any], reason: str | None) -> None:
    audit = audit_of([walk(**facts), walk(brick="gl2:/b")], started_at_s=5.0)
    assert (audit.whole, audit.clean) == (reason is None, reason is None)
    assert reason is None or reason in audit.reasons[0]
    assert not audit_of([], started_at_s=5.0).whole


def test_leftovers_are_counted_once_over_all_bricks() -> None:
    same = [walk(brick=f"gl{number}:/b", listed=1, arrived=1, left=(b"a",)) for number in (1, 2, 3)]
    audit = audit_of(same, started_at_s=5.0)
    assert (audit.left, audit.examples, audit.clean) == (1, (b"a",), False)
    other = walk(brick="gl2:/b", listed=2, arrived=2, left=(b"b", b"c"), unsure=4, may_be_data=(b"d",))
    audit = audit_of([same[0], other], started_at_s=5.0)
    assert (audit.whole, audit.left, audit.unsure) == (True, 3, 4)
    assert audit.examples == (b"a", b"b", b"c", b"d")


@pytest.mark.parametrize("counts", [{"listed": 0, "arrived": 40}, {"listed": 40, "arrived": 0}])
def test_the_greater_count_is_believed_and_few_paths_are_kept(counts: dict[str, int]) -> None:
    many = tuple(b"%d" % number for number in range(2 * MOST_EXAMPLES))
    audit = audit_of([walk(left=many, **counts)], started_at_s=5.0)
    assert (audit.left, len(audit.examples)) == (40, MOST_EXAMPLES)


WINDOW_S = RATE_WINDOW_S


def looks(seed: int) -> list[TaskSample]:
    """Some tasks, one after the other, on hosts that are rebooted, that tell nothing for a moment, and that are missing at times."""
    dice = random.Random(seed)
    found, at_s = [], 0.0
    pause_s = dice.choice((30.0, 400.0, 3000.0))
    for task in range(dice.randrange(1, 4)):
        hosts = {f"h{number}": [0, 0, 0.0] for number in range(dice.randrange(1, 4))}
        for _ in range(dice.randrange(150)):
            at_s += pause_s
            for host, counters in hosts.items():
                if dice.random() < 0.02:
                    counters[:] = [0, 0, 0.0]
                counters[0] += dice.choice((0, 0, 3))
                counters[1] += dice.choice((0, 10))
                counters[2] += pause_s
                if dice.random() < 0.1:
                    continue
                files, size_bytes, runtime_s = (0, 0, 0.0) if dice.random() < 0.02 else counters
                facts = {"task_id": f"t{task}", "at_s": at_s, "host": host, "runtime_s": runtime_s, "failures": task}
                found.append(drain_sample(round(files), round(size_bytes), lookups=round(2 * counters[0]), **facts))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_a_few_samples_give_the_same_progress_as_all(tmp_path: Path, seed: int) -> None:
    every = looks(seed)
    with MigrationLedger.open(tmp_path / "ledger.db", create=True) as ledger:
        drain = do(ledger.drains, plan_drain(ledger), CHECK, START)
        addition = plan_addition(ledger)
        other = plan_drain(ledger, ("gl9:/b",))
        ledger.drains.add_samples(drain.id, every)
        ledger.drains.add_samples(other.id, looks(seed + 100))
        ledger.additions.add_samples(addition.id, every)
        few = ledger.drains.telling_samples(drain.id, recent_s=WINDOW_S)
        kept = ledger.additions.telling_samples(addition.id, recent_s=WINDOW_S)
    assert few == kept == [one for one in every if one in set(few)]
    assert rules_progress.standing(drain, few) == rules_progress.standing(drain, every)
    assert addition_standing(addition, few) == addition_standing(addition, every)
    assert sorted(map(repr, last_counts(few))) == sorted(map(repr, last_counts(every)))
