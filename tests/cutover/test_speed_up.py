"""What measurements before and after a cutover say, and what they do not."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from migrator.core.entry import UserTree
from migrator.cutover.model import MeasuredTree, SpeedUp, TreeMeasurement, TreeTest, Verdict
from migrator.cutover.rules_speed import factor_words, speed_ups, sum_words, sums, user_words, users_of
from migrator.fs.model import Side


def made(
    side: Side,
    seconds: Sequence[float],
    *,
    test: TreeTest = TreeTest.LIST,
    amount: int = 100,
    complete: bool = True,
    failure: str = "",
) -> list[TreeMeasurement]:
    return [
        TreeMeasurement(
            side=side,
            run=run,
            test=test,
            at_s=(100.0 if side is Side.SOURCE else 200.0) + run,
            seconds=each,
            amount=amount,
            complete=complete,
            failure=failure,
        )
        for run, each in enumerate(seconds, 1)
    ]


def judged(before: Sequence[float], after: Sequence[float]) -> SpeedUp:
    (found,) = speed_ups([*made(Side.SOURCE, before), *made(Side.TARGET, after)])
    return found


def test_times_that_lie_far_apart_are_faster_and_the_first_round_does_not_count() -> None:
    found = judged([900.0, 8.0, 8.2, 7.8], [0.001, 2.0, 2.1, 1.9])
    assert found.verdict is Verdict.FASTER
    assert found.factor == pytest.approx(4.0, rel=0.01)
    assert found.low is not None
    assert 1 < found.low < 4.0 < (found.high or 0)
    assert found.before == pytest.approx(8.0)
    assert (found.unit, found.runs) == ("s", 3)
    assert judged([9.0, 2.0, 2.1, 1.9], [9.0, 8.0, 8.2, 7.8]).verdict is Verdict.SLOWER


def test_noise_is_no_difference_and_a_single_run_is_said_to_be_one() -> None:
    assert judged([1.0, 5.0, 1.0, 3.0], [1.0, 2.0, 4.0, 1.5]).verdict is Verdict.NO_DIFFERENCE
    single = judged([90.0], [7.0, 1.0, 1.0, 1.0])
    assert (single.verdict, single.low, single.runs) == (Verdict.SINGLE, None, 1)
    assert factor_words(single) == "90.0 times as fast (a single run)"
    assert judged([9.0, 8.0, 8.1], [1.0, 2.0, 2.1]).verdict is Verdict.SINGLE, "of the three rounds two count"


def test_what_did_not_end_is_compared_by_what_it_did_and_du_not_at_all() -> None:
    cut = [
        *made(Side.SOURCE, [20.0], amount=1000, complete=False),
        *made(Side.TARGET, [10.0, 5.0, 4.0], amount=2000),
        *made(Side.SOURCE, [20.0], test=TreeTest.USAGE, amount=0, complete=False),
        *made(Side.TARGET, [1.0], test=TreeTest.USAGE, amount=0),
    ]
    (found,) = speed_ups(cut)
    assert (found.test, found.verdict, found.unit) == (TreeTest.LIST, Verdict.SINGLE, "lines/s")
    assert (found.before, found.after) == (50.0, 450.0)


def test_a_tree_of_which_less_was_moved_is_not_faster_for_that() -> None:
    """What was archived or skipped is not listed on the target, and half of the entries take half of the time."""
    rounds = [9.0, 4.0, 4.1, 3.9]
    halves = [each / 2 for each in rounds]
    reaped = [
        *made(Side.SOURCE, rounds, amount=10_000),
        *made(Side.TARGET, halves, amount=5_000),
        *made(Side.SOURCE, rounds, test=TreeTest.USAGE, amount=0),
        *made(Side.TARGET, halves, test=TreeTest.USAGE, amount=0),
    ]
    listed, used = speed_ups(reaped)
    for found in (listed, used):
        assert (found.verdict, found.unit) == (Verdict.NO_DIFFERENCE, "lines/s")
        assert found.factor == pytest.approx(1.0)
        assert found.before == pytest.approx(2500.0, rel=0.01)


def test_a_user_who_has_made_a_few_files_meanwhile_is_compared_by_time() -> None:
    (found,) = speed_ups([*made(Side.SOURCE, [20.0], amount=1000), *made(Side.TARGET, [10.0], amount=1010)])
    assert found.unit == "s"
    assert found.factor == pytest.approx(2.0)


def test_a_du_is_compared_by_time_where_nothing_says_that_the_trees_differ() -> None:
    cut = [
        *made(Side.SOURCE, [20.0], amount=1000, complete=False),
        *made(Side.TARGET, [10.0], amount=5000),
        *made(Side.SOURCE, [8.0], test=TreeTest.USAGE, amount=0),
        *made(Side.TARGET, [4.0], test=TreeTest.USAGE, amount=0),
    ]
    _, used = speed_ups(cut)
    assert used.unit == "s"
    assert used.factor == pytest.approx(2.0)


def test_reading_is_compared_by_bytes_per_second() -> None:
    read = [
        *made(Side.SOURCE, [1.0, 2.0], test=TreeTest.READ, amount=1000),
        *made(Side.TARGET, [1.0, 2.0], test=TreeTest.READ, amount=500),
    ]
    (found,) = speed_ups(read)
    assert found.unit == "bytes/s"
    assert found.factor == pytest.approx(0.5)


def test_what_failed_or_was_measured_on_one_side_alone_says_nothing() -> None:
    assert speed_ups(made(Side.SOURCE, [1.0, 2.0])) == ()
    assert speed_ups([*made(Side.SOURCE, [1.0]), *made(Side.TARGET, [1.0], failure="ls ended with 2")]) == ()
    assert speed_ups([*made(Side.SOURCE, [1.0], complete=False, amount=0), *made(Side.TARGET, [1.0])]) == ()
    assert user_words("ann", ()) == ""


def tree(user: str, before: Sequence[float], after: Sequence[float], later_s: float = 0.0) -> MeasuredTree:
    every = [*made(Side.SOURCE, before), *made(Side.TARGET, after)]
    moved = tuple(replace(one, at_s=one.at_s + later_s, amount=1) for one in every)
    return MeasuredTree(tree=UserTree(path=user.encode(), user=user), plan="p", batch=1, measurements=moved)


def test_only_users_beyond_the_noise_count_as_faster_and_the_median_is_over_all() -> None:
    trees = [
        tree("ann", [9.0, 8.0, 8.2, 7.8], [9.0, 2.0, 2.1, 1.9]),
        tree("ben", [9.0], [3.0], later_s=9.0),
        tree("cat", [1.0, 5.0, 1.0, 3.0], [1.0, 5.0, 1.0, 3.0]),
        MeasuredTree(
            tree=UserTree(path=b"dan", user="dan"), plan="p", batch=1, measurements=tuple(made(Side.SOURCE, [1.0]))
        ),
    ]
    users = users_of(trees)
    assert [one.tree.user for one in users] == ["ben", "ann", "cat"], "the newest first; dan has nothing to compare"
    (total,) = sums(users)
    assert total.users == 3
    assert total.median == pytest.approx(3.0)
    assert dict(total.verdicts) == {
        Verdict.FASTER: 1,
        Verdict.SLOWER: 0,
        Verdict.NO_DIFFERENCE: 1,
        Verdict.SINGLE: 1,
    }
    assert sum_words(total) == (
        "ls -lR: 3.00 times as fast on the target (median of 3 users): 1 faster and 0 slower beyond the noise, "
        "1 without a difference beyond it, 1 of whose noise nothing is known (too few runs)."
    )
    assert user_words("ben", users[0].speed_ups) == (
        "for ben the target is, beside the source: ls -lR 3.00 times as fast (a single run)"
    )
