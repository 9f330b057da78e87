"""The queries of planning, compared with a plain reading of the same entries."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.catalog.ports import Scratch
from migrator.core.entry import ACL_ACCESS, ACL_DEFAULT, Entry, EntryType
from migrator.core.states import ChunkKind
from migrator.core.units import DAY_S, NS_PER_S
from migrator.fs.model import SurpriseKind, TargetCapabilities
from migrator.fs.rules import absence
from migrator.plan.losses import lost_atimes
from migrator.plan.rules import AGE_BOUNDS
from migrator.plan.store import CatalogQueries, CatalogQueryFiles
from tests.support.beegfs_like import BEEGFS_CAPABILITIES
from tests.support.catalogs import closed_catalogs, directory, invented, symlink, write_catalog

Opener = Callable[..., CatalogQueries]
NOW_S = 2_000_000_000
TREES = (b"home/alice", b"home/bob", b"home/c\xff\nd", b"home/nobody")
NAMES = (b"-n", b"new\nline", b"\xff\xfe", b"it's", b"a b", b"back\\slash", b'quo"te', b"x" * 255, b"%41", b"\x01")


def odd_entries(seed: int) -> list[Entry]:
    """Some hundred entries with hostile names, of all types and ages, with link groups within and over trees."""
    chance = random.Random(seed)
    entries = [directory(b"home"), *(directory(tree) for tree in TREES), directory(b"lost"), invented(b"lost/found")]
    groups: list[int] = []
    for tree in TREES[:3]:
        for number in range(12):
            place = b"%s/%d-%s" % (tree, number, chance.choice(NAMES)[:200])
            entries.append(directory(place))
            for count in range(chance.randrange(12)):
                path = b"%s/%d-%s" % (place, count, chance.choice(NAMES)[:250])
                age_s = chance.choice([-DAY_S, 0, *(bound for _, bound in AGE_BOUNDS if bound), 3000 * DAY_S])
                kind = chance.choice([*[EntryType.FILE] * 8, EntryType.FIFO, EntryType.CHARACTER])
                shared = chance.random() < 0.3
                if shared and (not groups or chance.random() < 0.4):
                    groups.append(2**63 + len(groups) * 7 + 1)
                ino = chance.choice(groups) if shared else None
                if ino is not None:
                    # All names of a file show the same facts.
                    kind, age_s, weight = EntryType.FILE, 40 * DAY_S, ino % 10_000
                else:
                    weight = chance.choice([0, 1, 4095, 4096, 10**6]) if kind is EntryType.FILE else 0
                entries.append(
                    invented(
                        path,
                        kind,
                        size_bytes=weight,
                        ino=ino,
                        nlink=2 if shared else 1,
                        mtime_ns=(NOW_S - age_s) * NS_PER_S - chance.randrange(2),
                        atime_ns=(NOW_S - age_s // 2) * NS_PER_S,
                        rdev=260 if kind is EntryType.CHARACTER else 0,
                    )
                )
    return entries


@pytest.fixture
def queries_of(tmp_path: Path) -> Iterator[Opener]:
    with ExitStack() as stack:

        def opener(
            entries: Sequence[Entry],
            trees: Sequence[bytes] = TREES,
            *,
            max_part_rows: int = 50,
            bricks: Sequence[str] = (),
        ) -> CatalogQueries:
            write_catalog(tmp_path / "catalogs", entries, trees, max_part_rows=max_part_rows, bricks=bricks)
            catalogs = CatalogQueryFiles(closed_catalogs(tmp_path / "catalogs"), scratch=Scratch(tmp_path / "tmp"))
            return stack.enter_context(catalogs.open("catalog-1"))

        yield opener


def tree_of(entry: Entry) -> bytes | None:
    return next((tree for tree in TREES if entry.path == tree or entry.path.startswith(tree + b"/")), None)


@pytest.mark.parametrize("seed", [1, 2])
def test_usage_is_that_of_a_plain_count(queries_of: Opener, seed: int) -> None:
    entries = odd_entries(seed)
    usages = queries_of(entries).usages(now_s=float(NOW_S))
    assert [found.tree.path for found in usages.trees] == sorted(TREES)
    for found in usages.trees:
        mine = [entry for entry in entries if tree_of(entry) == found.tree.path]
        others = [entry for entry in mine if entry.type is not EntryType.DIRECTORY]
        once = {entry.link_group or entry.path: entry for entry in others}.values()
        assert found.files == len(others)
        assert found.directories == len(mine) - len(others)
        assert found.size_bytes == sum(entry.size_bytes for entry in once)
        directories = [entry for entry in mine if entry.type is EntryType.DIRECTORY]
        assert found.allocated_bytes == sum(entry.blocks * 512 for entry in [*once, *directories])
        files = [entry for entry in others if entry.type is EntryType.FILE]
        assert found.tiny_files == sum(entry.size_bytes < 4096 for entry in files)
        assert found.specials == len(others) - len(files)
        assert found.link_groups == len({entry.link_group for entry in others if entry.link_group is not None})
        if files:
            assert found.largest_bytes == max(entry.size_bytes for entry in files)
            assert found.largest_path == min(entry.path for entry in files if entry.size_bytes == found.largest_bytes)
            ages = sorted(NOW_S - entry.mtime_ns / NS_PER_S for entry in others)
            middle = sorted(ages, reverse=True)[(len(ages) - 1) // 2]
            assert abs(found.median_age_s - middle) <= DAY_S
        for buckets, attribute in ((found.by_mtime, "mtime_ns"), (found.by_atime, "atime_ns")):
            names: Counter[str] = Counter()
            for entry in others:
                age_ns = NOW_S * NS_PER_S - getattr(entry, attribute)
                names[next(label for label, bound in AGE_BOUNDS if bound is None or age_ns < bound * NS_PER_S)] += 1
            assert {bucket.label: bucket.files for bucket in buckets if bucket.files} == dict(names)
            assert sum(bucket.size_bytes for bucket in buckets) == found.size_bytes


def test_spans_are_the_groups_over_several_trees(queries_of: Opener) -> None:
    entries = [
        *(invented(path, ino=1, nlink=3, size_bytes=10) for path in (b"home/alice/1", b"home/alice/2", b"home/bob/1")),
        *(invented(path, ino=2, nlink=2, size_bytes=20) for path in (b"home/alice/3", b"home/bob/3")),
        *(invented(path, ino=3, nlink=2, size_bytes=30) for path in (b"home/bob/4", b"home/bob/5")),
        *(invented(path, ino=2**63 + 5, nlink=2, size_bytes=40) for path in (b"home/bob/6", b"other")),
    ]
    outside, both = queries_of(entries).link_spans()
    assert (set(both.trees), both.groups, both.size_bytes) == ({b"home/alice", b"home/bob"}, 2, 30)
    assert [(member.tree, member.names, member.examples) for member in both.members] == [
        (b"home/alice", 3, (b"home/alice/1", b"home/alice/2", b"home/alice/3")),
        (b"home/bob", 2, (b"home/bob/1", b"home/bob/3")),
    ]
    assert (set(outside.trees), outside.groups, outside.size_bytes) == ({None, b"home/bob"}, 1, 40)


CUT = TargetCapabilities(
    max_name_bytes=20,
    reserved_names=(b"#fSiDs#", b"\xff\n"),
    makes_devices=False,
    makes_fifos=False,
    makes_sockets=False,
    max_symlink_target_bytes=30,
)
ABSENT = {SurpriseKind(f"loss-{what}") for what in ("name", "device-node", "fifo", "socket", "symlink-target")}


@pytest.mark.parametrize("capabilities", [CUT, BEEGFS_CAPABILITIES, TargetCapabilities()])
def test_losses_are_the_paths_that_the_copy_omits(queries_of: Opener, capabilities: TargetCapabilities) -> None:
    names = [
        b"#fSiDs#",
        b"a#fSiDs#",
        b"#fSiDs#/in",
        b"x/\xff\n",
        b"\xff\nx",
        b"n" * 20,
        b"n" * 21,
        b"/".join([b"n" * 19] * 3),
    ]
    names += [b"\x2f".join([b"\xf2" * 10, b"\xf2" * 15]), b"\x12\xf0" * 11, b"short"]
    entries = [invented(b"home/alice/" + name) for name in names]
    entries += [symlink(b"home/alice/l%d" % length, b"t" * length) for length in (30, 31, 4094, 4095)]
    entries += [
        invented(b"home/alice/" + kind.value.encode(), kind, rdev=5)
        for kind in (EntryType.FIFO, EntryType.SOCKET, EntryType.BLOCK, EntryType.CHARACTER)
    ]
    expected: defaultdict[SurpriseKind, list[bytes]] = defaultdict(list)
    for entry in entries:
        loss = absence(entry, capabilities)
        if loss is not None:
            expected[loss.kind].append(entry.path)
    found = queries_of(entries).findings(capabilities, long_path_bytes=4096)
    told = {one.kind: (one.count, one.examples) for one in found if one.kind in ABSENT}
    assert told == {kind: (len(paths), tuple(sorted(paths)[:5])) for kind, paths in expected.items()}


def test_changes_by_the_target_are_found(queries_of: Opener) -> None:
    acl = b"\x02\x00\x00\x00" + b"entry..." * 500
    entries = [
        invented(b"home/alice/time", mtime_ns=-1_500_000_000, size_bytes=3),
        invented(b"home/alice/exact", mtime_ns=5_000_000_000),
        invented(b"home/alice/device", EntryType.CHARACTER, rdev=260),
        invented(b"home/alice/null", EntryType.CHARACTER, rdev=0),
        invented(b"home/alice/user-small", xattrs={b"user.a": b"v" * 4000}),
        invented(b"home/alice/user-big", xattrs={b"user.a": b"v" * 4001}),
        invented(b"home/alice/user-long", xattrs={b"user.".ljust(246, b"n"): b""}),
        invented(b"home/alice/capability", xattrs={b"security.capability": b"v" * 20}),
        invented(b"home/alice/trusted", xattrs={b"trusted.x": b"v" * 9000}),
        invented(b"home/alice/acl-small", xattrs={ACL_ACCESS: acl[: 4 + 499 * 8]}),
        invented(b"home/alice/acl-big", xattrs={ACL_ACCESS: acl}),
        invented(b"home/alice/sparse", size_bytes=10_000, blocks=8),
        symlink(b"home/alice/link", b"exact"),
        invented(b"home/alice/shared", EntryType.DIRECTORY, xattrs={ACL_DEFAULT: acl[: 4 + 5 * 8]}),
    ]
    queries = queries_of(entries)
    found = queries.findings(BEEGFS_CAPABILITIES, long_path_bytes=4096)
    assert {(one.kind, one.count, one.size_bytes, one.examples) for one in found} == {
        (SurpriseKind.LOSS_TIME, 1, 3, (b"home/alice/time",)),
        (SurpriseKind.LOSS_DEVICE, 1, 0, (b"home/alice/device",)),
        (SurpriseKind.LOSS_XATTR_SIZE, 2, 0, (b"home/alice/user-big", b"home/alice/user-long")),
        (SurpriseKind.LOSS_XATTR_NAMESPACE, 2, 0, (b"home/alice/capability", b"home/alice/trusted")),
        (SurpriseKind.LOSS_ACL, 1, 0, (b"home/alice/acl-big",)),
    }
    exposing = replace(BEEGFS_CAPABILITIES, inherits_default_acls=False)
    also = {one.kind: one for one in queries.findings(exposing, long_path_bytes=4096)}
    assert set(also) == {*(one.kind for one in found), SurpriseKind.ACL_NOT_INHERITED}
    exposed = also[SurpriseKind.ACL_NOT_INHERITED]
    assert (exposed.tree, exposed.examples) == (b"home/alice", (b"home/alice/shared",))
    poor = TargetCapabilities(
        keeps_acls=False,
        keeps_user_xattrs=False,
        keeps_security_xattrs=False,
        keeps_symlink_times=False,
        keeps_symlink_owner=False,
        keeps_hard_links=False,
        keeps_sparse=False,
    )
    counts = {one.kind: one.count for one in queries.findings(poor, long_path_bytes=4096)}
    assert counts == {
        SurpriseKind.LOSS_ACL: 3,
        SurpriseKind.LOSS_XATTR_NAMESPACE: 5,
        SurpriseKind.LOSS_SYMLINK_TIME: 1,
        SurpriseKind.LOSS_SYMLINK_OWNER: 1,
        SurpriseKind.LOSS_SPARSENESS: 1,
    }
    lost = lost_atimes(None, replace(poor, keeps_atimes=False))
    found = queries.findings(None, long_path_bytes=4096, other_losses=lost)
    files = sum(entry.type is EntryType.FILE for entry in entries)
    assert [(one.kind, one.count) for one in found] == [(SurpriseKind.LOSS_ATIME, files)]


def test_access_times_are_lost_by_the_source_or_the_target() -> None:
    keeping, losing = TargetCapabilities(), TargetCapabilities(keeps_atimes=False)
    assert [bool(lost_atimes(None, can)) for can in (None, keeping, losing)] == [False, False, True]
    assert lost_atimes("noatime", keeping)


@pytest.mark.parametrize("seed", [3, 4])
def test_the_listings_hold_every_path_of_the_batches_once(queries_of: Opener, seed: int) -> None:
    entries = odd_entries(seed)
    batches = [[TREES[1], TREES[0]], [TREES[2], TREES[3]]]
    listings = list(queries_of(entries).listings(batches))
    listed = [(one, row) for one in listings for row in range(len(one.paths))]
    assert Counter(one.paths[row] for one, row in listed) == Counter(
        entry.path for entry in entries if tree_of(entry) is not None and entry.path not in TREES
    )
    by_path = {entry.path: entry for entry in entries}
    firsts: dict[tuple[int, int], bytes] = {}
    for one, row in listed:
        entry = by_path[one.paths[row]]
        assert one.tree == tree_of(entry)
        assert one.tree in batches[one.batch - 1]
        assert (one.kind is ChunkKind.DIRECTORIES) == (entry.type is EntryType.DIRECTORY)
        assert one.link_groups[row] == entry.link_group
        assert one.grouped == (entry.link_group is not None and one.kind is ChunkKind.FILES)
        if one.kind is ChunkKind.FILES:
            assert one.sizes_bytes[row] == (entry.size_bytes if entry.type is EntryType.FILE else 0)
            if entry.link_group is not None:
                firsts.setdefault((one.batch, entry.link_group), entry.path)
    links = [(one, row) for one, row in listed if one.kind is ChunkKind.LINKS]
    assert links
    for one, row in links:
        group = one.link_groups[row]
        assert group is not None
        existing = one.links_to[row]
        assert existing == firsts[one.batch, group]
        assert tree_of(by_path[existing]) == batches[one.batch - 1][0]
        assert one.tree != batches[one.batch - 1][0]


@pytest.mark.parametrize("sorted_at_once", [1, 7])
def test_the_listings_are_the_same_in_however_many_parts_they_were_sorted(
    queries_of: Opener, monkeypatch: pytest.MonkeyPatch, sorted_at_once: int
) -> None:
    queries = queries_of(odd_entries(3), bricks=("one:/b", "two:/b"))

    def listed() -> list[tuple[object, ...]]:
        return [
            (one.batch, one.kind, one.tree, one.grouped, one.brick, *row)
            for one in queries.listings([[TREES[1], TREES[0]], [TREES[2]]])
            for row in zip(one.paths, one.sizes_bytes, one.link_groups, one.links_to, one.mtimes_ns, strict=True)
        ]

    at_once = listed()
    monkeypatch.setattr("migrator.catalog.queries._SORTED_AT_ONCE", sorted_at_once)
    assert listed() == at_once


def test_files_are_listed_by_brick_and_directories_once(queries_of: Opener) -> None:
    bricks = ("two:/b", "one:/b")
    tree = TREES[0]
    entries = [directory(tree), directory(tree + b"/d")]
    # The walks of the bricks go on at once, so that their rows lie mixed.
    for number in range(40):
        brick = (*bricks, "gone:/b", None)[number % 4]
        entries.append(invented(b"%s/d/%02d" % (tree, number), size_bytes=number, mtime_ns=number - 7, brick=brick))
    for group, places in enumerate([("one:/b", "one:/b"), ("one:/b", "two:/b"), (None, "two:/b")]):
        entries += [
            invented(b"%s/d/link-%d-%d" % (tree, group, number), size_bytes=5, ino=90 + group, nlink=3, brick=brick)
            for number, brick in enumerate(places)
        ]
        entries.append(invented(b"%s/%d" % (TREES[1], group), size_bytes=5, ino=90 + group, nlink=3, brick=places[0]))
    listings = list(queries_of(entries, bricks=bricks).listings([[tree, TREES[1]]]))
    of_tree = [one for one in listings if one.kind is ChunkKind.FILES and one.tree == tree]
    files = {(one.brick, one.grouped): one.paths for one in of_tree}
    assert files == {
        (None, False): [b"%s/d/%02d" % (tree, number) for number in range(40) if number % 4 > 1],
        (None, True): [b"%s/d/link-%d-%d" % (tree, group, number) for group in (1, 2) for number in range(2)],
        ("one:/b", False): [b"%s/d/%02d" % (tree, number) for number in range(1, 40, 4)],
        ("one:/b", True): [b"%s/d/link-0-%d" % (tree, number) for number in range(2)],
        ("two:/b", False): [b"%s/d/%02d" % (tree, number) for number in range(0, 40, 4)],
    }
    # What lies on one brick follows one another, so that one chunk can take it.
    assert [(one.brick, one.grouped) for one in listings if one.kind is ChunkKind.FILES] == list(files)
    others = [(one.kind, one.brick, one.paths) for one in listings if one.kind is not ChunkKind.FILES]
    assert others == [
        (ChunkKind.DIRECTORIES, None, [tree + b"/d"]),
        (ChunkKind.LINKS, None, [b"%s/%d" % (TREES[1], group) for group in range(3)]),
    ]
    mtimes = {entry.path: entry.mtime_ns for entry in entries}
    assert all(one.mtimes_ns == [mtimes[path] for path in one.paths] for one in listings)


def test_tiny_files_are_counted_by_the_directory_in_the_top_that_holds_them(queries_of: Opener) -> None:
    odd = b"home/alice/\xff\\\n"
    entries = [directory(path) for path in (b"home", *TREES, odd, odd + b"/x", b"home/alice/big", b"home/bob/d")]
    entries += [invented(b"%s/x/%d" % (odd, number), size_bytes=10) for number in range(3)]
    entries += [invented(path, size_bytes=4095) for path in (b"home/alice/one", b"home/alice/two", odd + b"/three")]
    entries += [invented(b"home/alice/big/1", size_bytes=4096), invented(b"home/bob/d/1", size_bytes=1)]
    found = list(queries_of(entries).tiny_directories({b"home/alice"}, most=2))
    assert [(one.tree, one.path, one.files) for one in found] == [
        (b"home/alice", odd, 4),
        (b"home/alice", b"home/alice", 2),
    ]
