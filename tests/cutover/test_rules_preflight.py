"""What is said of cutovers, and which preflight checks refuse one."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.core.entry import EntryType, UserTree
from migrator.core.states import BatchState
from migrator.cutover.model import CutoverRecord, CutoverState
from migrator.cutover.model_calls import CutoverRequest
from migrator.cutover.rules_preflight import cutover_problems, not_closed
from migrator.cutover.rules_states import cutover_blockers
from migrator.transfer.model_runs import RunRequest
from tests.support.entries import entry
from tests.support.making import made

S = CutoverState
TREE = UserTree(path=b"home/alice", user="alice")
RECORD = made(
    CutoverRecord, plan="p", batch=3, tree=TREE, state=S.PLANNED, times={S.PLANNED: 1.0}, predicted_freeze_s=100.0
)
REQUEST = CutoverRequest(
    trees={3: (TREE,)},
    run=RunRequest(plan="p", batches=(3,), jobs=1, pid=1),
    vouched=False,
    max_freeze_s=100.0,
)
GOOD: Mapping[str, Any] = {
    "request": REQUEST,
    "batch": 3,
    "state": BatchState.CONVERGING,
    "before": None,
    "beside": (),
    "failed_chunks": 0,
    "bad_files": 0,
    "predicted_freeze_s": 100.0,
    "lacks_backup": False,
    "checked": {"the mounts": ()},
}


def in_state(state: CutoverState, **changes: Any) -> CutoverRecord:
    return replace(RECORD, state=state, times={state: 5.0}, **changes)


def problems(**changes: Any) -> tuple[str, ...]:
    return tuple(cutover_problems(TREE, **{**GOOD, **changes}))


def test_every_guard_passes_a_good_one() -> None:
    good: list[dict[str, Any]] = [{"state": state} for state in (BatchState.SEEDED, BatchState.VERIFIED)]
    good += [{"before": in_state(ended)} for ended in (S.REVERTED, S.ROLLED_BACK, S.PLANNED)]
    good += [
        {"predicted_freeze_s": freeze_s, "request": replace(REQUEST, accept_freeze=True)} for freeze_s in (None, 1e9)
    ]
    for changes in ({}, *good):
        assert problems(**changes) == ()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("state", BatchState.PLANNED, "batch 3 is planned: copy it first"),
        ("state", BatchState.SEEDING, "batch 3 is seeding"),
        ("state", None, "the state of batch 3 is unknown"),
        ("failed_chunks", 2, "2 chunks of batch 3 failed"),
        ("bad_files", 1, "1 file of batch 3 failed"),
        ("predicted_freeze_s", 100.5, "predicted to last 1 min 40 s, longer than"),
        ("predicted_freeze_s", float("nan"), "has no prediction"),
        ("predicted_freeze_s", None, "has no prediction"),
        ("lacks_backup", True, "no backup of the target is recorded"),
        ("checked", {"the mounts": ("gone",)}, "gone"),
        ("checked", {"the room on the target": None}, "the room on the target is unknown"),
        ("beside", (in_state(S.VERIFYING),), "finish it with `migrator cutover --user alice`"),
        ("beside", (in_state(S.CARRYING_BACK),), "finish it with `migrator rollback --user alice`"),
        ("before", in_state(S.RETAINED), "works on the target already"),
        ("before", in_state(S.PURGED), "works on the target already"),
        ("before", in_state(S.CARRYING_BACK), "a rollback of alice is in progress"),
        ("before", in_state(S.FROZEN), "a cutover of alice has begun already (frozen, plan p, batch 3)"),
    ],
)
def test_each_guard_alone(name: str, value: object, said: str) -> None:
    (problem,) = problems(**{name: value})
    assert said in problem


def test_a_tree_that_is_open_or_missing_on_the_target_is_a_problem() -> None:
    top = entry(TREE.path, type=EntryType.DIRECTORY, uid=0, gid=0, mode=0o700)
    assert not_closed(TREE, top, uid=0, gid=0) == ()
    for now, said in ((replace(top, mode=0o755), "is open, so it may have been changed"), (None, "is missing")):
        (problem,) = not_closed(TREE, now, uid=0, gid=0)
        assert f"home/alice on the target {said}" in problem


@pytest.mark.parametrize("state", list(S))
def test_cutovers_that_wait_for_an_operator_are_blockers(state: CutoverState) -> None:
    record = in_state(state, failure="EIO")
    left = list(cutover_blockers([record], at_work=()))
    at_work = list(cutover_blockers([record], at_work=[record.tree.path]))
    if record.under_way:
        assert at_work == []
        assert "EIO" in left[0].on
        verb = "rollback" if "back" in state.value else "cutover"
        assert left[0].hint.startswith(f"migrator {verb} --user alice")
    elif state is S.PURGING:
        assert "EIO" in left[0].on
        assert left[0].hint.startswith("migrator purge --user alice")
    elif state is S.THAWED:
        assert at_work == []
        assert "late writes: EIO" in left[0].on
    elif state is S.REVERTED:
        assert left == at_work
        assert "EIO" in left[0].on
    else:
        assert left == []
