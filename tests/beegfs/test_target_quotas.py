"""Whether what is to come fits within the limits of the users whose it is."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.beegfs.model import TreeOwner, UserQuota
from migrator.beegfs.rules import OwnerNeed, QuotaWords, owner_needs, quota_words, room_to_work
from migrator.fs.model import Need
from migrator.reap.model import PlanReap, ReapAction, ReapedTree, Savings
from tests.support.usages import usage

GIB = 1 << 30
ALICE, SHARED = usage(b"alice", size_bytes=10 * GIB, files=1000), usage(b"shared", size_bytes=4 * GIB, files=400)
OWNERS = (
    TreeOwner(tree=b"alice", uid=1001, size_bytes=9 * GIB, files=900),
    TreeOwner(tree=b"alice", uid=1002, size_bytes=1 * GIB, files=50),
    TreeOwner(tree=b"shared", uid=1001, size_bytes=2 * GIB, files=200),
)
ALL = {one.tree.path: Need(size_bytes=one.size_bytes, inodes=one.files + one.directories) for one in (ALICE, SHARED)}
QUOTA = UserQuota(uid=1001, used_bytes=GIB, used_chunk_files=100, limit_bytes=20 * GIB, limit_chunk_files=10_000)


def needs(left: Mapping[bytes, Need] = ALL, reap: PlanReap | None = None) -> dict[int, OwnerNeed]:
    return {one.uid: one for one in owner_needs(OWNERS, (ALICE, SHARED), left, reap=reap)}


def judged(*, spread: int = 1, left: Mapping[bytes, Need] = ALL, **limits: Any) -> QuotaWords:
    quota = replace(QUOTA, **limits)
    return quota_words(needs(left).values(), {1001: quota}, spread=spread)


def reaping(action: ReapAction) -> PlanReap:
    tree = ReapedTree(
        tree=ALICE.tree,
        action=action,
        rule="old",
        files=300,
        size_bytes=3 * GIB,
        allocated_bytes=3 * GIB,
        oldest_ns=0,
    )
    return PlanReap(reap_list=None, digest=None, trees=(tree,), saved=Savings(), listed=Savings())


def test_what_a_user_owns_is_counted_over_all_trees_by_what_is_left_and_not_reaped() -> None:
    assert needs()[1001].need == Need(size_bytes=11 * GIB, inodes=1100)
    assert needs()[1001].users == ("alice", "shared")
    half = {b"alice": Need(size_bytes=5 * GIB, inodes=500)}
    assert needs(half)[1001].need == Need(size_bytes=9 * GIB // 2, inodes=450)
    assert needs({}) == {}
    assert needs(reap=reaping(ReapAction.SKIP))[1001].need == Need(size_bytes=8 * GIB, inodes=800)
    assert needs(reap=reaping(ReapAction.ARCHIVE))[1002].need == Need()
    assert needs(reap=reaping(ReapAction.LIST)) == needs()


@pytest.mark.parametrize(
    ("limits", "problems", "warnings"),
    [
        ({}, 0, 0),
        ({"limit_bytes": 12 * GIB}, 0, 1),
        ({"limit_bytes": 12 * GIB - 1}, 1, 0),
        ({"limit_chunk_files": 1200}, 0, 1),
        ({"limit_chunk_files": 1199}, 1, 0),
        ({"limit_bytes": 1, "limit_chunk_files": 1}, 2, 0),
        ({"limit_bytes": None, "limit_chunk_files": None}, 0, 0),
        ({"limit_chunk_files": 1, "used_chunk_files": None}, 0, 0),
        ({"uid": 1001, "used_bytes": 30 * GIB}, 1, 0),
    ],
)
def test_what_does_not_fit_is_a_problem_and_what_hardly_does_a_warning(
    limits: dict[str, Any], problems: int, warnings: int
) -> None:
    found = judged(**limits)
    assert (len(found.problems), len(found.warnings)) == (problems, warnings)
    assert all("uid 1001" in words and "alice" in words for words in (*found.problems, *found.warnings))


def test_files_that_are_spread_may_take_more_chunk_files_than_they_are() -> None:
    assert judged(limit_chunk_files=4000) == QuotaWords()
    (warning,) = judged(limit_chunk_files=4000, spread=4).warnings
    assert "up to 4 chunk files" in warning
    assert not judged(limit_chunk_files=4000, spread=4).problems


@given(used=st.integers(0, 20), limit=st.integers(1, 20), count=st.booleans())
def test_one_at_his_limit_cannot_work(used: int, limit: int, count: bool) -> None:
    quota = UserQuota(uid=7, used_bytes=0 if count else used, used_chunk_files=used if count else 0)
    quota = replace(quota, limit_chunk_files=limit) if count else replace(quota, limit_bytes=limit)
    found = room_to_work([OwnerNeed(uid=7, users=("ann",))], {7: quota})
    assert bool(found.problems) == (used >= limit)
    assert bool(found.warnings) == (0.9 * limit < used < limit)
