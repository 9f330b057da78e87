"""The speed of a user's tree before and after the cutover. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import UserTree
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
