"""Which user trees are left alone."""

from dataclasses import replace
from typing import Any

import pytest

from migrator.core.entry import ACL_ACCESS, Entry, EntryType, UserTree
from migrator.cutover.model import ENDED_STATES, SETTLED_STATES, UNDER_WAY_STATES, CutoverRecord, CutoverState
from migrator.plan import rules as plan_rules
from tests.support.catalogs import directory

ANN, BOB = UserTree(path=b"home/ann", user="ann"), UserTree(path=b"home/bob\xff", user="bob")


def record(state: CutoverState, tree: UserTree = ANN) -> CutoverRecord:
    return CutoverRecord(
        id=1, plan="p", batch=1, tree=tree, attempt=1, state=state, times={state: 1.0}, predicted_freeze_s=None
    )


@pytest.mark.parametrize("state", list(CutoverState))
def test_a_tree_is_copied_before_its_cutover_begins_and_after_it_has_ended_on_the_source(state: CutoverState) -> None:
    newest = {ANN.path: record(state)}
    copied = state is CutoverState.PLANNED or state in ENDED_STATES
    assert plan_rules.movable_trees((ANN, BOB), newest) == (((ANN, BOB), ()) if copied else ((BOB,), (ANN,)))
    assert plan_rules.moved_trees(newest) == (frozenset() if copied else {ANN.path})
    assert copied == (state not in SETTLED_STATES | UNDER_WAY_STATES)
    # It is planned unless its user works on the target for good.
    assert plan_rules.settled_trees(newest) == ({ANN.path} if state in SETTLED_STATES else frozenset())


def test_links_into_a_tree_that_is_not_planned_count_as_links_out_of_all_trees() -> None:
    def span(*trees: bytes | None) -> plan_rules.LinkSpan:
        members = tuple(plan_rules.SpanMember(tree=tree, names=1, examples=()) for tree in trees)
        return plan_rules.LinkSpan(members=members, groups=1, size_bytes=5)

    spans = [span(ANN.path, BOB.path), span(ANN.path, None), span(BOB.path, None)]
    assert list(plan_rules.without_trees(spans, {ANN.path})) == [span(None, BOB.path), span(BOB.path, None)]
    assert list(plan_rules.without_trees(spans, ())) == spans


def top(uid: int, mode: int, **changes: Any) -> Entry:
    return replace(directory(ANN.path), uid=uid, mode=mode, **changes)


FROZEN, OPEN, CLOSED = top(0, 0o2500), top(1001, 0o2770), top(0, 0o700)


def test_a_tree_that_is_frozen_on_the_source_and_open_on_the_target_was_moved_whatever_the_ledger_says() -> None:
    for target in (OPEN, top(0, 0o755), top(0, 0o700, xattrs={ACL_ACCESS: b"named"})):
        assert "works on the target" in (plan_rules.moved_unknown(ANN, FROZEN, target) or "")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (OPEN, CLOSED),
        (OPEN, OPEN),
        (OPEN, None),
        (FROZEN, CLOSED),
        (FROZEN, None),
        (None, OPEN),
        (CLOSED, OPEN),
        (top(0, 0o755), OPEN),
        (FROZEN, top(1001, 0o644, type=EntryType.FILE)),
    ],
)
def test_no_other_tree_was(source: Entry | None, target: Entry | None) -> None:
    assert plan_rules.moved_unknown(ANN, source, target) is None
