"""Rules, savings, atime, and where a path stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.entry import UserTree
from migrator.core.errors import UsageError
from migrator.core.events import FindingStatus
from migrator.fs.model import Mount
from migrator.plan.model import TransferCost
from migrator.reap import rules as reap_rules
from migrator.reap.model import ReapAction, ReapedTree, ReapPolicy, ReapRelease, ReapRule

ALICE = UserTree(path=b"home/alice", user="alice")
WORK = UserTree(path=b"work/alice", user="alice")
OLD, TINY, OWN = (ReapRule(older_than_s=1), ReapRule(smaller_than_bytes=1), ReapRule(older_than_s=9))


def test_the_rule_of_a_tree_is_its_own_or_its_users_or_the_sites() -> None:
    policy = ReapPolicy(rule=OLD, by_name={"alice": TINY, "work/alice": OWN})
    bob = UserTree(path=b"home/bob", user="bob")
    found = {one.tree.path: one.rule for one in reap_rules.choose_rules(policy, [WORK, bob, ALICE])}
    assert found == {b"home/alice": TINY, b"home/bob": OLD, b"work/alice": OWN}
    assert reap_rules.choose_rules(ReapPolicy(), [ALICE]) == ()
    with pytest.raises(UsageError, match="carol"):
        reap_rules.choose_rules(ReapPolicy(rule=OLD, by_name={"carol": TINY}), [ALICE])


def test_what_was_released_is_known_by_path_and_by_glob() -> None:
    def one(pattern: bytes, *, is_glob: bool) -> ReapRelease:
        return ReapRelease(tree=b"home/alice", pattern=pattern, is_glob=is_glob, by="root", at_s=0.0)

    releases = reap_rules.Releases([one(b"a", is_glob=False), one(b"*.log", is_glob=True)])
    assert releases.has(b"home/alice", b"home/alice/a/b")
    assert releases.has(b"home/alice", b"home/alice/z/x.log")
    assert not releases.has(b"home/alice", b"home/alice/ab")
    assert not releases.has(b"work/alice", b"work/alice/a")
    whole = reap_rules.Releases([one(b"", is_glob=False)])
    assert whole.has(b"home/alice", b"home/alice/anything")


def test_paths_are_named_from_the_root_or_from_the_only_tree() -> None:
    trees = [ALICE.path, WORK.path]
    assert reap_rules.release_patterns(trees, [b"work/alice/x/"], [b"*.o"]) == [
        (b"work/alice", b"x", False),
        (b"home/alice", b"*.o", True),
        (b"work/alice", b"*.o", True),
    ]
    assert reap_rules.release_patterns([ALICE.path], [b"x", b"home/alice"], []) == [
        (b"home/alice", b"x", False),
        (b"home/alice", b"", False),
    ]
    for wrong in (b"x", b"/x", b"home/alice/../bob", b""):
        with pytest.raises(UsageError):
            reap_rules.release_patterns(trees, [wrong], [])


MOUNT = Mount(point=b"/mnt/gl", filesystem="fuse.glusterfs", source=b"gl:/vol")


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, False),
        ({"ctime.noatime": "off"}, True),
        ({"ctime.noatime": "on", "features.ctime": "off"}, True),
        ({"ctime.noatime": "perhaps"}, False),
        (None, False),
    ],
)
def test_gluster_keeps_atime_only_where_it_was_told_to(options: dict[str, str] | None, kept: bool) -> None:
    assert (reap_rules.atime_problem("gluster", options, MOUNT) is None) is kept


def test_a_mount_with_noatime_keeps_none() -> None:
    still = Mount(point=b"/mnt/gl", filesystem="xfs", source=b"/dev/x", no_atime=True)
    problem = reap_rules.atime_problem("posix", None, still)
    assert problem is not None
    assert "noatime" in problem
    assert reap_rules.atime_problem("posix", None, MOUNT) is None
    assert reap_rules.check_atime(False, problem) == []
    assert [one.status for one in reap_rules.check_atime(True, problem)] == [FindingStatus.FAILURE]


def test_archives_save_inodes_and_no_bytes() -> None:
    cost = TransferCost(s_per_file=1.0, s_per_byte=0.5, streams=2, basis="")

    def tree(action: ReapAction) -> ReapedTree:
        return ReapedTree(
            tree=ALICE,
            action=action,
            rule="",
            files=4,
            size_bytes=10,
            allocated_bytes=4096,
            oldest_ns=0,
        )

    skipped, archived = (
        reap_rules.savings([tree(ReapAction.SKIP)], cost),
        reap_rules.savings([tree(ReapAction.ARCHIVE)], cost),
    )
    assert (skipped.size_bytes, skipped.inodes, skipped.seconds) == (10, 4, 4.5)
    assert (archived.size_bytes, archived.inodes, archived.seconds) == (0, 4, 2.0)


@given(st.binary(min_size=1, max_size=12).filter(lambda path: b"\0" not in path))
def test_a_star_matches_every_path_and_a_plain_glob_only_its_own(path: bytes) -> None:
    assert reap_rules.GlobMatcher([b"*"]).matches(path)
    assert not reap_rules.GlobMatcher([]).matches(path)
    assert reap_rules.GlobMatcher([b"a/b"]).matches(path) == (path + b"/").startswith(b"a/b/")
