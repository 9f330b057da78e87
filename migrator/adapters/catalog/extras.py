# ruff: noqa: S608 - the queries are put together from constants of this module only; values go in as parameters.
"""Extras of the target, found with DuckDB out of core in earlier catalogs and in what verifications found."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb

from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.listings import ROWS_AT_ONCE, create_entries
from migrator.adapters.catalog.manifest_schema import DIFFERENCES_FILE
from migrator.adapters.catalog.reader import open_closed
from migrator.adapters.catalog.usage import DUCKDB_MEMORY_BYTES
from migrator.domain.changes import Gone
from migrator.domain.entry import EntryType
from migrator.domain.errors import MigratorError, Refused
from migrator.domain.verification import DifferenceKind
from migrator.ports.extras import ExtraOrigin, ExtrasOfTree, ExtrasTally, FoundExtras

_TABLES = """
    CREATE TEMP TABLE extras (tree BLOB, path BLOB, type VARCHAR, bytes BIGINT, origin VARCHAR);
    CREATE TEMP TABLE of_others (path BLOB)
"""

_BROUGHT = """
    SELECT path, any_value(tree) AS tree, max(CASE WHEN type = 'file' THEN size ELSE 0 END)::BIGINT AS bytes
    FROM read_parquet($brought) WHERE tree IN (SELECT unnest($trees)) AND path <> tree GROUP BY path
"""

_EARLIER = """
    INSERT INTO extras
    SELECT tree, path, type, bytes, $origin FROM (
        SELECT path, any_value(tree) AS tree, arg_max(type, ctime_ns) AS type,
            max(CASE WHEN type = 'file' THEN size ELSE 0 END)::BIGINT AS bytes
        FROM read_parquet($earlier) WHERE tree IN (SELECT unnest($trees)) AND path <> tree GROUP BY path
    ) e
    LEFT JOIN (SELECT path, type AS base_type FROM base_rows) b USING (path)
    LEFT JOIN (SELECT path, type AS now_type FROM now_rows) n USING (path)
    WHERE (now_type IS NULL OR (now_type = 'directory') <> (type = 'directory'))
        AND (base_type IS NULL OR (base_type = 'directory') <> (type = 'directory'))
"""
"""What vanished since the base is in another list already."""

_FOUND = """
    CREATE OR REPLACE TEMP TABLE found AS
    SELECT path, split_part(target, ',', 1) AS type FROM read_parquet($differences)
    WHERE kind = $extra OR (kind = $type AND (source = 'directory') <> (target = 'directory'))
"""

_NAMED = f"""
    INSERT INTO extras
    SELECT tree, path, type, bytes, $origin FROM found JOIN ({_BROUGHT}) brought USING (path)
    LEFT JOIN (SELECT path, type AS now_type FROM now_rows) n USING (path)
    WHERE now_type IS NULL OR (now_type = 'directory') <> (type = 'directory')
"""

_OF_OTHERS = """
    INSERT INTO of_others SELECT path FROM found ANTI JOIN (SELECT path FROM extras) known USING (path)
"""

_TALLY = """
    SELECT
        (SELECT count(*) FROM base_rows WHERE tree = $tree AND path <> tree),
        (SELECT coalesce(sum(bytes), 0)::BIGINT FROM base_rows WHERE tree = $tree AND path <> tree),
        count(*), coalesce(sum(bytes), 0)::BIGINT
    FROM (
        SELECT path, max(bytes) AS bytes FROM extras
        WHERE tree = $tree AND origin IN (SELECT unnest($origins)) GROUP BY path
    )
"""

_GONE = """
    SELECT path, any_value(tree) AS tree, any_value(type) AS type
    FROM extras WHERE origin IN (SELECT unnest($origins)) GROUP BY path ORDER BY path || '/'::BLOB
