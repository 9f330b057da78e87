"""Which trees are purged, and every guard: one proof missing is enough."""

from dataclasses import replace
from typing import Any

import pytest

from migrator.core.entry import ACL_ACCESS, EntryType, UserTree
from migrator.cutover.model import CutoverNotes, CutoverRecord, CutoverState, LinkSeen
from migrator.purge.model import Item, ManifestSum, Position
from migrator.purge.rules import confirmation_problem, left_alone, plan_checksum, purge_problems, shrink_problem
from migrator.verify.model import VerificationRecord
from tests.support.entries import entry
from tests.support.records import verification

TREE = UserTree(path=b"home/alice", user="alice")
S = CutoverState
DAY_S = 86_400.0

RECORD = CutoverRecord(
    id=7,
    plan="p",
    batch=1,
    tree=TREE,
    attempt=1,
    state=S.RETAINED,
    times={S.THAWED: 1000.0, S.RETAINED: 1001.0},
    predicted_freeze_s=None,
    thawed_at_s=1000.0,
    notes=CutoverNotes(link=b"/home/alice", verification_id=3),
)
TOP = entry(TREE.path, type=EntryType.DIRECTORY, uid=0, gid=100, mode=0o2500)
PROOF = verification(
    id=3, started_at_s=900.0, finished_at_s=950.0, paths=10, size_bytes=10, digested_files=9, digested_bytes=10
)
TOTAL = ManifestSum(names=10, without_digest=0)
WELL: dict[str, Any] = {
    "position": Position.IN_PLACE,
    "top": TOP,
    "target_top": replace(TOP, uid=1, mode=0o755),
    "target_names": 1,
    "leads_to": LinkSeen.TARGET,
    "verification": PROOF,
    "manifest_digest": "d",
    "total": TOTAL,
    "scan_whole": True,
    "lacks_backup": False,
}


def problems(record: CutoverRecord = RECORD, **changes: Any) -> tuple[str, ...]:
    return purge_problems(record, **(WELL | changes))


def test_with_every_proof_nothing_speaks_against_it() -> None:
    assert problems() == ()
    assert problems(leads_to=LinkSeen.UNTOLD) == ()
    assert problems(position=Position.CLOSED, top=None) == ()
    assert problems(replace(RECORD, state=S.PURGING), position=Position.CLOSED) == ()


@pytest.mark.parametrize("missing", [name for name in WELL if name not in ("lacks_backup", "verification")])
def test_what_is_not_known_speaks_against_it(missing: str) -> None:
    changes: dict[str, Any] = {missing: None}
    assert len(problems(**changes)) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"position": Position.BOTH}, "stands on the source again"),
        ({"position": Position.GONE}, "this program did not take it away"),
        ({"top": replace(TOP, uid=1000)}, "not as the freeze left it"),
        ({"top": replace(TOP, mode=0o750)}, "not as the freeze left it"),
        ({"top": replace(TOP, xattrs={ACL_ACCESS: b""})}, "not as the freeze left it"),
        ({"top": replace(TOP, type=EntryType.SYMLINK)}, "is a symlink now"),
        ({"target_top": replace(TOP, type=EntryType.FILE)}, "no directory"),
        ({"target_names": 0}, "is empty"),
        ({"leads_to": LinkSeen.SOURCE}, "leads to the source again"),
        ({"leads_to": LinkSeen.OTHER}, "does not lead to the target"),
        ({"verification": None}, "no proof of what is on the target"),
        ({"verification": replace(PROOF, finished_at_s=None)}, "no proof of what is on the target"),
        ({"verification": replace(PROOF, whole=False, reasons=("a brick was down",))}, "a brick was down"),
        ({"verification": replace(PROOF, differences={"size": 2})}, "2 differences"),
        ({"verification": replace(PROOF, manifest=None)}, "left no manifest"),
        ({"manifest_digest": "other"}, "not the one that the verification wrote"),
        ({"total": replace(TOTAL, without_digest=1)}, "1 file of the manifest has no digest"),
        ({"total": replace(TOTAL, names=0)}, "holds nothing of the tree"),
        ({"scan_whole": False}, "was not whole"),
        ({"lacks_backup": True}, "no backup of the target is recorded"),
    ],
)
def test_each_guard_is_one_sentence(changes: dict[str, Any], words: str) -> None:
    (sentence,) = problems(**changes)
    assert words in sentence


def test_a_tree_is_due_when_its_time_is_over_since_the_last_thaw() -> None:
    due_s = 1000.0 + 30 * DAY_S

    def due_at_s(record: CutoverRecord | None, now_s: float) -> float | None:
        later = left_alone(TREE, record, now_s=now_s, retain_s=30 * DAY_S)
        return 0 if later is None else later.due_at_s

    for state in set(S) - {S.RETAINED, S.PURGING, S.PURGED}:
        assert due_at_s(replace(RECORD, state=state, times={**RECORD.times, state: 2.0}), 1e12) is None
    assert due_at_s(None, 1e12) is None
    assert due_at_s(replace(RECORD, times={S.RETAINED: 1001.0}), 1e12) is None
    assert due_at_s(RECORD, due_s - 1) == due_s
    assert due_at_s(RECORD, due_s) == 0
    assert due_at_s(replace(RECORD, times={**RECORD.times, S.THAWED: 5000.0}), due_s) == due_s + 4000
    for state in (S.PURGING, S.PURGED):
        assert due_at_s(replace(RECORD, state=state), 0) == 0


def test_the_checksum_is_of_the_trees_and_their_proofs_and_stays_while_it_goes_on() -> None:
    def checksum(*trees: tuple[CutoverRecord, VerificationRecord | None], site: str = "s") -> str:
        return plan_checksum(site, "/src", "/dst", [Item(record=record, proof=proof) for record, proof in trees])

    one = checksum((RECORD, PROOF))
    assert checksum((replace(RECORD, state=S.PURGING), PROOF)) == one
    others = [
        checksum(),
        checksum((RECORD, PROOF), site="t"),
        checksum((RECORD, None)),
        checksum((replace(RECORD, id=8), PROOF)),
        checksum((RECORD, replace(PROOF, manifest_digest="e"))),
        plan_checksum("s", "/src", "/dst", [Item(record=RECORD, proof=PROOF, carried=(PROOF,))]),
        checksum((replace(RECORD, tree=UserTree(path=b"home/\xff", user="\udcff")), PROOF)),
    ]
    assert len({one, *others}) == 1 + len(others)


@pytest.mark.parametrize(
    ("given", "right"),
    [
        (None, False),
        ("", False),
        ("a" * 11, False),
        ("a" * 12, True),
        ("A" * 64, True),
        ("a" * 65, False),
        ("b" * 12, False),
    ],
)
def test_a_confirmation_names_the_checksum(given: str | None, right: bool) -> None:
    assert (confirmation_problem(given, "a" * 64) is None) == right


def test_half_a_tree_may_be_gone_on_the_target_and_no_more() -> None:
    assert shrink_problem(TREE, gone=5, names=10, max_shrink=0.5) is None
    for gone, share in ((6, 0.5), (1, 0.0), (1, float("nan"))):
        assert shrink_problem(TREE, gone=gone, names=10, max_shrink=share) is not None
