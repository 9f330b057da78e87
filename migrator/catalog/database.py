"""Opening DuckDB: every query is out of core and accesses only the given files."""

import fcntl
import os
import shutil
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import duckdb

from migrator.catalog.ports import CatalogTotals, Scratch
from migrator.core.entry import BLOCK_BYTES, LEAST_HOLES, SPARSE_FROM_BYTES
from migrator.core.errors import Refused
from migrator.core.units import MIB, format_size
from migrator.fs.beneath import held

# Directories that are locked while their process lives


_OWN = "queries-"


def locked(directory: Path, flags: int = 0) -> int:
    """A descriptor of a directory that is locked while its process lives. Raises OSError (BlockingIOError)."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | flags)
    except BaseException:
        os.close(fd)
        raise
    return fd


@contextmanager
def own_directory(place: Path) -> Iterator[Path]:
    """A new directory in `place` (made when missing) for the length of the block, after removing what killed processes have
    left there: up to hundreds of bytes per path. Raises OSError.
    """
    place.mkdir(parents=True, exist_ok=True)
    with ExitStack() as left, ExitStack() as stack:
        # Held until the own one is locked: no other call takes it for that of a killed one.
        with held(locked(place)):
            for one in place.glob(f"{_OWN}*"):
                with suppress(OSError):
                    left.enter_context(held(locked(one, fcntl.LOCK_NB)))
                    left.callback(shutil.rmtree, one, ignore_errors=True)
            own = Path(mkdtemp(prefix=_OWN, dir=place))
            stack.enter_context(held(locked(own)))
        left.close()  # the removal takes long
        stack.callback(shutil.rmtree, own, ignore_errors=True)
        yield own


# The database


_LEAST_BYTES = 512 * MIB
_BYTES_PER_THREAD = 128 * MIB


_SPILLED_BYTES = 256
"""Of a row, at most: a plan of synthetic catalogs spills up to 140, a comparison less (`python -m bench scale`)."""


ABOVE = """CREATE TEMP MACRO above(path) AS
    unhex(regexp_extract(hex(path), '^((?:..)*)2F(?:[013-9A-F].|2[0-9A-E])*$', 1))"""
"""The directory of a path. DuckDB has few functions on BLOB; on `hex` the expression is exact."""


def _memory_bytes(scratch: Scratch) -> int:
    quarter_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
    return max(scratch.memory_bytes or quarter_bytes, _LEAST_BYTES)


def require_room(scratch: Scratch, rows: int) -> None:
    """Raises Refused if memory and disk have no room for what a query of so many rows may spill. After `connect`, which
    makes the directory.
    """
    lacks_bytes = rows * _SPILLED_BYTES - _memory_bytes(scratch) - shutil.disk_usage(scratch.directory).free
    if lacks_bytes > 0:
        raise Refused(
            f"{rows:,} paths may need {format_size(lacks_bytes)} more room than {scratch.directory} has",
            cause="queries write there what exceeds [site] memory, and remove it at their end",
            hint="free room there, raise [site] memory, or give [site] state_dir another disk",
        )


_ahead: deque[tuple[Scratch, duckdb.DuckDBPyConnection]] = deque()
os.register_at_fork(after_in_child=_ahead.clear)


def connect_ahead(scratch: Scratch, *, count: int) -> None:
    """Open databases for the next calls of `connect` with this scratch: each takes 30 ms, which a frozen user would wait for.
    Blocking. Where it fails, `connect` opens them.
    """
    with suppress(duckdb.Error, OSError):
        for _ in range(count - len(_ahead)):
            _ahead.append((scratch, _open(scratch, threads=None)))


def connect(scratch: Scratch, *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """A database in memory that spills to a directory of its own in `scratch`, which goes with the connection.

    Its memory is for DuckDB's own buffers: the process needs up to 500 MB more. `threads` None uses as many cores as
    the memory allows: DuckDB's tuning guide requires at least 125 MB each. The order of rows is arbitrary unless the
    query sorts them. DuckDB loads nothing from the network. Close the connection.
    """
    with suppress(IndexError):
        of, connection = _ahead.popleft()
        if of == scratch and threads is None:
            return connection
        connection.close()
    return _open(scratch, threads=threads)


def _open(scratch: Scratch, *, threads: int | None) -> duckdb.DuckDBPyConnection:
    memory_bytes = _memory_bytes(scratch)
    with ExitStack() as stack:
        own = scratch.directory
        with suppress(OSError):  # a full or read-only disk: what fits into memory needs none
            own = stack.enter_context(own_directory(own))
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{memory_bytes // MIB}MiB",
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            # Rows that each thread holds for each part while it writes in parts, and the size of a part's row groups. With the
            # default, wide rows exceed 512 MiB. In 100 parts, 4,000 take 10 % less processor time than 8,000, and 200 MiB
            # less.
            "partitioned_write_flush_threshold": 4_000,
            "temp_directory": str(own),
            "threads": threads or max(min(os.cpu_count() or 1, memory_bytes // _BYTES_PER_THREAD), 1),
        }
        connection = duckdb.connect(":memory:", config=settings)
        # DuckDB draws progress bars on standard output if it considers the process interactive.
        connection.execute("SET enable_progress_bar = false")
        weakref.finalize(connection, stack.pop_all().close)
        return connection


def directory_of(connection: duckdb.DuckDBPyConnection) -> Path:
    """The directory of a connection of `connect`, also for files of the caller's."""
    ((found,),) = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    return Path(found)


