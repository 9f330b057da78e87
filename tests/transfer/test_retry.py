"""When a chunk is tried again, split, or given up."""

import pytest

from migrator.transfer.model import RetryPolicy
from migrator.transfer.rules import NextStep, after_failure, delay_s

POLICY = RetryPolicy(tries=3, first_delay_s=1.0, longest_delay_s=10.0)


@pytest.mark.parametrize(
    ("failures", "divisible", "is_part", "step"),
    [
        (1, True, False, NextStep.RETRY),
        (2, True, False, NextStep.RETRY),
        (3, True, False, NextStep.SPLIT),
        (1, True, True, NextStep.SPLIT),
        (1, False, False, NextStep.RETRY),
        (2, False, True, NextStep.RETRY),
        (3, False, True, NextStep.GIVE_UP),
        (9, False, False, NextStep.GIVE_UP),
    ],
)
def test_what_follows_a_failure(failures: int, divisible: bool, is_part: bool, step: NextStep) -> None:
    assert after_failure(failures, POLICY, divisible=divisible, is_part=is_part) is step


def test_delays_double_up_to_the_longest() -> None:
    assert [delay_s(failures, POLICY) for failures in range(7)] == [0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
