"""What a cutover does next, where the simulated user of `test_cutover_machine` does not come to, and what it needs for a switch."""

from typing import Any

import pytest
from msgspec.structs import replace

from migrator.core.entry import UserTree
from migrator.cutover import model as cutover
from migrator.cutover.model_snapshot import FinalPassResult, LinkState, TopState, TreeProof, TreeSnapshot
from migrator.cutover.rules import BACK, FORWARD, begin_rollback, next_step, switch_problems
from migrator.cutover.rules_writers import settle_s
from migrator.operations.model import Act, Halt
from tests.support.making import made

S, C = cutover.CutoverState, cutover.CutoverStep
OPEN, FROZEN, PARTLY, OTHER, UNKNOWN = TopState
ON_SOURCE, ON_TARGET = LinkState.SOURCE, LinkState.TARGET

PASS = FinalPassResult(id=7, finished_at_s=60.0, changed=0, vanished=0, failed=0, whole=True)
PROOF = TreeProof(id=9, whole=True, differences=0, by_policy=True, manifest="m")

AFTER = (S.SWITCHED, S.THAWING, S.THAWED, S.RETAINED)
BACK_BEFORE = (
    S.ROLLBACK_FREEZING,
    S.ROLLBACK_FROZEN,
    S.CARRYING_BACK,
    S.ROLLBACK_VERIFYING,
    S.ROLLBACK_VERIFIED,
    S.SWITCHING_BACK,
    S.ROLLBACK_REVERTING,
)
THERE_PROVEN = (S.VERIFIED, S.SWITCHING)
PROVEN = (*THERE_PROVEN, S.ROLLBACK_VERIFIED, S.SWITCHING_BACK)


def against_the_switch(state: cutover.CutoverState, seen: TreeSnapshot) -> tuple[str, ...]:
    return tuple(switch_problems(BACK if state in cutover.ROLLBACK_STATES else FORWARD, record(state), seen))


def record(state: cutover.CutoverState, failure: str = "") -> cutover.CutoverRecord:
    return made(
        cutover.CutoverRecord,
        tree=UserTree(path=b"home/\xffalice", user="alice"),
        state=state,
        times={S.FROZEN: 50.0, S.ROLLBACK_FROZEN: 50.0, state: 50.0},
        frozen_at_s=49.0,
        failure=failure,
        notes=cutover.CutoverNotes(passes_before=6, proofs_before=8),
    )


def world(state: cutover.CutoverState, **changes: Any) -> TreeSnapshot:
    """As the program leaves it with the intent, before the act; everything proven."""
    link = ON_TARGET if state in AFTER or state in BACK_BEFORE else ON_SOURCE
    source = OPEN if state in (S.PLANNED, S.FREEZING) else FROZEN
    target = OPEN if state in (S.THAWED, S.RETAINED, S.ROLLBACK_FREEZING) else FROZEN
    seen = TreeSnapshot(
        link=link,
        source_top=source,
        target_top=target,
        writing=(),
        copied=PASS,
        proof=PROOF,
        lacks_backup=False,
    )
    return replace(seen, **changes)


def revert_of(state: cutover.CutoverState) -> cutover.CutoverStep:
    return C.ROLLBACK_REVERT if state in cutover.ROLLBACK_STATES else C.REVERT


@pytest.mark.parametrize(
    ("state", "changes", "expected"),
    [
        (S.FINAL_PASS, {"copied": replace(PASS, finished_at_s=None, changed=4)}, cutover.act_of(C.FINAL_PASS)),
        (S.FINAL_PASS, {"copied": replace(PASS, id=6, failed=1)}, cutover.act_of(C.FINAL_PASS)),
        (S.VERIFYING, {"proof": replace(PROOF, id=8)}, cutover.act_of(C.VERIFY)),
        (S.VERIFIED, {"link": LinkState.BY_HOOK}, cutover.act_of(C.SWITCH)),
        (S.SWITCHING, {"link": LinkState.BY_HOOK}, cutover.act_of(C.SWITCH)),
        (S.SWITCHING, {"link": ON_TARGET, "proof": None, "writing": None}, cutover.act_of(C.SWITCH, seen_done=True)),
        (S.THAWED, {"target_top": OTHER, "link": LinkState.BY_HOOK}, cutover.act_of(C.RETAIN)),
        (
            S.ROLLBACK_VERIFYING,
            {"proof": replace(PROOF, manifest=None)},
            cutover.act_of(C.ROLLBACK_VERIFY, seen_done=True),
        ),
        (S.ROLLBACK_VERIFIED, {"lacks_backup": True}, cutover.act_of(C.SWITCH_BACK)),
    ],
)
def test_steps_that_the_simulated_moves_do_not_reach(
    state: cutover.CutoverState, changes: dict[str, Any], expected: cutover.CutoverAct
) -> None:
    assert next_step(record(state), world(state, **changes)) == expected


