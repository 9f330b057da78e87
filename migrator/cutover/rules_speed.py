"""The speed of a user's tree before and after the cutover: measurements and their evaluation. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import median

from msgspec import Struct

from migrator.core.entry import UserTree
from migrator.core.statistics import Factor, factor_between
from migrator.core.units import format_factor, several
from migrator.cutover.model import CutoverRecord
from migrator.fs.model import Side


class TreeTest(StrEnum):
    """The tests in the tree: `ls -lR`, `du -s`, and reading a sample of its files."""

    LIST = "list"
    USAGE = "usage"
    READ = "read"

    @property
    def words(self) -> str:
        """A description of the test."""
        return {TreeTest.LIST: "ls -lR", TreeTest.USAGE: "du -s", TreeTest.READ: "read a sample"}[self]


class TreeMeasurement(Struct, frozen=True, kw_only=True):
    """One run of one test; `run` counts from 1 on each side.

    `amount` is the number of lines that `ls` printed, or of bytes read; 0 for `du`. `complete` is False if the time
    limit ended the test; `amount` is then the amount until the limit. `cold`: the sample's pages were dropped from the
    cache before; None if the test reads no files. `failure` is why the test could not run.
    """

    side: Side
    run: int
    test: TreeTest
    at_s: float
    seconds: float
    amount: int
    complete: bool
    cold: bool | None = None
    failure: str = ""


class TreeVisited(Struct, frozen=True, kw_only=True):
    """The measurements, in order; `files` are those that were read. `problem` is the failure; the measurements before
    it still count.
    """

    measurements: tuple[TreeMeasurement, ...]
    files: tuple[bytes, ...]
    problem: str = ""


class SpeedVerdict(StrEnum):
    """The result of a test. `single`: too few runs to estimate the noise."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no-difference"
    SINGLE = "single"


class SpeedUp(Struct, frozen=True, kw_only=True):
    """One test of a tree before and after its move."""

    test: TreeTest
    """The test."""
    verdict: SpeedVerdict
    """Its result."""
    factor: float
    """How many times as fast the target is; below 1: slower."""
    low: float | None
    """Lower end of the factor's interval (docs/bench.md); None if there is none."""
    high: float | None
    """Upper end of the interval."""
    before: float
    """Median on the source, in the unit."""
    after: float
    """Median on the target, in the unit."""
    unit: str
    """`s`; `lines/s` or `bytes/s` if a side did not finish, or the amounts differ."""
    runs: int
    """Valid runs on the side that has fewer."""


class UserSpeedUps(Struct, frozen=True, kw_only=True):
    """The effect of the move of one tree for its user."""

    tree: UserTree
    plan: str
    batch: int
    at_s: float
    """When it was measured on the target."""
    speed_ups: tuple[SpeedUp, ...]
    """The result of each test."""


class SpeedUpSum(Struct, frozen=True, kw_only=True):
    """One test over all users."""

    test: TreeTest
    """The test."""
    users: int
    """Number of users."""
    median: float
    """Median of their factors."""
    verdicts: Mapping[SpeedVerdict, int]
    """Number of users by verdict."""


SECONDS = "s"
_SAME_SHARE = 0.02
"""Two trees are compared by time if the numbers of lines in their listings differ by no more than this share."""


def speed_ups(measurements: Sequence[TreeMeasurement]) -> tuple[SpeedUp, ...]:
    """The comparison of each test that has comparable results on both sides.

    The first round on a side finds in memory what others have read: the verification on the target, other users on the
    source. So it counts only if the side has no other round. Times are compared if both sides finished, otherwise the
    amount done per second.

    The trees may differ after the move: the target lacks archived and skipped files, and users continue to work. If the
    two listings show that, they are compared by lines per second too. `du` reports no amount, so it yields no
    comparison then, nor if it did not finish.
    """
    found = []
    differ = _trees_differ(measurements)
    for test in TreeTest:
        before, after = (_counted(measurements, side, test) for side in (Side.SOURCE, Side.TARGET))
        if before and after and (one := _speed_up(test, before, after, differ=differ)) is not None:
            found.append(one)
    return tuple(found)


def users_of(cutovers: Iterable[tuple[CutoverRecord, Sequence[TreeMeasurement]]]) -> tuple[UserSpeedUps, ...]:
    """The trees that were measured on both sides, the newest first."""
    found = [
        UserSpeedUps(
            tree=one.tree,
            plan=one.plan,
            batch=one.batch,
            at_s=max(each.at_s for each in measurements),
            speed_ups=every,
        )
        for one, measurements in cutovers
        if (every := speed_ups(measurements))
    ]
    return tuple(sorted(found, key=lambda one: (-one.at_s, one.tree.path)))


