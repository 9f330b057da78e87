"""Changes of the retained source, from two of its catalogs."""

import os
from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from migrator.catalog.database import connect
from migrator.catalog.files import ClosedCatalog
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import create_entries
from migrator.core.entry import EntryType
from migrator.core.errors import Refused
from migrator.fs.model import RewrittenLinks
from migrator.fs.rules import CLOSED_MODE
from migrator.fs.rules_equality import same_attributes_sql, same_content_sql, same_inode_sql


class SourceChangeKind(StrEnum):
    """The kind of change to a path of a retained source. A directory that replaces another type of entry was `made`."""

    MADE = "made"
    CHANGED = "changed"
    REMOVED = "removed"


class SourceChange(Struct, frozen=True, kw_only=True):
    """A path of a retained source that differs from the final pass, except for what a rollback carried back. `stands`
    is the present type; None if nothing is there. Size and mtime are those of the scan.
    """

    path: bytes
    kind: SourceChangeKind
    stands: EntryType | None
    size_bytes: int | None = None
    mtime_ns: int | None = None


_CLOSED = f"(n.type = 'directory' AND n.uid = $closed_uid AND n.mode = {CLOSED_MODE})"
_CLOSING = f"""(
    {_CLOSED} AND b.gid = n.gid
    AND (b.xattr_digest IS NOT DISTINCT FROM n.xattr_digest OR b.acl_entries > 0 AND b.acl_entries = n.acl_entries)
)"""
"""The cutover closes directories, which changes owner, mode and the mask of an ACL."""

_DIFFER = f"""(
    NOT {same_content_sql("b.", "n.")}
    OR NOT {same_attributes_sql("b.", "n.")} AND NOT {_CLOSING}
    OR NOT coalesce({same_inode_sql("b.", "n.")}, true)
    OR b.type <> 'directory' AND (
        b.mtime_ns <> n.mtime_ns OR $ctimes AND b.nlink = 1 AND n.nlink = 1 AND b.ctime_ns <> n.ctime_ns
    )
)"""
"""The times of directories change with their entries, which are compared themselves. The ctime of a file with several
names changes when another user's names are purged; on Gluster it may differ from replica to replica.
"""

_CARRIED = """EXISTS (
    FROM carried WHERE carried.path = n.path AND carried.type = n.type
    AND ({same_content} OR n.type IN ('block', 'character'))
    AND (n.type = 'directory' OR carried.mtime_ns = n.mtime_ns)
)"""
"""The target had the same entry when a rollback carried it back. It may not keep device numbers."""

_CHANGED = f"""
    SELECT coalesce(b.path, n.path) AS path, n.type AS stands, n.size, n.mtime_ns,
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
    links: RewrittenLinks | None,
    scratch: Scratch,
) -> Sequence[SourceChange]:
    """Compare the catalog `now` of a tree with `before`; both are of the source.

    `carried` are the catalogs of the target that rollbacks have carried back since, oldest first. An entry may be gone
    if the last of them lacks it, and may be there if any of them has it. `ctimes`: the ctimes of the source are
    reliable. `links` are those of the rollbacks. Raises Refused.
    """
    if not now.record.whole:
        raise Refused(
            f"the changes on the source are unknown: catalog {now.record.name!r} is not whole",
            cause="; ".join(now.record.reasons),
            hint="fix that, then run the same command again",
        )
    with connect(scratch) as connection:
        create_entries(connection, before.part_files, view="before_rows")
        create_entries(connection, now.part_files, view="now_rows")
        carried_files = [one.part_files for one in carried]
        create_entries(connection, [file for files in carried_files for file in files], view="carried")
        create_entries(connection, carried_files[-1] if carried_files else (), view="last_carried")
        facts = {"tree": tree, "ctimes": ctimes, "carried": bool(carried), "closed_uid": os.geteuid()}
        same_content = same_content_sql("carried.", "n.", links=links)
        rows = connection.execute(_CHANGED.format(same_content=same_content), facts).fetchall()
    return [
        SourceChange(
            path=path,
            kind=SourceChangeKind(kind),
            stands=None if stands is None else EntryType(stands),
            size_bytes=size_bytes,
            mtime_ns=mtime_ns,
        )
        for path, stands, size_bytes, mtime_ns, kind in rows
    ]