ONLY_THERE = [
    ({"lacks_backup": True}, "no backup"),
    ({"proof": replace(PROOF, manifest=None)}, "no manifest"),
]
MISSING: list[tuple[dict[str, Any], str]] = [
    ({"writing": None}, "was not searched for writers"),
    ({"writing": ("vim of uid 7 writes",)}, "vim of uid 7 writes"),
    ({"copied": None}, "has not ended, or did not begin in the freeze"),
    ({"copied": replace(PASS, finished_at_s=None)}, "has not ended"),
    ({"copied": replace(PASS, id=6)}, "did not begin in the freeze"),
    ({"copied": replace(PASS, whole=False)}, "is not whole"),
    ({"copied": replace(PASS, changed=1)}, "1 file changed during"),
    ({"copied": replace(PASS, vanished=2)}, "2 files vanished during"),
    ({"copied": replace(PASS, failed=3)}, "3 files did not arrive"),
    ({"proof": None}, "is not verified"),
    ({"proof": replace(PROOF, id=8)}, "is not verified"),
    ({"proof": replace(PROOF, whole=False, reasons=("a brick",))}, "not whole: a brick"),
    ({"proof": replace(PROOF, differences=2)}, "found 2 differences"),
    (
        {"proof": replace(PROOF, differences=4, examples=("home/a: size", "home/b: mode", "c: acl", "d: extra"))},
        "found 4 differences (home/a: size; home/b: mode; c: acl)",
    ),
    ({"proof": replace(PROOF, by_policy=False)}, "[verify] sample"),
]


@pytest.mark.parametrize(
    ("state", "changes", "said"),
    [(state, *one) for state in PROVEN for one in (*MISSING, *(ONLY_THERE if state in THERE_PROVEN else ()))],
)
def test_no_switch_without_each_proof(state: cutover.CutoverState, changes: dict[str, Any], said: str) -> None:
    step = next_step(record(state), world(state, **changes))
    assert isinstance(step, Act)
    assert (step.step, step.seen_done) == (revert_of(state), False)
    assert said in step.reason
    assert any(said in problem for problem in against_the_switch(state, world(state, **changes)))


def test_an_unexplained_snapshot_halts_the_cutover() -> None:
    strange: list[tuple[cutover.CutoverState, dict[str, Any]]] = []
    for state in set(S) - cutover.ENDED_STATES - {S.RETAINED, S.PURGING, S.PURGED}:
        strange.append((state, {"link": LinkState.OTHER, "link_holds": b"/mnt/\n"}))
        strange.append((state, {"link": LinkState.UNKNOWN}))
        if state not in (S.SWITCHING, S.SWITCHING_BACK):
            wrong = ON_SOURCE if world(state).link is ON_TARGET else ON_TARGET
            strange.append((state, {"link": wrong, "link_holds": b"/mnt/\n"}))
        strange += [(state, {side: UNKNOWN}) for side in ("source_top", "target_top")]
        strange.append((state, {"source_top": OTHER}))
        if state is not S.THAWED:
            strange.append((state, {"target_top": OTHER}))
    strange += [
        (S.PLANNED, {"source_top": FROZEN}),
        (S.PLANNED, {"target_top": OPEN}),
        (S.FROZEN, {"source_top": PARTLY}),
        (S.VERIFIED, {"target_top": OPEN}),
        (S.VERIFIED, {"target_top": PARTLY}),
        (S.SWITCHING, {"link": ON_TARGET, "source_top": OPEN}),
        (S.SWITCHED, {"source_top": OPEN}),
        (S.THAWED, {"source_top": OPEN}),
        (S.REVERTING, {"target_top": OPEN}),
        (S.SWITCHED_BACK, {"target_top": OPEN}),
        (S.SWITCHING, {"link": LinkState.BY_HOOK, "proof": None}),
        (S.SWITCHING, {"link": LinkState.BY_HOOK, "source_top": OPEN}),
    ]
    for state, changes in strange:
        step = next_step(record(state), world(state, top_differences=("its mode is 0777",), **changes))
        assert isinstance(step, Halt), (state, changes)
        assert not step.look_again, "a frozen user does not wait for another snapshot"
        assert step.hint
        if "link" not in changes and OTHER in changes.values():
            assert "home/\\xffalice" in step.words
            assert "its mode is 0777" in step.words
        if "link_holds" in changes:
            assert "/mnt/\\x0a" in step.words


def test_a_rollback_waits_for_the_end_of_a_switch_and_of_a_thaw_and_needs_a_source() -> None:
    made = begin_rollback(record(S.SWITCHING), world(S.SWITCHING, link=ON_TARGET))
    assert made == cutover.act_of(C.SWITCH, seen_done=True)
    by_hook = begin_rollback(record(S.SWITCHING), world(S.SWITCHING, link=LinkState.BY_HOOK))
    assert by_hook == cutover.act_of(C.SWITCH)
    assert begin_rollback(record(S.THAWING), world(S.THAWING)) == cutover.act_of(C.THAW)
    purged = begin_rollback(record(S.PURGED), world(S.RETAINED))
    assert isinstance(purged, Halt)


def test_a_freeze_waits_until_client_caches_expire() -> None:
    assert (settle_s("xfs", 2.0), settle_s("fuse.glusterfs", 2.0)) == (0.0, 2.0)
    assert (settle_s("nfs4", 2.0), settle_s("nfs", 90.0)) == (60.0, 90.0)
