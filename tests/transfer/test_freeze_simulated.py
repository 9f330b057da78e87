"""Predicted freezes against simulated ones, and loops of decisions that end."""

import math
import random
from collections.abc import Callable, Iterator

import pytest

from migrator.plan.model import TransferCost
from migrator.transfer.model import ConvergenceOutcome, Decision, FreezeCheck, PassFacts, PassLimits
from migrator.transfer.rules_convergence import decide
from tests.transfer.changing_site import ChangingSite

HISTORIES = 500
BAND = (0.75, 2.0)
"""Of the predicted freeze by the simulated one. The prediction has a margin of a quarter on what it expects."""

STREAMS = 4

Kind = Callable[[int, random.Random], ChangingSite]


def constant(seed: int, chance: random.Random) -> ChangingSite:
    rate = 10 ** chance.uniform(-2, 1)
    return ChangingSite(seed=seed, rate=lambda _: rate, scan_s=10 ** chance.uniform(0.5, 3))


def by_the_hour(seed: int, chance: random.Random) -> ChangingSite:
    """Busier at daytime than at night."""
    rate, phase = 10 ** chance.uniform(-2, 0.7), chance.uniform(0, math.tau)
    return ChangingSite(
        seed=seed,
        rate=lambda at_s: rate * (1.2 + math.sin(phase + at_s / 86400 * math.tau)),
        scan_s=10 ** chance.uniform(1, 3),
    )


def growing(seed: int, chance: random.Random) -> ChangingSite:
    """Users change more than streams bring over: every pass is longer than the one before, and finds more."""
    rate = chance.uniform(1.0, 1.6) / (0.002 + 1e6 / 4e8)
    return ChangingSite(seed=seed, rate=lambda _: rate, scan_s=60.0, seed_pass_s=500.0)


def bursts(seed: int, chance: random.Random) -> ChangingSite:
    """Now and then a job writes for a while, thirty times as much as users do."""
    rate, every_s = 10 ** chance.uniform(-2, 0), chance.uniform(1800, 20_000)
    lasts_s = every_s * chance.uniform(0.02, 0.1)
    return ChangingSite(
        seed=seed,
        rate=lambda at_s: rate * (30 if at_s % every_s < lasts_s else 1),
        scan_s=10 ** chance.uniform(1, 2.5),
    )


def silent(seed: int, chance: random.Random) -> ChangingSite:
    return ChangingSite(seed=seed, rate=lambda _: 0.0, scan_s=10 ** chance.uniform(0, 3))


def huge_scan(seed: int, chance: random.Random) -> ChangingSite:
    rate = 10 ** chance.uniform(-2, 0)
    return ChangingSite(seed=seed, rate=lambda _: rate, scan_s=chance.uniform(3600, 20_000))


def hot_files(seed: int, chance: random.Random) -> ChangingSite:
    """Logs and databases that change all the time."""
    rate = 10 ** chance.uniform(-2, 0)
    return ChangingSite(
        seed=seed, rate=lambda _: rate, hot=chance.randrange(10, 5000), scan_s=10 ** chance.uniform(1, 2.5)
    )


KINDS = (constant, by_the_hour, growing, bursts, silent, huge_scan, hot_files)


def worlds(kind: Kind, count: int = HISTORIES) -> Iterator[tuple[ChangingSite, random.Random]]:
    for seed in range(count):
        chance = random.Random(seed)
        yield kind(seed, chance), chance


def measured(site: ChangingSite, chance: random.Random) -> TransferCost:
    """What attempts would have said: a fifth off now and then, and so much for one of several streams."""
    off = chance.gauss(1.0, 0.2)
    off = min(max(off, 0.5), 2.0)
    return TransferCost(
        s_per_file=site.s_per_file * STREAMS * off,
        s_per_byte=STREAMS * off / site.bytes_per_s,
        streams=STREAMS,
        basis="measured here",
    )


def to_the_end(
    site: ChangingSite, cost: TransferCost, limits: PassLimits, check: FreezeCheck | None = None
) -> tuple[list[PassFacts], list[Decision]]:
    """Passes and decisions until one says that there is to be no other."""
    passes: list[PassFacts] = []
    decisions: list[Decision] = []
    earlier_freeze_s = None
    for one in site.passes():
        passes.append(one)
        decision = decide(
            passes,
            batch=1,
            at_s=one.finished_at_s,
            cost=cost,
            check=check or FreezeCheck(s_per_file=site.check_s_per_file),
            limits=limits,
            made=len(passes) - 1,
            earlier_freeze_s=earlier_freeze_s,
        )
        decisions.append(decision)
        if not decision.go_on:
            break
        assert len(passes) <= limits.max_delta_passes
        earlier_freeze_s = decision.prediction.freeze_s if decision.prediction else None
    return passes, decisions


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        (constant, 0.9),
        (by_the_hour, 0.9),
        (growing, 0.95),
        (bursts, 0.9),
        (silent, 0.95),
        (huge_scan, 0.95),
        # After one delta pass nothing tells what changes all the time from what changed once in a long time.
        (hot_files, 0.8),
    ],
)
def test_most_freezes_are_as_long_as_predicted(kind: Kind, most: float) -> None:
    within = 0
    for site, chance in worlds(kind):
        limits = PassLimits(max_freeze_s=10 ** chance.uniform(1, 4), max_delta_passes=8)
        passes, decisions = to_the_end(site, measured(site, chance), limits)
        prediction = decisions[-1].prediction
        assert prediction is not None
        within += BAND[0] <= prediction.freeze_s / site.freeze_s(passes[-1]) <= BAND[1]
    assert within >= most * HISTORIES


@pytest.mark.parametrize("kind", KINDS)
def test_passes_end_by_themselves_also_where_no_limit_is_near_and_no_freeze_is_short_enough(kind: Kind) -> None:
    for site, chance in worlds(kind, 50):
        passes, decisions = to_the_end(
            site, measured(site, chance), PassLimits(max_freeze_s=0.0, max_delta_passes=1000)
        )
        assert decisions[-1].outcome in (ConvergenceOutcome.NO_LONGER_SHRINKS, ConvergenceOutcome.NOTHING_CHANGED)
        assert len(passes) < 50
