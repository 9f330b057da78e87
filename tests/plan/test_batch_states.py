"""What passes and verifications make of a batch's state, and that the ledger's table allows it."""

import pytest

from migrator.core.states import BATCH_TRANSITIONS, BatchState, PassKind
from migrator.plan.rules import after_delta, after_verification, unverified

PLANNED, SEEDING, SEEDED, CONVERGING, VERIFIED = BatchState
SEED, MORE = (PassKind.SEED,), (PassKind.SEED, PassKind.FINAL)


@pytest.mark.parametrize(
    ("now", "after"),
    [
        (PLANNED, [PLANNED] * 5),
        (SEEDING, [SEEDING] * 5),
        (SEEDED, [CONVERGING, CONVERGING, SEEDED, SEEDED, VERIFIED]),
        (CONVERGING, [CONVERGING, CONVERGING, CONVERGING, CONVERGING, VERIFIED]),
        (VERIFIED, [VERIFIED, CONVERGING, SEEDED, CONVERGING, VERIFIED]),
    ],
)
def test_what_follows_a_pass_or_a_verification_and_is_allowed(now: BatchState, after: list[BatchState]) -> None:
    assert after == [
        after_delta(now, sent=False),
        after_delta(now, sent=True),
        after_verification(now, SEED, proven=False),
        after_verification(now, MORE, proven=False),
        after_verification(now, MORE, proven=True),
    ]
    assert set(after) <= {now, *BATCH_TRANSITIONS[now]}
    assert (unverified(MORE), unverified(())) == (CONVERGING, SEEDED)
