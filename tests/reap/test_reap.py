"""Which rule a tree has, which paths it matches (against a model), and what was released of them."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.catalog.ports import Scratch
from migrator.core.entry import Entry, EntryType, UserTree
from migrator.core.errors import UsageError
from migrator.core.events import FindingStatus
from migrator.core.paths import name, parent
from migrator.core.units import DAY_S, NS_PER_S
from migrator.fs.model import Mount
from migrator.plan.model import TransferCost
from migrator.plan.store import CatalogQueries, CatalogQueryFiles
from migrator.reap import rules as reap_rules
from migrator.reap.model import ReapedTree, ReapRelease, TreeRule
from migrator.site.model import ReapAction, ReapClock, ReapPolicy, ReapRule
from tests.support.catalogs import closed_catalogs, directory, invented, write_catalog
from tests.support.making import made

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


def test_releases_match_by_path_and_by_glob() -> None:
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


@pytest.mark.parametrize(("kind", "kept"), [("cephfs", False), ("beegfs", False), ("lustre", True), ("moosefs", True)])
def test_some_file_systems_keep_none(kind: str, kept: bool) -> None:
    assert (reap_rules.atime_problem(kind, None, MOUNT) is None) is kept


def test_archives_save_inodes_and_no_bytes() -> None:
    cost = TransferCost(s_per_file=1.0, s_per_byte=0.5, streams=2, basis="")

    def tree(action: ReapAction) -> ReapedTree:
        return made(ReapedTree, tree=ALICE, action=action, files=4, size_bytes=10, allocated_bytes=4096)

    skipped, archived = (
        reap_rules.savings([tree(ReapAction.SKIP)], cost),
        reap_rules.savings([tree(ReapAction.ARCHIVE)], cost),
    )
    assert (skipped.size_bytes, skipped.inodes, skipped.seconds) == (10, 4, 4.5)
    assert (archived.size_bytes, archived.inodes, archived.seconds) == (0, 4, 2.0)


ANN, BOB = TREES = (b"home/.alice", b"home/bob")
NOW_S = 900
"""These catalogs were begun at 1000 s; their files changed before, unless a test says otherwise."""
KEEP = ".migrator-keep"
SKIP = ReapRule(action=ReapAction.SKIP, smaller_than_bytes=100)


@contextmanager
def opened(entries: Sequence[Entry]) -> Iterator[CatalogQueries]:
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        write_catalog(root / "catalogs", entries, TREES, max_part_rows=7)
        with CatalogQueryFiles(closed_catalogs(root / "catalogs"), scratch=Scratch(root / "tmp"), threads=1).open(
            "catalog-1"
        ) as queries:
            yield queries


def rules(*chosen: ReapRule) -> tuple[TreeRule, ...]:
    return tuple(
        TreeRule(tree=UserTree(path=tree, user=name(tree).decode()), rule=rule)
        for tree, rule in zip(TREES, chosen, strict=False)
    )


def matched(entries: Sequence[Entry], *chosen: ReapRule) -> set[bytes]:
    with opened(entries) as queries:
        found = queries.reap(rules(*chosen), now_s=NOW_S)
        rows = [row for block in found.rows(listed=True) for row in block]
        moving = {path for listing in queries.listings([list(TREES)]) for path in listing.paths}
        kept_back = {row.path for row in rows if row.action is not ReapAction.LIST}
        everything = {entry.path for entry in entries if entry.path.startswith(TREES) and entry.path not in TREES}
        assert moving == everything - kept_back
        assert len(rows) == len({row.path for row in rows})
        assert sum(tree.files for tree in found.trees()) == len(rows)
        assert sum(tree.size_bytes for tree in found.trees()) == sum(row.size_bytes for row in rows)
        held = [one for some in found.directories(10**6).values() for one in some]
        assert sum(one.files for one in held) == len(rows)
        assert {one.path for one in held} == {parent(row.path) for row in rows}
    return {row.path for row in rows}


# The model: one file at a time, with nothing of the product but its values.


def excluded(globs: Sequence[str], below: bytes) -> bool:
    parts = below.split(b"/")
    for glob in globs:
        wanted = glob.encode().split(b"/")
        starts = range(len(parts)) if len(wanted) == 1 else [0]
        for start in starts:
            found = parts[start : start + len(wanted)]
            if len(found) == len(wanted) and all(map(fnmatchcase, found, wanted)):
                return True
    return False


def model(entries: Sequence[Entry], tree: bytes, rule: ReapRule) -> set[bytes]:
    inside = [entry for entry in entries if entry.path.startswith(tree + b"/")]
    kept = {
        parent(one.path) for one in inside if name(one.path) == KEEP.encode() and one.type is not EntryType.DIRECTORY
    }

    def fits(entry: Entry) -> bool:
        time_ns = max(entry.atime_ns, entry.mtime_ns) if rule.by is ReapClock.ATIME else entry.mtime_ns
        below = entry.path[len(tree) + 1 :]
        return not (
            entry.type is not EntryType.FILE
            or (rule.smaller_than_bytes is not None and entry.size_bytes >= rule.smaller_than_bytes)
            or (rule.older_than_s is not None and time_ns >= (NOW_S - rule.older_than_s) * NS_PER_S)
            or (entry.mode & 0o111 and not rule.executables)
            or entry.nlink > 1
            or (any(part.startswith(b".") for part in below.split(b"/")) and not rule.hidden)
            or excluded(rule.exclude, below)
            or any(entry.path.startswith(one + b"/") for one in kept)
        )

    return {entry.path for entry in inside if fits(entry)}


NAMES = st.sampled_from([b"a", b"b", b".a", b"a.b", b"\xff", b"a/", b"x\\", b"*", b"\x2e\x2f", KEEP.encode()]).map(
    lambda part: part.replace(b"/", b"\x2d")
)
GLOBS = st.sampled_from(
    ["a", "*", "?", "a*", "[!a]", "a/b", "*/a", "a/*/b", "*.b", "[a-b]", "[", "x\\", "a?b", "[]", "b/*"]
)
RULES = st.builds(
    ReapRule,
    action=st.sampled_from(ReapAction),
    older_than_s=st.one_of(st.none(), st.sampled_from([0, DAY_S, 500 * DAY_S])),
    smaller_than_bytes=st.one_of(st.none(), st.sampled_from([1, 50, 10**6])),
    by=st.sampled_from(ReapClock),
    exclude=st.lists(GLOBS, max_size=3, unique=True).map(tuple),
    hidden=st.booleans(),
    executables=st.booleans(),
)


@st.composite
def catalogs(draw: st.DrawFn) -> list[Entry]:
    found: dict[bytes, Entry] = {b"home": directory(b"home"), **{tree: directory(tree) for tree in TREES}}
    for _ in range(draw(st.integers(0, 25))):
        above = draw(st.sampled_from([path for path, one in found.items() if one.type is EntryType.DIRECTORY]))
        path = above + b"/" + draw(NAMES)
        if path in found or not path.startswith(tuple(tree + b"/" for tree in TREES)):
            continue
        if draw(st.integers(0, 3)) == 0:
            found[path] = directory(path)
            continue
        linked = draw(st.integers(0, 3)) == 0
        age_s = draw(st.sampled_from([DAY_S, 400 * DAY_S, 600 * DAY_S]))
        entry = invented(
            path,
            draw(st.sampled_from([EntryType.FILE, EntryType.FILE, EntryType.FILE, EntryType.FIFO])),
            size_bytes=draw(st.sampled_from([0, 1, 49, 50, 51])),
            mode=draw(st.sampled_from([0o644, 0o600, 0o645])),
            mtime_ns=(NOW_S - age_s) * NS_PER_S,
            atime_ns=(NOW_S - draw(st.sampled_from([0, DAY_S, 600 * DAY_S]))) * NS_PER_S,
        )
        if linked:
            entry = replace(entry, nlink=2)
        found[path] = entry
    return list(found.values())


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(entries=catalogs(), first=RULES, second=RULES)
def test_reap_rules_match_their_files(entries: list[Entry], first: ReapRule, second: ReapRule) -> None:
    found = matched(entries, first, second)
    assert found == model(entries, ANN, first) | model(entries, BOB, second)


def test_a_file_that_changed_while_it_was_scanned_is_left_to_the_next_pass(tmp_path: Path) -> None:
    record = write_catalog(tmp_path, [], TREES)
    started_ns = int(record.started_at_s * NS_PER_S)
    entries = [
        invented(BOB + b"/before", mtime_ns=started_ns - 3 * NS_PER_S),
        invented(BOB + b"/meanwhile", mtime_ns=started_ns - NS_PER_S),
        replace(invented(BOB + b"/touched back", mtime_ns=1), ctime_ns=started_ns),
    ]
    assert matched(entries, SKIP, SKIP) == {BOB + b"/before"}
