"""Predicted freezes against simulated ones, and loops of decisions that end.

The simulated site knows what really happens: which files change when, what a scan, a start and a stream cost. Nothing of it
is shared with what predicts.
"""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from migrator.core.states import PassKind
from migrator.delta.model import ChangeKind, ChangeTally, TreeChanges
from migrator.plan.model import TransferCost
from migrator.transfer.model import ConvergenceOutcome, Decision, FreezeCheck, PassFacts, PassLimits
from migrator.transfer.rules_convergence import decide

HISTORIES = 300
BAND = (0.75, 2.0)
"""Of the predicted freeze by the simulated one. The prediction has a margin of a quarter on what it expects."""
STREAMS, S_PER_FILE, FILE_BYTES, BYTES_PER_S, CHECK_S_PER_FILE, SEED_PASS_S = 4, 0.002, 1e6, 4e8, 0.001, 20_000.0
BURST, BURST_SHARE = 30.0, 0.05
MOST = {
    "steady": 0.9,
    "bursts": 0.9,
    "silent": 0.95,
    "long scans": 0.95,
    # After one delta pass nothing tells what changes all the time from what changed once in a long time.
    "hot files": 0.8,
}
"""The share of freezes that are as long as predicted."""


@dataclass(kw_only=True)
class ChangingSite:
    """`hot` files change all the time: every list holds them. Others change one by one, `rate` of them a second, and more in
    bursts.
    """

    chance: random.Random
    rate: float
    scan_s: float
    hot: int = 0
    bursts_every_s: float = math.inf

    @classmethod
    def of(cls, kind: str, seed: int) -> "ChangingSite":
        chance = random.Random(seed)
        rate, scan_s = 10 ** chance.uniform(-2, 0), 10 ** chance.uniform(1, 2.5)
        return cls(
            chance=chance,
            rate=0.0 if kind == "silent" else rate,
            scan_s=chance.uniform(3600, 20_000) if kind == "long scans" else scan_s,
            hot=chance.randrange(10, 5000) if kind == "hot files" else 0,
            bursts_every_s=chance.uniform(1800, 20_000) if kind == "bursts" else math.inf,
        )

    def about(self, value: float) -> float:
        """A duration as it comes out in the field."""
        return value * max(self.chance.gauss(1.0, 0.1), 0.2)

    def listed(self, from_s: float, to_s: float) -> int:
        """Files in the list of a pass."""

        def changes_until(at_s: float) -> float:
            if math.isinf(self.bursts_every_s):
                return self.rate * at_s
            whole, rest = divmod(at_s, self.bursts_every_s)
            in_bursts_s = BURST_SHARE * self.bursts_every_s * whole + min(rest, BURST_SHARE * self.bursts_every_s)
            return self.rate * (at_s + (BURST - 1) * in_bursts_s)

        return round(changes_until(to_s) - changes_until(from_s)) + self.hot

    def transfer_s(self, files: int) -> float:
        """What a pass takes behind its scan."""
        return self.about(5.0) + self.about(files * (S_PER_FILE + FILE_BYTES / BYTES_PER_S))

    def passes(self) -> Iterator[PassFacts]:
        """The seed pass, and delta passes one upon the other, without end."""
        kind, number, scanned_at_s, now_s, scan_s, files = PassKind.SEED, 0, 0.0, SEED_PASS_S, self.scan_s, 0
        while True:
            tally = ChangeTally(paths=files, size_bytes=round(files * FILE_BYTES))
            yield PassFacts(
                kind=kind,
                number=number,
                scanned_at_s=scanned_at_s,
                scan_s=scan_s,
                started_at_s=scanned_at_s + scan_s,
                finished_at_s=now_s,
                sent_files=files,
                sent_bytes=tally.size_bytes,
                trees=(TreeChanges(tree=b"t", names_before=9, bytes_before=9, by_kind={ChangeKind.REWRITTEN: tally}),),
            )
            kind, number, scan_s = PassKind.DELTA, number + 1, self.about(self.scan_s)
            files = self.listed(scanned_at_s, now_s)
            scanned_at_s, now_s = now_s, now_s + scan_s + self.transfer_s(files)

    def freeze_s(self, last: PassFacts) -> float:
        """How long the users wait if they are frozen when the last pass ends: one more pass, and its verification."""
        files = self.listed(last.scanned_at_s, last.finished_at_s)
        return self.about(self.scan_s) + self.transfer_s(files) + self.about(files * CHECK_S_PER_FILE)

    def to_the_end(self, limits: PassLimits) -> tuple[list[PassFacts], Decision]:
        """Passes, until a decision says that there is to be no other. Attempts would have told a cost that is a fifth off."""
        off = STREAMS * min(max(self.chance.gauss(1.0, 0.2), 0.5), 2.0)
        cost = TransferCost(s_per_file=S_PER_FILE * off, s_per_byte=off / BYTES_PER_S, streams=STREAMS, basis="")
        passes: list[PassFacts] = []
        earlier_freeze_s = None
        for one in self.passes():
            passes.append(one)
            decision = decide(
                passes,
                batch=1,
                at_s=one.finished_at_s,
                cost=cost,
                check=FreezeCheck(s_per_file=CHECK_S_PER_FILE),
                limits=limits,
                made=len(passes) - 1,
                earlier_freeze_s=earlier_freeze_s,
            )
            if not decision.go_on:
                return passes, decision
            earlier_freeze_s = decision.prediction.freeze_s if decision.prediction else None
        raise AssertionError("passes end")


@pytest.mark.parametrize(("kind", "most"), MOST.items())
def test_most_freezes_are_as_long_as_predicted(kind: str, most: float) -> None:
    within = 0
    for seed in range(HISTORIES):
        site = ChangingSite.of(kind, seed)
        limits = PassLimits(max_freeze_s=10 ** site.chance.uniform(1, 4), max_delta_passes=8)
        passes, decision = site.to_the_end(limits)
        assert decision.prediction is not None
        within += BAND[0] <= decision.prediction.freeze_s / site.freeze_s(passes[-1]) <= BAND[1]
    assert within >= most * HISTORIES


@pytest.mark.parametrize("kind", MOST)
def test_passes_end_by_themselves_also_where_no_limit_is_near_and_no_freeze_is_short_enough(kind: str) -> None:
    for seed in range(50):
        limits = PassLimits(max_freeze_s=0.0, max_delta_passes=1000)
        passes, decision = ChangingSite.of(kind, seed).to_the_end(limits)
        assert decision.outcome in (ConvergenceOutcome.NO_LONGER_SHRINKS, ConvergenceOutcome.NOTHING_CHANGED)
        assert len(passes) < 50
