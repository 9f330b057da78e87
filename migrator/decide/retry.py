"""What to do with a chunk that failed: try again later, split it, or give it up."""

import errno
from enum import StrEnum

from migrator.domain.run import RetryPolicy
from migrator.domain.transfer import FileProblem

# Errors of one file that no later try will cure. Others may be of the moment (a file being replaced, ESTALE, EBUSY).
_LASTING = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.EINVAL,
        errno.EFBIG,
        errno.E2BIG,
        errno.ENOTSUP,
        errno.ENXIO,
        errno.EMLINK,
        errno.EOVERFLOW,
    }
)


class NextStep(StrEnum):
    """What comes after a failed attempt."""

    RETRY = "retry"
    SPLIT = "split"
    GIVE_UP = "give-up"


def after_failure(failures: int, policy: RetryPolicy, *, divisible: bool, is_part: bool) -> NextStep:
    """Decide after the attempt that made it `failures` in this run, and that blamed no file.

    A part of a chunk that was split already is split on at once: only what stands alone gets all its tries, so that
    finding one bad file among n costs about 2 log2(n) attempts.
    """
    if divisible:
        return NextStep.SPLIT if is_part or failures >= policy.tries else NextStep.RETRY
    return NextStep.GIVE_UP if failures >= policy.tries else NextStep.RETRY


def delay_s(failures: int, policy: RetryPolicy) -> float:
    """How long a chunk waits after so many failures (1: the first): exponential, bounded."""
    if failures < 1:
        return 0.0
    doublings = min(failures - 1, 32)
    return min(policy.first_delay_s * 2.0**doublings, policy.longest_delay_s)


def is_lasting(problem: FileProblem) -> bool:
    """Whether a bad file is not worth another try."""
    return problem.errno in _LASTING
