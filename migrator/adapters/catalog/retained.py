"""What somebody changed on the source of a user who works on the target, found by two catalogs of that source."""

from collections.abc import Sequence
from pathlib import Path

from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.listings import create_entries
from migrator.adapters.catalog.reader import open_closed
from migrator.domain.entry import EntryType
from migrator.domain.errors import Refused
from migrator.ports.carrying_back import SourceChange, SourceChangeKind

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
"""The times of a directory change with its entries, which are looked at themselves. The ctime of a file with several names
changes when another user's names are purged; that of a file on Gluster may differ from replica to replica.
"""

_CARRIED = """EXISTS (
    FROM carried WHERE carried.path = n.path AND carried.type = n.type
    AND (n.type = 'directory' OR carried.size = n.size AND carried.mtime_ns = n.mtime_ns
        AND carried.symlink_target IS NOT DISTINCT FROM n.symlink_target)
)"""
"""The target had it like that when it was carried back."""

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
    before: Path, now: Path, *, tree: bytes, carried: Sequence[Path], ctimes: bool, temp_dir: Path
) -> Sequence[SourceChange]:
    """What the catalog `now` of a tree has otherwise than `before`, both directories of catalogs of the source. `carried` are
    catalogs of the target that were carried back since, oldest first: what the last of them lacks may be gone, and what any
    of them has may be there. `ctimes`: those of the source can be relied on. Raises UsageError, Refused.
    """
    after = open_closed(now)
    if not after.record.whole:
        raise Refused(
            f"catalog {after.record.name!r} is not whole: what changed on the source cannot be told",
            cause="; ".join(after.record.reasons),
            hint="see to that, then run the same command again",
        )
    with connect(temp_dir=temp_dir) as connection:
        create_entries(connection, open_closed(before).part_files, view="before_rows")
        create_entries(connection, after.part_files, view="now_rows")
        carried_files = [open_closed(one).part_files for one in carried]
        create_entries(connection, [file for files in carried_files for file in files], view="carried")
        create_entries(connection, carried_files[-1] if carried_files else (), view="last_carried")
        rows = connection.execute(_CHANGED, {"tree": tree, "ctimes": ctimes, "carried": bool(carried)}).fetchall()
    return [
        SourceChange(path=path, kind=SourceChangeKind(kind), stands=None if stands is None else EntryType(stands))
        for path, stands, kind in rows
    ]
