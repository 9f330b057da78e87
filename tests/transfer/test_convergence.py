"""When delta passes end, and what is predicted of the freeze: by rules, over simulated sites that share nothing with them, and from the ledger to `status`."""

import json
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.catalog.model import VerificationRecord
from migrator.core.states import ChunkKind, PassKind, PassState
from migrator.core.units import HOUR_S, MIB
from migrator.fs.model import DigestPolicy
from migrator.plan.model import Chunk, TransferCost
from migrator.render.text import to_json, to_markdown
from migrator.report.status import read_status
from migrator.report.view_status import status_document
from migrator.transfer.bases import part_of
from migrator.transfer.convergence import check_of_trees, judge_passes
from migrator.transfer.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.transfer.model import PassRecord, StreamCounters
from migrator.transfer.model_convergence import (
    ConvergenceOutcome,
    Decision,
    FinishedPass,
    FreezeCheck,
    PassLimits,
    Prediction,
)
from migrator.transfer.rules_convergence import ASSUMED_FIXED_S, check_cost, decide, predict, predict_after_pass
from tests.support.catalogs import whole_catalog
from tests.support.plans import small_plan
from tests.support.records import SITE, attempt, end, verification

COST = TransferCost(s_per_file=0.01, s_per_byte=1e-8, streams=1, basis="measured here")
LIMITS = PassLimits(max_freeze_s=600.0, max_delta_passes=5)
NO_CHECK = FreezeCheck()


ALICE, BOB = b"home/alice", b"home/bob"


def changed(tree: bytes = ALICE, **by_kind: ChangeTally) -> TreeChanges:
    kinds = {ChangeKind(name): tally for name, tally in by_kind.items()}
    return TreeChanges(tree=tree, names_before=9, bytes_before=9, by_kind=kinds)


SEED = FinishedPass(
    kind=PassKind.SEED,
    number=0,
    scanned_at_s=0.0,
    scan_s=50.0,
    started_at_s=100.0,
    finished_at_s=7000.0,
    sent_files=100_000,
    sent_bytes=10**11,
)


def delta(
    number: int,
    *,
    scanned_at_s: float,
    files: int,
    size_bytes: int = 0,
    scan_s: float = 50.0,
    fixed_s: float = 10.0,
    trees: tuple[TreeChanges, ...] | None = None,
) -> FinishedPass:
    """A pass that took what `COST` says."""
    took_s = fixed_s + files * COST.s_per_file + size_bytes * COST.s_per_byte
    return FinishedPass(
        kind=PassKind.DELTA,
        number=number,
        scanned_at_s=scanned_at_s,
        scan_s=scan_s,
        started_at_s=scanned_at_s + scan_s,
        finished_at_s=scanned_at_s + scan_s + took_s,
        sent_files=files,
        sent_bytes=size_bytes,
        trees=(changed(rewritten=ChangeTally(paths=files, size_bytes=size_bytes)),) if trees is None else trees,
    )


FIRST = delta(1, scanned_at_s=7200.0, files=7200)
SECOND = delta(2, scanned_at_s=FIRST.finished_at_s, files=132)


def judged(*passes: FinishedPass, earlier_freeze_s: float | None = None, limits: PassLimits = LIMITS) -> Decision:
    return decide(
        passes,
        batch=1,
        at_s=passes[-1].finished_at_s,
        cost=COST,
        check=NO_CHECK,
        limits=limits,
        made=len(passes) - 1,
        earlier_freeze_s=earlier_freeze_s,
    )


def predicted(passes: Sequence[FinishedPass], at_s: float, check: FreezeCheck = NO_CHECK) -> Prediction:
    found = predict(passes, at_s=at_s, cost=COST, check=check)
    assert found is not None
    return found


