"""Symlinks, links, owners, quotas, losses: what is said before anything moves."""

import pytest

from migrator.plan import rules_surprises as plan_rules_surprises
from migrator.plan.model import SurpriseKind
from migrator.plan.rules import LinkSpan, SpanMember

TREES = frozenset({b"home/alice", b"home/bob", b"scratch"})
ALICE = b"home/alice"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (b"beside", None),
        (b"", None),
        (b"./c//d/", None),
        (b"\xff/\n", None),
        (b"../alice/x", None),
        (b"../alicex", SurpriseKind.SYMLINK_CROSSES_TREE),
        (b"../..", SurpriseKind.SYMLINK_CROSSES_TREE),
        (b"../bob/x", SurpriseKind.SYMLINK_CROSSES_TREE),
        (b"..", SurpriseKind.SYMLINK_CROSSES_TREE),
        (b"../../../etc", SurpriseKind.SYMLINK_CROSSES_TREE),
        (b"/usr/lib", None),
        (b"/mnt/glusterx", None),
        (b"/mnt/gluster", SurpriseKind.SYMLINK_INTO_SOURCE),
        (b"/mnt/gluster/home/alice/x", SurpriseKind.SYMLINK_INTO_SOURCE),
        (b"//mnt/./gluster/x", SurpriseKind.SYMLINK_INTO_SOURCE),
        (b"/mnt/gluster/../other", None),
    ],
)
def test_symlinks_are_judged_by_where_they_lead(target: bytes, expected: SurpriseKind | None) -> None:
    row = plan_rules_surprises.SymlinkRow(path=b"home/alice/link", tree=ALICE, target=target)
    assert plan_rules_surprises.judge_symlink(row, TREES, b"/mnt/gluster/") is expected


def span(*trees: bytes | None) -> LinkSpan:
    members = tuple(SpanMember(tree=tree, names=3, examples=((tree or b"x") + b"/n",)) for tree in trees)
    return LinkSpan(members=members, groups=2, size_bytes=50)


@pytest.mark.parametrize(
    ("trees", "batches"), [((ALICE, b"home/bob"), {ALICE: 1, b"home/bob": 2}), ((ALICE, None), {ALICE: 1})]
)
def test_groups_that_cannot_stay_whole_are_listed_as_broken(
    trees: tuple[bytes | None, ...], batches: dict[bytes, int]
) -> None:
    found = plan_rules_surprises.link_surprises([span(*trees)], batches)
    assert [one.kind for one in found] == [SurpriseKind.HARD_LINKS_BROKEN] * 2
    assert [one.tree for one in found] == list(trees)
    assert all("a copy of its own" in one.detail for one in found)
