"""What passes and verifications make of a batch's state, and that the ledger's table allows it."""

import pytest

from migrator.core.states import BATCH_TRANSITIONS, BatchState, PassKind
from migrator.plan.rules import after_delta, after_verification, unverified

SEED = (PassKind.SEED,)
MORE = (PassKind.SEED, PassKind.DELTA)


def allowed(old: BatchState, new: BatchState) -> bool:
    return old is new or new in BATCH_TRANSITIONS[old]


@pytest.mark.parametrize("now", list(BatchState))
@pytest.mark.parametrize("yes", [True, False])
def test_what_follows_is_allowed(now: BatchState, yes: bool) -> None:
    assert allowed(now, after_delta(now, sent=yes))
    for passes in (SEED, MORE):
        assert allowed(now, after_verification(now, passes, proven=yes))


def test_a_verified_batch_stays_so_until_something_is_sent() -> None:
    assert after_delta(BatchState.VERIFIED, sent=False) is BatchState.VERIFIED
    assert after_delta(BatchState.VERIFIED, sent=True) is BatchState.CONVERGING


def test_a_batch_whose_seed_is_not_over_stays_where_it_is() -> None:
    for now in (BatchState.PLANNED, BatchState.SEEDING):
        assert after_delta(now, sent=True) is now
        assert after_verification(now, MORE, proven=True) is now


def test_a_verification_that_fails_takes_a_batch_back_to_where_its_passes_brought_it() -> None:
    assert after_verification(BatchState.VERIFIED, SEED, proven=False) is BatchState.SEEDED
    assert after_verification(BatchState.VERIFIED, MORE, proven=False) is BatchState.CONVERGING
    assert after_verification(BatchState.CONVERGING, MORE, proven=False) is BatchState.CONVERGING
    assert after_verification(BatchState.SEEDED, SEED, proven=False) is BatchState.SEEDED
    for now in (BatchState.SEEDED, BatchState.CONVERGING, BatchState.VERIFIED):
        assert after_verification(now, MORE, proven=True) is BatchState.VERIFIED


def test_a_final_pass_counts_as_a_later_one() -> None:
    assert unverified((PassKind.SEED, PassKind.FINAL)) is BatchState.CONVERGING
    assert unverified(()) is BatchState.SEEDED