def test_the_freeze_has_its_verification() -> None:
    check = FreezeCheck(s_per_file=0.5, s_per_byte=0.25, files=100, size_bytes=1000, fixed_s=7.0)
    found = predicted([SEED, FIRST], FIRST.finished_at_s, check)
    bare = predicted([SEED, FIRST], FIRST.finished_at_s)
    assert found.freeze_s - bare.freeze_s == pytest.approx(7 + (100 + 132) * 0.5 + 1000 * 0.25)
    assert found.least_freeze_s - bare.least_freeze_s == pytest.approx(7 + 100 * 0.5 + 1000 * 0.25)
    assert found.next_pass_s == bare.next_pass_s


def verified(took_s: float) -> VerificationRecord:
    return VerificationRecord(
        id=1,
        plan="plan",
        batch=1,
        started_at_s=100.0,
        finished_at_s=100.0 + took_s,
        policy=DigestPolicy(algorithm="xxh3_128", share=1.0, seed=0),
        paths=1000,
        size_bytes=0,
        digested_files=0,
        digested_bytes=0,
        proven_gone=0,
        differences={},
        expected={},
        whole=True,
        reasons=(),
        manifest=None,
        manifest_digest=None,
    )


def test_a_verification_takes_no_longer_in_any_case_than_the_shortest_took_as_a_whole() -> None:
    assert check_cost([])[0] == check_cost([verified(60.0)])[0] == ASSUMED_FIXED_S
    assert check_cost([verified(60.0), verified(0.5), verified(2.0)])[0] == pytest.approx(0.5)


def test_before_a_cutover_its_own_pass_brings_what_changed_until_now() -> None:
    passes, late_s = [SEED, FIRST], FIRST.finished_at_s + 100_000.0
    now = predicted(passes, late_s)
    then = predict_after_pass(passes, at_s=late_s, cost=COST, check=NO_CHECK)
    assert then is not None
    assert then.churn_files_per_h == now.churn_files_per_h
    assert then == predicted(passes, FIRST.scanned_at_s + now.next_pass_s)
    assert then.freeze_s < now.freeze_s
    assert predict_after_pass([SEED], at_s=late_s, cost=COST, check=NO_CHECK) is None


def test_unsettled_paths_come_with_every_pass_and_are_no_churn() -> None:
    one = delta(1, scanned_at_s=7200.0, files=500, trees=(changed(unsettled=ChangeTally(paths=500)),))
    for later_s in (0.0, 5000.0):
        found = predicted([SEED, one], one.finished_at_s + later_s)
        assert found.churn_files_per_h == 0.0
        assert found.next_pass_s == pytest.approx(50 + 10 + 5)


NOTHING = delta(1, scanned_at_s=7200.0, files=0, trees=())
SHORT = PassLimits(max_freeze_s=60.0, max_delta_passes=5)


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [
        (judged(SEED), ConvergenceOutcome.GO_ON),
        (judged(SEED, limits=replace(LIMITS, max_delta_passes=0)), ConvergenceOutcome.LIMIT_OF_PASSES),
        (judged(SEED, FIRST), ConvergenceOutcome.CONVERGED),
        (judged(SEED, FIRST, limits=SHORT), ConvergenceOutcome.GO_ON),
        (judged(SEED, FIRST, limits=replace(SHORT, max_delta_passes=1)), ConvergenceOutcome.LIMIT_OF_PASSES),
        (judged(SEED, NOTHING), ConvergenceOutcome.NOTHING_CHANGED),
        (judged(SEED, NOTHING, limits=SHORT), ConvergenceOutcome.NOTHING_CHANGED),
        (judged(SEED, replace(NOTHING, renames=1), limits=SHORT), ConvergenceOutcome.GO_ON),
        (judged(SEED, replace(NOTHING, gone=1), limits=SHORT), ConvergenceOutcome.GO_ON),
        # The freeze after the second one is predicted to take 75.75 s: 50 s of scan, 10 s fixed, 0.6 s of copying.
        (judged(SEED, FIRST, SECOND, limits=SHORT), ConvergenceOutcome.GO_ON),
        (judged(SEED, FIRST, SECOND, limits=SHORT, earlier_freeze_s=85.0), ConvergenceOutcome.GO_ON),
        (judged(SEED, FIRST, SECOND, limits=SHORT, earlier_freeze_s=84.0), ConvergenceOutcome.NO_LONGER_SHRINKS),
        (judged(SEED, FIRST, SECOND, limits=SHORT, earlier_freeze_s=20.0), ConvergenceOutcome.NO_LONGER_SHRINKS),
        (judged(SEED, FIRST, SECOND, earlier_freeze_s=20.0), ConvergenceOutcome.CONVERGED),
        # A single delta pass does not show whether it shrinks.
        (judged(SEED, FIRST, limits=SHORT, earlier_freeze_s=1.0), ConvergenceOutcome.GO_ON),
    ],
)
def test_another_pass_follows_only_while_it_is_useful(decision: Decision, outcome: ConvergenceOutcome) -> None:
    assert decision.outcome is outcome
    assert decision.go_on is (outcome is ConvergenceOutcome.GO_ON)


