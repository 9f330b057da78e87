"""A catalog of what walks of bricks send: one row a path, and what cannot be in a quiet volume is found."""

import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from migrator.catalog.brick_parts import BrickPartsWriter
from migrator.catalog.files import open_closed
from migrator.catalog.model import BrickWalk, CatalogRecord, ScanProblem, ScanTimes
from migrator.catalog.writer import CatalogDirectories
from migrator.core.entry import EntryType, UserTree
from migrator.core.errors import MigratorError
from tests.support.catalogs import invented

ALICE = b"home/alice"
TREES = (ALICE, b"home/bob")
_KINDS = list(EntryType)


def row(
    path: bytes, *, gfid: int, mode: int = 0o644, uid: int = 1000, mtime_ns: int = 5, **changes: Any
) -> dict[str, Any]:
    tree = next((number for number, tree in enumerate(TREES) if path == tree or path.startswith(tree + b"/")), None)
    facts = {"path": path, "gfid": gfid.to_bytes(16, "big"), "mode": mode, "uid": uid, "mtime_ns": mtime_ns}
    return {"kind": EntryType.FILE, "size": 10, "tree": tree, "digest": None, **facts, **changes}


def directory(path: bytes, *, gfid: int, **changes: Any) -> dict[str, Any]:
    return row(path, gfid=gfid, mode=changes.pop("mode", 0o755), kind=EntryType.DIRECTORY, size=4096, **changes)


