"""The freeze of one tree of a batch."""

from dataclasses import replace

from migrator.core.states import PassKind
from migrator.delta.model import ChangeKind, ChangeTally, TreeChanges
from migrator.plan.model import TransferCost
from migrator.transfer.model import FreezeCheck, PassFacts
from migrator.transfer.rules_convergence import predict, predict_freeze

ALICE, BOB = b"home/alice", b"home/bob"
COST = TransferCost(s_per_file=0.01, s_per_byte=1e-7, streams=1, basis="test")
CHECK = FreezeCheck(s_per_file=0.001, files=1000, fixed_s=1.0)


def tree(path: bytes, files: int, size_bytes: int) -> TreeChanges:
    tally = ChangeTally(paths=files, size_bytes=size_bytes)
    return TreeChanges(
        tree=path, names_before=9, bytes_before=9, by_kind={ChangeKind.REWRITTEN: tally} if files else {}
    )


def one(kind: PassKind, number: int, at_s: float, *trees: TreeChanges) -> PassFacts:
    files = sum(found.tally(ChangeKind.REWRITTEN).paths for found in trees)
    size_bytes = sum(found.tally(ChangeKind.REWRITTEN).size_bytes for found in trees)
    return PassFacts(
        kind=kind,
        number=number,
        scanned_at_s=at_s,
        scan_s=2.0,
        started_at_s=at_s + 2.0,
        finished_at_s=at_s + 5.0,
        sent_files=files,
        sent_bytes=size_bytes,
        changes={ChangeKind.REWRITTEN: ChangeTally(paths=files, size_bytes=size_bytes)},
        trees=trees,
    )


SEED = one(PassKind.SEED, 0, 0.0)
FIRST = one(PassKind.DELTA, 1, 1000.0, tree(ALICE, 90, 9_000_000), tree(BOB, 10, 1_000_000))
SECOND = one(PassKind.DELTA, 2, 2000.0, tree(ALICE, 300, 90_000_000), tree(BOB, 0, 0))


def freeze_s(passes: list[PassFacts], of: bytes) -> float | None:
    return predict_freeze(passes, of, at_s=2600.0, cost=COST, check=CHECK)


def test_before_a_delta_pass_over_the_tree_nothing_is_predicted() -> None:
    assert freeze_s([SEED], ALICE) is None
    assert freeze_s([SEED, replace(FIRST, trees=(tree(BOB, 1, 1),))], ALICE) is None


def test_who_changes_more_is_frozen_longer_and_nobody_longer_than_all_together() -> None:
    passes = [SEED, FIRST, SECOND]
    whole = predict(passes, at_s=2600.0, cost=COST, check=CHECK)
    alice, bob = freeze_s(passes, ALICE), freeze_s(passes, BOB)
    assert whole is not None
    assert alice is not None
    assert bob is not None
    assert bob < alice <= whole.freeze_s


def test_a_tree_alone_in_its_batch_is_predicted_as_the_batch() -> None:
    passes = [
        SEED,
        replace(FIRST, trees=(tree(ALICE, 100, 10_000_000),)),
        one(PassKind.DELTA, 2, 2000.0, tree(ALICE, 5, 5)),
    ]
    whole = predict(passes, at_s=2600.0, cost=COST, check=CHECK)
    assert whole is not None
    assert freeze_s(passes, ALICE) == whole.freeze_s
