# ruff: noqa: S608 - the queries are put together from constants of this module only; values go in as parameters.
"""The SQL of planning. Values go in as parameters; what is put together here are constants of this module.

DuckDB has few functions on BLOB: comparison, `min`, `octet_length`, `hex`, and a cast to VARCHAR that escapes what is
not printable. Where a path must be taken apart it is done on `hex`, which is exact.
"""

from migrator.domain.entry import XattrKinds
from migrator.domain.paths import RSYNC_PATH_LIMIT_BYTES
from migrator.domain.plan import SurpriseKind
from migrator.domain.site import TargetCapabilities

_LINUX_NAME_LIMIT_BYTES = 255

TREE_TABLES = "CREATE TEMP TABLE tree_roots (path BLOB); CREATE TEMP TABLE ancestors (path BLOB)"
"""`ancestors` holds the roots of the trees and all directories on the way to them: they are not left outside."""

_OUTSIDE = "tree IS NULL AND path NOT IN (SELECT path FROM ancestors)"


def usage(buckets: int) -> str:
    """Sums by tree, type and age buckets. A link group counts once in each tree, its names all count as files."""

    def bucket(column: str) -> str:
        young = " ".join(f"WHEN {column} > $bound{index} THEN {index}" for index in range(buckets - 1))
        return f"CASE {young} ELSE {buckets - 1} END"

    return f"""
        WITH counted AS (
            SELECT tree, type, bytes, blocks, mtime_ns, atime_ns, 1 AS names, 0 AS groups
            FROM entries WHERE link_group IS NULL AND tree IS NOT NULL
            UNION ALL
            SELECT tree, type, bytes, blocks, mtime_ns, atime_ns, 1 AS names, 0 AS groups
            FROM entries
            WHERE link_group IS NULL AND {_OUTSIDE}
            UNION ALL
            SELECT tree, min(type), max(bytes), max(blocks), max(mtime_ns), max(atime_ns), count(*), 1
            FROM entries WHERE link_group IS NOT NULL GROUP BY tree, link_group
        )
        SELECT tree, type, {bucket("mtime_ns")} AS by_mtime, {bucket("atime_ns")} AS by_atime,
            sum(names)::BIGINT, sum(bytes)::BIGINT, (sum(blocks) * 512)::BIGINT,
            coalesce(sum(names) FILTER (WHERE type = 'file' AND bytes < $tiny), 0)::BIGINT,
            max(bytes)::BIGINT, sum(groups)::BIGINT
        FROM counted GROUP BY ALL
    """


MEDIAN_DAY = """
    WITH days AS (
        SELECT tree, mtime_ns // 86400000000000 AS day, count(*) AS names
        FROM entries WHERE type <> 'directory' GROUP BY ALL
    ), summed AS (
        SELECT tree, day, sum(names) OVER (PARTITION BY tree ORDER BY day) AS so_far,
            sum(names) OVER (PARTITION BY tree) AS total
        FROM days
    )
    SELECT tree, min(day)::BIGINT FROM summed WHERE so_far * 2 >= total GROUP BY tree
"""
"""The day on which the median file was changed: exact to the day, and in memory that does not grow with the files."""

LARGEST = """
    WITH top AS (SELECT tree, max(bytes) AS bytes FROM entries WHERE type = 'file' GROUP BY tree)
    SELECT entries.tree, min(entries.path) FROM entries
    JOIN top ON entries.tree IS NOT DISTINCT FROM top.tree AND entries.bytes = top.bytes
    WHERE entries.type = 'file' GROUP BY entries.tree
"""

OUTSIDE_EXAMPLES = f"SELECT min(path, $examples) FROM entries WHERE {_OUTSIDE}"

SPANNING = """
    CREATE OR REPLACE TEMP TABLE spanning AS
    WITH linked AS (
        SELECT link_group, coalesce(tree, ''::BLOB) AS tree, path, bytes FROM entries WHERE link_group IS NOT NULL
    ), several AS (
        SELECT link_group FROM linked GROUP BY link_group HAVING min(tree) <> max(tree)
    ), spans AS (
        SELECT link_group, list_sort(list(DISTINCT tree)) AS trees, max(bytes) AS group_bytes
        FROM linked SEMI JOIN several USING (link_group) GROUP BY link_group
    )
    SELECT link_group, trees, group_bytes, tree, path FROM linked JOIN spans USING (link_group)
"""