def payload(*rows: dict[str, Any]) -> memoryview:
    """A block as the walkers write it."""
    pools: list[list[bytes | None]] = [
        [entry["path"] for entry in rows],
        [entry["gfid"] for entry in rows],
        [None] * len(rows),
        [entry["digest"] for entry in rows],
    ]
    contents = [b"".join(value or b"" for value in pool) for pool in pools]
    pieces = [struct.pack("<5Q", len(rows), *map(len, contents))]
    inos = [int.from_bytes(entry["gfid"][8:], "big") for entry in rows]
    for values in (
        [entry["size"] for entry in rows],
        [8] * len(rows),
        [entry["mtime_ns"] for entry in rows],
        [0] * len(rows),
        [entry["mtime_ns"] for entry in rows],
        [0] * len(rows),
        inos,
    ):
        pieces.append(struct.pack(f"<{len(rows)}Q", *values))
    trees = [0 if entry["tree"] is None else entry["tree"] for entry in rows]
    for narrow in (
        [entry["uid"] for entry in rows],
        [100] * len(rows),
        [entry["mode"] for entry in rows],
        [1] * len(rows),
        *[[0] * len(rows)] * 3,
        trees,
    ):
        pieces.append(struct.pack(f"<{len(rows)}I", *narrow))
    pieces.append(bytes(_KINDS.index(entry["kind"]) for entry in rows))
    for flags in (
        [entry["tree"] is not None for entry in rows],
        [True] * len(rows),
        [False] * len(rows),
        [False] * len(rows),
        [entry["digest"] is not None for entry in rows],
    ):
        bits = sum(1 << number for number, flag in enumerate(flags) if flag)
        pieces.append(bits.to_bytes((len(rows) + 7) // 8, "little"))
    for pool, content in zip(pools, contents, strict=True):
        offsets = [0]
        for value in pool:
            offsets.append(offsets[-1] + len(value or b""))
        pieces += [struct.pack(f"<{len(offsets)}i", *offsets), content]
    return memoryview(b"".join(piece + bytes(-len(piece) % 8) for piece in pieces))


RECORD = CatalogRecord(
    name="c1",
    scan_id=1,
    site_id="s",
    via="bricks",
    trees=tuple(UserTree(path=tree, user=tree.decode()) for tree in TREES),
    parts=(),
    started_at_s=1.0,
    finished_at_s=None,
    whole=False,
    reasons=(),
    rows=0,
    files=0,
    directories=0,
    size_bytes=0,
    problems=0,
)
TOP = (directory(b"home", gfid=101), directory(ALICE, gfid=102))


@pytest.fixture
def catalogs(tmp_path: Path) -> CatalogDirectories:
    return CatalogDirectories(tmp_path / "catalogs", temp_dir=tmp_path / "temp")


@pytest.fixture
def writer(catalogs: CatalogDirectories) -> Iterator[BrickPartsWriter]:
    made = catalogs.create_from_bricks(RECORD, bricks=2)
    for brick in ("h1:/b", "h2:/b"):
        made.add_directories(brick, 1, payload(*TOP))
    yield made
    made.close(RECORD)


def rows_in(tmp_path: Path, writer: BrickPartsWriter) -> list[dict[str, Any]]:
    writer.close(RECORD)
    files = open_closed(tmp_path / "catalogs" / "c1").part_files
    return sorted((row for file in files for row in pq.read_table(file).to_pylist()), key=lambda row: row["path"])


def test_files_of_all_bricks_and_directories_once(tmp_path: Path, writer: BrickPartsWriter) -> None:
    counted = writer.add_rows("h1:/b", 1, payload(row(ALICE + b"/one", gfid=1), row(b"loose", gfid=2)))
    assert (counted.rows, counted.size_bytes) == (2, 20)
    writer.add_rows("h2:/b", 2, payload(row(ALICE + b"/two", gfid=3, kind=EntryType.SOCKET)))
    findings = writer.unite(bricks=2, limit=10)
    assert {findings.doubled_paths.count, findings.doubled_inodes.count, findings.incomplete.count} == {0}
    totals = writer.totals()
    assert (totals.rows, totals.directories, totals.size_bytes) == (5, 2, 20)
    rows = rows_in(tmp_path, writer)
    assert [(row["path"], row["brick"], row["type"]) for row in rows] == [
        (b"home", None, "directory"),
        (ALICE, None, "directory"),
        (ALICE + b"/one", "h1:/b", "file"),
        (ALICE + b"/two", "h2:/b", "socket"),
        (b"loose", "h1:/b", "file"),
    ]
    assert not list((tmp_path / "catalogs" / "c1").glob("directories-*"))


def test_the_greatest_time_of_a_directory_counts(tmp_path: Path, writer: BrickPartsWriter) -> None:
    for number, brick in enumerate(("h1:/b", "h2:/b")):
        writer.add_directories(brick, 1, payload(directory(b"home/bob", gfid=103, mtime_ns=10**18 + number)))
    writer.unite(bricks=2, limit=10)
    (bob,) = [row for row in rows_in(tmp_path, writer) if row["path"] == b"home/bob"]
    assert bob["mtime_ns"] == 10**18 + 1
    assert bob["tree"] == b"home/bob"


def test_a_path_on_two_bricks_is_found_and_can_be_replaced(tmp_path: Path, writer: BrickPartsWriter) -> None:
    both = ALICE + b"/moving"
    for brick in ("h1:/b", "h2:/b"):
        writer.add_rows(
            brick, 1, payload(row(both, gfid=1), row(ALICE + b"/on-" + brick[:2].encode(), gfid=ord(brick[1])))
        )
    findings = writer.unite(bricks=2, limit=10)
    assert (findings.doubled_paths.count, findings.doubled_paths.paths) == (1, (both,))
    assert findings.doubled_inodes.paths == (both,)
    assert writer.lacks([both, b"nowhere"]) == [b"nowhere"]
    writer.replace({both: (ALICE, invented(both, size_bytes=77)), b"nowhere": None})
    assert writer.totals().size_bytes == 77 + 20
    assert [(row["path"], row["size"], row["brick"]) for row in rows_in(tmp_path, writer) if row["type"] == "file"] == [
        (both, 77, None),
        (ALICE + b"/on-h1", 10, "h1:/b"),
        (ALICE + b"/on-h2", 10, "h2:/b"),
    ]


def test_a_file_that_lies_on_two_bricks_under_two_names_is_found(writer: BrickPartsWriter) -> None:
    writer.add_rows("h1:/b", 1, payload(row(ALICE + b"/old", gfid=1), row(ALICE + b"/alone", gfid=3)))
    writer.add_rows("h2:/b", 1, payload(row(ALICE + b"/new", gfid=1)))
    findings = writer.unite(bricks=2, limit=10)
    assert findings.doubled_paths.count == 0
    assert findings.doubled_inodes.paths == (ALICE + b"/new", ALICE + b"/old")


def test_a_path_that_is_a_directory_on_one_brick_and_a_file_on_another_is_found(writer: BrickPartsWriter) -> None:
    writer.add_rows("h1:/b", 1, payload(row(ALICE, gfid=9)))
    assert writer.unite(bricks=2, limit=10).doubled_paths.paths == (ALICE,)


@pytest.mark.parametrize(
    "other", [{"mode": 0o700}, {"uid": 0}, {"digest": b"d" * 16}], ids=["mode", "owner", "attributes"]
)
def test_copies_of_a_directory_that_differ_are_found(writer: BrickPartsWriter, other: dict[str, Any]) -> None:
    writer.add_directories("h1:/b", 1, payload(directory(b"home/bob", gfid=103)))
    writer.add_directories("h2:/b", 1, payload(directory(b"home/bob", gfid=103, **other)))
    findings = writer.unite(bricks=2, limit=10)
    assert findings.differing.paths == (b"home/bob",)
    assert findings.conflicting.count == findings.incomplete.count == 0


def test_two_directories_of_one_path_are_a_conflict(writer: BrickPartsWriter) -> None:
    writer.add_directories("h1:/b", 1, payload(directory(b"home/bob", gfid=103)))
    writer.add_directories("h2:/b", 1, payload(directory(b"home/bob", gfid=104)))
    assert writer.unite(bricks=2, limit=10).conflicting.paths == (b"home/bob",)


def test_directories_that_a_brick_lacks_are_counted_and_the_list_is_cut(writer: BrickPartsWriter) -> None:
    lone = [directory(ALICE + b"/%d" % number, gfid=200 + number) for number in range(5)]
    writer.add_directories("h1:/b", 1, payload(*lone))
    incomplete = writer.unite(bricks=2, limit=3).incomplete
    assert incomplete.count == 5
    assert incomplete.paths == tuple(ALICE + b"/%d" % number for number in range(3))


def test_a_torn_block_is_refused_with_words(writer: BrickPartsWriter) -> None:
    whole = payload(row(ALICE + b"/one", gfid=1))
    with pytest.raises(MigratorError, match="cannot be understood"):
        writer.add_rows("h1:/b", 1, whole[:-8])


def test_an_unclosed_catalog_can_be_thrown_away_and_a_closed_one_cannot(
    catalogs: CatalogDirectories, tmp_path: Path
) -> None:
    abandoned = catalogs.create_from_bricks(RECORD, bricks=1)
    abandoned.add_rows("h1:/b", 1, payload(row(ALICE + b"/one", gfid=1)))
    catalogs.discard("c1")
    catalogs.discard("c1")
    assert not (tmp_path / "catalogs" / "c1").exists()
    closing = replace(
        RECORD,
        way_reasons=("why",),
        findings=("what",),
        bricks=(BrickWalk(brick="h1:/b", host="h1", rows=1, directories=2, elapsed_s=0.5, whole=True),),
        times=ScanTimes(checks_s=1.0, walk_s=2.0, finish_s=3.0),
    )
    kept = catalogs.create_from_bricks(RECORD, bricks=1)
    kept.note([ScanProblem(path=b"p", operation="open", errno=13, reason="Permission denied")])
    kept.unite(bricks=1, limit=1)
    kept.close(closing)
    catalogs.discard("c1")
    closed = catalogs.closed("c1")
    assert replace(closed.record, parts=()) == closing
    assert [pq.read_table(file).num_rows for file in closed.problem_files] == [1]