def of_trees(number: int, scanned_at_s: float, **files: int) -> FinishedPass:
    """A delta pass over trees, each with so many files of 1,000 bytes rewritten."""
    trees = tuple(
        changed(b"home/" + user.encode(), rewritten=ChangeTally(paths=count, size_bytes=1000 * count))
        for user, count in files.items()
    )
    sent = sum(files.values())
    return delta(number, scanned_at_s=scanned_at_s, files=sent, size_bytes=1000 * sent, trees=trees)


def test_the_freeze_of_a_single_tree() -> None:
    def freeze_s(passes: Sequence[FinishedPass], tree: bytes) -> float | None:
        found = predict(passes, tree=tree, at_s=9000.0, cost=COST, check=NO_CHECK)
        return found.freeze_s if found is not None else None

    first, second = of_trees(1, 7200.0, alice=90, bob=10), of_trees(2, 8000.0, alice=300, bob=0)
    # Before a delta pass over the tree nothing is predicted.
    assert freeze_s([SEED], ALICE) is None
    assert freeze_s([SEED, of_trees(1, 7200.0, bob=1)], ALICE) is None
    # Who changes more is frozen longer, and nobody longer than all together.
    alice, bob = freeze_s([SEED, first, second], ALICE), freeze_s([SEED, first, second], BOB)
    assert alice is not None
    assert bob is not None
    assert bob < alice <= predicted([SEED, first, second], 9000.0).freeze_s
    # A tree alone in its batch is predicted as the batch.
    alone = [SEED, of_trees(1, 7200.0, alice=100), of_trees(2, 8000.0, alice=5)]
    assert freeze_s(alone, ALICE) == predicted(alone, 9000.0).freeze_s


HISTORIES = 300
BAND = (0.75, 2.0)
"""Of the predicted freeze by the simulated one. The prediction has a margin of a quarter on what it expects."""
STREAMS, S_PER_FILE, FILE_BYTES, BYTES_PER_S, CHECK_S_PER_FILE, SEED_PASS_S = 4, 0.002, 1e6, 4e8, 0.001, 20_000.0
BURST, BURST_SHARE = 30.0, 0.05
MOST = {
    "steady": 0.9,
    "bursts": 0.9,
    "silent": 0.95,
    "long scans": 0.95,
    # After one delta pass nothing tells what changes all the time from what changed once in a long time.
    "hot files": 0.8,
}
"""The share of freezes that are as long as predicted."""


