"""Opening DuckDB so that every query is out of core and touches nothing but the given files."""

import os
from collections.abc import Sequence
from pathlib import Path

import duckdb

from migrator.catalog.ports import CatalogTotals, Scratch
from migrator.core.units import MIB

_LEAST_BYTES = 512 * MIB
_BYTES_PER_THREAD = 128 * MIB


def connect(scratch: Scratch, *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory that spills to `scratch` (made when missing).

    Its memory is for DuckDB's own buffers: the process needs up to 500 MB more. `threads` None takes every core that has memory:
    DuckDB's guide to tuning asks for 125 MB each at least.
    Rows come in any order unless the query sorts them. Nothing is loaded from the network. Close the connection.
    """
    memory_bytes = max(scratch.memory_bytes or _quarter_of_this_machine_bytes(), _LEAST_BYTES)
    scratch.directory.mkdir(parents=True, exist_ok=True)
    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_bytes // MIB}MiB",
        "preserve_insertion_order": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "temp_directory": str(scratch.directory),
        "threads": threads or max(min(os.cpu_count() or 1, memory_bytes // _BYTES_PER_THREAD), 1),
    }
    return duckdb.connect(":memory:", config=settings)


def _quarter_of_this_machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


_TOTALS = """
    SELECT count(*), count(*) FILTER (type = 'directory'), coalesce(sum(size) FILTER (type = 'file'), 0)::HUGEINT
    FROM read_parquet($files)
"""


def totals_of(connection: duckdb.DuckDBPyConnection, files: Sequence[Path], *, problems: int = 0) -> CatalogTotals:
    """Rows, directories and bytes of files in the parts of a catalog."""
    found = connection.execute(_TOTALS, {"files": list(map(str, files))}).fetchone() if files else None
    rows, directories, size_bytes = map(int, found or (0, 0, 0))
    return CatalogTotals(rows=rows, directories=directories, size_bytes=size_bytes, problems=problems)
