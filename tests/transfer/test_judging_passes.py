"""From the ledger's passes to a decision, its record, and what `status` says of it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.states import ChunkKind, ChunkState, PassKind, PassState
from migrator.core.units import HOUR_S, MIB
from migrator.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.hosts.model import ProcessIdentity
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.ledger.model import PassRecord
from migrator.plan.model import Chunk
from migrator.render.text import to_json, to_markdown
from migrator.report.status import read_status
from migrator.report.view_status import status_document
from migrator.transfer.bases import part_of
from migrator.transfer.model import ConvergenceOutcome, Decision, FreezeCheck, PassLimits, StreamCounters
from migrator.transfer.passes import check_of_trees, judge_passes
from migrator.verify.model import DigestPolicy
from tests.support.catalogs import whole_catalog
from tests.support.plans import small_plan
from tests.support.records import SITE, verification

T0_S = 1_763_600_000.0
TREE = small_plan().batches[0].trees[0].path
WANTED = PassLimits(max_freeze_s=600.0, max_delta_passes=5)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A site whose batch 1 was seeded within two hours after a scan of ten minutes."""
    with open_ledger(tmp_path / "ledger.db", create=True) as made:
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


def scanned(ledger: Ledger, number: int, at_s: float, took_s: float) -> None:
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


def copied(ledger: Ledger, record: PassRecord, at_s: float) -> None:
    for one in ledger.passes.pending(record.id, ChunkKind.FILES, 9):
        attempt = ledger.passes.intend(
            chunk_id=one.id, token=f"t{one.id}", host="here", engine="rsync", argv=(), at_s=record.started_at_s
        )
        ledger.passes.started(attempt, ProcessIdentity(pid=1, start_ticks=1, boot_id="b"))
        ledger.passes.finish(
            attempt,
            at_s=at_s,
            state="succeeded",
            exit_code=0,
            counters=StreamCounters(files=one.files, size_bytes=one.size_bytes),
            stderr_tail=b"",
            chunk_state=ChunkState.DONE,
            problems=(),
        )
    ledger.passes.set_state(record.id, PassState.DONE, at_s)


def delta(ledger: Ledger, number: int, *, at_s: float, files: int) -> float:
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


def judged(ledger: Ledger, at_s: float, limits: PassLimits = WANTED, made: int = 1) -> Decision:
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


def test_a_delta_pass_is_judged_and_its_prediction_recorded_and_shown(ledger: Ledger) -> None:
    ended_s = delta(ledger, 1, at_s=T0_S + 7200, files=400)
    decision = judged(ledger, ended_s)
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


def test_the_freeze_is_compared_with_the_one_after_the_pass_before(ledger: Ledger) -> None:
    short = PassLimits(max_freeze_s=1.0, max_delta_passes=5)
    first_s = delta(ledger, 1, at_s=T0_S + 7200, files=400)
    first = judged(ledger, first_s, short)
    assert first.outcome is ConvergenceOutcome.GO_ON
    second_s = delta(ledger, 2, at_s=first_s, files=400)
    for _ in range(2):
        second = judged(ledger, second_s, short, made=2)
        assert second.outcome is ConvergenceOutcome.NO_LONGER_SHRINKS
    records = ledger.predictions.of_batch("plan", 1)
    assert [one.outcome for one in records] == [ConvergenceOutcome.GO_ON, ConvergenceOutcome.NO_LONGER_SHRINKS]
    assert [one.prediction for one in records] == [first.prediction, second.prediction]
    assert second.prediction is not None
    assert second.prediction.churn_files_per_h == pytest.approx((2 * 400 / 60 * HOUR_S + 200) / 3)


def test_the_directory_of_a_tree_is_counted_once(ledger: Ledger) -> None:
    """The usage of a tree counts its own directory, a batch does not, and a verification compares it."""
    plan = small_plan()
    usage = next(usage for usage in plan.ranking if usage.tree.path == TREE)
    assert part_of(plan, plan.batches[0], [TREE]).directories == usage.directories - 1
    assert check_of_trees(ledger, plan, 1, [TREE]).files == usage.files + usage.directories


def test_the_freeze_verifies_what_was_sent_since_the_last_verification(ledger: Ledger) -> None:
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
    ended_s = delta(ledger, 1, at_s=T0_S + 7200, files=400)
    verify(ended_s, whole=True)
    assert to_read() == 0
    ended_s = delta(ledger, 2, at_s=ended_s + 10, files=3)
    assert to_read() == min(3 * MIB, usage.size_bytes)
    verify(ended_s, whole=False)
    assert to_read() == min(3 * MIB, usage.size_bytes), "what is not whole proves nothing"
