"""What every ledger keeps of the site, runs, scans, plans, verifications, archives, measurements and limits."""

import asyncio
import logging

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.catalog.model import VerificationRecord
from migrator.core.entry import UserTree
from migrator.core.errors import ExitCode, Interrupted, LedgerCorrupt, Refused, UsageError
from migrator.core.states import BatchState
from migrator.cutover.model import CutoverState
from migrator.cutover.rules_speed import TreeMeasurement, TreeTest
from migrator.fs.model import Difference, DifferenceKind, DigestPolicy, Side, TargetCapabilities
from migrator.transfer import records_measures as measures
from migrator.transfer.model_governor import NO_CONTROLS, Bound, Controls, Gate, GovernorRecord, Hold
from tests.support.fakes import FakeRunFiles, VirtualClock
from tests.support.making import made
from tests.support.operations import ROLLBACK_FREEZE, THERE, do
from tests.support.plans import small_plan
from tests.support.records import SITE, verification

# The site, runs and events.


def test_there_is_one_site_and_it_learns_identities_and_capabilities(ledger: MigrationLedger) -> None:
    assert ledger.site.read() is None
    with pytest.raises(LedgerCorrupt):
        ledger.site.record_capabilities(TargetCapabilities(), 1.0)
    for _ in range(2):
        ledger.site.create(SITE)
        assert ledger.site.read() == SITE
    with pytest.raises(UsageError, match="rehearsal"):
        ledger.site.create(replace(SITE, site_id="other"))
    ledger.site.update_identities(SITE.target, SITE.source)
    capabilities = TargetCapabilities(keeps_acls=False, reserved_names=(b"#fSiDs#", b"\xff"))
    ledger.site.record_capabilities(capabilities, 99.0)
    learned = {"source": SITE.target, "target": SITE.source, "capabilities": capabilities}
    assert ledger.site.read() == replace(SITE, **learned, capabilities_probed_at_s=99.0)


# Plans.


def test_plans_are_recorded_once_and_the_first_is_active_until_another_is_activated(ledger: MigrationLedger) -> None:
    assert ledger.plans.active() is None
    for name in ("one", "one", "b", "a"):
        ledger.plans.record(small_plan(name), path=f"plans/{name}.json", checksum=f"c{name}")
    found, active = ledger.plans.read("one"), ledger.plans.active()
    assert found is not None
    assert (found.checksum, found.path) == ("cone", "plans/one.json")
    assert found.batches == {1: BatchState.PLANNED, 2: BatchState.PLANNED}
    assert active is not None
    assert (active.name, ledger.plans.read("c"), list(ledger.plans.names())) == ("one", None, ["one", "b", "a"])
    for name in ("a", "b", "a"):
        ledger.plans.activate(name, 5.0)  # the clock stands still
    assert list(ledger.plans.activated()) == ["one", "b", "a"]
    with pytest.raises(LedgerCorrupt):
        ledger.plans.activate("c", 9.0)
    with pytest.raises(UsageError, match="one"):
        ledger.plans.record(small_plan("one"), path="plans/one.json", checksum="c2")


# Verifications.


def verified(ledger: MigrationLedger, batch: int = 1, plan: str = "p", **changes: object) -> VerificationRecord:
    """A verification that has ended."""
    facts: dict[str, object] = {
        "id": ledger.verifications.start(plan=plan, batch=batch, at_s=1.0),
        "policy": DigestPolicy(algorithm="xxh3_128", share=0.5, seed=2**63 - 1),
        "paths": 10,
        "size_bytes": 2**50,
        "digested_files": 5,
        "digested_bytes": 2**49,
        "proven_gone": 1,
        "differences": {"content": 1},
        "expected": {"loss-acl": 2},
        "manifest": "manifests/1",
        "manifest_digest": "abc",
        "plan": plan,
        "batch": batch,
    }
    record = verification(**(facts | changes))
    shown = Difference(path=b"home/alice/a", kind=DifferenceKind.CONTENT, source="a", target="b")
    for examples in ((shown,), (shown,), ()):
        ledger.verifications.finish(replace(record, examples=examples))
    return record


