"""What passes and verifications make of a batch's state. Pure."""

from collections.abc import Iterable

from migrator.domain.states import BatchState, PassKind


def unverified(passes: Iterable[PassKind]) -> BatchState:
    """How far a batch is that was copied and has no verification that counts, by the kinds of its passes."""
    return BatchState.CONVERGING if any(kind is not PassKind.SEED for kind in passes) else BatchState.SEEDED


def after_delta(now: BatchState, *, sent: bool) -> BatchState:
    """How far a batch is with a pass after its seed. `sent`: the pass has something to send, to rename or to take away,
    which a verification before it has not seen.
    """
    if now is BatchState.SEEDED or (now is BatchState.VERIFIED and sent):
        return BatchState.CONVERGING
    return now


def after_verification(now: BatchState, passes: Iterable[PassKind], *, proven: bool) -> BatchState:
    """How far a batch is with a new verification. One whose seed pass is not over cannot be verified."""
    if now not in (BatchState.SEEDED, BatchState.CONVERGING, BatchState.VERIFIED):
        return now
    if proven:
        return BatchState.VERIFIED
    return unverified(passes) if now is BatchState.VERIFIED else now
