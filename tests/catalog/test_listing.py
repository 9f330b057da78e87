"""A catalog read by directory is what the catalog holds."""

from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator.catalog.files import ClosedCatalog, rows_of
from migrator.catalog.listing import DirectoryListing
from migrator.catalog.ports import Scratch
from migrator.core.entry import Entry, EntryType, xattr_digest
from migrator.core.paths import parent
from tests.support.catalogs import whole_catalog
from tests.support.entries import entry

TREE = b"home/alice"
NAMES = st.lists(
    st.binary(min_size=1, max_size=3).filter(lambda name: not set(name) & {0, ord("/")}), min_size=1, max_size=3
)


@pytest.mark.parametrize("group_rows", [1, 3, 20_480])
@given(paths=st.sets(NAMES.map(lambda names: TREE + b"/" + b"/".join(names)), max_size=40), with_xattrs=st.booleans())
@settings(max_examples=30)
def test_every_directory_has_its_entries_and_no_others(
    tmp_path_factory: pytest.TempPathFactory, group_rows: int, paths: set[bytes], with_xattrs: bool
) -> None:
    directory = tmp_path_factory.mktemp("listing")
    xattrs = {b"user.a": b"1"} if with_xattrs else {}
    entries = [entry(path, type=EntryType.FILE, xattrs=xattrs) for path in sorted(paths)]
    others = [entry(b"home/bob/file", type=EntryType.FILE)]
    part = directory / "part-000000.parquet"
    pq.write_table(pa.Table.from_batches([rows_of(TREE, entries), rows_of(b"home/bob", others)]), part)
    catalog = ClosedCatalog(directory=directory, record=whole_catalog(), part_files=(part,), problem_files=())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("migrator.catalog.sorted_rows.ROW_GROUP_ROWS", group_rows)
        listing = DirectoryListing(catalog, directory / "l", trees=[TREE], scratch=Scratch(directory / "tmp"))
    expected: dict[bytes, list[Entry]] = defaultdict(list)
    for one in entries:
        expected[parent(one.path)].append(one)
    digest = xattr_digest(xattrs)
    for above in {*expected, TREE, b"home/bob", b"home", b"", *paths}:
        found = sorted(listing.directory(above), key=lambda one: one.path)
        assert [(one.path, one.size_bytes, one.mtime_ns, one.mode) for one in found] == [
            (one.path, one.size_bytes, one.mtime_ns, one.mode) for one in expected.get(above, [])
        ]
        assert {(one.xattr_digest, *one.xattrs) for one in found} <= {(digest,)}
    listing.close()
