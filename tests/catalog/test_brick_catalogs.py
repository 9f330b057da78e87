"""A catalog of what walks of bricks send: one row a path, what cannot be in a quiet volume, and who uses which brick."""

import struct
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from migrator.catalog.brick_parts import BrickPartsWriter
from migrator.catalog.files import open_closed
from migrator.catalog.model import BrickFindings, BrickUse, PathFinding, TreeOnBricks
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import CatalogReads
from migrator.catalog.writer import CatalogDirectories
from migrator.core.entry import EntryType, UserTree
from migrator.core.errors import MigratorError, UsageError
from tests.catalog.walker_blocks import block, padded
from tests.support.catalogs import closed_catalogs, invented, symlink, whole_catalog, write_catalog
from tests.support.catalogs import directory as directory_entry

ALICE, BOB = b"home/alice", b"home/bob"
TREES = (ALICE, BOB)
BRICKS = ("h1:/b", "h2:/b")
APART = [[brick] for brick in BRICKS]
SETTLED_NS = 1_000
Row = tuple[Any, ...]


def row(path: bytes, gfid: int, kind: EntryType = EntryType.FILE, **changes: Any) -> Row:
    facts: dict[str, Any] = {"mode": 0o644, "uid": 1000, "mtime_ns": 5, "size": 10, "digest": None} | changes
    tree = next((number for number, tree in enumerate(TREES) if path == tree or path.startswith(tree + b"/")), -1)
    times = (facts["mtime_ns"], 0, facts["mtime_ns"])
    wide = (list(EntryType).index(kind), facts["size"], 8, *times, 0, gfid)
    last = (path, gfid.to_bytes(16, "big"), None, facts["digest"])
    return (*wide, facts["uid"], 100, facts["mode"], 1, 0, 0, 0, tree, *last)


def directory(path: bytes, gfid: int, **changes: Any) -> Row:
    return row(path, gfid, EntryType.DIRECTORY, **{"mode": 0o755, "size": 4096, **changes})


def payload(*rows: Row) -> memoryview:
    return memoryview(block(rows))


RECORD = whole_catalog(
    name="c1",
    via="bricks",
    trees=tuple(UserTree(path=tree, user=tree.decode()) for tree in TREES),
    finished_at_s=None,
    whole=False,
)


@pytest.fixture
def catalogs(tmp_path: Path) -> CatalogDirectories:
    return CatalogDirectories(tmp_path / "catalogs", scratch=Scratch(tmp_path / "temp"))


@pytest.fixture
def writer(catalogs: CatalogDirectories) -> Iterator[BrickPartsWriter]:
    made = catalogs.create_from_bricks(RECORD, bricks=2)
    for brick in BRICKS:
        made.add_directories(brick, 1, payload(directory(b"home", 101), directory(ALICE, 102)))
    yield made
    made.close(RECORD)


def rows_in(tmp_path: Path, writer: BrickPartsWriter) -> list[dict[str, Any]]:
    writer.close(RECORD)
    files = open_closed(tmp_path / "catalogs" / "c1").part_files
    return sorted((row for file in files for row in pq.read_table(file).to_pylist()), key=lambda row: row["path"])


def test_files_of_all_bricks_and_directories_once_with_the_last_time(tmp_path: Path, writer: BrickPartsWriter) -> None:
    for number, brick in enumerate(BRICKS):
        writer.add_directories(brick, 1, payload(directory(BOB, 103, mtime_ns=10**18 + number)))
    counted = writer.add_rows("h1:/b", 1, payload(row(ALICE + b"/one", 1), row(b"loose", 2)))
    assert counted.rows == 2
    writer.add_rows("h2:/b", 2, payload(row(ALICE + b"/two", 3, EntryType.SOCKET)))
    assert writer.unite(APART, settled_before_ns=SETTLED_NS, limit=10) == BrickFindings()
    totals = writer.totals()
    assert (totals.rows, totals.directories, totals.size_bytes) == (6, 3, 20)
    rows = rows_in(tmp_path, writer)
    assert [(row["path"], row["tree"], row["brick"], row["type"]) for row in rows] == [
        (b"home", None, None, "directory"),
        (ALICE, ALICE, None, "directory"),
        (ALICE + b"/one", ALICE, "h1:/b", "file"),
        (ALICE + b"/two", ALICE, "h2:/b", "socket"),
        (BOB, BOB, None, "directory"),
        (b"loose", None, "h1:/b", "file"),
    ]
    assert rows[4]["mtime_ns"] == 10**18 + 1
    assert not list((tmp_path / "catalogs" / "c1").glob("directories-*"))


