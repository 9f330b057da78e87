# ruff: noqa: S608 - the queries are put together from constants of this module only; values go in as parameters.
"""The SQL that finds what changed between two catalogs.

`base_rows` and `now_rows` are views of the catalogs. One join of both leaves what differs, in `differing`; everything
else works on that: `was` and `here` are its two sides. A path of `was` has a `place`: what it would be called now had
it only moved along with the directories above it. Where `place` is null, a directory above it is gone, and another
one has the name of that.
"""

from dataclasses import dataclass
from pathlib import Path

SETTLED_BEFORE_SCAN_S = 2
"""What changed later than so long before a scan began may change again without another time, size or ctime. An mtime that
lies so long after its end, in the future, was set by somebody: it says nothing, and would be sent with every pass.
"""

_COLUMNS = (
    *("path", "tree", "type", "size", "mtime_ns", "ctime_ns", "mode", "uid", "gid", "xattr_digest", "symlink_target"),
    *("rdev", "link_group", "nlink", "dev", "ino", "gfid"),
)

MACROS = """
    CREATE TEMP MACRO above(path) AS
        unhex(regexp_extract(hex(path), '^((?:..)*)2F(?:[013-9A-F].|2[0-9A-E])*$', 1));
    CREATE TEMP MACRO from_byte(path, place) AS array_slice(path, place, octet_length(path));
"""
"""`above` is the directory that holds a path. DuckDB has few functions on BLOB; on `hex` it is exact."""

SETTINGS_TABLES = """
    CREATE TEMP TABLE wanted (tree BLOB, resend BOOLEAN, renames BOOLEAN);
    CREATE TEMP TABLE unsettled (path BLOB);
    CREATE TEMP TABLE excluded (path BLOB)
"""
"""`resend`: nothing of the tree is known to have arrived. `renames`: they are looked for. `excluded` are paths (of the
base) that are taken for vanished although they were renamed, because their renames cannot be put into an order."""

_ATTRIBUTES = """(
    b.mode <> n.mode OR b.uid <> n.uid OR b.gid <> n.gid OR b.xattr_digest IS DISTINCT FROM n.xattr_digest
)"""

_DEVICE = """(b.type IN ('block', 'character') AND b.rdev <> n.rdev)"""

_OTHER_INODE = """(CASE
    WHEN b.gfid IS NOT NULL AND n.gfid IS NOT NULL THEN b.gfid <> n.gfid
    WHEN b.gfid IS NOT NULL OR n.gfid IS NOT NULL OR b.dev = n.dev THEN b.ino <> n.ino
    ELSE false
END)"""
"""Known to be another one. On Gluster the number is the low half of the gfid, whichever way it was scanned; elsewhere
numbers of different devices say nothing (a mount that was made anew may have another number of device)."""

_DIFFER = f"""(CASE
    WHEN b.type <> n.type OR {_ATTRIBUTES} OR b.mtime_ns <> n.mtime_ns OR {_OTHER_INODE} THEN true
    WHEN b.type = 'directory' THEN false
    ELSE b.size <> n.size OR b.ctime_ns <> n.ctime_ns OR b.symlink_target IS DISTINCT FROM n.symlink_target
        OR b.nlink <> n.nlink OR b.link_group IS DISTINCT FROM n.link_group OR {_DEVICE}
END)"""
"""The times of a directory and its size change with its entries; its ctime says nothing that mtime does not."""

_SELECTED = "tree IN (SELECT tree FROM wanted) AND path <> tree"
"""The roots of trees stay closed until the cutover and are not sent."""

_BASE = f"""(
    SELECT {", ".join(_COLUMNS)},
        (type <> 'directory' AND (ctime_ns > {{after_ns}} OR mtime_ns > {{after_ns}} AND mtime_ns <= {{until_ns}}))
            OR tree IN (SELECT tree FROM wanted WHERE resend) OR path IN (SELECT path FROM unsettled) AS unsettled
    FROM base_rows WHERE {_SELECTED}
)"""
_NOW = f"(SELECT {', '.join(_COLUMNS)} FROM now_rows WHERE {_SELECTED})"
_BOTH = ", ".join(f"b.{column} AS b_{column}, n.{column} AS n_{column}" for column in _COLUMNS)

_EQUAL = f"b.path = n.path AND NOT b.unsettled AND NOT {_DIFFER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Young:
    """What changed in the base at such a time may have changed again without a trace."""

    after_ns: int
    until_ns: int

    @property
    def base(self) -> str:
        """The rows of the base."""
        return _BASE.format(after_ns=self.after_ns, until_ns=self.until_ns)


