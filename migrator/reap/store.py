"""Selection of reaped files from a catalog, out of core, and reap lists as Parquet files."""

import hashlib
import struct
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from migrator.catalog.columns import Columns
from migrator.catalog.model import SETTLED_BEFORE_SCAN_S, CatalogRecord
from migrator.catalog.queries import ROWS_AT_ONCE
from migrator.core.durable import file_digest, replacing, sync
from migrator.core.entry import BLOCK_BYTES
from migrator.core.errors import Refused
from migrator.core.units import NS_PER_S
from migrator.plan.model import check_plan_name
from migrator.reap import model
from migrator.reap.rules import describe_reap_rule, globs_pattern
from migrator.site.model import ReapAction, ReapClock

# --- SQL over the view `entries` and the table `reap_rules`: one pass over the catalog, out of core
#
# Selected rows are kept as numbers; their names are read again on request.


_EXECUTABLE = 0o111

RULES_TABLE = """
    CREATE OR REPLACE TEMP TABLE reap_rules (
        tree BLOB, ordinal INTEGER, action VARCHAR, smaller BIGINT, before_ns BIGINT, by_atime BOOLEAN, hidden BOOLEAN,
        executables BOOLEAN, excludes INTEGER
    )
"""
"""`excludes` is the number N of a parameter `$excludeN`, null without exclusions."""

KEEP_FILES = """
    SELECT array_slice(path, 1, octet_length(path) - $length) AS directory, tree
    FROM entries SEMI JOIN reap_rules USING (tree)
    WHERE type <> 'directory' AND octet_length(path) > $length
        AND array_slice(path, octet_length(path) - $length + 1, octet_length(path)) = $suffix
    ORDER BY directory || '/'::BLOB
"""
"""Directories with the opt-out file, ordered by the paths of their content. `suffix` begins with a slash."""

KEPT_TABLE = "CREATE OR REPLACE TEMP TABLE kept (tree BLOB, start BLOB, until BLOB)"
"""Paths below directories with an opt-out file, as ranges that do not overlap."""


def candidates(excludes: int, *, after: str, until: str) -> str:
    """Create `candidates`: files that the rules match, before opt-outs are considered. Files that changed
    during the scan (`after`, `until`) are left out: a delta pass sends them in any case.
    """
    below = "array_slice(path, octet_length(tree) + 2, octet_length(path))"
    excluded = " ".join(
        f"WHEN {number} THEN regexp_matches(hex({below}), $exclude{number})" for number in range(excludes)
    )
    return f"""
        CREATE OR REPLACE TEMP TABLE candidates AS
        SELECT position, ordinal, tree, bytes, blocks,
            CASE WHEN by_atime THEN greatest(atime_ns, mtime_ns) ELSE mtime_ns END AS time_ns,
            CASE WHEN tree IN (SELECT tree FROM kept) THEN path END AS path
        FROM entries JOIN reap_rules USING (tree)
        WHERE type = 'file' AND nlink <= 1 AND path <> tree
            AND (smaller IS NULL OR size < smaller)
            AND (before_ns IS NULL OR CASE WHEN by_atime THEN greatest(atime_ns, mtime_ns) ELSE mtime_ns END < before_ns)
            AND (executables OR mode & {_EXECUTABLE} = 0)
            AND NOT (ctime_ns > {after} OR (mtime_ns > {after} AND mtime_ns <= {until}))
            AND (hidden OR NOT contains(array_slice(path, octet_length(tree) + 1, octet_length(path))::VARCHAR, '/.'))
            {f"AND NOT CASE excludes {excluded} ELSE false END" if excludes else ""}
    """


CHOSEN = """
    CREATE OR REPLACE TEMP TABLE reaped AS
    SELECT position, ordinal, bytes, blocks, time_ns FROM candidates WHERE path IS NULL
    UNION ALL
    SELECT position, ordinal, bytes, blocks, time_ns
    FROM (SELECT * FROM candidates WHERE path IS NOT NULL) AS found
    ASOF LEFT JOIN kept ON found.tree = kept.tree AND found.path >= kept.start
    WHERE kept.start IS NULL OR found.path >= kept.until
"""

TALLIES = """
    SELECT ordinal, count(*), sum(bytes)::BIGINT, sum(blocks)::BIGINT, min(time_ns)
    FROM reaped GROUP BY ordinal ORDER BY ordinal
"""

KEPT_BACK = "SELECT position FROM reaped JOIN reap_rules USING (ordinal) WHERE action <> 'list'"

LISTED_VIEW = f"CREATE OR REPLACE TEMP VIEW moving AS SELECT * FROM entries ANTI JOIN ({KEPT_BACK}) USING (position)"
"""The rows that chunks are packed from."""

