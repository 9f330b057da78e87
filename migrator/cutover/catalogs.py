"""Catalogs of a tree at its switch, and changes of the retained source since."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb

from migrator.catalog.database import connect
from migrator.catalog.files import ROW_SCHEMA, ClosedCatalog, ClosedCatalogs, close_catalog, part_name
from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.model import CatalogRecord
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import create_entries
from migrator.core.durable import sync, temporary_name
from migrator.core.entry import EntryType
from migrator.core.errors import Refused
from migrator.core.paths import join, show
from migrator.cutover.model import SourceChange, SourceChangeKind
from migrator.verify.model import VerificationRecord

# Changes of the retained source, from two of its catalogs.


_DIFFER = """(
    b.type <> n.type OR b.mode <> n.mode OR b.uid <> n.uid OR b.gid <> n.gid
    OR b.xattr_digest IS DISTINCT FROM n.xattr_digest
    OR CASE WHEN b.gfid IS NOT NULL AND n.gfid IS NOT NULL THEN b.gfid <> n.gfid
        WHEN b.gfid IS NOT NULL OR n.gfid IS NOT NULL OR b.dev = n.dev THEN b.ino <> n.ino ELSE false END
    OR b.type <> 'directory' AND (
        b.size <> n.size OR b.mtime_ns <> n.mtime_ns OR b.symlink_target IS DISTINCT FROM n.symlink_target
        OR b.type IN ('block', 'character') AND b.rdev <> n.rdev
        OR $ctimes AND b.nlink = 1 AND n.nlink = 1 AND b.ctime_ns <> n.ctime_ns
    )
)"""
"""The times of a directory change with its entries, which are compared themselves. The ctime of a file with several
names changes when another user's names are purged; on Gluster it may differ from replica to replica.
"""

_CARRIED = """EXISTS (
    FROM carried WHERE carried.path = n.path AND carried.type = n.type
    AND (n.type = 'directory' OR carried.size = n.size AND carried.mtime_ns = n.mtime_ns
        AND carried.symlink_target IS NOT DISTINCT FROM n.symlink_target)
)"""
"""The target had the same entry when a rollback carried it back."""

_CHANGED = f"""
    SELECT coalesce(b.path, n.path) AS path, n.type AS stands,
        CASE WHEN b.path IS NULL OR n.type = 'directory' AND b.type <> 'directory' THEN 'made' WHEN n.path IS NULL THEN 'removed' ELSE 'changed' END AS kind
    FROM (SELECT * FROM before_rows WHERE tree = $tree AND path <> tree) b
    FULL JOIN (SELECT * FROM now_rows WHERE tree = $tree AND path <> tree) n ON b.path = n.path
    WHERE CASE
        WHEN b.path IS NULL THEN NOT {_CARRIED}
        WHEN n.path IS NULL THEN NOT ($carried AND b.path NOT IN (SELECT path FROM last_carried))
        ELSE {_DIFFER} AND NOT {_CARRIED}
    END
    ORDER BY path
"""  # noqa: S608 - put together of constants of this module; values are parameters


def changed_source(
    before: ClosedCatalog,
    now: ClosedCatalog,
    *,
    tree: bytes,
    carried: Sequence[ClosedCatalog],
    ctimes: bool,
    scratch: Scratch,
) -> Sequence[SourceChange]:
    """Compare the catalog `now` of a tree with `before`; both are of the source.

    `carried` are the catalogs of the target that rollbacks have carried back since, oldest first. An entry may be gone
    if the last of them lacks it, and may be there if any of them has it. `ctimes`: the ctimes of the source are
    reliable. Raises Refused.
    """
    if not now.record.whole:
        raise Refused(
            f"catalog {now.record.name!r} is not whole: what changed on the source cannot be told",
            cause="; ".join(now.record.reasons),
            hint="see to that, then run the same command again",
        )
    with connect(scratch) as connection:
        create_entries(connection, before.part_files, view="before_rows")
        create_entries(connection, now.part_files, view="now_rows")
        carried_files = [one.part_files for one in carried]
        create_entries(connection, [file for files in carried_files for file in files], view="carried")
        create_entries(connection, carried_files[-1] if carried_files else (), view="last_carried")
        rows = connection.execute(_CHANGED, {"tree": tree, "ctimes": ctimes, "carried": bool(carried)}).fetchall()
    return [
        SourceChange(path=path, kind=SourceChangeKind(kind), stands=None if stands is None else EntryType(stands))
        for path, stands, kind in rows
    ]


# The catalog of a tree on the target at the switch, from the manifest of the verification before it.


# The user changed an entry if its inode, size, mtime or ctime differ now, or if it is gone. The manifest has inode,
# size and times of the target's file. It has the other attributes from the source; the target's were equal as far as it
# keeps them. An unchanged entry gets the row of `now`, so an attribute that the target keeps in another form is no
# change.
_ROWS = """
    WITH proven AS (
        SELECT * FROM read_parquet($manifest)
        WHERE path > $tree || '/'::BLOB AND path < $tree || '0'::BLOB
            -- What lies in an archive was not at its place on the target, so nobody can have taken it away there.
            AND archive IS NULL
            AND path <> $hidden AND NOT (path > $hidden || '/'::BLOB AND path < $hidden || '0'::BLOB)
    )
    SELECT
        proven.path AS path, $tree AS tree, NULL::VARCHAR AS brick, proven.type AS type,
        CASE WHEN same THEN now.size ELSE proven.size END::BIGINT AS size,
        CASE WHEN same THEN now.blocks ELSE 0 END::BIGINT AS blocks,
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
            AND now.ctime_ns = target_ctime_ns AND (now.type = 'directory' OR now.size = proven.size), false
        ) AS same)
    ORDER BY proven.path
"""


def write_switched(
    record: CatalogRecord,
    *,
    tree: bytes,
    proof: VerificationRecord,
    now: str,
    catalogs: ClosedCatalogs,
    hidden: bytes,
    scratch: Scratch,
) -> CatalogRecord:
    """Write the catalog of a tree on the target at the switch, from the manifest of its `proof`, into `catalogs`.

    `now` names the catalog of the tree as it is. The path `hidden` in the tree is left out. Raises Refused.
    """
    if proof.manifest is None or ManifestDirectories.digest(proof.manifest) != proof.manifest_digest:
        raise Refused(
            f"the manifest of {show(tree)} is not the one that the cutover was proven with",
            cause=f"{proof.manifest} was changed or damaged since",
            hint="bring it back as it was: without it nothing tells what the user changed on the target",
        )
    directory = catalogs.directory / record.name
    directory.mkdir(parents=True, exist_ok=True)
    part = directory / part_name(0)
    latest = catalogs.open(now).part_files
    temporary = temporary_name(part)
    with connect(scratch) as connection:
        create_entries(connection, latest, view="now_rows")
        _copy(connection, temporary, manifest=proof.manifest, tree=tree, hidden=join(tree, hidden))
        facts = connection.execute(
            """
            SELECT count(*), count(*) FILTER (WHERE type <> 'directory'),
                coalesce(sum(size) FILTER (WHERE type = 'file'), 0)::BIGINT
            FROM read_parquet(?)
            """,
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
