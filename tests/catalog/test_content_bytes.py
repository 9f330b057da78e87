"""The bytes to copy of a file: one definition, in SQL and for entries."""

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.catalog.database import content_bytes_sql
from migrator.core.entry import EntryType
from migrator.core.units import GIB, KIB, MIB, TIB
from tests.support.catalogs import invented

F, D = EntryType.FILE, EntryType.DIRECTORY


@pytest.mark.parametrize(
    ("kind", "size_bytes", "blocks", "expected"),
    [
        (F, TIB, 8, 4 * KIB),
        (F, TIB, 0, 512),
        (F, 10, 0, 10),
        (F, MIB - 1, 0, MIB - 1),
        (F, 0, 0, 0),
        # Allocated beyond its end, and compressed by the source to a third.
        (F, 10, 8, 10),
        (F, 3 * GIB, GIB // 512, 3 * GIB),
        (F, 5 * GIB, GIB // 512, GIB),
        (D, 4096, 8, 0),
        (EntryType.SYMLINK, 20, 0, 0),
    ],
)
def test_holes_do_not_count(kind: EntryType, size_bytes: int, blocks: int, expected: int) -> None:
    assert invented(b"t/a", kind, size_bytes=size_bytes, blocks=blocks).content_bytes == expected


_BYTES = st.integers(0, 2**50) | st.integers(MIB - 2, 5 * MIB)


@given(
    st.lists(st.tuples(st.sampled_from([F, D]), _BYTES, _BYTES.map(lambda size: size // 512)), min_size=1, max_size=20)
)
def test_sql_and_entries_agree(rows: list[tuple[EntryType, int, int]]) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE n (type VARCHAR, size BIGINT, blocks BIGINT)")
        connection.executemany("INSERT INTO n VALUES (?, ?, ?)", [(kind.value, *facts) for kind, *facts in rows])
        for row in ("", "n."):
            found = connection.execute(f"SELECT {content_bytes_sql(row)} FROM n").fetchall()
            assert [size for (size,) in found] == [
                invented(b"t/a", kind, size_bytes=size, blocks=blocks).content_bytes for kind, size, blocks in rows
            ]
