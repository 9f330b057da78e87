# ruff: noqa: S608 - the queries are put together from constants of this module only; values go in as parameters.
"""The SQL of lists to pack: the rows of a catalog, and those of the view `entries` in the order of packing."""

STEP_DIRECTORIES, STEP_FILES, STEP_GROUPS, STEP_LINKS = range(4)
STEPS = 4
"""The order of the lists of one brick's part of a tree; a slot is a number made of the tree's ordinal, the brick's place
and the step."""

_BYTES = "CASE WHEN type = 'file' THEN size ELSE 0 END"
"""What a path's content takes: directories and symlinks have a size too, which is none of the user's data."""

ROWS = f"""
    SELECT *, {_BYTES} AS bytes, (file_index::BIGINT << 40) + file_row_number AS position
    FROM read_parquet([{{files}}])
"""
"""`position` is the place in the scan's order: part by part, row by row."""

NO_ROWS = "SELECT *, 0::BIGINT AS bytes, 0::BIGINT AS position FROM {table}"

PLACEMENT = "CREATE OR REPLACE TEMP TABLE placement (tree BLOB, batch INTEGER, ordinal INTEGER)"
BRICK_TABLE = "CREATE OR REPLACE TEMP TABLE bricks (brick VARCHAR, place BIGINT)"
"""The bricks that were walked, numbered from 1; 0 is what is of none of them."""

LISTINGS = f"""
    WITH placed AS (
        SELECT batch, ordinal, path, type, bytes, link_group, position, mtime_ns, coalesce(bricks.place, 0) AS brick
        FROM {{rows}} AS entries JOIN placement USING (tree) LEFT JOIN bricks USING (brick) WHERE path <> tree
    ), linked AS (
        SELECT batch, ordinal, path, bytes, link_group, position, mtime_ns,
            first_value(ordinal) OVER names AS home,
            first_value(path) OVER names AS first_path,
            first_value(position) OVER names AS first_position,
            CASE WHEN min(brick) OVER whole_group = max(brick) OVER whole_group THEN brick ELSE 0 END AS brick
        FROM placed WHERE link_group IS NOT NULL AND type <> 'directory'
        WINDOW names AS (PARTITION BY batch, link_group ORDER BY ordinal, position),
            whole_group AS (PARTITION BY batch, link_group)
    ), listed AS (
        SELECT batch, CASE WHEN type = 'directory' THEN {STEP_DIRECTORIES} ELSE {STEP_FILES} END AS step,
            ordinal, CASE WHEN type = 'directory' THEN 0 ELSE brick END AS brick,
            position AS place, 0::BIGINT AS own, path, bytes, mtime_ns,
            NULL::UBIGINT AS link_group, NULL::BLOB AS link_to
        FROM placed WHERE link_group IS NULL OR type = 'directory'
        UNION ALL
        SELECT batch, {STEP_GROUPS}, ordinal, brick, first_position, position, path, bytes, mtime_ns, link_group, NULL
        FROM linked WHERE ordinal = home
        UNION ALL
        SELECT batch, {STEP_LINKS}, ordinal, 0, position, 0, path, 0, mtime_ns, link_group, first_path
        FROM linked WHERE ordinal <> home
    )
    SELECT (ordinal * $places + brick) * {STEPS} + step AS slot, path, bytes, link_group, link_to, mtime_ns
    FROM listed
    ORDER BY batch, CASE step WHEN {STEP_GROUPS} THEN {STEP_FILES} ELSE step END, ordinal, brick, step, place, own
"""
"""Everything is ordered by numbers: the scan's order keeps a directory's files together, and a link group stands
where its first name does. A group's content goes to the first tree of the batch that has a name of it. All names of a
file lie on one brick; where the rows say otherwise it moved while it was scanned, and is of none."""