def test_a_path_on_two_bricks_is_found_and_can_be_replaced(tmp_path: Path, writer: BrickPartsWriter) -> None:
    both = ALICE + b"/moving"
    for number, brick in enumerate(BRICKS, 1):
        writer.add_rows(brick, 1, payload(row(both, 9), row(ALICE + b"/on-%d" % number, number)))
    found = PathFinding(count=1, paths=(both,))
    assert writer.unite(APART, settled_before_ns=SETTLED_NS, limit=10) == BrickFindings(
        doubled_paths=found, doubled_inodes=found
    )
    assert writer.lacks([both, b"nowhere"]) == [b"nowhere"]
    writer.replace({both: (ALICE, invented(both, size_bytes=77)), b"nowhere": None})
    assert writer.totals().size_bytes == 77 + 20
    assert [(row["path"], row["size"], row["brick"]) for row in rows_in(tmp_path, writer) if row["type"] == "file"] == [
        (both, 77, None),
        (ALICE + b"/on-1", 10, "h1:/b"),
        (ALICE + b"/on-2", 10, "h2:/b"),
    ]


TWO_NAMES = ([row(ALICE + b"/old", 1), row(ALICE + b"/alone", 3)], [row(ALICE + b"/new", 1)])
LONE: tuple[list[Row], list[Row]] = ([directory(ALICE + b"/%d" % number, 200 + number) for number in range(5)], [])


@pytest.mark.parametrize(
    ("rows", "finding", "count", "paths"),
    [
        (TWO_NAMES, "doubled_inodes", 2, (ALICE + b"/new", ALICE + b"/old")),
        (([row(ALICE, 9)], []), "doubled_paths", 1, (ALICE,)),
        (([directory(BOB, 103)], [directory(BOB, 103, mode=0o700)]), "differing", 1, (BOB,)),
        (([directory(BOB, 103)], [directory(BOB, 103, uid=0)]), "differing", 1, (BOB,)),
        (([directory(BOB, 103)], [directory(BOB, 103, digest=b"d" * 16)]), "differing", 1, (BOB,)),
        # The mount of several subvolumes shows the greatest time, and no less than 0.
        (([directory(BOB, 103, mtime_ns=-1)], [directory(BOB, 103, mtime_ns=-9)]), "differing", 1, (BOB,)),
        (([directory(BOB, 103)], [directory(BOB, 104)]), "conflicting", 1, (BOB,)),
        # All are counted, the list is cut.
        (LONE, "incomplete", 5, tuple(ALICE + b"/%d" % number for number in range(3))),
    ],
)
def test_facts_that_a_quiet_volume_lacks_are_found(
    writer: BrickPartsWriter, rows: tuple[list[Row], ...], finding: str, count: int, paths: tuple[bytes, ...]
) -> None:
    for brick, its_own in zip(BRICKS, rows, strict=True):
        for one in its_own:
            add = writer.add_directories if one[0] == list(EntryType).index(EntryType.DIRECTORY) else writer.add_rows
            add(brick, 1, payload(one))
    found = writer.unite(APART, settled_before_ns=SETTLED_NS, limit=3)
    assert found == replace(BrickFindings(), **{finding: PathFinding(count=count, paths=paths)})


def test_directories_with_one_gfid_are_apart_or_renamed_just_now(writer: BrickPartsWriter) -> None:
    old, new = ALICE + b"/old", ALICE + b"/new"
    for brick, path in zip(BRICKS, (old, new), strict=True):
        writer.add_directories(brick, 1, payload(directory(path, 300), directory(BOB, 301, mtime_ns=SETTLED_NS)))
    both = PathFinding(count=2, paths=(new, old))
    assert writer.unite(APART, settled_before_ns=SETTLED_NS, limit=9) == BrickFindings(twins=both, incomplete=both)


