"""What every ledger keeps of the site, of runs, scans, plans, events and verifications."""

from dataclasses import replace
from typing import Any

import pytest

from migrator.catalog.model import CatalogRecord, StrangeFiles
from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt, UsageError
from migrator.core.states import BatchState
from migrator.fs.model import TargetCapabilities
from migrator.ledger.ledger import Ledger
from migrator.verify.model import DigestPolicy, VerificationRecord
from tests.support.plans import small_plan
from tests.support.records import HOSTILE, SITE, verification

SCOPE = tuple(b"home/" + name for name in HOSTILE)


# The site, runs and events.


def test_there_is_one_site_and_it_learns_identities_and_capabilities(ledger: Ledger) -> None:
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
    assert ledger.site.read() == replace(SITE, **learned, capabilities_probed_at_s=99.0)  # type: ignore[arg-type]


# Scans.


def scanned(
    ledger: Ledger, name: str, *, via: str = "mount", scope: tuple[bytes, ...] = (), ended: bool = True
) -> CatalogRecord:
    scan_id = ledger.scans.start(catalog=name, via=via, at_s=1.0, scope=scope)
    record = CatalogRecord(
        name=name,
        scan_id=scan_id,
        site_id="5e1f",
        via=via,
        trees=tuple(UserTree(path=tree, user="user") for tree in SCOPE),
        parts=("part-000000.parquet",),
        started_at_s=1.0,
        finished_at_s=3.0,
        whole=False,
        reasons=("brick gl1:/b1 is down",),
        rows=3,
        files=2,
        directories=1,
        size_bytes=2**52,
        problems=4,
        health_fingerprint="f1",
        scope=scope,
        strange=(StrangeFiles(brick="gl1:/b1", files=3, paths=HOSTILE),),
    )
    for _ in range(2 * ended):
        ledger.scans.finish(record)
    return record


@pytest.fixture
def known(ledger: Ledger) -> Ledger:
    ledger.site.create(SITE)
    return ledger


def test_scans_of_some_trees_are_never_the_newest_and_those_of_bricks_are_asked_for_alone(known: Ledger) -> None:
    scanned(known, "c1", scope=SCOPE, ended=False)
    assert known.scans.unfinished() is known.scans.latest(finished=False) is known.scans.of_bricks() is None
    assert [(record.name, record.scope) for record in known.scans.unfinished_of_trees()] == [("c1", SCOPE)]
    bricks = scanned(known, "c2", via="bricks")
    whole = scanned(known, "c3")
    scanned(known, "c1", scope=SCOPE)
    scanned(known, "c4", scope=SCOPE[:1])
    scanned(known, "c5", scope=SCOPE[:1], via="bricks", ended=False)
    assert known.scans.of_bricks() == bricks
    assert known.scans.latest() == known.scans.latest(finished=False) == whole
    assert known.scans.unfinished() is None
    assert [record.name for record in known.scans.unfinished_of_trees()] == ["c5"]
    assert [record.scope for record in known.scans.all()] == [SCOPE, (), (), SCOPE[:1], SCOPE[:1]]


# Plans.


def test_plans_are_recorded_once_and_the_first_is_active_until_another_is_activated(ledger: Ledger) -> None:
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


def verified(ledger: Ledger, batch: int = 1, plan: str = "p", **changes: object) -> VerificationRecord:
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
    for _ in range(2):
        ledger.verifications.finish(record)
    return record


def test_a_verification_counts_when_it_has_ended_and_its_result_stands(ledger: Ledger) -> None:
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


def test_verifications_of_some_trees_are_never_taken_for_one_of_the_batch(ledger: Ledger) -> None:
    trees = ((), (b"home/alice",), (b"home/b%ob\n", b"home/c\xff"), (b"home/alice", b"home/c\xff"))
    carried: dict[str, Any] = {"carried_files": 3, "carried_bytes": 2**41}
    whole, of_alice, of_others, of_two = (verified(ledger, trees=covered, **carried) for covered in trees)
    other = verified(ledger, batch=2)
    ledger.verifications.start(plan="p", batch=1, at_s=1.0)
    assert ledger.verifications.latest("p", 1) == whole
    assert list(ledger.verifications.of_tree("p", 1, b"home/alice")) == [whole, of_alice, of_two]
    assert list(ledger.verifications.of_tree("p", 1, b"home/b%ob\n")) == [whole, of_others]
    assert list(ledger.verifications.of_tree("p", 1, b"home/dave")) == [whole]
    assert list(ledger.verifications.all()) == [whole, of_alice, of_others, of_two, other]


def test_a_tree_is_covered_by_verifications_of_whatever_plan_it_was_in(ledger: Ledger) -> None:
    scan = ledger.scans.start(catalog="catalog-1", via="mount", at_s=1.0)
    first, second = UserTree(path=b"home/alice", user="alice"), UserTree(path=b"home/bob", user="bob")
    for name, trees in (("one", (first, second)), ("two", (second, first))):
        plan = replace(small_plan(name, trees=trees), scan_id=scan)
        ledger.plans.record(plan, path=f"{name}.json", checksum="c")
    in_one = [verified(ledger, batch, "one") for batch in (1, 2)]
    in_two = [verified(ledger, 2, "two", trees=trees) for trees in ((), (b"home/alice",), (b"home/bob",))]
    assert list(ledger.verifications.covering(b"home/alice")) == [in_one[0], *in_two[:2]]
    assert list(ledger.verifications.covering(b"home/carol")) == []
