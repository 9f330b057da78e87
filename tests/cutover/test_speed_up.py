"""What measurements before and after a cutover say, and what they do not."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.core.entry import UserTree
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.cutover.rules_speed import (
    SpeedUp,
    SpeedVerdict,
    TreeMeasurement,
    TreeTest,
    describe_sum,
    describe_user,
    speed_ups,
    sums,
    users_of,
)
from migrator.fs.model import Side
from tests.support import making


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
    assert found.verdict is SpeedVerdict.FASTER
    assert found.factor == pytest.approx(4.0, rel=0.01)
    assert found.low is not None
    assert 1 < found.low < 4.0 < (found.high or 0)
    assert found.before == pytest.approx(8.0)
    assert (found.unit, found.runs) == ("s", 3)
    assert judged([9.0, 2.0, 2.1, 1.9], [9.0, 8.0, 8.2, 7.8]).verdict is SpeedVerdict.SLOWER


def rounds(test: TreeTest, before: Sequence[float], after: Sequence[float], **amounts: Any) -> list[TreeMeasurement]:
    """The first of a pair in `amounts` is of the source."""
    sides = zip((Side.SOURCE, Side.TARGET), (before, after), (0, 1), strict=True)
    return [
        one
        for side, seconds, at in sides
        for one in made(side, seconds, test=test, **{name: pair[at] for name, pair in amounts.items()})
    ]


def test_runs_of_different_amounts_are_compared_by_rate() -> None:
    # One side did not end: a `du` says nothing then.
    cut = rounds(TreeTest.LIST, [20.0], [10.0, 5.0, 4.0], amount=(1000, 2000), complete=(False, True))
    (found,) = speed_ups([*cut, *rounds(TreeTest.USAGE, [20.0], [1.0], amount=(0, 0), complete=(False, True))])
    assert (found.test, found.verdict, found.unit) == (TreeTest.LIST, SpeedVerdict.SINGLE, "lines/s")
    assert (found.before, found.after) == (50.0, 450.0)
    # What was archived is not listed on the target: half of the entries in half of the time is no difference.
    slow, fast = [9.0, 4.0, 4.1, 3.9], [4.5, 2.0, 2.05, 1.95]
    reaped = rounds(TreeTest.LIST, slow, fast, amount=(10_000, 5_000))
    (found,) = speed_ups([*reaped, *rounds(TreeTest.USAGE, slow, fast, amount=(0, 0))])
    assert (found.verdict, found.unit) == (SpeedVerdict.NO_DIFFERENCE, "lines/s")
    assert found.factor == pytest.approx(1.0)
    (found,) = speed_ups(rounds(TreeTest.READ, [1.0, 2.0], [1.0, 2.0], amount=(1000, 500)))
    assert found.unit == "bytes/s"
    assert found.factor == pytest.approx(0.5)
    # A few files more are the same tree.
    more = rounds(TreeTest.LIST, [20.0], [10.0], amount=(1000, 1010))
    for found in speed_ups([*more, *rounds(TreeTest.USAGE, [8.0], [4.0], amount=(0, 0))]):
        assert found.unit == "s"
        assert found.factor == pytest.approx(2.0)


def test_failed_or_one_sided_measurements_yield_no_comparison() -> None:
    assert speed_ups(made(Side.SOURCE, [1.0, 2.0])) == ()
    assert speed_ups([*made(Side.SOURCE, [1.0]), *made(Side.TARGET, [1.0], failure="ls ended with 2")]) == ()
    assert speed_ups([*made(Side.SOURCE, [1.0], complete=False, amount=0), *made(Side.TARGET, [1.0])]) == ()
    assert describe_user("ann", ()) == ""


def moved(user: str, *measurements: TreeMeasurement) -> tuple[CutoverRecord, Sequence[TreeMeasurement]]:
    tree = UserTree(path=user.encode(), user=user)
    return making.made(CutoverRecord, tree=tree, state=CutoverState.RETAINED), measurements


def both(before: Sequence[float], after: Sequence[float], later_s: float = 0.0) -> list[TreeMeasurement]:
    every = [*made(Side.SOURCE, before), *made(Side.TARGET, after)]
    return [replace(one, at_s=one.at_s + later_s, amount=1) for one in every]


def test_only_users_beyond_the_noise_count_as_faster_and_the_median_is_over_all() -> None:
    trees = [
        moved("ann", *both([9.0, 8.0, 8.2, 7.8], [9.0, 2.0, 2.1, 1.9])),
        moved("ben", *both([9.0], [3.0], later_s=9.0)),
        moved("cat", *both([1.0, 5.0, 1.0, 3.0], [1.0, 5.0, 1.0, 3.0])),
        moved("dan", *made(Side.SOURCE, [1.0])),
    ]
    users = users_of(trees)
    assert [one.tree.user for one in users] == ["ben", "ann", "cat"], "the newest first; dan has nothing to compare"
    (total,) = sums(users)
    assert total.users == 3
    assert total.median == pytest.approx(3.0)
    assert dict(total.verdicts) == {
        SpeedVerdict.FASTER: 1,
        SpeedVerdict.SLOWER: 0,
        SpeedVerdict.NO_DIFFERENCE: 1,
        SpeedVerdict.SINGLE: 1,
    }
    assert describe_sum(total).startswith(
        "ls -lR: 3.00 times as fast on the target (median of 3 users): 1 faster and 0 slower"
    )
    assert describe_user("ben", users[0].speed_ups).endswith("ls -lR 3.00 times as fast (1 run: noise unknown)")
