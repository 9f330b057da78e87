"""Resuming a catalog that has no closing record."""

from collections.abc import Mapping
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from migrator.catalog import files
from migrator.catalog.database import ABOVE, connect, totals_of
from migrator.catalog.ports import OpenCatalog, Scratch
from migrator.catalog.writer import MAX_PART_ROWS, PartsWriter, parquet_bytes
from migrator.core.durable import sync, write_durably
from migrator.core.errors import Refused
from migrator.core.paths import parent


def resume(directory: Path, *, scratch: Scratch, max_part_rows: int = MAX_PART_ROWS) -> OpenCatalog:
    """Discard the rows of directories in flight, and find the directories that were found but are not done, the root
    first.

    May be killed and called again. Raises Refused if a committed part is missing or torn, or if the catalog is already
    closed. Raises OSError.
    """
    if (directory / files.CLOSING_RECORD).exists():
        raise Refused(
            f"catalog {directory.name!r} is closed and cannot be resumed",
            hint="run `migrator scan --restart` for a new catalog",
        )
    record, _ = files.read_record(directory / files.OPENING_RECORD)
    _remove_uncommitted(directory)
    done_files, part_files = files.numbered(directory, "done"), files.numbered(directory, "part")
    _check_parts(directory, done_files, part_files)
    with connect(scratch) as database:
        for number, partial in _under_way(database, done_files, part_files).items():
            _take_back(part_files[number], partial)
        frontier = _frontier(database, done_files, part_files)
        problems = sum(pq.read_metadata(file).num_rows for file in files.numbered(directory, "problems").values())
        totals = totals_of(database, list(part_files.values()), problems=problems)
    parts = [file.name for file in part_files.values()]
    writer = PartsWriter(
        directory, parts=parts, next_number=max(done_files, default=-1) + 1, max_part_rows=max_part_rows
    )
    return OpenCatalog(record=record, writer=writer, frontier=frontier, totals=totals)


def _remove_uncommitted(directory: Path) -> None:
    """Remove temporary files, and parts without a done-file, which were never committed."""
    committed = files.numbered(directory, "done")
    for file in directory.glob("*.tmp"):
        file.unlink()
    for prefix in ("part", "problems"):
        for number, file in files.numbered(directory, prefix).items():
            if number not in committed:
                file.unlink()
    sync(directory)


def _check_parts(directory: Path, done_files: Mapping[int, Path], part_files: Mapping[int, Path]) -> None:
    """Check that every committed part exists and is complete. Raises Refused."""
    for number, done_file in done_files.items():
        damaged = done_file.name
        try:
            rows = int((pq.read_metadata(done_file).metadata or {})[files.DONE_ROWS_KEY])
            damaged = files.part_name(number)
            intact = not rows or (number in part_files and pq.read_metadata(part_files[number]).num_rows <= rows)
        except (pa.ArrowInvalid, KeyError, ValueError):
            intact = False
        if not intact:
            raise Refused(
                f"catalog {directory.name!r} is damaged: {damaged} is missing or torn",
                cause="a file of the catalog was removed, cut off or changed",
                hint="run `migrator scan --restart` to begin a new catalog",
            )


def _under_way(
    database: duckdb.DuckDBPyConnection, done_files: Mapping[int, Path], part_files: Mapping[int, Path]
) -> dict[int, set[bytes]]:
    """By part, the directories with rows in it that were never completed."""
    found: dict[int, set[bytes]] = {}
    if not part_files:
        return found
    database.execute(ABOVE)
    rows = database.execute(
        """
        SELECT filename, path FROM (
            SELECT DISTINCT filename, above(path) AS path FROM read_parquet($parts, filename = true)
        ) AS seen
        WHERE NOT EXISTS (SELECT 1 FROM read_parquet($done) AS done WHERE done.complete AND done.path = seen.path)
        """,
        {"parts": list(map(str, part_files.values())), "done": list(map(str, done_files.values()))},
    ).fetchall()
    numbers = {files.part_name(number): number for number in part_files}
    for file, path in rows:
        found.setdefault(numbers[Path(file).name], set()).add(bytes(path))
    return found


def _take_back(part_file: Path, directories: set[bytes]) -> None:
    """Remove the rows of these directories from a part; the directories are read again completely."""
    table = pq.read_table(part_file, schema=files.ROW_SCHEMA)
    kept = [parent(path or b"") not in directories for path in table.column("path").to_pylist()]
    if not all(kept):
        write_durably(part_file, parquet_bytes(table.filter(pa.array(kept, type=pa.bool_()))))


def _frontier(
    database: duckdb.DuckDBPyConnection, done_files: Mapping[int, Path], part_files: Mapping[int, Path]
) -> tuple[bytes, ...]:
    if not done_files:
        return (b"",)
    done = [str(file) for file in done_files.values()]
    root_done = database.execute(
        "SELECT count(*) FROM read_parquet($done) WHERE complete AND octet_length(path) = 0", {"done": done}
    ).fetchall()[0][0]
    if not part_files:
        return () if root_done else (b"",)
    rows = database.execute(
        """
        SELECT DISTINCT path FROM read_parquet($parts) AS seen WHERE type = 'directory'
        AND NOT EXISTS (SELECT 1 FROM read_parquet($done) AS done WHERE done.complete AND done.path = seen.path)
        """,
        {"parts": [str(file) for file in part_files.values()], "done": done},
    ).fetchall()
    left = tuple(bytes(path) for (path,) in rows)
    return left if root_done else (b"", *left)
