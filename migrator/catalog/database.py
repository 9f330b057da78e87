"""Opening DuckDB so that every query is out of core and touches nothing but the given files."""

from collections.abc import Sequence
from pathlib import Path

import duckdb

from migrator.catalog.ports import CatalogTotals
from migrator.core.units import GIB, MIB

DEFAULT_MEMORY_LIMIT_BYTES = GIB


def connect(
    memory_limit_bytes: int = DEFAULT_MEMORY_LIMIT_BYTES,
    temp_dir: Path | None = None,
    *,
    threads: int | None = None,
) -> duckdb.DuckDBPyConnection:
    """A database in memory that spills into `temp_dir` (made when missing; None: never spills) beyond the limit.

    The limit is for DuckDB's own buffers: the process needs some 200 MB more. `threads` None takes every core.
    Rows come in any order unless the query sorts them. Nothing is loaded from the network. Close the connection.
    """
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{max(memory_limit_bytes // MIB, 1)}MiB",
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    if temp_dir is not None:
        temp_dir.mkdir(parents=True, exist_ok=True)
        settings["temp_directory"] = str(temp_dir)
    else:
        settings["temp_directory"] = ""
    if threads is not None:
        settings["threads"] = threads
    return duckdb.connect(":memory:", config=settings)


_TOTALS = """
    SELECT count(*), count(*) FILTER (type = 'directory'), coalesce(sum(size) FILTER (type = 'file'), 0)::HUGEINT
    FROM read_parquet($files)
"""


def totals_of(connection: duckdb.DuckDBPyConnection, files: Sequence[Path], *, problems: int = 0) -> CatalogTotals:
    """Rows, directories and bytes of files in the parts of a catalog."""
    found = connection.execute(_TOTALS, {"files": list(map(str, files))}).fetchone() if files else None
    rows, directories, size_bytes = map(int, found or (0, 0, 0))
    return CatalogTotals(rows=rows, directories=directories, size_bytes=size_bytes, problems=problems)
