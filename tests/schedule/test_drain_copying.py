"""How much less is copied while a drain moves files: measured, or assumed."""

from dataclasses import replace

import pytest

from migrator.bricks.drain.model import CopyTally, DrainCopying
from migrator.plan.model import TransferCost
from migrator.schedule.rules_drains import ASSUMED_SHARE, ENOUGH_S, slower_in_drains

COST = TransferCost(s_per_file=0.002, s_per_byte=1e-8, streams=4, basis="measured here")


def tally(*, files: int = 0, size_bytes: int = 0, busy_s: float = ENOUGH_S) -> CopyTally:
    return CopyTally(files=files, size_bytes=size_bytes, busy_s=busy_s)


def test_files_and_bytes_are_weighed_by_what_they_cost() -> None:
    # 2,000 s of one stream's work in an hour, by small files; 8,000 s otherwise, by big ones.
    seen = DrainCopying(in_drains=tally(files=10**6), outside=tally(size_bytes=8 * 10**11))
    found = slower_in_drains(seen, COST)
    assert found.share == pytest.approx(0.25)
    assert "measured here, 25%" in found.basis
    assert found.days_in_drain(2.0, files=1, size_bytes=1, cost=COST) == pytest.approx(8.0)


@pytest.mark.parametrize(("files", "share"), [(0, 0.01), (10**9, 1.0)])
def test_a_drain_neither_stops_copying_nor_makes_it_faster(files: int, share: float) -> None:
    seen = DrainCopying(in_drains=tally(files=files), outside=tally(files=10**6))
    assert slower_in_drains(seen, COST).share == share


ENOUGH = DrainCopying(in_drains=tally(files=10), outside=tally(files=10))


@pytest.mark.parametrize(
    "seen",
    [
        replace(ENOUGH, in_drains=tally(files=10, busy_s=ENOUGH_S - 1)),
        replace(ENOUGH, outside=tally(files=10, busy_s=ENOUGH_S - 1)),
        replace(ENOUGH, outside=tally()),
    ],
    ids=["short-in-drains", "short-outside", "nothing-outside"],
)
def test_too_little_is_no_measurement(seen: DrainCopying) -> None:
    found = slower_in_drains(seen, COST)
    assert found.share == ASSUMED_SHARE
    assert found.basis.startswith("assumed")
