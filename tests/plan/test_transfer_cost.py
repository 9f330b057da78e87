"""The fit of costs per file and per byte, ranking, forecast and room."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.fs.model import Capacity, Need
from migrator.plan import model
from migrator.plan.rules import emptying_curve, rank
from migrator.plan.rules_forecast import still_needed, which_fit
from tests.support.migrations import cost_sums as sums
from tests.support.plans import usage


def error(attempts: list[tuple[float, float, float]], s_per_file: float, s_per_byte: float) -> float:
    return sum((f * s_per_file + b * s_per_byte - s) ** 2 for f, b, s in attempts)


def test_too_few_attempts_say_nothing() -> None:
    attempts = [(10.0, 100.0 * n, 1.0) for n in range(model.ENOUGH_ATTEMPTS - 1)]
    assert model.fit_cost(sums(attempts), 4) is None
    assert model.fit_cost(sums([(0.0, 0.0, 1.0)] * model.ENOUGH_ATTEMPTS), 4) is None


@pytest.mark.parametrize("off", [0.0, 1e-3])
@pytest.mark.parametrize("of_a_file", [1.0, 1000.0, 1e9])
def test_same_bytes_per_file_still_explain_the_time(of_a_file: float, off: float) -> None:
    # Nearly the same tells the two apart no better: it is noise that would decide.
    attempts = [(float(n), n * of_a_file * (1 + off * (n % 3 - 1)), n * 0.5) for n in range(1, 10)]
    cost = model.fit_cost(sums(attempts), 4)
    assert cost is not None
    assert 3 * cost.s_per_file + 3 * of_a_file * cost.s_per_byte == pytest.approx(1.5, rel=0.01)
    assert cost.s_per_file / cost.s_per_byte == pytest.approx(model.ASSUMED_S_PER_FILE * model.ASSUMED_RATE_BYTES_PER_S)


amounts = st.floats(min_value=1, max_value=1e6)


@given(st.lists(st.tuples(amounts, amounts, amounts), min_size=model.ENOUGH_ATTEMPTS, max_size=30))
def test_no_other_cost_fits_better(attempts: list[tuple[float, float, float]]) -> None:
    added = sums(attempts)
    # Where files and bytes can be told apart.
    assume(added.files_bytes**2 < 0.998 * added.files_files * added.bytes_bytes)
    cost = model.fit_cost(added, 4)
    assert cost is not None
    assert cost.s_per_file >= 0
    assert cost.s_per_byte >= 0
    best = error(attempts, cost.s_per_file, cost.s_per_byte)
    for factor_a in (0.9, 1.0, 1.1):
        for factor_b in (0.9, 1.0, 1.1):
            other = error(attempts, cost.s_per_file * factor_a + 1e-6 * (factor_a > 1), cost.s_per_byte * factor_b)
            assert best <= other * (1 + 1e-6) + 1e-6


ONE = model.TransferCost(s_per_file=1.0, s_per_byte=0.1, streams=1, basis="measured here: 5 chunks")
TREES = (
    usage(b"big", size_bytes=900, files=10, age_s=50.0),
    usage(b"old", size_bytes=30, files=20, age_s=5000.0),
    usage(b"many", size_bytes=70, files=800, age_s=10.0),
    usage(b"empty"),
)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (model.Order.HEAVIEST, [b"big", b"many", b"old", b"empty"]),
        (model.Order.SMALLEST, [b"empty", b"old", b"many", b"big"]),
        (model.Order.COLDEST, [b"old", b"big", b"many", b"empty"]),
        (model.Order.MOST_FILES, [b"many", b"old", b"big", b"empty"]),
    ],
)
def test_orders(order: model.Order, expected: list[bytes]) -> None:
    assert [found.tree.path for found in rank(TREES, order)] == expected
    assert [found.tree.path for found in rank(TREES[::-1], order)] == expected
    tied = [usage(name, size_bytes=5, files=5, age_s=5.0) for name in (b"c", b"a", b"b")]
    assert [found.tree.path for found in rank(tied, order)] == [b"a", b"b", b"c"]


def test_a_curve_is_exact_however_many_trees_there_are() -> None:
    cost = replace(ONE, s_per_byte=0.0)
    trees = [usage(b"t%03d" % number, size_bytes=7, files=1) for number in range(1000)]
    trees.append(usage(b"heaviest", size_bytes=3000, files=1))
    # The heaviest has 3,000 of 10,000 bytes.
    assert emptying_curve(trees, model.Order.HEAVIEST, cost).reached_s == (1.0, 287.0, 644.0, 859.0, 1001.0)
    assert emptying_curve([], model.Order.HEAVIEST, cost).reached_s == (0.0,) * 5


def capacity(free_bytes: int = 100, free_inodes: int | None = 100, *, read_only: bool = False) -> Capacity:
    return Capacity(
        total_bytes=1000, free_bytes=free_bytes, total_inodes=free_inodes, free_inodes=free_inodes, read_only=read_only
    )


NEEDS = (Need(size_bytes=40, inodes=10), Need(size_bytes=40, inodes=80), Need(size_bytes=40, inodes=80))


@pytest.mark.parametrize(
    ("room", "inodes_free", "reserve_bytes", "expected"),
    [
        (capacity(120, 170), None, 0, (True, True, True)),
        (capacity(119, 170), None, 0, (True, True, False)),
        (capacity(120, 170), None, 1, (True, True, False)),
        (capacity(120, 169), None, 0, (True, True, False)),
        (capacity(120, 89), None, 0, (True, False, False)),
        (capacity(39, 170), None, 0, (False, False, False)),
        (capacity(120, None), 89, 0, (True, False, False)),
        (capacity(120, None), None, 0, (True, True, True)),
        (capacity(120, 170), 5, 0, (True, True, True)),
        (capacity(120, 170, read_only=True), None, 0, (False, False, False)),
    ],
)
def test_batches_fit_one_after_the_other(
    room: Capacity, inodes_free: int | None, reserve_bytes: int, expected: tuple[bool, ...]
) -> None:
    assert which_fit(NEEDS, room, inodes_free=inodes_free, reserve_bytes=reserve_bytes) == expected


def test_content_of_earlier_plans_is_replaced() -> None:
    needs = {b"a": Need(size_bytes=100, inodes=10), b"b": Need(size_bytes=50, inodes=5)}
    assert still_needed(needs, {}) == Need(size_bytes=150, inodes=15)
    arrived = {b"a": Need(size_bytes=90, inodes=20), b"c": Need(size_bytes=1000, inodes=1000)}
    assert still_needed(needs, arrived) == Need(size_bytes=60, inodes=5), "no tree makes up for another"