def test_a_verification_counts_when_it_has_ended_and_its_result_stands(ledger: MigrationLedger) -> None:
    ledger.verifications.start(plan="p", batch=1, at_s=1.0)
    assert ledger.verifications.latest("p", 1) is None
    done = verified(ledger)
    assert ledger.verifications.latest("p", 1) == done
    assert list(ledger.verifications.of_plan("p")) == [done]
    assert ledger.verifications.newest_id() == done.id
    for other in (replace(done, proven_gone=7), replace(done, id=done.id + 1)):
        with pytest.raises(LedgerCorrupt):
            ledger.verifications.finish(other)
    later = verified(ledger, whole=False, reasons=("brick down",), manifest=None)
    assert ledger.verifications.latest("p", 1) == later
    assert ledger.verifications.latest("p", 2) is None


ALICE = b"home/alice\xff\n"


# Around cutovers.


def test_measurements_are_kept_and_those_of_users_who_work_on_the_target_are_told(ledger: MigrationLedger) -> None:
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


def test_first_pause_is_kept_until_resumed(ledger: MigrationLedger) -> None:
    assert ledger.controls.now() == NO_CONTROLS
    ledger.controls.hold(by="anna", reason="exams", at_s=5.0)
    ledger.controls.hold(by="bob", reason="", at_s=6.0)
    with MigrationLedger.open(ledger.file) as other:
        assert other.controls.now() == Controls(hold=Hold(since_s=5.0, by="anna", reason="exams"))
    for at_s in (7.0, 8.0):
        ledger.controls.resume(by="bob", at_s=at_s)
        assert ledger.controls.now().hold is None
    ledger.controls.hold(by="bob", reason="", at_s=9.0)
    assert ledger.controls.now().hold == Hold(since_s=9.0, by="bob")


def test_governor_state_of_a_run_is_kept_for_a_while(ledger: MigrationLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "KEPT_RECORDS", 10)
    assert ledger.governor.newest() is None
    run_id = ledger.runs.start(verb="run", pid=1, at_s=1.0, directory="d")
    facts = {"at_s": 10.5, "run_id": run_id, "gate": Gate.OUTSIDE_WINDOWS, "bound": Bound.WINDOWS}
    limits = {"hosts": (("gl1", 4), ("localhost", 8)), "bwlimit_bytes_per_s": 1000, "until_s": 99.0, "max_load": 8.0}
    record = made(GovernorRecord, **facts, **limits, most=12, reason="outside the windows of [transfer]")
    second = replace(record, gate=Gate.OPEN, until_s=None, bwlimit_bytes_per_s=None, at_s=11.0)
    for one in (record, second):
        ledger.governor.add(one)
    assert list(ledger.governor.of_run(run_id)) == [record, second]
    assert ledger.governor.newest() == second
    for number in range(62):
        ledger.governor.add(replace(record, at_s=float(number)))
    assert [found.at_s for found in ledger.governor.of_run(run_id)] == [float(number) for number in range(52, 62)]


LOG = logging.getLogger("test")


async def call(ledger: MigrationLedger, ends: BaseException | ExitCode) -> None:
    async with FakeRunFiles().recorded(ledger, VirtualClock(), verb="drain", pid=7, log=LOG) as run:
        found = ledger.runs.latest()
        assert found is not None
        assert (found.id, found.pid, found.directory, found.finished_at_s) == (run.id, 7, "runs/1", None)
        if isinstance(ends, BaseException):
            raise ends
        run.exit_code = ends


@pytest.mark.parametrize(
    ("ends", "code", "logged"),
    [
        (ExitCode.DONE, 0, []),
        (ExitCode.ATTENTION, 3, []),
        (Refused("no"), 4, ["no"]),
        (Interrupted("stopped"), 130, []),
        (asyncio.CancelledError(), 130, []),
        (OSError("a defect"), 1, []),
    ],
    ids=repr,
)
def test_however_it_ends_the_ledger_has_the_exit_code(
    ledger: MigrationLedger,
    ends: BaseException | ExitCode,
    code: int,
    logged: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    if isinstance(ends, BaseException):
        with pytest.raises(type(ends)):
            asyncio.run(call(ledger, ends))
    else:
        asyncio.run(call(ledger, ends))
    found = ledger.runs.latest()
    assert found is not None
    assert found.finished_at_s is not None
    assert found.exit_code == code
    assert [record.getMessage() for record in caplog.records if record.name == "test"] == logged