"""
"""With what lies in a directory right behind it."""


class ExtraFiles:
    """The `Extras` port over a directory of catalogs; `temp_dir` takes what DuckDB spills."""

    def __init__(self, catalogs_dir: Path, *, temp_dir: Path) -> None:
        self._catalogs_dir = catalogs_dir
        self._temp_dir = temp_dir

    @contextmanager
    def open(self, wanted: Sequence[ExtrasOfTree], *, base: str, now: str) -> Iterator[FoundExtras]:
        """Find them, as the port says."""
        groups: defaultdict[tuple[tuple[str, ...], tuple[str, ...], str | None], list[bytes]] = defaultdict(list)
        for one in wanted:
            groups[one.brought, one.earlier, one.manifest].append(one.tree)
        with connect(DUCKDB_MEMORY_BYTES, self._temp_dir) as connection:
            create_entries(connection, open_closed(self._catalogs_dir / base).part_files, view="base_rows")
            create_entries(connection, open_closed(self._catalogs_dir / now).part_files, view="now_rows")
            connection.execute(_TABLES)
            for (brought, earlier, manifest), trees in groups.items():
                self._add_earlier(connection, trees, earlier)
                if manifest is not None:
                    self._add_named(connection, trees, brought, manifest)
            yield _Found(connection)

    def _add_earlier(
        self, connection: duckdb.DuckDBPyConnection, trees: Sequence[bytes], earlier: Sequence[str]
    ) -> None:
        if files := self._parts(earlier):
            connection.execute(
                _EARLIER, {"earlier": files, "trees": list(trees), "origin": ExtraOrigin.EARLIER_PLAN.value}
            )

    def _add_named(
        self, connection: duckdb.DuckDBPyConnection, trees: Sequence[bytes], brought: Sequence[str], manifest: str
    ) -> None:
        differences = Path(manifest).parent / DIFFERENCES_FILE
        if not differences.is_file():
            raise Refused(
                f"what a verification found to differ is missing: {differences}",
                cause="it was moved or removed since",
                hint="verify the batch again",
            )
        connection.execute(
            _FOUND,
            {
                "differences": str(differences),
                "extra": DifferenceKind.EXTRA.value,
                "type": DifferenceKind.TYPE.value,
            },
        )
        if files := self._parts(brought):
            connection.execute(
                _NAMED, {"brought": files, "trees": list(trees), "origin": ExtraOrigin.VERIFICATION.value}
            )
        connection.execute(_OF_OTHERS)

    def _parts(self, catalogs: Sequence[str]) -> list[str]:
        files: list[str] = []
        for name in catalogs:
            try:
                files += [str(file) for file in open_closed(self._catalogs_dir / name).part_files]
            except MigratorError:
                continue
        return files


class _Found:
    """The `FoundExtras` port over the tables of one connection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def tally(self, tree: bytes, origins: Collection[ExtraOrigin]) -> ExtrasTally:
        """How many a tree has."""
        row = self._connection.execute(_TALLY, {"tree": tree, "origins": [one.value for one in origins]}).fetchone()
        names_before, bytes_before, names, size_bytes = row or (0, 0, 0, 0)
        return ExtrasTally(names_before=names_before, bytes_before=bytes_before, names=names, size_bytes=size_bytes)

    def gone(self, origins: Collection[ExtraOrigin]) -> Iterator[Gone]:
        """The outermost ones."""
        kept = self._directories_with_others()
        outermost: Gone | None = None
        query = self._connection.execute(_GONE, {"origins": [one.value for one in origins]})
        while rows := query.fetchmany(ROWS_AT_ONCE):
            for path, tree, kind in rows:
                if outermost is not None and path.startswith(outermost.path + b"/"):
                    outermost = replace(outermost, names=outermost.names + 1)
                    continue
                if outermost is not None:
                    yield outermost
                outermost = None if path in kept else Gone(tree=tree, path=path, type=EntryType(kind), names=1)
        if outermost is not None:
            yield outermost

    def _directories_with_others(self) -> frozenset[bytes]:
        found: set[bytes] = set()
        for (path,) in self._connection.execute("SELECT path FROM of_others").fetchall():
            above = path.rpartition(b"/")[0]
            while above and above not in found:
                found.add(above)
                above = above.rpartition(b"/")[0]
        return frozenset(found)
