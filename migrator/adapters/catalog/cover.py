"""Every path of a catalog beside the manifest that proves it, for retiring the source volume."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.listings import ROWS_AT_ONCE, create_entries
from migrator.adapters.catalog.reader import open_closed
from migrator.domain.archives import archive_directory, archive_name
from migrator.domain.entry import EntryType
from migrator.domain.errors import Refused
from migrator.domain.paths import join
from migrator.domain.purge_proof import Archive, Proof
from migrator.domain.retirement import CatalogedPath, MovedTree

_FACTS = ("type", "size", "mtime_ns", "ctime_ns", "uid", "gid", "mode", "symlink_target", "rdev", "xattr_digest", "ino")
_PROVEN = (*_FACTS, "digest", "algorithm", "archive")
_HERE = ", ".join(f"here.{name}" for name in ("path", "tree", *_FACTS))
_THEN = ", ".join(f"proven.{name} AS p_{name}" for name in ("tree", *_PROVEN))
_NO_PROOF = ", ".join(f"NULL AS p_{name}" for name in ("tree", *_PROVEN))

# Only what lies in its own tree counts of a manifest: of others a newer one may tell.
_BESIDE = """
    SELECT {here}, {then}
    FROM (SELECT * FROM entries WHERE type <> 'directory') here LEFT JOIN (
        SELECT moved.tree AS tree, rows.* EXCLUDE (filename)
        FROM read_parquet([{manifests}], filename = true, union_by_name = true) rows JOIN moved
            ON moved.manifest = rows.filename
            AND rows.path > moved.tree || '/'::BLOB AND rows.path < moved.tree || '0'::BLOB
    ) proven ON proven.path = here.path
"""
_ALONE = "SELECT {here}, {none} FROM entries here WHERE type <> 'directory'"


class CoverParquetFiles:
    """The `CoverFiles` port over a directory of catalogs; `temp_dir` takes what DuckDB spills."""

    def __init__(self, directory: Path, *, temp_dir: Path) -> None:
        self._directory = directory
        self._temp_dir = temp_dir

    def paths(self, catalog: str, moved: Sequence[MovedTree]) -> Iterator[Sequence[tuple[CatalogedPath, Proof | None]]]:
        """Every path of the catalog that is no directory, as the port says."""
        closed = open_closed(self._directory / catalog)
        try:
            with connect(temp_dir=self._temp_dir) as connection:
                create_entries(connection, closed.part_files)
                for block in connection.sql(_query(connection, moved)).to_arrow_reader(ROWS_AT_ONCE):
                    columns = {name: block.column(name).to_pylist() for name in block.schema.names}
                    yield [_pair(dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]
        except duckdb.Error as error:
            raise Refused(
                f"the catalog {catalog} cannot be compared with the manifests: {error}",
                cause="a manifest, or a part of the catalog, was removed or damaged",
                hint="bring the manifests back from a backup of the state directory: without them nothing is proven",
            ) from error


def _query(connection: duckdb.DuckDBPyConnection, moved: Sequence[MovedTree]) -> str:
    if not moved:
        return _ALONE.format(here=_HERE, none=_NO_PROOF)
    connection.execute("CREATE TEMP TABLE moved (tree BLOB, manifest VARCHAR)")
    connection.executemany("INSERT INTO moved VALUES (?, ?)", [[one.tree, one.manifest] for one in moved])
    # A table function takes no parameters beside literals.
    names = ", ".join("'" + file.replace("'", "''") + "'" for file in sorted({one.manifest for one in moved}))
    return _BESIDE.format(here=_HERE, then=_THEN, manifests=names)


def _pair(row: Mapping[str, Any]) -> tuple[CatalogedPath, Proof | None]:
    found = CatalogedPath(path=row["path"], tree=row["tree"], **_facts(row, ""))
    if row["p_tree"] is None:
        return found, None
    archive = None
    if row["p_archive"] is not None:
        # Whether it still counts is not asked here.
        where = join(archive_directory(row["p_tree"]), archive_name(row["p_archive"]))
        archive = Archive(path=where, size_bytes=None)
    proof = Proof(
        path=row["path"],
        digest=row["p_digest"],
        algorithm=row["p_algorithm"],
        archive=archive,
        **_facts(row, "p_"),
    )
    return found, proof


def _facts(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    facts = {name: row[prefix + name] for name in _FACTS if name not in ("type", "size")}
    return {**facts, "type": EntryType(row[f"{prefix}type"]), "size_bytes": row[f"{prefix}size"]}