SPAN_MEMBERS = """
    SELECT trees, tree, count(*), min(path, $examples) FROM spanning GROUP BY trees, tree ORDER BY trees, tree
"""

SPANS = """
    WITH groups AS (SELECT DISTINCT link_group, trees, group_bytes FROM spanning)
    SELECT trees, count(*), sum(group_bytes)::BIGINT FROM groups GROUP BY trees ORDER BY trees
"""

SYMLINKS = "SELECT path, tree, symlink_target FROM entries WHERE type = 'symlink' AND tree IS NOT NULL"

OWNED = """
    WITH counted AS (
        SELECT tree, uid, least(bytes, blocks * 512) AS bytes
        FROM entries WHERE link_group IS NULL AND tree IS NOT NULL AND type = 'file' AND bytes > 0
        UNION ALL
        SELECT tree, min(uid), least(max(bytes), max(blocks) * 512)
        FROM entries WHERE link_group IS NOT NULL AND tree IS NOT NULL AND type = 'file' AND bytes > 0
        GROUP BY tree, link_group
    )
    SELECT tree, uid, sum(bytes)::BIGINT, count(*)::BIGINT FROM counted GROUP BY tree, uid ORDER BY tree, uid
"""
"""By owner what a quota of the target counts: of a file with holes, what is allocated."""

OWNERS = """
    CREATE OR REPLACE TEMP TABLE owners AS
    WITH counts AS (SELECT tree, uid, count(*) AS names FROM entries WHERE tree IS NOT NULL GROUP BY ALL),
    majority AS (SELECT tree, arg_max(uid, (names, -(uid::BIGINT))) AS uid FROM counts GROUP BY tree),
    roots AS (
        SELECT path AS tree, min(uid) AS uid FROM entries
        WHERE type = 'directory' AND path IN (SELECT path FROM tree_roots) GROUP BY path
    )
    SELECT counts.tree, coalesce(nullif(any_value(roots.uid), 0), any_value(majority.uid)) AS owner,
        list(DISTINCT counts.uid) AS uids
    FROM counts JOIN majority USING (tree) LEFT JOIN roots USING (tree) GROUP BY counts.tree
"""
"""A tree belongs to whom its root belongs to; where that is root, or unknown, to whom most of its paths belong."""

FOREIGN_PEOPLE = "SELECT tree, (len(uids) - 1)::BIGINT FROM owners"


def findings(capabilities: TargetCapabilities, long_path_bytes: int) -> tuple[str, dict[str, object]]:
    """The query that counts every kind in one pass, with its parameters (besides `$examples`)."""
    parameters: dict[str, object] = {}
    predicates = {
        SurpriseKind.FOREIGN_OWNER: "uid <> owner",
        SurpriseKind.LONG_PATH: "octet_length(path) >= $long_path",
        **_losses(capabilities, parameters),
    }
    parameters["long_path"] = min(long_path_bytes, RSYNC_PATH_LIMIT_BYTES)
    # Nearly every path has a fraction of a second: a scan of its own, without the list of the other kinds.
    fraction = predicates.pop(SurpriseKind.LOSS_TIME, None)
    kinds = ", ".join(f"CASE WHEN {predicate} THEN '{kind}' END" for kind, predicate in predicates.items())
    query = f"""
        SELECT kind, tree, count(*), sum(bytes)::BIGINT, min(path, $examples) FROM (
            SELECT tree, bytes, path, unnest([{kinds}]) AS kind
            FROM entries JOIN owners USING (tree) WHERE {" OR ".join(predicates.values())}
        ) WHERE kind IS NOT NULL GROUP BY kind, tree
    """
    if fraction is not None:
        query += f"""
            UNION ALL SELECT '{SurpriseKind.LOSS_TIME}', tree, count(*), sum(bytes)::BIGINT, min(path, $examples)
            FROM entries WHERE tree IS NOT NULL AND {fraction} GROUP BY tree
        """
    return query, parameters