@dataclass(kw_only=True)
class ChangingSite:
    """`hot` files change all the time: every list holds them. Others change one by one, `rate` of them a second, and more in
    bursts.
    """

    chance: random.Random
    rate: float
    scan_s: float
    hot: int = 0
    bursts_every_s: float = math.inf

    @classmethod
    def of(cls, kind: str, seed: int) -> "ChangingSite":
        chance = random.Random(seed)
        rate, scan_s = 10 ** chance.uniform(-2, 0), 10 ** chance.uniform(1, 2.5)
        return cls(
            chance=chance,
            rate=0.0 if kind == "silent" else rate,
            scan_s=chance.uniform(3600, 20_000) if kind == "long scans" else scan_s,
            hot=chance.randrange(10, 5000) if kind == "hot files" else 0,
            bursts_every_s=chance.uniform(1800, 20_000) if kind == "bursts" else math.inf,
        )

    def about(self, value: float) -> float:
        """A duration as it comes out in the field."""
        return value * max(self.chance.gauss(1.0, 0.1), 0.2)

    def listed(self, from_s: float, to_s: float) -> int:
        """Files in the list of a pass."""

        def changes_until(at_s: float) -> float:
            if math.isinf(self.bursts_every_s):
                return self.rate * at_s
            whole, rest = divmod(at_s, self.bursts_every_s)
            in_bursts_s = BURST_SHARE * self.bursts_every_s * whole + min(rest, BURST_SHARE * self.bursts_every_s)
            return self.rate * (at_s + (BURST - 1) * in_bursts_s)

        return round(changes_until(to_s) - changes_until(from_s)) + self.hot

    def transfer_s(self, files: int) -> float:
        """What a pass takes behind its scan."""
        return self.about(5.0) + self.about(files * (S_PER_FILE + FILE_BYTES / BYTES_PER_S))

    def passes(self) -> Iterator[FinishedPass]:
        """The seed pass, and delta passes one upon the other, without end."""
        kind, number, scanned_at_s, now_s, scan_s, files = PassKind.SEED, 0, 0.0, SEED_PASS_S, self.scan_s, 0
        while True:
            tally = ChangeTally(paths=files, size_bytes=round(files * FILE_BYTES))
            yield FinishedPass(
                kind=kind,
                number=number,
                scanned_at_s=scanned_at_s,
                scan_s=scan_s,
                started_at_s=scanned_at_s + scan_s,
                finished_at_s=now_s,
                sent_files=files,
                sent_bytes=tally.size_bytes,
                trees=(TreeChanges(tree=b"t", names_before=9, bytes_before=9, by_kind={ChangeKind.REWRITTEN: tally}),),
            )
            kind, number, scan_s = PassKind.DELTA, number + 1, self.about(self.scan_s)
            files = self.listed(scanned_at_s, now_s)
            scanned_at_s, now_s = now_s, now_s + scan_s + self.transfer_s(files)

    def freeze_s(self, last: FinishedPass) -> float:
        """How long the users wait if they are frozen when the last pass ends: one more pass, and its verification."""
        files = self.listed(last.scanned_at_s, last.finished_at_s)
        return self.about(self.scan_s) + self.transfer_s(files) + self.about(files * CHECK_S_PER_FILE)

    def to_the_end(self, limits: PassLimits) -> tuple[list[FinishedPass], Decision]:
        """Passes, until a decision says that there is to be no other. Attempts would have told a cost that is a fifth off."""
        off = STREAMS * min(max(self.chance.gauss(1.0, 0.2), 0.5), 2.0)
        cost = TransferCost(s_per_file=S_PER_FILE * off, s_per_byte=off / BYTES_PER_S, streams=STREAMS, basis="")
        passes: list[FinishedPass] = []
        earlier_freeze_s = None
        for one in self.passes():
            passes.append(one)
            decision = decide(
                passes,
                batch=1,
                at_s=one.finished_at_s,
                cost=cost,
                check=FreezeCheck(s_per_file=CHECK_S_PER_FILE),
                limits=limits,
                made=len(passes) - 1,
                earlier_freeze_s=earlier_freeze_s,
            )
            if not decision.go_on:
                return passes, decision
            earlier_freeze_s = decision.prediction.freeze_s if decision.prediction else None
        raise AssertionError("passes end")


@pytest.mark.parametrize(("kind", "most"), MOST.items())
def test_most_freezes_are_as_long_as_predicted(kind: str, most: float) -> None:
    within = 0
    for seed in range(HISTORIES):
        site = ChangingSite.of(kind, seed)
        limits = PassLimits(max_freeze_s=10 ** site.chance.uniform(1, 4), max_delta_passes=8)
        passes, decision = site.to_the_end(limits)
        assert decision.prediction is not None
        within += BAND[0] <= decision.prediction.freeze_s / site.freeze_s(passes[-1]) <= BAND[1]
    assert within >= most * HISTORIES


