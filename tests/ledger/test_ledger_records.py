"""What every ledger keeps of archives, benchmarks, capacity, predictions, backups, limits, measurements and streams at work."""

from dataclasses import replace

import pytest

from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt
from migrator.cutover.model import CutoverState, TreeMeasurement, TreeTest
from migrator.fs.model import Side
from migrator.ledger import measures
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.reap.model import ArchiveRecord, ArchiveState, WrittenArchive
from migrator.transfer import model as transfer
from migrator.transfer.model import Limits
from tests.support.operations import ROLLBACK_FREEZE, THERE, do

ALICE = b"home/alice\xff\n"


# Archives and releases.


WRITTEN = WrittenArchive(
    members=7, content_bytes=2**50, archive_bytes=2**40, index_bytes=12, archive_digest="aa", index_digest="bb"
)


def archive(ledger: Ledger, number: int, *, tree: bytes = ALICE, plan: str = "p", batch: int = 1) -> ArchiveRecord:
    return ledger.archives.add(plan=plan, batch=batch, tree=tree, number=number, written=WRITTEN, at_s=5.25)


def test_archives_are_proven_once_and_void_for_ever(ledger: Ledger) -> None:
    made = archive(ledger, 1)
    for at_s in (6.0, 7.0):
        ledger.archives.enter(made.id, ArchiveState.PROVEN, at_s=at_s)
        assert list(ledger.archives.of_tree(ALICE)) == [replace(made, state=ArchiveState.PROVEN, at_s=6.0)]
    ledger.archives.enter(made.id, ArchiveState.VOID, at_s=8.0, reason="it was lost")
    ledger.archives.enter(made.id, ArchiveState.VOID, at_s=9.0, reason="again")
    gone = replace(made, state=ArchiveState.VOID, at_s=8.0, reason="it was lost")
    assert list(ledger.archives.of_tree(ALICE)) == [gone]
    with pytest.raises(LedgerCorrupt, match="cannot become proven"):
        ledger.archives.enter(made.id, ArchiveState.PROVEN, at_s=10.0)
    with pytest.raises(LedgerCorrupt, match="no archive 5"):
        ledger.archives.enter(5, ArchiveState.PROVEN, at_s=1.0)


# Around cutovers.


def test_measurements_are_kept_and_those_of_users_who_work_on_the_target_are_told(ledger: Ledger) -> None:
    one = TreeMeasurement(
        side=Side.SOURCE, run=1, test=TreeTest.READ, at_s=10.0, seconds=1.5, amount=7, complete=True, cold=False
    )
    two = replace(one, side=Side.TARGET, at_s=20.0, test=TreeTest.LIST, cold=None, complete=False, failure="went away")
    tree = UserTree(path=ALICE, user="\udcff ann")
    record = ledger.cutovers.plan(plan="week1", batch=2, tree=tree, predicted_freeze_s=None, at_s=1.0)
    ledger.speed_ups.add(record.id, [two, replace(one, seconds=3.0)])
    assert [found.seconds for found in ledger.speed_ups.of(record.id)] == [3.0, 1.5]
    ledger.speed_ups.add(record.id, [one])
    assert list(ledger.speed_ups.of(record.id)) == [one, two]
    assert list(ledger.speed_ups.of(record.id + 1)) == []
    assert list(ledger.speed_ups.settled()) == []
    assert do(ledger.cutovers, record, *THERE).state is CutoverState.THAWED
    assert list(ledger.speed_ups.settled()) == [(ledger.cutovers.read(record.id), [one, two])]
    do(ledger.cutovers, record, ROLLBACK_FREEZE, at_s=90.0)
    assert list(ledger.speed_ups.settled()) == [], "the user is on the way back"
    ledger.speed_ups.forget(record.id, Side.SOURCE)
    assert list(ledger.speed_ups.of(record.id)) == [two]


# Limits that people set, and what runs were allowed.


def test_who_paused_first_and_since_when_stays_until_it_is_resumed(ledger: Ledger) -> None:
    assert ledger.controls.now() == transfer.NO_CONTROLS
    ledger.controls.hold(by="anna", reason="exams", at_s=5.0)
    ledger.controls.hold(by="bob", reason="", at_s=6.0)
    with open_ledger(ledger.file) as other:
        assert other.controls.now() == transfer.Controls(hold=transfer.Hold(since_s=5.0, by="anna", reason="exams"))
    for at_s in (7.0, 8.0):
        ledger.controls.resume(by="bob", at_s=at_s)
        assert ledger.controls.now().hold is None
    ledger.controls.hold(by="bob", reason="", at_s=9.0)
    assert ledger.controls.now().hold == transfer.Hold(since_s=9.0, by="bob")


def test_limits_are_set_all_together_beside_a_pause(ledger: Ledger) -> None:
    tune, three = ledger.controls.tune, Limits(jobs=3, max_latency_s=0.05)
    tune(three, by="anna", at_s=5.0)
    tune(three, by="bob", at_s=6.0)
    ledger.controls.hold(by="bob", reason="", at_s=7.0)
    assert ledger.controls.now().tuned == transfer.Tuned(limits=three, since_s=5.0, by="anna")
    limits = Limits(bwlimit_bytes_per_s=10**9, max_load=1.5)
    tune(limits, by="bob", at_s=8.0)
    tuned = transfer.Tuned(limits=limits, since_s=8.0, by="bob")
    assert ledger.controls.now() == transfer.Controls(hold=transfer.Hold(since_s=7.0, by="bob"), tuned=tuned)
    tune(Limits(), by="bob", at_s=9.0)
    assert ledger.controls.now().tuned is None


def test_what_a_run_was_allowed_is_kept_for_a_while(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "KEPT_RECORDS", 10)
    assert ledger.governor.newest() is None
    run_id = ledger.runs.start(verb="run", pid=1, at_s=1.0, directory="d")
    record = transfer.GovernorRecord(
        at_s=10.5,
        run_id=run_id,
        gate=transfer.Gate.OUTSIDE_WINDOWS,
        bound=transfer.Bound.WINDOWS,
        streams=0,
        most=12,
        hosts=(("gl1", 4), ("localhost", 8)),
        bwlimit_bytes_per_s=1000,
        reason="outside the windows of [transfer]",
        until_s=99.0,
        max_latency_s=0.05,
        max_load=8.0,
    )
    second = replace(
        record, gate=transfer.Gate.OPEN, bound=transfer.Bound.LOAD, until_s=None, bwlimit_bytes_per_s=None, at_s=11.0
    )
    for one in (record, second):
        ledger.governor.add(one)
    assert list(ledger.governor.of_run(run_id)) == [record, second]
    assert ledger.governor.newest() == second
    for number in range(62):
        ledger.governor.add(replace(record, at_s=float(number)))
    assert [found.at_s for found in ledger.governor.of_run(run_id)] == [float(number) for number in range(52, 62)]