def _losses(capabilities: TargetCapabilities, parameters: dict[str, object]) -> dict[SurpriseKind, str]:
    def value(name: str, content: object) -> str:
        parameters[name] = content
        return f"${name}"

    device = "type IN ('block', 'character')"
    found: dict[SurpriseKind, str] = {}
    if capabilities.time_granularity_ns > 1:
        found[SurpriseKind.LOSS_TIME] = f"mtime_ns % {value('granularity', capabilities.time_granularity_ns)} <> 0"
    if not capabilities.makes_devices:
        found[SurpriseKind.LOSS_DEVICE_NODE] = device
    elif not capabilities.keeps_device_numbers:
        found[SurpriseKind.LOSS_DEVICE] = f"{device} AND rdev <> 0"
    if not capabilities.makes_fifos:
        found[SurpriseKind.LOSS_FIFO] = "type = 'fifo'"
    if not capabilities.makes_sockets:
        found[SurpriseKind.LOSS_SOCKET] = "type = 'socket'"
    longest = value("symlink_target", capabilities.max_symlink_target_bytes)
    found[SurpriseKind.LOSS_SYMLINK_TARGET] = f"type = 'symlink' AND octet_length(symlink_target) > {longest}"
    shown = value("symlink_mode", capabilities.symlink_mode)
    found[SurpriseKind.LOSS_SYMLINK_MODE] = f"type = 'symlink' AND mode <> {shown}"
    if not capabilities.keeps_symlink_owner:
        found[SurpriseKind.LOSS_SYMLINK_OWNER] = "type = 'symlink' AND (uid <> 0 OR gid <> 0)"
    if not capabilities.keeps_symlink_times:
        found[SurpriseKind.LOSS_SYMLINK_TIME] = "type = 'symlink'"
    if not capabilities.keeps_hard_links:
        found[SurpriseKind.LOSS_HARD_LINK] = "link_group IS NOT NULL"
    if not capabilities.keeps_sparse:
        found[SurpriseKind.LOSS_SPARSENESS] = "type = 'file' AND blocks * 512 < size"
    found.update(_xattr_losses(capabilities, value("xattr_bytes", capabilities.max_xattr_value_bytes)))
    acl = f"xattr_kinds & {int(XattrKinds.ACL_ACCESS | XattrKinds.ACL_DEFAULT)} <> 0"
    if capabilities.keeps_acls:
        acl += f" AND acl_entries > {value('acl_entries', capabilities.max_acl_entries)}"
    found[SurpriseKind.LOSS_ACL] = acl
    name = _name_loss(capabilities, parameters)
    if name:
        found[SurpriseKind.LOSS_NAME] = name
    return {kind: f"({predicate})" for kind, predicate in found.items()}


def _xattr_losses(capabilities: TargetCapabilities, limit: str) -> dict[SurpriseKind, str]:
    carried = XattrKinds.NONE
    # Of `trusted.*` nothing is ever carried.
    refused = XattrKinds.TRUSTED
    security = XattrKinds.CAPABILITY | XattrKinds.SECURITY
    for kinds, keeps in (
        (XattrKinds.USER, capabilities.keeps_user_xattrs),
        (security, capabilities.keeps_security_xattrs),
    ):
        if keeps:
            carried |= kinds
        else:
            refused |= kinds
    return {
        SurpriseKind.LOSS_XATTR_SIZE: f"xattr_kinds & {int(carried)} <> 0 AND xattr_largest_bytes > {limit}",
        SurpriseKind.LOSS_XATTR_NAMESPACE: f"xattr_kinds & {int(refused)} <> 0",
    }


def _name_loss(capabilities: TargetCapabilities, parameters: dict[str, object]) -> str:
    checks: list[str] = []
    if capabilities.max_name_bytes < _LINUX_NAME_LIMIT_BYTES:
        # A run of so many bytes, none of them a slash (2F), that begins at a byte and not in its middle.
        component = "(?:[013-9A-F][0-9A-F]|2[0-9A-E])"
        parameters["long_name"] = f"^(?:..)*?{component}{{{capabilities.max_name_bytes + 1}}}"
        checks.append("(octet_length(path) > $name_bytes AND regexp_matches(hex(path), $long_name))")
        parameters["name_bytes"] = capabilities.max_name_bytes
    for index, name in enumerate(capabilities.reserved_names):
        parameters[f"reserved{index}"] = name
        parameters[f"reserved{index}_pattern"] = f"^(?:(?:..)*2F)?{name.hex().upper()}(?:2F|$)"
        # Quick and too wide first, on the escaped text; exact second.
        checks.append(
            f"CASE WHEN contains(path::VARCHAR, ($reserved{index}::BLOB)::VARCHAR) "
            f"THEN regexp_matches(hex(path), $reserved{index}_pattern) ELSE false END"
        )
    return " OR ".join(checks)