T0_S = 1_763_600_000.0
TREE = small_plan().batches[0].trees[0].path
WANTED = PassLimits(max_freeze_s=600.0, max_delta_passes=5)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[MigrationLedger]:
    """A site whose batch 1 was seeded within two hours after a scan of ten minutes."""
    with MigrationLedger.open(tmp_path / "ledger.db", create=True) as made:
        made.site.create(SITE)
        made.plans.record(small_plan(), path="plans/plan.json", checksum="c")
        scanned(made, 0, T0_S, 600.0)
        seed = made.passes.start(
            plan="plan",
            batch=1,
            kind=PassKind.SEED,
            catalog="catalog-0",
            chunk_list="l",
            chunks=[chunk(1000, 1000 * MIB)],
            at_s=T0_S + 1200,
        )
        copied(made, seed, T0_S + 7200)
        yield made


def chunk(files: int, size_bytes: int) -> Chunk:
    return Chunk(number=1, kind=ChunkKind.FILES, tree=TREE, files=files, size_bytes=size_bytes)


def scanned(ledger: MigrationLedger, number: int, at_s: float, took_s: float) -> None:
    name = f"catalog-{number}"
    scan_id = ledger.scans.start(catalog=name, via="mount", at_s=at_s)
    ledger.scans.finish(
        whole_catalog(
            name=name,
            scan_id=scan_id,
            via="mount",
            started_at_s=at_s,
            finished_at_s=at_s + took_s,
            health_fingerprint="f",
        )
    )


def copied(ledger: MigrationLedger, record: PassRecord, at_s: float) -> None:
    for one in ledger.passes.pending(record.id, ChunkKind.FILES, 9):
        begun = attempt(ledger, one.id, f"t{one.id}", at_s=record.started_at_s)
        end(ledger, begun, counters=StreamCounters(files=one.files, size_bytes=one.size_bytes), at_s=at_s)
    ledger.passes.set_state(record.id, PassState.DONE, at_s)


def delta_pass(ledger: MigrationLedger, number: int, *, at_s: float, files: int) -> float:
    """A delta pass with a scan of 50 s, 10 s of copying, and 2 paths renamed; returns when it ended."""
    scanned(ledger, number, at_s, 45.0)
    by_kind = {
        ChangeKind.NEW: ChangeTally(paths=files, size_bytes=files * MIB),
        ChangeKind.RENAMED: ChangeTally(paths=70, directories=2),
    }
    changes = Changes(
        base=f"catalog-{number - 1}",
        now=f"catalog-{number}",
        trees=(TreeChanges(tree=TREE, names_before=10, bytes_before=1000, by_kind=by_kind),),
    )
    record = ledger.passes.start(
        plan="plan",
        batch=1,
        kind=PassKind.DELTA,
        number=number,
        catalog=f"catalog-{number}",
        base_catalog=f"catalog-{number - 1}",
        chunk_list=f"l{number}",
        move_list=f"m{number}",
        scan_s=50.0,
        changes=changes,
        chunks=[chunk(files, files * MIB)],
        at_s=at_s + 50.0,
    )
    copied(ledger, record, at_s + 60.0)
    return at_s + 60.0


def judged_in(ledger: MigrationLedger, at_s: float, limits: PassLimits = WANTED, made: int = 1) -> Decision:
    return judge_passes(
        ledger,
        plan="plan",
        batch=1,
        trees=[TREE],
        at_s=at_s,
        streams=4,
        check=FreezeCheck(),
        limits=limits,
        made=made,
        moves_of=lambda record: (2, len(record.move_list) - 2) if record.move_list else (0, 0),
    )


