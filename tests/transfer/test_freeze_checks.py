"""The cost of verifying in the freeze: which content no manifest covers yet, and what reading it takes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.core.states import PassKind, PassState
from migrator.delta.model import ChangeKind, Changes, ChangeTally, TreeChanges
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.transfer.passes import check_of_trees
from migrator.verify.model import DigestPolicy
from tests.support.plans import small_plan
from tests.support.records import SITE, verification

PLAN = small_plan()
TREE = PLAN.batches[0].trees[0].path
USAGE = next(usage for usage in PLAN.ranking if usage.tree.path == TREE)
POLICY = DigestPolicy(algorithm="xxh3_128", share=1.0, seed=1)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger.db", create=True) as made:
        made.site.create(SITE)
        made.plans.record(PLAN, path="plans/plan.json", checksum="c")
        yield made


def verified(
    ledger: Ledger,
    *,
    at_s: float,
    share: float = 1.0,
    proven: float = 1.0,
    whole: bool = True,
    took_s: float = 15.0,
) -> None:
    number = ledger.verifications.start(plan=PLAN.name, batch=1, at_s=at_s)
    ledger.verifications.finish(
        verification(
            id=number,
            plan=PLAN.name,
            started_at_s=at_s,
            finished_at_s=at_s + took_s,
            policy=DigestPolicy(algorithm="xxh3_128", share=share, seed=1),
            paths=10_000,
            size_bytes=USAGE.size_bytes,
            digested_files=0,
            digested_bytes=0,
            carried_files=1,
            carried_bytes=round(USAGE.size_bytes * proven),
            whole=whole,
        )
    )


def delta(ledger: Ledger, number: int, *, at_s: float, size_bytes: int) -> None:
    changes = TreeChanges(
        tree=TREE,
        names_before=1,
        bytes_before=1,
        by_kind={
            ChangeKind.REWRITTEN: ChangeTally(paths=1, size_bytes=size_bytes),
            ChangeKind.VANISHED: ChangeTally(paths=1, size_bytes=10_000_000),
        },
    )
    record = ledger.passes.start(
        plan=PLAN.name,
        batch=1,
        kind=PassKind.DELTA,
        number=number,
        catalog=f"c{number}",
        base_catalog="c0",
        chunk_list=f"l{number}",
        changes=Changes(base="c0", now=f"c{number}", trees=(changes,)),
        chunks=[],
        at_s=at_s,
    )
    ledger.passes.set_state(record.id, PassState.DONE, at_s + 1.0)


def to_read(ledger: Ledger, policy: DigestPolicy | None = POLICY) -> int:
    return check_of_trees(ledger, PLAN, 1, [TREE], policy).size_bytes


def test_of_a_verified_one_what_was_sent_since(ledger: Ledger) -> None:
    delta(ledger, 1, at_s=10.0, size_bytes=100)
    verified(ledger, at_s=20.0)
    assert to_read(ledger) == 0
    delta(ledger, 2, at_s=50.0, size_bytes=30)
    delta(ledger, 3, at_s=60.0, size_bytes=7)
    assert to_read(ledger) == to_read(ledger, None) == 37
    verified(ledger, at_s=70.0, whole=False)
    assert to_read(ledger) == 37