def sums(users: Sequence[UserSpeedUps]) -> tuple[SpeedUpSum, ...]:
    """Each test over all users. The median includes results within the noise."""
    found = []
    for test in TreeTest:
        every = [one for user in users for one in user.speed_ups if one.test is test]
        if every:
            verdicts = {verdict: sum(one.verdict is verdict for one in every) for verdict in SpeedVerdict}
            middle = median(one.factor for one in every)
            found.append(SpeedUpSum(test=test, users=len(every), median=middle, verdicts=verdicts))
    return tuple(found)


def describe_factor(one: SpeedUp) -> str:
    """As `3.20 times as fast (2.90 to 3.50)`."""
    factor = f"{format_factor(one.factor)} times as fast"
    if one.verdict is SpeedVerdict.SINGLE or one.low is None or one.high is None:
        return f"{factor} ({several(one.runs, 'run')}: noise unknown)"
    interval = f"{format_factor(one.low)} to {format_factor(one.high)}"
    no = one.verdict is SpeedVerdict.NO_DIFFERENCE
    return f"no difference beyond the noise ({factor}, {interval})" if no else f"{factor} ({interval})"


def describe_user(user: str, every: Sequence[SpeedUp]) -> str:
    """One sentence about one user; empty if nothing was compared."""
    if not every:
        return ""
    return f"for {user} the target is, beside the source: " + "; ".join(
        f"{one.test.words} {describe_factor(one)}" for one in every
    )


def describe_sum(one: SpeedUpSum) -> str:
    """As `ls -lR: 4.10 times as fast (median of 12 users); beyond the noise 10 are faster and 1 is slower; ...`."""
    counts = one.verdicts
    parts = [
        f"{counts[SpeedVerdict.FASTER]} faster and {counts[SpeedVerdict.SLOWER]} slower beyond the noise",
        f"{counts[SpeedVerdict.NO_DIFFERENCE]} without a difference beyond it",
    ]
    if counts[SpeedVerdict.SINGLE]:
        parts.append(f"{counts[SpeedVerdict.SINGLE]} with unknown noise (too few runs)")
    who = "1 user" if one.users == 1 else f"median of {several(one.users, 'user')}"
    return f"{one.test.words}: {format_factor(one.median)} times as fast on the target ({who}): {', '.join(parts)}."


def _counted(measurements: Sequence[TreeMeasurement], side: Side, test: TreeTest) -> list[TreeMeasurement]:
    made = [
        one
        for one in measurements
        if one.side is side
        and one.test is test
        and not one.failure
        and one.seconds > 0
        and (one.complete or one.amount)
    ]
    return [one for one in made if one.run > 1] or made


def _trees_differ(measurements: Sequence[TreeMeasurement]) -> bool:
    """True if `ls` writes a different number of lines for the tree before and after; False if that is not known."""
    before, after = (
        [one.amount for one in _counted(measurements, side, TreeTest.LIST) if one.complete]
        for side in (Side.SOURCE, Side.TARGET)
    )
    if not before or not after:
        return False
    lines = (median(before), median(after))
    return max(lines) - min(lines) > _SAME_SHARE * max(lines)


def _speed_up(
    test: TreeTest, before: Sequence[TreeMeasurement], after: Sequence[TreeMeasurement], *, differ: bool
) -> SpeedUp | None:
    by_time = test is not TreeTest.READ and not differ and all(one.complete for one in (*before, *after))
    if not by_time and test is TreeTest.USAGE:
        return None
    if by_time:
        ones, twos = ([one.seconds for one in side] for side in (before, after))
        unit, factor = SECONDS, factor_between(twos, ones)
    else:
        ones, twos = ([one.amount / one.seconds for one in side] for side in (before, after))
        unit, factor = "bytes/s" if test is TreeTest.READ else "lines/s", factor_between(ones, twos)
    if factor is None:
        return None
    return SpeedUp(
        test=test,
        verdict=_verdict(factor),
        factor=factor.factor,
        low=factor.low,
        high=factor.high,
        before=median(ones),
        after=median(twos),
        unit=unit,
        runs=factor.count,
    )


def _verdict(factor: Factor) -> SpeedVerdict:
    if factor.beyond_noise is None:
        return SpeedVerdict.SINGLE
    faster = SpeedVerdict.FASTER if factor.factor > 1 else SpeedVerdict.SLOWER
    return faster if factor.beyond_noise else SpeedVerdict.NO_DIFFERENCE
