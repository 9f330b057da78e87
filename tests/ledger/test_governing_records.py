"""What people have set, and what runs were allowed, in the ledger."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.ledger import measures as controls
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.transfer.model import NO_CONTROLS, Bound, Controls, Gate, GovernorRecord, Hold, HostLoad, Limits, Tuned

RECORD = GovernorRecord(
    at_s=10.5,
    run_id=1,
    gate=Gate.OUTSIDE_WINDOWS,
    bound=Bound.WINDOWS,
    streams=0,
    most=12,
    hosts=(("gl1", 4), ("localhost", 8)),
    bwlimit_bytes_per_s=1000,
    reason="outside the windows of [transfer]",
    until_s=99.0,
    max_latency_s=0.05,
    max_load=8.0,
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger.db", create=True) as opened:
        opened.runs.start(verb="run", pid=1, at_s=1.0, directory="d")
        yield opened


def test_nothing_is_set_at_first(ledger: Ledger) -> None:
    assert ledger.controls.now() == NO_CONTROLS
    assert ledger.governor.newest() is None


def test_who_paused_first_and_since_when_stays_until_it_is_resumed(ledger: Ledger) -> None:
    ledger.controls.hold(by="anna", reason="exams", at_s=5.0)
    ledger.controls.hold(by="bob", reason="", at_s=6.0)
    assert ledger.controls.now() == Controls(hold=Hold(since_s=5.0, by="anna", reason="exams"))
    ledger.controls.resume(by="bob", at_s=7.0)
    ledger.controls.resume(by="bob", at_s=8.0)
    assert ledger.controls.now().hold is None
    ledger.controls.hold(by="bob", reason="", at_s=9.0)
    assert ledger.controls.now().hold == Hold(since_s=9.0, by="bob")


def test_limits_that_somebody_has_set_meanwhile_are_not_overwritten_unseen(ledger: Ledger) -> None:
    tune = ledger.controls.tune
    assert tune(Limits(jobs=3), by="anna", at_s=5.0, instead_of=Limits())
    assert not tune(Limits(max_load=2.0), by="bob", at_s=6.0, instead_of=Limits())
    assert ledger.controls.now().tuned == Tuned(limits=Limits(jobs=3), since_s=5.0, by="anna")
    assert tune(Limits(jobs=3, max_load=2.0), by="bob", at_s=7.0, instead_of=Limits(jobs=3))
    assert ledger.controls.now().tuned == Tuned(limits=Limits(jobs=3, max_load=2.0), since_s=7.0, by="bob")


def test_limits_are_set_all_together_and_kept_beside_a_pause(ledger: Ledger) -> None:
    limits = Limits(jobs=3, max_latency_s=0.05)
    ledger.controls.tune(limits, by="anna", at_s=5.0)
    ledger.controls.tune(limits, by="bob", at_s=6.0)
    ledger.controls.hold(by="bob", reason="", at_s=7.0)
    assert ledger.controls.now().tuned == Tuned(limits=limits, since_s=5.0, by="anna")
    ledger.controls.tune(Limits(bwlimit_bytes_per_s=10**9, max_load=1.5), by="bob", at_s=8.0)
    assert ledger.controls.now() == Controls(
        hold=Hold(since_s=7.0, by="bob"),
        tuned=Tuned(limits=Limits(bwlimit_bytes_per_s=10**9, max_load=1.5), since_s=8.0, by="bob"),
    )
    ledger.controls.tune(Limits(), by="bob", at_s=9.0)
    assert ledger.controls.now().tuned is None


def test_another_process_sees_it_at_once(ledger: Ledger) -> None:
    with open_ledger(ledger.file) as other:
        other.controls.hold(by="anna", reason="", at_s=5.0)
    assert ledger.controls.now().hold is not None


def test_what_a_run_was_allowed_comes_back_as_it_was(ledger: Ledger) -> None:
    second = replace(RECORD, gate=Gate.OPEN, bound=Bound.LOAD, until_s=None, bwlimit_bytes_per_s=None, at_s=11.0)
    for record in (RECORD, second):
        ledger.governor.add(record)
    assert list(ledger.governor.of_run(1)) == [RECORD, second]
    assert ledger.governor.newest() == second


def test_old_records_are_removed(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controls, "KEPT_RECORDS", 10)
    for number in range(64):
        ledger.governor.add(replace(RECORD, at_s=float(number)))
    assert [record.at_s for record in ledger.governor.of_run(1)] == [float(number) for number in range(54, 64)]


def test_of_hosts_what_was_read_last_is_kept(ledger: Ledger) -> None:
    assert list(ledger.governor.loads()) == []
    ledger.governor.keep_loads([HostLoad(host="gl2", at_s=1.0, load=3.0), HostLoad(host="gl1", at_s=1.0, load=0.0)])
    assert [one.host for one in ledger.governor.loads()] == ["gl1", "gl2"]
    again = [HostLoad(host="gl1", at_s=2.0, load=7.5)]
    ledger.governor.keep_loads(again)
    assert list(ledger.governor.loads()) == again
    ledger.governor.keep_loads([])
    assert list(ledger.governor.loads()) == []