def test_a_delta_pass_is_judged_and_its_prediction_recorded_and_shown(ledger: MigrationLedger) -> None:
    ended_s = delta_pass(ledger, 1, at_s=T0_S + 7200, files=400)
    decision = judged_in(ledger, ended_s)
    assert decision.outcome is ConvergenceOutcome.CONVERGED
    found = decision.prediction
    assert found is not None
    # 400 files in the two hours between the starts of the two scans.
    assert found.churn_files_per_h == pytest.approx(200)
    assert found.churn_bytes_per_h == pytest.approx(200 * MIB)
    assert [one.tree for one in found.trees] == [TREE]
    assert 50 < found.next_pass_s < 60
    assert decision.sentence.startswith(
        "batch 1, delta pass 1: 400 files, 400.0 MiB, 2 renamed in 10 s; 200 files/h, 200.0 MiB/h are changing; a freeze"
    )
    (record,) = ledger.predictions.of_batch("plan", 1)
    assert (record.outcome, record.prediction, record.max_freeze_s, record.at_s) == (
        ConvergenceOutcome.CONVERGED,
        found,
        600.0,
        ended_s,
    )
    status = read_status(ledger, now_s=ended_s)
    assert status.batches[0].convergence == record
    assert "converged" in to_markdown(status_document(status))
    assert json.loads(to_json(status))["batches"][0]["convergence"]["prediction"]["freeze_s"] == found.freeze_s


def test_the_freeze_is_compared_with_the_one_after_the_pass_before(ledger: MigrationLedger) -> None:
    short = PassLimits(max_freeze_s=1.0, max_delta_passes=5)
    first_s = delta_pass(ledger, 1, at_s=T0_S + 7200, files=400)
    first = judged_in(ledger, first_s, short)
    assert first.outcome is ConvergenceOutcome.GO_ON
    second_s = delta_pass(ledger, 2, at_s=first_s, files=400)
    for _ in range(2):
        second = judged_in(ledger, second_s, short, made=2)
        assert second.outcome is ConvergenceOutcome.NO_LONGER_SHRINKS
    records = ledger.predictions.of_batch("plan", 1)
    assert [one.outcome for one in records] == [ConvergenceOutcome.GO_ON, ConvergenceOutcome.NO_LONGER_SHRINKS]
    assert [one.prediction for one in records] == [first.prediction, second.prediction]
    assert second.prediction is not None
    assert second.prediction.churn_files_per_h == pytest.approx((2 * 400 / 60 * HOUR_S + 200) / 3)


def test_the_directory_of_a_tree_is_counted_once(ledger: MigrationLedger) -> None:
    """The usage of a tree counts its own directory, a batch does not, and a verification compares it."""
    plan = small_plan()
    usage = next(usage for usage in plan.ranking if usage.tree.path == TREE)
    assert part_of(plan, plan.batches[0], [TREE]).directories == usage.directories - 1
    assert check_of_trees(ledger, plan, 1, [TREE]).files == usage.files + usage.directories


def test_the_freeze_verifies_what_was_sent_since_the_last_verification(ledger: MigrationLedger) -> None:
    plan = small_plan()
    usage = next(usage for usage in plan.ranking if usage.tree.path == TREE)

    def to_read() -> int:
        return check_of_trees(ledger, plan, 1, [TREE]).size_bytes

    def verify(at_s: float, *, whole: bool) -> None:
        number = ledger.verifications.start(plan=plan.name, batch=1, at_s=at_s)
        policy = DigestPolicy(algorithm="xxh3_128", share=1.0, seed=1)
        found = {"id": number, "plan": plan.name, "started_at_s": at_s, "finished_at_s": at_s + 1, "whole": whole}
        ledger.verifications.finish(verification(policy=policy, **found))

    assert to_read() == usage.size_bytes, "it was never verified"
    ended_s = delta_pass(ledger, 1, at_s=T0_S + 7200, files=400)
    verify(ended_s, whole=True)
    assert to_read() == 0
    ended_s = delta_pass(ledger, 2, at_s=ended_s + 10, files=3)
    assert to_read() == min(3 * MIB, usage.size_bytes)
    verify(ended_s, whole=False)
    assert to_read() == min(3 * MIB, usage.size_bytes), "what is not whole proves nothing"
