"""What of the samples of single streams is put together when they are old, and how. Pure.

A stream is sampled every few seconds, and each of these rows is looked at while it is at work and soon after. Later one row
an hour says as much: sums of files, bytes and time stay what they were. Samples of all streams together are not touched, and
what streams brought by size, host, brick and engine is summed up from attempts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from migrator.domain.transfer import Sample
from migrator.domain.units import DAY_S, HOUR_S

FINE_S = 7.0 * DAY_S
"""So long every sample of a stream is kept."""
SPAN_S = 1.0 * HOUR_S
"""What is older becomes one sample for each of such spans, which begin at multiples of it."""
ATTEMPTS_AT_ONCE = 64
"""Of so many attempts in one transaction: other writers wait for some tens of milliseconds."""
BLOCKS_AT_ONCE = 256
"""So many transactions one after the other, every hour of a run and at its end: more attempts than end in a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledAttempt:
    """An attempt whose samples are still as they were taken. `last_s`: when it ended; of one that has not, its last sample,
    or its start.
    """

    attempt_id: int
    pass_id: int
    last_s: float


def due(attempts: Iterable[SampledAttempt], *, now_s: float) -> Sequence[SampledAttempt]:
    """Those whose samples are put together now, of attempts in the order of their numbers: up to the first that is young.
    So one number says how far it has come. One that was left unfinished for so long is not waited for.
    """
    return list(takewhile(lambda attempt: attempt.last_s < now_s - FINE_S, attempts))


def thinned(samples: Sequence[Sample]) -> Sequence[Sample]:
    """The samples of one attempt, given in order of time, put together by the hour. What is so already stays so."""
    found: list[Sample] = []
    for sample in samples:
        if found and found[-1].at_s // SPAN_S == sample.at_s // SPAN_S:
            found[-1] = replace(
                sample,
                interval_s=found[-1].interval_s + sample.interval_s,
                files=found[-1].files + sample.files,
                size_bytes=found[-1].size_bytes + sample.size_bytes,
            )
        else:
            found.append(sample)
    return found
