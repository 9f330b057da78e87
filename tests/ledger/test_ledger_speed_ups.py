"""What the ledger keeps of measurements in users' trees."""

from dataclasses import replace

from migrator.core.entry import UserTree
from migrator.cutover.model import CutoverRecord, CutoverState, TreeMeasurement, TreeTest
from migrator.fs.model import Side
from migrator.ledger.ledger import Ledger
from tests.support.operations import ROLLBACK_FREEZE, THERE, do

TREE = UserTree(path=b"home/\xff ann", user="\udcff ann")
ONE = TreeMeasurement(
    side=Side.SOURCE, run=1, test=TreeTest.READ, at_s=10.0, seconds=1.5, amount=7, complete=True, cold=False
)
TWO = replace(ONE, side=Side.TARGET, at_s=20.0, test=TreeTest.LIST, cold=None, complete=False, failure="went away")


def begin(ledger: Ledger, at_s: float = 1.0) -> CutoverRecord:
    return ledger.cutovers.plan(plan="week1", batch=2, tree=TREE, predicted_freeze_s=None, at_s=at_s)


def test_measurements_come_back_as_they_were_and_are_replaced(ledger: Ledger) -> None:
    record = begin(ledger)
    ledger.speed_ups.add(record.id, [TWO, ONE])
    assert list(ledger.speed_ups.of(record.id)) == [ONE, TWO]
    ledger.speed_ups.add(record.id, [replace(ONE, seconds=3.0)])
    assert [one.seconds for one in ledger.speed_ups.of(record.id)] == [3.0, 1.5]
    ledger.speed_ups.forget(record.id, Side.SOURCE)
    assert list(ledger.speed_ups.of(record.id)) == [TWO]
    assert list(ledger.speed_ups.of(record.id + 1)) == []


def test_only_users_who_work_on_the_target_are_told(ledger: Ledger) -> None:
    record = begin(ledger)
    ledger.speed_ups.add(record.id, [ONE, TWO])
    assert list(ledger.speed_ups.settled()) == []
    do(ledger.cutovers, record, *THERE)
    assert ledger.cutovers.read(record.id).state is CutoverState.THAWED
    (found,) = ledger.speed_ups.settled()
    stored = ledger.cutovers.read(record.id).tree
    assert (found.tree, found.plan, found.batch, found.measurements) == (stored, "week1", 2, (ONE, TWO))
    do(ledger.cutovers, record, ROLLBACK_FREEZE, at_s=90.0)
    assert list(ledger.speed_ups.settled()) == [], "he is on his way back"
