"""What a user's own tree is like to work in: measured on the source just before his cutover, and on the target just after it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from migrator.domain.capacity import Side
from migrator.domain.tree import UserTree


class TreeTest(StrEnum):
    """What is done in the tree: `ls -lR`, `du -s`, and reading a sample of its files."""

    LIST = "list"
    USAGE = "usage"
    READ = "read"

    @property
    def words(self) -> str:
        """For people."""
        return {TreeTest.LIST: "ls -lR", TreeTest.USAGE: "du -s", TreeTest.READ: "read a sample"}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeMeasurement:
    """One test, made once; `run` counts from 1 on each side. `amount` is the lines that `ls` has written, or the bytes that were
    read; 0 of `du`. `complete` False: the time was over before the end, and `amount` is what was done until then. `cold` says whether
    the pages of the sample were dropped before; None where nothing is read. `failure` is why it could not be made.
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


class Verdict(StrEnum):
    """What a test says of the move. `single`: there are too few runs to know of noise."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no-difference"
    SINGLE = "single"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedUp:
    """One test before and after. `factor` is how many times as fast the target is (below 1: slower), `low` and `high` its interval
    (docs/bench.md), None where there is none. `before` and `after` are medians: seconds, or the `unit` per second where a side did not come to
    its end or was not asked for the same amount. `runs` are those that count on the side that has fewer.
    """

    test: TreeTest
    verdict: Verdict
    factor: float
    low: float | None
    high: float | None
    before: float
    after: float
    unit: str
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSpeedUps:
    """What the move of one tree has changed for its user. `at_s` is when it was measured on the target."""

    tree: UserTree
    plan: str
    batch: int
    at_s: float
    speed_ups: tuple[SpeedUp, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTree:
    """All measurements around the newest cutover of a tree whose user works on the target."""

    tree: UserTree
    plan: str
    batch: int
    measurements: tuple[TreeMeasurement, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedUpSum:
    """One test over all users: `median` of the factors, and how many users have which verdict."""

    test: TreeTest
    users: int
    median: float
    verdicts: Mapping[Verdict, int]