def test_directories_that_changed_during_the_scan_are_renamed_and_no_twins(writer: BrickPartsWriter) -> None:
    old, new = ALICE + b"/old", ALICE + b"/new"
    for brick, path in zip(BRICKS, (old, new), strict=True):
        writer.add_directories(brick, 1, payload(directory(path, 300, mtime_ns=SETTLED_NS)))
    both = PathFinding(count=2, paths=(new, old))
    assert writer.unite(APART, settled_before_ns=SETTLED_NS, limit=9) == BrickFindings(renamed=both, incomplete=both)


def listings(*rows: tuple[bytes, int, int]) -> memoryview:
    paths, entries, names = zip(*rows, strict=True)
    ends = list(accumulate((len(path) for path in paths), initial=0))
    pairs = [value for pair in zip(entries, names, strict=True) for value in pair]
    head = struct.pack("<2Q", len(rows), ends[-1])
    offsets = padded(struct.pack(f"<{len(ends)}i", *ends))
    return memoryview(head + struct.pack(f"<{len(pairs)}Q", *pairs) + offsets + padded(b"".join(paths)))


@pytest.mark.parametrize(
    ("second", "mtime_ns", "is_found"),
    [
        ([(ALICE, 3, 2**64 - 1)], 5, False),
        # The directory was read in two pieces there, and the sum of 64 bits begins anew.
        ([(ALICE, 1, 2**63), (ALICE, 2, 2**63 - 1)], 5, False),
        ([(ALICE, 2, 2**64 - 1)], 5, True),
        ([(ALICE, 3, 7)], 5, True),
        # It changed between the two walks, or may have.
        ([(ALICE, 3, 7)], SETTLED_NS, False),
    ],
)
def test_copies_of_a_directory_with_other_names(
    writer: BrickPartsWriter, second: list[tuple[bytes, int, int]], mtime_ns: int, is_found: bool
) -> None:
    for brick, rows in zip(BRICKS, ([(ALICE, 3, 2**64 - 1), (BOB, 0, 0)], [*second, (BOB, 0, 0)]), strict=True):
        writer.add_directories(brick, 1, payload(directory(ALICE, 102, mtime_ns=mtime_ns)))
        writer.add_listings(brick, listings(*rows))
    found = writer.unite([BRICKS], settled_before_ns=SETTLED_NS, limit=9).unlike
    assert found == (PathFinding(count=1, paths=(ALICE,)) if is_found else PathFinding())


def test_listings_of_other_sets_are_not_compared(writer: BrickPartsWriter) -> None:
    for brick, entries in zip(BRICKS, (1, 2), strict=True):
        writer.add_listings(brick, listings((ALICE, entries, 7)))
    assert writer.unite(APART, settled_before_ns=SETTLED_NS, limit=9) == BrickFindings()


def test_a_torn_block_is_refused_with_words(writer: BrickPartsWriter) -> None:
    with pytest.raises(MigratorError, match="cannot be parsed"):
        writer.add_rows("h1:/b", 1, payload(row(ALICE + b"/one", 1))[:-8])


ONE, TWO, EMPTY = "gl1:/b1", "gl1:/b2", "gl2:/b1"
USED = (b"home/alice", b"home/b\xff\nb")
LINKED = (b"home/alice/1", b"home/b\xff\nb/2")


def usage(tmp_path: Path) -> CatalogReads:
    return CatalogReads(closed_catalogs(tmp_path), scratch=Scratch(tmp_path / "tmp"))


def use(user: str | None, files: int, size_bytes: int, blocks: int) -> BrickUse:
    return BrickUse(user=user, files=files, size_bytes=size_bytes, allocated_bytes=blocks * 512)