ROWS = """
    SELECT path, entries.tree, action, entries.size, entries.blocks, mtime_ns, ctime_ns, atime_ns, ino, gfid, uid, gid, mode
    FROM entries JOIN reaped USING (position) JOIN reap_rules USING (ordinal)
    WHERE $listed OR action <> 'list'
    ORDER BY ordinal, position
"""

DIRECTORIES = """
    WITH held AS (
        SELECT ordinal, unhex(regexp_extract(hex(path), '^((?:..)*)2F(?:[013-9A-F].|2[0-9A-E])*$', 1)) AS directory,
            reaped.bytes AS bytes
        FROM entries JOIN reaped USING (position)
    )
    SELECT ordinal, directory, count(*), sum(bytes)::BIGINT AS total FROM held GROUP BY ordinal, directory
    QUALIFY row_number() OVER (PARTITION BY ordinal ORDER BY total DESC, directory) <= $most
    ORDER BY ordinal, total DESC, directory
"""


# --- Selection


class Reaping:
    """The files of a catalog, the view `entries` of a connection, that rules match. Out of core; one query at a time. Blocking."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        record: CatalogRecord,
        rules: Sequence[model.TreeRule],
        *,
        now_s: float,
    ) -> None:
        self._connection = connection
        self._rules = rules
        excludes = list(dict.fromkeys(one.rule.exclude for one in rules if one.rule.exclude))
        self._insert_rules(excludes, now_s)
        self._insert_kept()
        # The same limits as in the comparison of catalogs.
        after_ns = int((record.started_at_s - SETTLED_BEFORE_SCAN_S) * NS_PER_S)
        until_ns = int(((record.finished_at_s or record.started_at_s) + SETTLED_BEFORE_SCAN_S) * NS_PER_S)
        parameters: dict[str, object] = {"after": after_ns, "until": until_ns}
        for number, globs in enumerate(excludes):
            parameters[f"exclude{number}"] = globs_pattern(glob.encode("utf-8", "surrogateescape") for glob in globs)
        query = candidates(len(excludes), after="$after", until="$until")
        connection.execute(query, parameters)
        connection.execute(CHOSEN)
        connection.execute("DROP TABLE candidates")

    def _insert_rules(self, excludes: Sequence[tuple[str, ...]], now_s: float) -> None:
        now_ns = int(now_s * NS_PER_S)
        rows = [
            {
                "tree": one.tree.path,
                "ordinal": ordinal,
                "action": one.rule.action.value,
                "smaller": one.rule.smaller_than_bytes,
                "before_ns": None if one.rule.older_than_s is None else now_ns - one.rule.older_than_s * NS_PER_S,
                "by_atime": one.rule.by is ReapClock.ATIME,
                "hidden": one.rule.hidden,
                "executables": one.rule.executables,
                "excludes": excludes.index(one.rule.exclude) if one.rule.exclude else None,
            }
            for ordinal, one in enumerate(self._rules)
        ]
        self._connection.execute(RULES_TABLE)
        if rows:
            self._connection.from_arrow(pa.Table.from_pylist(rows)).insert_into("reap_rules")

    def _insert_kept(self) -> None:
        suffix = b"/" + model.KEEP_FILE.encode()
        found = self._connection.execute(KEEP_FILES, {"length": len(suffix), "suffix": suffix}).fetchall()
        outermost: list[tuple[bytes, bytes]] = []
        for directory, tree in found:
            if not (outermost and (directory + b"/").startswith(outermost[-1][0] + b"/")):
                outermost.append((directory, tree))
        table = pa.table(
            {
                "tree": pa.array([tree for _, tree in outermost], pa.binary()),
                "start": pa.array([directory + b"/" for directory, _ in outermost], pa.binary()),
                # The byte after the slash: paths below the directory sort before it.
                "until": pa.array([directory + b"0" for directory, _ in outermost], pa.binary()),
            }
        )
        self._connection.execute(KEPT_TABLE)
        if outermost:
            self._connection.from_arrow(table).insert_into("kept")

    def kept(self) -> Sequence[tuple[bytes, bytes]]:
        """The trees and the outermost directories in them with an opt-out file."""
        found = self._connection.execute("SELECT tree, start FROM kept ORDER BY start").fetchall()
        return [(tree, start[:-1]) for tree, start in found]

    def trees(self) -> Sequence[model.ReapedTree]:
        """Counts by tree, in the order of the rules, without trees that have no matches."""
        return [
            model.ReapedTree(
                tree=self._rules[ordinal].tree,
                action=self._rules[ordinal].rule.action,
                rule=describe_reap_rule(self._rules[ordinal].rule),
                files=files,
                size_bytes=size_bytes,
                allocated_bytes=blocks * BLOCK_BYTES,
                oldest_ns=oldest_ns,
            )
            for ordinal, files, size_bytes, blocks, oldest_ns in self._connection.execute(TALLIES).fetchall()
        ]

    def rows(self, *, listed: bool = False) -> Iterator[Sequence[model.ReapRow]]:
        """The archived or skipped files in blocks, by tree in the order of the rules, then in the order of the scan.
        With `listed`, those that are only reported too. Consume all before the next query.
        """
        query = self._connection.sql(ROWS, params={"listed": listed})
        for block in query.to_arrow_reader(ROWS_AT_ONCE):
            yield model.reap_rows(column.to_pylist() for column in block.columns)

    def directories(self, limit: int) -> dict[bytes, Sequence[model.ReapDirectory]]:
        """For each tree, up to `limit` directories with the most matched bytes."""
        found: dict[bytes, list[model.ReapDirectory]] = {}
        rows = self._connection.execute(DIRECTORIES, {"most": limit}).fetchall()
        for ordinal, directory, files, size_bytes in rows:
            tree = self._rules[ordinal].tree.path
            found.setdefault(tree, []).append(model.ReapDirectory(path=directory, files=files, size_bytes=size_bytes))
        return dict(found)

    def keep_back(self) -> str:
        """Create a view without the archived and skipped files, and return its name. Chunks are packed from it."""
        self._connection.execute(LISTED_VIEW)
        return "moving"


# --- Reap lists: one Parquet file beside each plan that reaps, ordered by tree


_ROWS: Columns[model.ReapRow] = Columns(
    """
    path:binary tree:binary action:string size:int64=size_bytes blocks:int64 mtime_ns:int64 ctime_ns:int64
    atime_ns:int64 ino:uint64 gfid:binary? uid:uint32 gid:uint32 mode:int32
    """
)
REAP_SCHEMA = _ROWS.schema
"""`action` is `archive` or `skip`. A row group has rows of one tree and one action."""

ROW_GROUP_ROWS = 20_000

_FILE = "reap.parquet"
_KEY_COLUMNS = ("path", "size", "mtime_ns", "ctime_ns")
_TWO_KEYS = struct.Struct("<2Q")
_HINT = "bring it back, or make a new plan with `migrator plan --activate`"


class ReapListFiles:
    """The reap lists of a site in the directory of plans. The name of a list is relative to it, so it can be moved.
    Only some thousand rows are in memory at a time.
    """

    def __init__(self, plans_dir: Path) -> None:
        self._plans_dir = plans_dir

    def write(self, plan: str, rows: Iterable[Sequence[model.ReapRow]]) -> tuple[str, str]:
        """Write the list of a plan in progress, durably, in the given order; the rows of one tree are contiguous.
        Replaces the leftovers of an interrupted plan. Returns its name and its BLAKE2b digest. Raises OSError.
        """
        reap_list = f"{check_plan_name(plan)}.chunks/{_FILE}"
        file = self._plans_dir / reap_list
        file.parent.mkdir(parents=True, exist_ok=True)
        sync(self._plans_dir)
        with replacing(file) as stream:
            _write(stream, rows)
        return reap_list, file_digest(file)

    def checked(self, reap: model.PlanReap | None) -> Path | None:
        """The file with the list of a plan, for queries; None if it reaps no files. Raises Refused if it is missing, or
        its digest differs from the plan's.
        """
        if reap is None or reap.reap_list is None:
            return None
        file = self._file(reap.reap_list)
        try:
            if file_digest(file) != reap.digest:
                raise _damaged(reap.reap_list, file, "its digest is not the one in the plan")
        except FileNotFoundError:
            raise _missing(reap.reap_list, file) from None
        return file

    def paths(
        self, reap_list: str, *, trees: Collection[bytes] | None = None, action: ReapAction | None = None
    ) -> Iterator[Sequence[model.ReapRow]]:
        """The rows of these trees (None: all) with this action (None: both), in the list's order, in blocks of one tree
        each. Raises Refused if the list is missing or damaged.
        """
        for table in self._groups(reap_list, trees, action, [field.name for field in REAP_SCHEMA]):
            yield model.reap_rows(column.to_pylist() for column in table.columns)

    def index(self, reap: model.PlanReap | None, *, trees: Collection[bytes]) -> "ReapIndex | None":
        """The list of a plan for these trees in memory; None if it reaps no files. Raises Refused as `checked` does."""
        if reap is None or reap.reap_list is None:
            return None
        self.checked(reap)
        return ReapIndex(self._groups(reap.reap_list, trees, None, ["action", *_KEY_COLUMNS]))

    def _groups(
        self, reap_list: str, trees: Collection[bytes] | None, action: ReapAction | None, columns: list[str]
    ) -> Iterator["pa.Table"]:
        file = self._file(reap_list)
        try:
            with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
                if not parquet.schema_arrow.equals(REAP_SCHEMA):
                    raise _damaged(reap_list, file, "it has other columns")
                for group in range(parquet.metadata.num_row_groups):
                    first = parquet.read_row_group(group, columns=["tree", "action"]).slice(0, 1).to_pylist()[0]
                    wanted = (trees is None or first["tree"] in trees) and action in (None, first["action"])
                    if wanted:
                        yield parquet.read_row_group(group, columns=columns)
        except FileNotFoundError:
            raise _missing(reap_list, file) from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(reap_list, file, str(error)) from error

    def _file(self, reap_list: str) -> Path:
        directory, _, name = reap_list.partition("/")
        if name != _FILE or directory in ("", ".", ".."):
            raise Refused(
                f"{reap_list!r} cannot be a reap list of this site", cause="it lies beside its plan", hint=_HINT
            )
        return self._plans_dir / directory / name


class ReapIndex:
    """The reap list of a plan in memory, for look-ups by path. Thread-safe. 128 bits per row, in two columns of 64,
    sorted by the first.
    """

    def __init__(self, tables: Iterable["pa.Table"]) -> None:
        """Each table has the rows of one action."""
        columns: dict[ReapAction, tuple[array[int], array[int]]] = {}
        for table in tables:
            low, high = columns.setdefault(ReapAction(table.column("action")[0].as_py()), (array("Q"), array("Q")))
            for row in zip(*(table.column(name).to_pylist() for name in _KEY_COLUMNS), strict=True):
                first, second = _keys(*row)
                low.append(first)
                high.append(second)
        self._sorted = {action: _in_order(*found) for action, found in columns.items()}

    def action(self, path: bytes, *, size_bytes: int, mtime_ns: int, ctime_ns: int) -> ReapAction | None:
        """The action of the list for a path with these attributes; None if it does not have the path, or with others.

        Compares 128-bit digests of path and attributes. Deletions are checked against the rows themselves.
        """
        first, second = _keys(path, size_bytes, mtime_ns, ctime_ns)
        for action, (low, high) in self._sorted.items():
            place = bisect_left(low, first)
            while place < len(low) and low[place] == first:
                if high[place] == second:
                    return action
                place += 1
        return None


def _in_order(low: "array[int]", high: "array[int]") -> tuple[memoryview, memoryview]:
    arrays = [pa.Array.from_buffers(pa.uint64(), len(one), [None, pa.py_buffer(one)]) for one in (low, high)]
    (batch,) = pa.table(arrays, ["low", "high"]).sort_by("low").combine_chunks().to_batches()
    buffers: list[Any] = [column.buffers()[1] for column in batch.columns]
    first, second = (memoryview(buffer).cast("B").cast("Q") for buffer in buffers)
    return first, second


def _keys(path: bytes, size_bytes: int, mtime_ns: int, ctime_ns: int) -> tuple[int, int]:
    facts = b"%d %d %d " % (size_bytes, mtime_ns, ctime_ns)
    return _TWO_KEYS.unpack(hashlib.blake2b(facts + path, digest_size=_TWO_KEYS.size).digest())


def _write(stream: BinaryIO, rows: Iterable[Sequence[model.ReapRow]]) -> None:
    waiting: list[model.ReapRow] = []
    with pq.ParquetWriter(
        stream,
        REAP_SCHEMA,
        compression="zstd",
        write_statistics=False,
        write_page_checksum=True,
        use_dictionary=["tree", "action"],  # type: ignore[arg-type] # a list of columns is documented
    ) as writer:
        for block in rows:
            for row in block:
                full = len(waiting) >= ROW_GROUP_ROWS
                if waiting and (full or (waiting[-1].tree, waiting[-1].action) != (row.tree, row.action)):
                    writer.write_batch(_ROWS.batch(waiting))
                    waiting = []
                waiting.append(row)
        if waiting:
            writer.write_batch(_ROWS.batch(waiting))


def _missing(reap_list: str, file: Path) -> Refused:
    return Refused(
        f"the reap list {reap_list!r} is missing",
        cause=f"{file} was removed, or the plan was copied without the directory beside it",
        hint=_HINT,
    )


def _damaged(reap_list: str, file: Path, why: str) -> Refused:
    return Refused(
        f"the reap list {reap_list!r} cannot be read: {why}", cause=f"{file} was cut off or replaced", hint=_HINT
    )