def literal(path: bytes) -> str:
    """DuckDB's own text of the value. One expression object for a thousand values would exceed Python's recursion limit."""
    return str(duckdb.ConstantExpression(path))


def ranges(cuts: Sequence[bytes]) -> list[str]:
    """For SQL: the conditions of a path before the first of these paths, from each of them to the next, and from the last on.
    DuckDB reads only the row groups of Parquet files that can have such paths.
    """
    starts = [f"path >= {literal(cut)}" for cut in cuts]
    ends = [f"path < {literal(cut)}" for cut in cuts]
    return [f"{start} AND {end}" for start, end in zip(["true", *starts], [*ends, "true"], strict=True)]


def numbered_part(ends: Sequence[str], first: int = 0) -> str:
    """For SQL: the number of a row's part. `ends` has a condition for each part but the last: it is true of the rows of that part
    and of those before it. Halves the parts with each condition.
    """
    if not ends:
        return str(first)
    middle = len(ends) // 2
    before, after = numbered_part(ends[:middle], first), numbered_part(ends[middle + 1 :], first + middle + 1)
    return f"CASE WHEN {ends[middle]} THEN {before} ELSE {after} END"


def in_parts(
    connection: duckdb.DuckDBPyConnection, query: str, parameters: Mapping[str, object], *, part: str, parts: int
) -> Iterator[Any]:
    """The rows of a query part by part, each a relation that is used before the next is asked for. `part` is SQL for the number
    of a row's part, from 0. A part without rows is passed over.
    """
    if parts == 1:
        yield connection.sql(query, params=dict(parameters))
        return
    with TemporaryDirectory(prefix="parts-", dir=directory_of(connection)) as directory:
        connection.execute(
            f"COPY (SELECT *, {part} AS part FROM ({query})) TO $parts_in (FORMAT parquet, PARTITION_BY (part))",  # noqa: S608
            {**parameters, "parts_in": directory},
        )
        for number in range(parts):
            of_part = Path(directory, f"part={number}")
            if of_part.exists():
                yield connection.read_parquet(f"{of_part}/*.parquet", hive_partitioning=False)
                shutil.rmtree(of_part)


def content_bytes_sql(row: str = "") -> str:
    """`Entry.content_bytes` of the row with this prefix, as `n.`."""
    size, allocated = f"{row}size", f"{row}blocks * {BLOCK_BYTES}"
    return f"""(CASE
        WHEN {row}type <> 'file' THEN 0
        WHEN {size} >= {SPARSE_FROM_BYTES} AND {allocated} * {LEAST_HOLES} < {size} THEN greatest({allocated}, {BLOCK_BYTES})
        ELSE {size}
    END)"""


_TOTALS = f"""
    SELECT count(*), count(*) FILTER (type = 'directory'), coalesce(sum({content_bytes_sql()}), 0)::HUGEINT
    FROM read_parquet($files)
"""  # noqa: S608 - constants of this program


def totals_of(connection: duckdb.DuckDBPyConnection, files: Sequence[Path], *, problems: int = 0) -> CatalogTotals:
    """Rows, directories and bytes of files in the parts of a catalog."""
    found = connection.execute(_TOTALS, {"files": list(map(str, files))}).fetchone() if files else None
    rows, directories, size_bytes = map(int, found or (0, 0, 0))
    return CatalogTotals(rows=rows, directories=directories, size_bytes=size_bytes, problems=problems)
