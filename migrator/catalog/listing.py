"""The paths of a closed catalog by directory, for a comparison that reads directories instead of the source."""

from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa

from migrator.catalog.database import connect
from migrator.catalog.files import ROW_SCHEMA, ClosedCatalog
from migrator.catalog.ports import Scratch
from migrator.catalog.sorted_rows import SortedRows, write_sorted
from migrator.core.entry import Entry, EntryType

ABOVE = """CREATE TEMP MACRO above(path) AS
    unhex(regexp_extract(hex(path), '^((?:..)*)2F(?:[013-9A-F].|2[0-9A-E])*$', 1))"""
"""The directory of a path. DuckDB has few functions on BLOB; on `hex` the expression is exact."""

_COLUMNS = (
    *("path", "type", "size", "blocks", "uid", "gid", "mode", "mtime_ns", "atime_ns", "ctime_ns", "dev", "rdev", "ino"),
    *("nlink", "symlink_target", "xattr_digest"),
)
_SCHEMA = pa.schema([pa.field("directory", pa.binary()), *(ROW_SCHEMA.field(name) for name in _COLUMNS)])
_SELECT = f"SELECT above(path) AS directory, {', '.join(_COLUMNS)} FROM read_parquet($rows) WHERE tree IN (SELECT unnest($trees))"  # noqa: S608
_FIELDS = {"size": "size_bytes"}


class DirectoryListing:
    """The entries of the directories in some trees. Thread-safe; constant memory."""

    def __init__(self, catalog: ClosedCatalog, file: Path, *, trees: Collection[bytes], scratch: Scratch) -> None:
        """Writes the file, which the caller removes. Raises OSError. Blocking."""
        with connect(scratch, rows=catalog.record.rows) as database:
            database.execute(ABOVE)
            parameters = {"rows": [str(part) for part in catalog.part_files], "trees": sorted(trees)}
            write_sorted(database, _SELECT, parameters, file, _SCHEMA, order="directory, path", key="directory")
        self._rows = SortedRows(file, key="directory", columns=_COLUMNS)

    def directory(self, path: bytes) -> Iterator[Entry]:
        """Its entries, with the digests of their attributes. Raises OSError."""
        names = [_FIELDS.get(name, name) for name in _COLUMNS]
        for _, row in self._rows.rows([path]):
            fields = dict(zip(names, row, strict=True))
            fields["type"] = EntryType(fields["type"])
            yield Entry(**fields)

    def close(self) -> None:
        """Release the file. May be called again."""
        self._rows.close()
