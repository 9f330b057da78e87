"""Rows and frames of a walk, queries out of core, and samples of files."""

import errno
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.catalog import database
from migrator.catalog.database import connect, directory_of, in_parts, require_room
from migrator.catalog.files import ROW_SCHEMA
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import CatalogReads
from migrator.catalog.walk_rows import decode_rows
from migrator.core.entry import Entry
from migrator.core.errors import MigratorError, Refused, UsageError
from migrator.core.units import KIB, MIB
from tests.catalog.walker_blocks import block
from tests.support.catalogs import closed_catalogs, directory, invented, symlink, write_catalog

TREES = (b"home/a", b"home/b\n")

_signed = st.integers(-(2**63), 2**63 - 1)
_unsigned = st.integers(0, 2**64 - 1)
_small = st.integers(0, 2**31 - 1)
_owner = st.integers(0, 2**32 - 1)
_row = st.tuples(
    st.integers(0, 6),
    *[_signed] * 5,
    _unsigned,
    _unsigned,
    _owner,
    _owner,
    st.integers(0, 0o7777),
    st.integers(1, 2**32 - 1),
    _small,
    st.integers(0, 63),
    _small,
    st.integers(-1, len(TREES) - 1),
    st.binary(min_size=1, max_size=300),
    st.binary(min_size=16, max_size=16),
    st.none() | st.binary(min_size=1, max_size=300),
    st.none() | st.binary(min_size=16, max_size=16),
)
_rows = st.lists(_row, min_size=1, max_size=40)


def decoded(payload: bytes) -> pa.RecordBatch:
    return decode_rows(memoryview(payload), trees=TREES, brick="host:/brick", dev=2**64 - 1)


@given(_rows)
def test_rows_are_read_as_they_were_written(rows: list[tuple[Any, ...]]) -> None:
    batch = decoded(block(rows))
    batch.validate(full=True)
    assert batch.schema == ROW_SCHEMA
    names = ("file", "directory", "symlink", "fifo", "socket", "block", "character")
    for given_row, row in zip(rows, batch.to_pylist(), strict=True):
        kind, *wide_and_narrow = given_row[:16]
        tree, nlink, ino = given_row[15], given_row[11], given_row[7]
        assert row["type"] == names[kind]
        assert row["tree"] == (None if tree < 0 else TREES[tree])
        assert (row["brick"], row["dev"]) == ("host:/brick", 2**64 - 1)
        assert row["link_group"] == (ino if nlink > 1 and kind != 1 else None)
        written = ["size", "blocks", "mtime_ns", "atime_ns", "ctime_ns", "rdev", "ino", "uid", "gid", "mode", "nlink"]
        written += ["xattr_largest_bytes", "xattr_kinds", "acl_entries"]
        assert [row[name] for name in written] == wide_and_narrow[:14]
        assert tuple(row[name] for name in ("path", "gfid", "symlink_target", "xattr_digest")) == given_row[16:]


@given(_rows, st.data())
def test_changed_bytes_never_crash(rows: list[tuple[Any, ...]], data: st.DataObject) -> None:
    payload = bytearray(block(rows))
    for _ in range(data.draw(st.integers(1, 8))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.just(len(payload)) | st.integers(0, len(payload)))
    try:
        batch = decoded(bytes(payload[:cut]))
    except MigratorError:
        pass
    else:
        batch.validate(full=True)
        batch.to_pylist()


@pytest.mark.parametrize("field", range(5))
@pytest.mark.parametrize("claimed", [2**31, 2**62, 2**64 - 1])
def test_a_head_that_claims_too_much_is_refused(field: int, claimed: int) -> None:
    payload = bytearray(block([_sample()]))
    struct.pack_into("<Q", payload, 8 * field, claimed)
    with pytest.raises(MigratorError, match="shorter than its columns"):
        decoded(bytes(payload))