def differing(young: Young) -> str:
    """Make `differing`: the one query that reads both catalogs."""
    return f"""
        CREATE TEMP TABLE differing AS
        SELECT {_BOTH}, b.unsettled AS b_unsettled
        FROM {young.base} b FULL OUTER JOIN {_NOW} n ON b.path = n.path
        WHERE b.path IS NULL OR n.path IS NULL OR b.unsettled OR {_DIFFER}
    """


def beneath(directories: int, young: Young) -> str:
    """Add to `differing` what is the same under its path beneath some directories: `$start0`, `$end0` and so on."""
    ranges = " OR ".join(f"(path > $start{index} AND path < $end{index})" for index in range(directories))
    return f"""
        INSERT INTO differing
        SELECT {_BOTH}, b.unsettled AS b_unsettled
        FROM (SELECT * FROM {young.base} WHERE {ranges}) b
        JOIN (SELECT * FROM {_NOW} WHERE {ranges}) n ON {_EQUAL}
    """


_REAPED = "CREATE TEMP TABLE reaped (path BLOB)"
_REAPED_OF = """
    CREATE TEMP TABLE reaped AS
    SELECT was.path FROM was SEMI JOIN read_parquet([{files}]) listed
        ON listed.path = was.path AND listed.size = was.size
        AND listed.mtime_ns = was.mtime_ns AND listed.ctime_ns = was.ctime_ns
    ANTI JOIN unsettled ON unsettled.path = was.path
"""


def reaped(reap_list: Path | None) -> str:
    """Make `reaped`: what of `was` is on the reap list as it was, and so was never sent. What is unsettled by name is to be
    sent all the same.
    """
    if reap_list is None:
        return _REAPED
    # A table function takes no parameters beside literals.
    return _REAPED_OF.format(files="'" + str(reap_list).replace("'", "''") + "'")


SIDES = f"""
    CREATE TEMP VIEW was AS
    SELECT {", ".join(f"b_{column} AS {column}" for column in _COLUMNS)}, b_unsettled AS unsettled
    FROM differing WHERE b_path IS NOT NULL;
    CREATE TEMP VIEW here AS
    SELECT {", ".join(f"n_{column} AS {column}" for column in _COLUMNS)} FROM differing WHERE n_path IS NOT NULL;
    CREATE TEMP TABLE gluster AS SELECT count(b_gfid) + count(n_gfid) > 0 AS is_it FROM differing
"""

_SAME_INODE = """
    b.ino = n.ino AND b.tree = n.tree
    AND CASE WHEN b.gfid IS NOT NULL AND n.gfid IS NOT NULL THEN b.gfid = n.gfid
        ELSE b.dev = n.dev OR (SELECT is_it FROM gluster) END
"""
_RENAMES_WANTED = """
    b.tree IN (SELECT tree FROM wanted WHERE renames) AND b.path NOT IN (SELECT path FROM excluded)
"""

PAIRED = f"""
    CREATE OR REPLACE TEMP TABLE paired AS
    SELECT b.path AS old, n.path AS new, b.tree
    FROM was b JOIN here n ON {_SAME_INODE}
    WHERE b.type = 'directory' AND n.type = 'directory' AND {_RENAMES_WANTED}
    QUALIFY count(*) OVER (PARTITION BY b.path) = 1 AND count(*) OVER (PARTITION BY n.path) = 1
"""
"""Directories with the same inode in both catalogs, under whatever names."""

HEADED = """
    CREATE OR REPLACE TEMP TABLE headed AS
    WITH parents AS (SELECT *, above(old) AS holder FROM paired)
    SELECT parents.old, parents.new, parents.tree
    FROM parents LEFT JOIN paired AS held ON held.old = parents.holder
    LEFT JOIN (SELECT path FROM was WHERE type = 'directory') known ON known.path = parents.holder
    WHERE parents.new IS DISTINCT FROM CASE
        WHEN held.old IS NOT NULL THEN held.new WHEN known.path IS NULL THEN parents.holder
    END || from_byte(parents.old, octet_length(parents.holder) + 1)
"""
"""Of those, what did not just move along with the directory that holds it. A directory that is not in `was` is where it
was."""

BLOCKED = """
    CREATE OR REPLACE TEMP TABLE blocked AS
    SELECT placed.path, placed.tree, placed.place
    FROM placed ANTI JOIN paired ON paired.old = placed.path SEMI JOIN paired AS taken ON taken.new = placed.place
    WHERE placed.type = 'directory'
"""
"""Directories that are gone and whose place another one has now: what lies in that did not lie in them."""

