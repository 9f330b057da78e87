"""How long a chunk waits before it is tried again."""

from migrator.transfer.model import RetryPolicy
from migrator.transfer.rules import delay_s


def test_delays_double_up_to_the_longest() -> None:
    policy = RetryPolicy(tries=3, first_delay_s=1.0, longest_delay_s=10.0)
    assert [delay_s(failures, policy) for failures in range(7)] == [0.0, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
