"""How the source grows, which user trees are left alone, and what surprises a plan names."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.catalog.model import CatalogRecord
from migrator.core.entry import ACL_ACCESS, Entry, EntryType, UserTree
from migrator.core.units import DAY_S, GIB, HOUR_S, TIB
from migrator.cutover.model import ENDED_STATES, SETTLED_STATES, UNDER_WAY_STATES, CutoverRecord, CutoverState
from migrator.fs.model import CapacitySample, RewrittenLinks, Side, SurpriseKind
from migrator.plan import rules as plan_rules
from migrator.plan import rules_surprises as plan_rules_surprises
from migrator.plan.rules_forecast import Growth, SizeSample, choose_growth, measure, moved_since, purge_times
from tests.support.catalogs import directory, whole_catalog
from tests.support.making import made
from tests.support.plans import span

DAY = float(DAY_S)
ALICE, BOB = b"home/alice", b"home/bob"


def sample(day: float, used: int, *, total: int = 100 * TIB, side: Side = Side.SOURCE) -> CapacitySample:
    return made(CapacitySample, side=side, at_s=day * DAY, total_bytes=total, free_bytes=total - used)


def catalog(day: float, size_bytes: int, **changes: object) -> CatalogRecord:
    at_s = day * DAY
    return whole_catalog(
        **{"name": f"c{day}", "started_at_s": at_s, "finished_at_s": at_s + HOUR_S, "size_bytes": size_bytes, **changes}
    )


def cutover(tree: bytes, state: CutoverState, **days: float) -> CutoverRecord:
    times = {CutoverState(name): day * DAY for name, day in days.items()}
    return made(CutoverRecord, tree=UserTree(path=tree, user="u"), state=state, times=times)


def growing(days: int, *, by: int = GIB) -> list[CapacitySample]:
    return [sample(day, 10 * TIB + day * by) for day in range(days + 1)]


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


def test_other_changes_of_the_source_are_not_growth() -> None:
    steady = [SizeSample(at_s=day * DAY, size_bytes=TIB + day, whole_bytes=9) for day in range(20)]
    assert measure(steady, [], []).days == 19
    # A purge from day 3 to 5, and one that goes on: what was under way at either look is left out.
    purges = [(3.5 * DAY, 5.5 * DAY), (15.0 * DAY, float("inf"))]
    dropped = [replace(one, size_bytes=one.size_bytes - (GIB if one.at_s > 4 * DAY else 0)) for one in steady]
    found = measure(dropped, purges, [])
    assert found.days == 3 + 8
    assert found.share_per_day == pytest.approx(1 / TIB, rel=1e-3)
    # A brick left: what the file systems keep for themselves went with it.
    smaller = [replace(it, whole_bytes=8, size_bytes=it.size_bytes - GIB) if it.at_s > 9 * DAY else it for it in steady]
    assert measure(smaller, [], []).share_per_day == pytest.approx(1 / TIB, rel=1e-3)


def test_users_who_have_moved_are_made_up_for() -> None:
    # Half of what lies there belongs to somebody who works on the target since day 5.
    looks = [
        SizeSample(at_s=day * DAY, size_bytes=2 * TIB + min(day, 5) * 2 * GIB + max(day - 5, 0) * GIB)
        for day in range(20)
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
    looks = [SizeSample(at_s=day * DAY, size_bytes=round(size * TIB * (1 + share * day))) for day in range(days + 1)]
    found = measure(looks, [], [])
    assert found.days == pytest.approx(days)
    mean = size * TIB * (1 + share * (days - 1) / 2)
    assert found.share_per_day == pytest.approx(share * size * TIB / mean, abs=1e-9)


ANN_TREE, BOB_TREE = UserTree(path=b"home/ann", user="ann"), UserTree(path=b"home/bob\xff", user="bob")


@pytest.mark.parametrize("state", list(CutoverState))
def test_a_tree_is_copied_before_its_cutover_begins_and_after_it_has_ended_on_the_source(state: CutoverState) -> None:
    newest = {ANN_TREE.path: cutover(ANN_TREE.path, state)}
    copied = state is CutoverState.PLANNED or state in ENDED_STATES
    assert plan_rules.movable_trees((ANN_TREE, BOB_TREE), newest) == (
        ((ANN_TREE, BOB_TREE), ()) if copied else ((BOB_TREE,), (ANN_TREE,))
    )
    assert plan_rules.moved_trees(newest) == (frozenset() if copied else {ANN_TREE.path})
    assert copied == (state not in SETTLED_STATES | UNDER_WAY_STATES)
    # It is planned unless its user works on the target for good.
    assert plan_rules.settled_trees(newest) == ({ANN_TREE.path} if state in SETTLED_STATES else frozenset())


def test_links_into_a_tree_that_is_not_planned_count_as_links_out_of_all_trees() -> None:
    spans = [span(ANN_TREE.path, BOB_TREE.path), span(ANN_TREE.path, None), span(BOB_TREE.path, None)]
    assert list(plan_rules.without_trees(spans, {ANN_TREE.path})) == [
        span(None, BOB_TREE.path),
        span(BOB_TREE.path, None),
    ]
    assert list(plan_rules.without_trees(spans, ())) == spans


def top(uid: int, mode: int, **changes: Any) -> Entry:
    return replace(directory(ANN_TREE.path), uid=uid, mode=mode, **changes)


FROZEN, OPEN, CLOSED = top(0, 0o2500), top(1001, 0o2770), top(0, 0o700)


def test_a_tree_that_is_frozen_on_the_source_and_open_on_the_target_was_moved_whatever_the_ledger_says() -> None:
    for target in (OPEN, top(0, 0o755), top(0, 0o700, xattrs={ACL_ACCESS: b"named"})):
        assert "works on the target" in (plan_rules.moved_unknown(ANN_TREE, FROZEN, target) or "")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (OPEN, CLOSED),
        (OPEN, OPEN),
        (OPEN, None),
        (FROZEN, CLOSED),
        (FROZEN, None),
        (None, OPEN),
        (CLOSED, OPEN),
        (top(0, 0o755), OPEN),
        (FROZEN, top(1001, 0o644, type=EntryType.FILE)),
    ],
)
def test_no_other_tree_was(source: Entry | None, target: Entry | None) -> None:
    assert plan_rules.moved_unknown(ANN_TREE, source, target) is None


TREES = frozenset({b"home/alice", b"home/bob", b"scratch"})
ANY_TREE = b"home/alice"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"beside", None),
        (b"", None),
        (b"./c//d/", None),
        (b"\xff/\n", None),
        (b"../alice/x", None),
        (b"../alicex", SurpriseKind.SYMLINK_CROSSES_TREE),
        (b"../..", SurpriseKind.SYMLINK_CROSSES_TREE),
        (b"../bob/x", SurpriseKind.SYMLINK_CROSSES_TREE),
        (b"..", SurpriseKind.SYMLINK_CROSSES_TREE),
        (b"../../../etc", SurpriseKind.SYMLINK_CROSSES_TREE),
        (b"/usr/lib", None),
        (b"/mnt/glusterx", None),
        (b"/mnt/gluster", SurpriseKind.SYMLINK_INTO_SOURCE),
        (b"/mnt/gluster/home/alice/x", SurpriseKind.SYMLINK_INTO_SOURCE),
        (b"//mnt/./gluster/x", SurpriseKind.SYMLINK_INTO_SOURCE),
        (b"/mnt/gluster/../other", None),
    ],
)
def test_symlinks_are_judged_by_where_they_lead(target: bytes, expected: SurpriseKind | None) -> None:
    row = plan_rules_surprises.SymlinkRow(path=b"home/alice/link", tree=ANY_TREE, target=target)
    assert plan_rules_surprises.judge_symlink(row, TREES, b"/mnt/gluster/") is expected
    links = RewrittenLinks(source=b"/mnt/gluster", target=b"/mnt/beegfs")
    rewritten = target in (b"/mnt/gluster", b"/mnt/gluster/home/alice/x")
    found = plan_rules_surprises.judge_symlink(row, TREES, b"/mnt/gluster/", links=links)
    assert found is (SurpriseKind.SYMLINK_REWRITTEN if rewritten else expected)


@pytest.mark.parametrize(
    ("trees", "batches"), [((ANY_TREE, b"home/bob"), {ANY_TREE: 1, b"home/bob": 2}), ((ANY_TREE, None), {ANY_TREE: 1})]
)
def test_groups_that_do_not_stay_whole_are_listed(trees: tuple[bytes | None, ...], batches: dict[bytes, int]) -> None:
    found = plan_rules_surprises.link_surprises([span(*trees)], batches)
    assert [one.kind for one in found] == [SurpriseKind.HARD_LINKS_BROKEN] * 2
    assert [one.tree for one in found] == list(trees)
    assert all("a copy of its own" in one.detail for one in found)
