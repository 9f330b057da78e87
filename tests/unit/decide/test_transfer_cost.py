"""The fit of costs per file and per byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.decide.transfer_cost import ENOUGH_ATTEMPTS, fit_cost
from migrator.domain.cost import CostSums

Attempt = tuple[float, float, float]


def sums(attempts: list[Attempt]) -> CostSums:
    return CostSums(
        attempts=len(attempts),
        files=sum(f for f, _, _ in attempts),
        size_bytes=sum(b for _, b, _ in attempts),
        seconds=sum(s for _, _, s in attempts),
        files_files=sum(f * f for f, _, _ in attempts),
        files_bytes=sum(f * b for f, b, _ in attempts),
        bytes_bytes=sum(b * b for _, b, _ in attempts),
        files_seconds=sum(f * s for f, _, s in attempts),
        bytes_seconds=sum(b * s for _, b, s in attempts),
    )


def error(attempts: list[Attempt], s_per_file: float, s_per_byte: float) -> float:
    return sum((f * s_per_file + b * s_per_byte - s) ** 2 for f, b, s in attempts)


def test_too_few_attempts_say_nothing() -> None:
    attempts = [(10.0, 100.0 * n, 1.0) for n in range(ENOUGH_ATTEMPTS - 1)]
    assert fit_cost(sums(attempts), 4) is None
    assert fit_cost(sums([(0.0, 0.0, 1.0)] * ENOUGH_ATTEMPTS), 4) is None


def test_same_bytes_per_file_still_explain_the_time() -> None:
    cost = fit_cost(sums([(n, n * 1000.0, n * 0.5) for n in range(1, 10)]), 4)
    assert cost is not None
    assert 3 * cost.s_per_file + 3000 * cost.s_per_byte == pytest.approx(1.5)


def test_empty_files_cost_time_too() -> None:
    cost = fit_cost(sums([(100.0, 0.0, 2.0)] * 5), 0)
    assert cost is not None
    assert cost.s_per_file == pytest.approx(0.02)
    assert (cost.s_per_byte, cost.streams) == (0.0, 1)


amounts = st.floats(min_value=1, max_value=1e6)


@given(st.lists(st.tuples(amounts, amounts, amounts), min_size=ENOUGH_ATTEMPTS, max_size=30))
def test_no_other_cost_fits_better(attempts: list[Attempt]) -> None:
    cost = fit_cost(sums(attempts), 4)
    assert cost is not None
    assert cost.s_per_file >= 0
    assert cost.s_per_byte >= 0
    best = error(attempts, cost.s_per_file, cost.s_per_byte)
    for factor_a in (0.9, 1.0, 1.1):
        for factor_b in (0.9, 1.0, 1.1):
            other = error(attempts, cost.s_per_file * factor_a + 1e-6 * (factor_a > 1), cost.s_per_byte * factor_b)
            assert best <= other * (1 + 1e-6) + 1e-6
