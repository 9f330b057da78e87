"""What becomes of an attempt where storage of the target is lost or full."""

from dataclasses import replace

from migrator.decide.retry import delay_s
from migrator.domain.transfer import ChunkRecord, StopReason, Verdict
from migrator.stages.run.attempt import Attempt, Result
from migrator.stages.run.context import PassUnderWay
from migrator.stages.run.settlement import Settlement

_HELD_REASONS = frozenset({StopReason.TARGET_STUCK, StopReason.IO_ERROR, StopReason.DISCONNECTED})
"""What a server that is down is seen as: in a pass that can wait these stop nothing."""


async def because_of_storage(
    under_way: PassUnderWay, settle: Settlement, chunk: ChunkRecord, attempt: Attempt, result: Result
) -> tuple[float | None, Result]:
    """Where storage of the target is lost, its chunks are not to blame: the attempt is settled, and its chunk waits, for so
    long at least (None: not settled). What stops the pool all the same names the storage target.
    """
    watch, reason = under_way.storage, result.stop[0] if result.stop else None
    if watch is None or (result.verdict is Verdict.DONE and not result.bad):
        return None, result
    if reason is StopReason.TARGET_FULL:
        return None, _with_words(result, await watch.full_words())
    if result.verdict is Verdict.STOP and reason not in _HELD_REASONS:
        return None, result
    lost = await watch.look()
    if not lost:
        return None, result
    if not under_way.waits_for_storage:
        return None, _with_words(result, "; ".join(lost))
    settle.interrupted(attempt)
    settle.retried(chunk, f"storage of the target is lost ({'; '.join(lost)})")
    return delay_s(1, under_way.request.retry), result


def _with_words(result: Result, words: str) -> Result:
    """A stop that says more."""
    if result.stop is None or not words:
        return result
    reason, detail = result.stop
    return replace(result, stop=(reason, f"{detail}; {words}" if detail else words))