SEGMENTS_TABLE = "CREATE OR REPLACE TEMP TABLE segments (tree BLOB, start BLOB, cut BIGINT, target BLOB, held_by BLOB)"
"""From `start` to the next one's, paths lie nearest beneath a directory whose name has `cut` bytes and became `target`,
or that is gone from the place `held_by`; or (both null) are called what they were."""

SEGMENT_SOURCES = """
    SELECT old AS path, tree, new AS target, NULL::BLOB AS held_by FROM headed
    UNION ALL SELECT path, tree, NULL, place FROM blocked
    ORDER BY path || '/'::BLOB
"""

PLACED = """
    CREATE OR REPLACE TEMP TABLE placed AS
    SELECT was.path, was.tree, was.type, segments.held_by, CASE
        WHEN held_by IS NOT NULL THEN NULL
        WHEN target IS NOT NULL THEN target || from_byte(was.path, cut + 1)
        ELSE was.path
    END AS place
    FROM was ASOF LEFT JOIN segments ON was.tree = segments.tree AND was.path >= segments.start
"""

OCCUPIED = """
    SELECT path FROM (
        SELECT old AS path FROM headed WHERE old <> new UNION ALL SELECT path FROM blocked
    ) SEMI JOIN (SELECT path FROM here WHERE type = 'directory') now USING (path)
    ORDER BY path || '/'::BLOB
"""
"""Directories that moved, or are gone, while another one has their name: what is the same beneath it came there."""

SLOTS = """
    CREATE OR REPLACE TEMP TABLE slots AS
    SELECT placed.path AS old, here.path AS new
    FROM placed LEFT JOIN paired ON paired.old = placed.path
    JOIN here ON here.path = coalesce(paired.new, placed.place)
        AND (here.type = 'directory') = (placed.type = 'directory')
    LEFT JOIN paired AS taken ON taken.new = here.path
    WHERE placed.type <> 'directory' OR paired.old IS NOT NULL OR taken.new IS NULL
"""
"""Which path of the base is compared with which one of now, as long as files are not renamed."""

MOVED_FILES = f"""
    CREATE OR REPLACE TEMP TABLE moved_files AS
    SELECT old, new, tree, place, held_by FROM (
        SELECT b.path AS old, n.path AS new, b.tree, placed.place, placed.held_by,
            b.type = n.type AND b.size = n.size AND b.mtime_ns = n.mtime_ns
            AND b.symlink_target IS NOT DISTINCT FROM n.symlink_target AND NOT {_DEVICE}
            AND b.link_group IS NULL AND n.link_group IS NULL AND NOT b.unsettled
            AND b.path NOT IN (SELECT path FROM reaped) AS fits,
            count(*) OVER (PARTITION BY b.path) AS news, count(*) OVER (PARTITION BY n.path) AS olds
        FROM was b JOIN here n ON {_SAME_INODE} JOIN placed ON placed.path = b.path
        WHERE b.type <> 'directory' AND n.type <> 'directory' AND {_RENAMES_WANTED}
    ) WHERE fits AND news = 1 AND olds = 1 AND place IS DISTINCT FROM new
"""

RENAMED = """
    CREATE OR REPLACE TEMP TABLE renamed AS
    SELECT headed.old, headed.new, headed.tree, placed.place, placed.held_by, true AS directory
    FROM headed JOIN placed ON placed.path = headed.old WHERE placed.place IS DISTINCT FROM headed.new
    UNION ALL SELECT old, new, tree, place, held_by, false FROM moved_files
"""

TO_ORDER = "SELECT old, new, tree, place, held_by, directory FROM renamed WHERE directory OR place IS NULL"
"""Renames whose order matters: what is left over is of files, which have one place as soon as directories have moved."""

ORDERED_TABLE = "CREATE OR REPLACE TEMP TABLE ordered (number BIGINT, old BLOB, called BLOB)"

RENAMES = """
    SELECT renamed.tree, coalesce(ordered.called, renamed.place), renamed.new, here.type, here.size, here.mtime_ns
    FROM renamed LEFT JOIN ordered USING (old) JOIN here ON here.path = renamed.new
    ORDER BY ordered.number NULLS LAST, renamed.new
"""

ORIGINS = """
    CREATE OR REPLACE TEMP TABLE origins AS
    SELECT old, new, true AS by_rename FROM moved_files
    UNION ALL
    SELECT old, new, false FROM slots
    ANTI JOIN moved_files AS left_it ON left_it.old = slots.old ANTI JOIN moved_files AS came ON came.new = slots.new
"""

