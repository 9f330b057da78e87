"""Globs to user trees, scans of some trees alone, whether the bricks may be read, and what their rows say of a scan."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.catalog.model import BrickFindings, PathFinding, ScanTimes, StrangeFiles
from migrator.core.entry import UserTree
from migrator.core.errors import Interrupted, UsageError
from migrator.core.paths import is_beneath
from migrator.fs.model import SourceHealth
from migrator.gluster.model import Brick, BrickHeal, BrickRules, Mark, VolumeState
from migrator.gluster.rules import brick_rules, copies, subvolumes
from migrator.scan import rules as scan_rules
from migrator.scan.rules import (
    BrickDoubts,
    MarkedPaths,
    judge_bricks,
    reasons_against_bricks,
    select_bricks,
    still_strange,
    task_changes,
)
from tests.support.scan_site import Lying, ScanSite, WatchedWalk
from tests.support.volumes import brick as brick_of
from tests.support.volumes import volume as volume_of

ALICE = b"home/alice"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ScanSite]:
    made = ScanSite(tmp_path)
    made.grow(["alice", "alice-b", "bob", "carol"])
    (made.root / "stray").write_text("nobody's")
    (made.root / "home" / "loose").write_text("nobody's")
    (made.root / "other" / "place").mkdir(parents=True)
    yield made
    made.close()


@pytest.fixture
def watched(site: ScanSite) -> Iterator[Lying]:
    source = Lying(os.fsencode(site.root))
    yield source
    source.close()


@pytest.fixture
def walk(monkeypatch: pytest.MonkeyPatch) -> WatchedWalk:
    return WatchedWalk(monkeypatch)


def test_it_holds_the_rows_of_a_whole_one_in_its_trees_and_on_the_way_to_them(
    site: ScanSite, watched: Lying, walk: WatchedWalk
) -> None:
    whole = site.scan()
    walk.done.clear()
    record = site.scan(source=watched, only=(b"home/bob", ALICE))
    assert record.whole, record.reasons
    assert record.scope == (b"home/bob", ALICE)
    assert [tree.path for tree in record.trees] == [ALICE, b"home/bob"]
    trees = {ALICE, b"home/bob"}
    expected = [row for row in site.rows(whole) if row["tree"] in trees or row["path"] == b"home"]
    assert site.rows(record) == expected
    assert (record.rows, record.directories, record.files) == (len(expected), 9, len(expected) - 9)
    assert record.size_bytes == sum(row["size"] for row in expected if row["type"] == "file")
    assert all(path.startswith((ALICE + b"/", b"home/bob/")) or path in trees for path in walk.done)
    assert len(walk.done) == 8
    assert set(watched.looked) <= {b"", b"home", *trees}
    assert whole.covers([ALICE, b"home/none"])
    assert record.covers([b"home/bob", ALICE])
    assert not record.covers([ALICE, b"home/alice-b"])
    assert site.catalogs().closed(record.name).record == record
    assert site.ledger.scans.all()[-1] == replace(record, times=ScanTimes())
    assert site.ledger.scans.latest() == replace(whole, times=ScanTimes())


def test_only_problems_within_the_trees_count(site: ScanSite, watched: Lying) -> None:
    watched.unreadable = {b"home/carol", b"home/loose"}
    assert site.scan(source=watched, only=(ALICE,)).whole
    watched.healths = [
        SourceHealth(problems=(), fingerprint="a"),
        SourceHealth(problems=("brick is down",), fingerprint="a"),
    ]
    record = site.scan(source=watched, only=(ALICE,))
    assert not record.whole
    assert any("down" in reason for reason in record.reasons)
    # The tree is found, and then the way to it is lost.
    watched.unreadable = {b"home"}
    record = site.scan(source=watched, only=(ALICE,))
    assert not record.whole
    assert [(row["path"], row["operation"]) for row in site.problems(record)] == [(b"home", "lstat")]


@pytest.mark.parametrize("how", ["gone", "symlink", "file", "another name", "excluded too"])
def test_a_tree_that_is_none_any_more_makes_it_not_whole(site: ScanSite, how: str) -> None:
    tree, lost = site.root / "home" / "bob", b"home/bob"
    changes: dict[str, Any] = {}
    if how == "gone":
        tree.rename(site.root / "elsewhere")
    elif how == "symlink":
        tree.rename(site.root / "elsewhere")
        tree.symlink_to(site.root / "elsewhere")
    elif how == "file":
        tree.rename(site.root / "elsewhere")
        tree.write_text("a file")
    elif how == "another name":
        lost = b"other/place"
    else:
        changes = {"exclude": ["home/bob"]}
    record = site.scan(only=(ALICE, lost), **changes)
    assert not record.whole
    assert any(lost.decode() in reason for reason in record.reasons)
    assert [found.path for found in record.trees] == [ALICE]
    assert {row["tree"] for row in site.rows(record)} == {None, ALICE}
    if how == "excluded too":
        with pytest.raises(UsageError):
            site.scan(only=(lost,), **changes)
        return
    record = site.scan(only=(lost,))
    assert (record.whole, record.trees, record.rows) == (False, (), 0)


def test_one_that_is_stopped_starts_over_and_leaves_nothing(site: ScanSite, walk: WatchedWalk) -> None:
    with pytest.raises(Interrupted) as stopped:
        asyncio.run(walk.cancelled(site, 1, workers=1, only=(ALICE,)))
    assert "starts over" in str(stopped.value.hint)
    assert list(site.catalogs_dir.iterdir()) == []
    record = site.scan()
    assert (record.whole, record.scope) == (True, ())
    assert b"home/carol" in {row["path"] for row in site.rows(record)}


def test_one_that_was_closed_and_not_told_is_told_and_not_taken_for_another(site: ScanSite) -> None:
    record = site.scan(only=(ALICE,))
    site.forget_the_end()
    site.scan()
    site.scan(only=(b"home/bob",))
    assert len(site.ledger.scans.unfinished_of_trees()) == 1, "a scan of others may be at work still"
    again = site.scan(only=(ALICE,))
    assert again.name != record.name
    assert site.ledger.scans.unfinished_of_trees() == []
    assert site.ledger.scans.all()[0].rows == record.rows
    site.forget_the_end()
    (site.catalogs_dir / record.name / record.parts[0]).unlink()
    assert site.scan(only=(ALICE,)).whole, "a damaged one is in nobody's way"


def brick(host: str, number: int = 1, **facts: object) -> Brick:
    return brick_of(f"{host}:/srv/b{number}", **facts)


def volume(*bricks: Brick, **changes: object) -> VolumeState:
    heals = tuple(BrickHeal(brick=brick.name, status="Connected", entries=0) for brick in bricks)
    options = (("nfs.disable", "on"), ("transport.address-family", "inet"))
    return volume_of(*bricks, **{"options": options, "heals": heals, "peers_down": (), **changes})


DISTRIBUTE = volume(*(brick(f"h{host}", number) for number in (1, 2) for host in (1, 2, 3)))
COPIED = volume(
    *(brick(f"h{host}", number) for number in (1, 2) for host in (1, 2, 3)),
    replica_count=3,
    type="Distributed-Replicate",
)
HOSTS = ("h1", "h2", "h3")


def test_a_quiet_distributed_volume_is_read_from_all_its_bricks() -> None:
    way = select_bricks(DISTRIBUTE, reachable=HOSTS)
    assert (way.reasons, way.bricks, way.rules) == ((), DISTRIBUTE.bricks, brick_rules(DISTRIBUTE))
    for value, kept in (("enable", True), ("off", False), ("no", False)):
        state = replace(DISTRIBUTE, options=(("features.ctime", value),))
        assert brick_rules(state) == BrickRules(times_from_mdata=kept, distributed=True, replicated=False)
    one_set = replace(COPIED, bricks=COPIED.bricks[:3])
    assert [brick_rules(state).distributed for state in (DISTRIBUTE, COPIED, one_set)] == [True, True, False]


def test_one_copy_is_read_and_the_hosts_share_the_work() -> None:
    assert [len(bricks) for bricks in subvolumes(COPIED)] == [3, 3]
    way = select_bricks(COPIED, reachable=HOSTS)
    assert [brick in copies for brick, copies in zip(way.bricks, subvolumes(COPIED), strict=True)] == [True, True]
    assert len({brick.host for brick in way.bricks}) == 2
    assert {brick.name for brick in (*way.bricks, *way.copies)} == {brick.name for brick in COPIED.bricks}
    # The marks on every copy decide, so none of them may be out of reach.
    lost = select_bricks(COPIED, reachable=("h2", "h3"), unreachable={"h1": "host h1 cannot be reached"})
    assert (lost.bricks, lost.copies) == ((), ())
    assert any("host h1 cannot be reached" in reason for reason in lost.reasons)
    names = [brick.name for brick in COPIED.bricks]
    assert copies(COPIED) == {name: tuple(names[at // 3 * 3 :][:3]) for at, name in enumerate(names)}
    assert copies(DISTRIBUTE) == copies(replace(COPIED, options=(("features.ctime", "off"),))) == copies(None) == {}


def test_of_copies_one_that_is_down_or_no_whole_set_is_a_reason() -> None:
    for online in (False, None):
        bricks = (replace(COPIED.bricks[0], online=online), *COPIED.bricks[1:])
        reasons = select_bricks(replace(COPIED, bricks=bricks), reachable=HOSTS).reasons
        assert any("h1:/srv/b1" in reason for reason in reasons)
    (reason,) = select_bricks(replace(COPIED, bricks=COPIED.bricks[:4]), reachable=HOSTS).reasons
    assert "sets of 3" in reason


def test_an_arbiter_is_never_read() -> None:
    state = volume(brick("h1"), brick("h2"), brick("h3", arbiter=True), replica_count=3, type="Replicate")
    way = select_bricks(state, reachable=["h1", "h2", "h3"])
    assert (way.bricks, way.copies) == ((state.bricks[0],), state.bricks[1:])
    assert copies(state) == dict.fromkeys(("h1:/srv/b1", "h2:/srv/b1"), ("h1:/srv/b1", "h2:/srv/b1"))
    (reason,) = select_bricks(state, reachable=["h3"]).reasons
    assert "h1:/srv/b1 or h2:/srv/b1" in reason
    assert "h3" not in reason


def test_a_host_that_is_not_reached_or_not_named_is_a_reason() -> None:
    reasons = select_bricks(DISTRIBUTE, reachable=["h1"], unreachable={"h2": "host h2 cannot be reached"}).reasons
    assert len(reasons) == 4
    assert sum("host h2 cannot be reached" in reason for reason in reasons) == 2
    assert sum('[source.hosts."h3"]' in reason for reason in reasons) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"started": False}, "not started"),
        ({"disperse_count": 3, "type": "Disperse"}, "dispersed"),
        ({"type": "Distributed-Disperse"}, "dispersed"),
        ({"stripe_count": 2}, "striped"),
        ({"type": "Striped-Replicate"}, "striped"),
        ({"type": "Tier"}, "tiered"),
        ({"options": (("features.shard", "on"),)}, "sharded"),
        ({"options": (("features.encryption", "enable"),)}, "encrypted"),
        ({"options": (("encryption.block-size", "4096"),)}, "encryption.block-size"),
        ({"options": (("network.compression", "on"),)}, "network.compression"),
        ({"options": (("cluster.dht-xattr-name", "trusted.mine"),)}, "cluster.dht-xattr-name"),
        ({"options": (("features.trash", "on"),)}, "features.trash"),
        *(
            ({"options": ((f"{prefix}.next-year", "42"),)}, f"{prefix}.next-year (42)")
            for prefix in ("features", "cluster", "storage", "debug")
        ),
        ({"options": (("cluster.switch-pattern", "*.jpg"),)}, "cluster.switch-pattern"),
        ({"options": (("features.ctime", "maybe"),)}, "features.ctime"),
        ({"tasks": ("Rebalance (in progress)",)}, "Rebalance"),
        ({"tasks": ("Remove brick (completed) of h1:/srv/b1",)}, "waits for its commit"),
        ({"peers_down": ("h2",)}, "h2"),
        ({"peers_down": None}, "unknown"),
        ({"heals": None}, "unknown"),
    ],
)
def test_whatever_changes_what_a_brick_holds_is_a_reason(changes: dict[str, object], said: str) -> None:
    way = select_bricks(replace(DISTRIBUTE, **changes), reachable=HOSTS)
    assert way.bricks == ()
    assert any(said in reason for reason in way.reasons), way.reasons


@pytest.mark.parametrize(
    ("heal", "said"),
    [
        (BrickHeal(brick="h1:/srv/b1", status="Connected", entries=None), "unknown"),
        (BrickHeal(brick="h1:/srv/b1", status="Transport endpoint is not connected", entries=None), "Transport"),
    ],
)
def test_unknown_heals_are_reasons(heal: BrickHeal, said: str) -> None:
    assert COPIED.heals is not None
    (reason,) = reasons_against_bricks(replace(COPIED, heals=(heal, *COPIED.heals[1:])))
    assert said in reason
    (missing,) = reasons_against_bricks(replace(COPIED, heals=COPIED.heals[1:]))
    assert "1 bricks" in missing


def test_a_task_that_came_and_went_is_told_by_its_id() -> None:
    before = replace(DISTRIBUTE, task_ids=("a",))
    assert task_changes(before, replace(before, task_ids=())) == ()
    assert task_changes(before, replace(before, task_ids=("a", "b")))


def globs_found(**globs: list[bytes]) -> list[tuple[scan_rules.TreePattern, list[bytes]]]:
    """Globs given as `home__x=[...]` for `home/*`: the name does not matter, the paths do."""
    return [
        (scan_rules.TreePattern(text=text, components=(b"*",) * (paths[0].count(b"/") + 1 if paths else 2)), paths)
        for text, paths in globs.items()
    ]


def test_excluded_trees_are_left_out_and_may_end_an_overlap() -> None:
    exclude = scan_rules.parse_patterns(["home/old*"], "[users] exclude")
    trees = scan_rules.choose_trees(globs_found(one=[b"home/old1", b"home/new"], two=[b"home/old1/x"]), exclude, {})
    assert [tree.path for tree in trees] == [b"home/new"]


def test_a_name_of_the_program_in_the_root_is_no_user_tree() -> None:
    found = globs_found(one=[b".migrator-trash", b"new"])
    with pytest.raises(UsageError, match="keeps for itself"):
        scan_rules.choose_trees(found, (), {})
    exclude = scan_rules.parse_patterns([".migrator-*"], "[users] exclude")
    assert [tree.path for tree in scan_rules.choose_trees(found, exclude, {})] == [b"new"]
    below = scan_rules.choose_trees(globs_found(one=[b"home/.migrator-trash"]), (), {})
    assert [tree.path for tree in below] == [b"home/.migrator-trash"]


@pytest.mark.parametrize("text", ["/home/*", "home/../x", "", ".", "home//x", "home/./x", "home/**"])
def test_globs_that_leave_the_mount_or_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"\[users\] trees"):
        scan_rules.parse_patterns([text], "[users] trees")


@pytest.mark.parametrize(
    ("pattern", "component", "matches"),
    [
        (b"*", b"alice", True),
        (b"*", b".hidden", False),
        (b".*", b".hidden", True),
        (b"*", b"new\nline", True),
        (b"*", b"\xff\xfe", True),
        (b"a?c", b"abc", True),
        (b"[ab]c", b"bc", True),
        (b"A*", b"abc", False),
    ],
)
def test_components_match_as_in_a_shell(pattern: bytes, component: bytes, matches: bool) -> None:
    assert scan_rules.component_matches(pattern, component) is matches


_NAMES = st.sampled_from([b"a", b"b", b"a-", b"a.", b"ab", b"z", b"\xff"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=4).map(b"/".join)


@given(st.sets(_PATHS, max_size=8), _PATHS)
def test_the_index_agrees_with_looking_at_every_tree(paths: set[bytes], asked: bytes) -> None:
    apart = [path for path in paths if not any(other != path and is_beneath(path, other) for other in paths)]
    index = scan_rules.TreeIndex(UserTree(path=path, user="u") for path in apart)
    expected = next((path for path in apart if is_beneath(asked, path)), None)
    assert index.of(asked) == expected
    assert index.is_root(asked) == (asked in apart)
    assert index.of(b"") is None


def test_the_map_of_users_is_read_by_column_name() -> None:
    content = b'tree,group,user\nhome/a,x,alice\n"home/b,c",x,bob\n/home/\xff/,x,carol\n'
    assert scan_rules.parse_user_map(content) == {b"home/a": "alice", b"home/b,c": "bob", b"home/\xff": "carol"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no columns"),
        (b"home/a,alice\n", "no columns"),
        (b"tree,user\nhome/a\n", "line 2"),
        (b"tree,user\nhome/a,\n", "line 2"),
        (b"tree,user\nhome/a,alice\nhome/a,bob\n", "line 3"),
        (b'tree,user\n"home/a,alice\n', "line"),
    ],
)
def test_a_broken_map_of_users_is_refused_with_the_line(content: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        scan_rules.parse_user_map(content)


NOTHING = BrickFindings()
SOME = PathFinding(count=5, paths=(b"home/a", b"home/\xff", b"home/c", b"home/d"))


def judged(globs_found: BrickFindings = NOTHING, **changes: Any) -> BrickDoubts:
    facts = {"marks": {}, "vanished": 0, "hidden_marks": 0}
    return judge_bricks(globs_found, **{"strange": (), "limit": 100, **facts, **changes})


@pytest.mark.parametrize("fact", ["doubled_paths", "doubled_inodes", "conflicting", "twins", "unlike"])
def test_facts_that_a_quiet_volume_lacks_make_the_scan_incomplete(fact: str) -> None:
    (doubt,) = judged(BrickFindings(**{fact: SOME})).doubts
    assert doubt.startswith("5 ")
    assert r"home/a, home/\xff, home/c, ..." in doubt
    named = judged(BrickFindings(**{fact: PathFinding(count=1, paths=(b"home/a",))}))
    assert ([one.path for one in named.unread], named.doubts) == ([b"home/a"], ())


@pytest.mark.parametrize("mark", Mark)
def test_marked_paths_are_named_and_taken_from_the_mount(mark: Mark) -> None:
    result = judged(marks={mark: MarkedPaths(paths=(b"home/a", b"home/b"))})
    assert (result.doubts, result.unread, len(result.findings)) == ((), (), 1)
    assert "home/a, home/b" in result.findings[0]
    # More than are kept were not taken from it.
    assert judged(marks={mark: MarkedPaths(paths=(b"home/a",), more=1)}).doubts


@pytest.mark.parametrize("fact", ["differing", "incomplete"])
def test_copies_of_directories_that_differ_are_told_and_no_doubt(fact: str) -> None:
    result = judged(BrickFindings(**{fact: SOME}))
    assert result.doubts == ()
    assert result.findings[0].startswith("5 directories")


def test_more_than_the_mount_is_asked_for_is_a_doubt() -> None:
    assert judged(BrickFindings(differing=PathFinding(count=101))).doubts
    assert not judged(BrickFindings(differing=PathFinding(count=100))).doubts


def test_bits_that_the_mount_hides_are_told() -> None:
    assert judged(hidden_marks=2).findings[0].startswith("2 files have both the setgid and the sticky bit")


def test_vanished_paths_are_reported() -> None:
    assert "3 paths vanished" in judged(vanished=3).findings[0]


FOUND = StrangeFiles(brick="gl3:/b", files=5, paths=(b"a", b"b\n", b"c", b"d"))


@pytest.mark.parametrize(
    ("known", "still", "left"),
    [
        (FOUND, {b"a", b"b\n", b"c", b"d"}, 5),
        # One was counted and not kept by name: only another scan tells.
        (FOUND, set(), 1),
        (StrangeFiles(brick="b", files=2, paths=(b"a", b"b")), {b"b"}, 1),
    ],
)
def test_removed_strange_files_no_longer_count(known: StrangeFiles, still: set[bytes], left: int) -> None:
    globs_found = still_strange(known, still)
    assert globs_found is not None
    assert (globs_found.files, set(globs_found.paths)) == (left, still)