def _sample() -> tuple[Any, ...]:
    return (0, *[1] * 7, 0, 0, 0o644, 1, 0, 0, 0, 0, b"path", bytes(16), None, None)


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize("count", [0, 1000])
def test_each_part_comes_after_the_one_before(tmp_path: Path, parts: int, count: int) -> None:
    """A part without rows is passed over, and nothing is left of the parts."""
    with connect(Scratch(tmp_path)) as connection:
        query, parameters = "SELECT i * $factor AS i FROM range($count) AS numbers(i)", {"factor": 7919, "count": count}
        cut = in_parts(connection, query, parameters, part=f"i % {parts} // 2 * 2", parts=parts)
        found = [(number, i) for number, part in enumerate(cut) for (i,) in part.order("i DESC").fetchall()]
        assert list(directory_of(connection).iterdir()) == []
    numbers = [i * 7919 for i in range(count)]
    assert found == sorted(((i % parts // 2, i) for i in numbers), key=lambda one: (one[0], -one[1]))


def test_a_query_without_disk_space_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"1,000,000,000,000 paths may need .* more room"):
        require_room(Scratch(tmp_path), 10**12)


def test_leftovers_of_killed_queries_are_removed_and_files_in_use_kept(tmp_path: Path) -> None:
    script = (
        "import pathlib, sys; from migrator.catalog.database import connect, directory_of;"
        "from migrator.catalog.ports import Scratch; database = connect(Scratch(pathlib.Path(sys.argv[1])));"
        "print(directory_of(database), flush=True); sys.stdin.read()"
    )
    argv, pipe = (sys.executable, "-c", script, str(tmp_path)), subprocess.PIPE
    with connect(Scratch(tmp_path)) as mine, subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as other:
        assert other.stdout is not None
        left, kept = Path(other.stdout.readline().strip()), directory_of(mine)
        (left / "spilled").write_bytes(b"x")
        second = connect(Scratch(tmp_path))
        used = directory_of(second)
        assert {*tmp_path.iterdir()} == {kept, left, used}
        other.kill()
        other.wait()
        third = connect(Scratch(tmp_path))
        assert {*tmp_path.iterdir()} == {kept, used, directory_of(third)}
        del second, third
        assert {*tmp_path.iterdir()} == {kept}


def test_a_query_in_memory_needs_no_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(database, "mkdtemp", full)
    with connect(Scratch(tmp_path)) as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        assert directory_of(connection) == tmp_path


def test_queries_that_spill_at_the_same_time_keep_their_rows(tmp_path: Path) -> None:
    """DuckDB before 2.0 gives the files of all of them the same names."""
    given = "SELECT i, repeat(md5(({} + i)::VARCHAR), 4) AS words FROM range(400_000) AS numbers(i)"
    connections = [connect(Scratch(tmp_path)) for _ in range(2)]
    for number, connection in enumerate(connections):
        connection.execute("SET memory_limit = '40MiB'")
        connection.execute(f"CREATE TEMP TABLE kept AS {given.format(number)}")
        assert any(directory_of(connection).iterdir())
    one, other = connections
    other.close()
    assert one.execute("SELECT count(*) FROM kept WHERE words <> repeat(md5(i::VARCHAR), 4)").fetchall() == [(0,)]
    one.close()


TREE = b"home/\xff ann"
CLASSES = (1, 4 * KIB, 64 * KIB, MIB, 16 * MIB, 17 * MIB)


def entries() -> list[Entry]:
    found = [directory(TREE), symlink(TREE + b"/away", b"/etc"), invented(TREE + b"/empty")]
    for number in range(300):
        found.append(invented(TREE + b"/small %d\n" % number, size_bytes=10 + number))
    for size_bytes in CLASSES[2:]:
        found.append(invented(TREE + b"/of %d" % size_bytes, size_bytes=size_bytes))
    return found


@pytest.fixture
def samples(tmp_path: Path) -> CatalogReads:
    others = [directory(b"home/ben"), invented(b"home/ben/x", size_bytes=9)]
    write_catalog(tmp_path / "catalogs", [*entries(), *others], [TREE, b"home/ben"], name="one")
    return CatalogReads(closed_catalogs(tmp_path / "catalogs"), scratch=Scratch(tmp_path / "temp"))


def test_every_class_of_size_is_there_at_once_and_the_same_seed_draws_the_same(samples: CatalogReads) -> None:
    drawn = list(samples.draw("one", TREE, count=50, seed=7))
    assert len(drawn) == len(set(drawn)) == 50
    assert {b"of %d" % size for size in CLASSES[2:]} <= set(drawn[:5]), "one of each class before any class comes again"
    assert all(name.startswith((b"small ", b"of ")) for name in drawn), "no empty files, links, or others' files"
    assert drawn == list(samples.draw("one", TREE, count=50, seed=7))
    assert drawn != list(samples.draw("one", TREE, count=50, seed=8))


def test_a_tree_without_files_and_a_catalog_that_is_not_there(samples: CatalogReads) -> None:
    assert list(samples.draw("one", b"home/nobody", count=50, seed=7)) == []
    with pytest.raises(UsageError):
        samples.draw("two", TREE, count=50, seed=7)
