"""How good the expected dates are: simulated migrations, replayed day by day.

The simulations have nights, outages, growth, users who clean up, days without cutovers, retention and drains. The dates
expected on each day are compared with the true ends. Beside them stands a naive estimate: the bytes left at the bytes per
second so far.
"""

from collections.abc import Sequence

from bench.options import Options
from bench.results import Section
from migrator.core.units import DAY_S
from migrator.report.model import RANGE_SHARE, Goal
from migrator.report.view_status import GOALS
from tests.support.migrations import WAYS, Look, by_migration, errors, held, late, replay

NAME = "forecast"
MIGRATIONS, LARGE_MIGRATIONS = 120, 2000
FIRST_SEED = 10_000
"""Not those to which the constants were fitted."""


def forecast(options: Options) -> Section:
    count = options.count(LARGE_MIGRATIONS if options.large else MIGRATIONS, 20)
    first = FIRST_SEED * options.seed
    looks = [look for seed in range(first, first + count) for look in replay(seed)]
    ways = " and ".join((", ".join(f"{way * 100:.0f}" for way in WAYS[:-1]), f"{WAYS[-1] * 100:.0f} %"))
    return Section(
        name=NAME,
        title="Expected dates",
        facts={
            "migrations": f"{count:,} simulated ones, {len(looks):,} expected dates; they end after "
            f"{_days(looks, 0.1):.0f} to {_days(looks, 0.9):.0f} days (8 of 10)",
            **{GOALS[goal]: _words(looks, goal) for goal in Goal},
        },
        tables=(),
        notes=(
            f"In the range: the true ends that lie in the shown range; {RANGE_SHARE * 100:.0f} % are wanted. Each migration "
            "counts once, and only dates that have a range: without a measured stage there is none.",
            f"Error: the median at {ways} of the way, as a share of the time left then. Beside it, that of the bytes left at the "
            "bytes per second since the begin; for all of it, with the retention after them.",
            "The constants of the forecast were fitted to other simulations of the same kind. Decisions of people, such as a "
            "pause of a month, are in none.",
        ),
    )


def _words(looks: Sequence[Look], goal: Goal) -> str:
    likely = errors(looks, goal, lambda look: look.likely_s)
    dates = [look for some in by_migration(looks, goal) for look in some]
    ranged = sum(look.is_held is not None for look in dates) / len(dates)
    words = (
        f"{ranged * 100:.0f} % have a range; {held(looks, goal) * 100:.0f} % in the range, {late(looks, goal) * 100:.0f} % after the likely end; "
        f"error {_percents(likely)}"
    )
    if any(look.naive_s is not None for look in dates):
        words += f", by bytes per second {_percents(errors(looks, goal, lambda look: look.naive_s))}"
    return words


def _percents(shares: Sequence[float]) -> str:
    return f"{', '.join(f'{share * 100:.0f}' for share in shares)} %"


def _days(looks: Sequence[Look], share: float) -> float:
    """The length of the migration at a share of all, by length."""
    lengths = sorted(some[0].whole_s / DAY_S for some in by_migration(looks, Goal.COMPLETE))
    return lengths[round(share * (len(lengths) - 1))]