SENT = f"""
    CREATE OR REPLACE TEMP TABLE sent AS
    SELECT * FROM (
        SELECT n.path, n.tree, n.type, n.link_group, CASE WHEN n.type = 'file' THEN n.size ELSE 0 END AS bytes,
            CASE
                WHEN b.path IS NULL THEN 'new'
                WHEN origins.by_rename THEN CASE WHEN {_ATTRIBUTES} THEN 'attributes' END
                WHEN n.type = 'directory' THEN CASE
                    WHEN {_ATTRIBUTES} OR b.mtime_ns <> n.mtime_ns THEN 'attributes'
                    WHEN b.unsettled THEN 'unsettled'
                END
                WHEN b.type <> n.type THEN 'rewritten'
                WHEN n.type = 'file' AND n.size > b.size THEN 'grown'
                WHEN b.size <> n.size OR b.mtime_ns <> n.mtime_ns
                    OR b.symlink_target IS DISTINCT FROM n.symlink_target OR {_DEVICE} THEN 'rewritten'
                WHEN {_ATTRIBUTES} THEN 'attributes'
                WHEN b.ctime_ns <> n.ctime_ns OR b.nlink <> n.nlink OR b.link_group IS DISTINCT FROM n.link_group
                    OR b.gfid <> n.gfid THEN 'rewritten'
                WHEN reaped.path IS NOT NULL THEN CASE WHEN b.path <> n.path THEN 'unsettled' END
                WHEN b.unsettled THEN 'unsettled'
            END AS kind
        FROM here n LEFT JOIN origins ON origins.new = n.path LEFT JOIN was b ON b.path = origins.old
        LEFT JOIN reaped ON reaped.path = b.path
    ) WHERE kind IS NOT NULL
"""
"""A file of which nothing but the number of its inode differs is the same one: some file systems give numbers anew. A
gfid stays."""

VANISHED = """
    CREATE OR REPLACE TEMP TABLE vanished AS
    SELECT was.path, was.tree, was.type, placed.place, CASE WHEN was.type = 'file' THEN was.size ELSE 0 END AS bytes
    FROM was JOIN placed ON placed.path = was.path
    ANTI JOIN slots ON slots.old = was.path ANTI JOIN moved_files ON moved_files.old = was.path
"""

GONE = """
    SELECT vanished.path, vanished.tree, vanished.type, holders.path IS NULL AS outermost
    FROM vanished LEFT JOIN (SELECT path FROM vanished WHERE type = 'directory') holders
        ON holders.path = above(vanished.path)
    ORDER BY vanished.path || '/'::BLOB
"""
"""With what lies in a directory right behind it."""

BEFORE = f"""
    SELECT tree, count(*), sum(bytes)::BIGINT FROM base_rows WHERE {_SELECTED} GROUP BY tree
"""

TALLIES = """
    WITH found AS (
        SELECT tree, kind, type, bytes FROM sent
        UNION ALL SELECT tree, 'vanished', type, bytes FROM vanished
        UNION ALL
        SELECT here.tree, 'renamed', here.type, CASE WHEN here.type = 'file' THEN here.size ELSE 0 END
        FROM here SEMI JOIN renamed ON renamed.new = here.path
    )
    SELECT tree, kind, count(*), count(*) FILTER (WHERE type = 'directory'), sum(bytes)::BIGINT
    FROM found GROUP BY tree, kind
"""

ENTRIES = f"""
    CREATE TEMP TABLE touched AS SELECT DISTINCT link_group FROM sent WHERE link_group IS NOT NULL;
    CREATE TEMP TABLE chosen AS
    SELECT path FROM sent
    UNION ALL SELECT path FROM now_rows WHERE {_SELECTED} AND link_group IN (SELECT link_group FROM touched);
    CREATE TEMP TABLE entries AS
    WITH wanted_paths AS (
        SELECT path FROM chosen
        UNION ALL SELECT above(chosen.path) FROM chosen
            ANTI JOIN sent ON sent.path = chosen.path AND sent.type = 'directory' AND sent.kind <> 'new'
        UNION ALL SELECT above(new) FROM renamed
        UNION ALL SELECT above(place) FROM renamed WHERE place IS NOT NULL
        UNION ALL SELECT new FROM renamed WHERE directory
        UNION ALL SELECT above(place) FROM vanished WHERE place IS NOT NULL
    )
    SELECT path, tree, brick, type, bytes, link_group, mtime_ns, position
    FROM now_rows WHERE {_SELECTED} AND path IN (SELECT path FROM wanted_paths)
"""
"""What is listed: what is sent, with all names of its link groups, and the directories whose times change by that, by
renames or by what is taken away."""
