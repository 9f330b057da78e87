"""When delta passes end, what is predicted of the next one and of the freeze, and how that is said."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.states import PassKind
from migrator.core.units import HOUR_S
from migrator.delta.model import ChangeKind, ChangeTally, TreeChanges
from migrator.plan.model import TransferCost
from migrator.transfer import model as transfer
from migrator.transfer.rules_convergence import MARGIN, decide, predict

COST = TransferCost(s_per_file=0.01, s_per_byte=1e-8, streams=1, basis="measured here")
LIMITS = transfer.PassLimits(max_freeze_s=600.0, max_delta_passes=5)
NO_CHECK = transfer.FreezeCheck()


ALICE, BOB = b"home/alice", b"home/bob"


def changed(tree: bytes = ALICE, **by_kind: ChangeTally) -> TreeChanges:
    kinds = {ChangeKind(name): tally for name, tally in by_kind.items()}
    return TreeChanges(tree=tree, names_before=9, bytes_before=9, by_kind=kinds)


SEED = transfer.PassFacts(
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
) -> transfer.PassFacts:
    """A pass that took what `COST` says."""
    took_s = fixed_s + files * COST.s_per_file + size_bytes * COST.s_per_byte
    return transfer.PassFacts(
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


def judged(
    *passes: transfer.PassFacts, earlier_freeze_s: float | None = None, limits: transfer.PassLimits = LIMITS
) -> transfer.Decision:
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


def predicted(
    passes: Sequence[transfer.PassFacts], at_s: float, check: transfer.FreezeCheck = NO_CHECK
) -> transfer.Prediction:
    found = predict(passes, at_s=at_s, cost=COST, check=check)
    assert found is not None
    return found


def test_a_steady_churn_is_predicted_to_the_second() -> None:
    # A file a second: 7,200 in two hours, 132 in the 132 s that the first pass took.
    assert FIRST.finished_at_s - FIRST.scanned_at_s == 132.0
    after_first = predicted([SEED, FIRST], FIRST.finished_at_s)
    assert after_first.churn_files_per_h == pytest.approx(HOUR_S)
    assert after_first.churn_bytes_per_h == 0.0
    assert after_first.next_pass_s == pytest.approx(50 + 10 + 132 * 0.01)
    assert after_first.freeze_s == pytest.approx(MARGIN * (50 + 10 + 132 * 0.01))
    assert after_first.least_freeze_s == pytest.approx(MARGIN * (50 + 10))


def test_the_freeze_has_its_verification() -> None:
    check = transfer.FreezeCheck(s_per_file=0.5, s_per_byte=0.25, files=100, size_bytes=1000, fixed_s=7.0)
    found = predicted([SEED, FIRST], FIRST.finished_at_s, check)
    bare = predicted([SEED, FIRST], FIRST.finished_at_s)
    assert found.freeze_s - bare.freeze_s == pytest.approx(7 + (100 + 132) * 0.5 + 1000 * 0.25)
    assert found.least_freeze_s - bare.least_freeze_s == pytest.approx(7 + 100 * 0.5 + 1000 * 0.25)
    assert found.next_pass_s == bare.next_pass_s


def test_what_is_unsettled_comes_with_every_pass_and_is_no_churn() -> None:
    one = delta(1, scanned_at_s=7200.0, files=500, trees=(changed(unsettled=ChangeTally(paths=500)),))
    for later_s in (0.0, 5000.0):
        found = predicted([SEED, one], one.finished_at_s + later_s)
        assert found.churn_files_per_h == 0.0
        assert found.next_pass_s == pytest.approx(50 + 10 + 5)


NOTHING = delta(1, scanned_at_s=7200.0, files=0, trees=())
SHORT = transfer.PassLimits(max_freeze_s=60.0, max_delta_passes=5)


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [
        (judged(SEED), transfer.ConvergenceOutcome.GO_ON),
        (judged(SEED, limits=replace(LIMITS, max_delta_passes=0)), transfer.ConvergenceOutcome.LIMIT_OF_PASSES),
        (judged(SEED, FIRST), transfer.ConvergenceOutcome.CONVERGED),
        (judged(SEED, FIRST, limits=SHORT), transfer.ConvergenceOutcome.GO_ON),
        (judged(SEED, FIRST, limits=replace(SHORT, max_delta_passes=1)), transfer.ConvergenceOutcome.LIMIT_OF_PASSES),
        (judged(SEED, NOTHING), transfer.ConvergenceOutcome.NOTHING_CHANGED),
        (judged(SEED, NOTHING, limits=SHORT), transfer.ConvergenceOutcome.NOTHING_CHANGED),
        (judged(SEED, replace(NOTHING, renames=1), limits=SHORT), transfer.ConvergenceOutcome.GO_ON),
        (judged(SEED, replace(NOTHING, gone=1), limits=SHORT), transfer.ConvergenceOutcome.GO_ON),
        # The freeze after the second one is predicted to take 75.75 s: 50 s of scan, 10 s fixed, 0.6 s of copying.
        (judged(SEED, FIRST, SECOND, limits=SHORT), transfer.ConvergenceOutcome.GO_ON),
        (judged(SEED, FIRST, SECOND, limits=SHORT, earlier_freeze_s=85.0), transfer.ConvergenceOutcome.GO_ON),
        (
            judged(SEED, FIRST, SECOND, limits=SHORT, earlier_freeze_s=84.0),
            transfer.ConvergenceOutcome.NO_LONGER_SHRINKS,
        ),
        (
            judged(SEED, FIRST, SECOND, limits=SHORT, earlier_freeze_s=20.0),
            transfer.ConvergenceOutcome.NO_LONGER_SHRINKS,
        ),
        (judged(SEED, FIRST, SECOND, earlier_freeze_s=20.0), transfer.ConvergenceOutcome.CONVERGED),
        # A single delta pass does not show whether it shrinks.
        (judged(SEED, FIRST, limits=SHORT, earlier_freeze_s=1.0), transfer.ConvergenceOutcome.GO_ON),
    ],
)
def test_whether_another_pass_follows(decision: transfer.Decision, outcome: transfer.ConvergenceOutcome) -> None:
    assert decision.outcome is outcome
    assert decision.go_on is (outcome is transfer.ConvergenceOutcome.GO_ON)


amounts = st.integers(min_value=0, max_value=10**6)
seconds = st.floats(min_value=0, max_value=1e5)
tallies = st.builds(
    lambda files, directories, size_bytes: ChangeTally(
        paths=files + directories, directories=directories, size_bytes=size_bytes
    ),
    amounts,
    amounts,
    st.integers(min_value=0, max_value=2**50),
)


@st.composite
def histories(draw: st.DrawFn) -> list[transfer.PassFacts]:
    passes = [SEED]
    for number in range(1, draw(st.integers(min_value=1, max_value=6)) + 1):
        scanned_at_s = passes[-1].finished_at_s + draw(seconds)
        scan_s, work_s = draw(seconds), draw(seconds)
        passes.append(
            transfer.PassFacts(
                kind=PassKind.DELTA,
                number=number,
                scanned_at_s=scanned_at_s,
                scan_s=scan_s,
                started_at_s=scanned_at_s + scan_s,
                finished_at_s=scanned_at_s + scan_s + work_s,
                sent_files=draw(amounts),
                sent_bytes=draw(amounts),
                trees=(changed(ALICE, **draw(st.dictionaries(st.sampled_from(ChangeKind), tallies))),),
                renames=draw(amounts),
                gone=draw(amounts),
            )
        )
    return passes


costs = st.builds(
    TransferCost,
    s_per_file=st.floats(min_value=0, max_value=1),
    s_per_byte=st.floats(min_value=0, max_value=1e-6),
    streams=st.integers(min_value=1, max_value=64),
    basis=st.just("any"),
)
checks = st.builds(
    transfer.FreezeCheck,
    s_per_file=st.floats(min_value=0, max_value=1),
    s_per_byte=st.floats(min_value=0, max_value=1e-6),
    files=amounts,
    size_bytes=amounts,
    fixed_s=seconds,
)


@given(data=st.data(), passes=histories(), cost=costs, check=checks, later_s=seconds)
def test_more_churn_never_predicts_a_shorter_freeze(
    data: st.DataObject,
    passes: list[transfer.PassFacts],
    cost: TransferCost,
    check: transfer.FreezeCheck,
    later_s: float,
) -> None:
    at_s = passes[-1].finished_at_s + later_s
    less = predict(passes, at_s=at_s, cost=cost, check=check)
    number = data.draw(st.integers(min_value=1, max_value=len(passes) - 1))
    kind, more_changes = data.draw(st.sampled_from(ChangeKind)), data.draw(tallies)
    (tree,) = passes[number].trees
    before = tree.tally(kind)
    grown = ChangeTally(
        paths=before.paths + more_changes.paths,
        directories=before.directories + more_changes.directories,
        size_bytes=before.size_bytes + more_changes.size_bytes,
    )
    passes[number] = replace(passes[number], trees=(replace(tree, by_kind={**tree.by_kind, kind: grown}),))
    more = predict(passes, at_s=at_s, cost=cost, check=check)
    assert less is not None
    assert more is not None
    assert more.freeze_s >= less.freeze_s * (1 - 1e-12)
    assert more.next_pass_s >= less.next_pass_s * (1 - 1e-12)
    assert more.least_freeze_s == less.least_freeze_s
    assert more.churn_files_per_h >= less.churn_files_per_h * (1 - 1e-12)
    assert more.churn_bytes_per_h >= less.churn_bytes_per_h * (1 - 1e-12)


def of_trees(number: int, scanned_at_s: float, **files: int) -> transfer.PassFacts:
    """A delta pass over trees, each with so many files of 1,000 bytes rewritten."""
    trees = tuple(
        changed(b"home/" + user.encode(), rewritten=ChangeTally(paths=count, size_bytes=1000 * count))
        for user, count in files.items()
    )
    sent = sum(files.values())
    return delta(number, scanned_at_s=scanned_at_s, files=sent, size_bytes=1000 * sent, trees=trees)


def test_the_freeze_of_a_single_tree() -> None:
    def freeze_s(passes: Sequence[transfer.PassFacts], tree: bytes) -> float | None:
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
