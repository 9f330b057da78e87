"""The fit of costs per file and per byte."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from migrator.plan.model import (
    ASSUMED_RATE_BYTES_PER_S,
    ASSUMED_S_PER_FILE,
    ENOUGH_ATTEMPTS,
    CostSums,
    fit_cost,
)

Attempt = tuple[float, float, float]


def sums(attempts: list[Attempt]) -> CostSums:
    files, sizes, seconds = (list(column) for column in zip(*attempts, strict=True))

    def products(one: list[float], other: list[float]) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True))

    return CostSums(
        attempts=len(attempts),
        files=sum(files),
        size_bytes=sum(sizes),
        seconds=sum(seconds),
        files_files=products(files, files),
        files_bytes=products(files, sizes),
        bytes_bytes=products(sizes, sizes),
        files_seconds=products(files, seconds),
        bytes_seconds=products(sizes, seconds),
    )


def error(attempts: list[Attempt], s_per_file: float, s_per_byte: float) -> float:
    return sum((f * s_per_file + b * s_per_byte - s) ** 2 for f, b, s in attempts)


def test_too_few_attempts_say_nothing() -> None:
    attempts = [(10.0, 100.0 * n, 1.0) for n in range(ENOUGH_ATTEMPTS - 1)]
    assert fit_cost(sums(attempts), 4) is None
    assert fit_cost(sums([(0.0, 0.0, 1.0)] * ENOUGH_ATTEMPTS), 4) is None


@pytest.mark.parametrize("off", [0.0, 1e-3])
@pytest.mark.parametrize("of_a_file", [1.0, 1000.0, 1e9])
def test_same_bytes_per_file_still_explain_the_time(of_a_file: float, off: float) -> None:
    # Nearly the same tells the two apart no better: it is noise that would decide.
    attempts = [(float(n), n * of_a_file * (1 + off * (n % 3 - 1)), n * 0.5) for n in range(1, 10)]
    cost = fit_cost(sums(attempts), 4)
    assert cost is not None
    assert 3 * cost.s_per_file + 3 * of_a_file * cost.s_per_byte == pytest.approx(1.5, rel=0.01)
    assert cost.s_per_file / cost.s_per_byte == pytest.approx(ASSUMED_S_PER_FILE * ASSUMED_RATE_BYTES_PER_S)


amounts = st.floats(min_value=1, max_value=1e6)


@given(st.lists(st.tuples(amounts, amounts, amounts), min_size=ENOUGH_ATTEMPTS, max_size=30))
def test_no_other_cost_fits_better(attempts: list[Attempt]) -> None:
    added = sums(attempts)
    # Where files and bytes can be told apart.
    assume(added.files_bytes**2 < 0.998 * added.files_files * added.bytes_bytes)
    cost = fit_cost(added, 4)
    assert cost is not None
    assert cost.s_per_file >= 0
    assert cost.s_per_byte >= 0
    best = error(attempts, cost.s_per_file, cost.s_per_byte)
    for factor_a in (0.9, 1.0, 1.1):
        for factor_b in (0.9, 1.0, 1.1):
            other = error(attempts, cost.s_per_file * factor_a + 1e-6 * (factor_a > 1), cost.s_per_byte * factor_b)
            assert best <= other * (1 + 1e-6) + 1e-6
