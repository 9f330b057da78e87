"""The catalog of a tree on the target at the switch, from the manifest of the verification before it."""

from pathlib import Path

import duckdb
from msgspec.structs import replace

from migrator.catalog.database import connect, content_bytes_sql
from migrator.catalog.files import ROW_SCHEMA, ClosedCatalogs, close_catalog, part_name
from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.model import CatalogRecord, VerificationRecord
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import create_entries
from migrator.core.durable import sync, temporary_name
from migrator.core.errors import Refused
from migrator.core.paths import show
from migrator.reap.model import archive_directory

# The user changed an entry if its inode, size, mtime or ctime differ now, or if it is gone. The manifest has inode,
# size and times of the target's file. It has the other attributes from the source; the target's were equal as far as it
# keeps them. An unchanged entry gets the row of `now`, so an attribute that the target keeps in another form is no
# change.
_ROWS = """
    WITH proven AS (
        SELECT * FROM read_parquet($manifest)
        WHERE path > $tree || '/'::BLOB AND path < $tree || '0'::BLOB
            -- Archived files were not at their places on the target, so no user can have removed them there.
            AND archive IS NULL
            AND path <> $hidden AND NOT (path > $hidden || '/'::BLOB AND path < $hidden || '0'::BLOB)
    )
    SELECT
        proven.path AS path, $tree AS tree, NULL::VARCHAR AS brick, proven.type AS type,
        CASE WHEN same THEN now.size ELSE proven.size END::BIGINT AS size,
        CASE WHEN same THEN now.blocks ELSE (proven.size + 511) // 512 END::BIGINT AS blocks,
        CASE WHEN same THEN now.uid ELSE proven.uid END::UINTEGER AS uid,
        CASE WHEN same THEN now.gid ELSE proven.gid END::UINTEGER AS gid,
        CASE WHEN same THEN now.mode ELSE proven.mode END::INTEGER AS mode,
        target_mtime_ns::BIGINT AS mtime_ns, 0::BIGINT AS atime_ns, target_ctime_ns::BIGINT AS ctime_ns,
        coalesce(now.dev, (SELECT any_value(dev) FROM now_rows), 0)::UBIGINT AS dev,
        CASE WHEN same THEN now.rdev ELSE proven.rdev END::UBIGINT AS rdev,
        target_ino::UBIGINT AS ino, NULL::BLOB AS gfid,
        CASE WHEN same THEN now.nlink WHEN proven.link_group IS NULL THEN 1 ELSE 2 END::UINTEGER AS nlink,
        CASE WHEN same THEN now.link_group WHEN proven.link_group IS NULL THEN NULL ELSE target_ino END::UBIGINT
            AS link_group,
        CASE WHEN same THEN now.symlink_target ELSE proven.symlink_target END AS symlink_target,
        CASE WHEN same THEN now.xattr_digest ELSE proven.xattr_digest END AS xattr_digest,
        0::INTEGER AS xattr_largest_bytes, 0::INTEGER AS xattr_kinds, 0::INTEGER AS acl_entries
    FROM proven LEFT JOIN (SELECT * FROM now_rows) now ON now.path = proven.path,
        LATERAL (SELECT coalesce(
            now.type = proven.type AND now.ino = target_ino AND now.mtime_ns = target_mtime_ns
            AND now.ctime_ns = target_ctime_ns AND (now.type <> 'file' OR now.size = proven.size), false
        ) AS same)
    ORDER BY proven.path
"""


def write_switched(
    record: CatalogRecord,
    *,
    tree: bytes,
    name_seed: int,
    proof: VerificationRecord,
    now: str,
    catalogs: ClosedCatalogs,
    scratch: Scratch,
) -> CatalogRecord:
    """Write the catalog of a tree on the target at the switch, from the manifest of its `proof`, into `catalogs`.

    `now` names the catalog of the tree as it is. The archives in the tree are left out. Raises Refused.
    """
    if proof.manifest is None or ManifestDirectories.digest(proof.manifest) != proof.manifest_digest:
        raise Refused(
            f"the manifest of {show(tree)} is not the one that the cutover was proven with",
            cause=f"{proof.manifest} was changed or damaged since",
            hint="restore it: without it the changes of the user on the target are unknown",
        )
    directory = catalogs.directory / record.name
    directory.mkdir(parents=True, exist_ok=True)
    part = directory / part_name(0)
    latest = catalogs.open(now).part_files
    temporary = temporary_name(part)
    with connect(scratch) as connection:
        create_entries(connection, latest, view="now_rows")
        _copy(connection, temporary, manifest=proof.manifest, tree=tree, hidden=archive_directory(tree, name_seed))
        facts = connection.execute(
            f"""
            SELECT count(*), count(*) FILTER (WHERE type <> 'directory'), coalesce(sum({content_bytes_sql()}), 0)::BIGINT
            FROM read_parquet(?)
            """,  # noqa: S608 - constants of this program
            [str(temporary)],
        ).fetchone() or (0, 0, 0)
    sync(temporary)
    temporary.replace(part)
    sync(directory)
    rows, files, size_bytes = facts
    closed = replace(
        record,
        rows=rows,
        files=files,
        directories=rows - files,
        size_bytes=size_bytes,
    )
    closed = close_catalog(directory, closed, [part.name])
    sync(catalogs.directory)
    return closed


def _copy(connection: duckdb.DuckDBPyConnection, file: Path, *, manifest: str, tree: bytes, hidden: bytes) -> None:
    columns = ", ".join(ROW_SCHEMA.names)
    # The query consists of constants of this module; every value from outside is a parameter.
    query = f"COPY (SELECT {columns} FROM ({_ROWS})) TO $file (FORMAT parquet, COMPRESSION zstd)"  # noqa: S608
    connection.execute(query, {"manifest": manifest, "tree": tree, "hidden": hidden, "file": str(file)})
