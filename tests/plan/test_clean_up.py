"""How much earlier users move when they clean up."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.core.units import DAY_S, YEAR_S
from migrator.plan.model import AgeBucket, CleanUp, CleanUpKind, Order, TransferCost, TreeUsage
from migrator.plan.rules import rank
from migrator.plan.rules_clean_up import WORTH_PACKING, clean_ups
from migrator.reap.model import PlanReap, ReapedTree
from migrator.site.model import ReapAction
from tests.support.making import made
from tests.support.plans import usage

COST = TransferCost(s_per_file=0.001, s_per_byte=0.01, streams=2, basis="test")
"""A byte costs 5 ms with both streams, a file half a millisecond."""


def holding(tree: bytes, size_bytes: int, *, old_bytes: int = 0, files: int = 100, tiny: int = 0) -> TreeUsage:
    """A tree with so many bytes in files older than a year; the rest is young."""
    old_files = files // 2 if old_bytes else 0
    ages = (
        AgeBucket(label="< 1 year", max_age_s=YEAR_S, files=files - old_files, size_bytes=size_bytes - old_bytes),
        AgeBucket(label="< 2 years", max_age_s=2 * YEAR_S, files=old_files, size_bytes=old_bytes),
    )
    return replace(usage(tree, size_bytes, files, age_s=DAY_S), by_mtime=ages, tiny_files=tiny)


def reap(action: ReapAction, tree: bytes, **facts: Any) -> PlanReap:
    return made(PlanReap, trees=(made(ReapedTree, tree=usage(tree).tree, action=action, **facts),))


def offers(trees: Sequence[TreeUsage], order: Order, plan_reap: PlanReap | None = None) -> list[CleanUp]:
    return list(clean_ups(rank(trees, order), order, COST, plan_reap))


def test_less_data_is_copied_in_less_time() -> None:
    """With the heaviest first, the place stays: 600 bytes and 50 files fewer are copied before this tree is."""
    trees = [holding(b"big", 10_000), holding(b"old", 1000, old_bytes=600)]
    (offer,) = offers(trees, Order.HEAVIEST)
    assert (offer.tree, offer.kind, offer.files, offer.size_bytes) == (b"old", CleanUpKind.OLD, 50, 600)
    assert offer.earlier_s == pytest.approx(600 * 0.005 + 50 * 0.0005)


def test_an_order_of_small_trees_moves_it_forward() -> None:
    """With 400 bytes, the tree goes before that of 900 bytes and 100 files."""
    trees = [holding(b"mid", 900), holding(b"old", 1000, old_bytes=600)]
    (offer,) = offers(trees, Order.SMALLEST)
    assert offer.earlier_s == pytest.approx(600 * 0.005 + 50 * 0.0005 + 900 * 0.005 + 100 * 0.0005)


def test_listed_files_are_an_offer_and_others_are_left_out_anyway() -> None:
    trees = [holding(b"old", 1000, old_bytes=600)]
    listed = offers(trees, Order.HEAVIEST, reap(ReapAction.LIST, b"old", files=10, size_bytes=100))
    assert [(one.kind, one.files, one.size_bytes) for one in listed] == [
        (CleanUpKind.LISTED, 10, 100),
        (CleanUpKind.OLD, 50, 600),
    ]
    for action in (ReapAction.SKIP, ReapAction.ARCHIVE):
        (rest,) = offers(trees, Order.HEAVIEST, reap(action, b"old", files=10, size_bytes=100))
        assert (rest.kind, rest.files, rest.size_bytes) == (CleanUpKind.OLD, 40, 500)


def test_many_tiny_files_are_packed_and_few_are_left() -> None:
    many = holding(b"many", 1000, files=2 * WORTH_PACKING, tiny=WORTH_PACKING)
    few = holding(b"few", 1000, files=2 * WORTH_PACKING, tiny=WORTH_PACKING - 1)
    (offer,) = offers([many, few], Order.HEAVIEST)
    assert (offer.tree, offer.kind, offer.files, offer.size_bytes) == (b"many", CleanUpKind.TINY, WORTH_PACKING, 0)
    assert offer.earlier_s == pytest.approx(WORTH_PACKING * 0.0005)


@given(
    sizes=st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 1), st.integers(2, 50_000)), max_size=8),
    order=st.sampled_from(Order),
)
def test_no_clean_up_makes_a_move_later_or_earlier_than_the_begin(
    sizes: list[tuple[int, float, int]], order: Order
) -> None:
    trees = [
        holding(b"t%d" % number, size, old_bytes=round(size * share), files=files, tiny=files)
        for number, (size, share, files) in enumerate(sizes)
    ]
    every_s = sum(one.size_bytes * 0.005 + one.files * 0.0005 for one in trees)
    for offer in offers(trees, order):
        assert 0 <= offer.earlier_s <= every_s + 0.001
