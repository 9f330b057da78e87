"""What every ledger does with attempts to retire volumes."""

import pytest

from migrator.bricks.retire.model import RETIREMENT_TRANSITIONS, Retirement, RetirementState
from migrator.core.errors import LedgerCorrupt
from migrator.ledger.ledger import Ledger

S = RetirementState


def intend(ledger: Ledger, *, volume_id: str = "v", catalog: str = "c", at_s: float = 1.0) -> Retirement:
    return ledger.retirements.begin(
        volume="vol1", volume_id=volume_id, catalog=catalog, files=2, size_bytes=2**60, at_s=at_s
    )


def test_an_intent_is_kept_with_what_it_rests_on(ledger: Ledger) -> None:
    assert ledger.retirements.newest() is None
    record = intend(ledger)
    assert record == Retirement(
        id=record.id,
        volume="vol1",
        volume_id="v",
        state=S.RETIRING,
        times={S.RETIRING: 1.0},
        catalog="c",
        files=2,
        size_bytes=2**60,
    )
    assert ledger.retirements.newest() == record


def test_an_attempt_that_has_not_ended_is_taken_up_and_another_volume_has_its_own(ledger: Ledger) -> None:
    first = intend(ledger)
    again = intend(ledger, catalog="c2", at_s=5.0)
    assert (again.id, again.catalog, again.shown.intended_at_s) == (first.id, "c2", 5.0)
    other = intend(ledger, volume_id="w")
    assert other.id != first.id
    ledger.retirements.enter(first.id, S.GIVEN_UP, at_s=6.0, failure="no")
    assert intend(ledger).id not in (first.id, other.id)


def test_what_became_of_it_is_written_once_and_nothing_follows_an_end(ledger: Ledger) -> None:
    for end in (S.RETIRED, S.GIVEN_UP):
        record = ledger.retirements.enter(intend(ledger).id, S.STOPPING, at_s=2.0)
        assert (record.state, record.shown.ended_at_s) == (S.STOPPING, None)
        done = ledger.retirements.enter(record.id, end, at_s=3.0, failure="why")
        assert (done.state, done.shown.ended_at_s, done.failure) == (end, 3.0, "why")
        assert ledger.retirements.enter(record.id, end, at_s=9.0) == done
        for other in set(S) - {end}:
            assert other not in RETIREMENT_TRANSITIONS[end]
            with pytest.raises(LedgerCorrupt):
                ledger.retirements.enter(record.id, other, at_s=9.0)


def test_one_that_was_not_stopped_is_taken_up_from_before_its_last_look(ledger: Ledger) -> None:
    first = intend(ledger)
    with pytest.raises(LedgerCorrupt):
        ledger.retirements.enter(first.id, S.RETIRED, at_s=2.0)
    ledger.retirements.enter(first.id, S.STOPPING, at_s=2.0)
    again = intend(ledger, at_s=5.0)
    assert (again.id, again.state) == (first.id, S.RETIRING)
    ledger.retirements.enter(first.id, S.GIVEN_UP, at_s=6.0, failure="no")
    with pytest.raises(LedgerCorrupt):
        ledger.retirements.enter(first.id, S.STOPPING, at_s=2.0)


def test_an_attempt_that_is_not_there_is_no_attempt(ledger: Ledger) -> None:
    with pytest.raises(LedgerCorrupt):
        ledger.retirements.enter(7, S.RETIRED, at_s=1.0)
