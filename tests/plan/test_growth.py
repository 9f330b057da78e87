"""What users add in a day, by how full the source was."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.catalog.model import CatalogRecord
from migrator.core.entry import UserTree
from migrator.core.units import DAY_S, GIB, HOUR_S, TIB
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.fs.model import CapacitySample, Side
from migrator.plan.rules_forecast import Growth, Look, choose_growth, measure, moved_since, purge_times
from tests.support.catalogs import whole_catalog

DAY = float(DAY_S)
ALICE, BOB = b"home/alice", b"home/bob"


def sample(day: float, used: int, *, total: int = 100 * TIB, side: Side = Side.SOURCE) -> CapacitySample:
    return CapacitySample(
        side=side, at_s=day * DAY, total_bytes=total, free_bytes=total - used, total_inodes=None, free_inodes=None
    )


def catalog(day: float, size_bytes: int, **changes: object) -> CatalogRecord:
    at_s = day * DAY
    return whole_catalog(
        **{"name": f"c{day}", "started_at_s": at_s, "finished_at_s": at_s + HOUR_S, "size_bytes": size_bytes, **changes}
    )


def cutover(tree: bytes, state: CutoverState, **days: float) -> CutoverRecord:
    return CutoverRecord(
        id=1,
        plan="p",
        batch=1,
        tree=UserTree(path=tree, user="u"),
        attempt=1,
        state=state,
        times={CutoverState(name): day * DAY for name, day in days.items()},
        predicted_freeze_s=None,
    )


def growing(days: int, *, by: int = GIB) -> list[CapacitySample]:
    return [sample(day, 10 * TIB + day * by) for day in range(days + 1)]


def test_a_week_of_looks_tells() -> None:
    found = choose_growth(growing(8), [], [], {ALICE: 10 * TIB}, configured_bytes_per_day=5)
    # Of what was there then: a little more is there now.
    assert found.bytes_per_day == pytest.approx(GIB, rel=1e-3)
    assert found.basis == "measured here by looks at the source over 8 days"
    # Three quarters of what lay on the source are users'.
    assert choose_growth(
        growing(8), [], [], {ALICE: 30 * TIB}, configured_bytes_per_day=5
    ).bytes_per_day == pytest.approx(3 * GIB, rel=1e-3)


def test_less_than_a_week_and_the_target_tell_nothing_and_users_who_take_away_add_nothing() -> None:
    found = choose_growth(growing(6), [], [], {ALICE: TIB}, configured_bytes_per_day=5)
    assert found == Growth(bytes_per_day=5, basis="[capacity] growth; too little was measured here yet")
    assert choose_growth([], [], [], {}, configured_bytes_per_day=0) == Growth()
    less = choose_growth(growing(8, by=-GIB), [], [], {ALICE: 10 * TIB}, configured_bytes_per_day=5)
    assert less.bytes_per_day == 0
    assert "took 1.0 GiB a day away" in less.basis
    copied = [sample(day, day * TIB, side=Side.TARGET) for day in range(30)]
    assert choose_growth(copied, [], [], {ALICE: TIB}, configured_bytes_per_day=0) == Growth(), "of the target"


def test_catalogs_tell_it_too() -> None:
    catalogs = [catalog(0, 10 * TIB), catalog(14, 10 * TIB + 14 * GIB)]
    found = choose_growth(growing(8, by=TIB), catalogs, [], {ALICE: 10 * TIB}, configured_bytes_per_day=0)
    assert found.bytes_per_day == pytest.approx(GIB)
    assert found.basis == "measured here by 2 whole catalogs over 14 days between them"
    for other in (
        catalog(7, 99 * TIB, whole=False),
        catalog(7, TIB, scope=(ALICE,)),
        catalog(7, 99 * TIB, finished_at_s=None),
        catalog(7, 11 * TIB, via="mount"),
    ):
        again = choose_growth([], [catalogs[0], other, catalogs[1]], [], {ALICE: 10 * TIB}, configured_bytes_per_day=0)
        assert again.bytes_per_day == pytest.approx(GIB)


def test_what_else_changes_how_full_the_source_is_does_not_count() -> None:
    steady = [Look(at_s=day * DAY, size_bytes=TIB + day, whole_bytes=9) for day in range(20)]
    assert measure(steady, [], []).days == 19
    # A purge from day 3 to 5, and one that goes on: what was under way at either look is left out.
    purges = [(3.5 * DAY, 5.5 * DAY), (15.0 * DAY, float("inf"))]
    dropped = [replace(one, size_bytes=one.size_bytes - (GIB if one.at_s > 4 * DAY else 0)) for one in steady]
    found = measure(dropped, purges, [])
    assert found.days == 3 + 8
    assert found.share_per_day == pytest.approx(1 / TIB, rel=1e-3)
    # A brick left: what the file systems keep for themselves went with it.
    smaller = [
        replace(one, whole_bytes=8, size_bytes=one.size_bytes - GIB) if one.at_s > 9 * DAY else one for one in steady
    ]
    assert measure(smaller, [], []).share_per_day == pytest.approx(1 / TIB, rel=1e-3)


def test_users_who_have_moved_are_made_up_for() -> None:
    # Half of what lies there belongs to somebody who works on the target since day 5.
    looks = [
        Look(at_s=day * DAY, size_bytes=2 * TIB + min(day, 5) * 2 * GIB + max(day - 5, 0) * GIB) for day in range(20)
    ]
    found = measure(looks, [], [(5 * DAY, TIB)])
    assert found.share_per_day * 2 * TIB == pytest.approx(2 * GIB, rel=0.02)


def test_when_who_moved_and_what_was_purged() -> None:
    records = [
        cutover(ALICE, CutoverState.RETAINED, thawed=3),
        cutover(BOB, CutoverState.PURGED, thawed=1, purging=8, purged=9),
        cutover(b"home/carol", CutoverState.PURGING, thawed=1, purging=8.5),
        cutover(BOB, CutoverState.REVERTED, freezing=0.5),
        cutover(ALICE, CutoverState.ROLLED_BACK, thawed=2),
    ]
    assert moved_since(records, {ALICE: 7}) == [(3 * DAY, 7)]
    assert purge_times(records) == [(8 * DAY, float("inf"))]
    assert purge_times(records[:2]) == [(8 * DAY, 9 * DAY)]
    assert purge_times([]) == []


@given(st.integers(1, 50), st.integers(8, 40), st.floats(0, 0.01))
def test_steady_growth_is_found_again(size: int, days: int, share: float) -> None:
    looks = [Look(at_s=day * DAY, size_bytes=round(size * TIB * (1 + share * day))) for day in range(days + 1)]
    found = measure(looks, [], [])
    assert found.days == pytest.approx(days)
    mean = size * TIB * (1 + share * (days - 1) / 2)
    assert found.share_per_day == pytest.approx(share * size * TIB / mean, abs=1e-9)
