"""What every ledger keeps of the site, of runs, scans, plans, events and verifications."""

from dataclasses import replace

import pytest

from migrator.catalog.model import CatalogRecord, StrangeFiles
from migrator.core.entry import UserTree
from migrator.core.errors import LedgerCorrupt, UsageError
from migrator.core.events import Event, EventKind, Severity
from migrator.core.states import BatchState
from migrator.fs.model import TargetCapabilities
from migrator.ledger.ledger import Ledger
from migrator.ledger.model import SiteRecord
from migrator.reap.model import ReapRelease
from migrator.verify.model import DigestPolicy, VerificationRecord
from tests.support.plans import small_plan
from tests.support.records import HOSTILE, SITE, verification


class TestSite:
    def test_is_nothing_before_init(self, ledger: Ledger) -> None:
        assert ledger.site.read() is None

    def test_comes_back_as_created_and_again(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        ledger.site.create(SITE)
        assert ledger.site.read() == SITE

    def test_is_one_only(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        other = SiteRecord(
            site_id="other",
            name="x",
            created_at_s=1.0,
            source=SITE.source,
            target=SITE.target,
            capabilities=None,
            capabilities_probed_at_s=None,
        )
        with pytest.raises(UsageError, match="rehearsal"):
            ledger.site.create(other)

    def test_learns_identities_and_capabilities(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        ledger.site.update_identities(SITE.target, SITE.source)
        capabilities = TargetCapabilities(keeps_acls=False, reserved_names=(b"#fSiDs#", b"\xff"))
        ledger.site.record_capabilities(capabilities, 99.0)
        found = ledger.site.read()
        assert found is not None
        assert (found.source, found.target) == (SITE.target, SITE.source)
        assert (found.capabilities, found.capabilities_probed_at_s) == (capabilities, 99.0)

    def test_that_is_not_there_learns_nothing(self, ledger: Ledger) -> None:
        with pytest.raises(LedgerCorrupt):
            ledger.site.record_capabilities(TargetCapabilities(), 1.0)


class TestRuns:
    def test_live_and_end(self, ledger: Ledger) -> None:
        first = ledger.runs.start(verb="scan", pid=5, at_s=1.0, directory="runs/1")
        second = ledger.runs.start(verb="run", pid=6, at_s=2.0, directory="runs/\udcff")
        ledger.runs.heartbeat(second, 4.0)
        latest = ledger.runs.latest()
        assert latest is not None
        assert (latest.id, latest.verb, latest.heartbeat_at_s, latest.finished_at_s) == (second, "run", 4.0, None)
        ledger.runs.finish(first, 8.0, 130)
        scan = ledger.runs.latest("scan")
        assert scan is not None
        assert (scan.id, scan.finished_at_s, scan.exit_code) == (first, 8.0, 130)
        assert ledger.runs.latest("verify") is None

    def test_that_never_began_have_no_heartbeat(self, ledger: Ledger) -> None:
        with pytest.raises(LedgerCorrupt):
            ledger.runs.heartbeat(12, 1.0)


class TestScans:
    def closing(
        self, scan_id: int, name: str, finished_at_s: float | None, *, scope: tuple[bytes, ...] = ()
    ) -> CatalogRecord:
        return CatalogRecord(
            name=name,
            scan_id=scan_id,
            site_id="5e1f",
            via="mount",
            trees=tuple(UserTree(path=b"home/" + name, user="user") for name in HOSTILE),
            parts=("part-000000.parquet",),
            started_at_s=1.0,
            finished_at_s=finished_at_s,
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

    def test_go_on_until_they_end(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        assert ledger.scans.unfinished() is None
        scan_id = ledger.scans.start(catalog="c1", via="mount", at_s=1.0)
        assert ledger.scans.start(catalog="c1", via="mount", at_s=7.0) == scan_id
        going_on = ledger.scans.unfinished()
        assert going_on is not None
        assert (going_on.name, going_on.scan_id, going_on.started_at_s) == ("c1", scan_id, 1.0)
        assert ledger.scans.latest() is None
        assert ledger.scans.latest(finished=False) == going_on
        closing = self.closing(scan_id, "c1", 3.0)
        ledger.scans.finish(closing)
        ledger.scans.finish(closing)
        assert ledger.scans.unfinished() is None
        assert ledger.scans.latest() == closing
        assert list(ledger.scans.all()) == [closing]

    def test_that_were_overtaken_do_not_go_on(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        ledger.scans.start(catalog="c1", via="mount", at_s=1.0)
        newer = ledger.scans.start(catalog="c2", via="mount", at_s=2.0)
        ledger.scans.finish(self.closing(newer, "c2", 3.0))
        assert ledger.scans.unfinished() is None

    def test_of_some_trees_are_never_the_newest(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        scope = tuple(b"home/" + name for name in HOSTILE)
        alone = ledger.scans.start(catalog="c1", via="mount", at_s=1.0, scope=scope)
        assert ledger.scans.unfinished() is None
        assert ledger.scans.latest(finished=False) is None
        assert [(record.name, record.scope) for record in ledger.scans.unfinished_of_trees()] == [("c1", scope)]
        whole = ledger.scans.start(catalog="c2", via="mount", at_s=2.0)
        ledger.scans.finish(self.closing(whole, "c2", 3.0))
        closing = self.closing(alone, "c1", 4.0, scope=scope)
        ledger.scans.finish(closing)
        later = ledger.scans.start(catalog="c3", via="mount", at_s=5.0, scope=scope[:1])
        ledger.scans.finish(self.closing(later, "c3", 6.0, scope=scope[:1]))
        ledger.scans.start(catalog="c4", via="bricks", at_s=7.0, scope=scope[:1])
        assert ledger.scans.of_bricks() is None
        latest = ledger.scans.latest()
        assert latest is not None
        assert latest.name == "c2"
        assert ledger.scans.latest(finished=False) == latest
        assert ledger.scans.unfinished() is None
        assert [record.name for record in ledger.scans.unfinished_of_trees()] == ["c4"]
        assert [record.scope for record in ledger.scans.all()] == [scope, (), scope[:1], scope[:1]]

    def test_of_the_bricks_are_asked_for_by_themselves(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        bricks = ledger.scans.start(catalog="c1", via="bricks", at_s=1.0)
        assert ledger.scans.of_bricks() is None
        closing = replace(self.closing(bricks, "c1", 2.0), via="bricks")
        ledger.scans.finish(closing)
        ledger.scans.finish(self.closing(ledger.scans.start(catalog="c2", via="mount", at_s=3.0), "c2", 4.0))
        assert ledger.scans.of_bricks() == closing

    def test_of_some_trees_do_not_overtake_one_of_the_whole_source(self, ledger: Ledger) -> None:
        ledger.site.create(SITE)
        ledger.scans.start(catalog="c1", via="mount", at_s=1.0)
        alone = ledger.scans.start(catalog="c2", via="mount", at_s=2.0, scope=(b"home/a",))
        ledger.scans.finish(self.closing(alone, "c2", 3.0, scope=(b"home/a",)))
        going_on = ledger.scans.unfinished()
        assert going_on is not None
        assert going_on.name == "c1"


class TestPlans:
    def test_are_recorded_once(self, ledger: Ledger) -> None:
        assert ledger.plans.latest() is None
        ledger.plans.record(small_plan("one"), path="plans/one.json", checksum="c1")
        ledger.plans.record(small_plan("one"), path="plans/one.json", checksum="c1")
        found = ledger.plans.read("one")
        assert found is not None
        assert (found.checksum, found.path) == ("c1", "plans/one.json")
        assert found.batches == {1: BatchState.PLANNED, 2: BatchState.PLANNED}
        with pytest.raises(UsageError, match="one"):
            ledger.plans.record(small_plan("one"), path="plans/one.json", checksum="c2")

    def test_latest_is_the_one_recorded_last(self, ledger: Ledger) -> None:
        for name in ("b", "a"):
            ledger.plans.record(small_plan(name), path=name, checksum=name)
        latest = ledger.plans.latest()
        assert latest is not None
        assert latest.name == "a"
        assert ledger.plans.read("c") is None

    def test_batches_move_as_the_states_allow(self, ledger: Ledger) -> None:
        ledger.plans.record(small_plan("one"), path="p", checksum="c")
        ledger.plans.set_batch_state("one", 1, BatchState.SEEDING)
        ledger.plans.set_batch_state("one", 1, BatchState.SEEDING)
        with pytest.raises(LedgerCorrupt, match="cannot become"):
            ledger.plans.set_batch_state("one", 1, BatchState.VERIFIED)
        with pytest.raises(LedgerCorrupt, match="no batch 9"):
            ledger.plans.set_batch_state("one", 9, BatchState.SEEDING)
        found = ledger.plans.read("one")
        assert found is not None
        assert found.batches == {1: BatchState.SEEDING, 2: BatchState.PLANNED}


class TestEvents:
    def test_newest_first(self, ledger: Ledger) -> None:
        run = ledger.runs.start(verb="run", pid=1, at_s=0.0, directory="d")
        events = [
            Event(
                at_s=float(n), kind=EventKind.FILE_BAD, severity=Severity.ERROR, subject=f"s{n}", message="m\n\x1b[1m"
            )
            for n in range(4)
        ]
        for event in events:
            ledger.events.add(event, run)
        assert list(ledger.events.latest(2)) == [events[3], events[2]]


class TestVerifications:
    def record(self, verification_id: int, batch: int = 1, **changes: object) -> VerificationRecord:
        facts: dict[str, object] = {
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
        }
        return verification(id=verification_id, batch=batch, **(facts | changes))

    def test_count_when_they_have_ended(self, ledger: Ledger) -> None:
        first = ledger.verifications.start(plan="p", batch=1, at_s=1.0)
        second = ledger.verifications.start(plan="p", batch=1, at_s=1.0)
        assert ledger.verifications.latest("p", 1) is None
        done = self.record(first)
        ledger.verifications.finish(done)
        ledger.verifications.finish(done)
        assert ledger.verifications.latest("p", 1) == done
        assert list(ledger.verifications.of_plan("p")) == [done]
        ledger.verifications.finish(self.record(second, whole=False, reasons=("brick down",), manifest=None))
        latest = ledger.verifications.latest("p", 1)
        assert latest is not None
        assert (latest.id, latest.whole, latest.reasons) == (second, False, ("brick down",))
        assert ledger.verifications.latest("p", 2) is None

    def test_result_stands(self, ledger: Ledger) -> None:
        first = ledger.verifications.start(plan="p", batch=1, at_s=1.0)
        ledger.verifications.finish(self.record(first))
        with pytest.raises(LedgerCorrupt):
            ledger.verifications.finish(self.record(first, proven_gone=7))
        with pytest.raises(LedgerCorrupt):
            ledger.verifications.finish(self.record(first + 1))

    def test_those_of_some_trees_are_never_taken_for_one_of_the_batch(self, ledger: Ledger) -> None:
        trees = ((), (b"home/alice",), (b"home/b%ob\n", b"home/c\xff"), (b"home/alice", b"home/c\xff"))
        records = []
        for covered in trees:
            number = ledger.verifications.start(plan="p", batch=1, at_s=1.0)
            records.append(self.record(number, trees=covered, carried_files=3, carried_bytes=2**41))
            ledger.verifications.finish(records[-1])
        other = self.record(ledger.verifications.start(plan="p", batch=2, at_s=1.0), batch=2)
        ledger.verifications.finish(other)
        ledger.verifications.start(plan="p", batch=1, at_s=1.0)
        assert ledger.verifications.latest("p", 1) == records[0]
        whole, of_alice, of_others, of_two = records
        assert list(ledger.verifications.of_tree("p", 1, b"home/alice")) == [whole, of_alice, of_two]
        assert list(ledger.verifications.of_tree("p", 1, b"home/b%ob\n")) == [whole, of_others]
        assert list(ledger.verifications.of_tree("p", 1, b"home/dave")) == [whole]
        assert list(ledger.verifications.all()) == [*records, other]

    def test_a_tree_is_covered_by_verifications_of_whatever_plan_it_was_in(self, ledger: Ledger) -> None:
        scan = ledger.scans.start(catalog="catalog-1", via="mount", at_s=1.0)
        first, second = UserTree(path=b"home/alice", user="alice"), UserTree(path=b"home/bob", user="bob")
        for name, trees in (("one", (first, second)), ("two", (second, first))):
            plan = replace(small_plan(name, trees=trees), scan_id=scan)
            ledger.plans.record(plan, path=f"{name}.json", checksum="c")
        covering = []
        for name, batch, covered in (
            ("one", 1, ()),
            ("one", 2, ()),
            ("two", 2, ()),
            ("two", 2, (b"home/alice",)),
            ("two", 2, (b"home/bob",)),
        ):
            number = ledger.verifications.start(plan=name, batch=batch, at_s=1.0)
            record = self.record(number, batch=batch, plan=name, trees=covered)
            ledger.verifications.finish(record)
            covering.append(record)
        assert list(ledger.verifications.covering(b"home/alice")) == [covering[0], covering[2], covering[3]]
        assert list(ledger.verifications.covering(b"home/carol")) == []


class TestReleases:
    def test_they_are_kept_by_tree_in_their_order(self, ledger: Ledger) -> None:
        found = [
            ReapRelease(tree=b"home/\xff", pattern=name, is_glob=bool(number % 2), by="root", at_s=float(number))
            for number, name in enumerate(HOSTILE)
        ]
        other = ReapRelease(tree=b"home/b", pattern=b"x", is_glob=False, by="root", at_s=1.0)
        ledger.releases.add([])
        ledger.releases.add([*found[:2], other])
        ledger.releases.add(found[2:])
        assert list(ledger.releases.of_trees([b"home/\xff"])) == found
        assert list(ledger.releases.of_trees([b"home/b", b"home/c"])) == [other]
        assert list(ledger.releases.of_trees([])) == []
