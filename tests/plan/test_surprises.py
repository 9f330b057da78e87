"""Symlinks, links, owners, quotas, losses: what is said before anything moves."""

from dataclasses import replace

import pytest

from migrator.fs.model import TargetCapabilities
from migrator.plan import rules_surprises as plan_rules_surprises
from migrator.plan.losses import loss_details
from migrator.plan.model import Surprise, SurpriseKind
from migrator.plan.rules import LinkSpan, SpanMember
from tests.support.usages import usage

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


def test_symlinks_are_counted_by_tree_with_the_first_few_as_examples() -> None:
    rows = [
        plan_rules_surprises.SymlinkRow(path=b"home/alice/%d" % number, tree=ALICE, target=b"../bob")
        for number in range(9, -1, -1)
    ]
    rows.append(plan_rules_surprises.SymlinkRow(path=b"scratch/l", tree=b"scratch", target=b"/mnt/gluster/x"))
    crossing, absolute = plan_rules_surprises.symlink_surprises(rows, TREES, b"/mnt/gluster")
    assert (crossing.kind, crossing.tree, crossing.count) == (SurpriseKind.SYMLINK_CROSSES_TREE, ALICE, 10)
    assert crossing.examples == tuple(b"home/alice/%d" % number for number in range(plan_rules_surprises.MAX_EXAMPLES))
    assert (absolute.kind, absolute.tree) == (SurpriseKind.SYMLINK_INTO_SOURCE, b"scratch")
    assert "/mnt/gluster" in absolute.detail


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


def test_groups_whose_trees_share_a_batch_are_linked_again_and_not_all_are_named() -> None:
    trees = [b"t%02d" % number for number in range(20)]
    first, second, *_ = plan_rules_surprises.link_surprises([span(*trees)], dict.fromkeys(trees, 1))
    assert (first.kind, first.tree, first.count) == (SurpriseKind.HARD_LINKS_IN_BATCH, b"t00", 3)
    assert second.tree == b"t01"
    assert "t01, t02" in first.detail
    assert "and 14 more" in first.detail


def test_quotas_are_told_with_their_tree_and_what_lies_outside_every_tree() -> None:
    assert plan_rules_surprises.outside_surprises(None, ()) == ()
    (lost,) = plan_rules_surprises.outside_surprises(usage(b"", files=3, directories=2, size_bytes=9), (b"lost",))
    assert (lost.count, lost.size_bytes, lost.tree, lost.examples) == (5, 9, None, (b"lost",))
    found = plan_rules_surprises.quota_surprises([(b"scratch/shared", 1024), (b"other", 2048)], TREES)
    assert [(one.tree, one.size_bytes, one.examples) for one in found] == [
        (None, 2048, (b"other",)),
        (b"scratch", 1024, (b"scratch/shared",)),
    ]


def test_surprises_are_sorted_by_kind_and_tree() -> None:
    first = Surprise(kind=SurpriseKind.QUOTA, tree=b"a", count=1, size_bytes=0, detail="", examples=())
    found = [replace(first, tree=b"b"), replace(first, kind=SurpriseKind.LOSS_ACL), first, replace(first, tree=None)]
    assert [(one.kind, one.tree) for one in plan_rules_surprises.sort_surprises(found)] == [
        (SurpriseKind.QUOTA, None),
        (SurpriseKind.QUOTA, b"a"),
        (SurpriseKind.QUOTA, b"b"),
        (SurpriseKind.LOSS_ACL, b"a"),
    ]


def test_every_loss_has_words_on_a_target_that_keeps_nothing() -> None:
    poor = TargetCapabilities(
        time_granularity_ns=2_000_000_000,
        keeps_acls=False,
        keeps_user_xattrs=False,
        keeps_security_xattrs=False,
        keeps_symlink_times=False,
        keeps_symlink_owner=False,
        keeps_device_numbers=False,
        keeps_hard_links=False,
        keeps_sparse=False,
        makes_fifos=False,
        makes_sockets=False,
        reserved_names=(b"#fSiDs#", b"\x1b[0m"),
    )
    told = {**loss_details(poor), **loss_details(replace(poor, makes_devices=False))}
    assert set(told) == {kind for kind in SurpriseKind if kind.startswith("loss-")}
    assert "steps of 2 s" in told[SurpriseKind.LOSS_TIME]
    assert "#fSiDs#, \\x1b[0m" in told[SurpriseKind.LOSS_NAME]
    assert told[SurpriseKind.LOSS_ACL] == "ACLs are left out"
    kept = loss_details(TargetCapabilities())
    assert not {SurpriseKind.LOSS_TIME, SurpriseKind.LOSS_DEVICE, SurpriseKind.LOSS_HARD_LINK} & set(kept)
