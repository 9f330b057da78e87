# ruff: noqa: S608 - the queries are put together from constants of this module only; values go in as parameters.
"""The SQL that chooses what is reaped: from the view `entries` and the table `reap_rules`. Out of core, one pass over the
catalog; what is chosen is kept as numbers, and its names are read again when they are asked for.
"""

from collections.abc import Sequence

from migrator.decide.reap_globs import ANY, ReapGlob, Token

_EXECUTABLE = 0o111

RULES_TABLE = """
    CREATE OR REPLACE TEMP TABLE reap_rules (
        tree BLOB, ordinal INTEGER, action VARCHAR, smaller BIGINT, before_ns BIGINT, by_atime BOOLEAN, hidden BOOLEAN,
        executables BOOLEAN, linked BOOLEAN, excludes INTEGER
    )
"""
"""`excludes` is a number of `$exclude0` and so on, null where nothing is excluded."""

KEEP_FILES = """
    SELECT array_slice(path, 1, octet_length(path) - $length) AS directory, tree
    FROM entries SEMI JOIN reap_rules USING (tree)
    WHERE type <> 'directory' AND octet_length(path) > $length
        AND array_slice(path, octet_length(path) - $length + 1, octet_length(path)) = $suffix
    ORDER BY directory || '/'::BLOB
"""
"""Directories that hold the opt-out file, in the order of what lies in them. `suffix` begins with a slash."""

KEPT_TABLE = "CREATE OR REPLACE TEMP TABLE kept (tree BLOB, start BLOB, until BLOB)"
"""What lies below directories with an opt-out file: ranges that do not overlap."""


def candidates(excludes: int, *, after: str, until: str) -> str:
    """Make `candidates`: what the rules match, opt-outs and the names of one file not looked at yet. Files that changed
    while they were scanned (`after`, `until`) are not taken: a delta pass would send them whether they change or not.
    """
    below = "array_slice(path, octet_length(tree) + 2, octet_length(path))"
    excluded = " ".join(
        f"WHEN {number} THEN regexp_matches(hex({below}), $exclude{number})" for number in range(excludes)
    )
    return f"""
        CREATE OR REPLACE TEMP TABLE candidates AS
        SELECT position, ordinal, tree, size, blocks, nlink, link_group,
            CASE WHEN by_atime THEN atime_ns ELSE mtime_ns END AS time_ns,
            CASE WHEN tree IN (SELECT tree FROM kept) THEN path END AS path
        FROM entries JOIN reap_rules USING (tree)
        WHERE type = 'file' AND path <> tree
            AND (smaller IS NULL OR size < smaller)
            AND (before_ns IS NULL OR CASE WHEN by_atime THEN atime_ns ELSE mtime_ns END < before_ns)
            AND (executables OR mode & {_EXECUTABLE} = 0)
            AND (linked OR nlink <= 1)
            AND NOT (ctime_ns > {after} OR (mtime_ns > {after} AND mtime_ns <= {until}))
            AND (hidden OR NOT contains(array_slice(path, octet_length(tree) + 1, octet_length(path))::VARCHAR, '/.'))
            {f"AND NOT CASE excludes {excluded} ELSE false END" if excludes else ""}
    """


CHOSEN = """
    CREATE OR REPLACE TEMP TABLE reaped AS
    WITH free AS (
        SELECT position, ordinal, size, blocks, nlink, link_group, time_ns FROM candidates WHERE path IS NULL
        UNION ALL
        SELECT position, ordinal, size, blocks, nlink, link_group, time_ns
        FROM (SELECT * FROM candidates WHERE path IS NOT NULL) AS found
        ASOF LEFT JOIN kept ON found.tree = kept.tree AND found.path >= kept.start
        WHERE kept.start IS NULL OR found.path >= kept.until
    )
    SELECT position, ordinal, size, blocks, nlink, time_ns FROM free WHERE nlink <= 1
    UNION ALL
    SELECT position, ordinal, size, blocks, nlink, time_ns FROM (
        SELECT *, count(*) OVER (PARTITION BY ordinal, link_group) AS names
        FROM free WHERE nlink > 1 AND link_group IS NOT NULL
    ) WHERE names = nlink
"""
"""Of a file with several names either all are reaped, or none is."""

TALLIES = """
    SELECT ordinal, nlink, count(*), sum(size)::BIGINT, sum(blocks)::BIGINT, min(time_ns) FROM reaped GROUP BY ALL
"""
"""By the number of names: all of a file's are there, so that dividing by it counts each file once."""

KEPT_BACK = "SELECT position FROM reaped JOIN reap_rules USING (ordinal) WHERE action <> 'list'"

LISTED_VIEW = f"CREATE OR REPLACE TEMP VIEW moving AS SELECT * FROM entries ANTI JOIN ({KEPT_BACK}) USING (position)"
"""What chunks are packed from."""

ROWS = """
    SELECT path, entries.tree, action, entries.size, entries.blocks, mtime_ns, ctime_ns, atime_ns, ino, gfid, uid, gid, mode
    FROM entries JOIN reaped USING (position) JOIN reap_rules USING (ordinal)
    WHERE $listed OR action <> 'list'
    ORDER BY ordinal, position
"""

DIRECTORIES = """
    WITH held AS (
        SELECT ordinal, unhex(regexp_extract(hex(path), '^((?:..)*)2F(?:[013-9A-F].|2[0-9A-E])*$', 1)) AS directory,
            reaped.size AS size
        FROM entries JOIN reaped USING (position)
    )
    SELECT ordinal, directory, count(*), sum(size)::BIGINT AS bytes FROM held GROUP BY ordinal, directory
    QUALIFY row_number() OVER (PARTITION BY ordinal ORDER BY bytes DESC, directory) <= $most
    ORDER BY ordinal, bytes DESC, directory
"""


def globs_pattern(globs: Sequence[ReapGlob]) -> str:
    """A pattern for the hexadecimal form of a path below its tree. Every part of it takes whole bytes."""
    alternatives = ("(?:(?:..)*2F)?" * glob.anywhere + "2F".join(map(_component, glob.components)) for glob in globs)
    return f"^(?:{'|'.join(alternatives)})(?:2F|$)"


def _component(tokens: Sequence[Token]) -> str:
    return "".join(map(_token, tokens))


_NAME_BYTE = "(?:[013-9A-F].|2[0-9A-E])"


def _token(token: Token) -> str:
    if token is ANY:
        return f"{_NAME_BYTE}*"
    if not token:
        # No byte at all; RE2 has no way to say so but a letter that hexadecimal does not have.
        return "Z"
    by_high: dict[str, str] = {}
    for byte in sorted(token):
        high = f"{byte >> 4:X}"
        by_high[high] = by_high.get(high, "") + f"{byte & 0xF:X}"
    return "(?:" + "|".join(f"{high}[{lows}]" for high, lows in by_high.items()) + ")"
