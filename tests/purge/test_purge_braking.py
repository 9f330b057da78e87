"""A purge reads the probes of its ledger, and removes less while users feel it."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from migrator.core.events import Severity
from migrator.core.probe import OVER_PROBES, UNDER_PROBES, Probe, ProbeSide, ProbeTimes
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.purge.removal import Pace
from migrator.transfer.model import Limits
from tests.support.fakes import VirtualClock

MOST = 1000
LIMIT_S = 0.05


@dataclass
class Purge:
    """A pace with a brake over a real ledger, and what was told."""

    ledger: Ledger
    clock: VirtualClock = field(default_factory=VirtualClock)
    told: list[tuple[Severity, str]] = field(default_factory=list)
    max_latency_s: float | None = LIMIT_S

    def __post_init__(self) -> None:
        self.pace = Pace(
            probes=self.ledger.probes,
            controls=self.ledger.controls,
            clock=self.clock,
            most=MOST,
            max_latency_s=self.max_latency_s,
            say=lambda severity, words: self.told.append((severity, words)),
        )

    def rate(self, names: int = 20_000) -> float:
        """How many names per second go, the pace alone counted."""

        async def take() -> float:
            await self.pace.take(64)
            began_s = self.clock.at_s
            for _ in range(names // 50):
                await self.pace.take(50)
            return names / (self.clock.at_s - began_s)

        return asyncio.run(take())

    def probe(self, latency_s: float, count: int) -> None:
        """So many probes, a minute apart, while names go as the pace lets them."""
        for _ in range(count):
            times = ProbeTimes(create_s=latency_s, write_s=9.0, sync_s=9.0, stat_s=0, unlink_s=0, readdir_s=0)
            self.ledger.probes.add(Probe(side=ProbeSide.SOURCE, at_s=self.clock.now_s(), times=times))
            asyncio.run(self._go_on(self.clock.at_s + 60.0))

    async def _go_on(self, until_s: float) -> None:
        while self.clock.at_s < until_s:
            await self.pace.take(500)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    opened = open_ledger(tmp_path / "ledger.db", create=True)
    yield opened
    opened.close()


def test_it_slows_down_and_goes_on_as_before(ledger: Ledger) -> None:
    purge = Purge(ledger)
    assert purge.rate() == pytest.approx(MOST, rel=0.05)
    purge.probe(2 * LIMIT_S, OVER_PROBES)
    slowed = purge.rate()
    assert slowed == pytest.approx(0.7 * MOST, rel=0.1)
    ((severity, words),) = purge.told
    assert severity is Severity.WARNING
    assert "per second" in words
    purge.probe(LIMIT_S / 10, 4 * UNDER_PROBES)
    assert purge.rate() == pytest.approx(MOST, rel=0.05)
    assert len(purge.told) > 1
    assert {severity for severity, _ in purge.told[1:]} == {Severity.INFO}


@pytest.mark.parametrize(
    ("before", "tuned", "after", "slows"),
    [(3 * OVER_PROBES, False, 0, False), (0, True, OVER_PROBES + 1, True), (4 * OVER_PROBES, True, 0, False)],
    ids=["no limit", "tuned", "tuned after the probes"],
)
def test_probes_count_from_the_time_that_there_is_a_limit(
    ledger: Ledger, before: int, tuned: bool, after: int, slows: bool
) -> None:
    purge = Purge(ledger, max_latency_s=None)
    purge.probe(2 * LIMIT_S, before)
    if tuned:
        ledger.controls.tune(Limits(max_latency_s=LIMIT_S), by="somebody", at_s=purge.clock.at_s)
    purge.probe(2 * LIMIT_S, after)
    rate = purge.rate()
    assert rate < 0.8 * MOST if slows else rate == pytest.approx(MOST, rel=0.05)
    assert bool(purge.told) is slows


def test_it_never_stops(ledger: Ledger) -> None:
    purge = Purge(ledger)
    purge.probe(2 * LIMIT_S, 40 * OVER_PROBES)
    assert 0 < purge.rate(100) <= 1