def test_by_brick_and_user(tmp_path: Path) -> None:
    entries = [
        directory_entry(b"home"),
        directory_entry(b"home/alice"),
        invented(b"home/alice/a", size_bytes=10, blocks=8, brick=ONE),
        invented(b"home/alice/b", size_bytes=1000, blocks=16, brick=TWO),
        invented(b"home/alice/c", size_bytes=5, blocks=8, brick=ONE),
        symlink(b"home/alice/l", b"/somewhere/far"),
        directory_entry(b"home/b\xff\nb"),
        invented(b"home/b\xff\nb/x", size_bytes=7, blocks=8, brick=ONE),
        invented(b"lost", size_bytes=70, blocks=24, brick=ONE),
    ]
    write_catalog(tmp_path, entries, USED, bricks=(ONE, TWO, EMPTY))
    assert usage(tmp_path).uses("catalog-1") == {
        ONE: (use(None, 1, 70, 24), use("alice", 2, 15, 16), use("b\\xff\\x0ab", 1, 7, 8)),
        TWO: (use("alice", 1, 1000, 16),),
        EMPTY: (),
        # A symlink's size is none of the user's data; this one was asked of the mount.
        None: (use("alice", 1, 0, 0),),
    }


def test_bytes_of_a_hard_linked_file_count_once_on_its_brick(tmp_path: Path) -> None:
    ino = 2**63 + 5
    names = (b"home/alice/1", b"home/alice/2", b"home/b\xff\nb/3", b"outside")
    entries = [invented(name, size_bytes=100, blocks=8, ino=ino, nlink=4, brick=ONE) for name in names]
    write_catalog(tmp_path, entries, USED, bricks=(ONE,))
    found = usage(tmp_path).uses("catalog-1")[ONE]
    assert {one.user: one.files for one in found} == {"alice": 2, "b\\xff\\x0ab": 1, None: 1}
    assert sum(one.size_bytes for one in found) == 100
    assert sum(one.allocated_bytes for one in found) == 8 * 512
    assert found[0] == use("alice", 2, 100, 8)


def test_the_share_of_trees_on_bricks_to_drain(tmp_path: Path) -> None:
    ino = 2**63 + 5
    linked = [invented(name, size_bytes=100, blocks=8, ino=ino, nlink=2, brick=ONE) for name in LINKED]
    entries = [
        *linked,
        directory_entry(b"home/alice/d"),
        invented(b"home/alice/a", size_bytes=10, blocks=8, brick=TWO),
        invented(b"home/alice/b", size_bytes=1000, blocks=8, brick=EMPTY),
        invented(b"lost", size_bytes=7, blocks=8, brick=ONE),
    ]
    write_catalog(tmp_path, entries, USED, bricks=(ONE, TWO, EMPTY))
    contents = CatalogReads(closed_catalogs(tmp_path), scratch=Scratch(tmp_path / "tmp"))
    found = contents.content("catalog-1", (ONE, TWO))
    assert found is not None
    assert (found.files, found.size_bytes) == (4, 117)
    assert found.trees == (
        TreeOnBricks(tree=USED[0], files=2, size_bytes=110),
        TreeOnBricks(tree=USED[1], files=1, size_bytes=0),
    )
    assert contents.content("catalog-1", ("gl9:/b",)) is None


def test_several_trees_of_one_user_a_catalog_of_the_mount_and_an_empty_one(tmp_path: Path) -> None:
    trees = (b"home/alice", b"work/alice")
    entries = [invented(tree + b"/a", size_bytes=number, blocks=8, brick=ONE) for number, tree in enumerate(trees, 1)]
    write_catalog(tmp_path, entries, trees, bricks=(ONE,))
    assert usage(tmp_path).uses("catalog-1") == {ONE: (use("alice", 2, 3, 16),)}
    write_catalog(tmp_path, [invented(b"home/alice/a", size_bytes=3, blocks=8)], USED, name="mount")
    assert set(usage(tmp_path).uses("mount")) == {None}
    write_catalog(tmp_path, [], USED, name="empty", bricks=(ONE,))
    assert usage(tmp_path).uses("empty") == {ONE: ()}
    with pytest.raises(UsageError, match="no catalog"):
        usage(tmp_path).uses("catalog-9")
