"""Queries of planning over a catalog; all run out of core."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb
from msgspec import Struct

from migrator.beegfs.model import LaidOut, LayoutRule, TreeOwner
from migrator.beegfs.rules_layout import describe_layout_rule
from migrator.catalog.database import connect, require_room
from migrator.catalog.files import ClosedCatalog, ClosedCatalogs
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import BRICK_USES, ROWS_AT_ONCE, create_entries, listed
from migrator.catalog.rules_packing import PathSequence
from migrator.core.entry import UserTree
from migrator.core.paths import RSYNC_PATH_LIMIT_BYTES, join, parent
from migrator.core.units import DAY_S, NS_PER_S
from migrator.fs.model import SurpriseKind, TargetCapabilities
from migrator.plan.losses import LossQuery, losses
from migrator.plan.model import AgeBucket, NotedOwners, Surprise, TinyDirectory, TreeUsage, Usages
from migrator.plan.rules import AGE_BOUNDS, LinkSpan, SpanMember
from migrator.plan.rules_surprises import MAX_EXAMPLES, SymlinkRow, describe_owners
from migrator.plan.schedule.model import TreeOnBrick
from migrator.reap.model import TreeRule
from migrator.reap.store import Reaping

# --- SQL
#
# Values are parameters; only constants of this module are put together into text. DuckDB has few functions on BLOB:
# comparison, `min`, `octet_length`, `hex`, and a cast to VARCHAR that escapes unprintable bytes. Paths are taken apart
# on `hex`, which is exact.


TINY_BELOW_BYTES = 4096
"""Files that tables count as tiny; no decision depends on it."""

_LONG_PATH = (
    "paths that no program can open in one piece (4,096 bytes and more with the mount's): they are copied all the same"
)

TREE_TABLES = "CREATE TEMP TABLE ancestors (path BLOB)"
"""`ancestors` holds the roots of the trees and all directories above them, which do not count as outside."""

_OUTSIDE = "tree IS NULL AND path NOT IN (SELECT path FROM ancestors)"


def usage(buckets: int) -> str:
    """Sums by tree, type and age buckets. The bytes of a link group count once in each tree, all its names as files."""

    def bucket(column: str) -> str:
        young = " ".join(f"WHEN {column} > $bound{index} THEN {index}" for index in range(buckets - 1))
        return f"CASE {young} ELSE {buckets - 1} END"

    return f"""
        WITH counted AS (
            SELECT tree, type, size, bytes, blocks, mtime_ns, atime_ns, 1 AS names, 0 AS groups
            FROM entries WHERE link_group IS NULL AND tree IS NOT NULL
            UNION ALL
            SELECT tree, type, size, bytes, blocks, mtime_ns, atime_ns, 1 AS names, 0 AS groups
            FROM entries
            WHERE link_group IS NULL AND {_OUTSIDE}
            UNION ALL
            SELECT tree, min(type), max(size), max(bytes), max(blocks), max(mtime_ns), max(atime_ns), count(*), 1
            FROM entries WHERE link_group IS NOT NULL GROUP BY tree, link_group
        )
        SELECT tree, type, {bucket("mtime_ns")} AS by_mtime, {bucket("atime_ns")} AS by_atime,
            sum(names)::BIGINT, sum(bytes)::BIGINT, (sum(blocks) * 512)::BIGINT,
            coalesce(sum(names) FILTER (WHERE type = 'file' AND size < $tiny), 0)::BIGINT,
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
"""The day on which the median file was last changed: exact to the day, in constant memory."""

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
        SELECT tree, uid, bytes
        FROM entries WHERE link_group IS NULL AND tree IS NOT NULL AND type = 'file' AND bytes > 0
        UNION ALL
        SELECT tree, min(uid), max(bytes)
        FROM entries WHERE link_group IS NOT NULL AND tree IS NOT NULL AND type = 'file' AND bytes > 0
        GROUP BY tree, link_group
    )
    SELECT tree, uid, sum(bytes)::BIGINT, count(*)::BIGINT FROM counted GROUP BY tree, uid ORDER BY tree, uid
"""
"""Usage by owner as a quota of the target counts it: holes of sparse files take nothing."""


OWNER_IDS = "SELECT list(DISTINCT uid), list(DISTINCT gid) FROM entries WHERE tree IS NOT NULL"

NOTED = "CREATE OR REPLACE TEMP TABLE noted (kind VARCHAR, id UINTEGER)"

OWNED_BY_NOTED = f"""
    SELECT kind, tree, count(*), sum(bytes)::BIGINT, min(path, $examples), list_sort(list(DISTINCT id)) FROM (
        SELECT * FROM entries JOIN noted ON uid = id WHERE kind <> '{SurpriseKind.NO_GROUP}'
        UNION ALL SELECT * FROM entries JOIN noted ON gid = id WHERE kind = '{SurpriseKind.NO_GROUP}'
    ) WHERE tree IS NOT NULL GROUP BY kind, tree
"""


_ABOVE = "regexp_replace(entries.path::VARCHAR, '/[^/]*$', '')"
"""The directory of a path in a tree, as a VARCHAR. The cast loses nothing, and is 9 times as fast as `hex`."""

LAYOUT = """
    CREATE TEMP TABLE size_rules (tree BLOB, place INTEGER, larger BIGINT);
    CREATE TEMP TABLE classed (tree BLOB, directory VARCHAR, place INTEGER, bytes BIGINT);
"""

CLASSED = f"""
    INSERT INTO classed
    WITH ruled AS (
        SELECT tree, {_ABOVE} AS directory, place, sum(bytes)::BIGINT AS bytes,
            sum(bytes) FILTER (bytes > larger) AS large
        FROM entries JOIN size_rules USING (tree) WHERE type = 'file' AND path <> tree GROUP BY ALL
    )
    SELECT tree, directory, min(place), min(bytes) FROM ruled WHERE large * 2 > bytes GROUP BY tree, directory
"""
"""The directories with more than half of their bytes in files above the size of a rule, by the first such rule."""

CLASSES = "SELECT tree, place, count(*), sum(bytes)::BIGINT, min(directory::BLOB, $examples) FROM classed GROUP BY ALL ORDER BY ALL"

TURNS = f"""
    SELECT entries.tree, entries.path, own.place FROM entries
    SEMI JOIN size_rules ON entries.tree = size_rules.tree
    LEFT JOIN classed AS own ON own.directory = entries.path::VARCHAR
    LEFT JOIN classed AS up ON up.directory = {_ABOVE} AND entries.path <> entries.tree
    WHERE entries.type = 'directory' AND own.place IS DISTINCT FROM up.place
    QUALIFY row_number() OVER (PARTITION BY entries.tree ORDER BY own.bytes DESC NULLS LAST, entries.path) <= $most
    ORDER BY entries.path
"""
"""The directories with another rule than the directory above."""

LARGEST_DIRECTORIES = f"""
    SELECT tree, arg_max(directory, names)::BLOB, max(names) FROM (
        SELECT tree, {_ABOVE} AS directory, count(*) AS names
        FROM entries WHERE tree IS NOT NULL AND path <> tree GROUP BY ALL
    ) GROUP BY tree
"""

TINY_IN = """
    WITH tiny AS (
        SELECT tree, substr(path::VARCHAR, length(tree::VARCHAR) + 2) AS below
        FROM entries WHERE type = 'file' AND size < $tiny AND tree IS NOT NULL AND path <> tree
    )
    SELECT tree, CASE WHEN contains(below, '/') THEN split_part(below, '/', 1) ELSE '' END::BLOB AS top, count(*) AS names
    FROM tiny GROUP BY tree, top
    QUALIFY row_number() OVER (PARTITION BY tree ORDER BY names DESC, top) <= $most
    ORDER BY tree, names DESC, top
"""
"""The directories in the top of each tree with the most tiny files in and below them; an empty name is the top itself."""

MOST_LAID_OUT = 2000
"""The most directories of one tree with a layout of their own: those with the most bytes."""


def findings(predicates: Mapping[SurpriseKind, str]) -> str:
    """The query that counts all kinds in one pass."""
    # Nearly every path has a fraction of a second: a scan of its own is cheaper than a row per path.
    joined = {kind: predicate for kind, predicate in predicates.items() if kind is not SurpriseKind.LOSS_TIME}
    kinds = ", ".join(f"CASE WHEN {predicate} THEN '{kind}' END" for kind, predicate in joined.items())
    query = f"""
        SELECT kind, tree, count(*), sum(bytes)::BIGINT, min(path, $examples) FROM (
            SELECT tree, bytes, path, unnest([{kinds}]) AS kind
            FROM entries WHERE tree IS NOT NULL AND ({" OR ".join(f"({one})" for one in joined.values())})
        ) WHERE kind IS NOT NULL GROUP BY kind, tree
    """
    if fraction := predicates.get(SurpriseKind.LOSS_TIME):
        query += f"""
            UNION ALL SELECT '{SurpriseKind.LOSS_TIME}', tree, count(*), sum(bytes)::BIGINT, min(path, $examples)
            FROM entries WHERE tree IS NOT NULL AND {fraction} GROUP BY tree
        """
    return query


# --- Queries


class CatalogQueryFiles(Struct, frozen=True):
    """Opens catalogs for planning; queries spill to `scratch`."""

    catalogs: ClosedCatalogs
    scratch: Scratch
    threads: int | None = None

    @contextmanager
    def open(self, name: str) -> "Iterator[CatalogQueries]":
        """Open a catalog. Raises UsageError if it does not exist, Refused if it is half written or damaged."""
        catalog = self.catalogs.open(name)
        with connect(self.scratch, threads=self.threads) as connection:
            require_room(self.scratch, catalog.record.rows)
            yield CatalogQueries(catalog, connection)


class CatalogQueries:
    """Queries over one closed catalog, one at a time and out of core. Same catalog, same answers."""

    def __init__(self, catalog: ClosedCatalog, connection: duckdb.DuckDBPyConnection) -> None:
        self.record = catalog.record
        self._bricks = sorted(walk.brick for walk in catalog.record.bricks)
        self._connection = connection
        self._to_pack = "entries"
        create_entries(connection, catalog.part_files)
        self._create_trees()

    def _create_trees(self) -> None:
        roots = {tree.path for tree in self.record.trees}
        above = {b"", *(path for root in roots for path in _ancestors(root))}
        self._connection.execute(TREE_TABLES)
        for path in sorted(roots | above):
            self._connection.execute("INSERT INTO ancestors VALUES (?)", [path])

    def _all(self, query: str, parameters: Mapping[str, object] | None = None) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, parameters).fetchall()

    def usages(self, *, now_s: float) -> Usages:
        """Counts, bytes and ages of every tree, and of all paths outside. Files last changed after `now_s` are in the
        first bucket, `in the future`.
        """
        tallies: dict[bytes | None, _TreeSums] = {tree.path: _TreeSums() for tree in self.record.trees}
        parameters: dict[str, object] = {"tiny": TINY_BELOW_BYTES}
        parameters |= {f"bound{index}": bound for index, bound in enumerate(_time_bounds_ns(now_s))}
        for row in self._all(usage(len(AGE_BOUNDS)), parameters):
            tallies.setdefault(row[0], _TreeSums()).add(row[1], row[2:])
        for tree, day in self._all(MEDIAN_DAY):
            if tree in tallies:
                # The middle of today and dates in the future would give negative ages.
                tallies[tree].median_age_s = max(now_s - (day + 0.5) * DAY_S, 0.0)
        for tree, path in self._all(LARGEST):
            if tree in tallies:
                tallies[tree].largest_path = path
        outside = tallies.pop(None, None)
        examples = self._all(OUTSIDE_EXAMPLES, {"examples": MAX_EXAMPLES})[0][0] if outside else None
        return Usages(
            trees=tuple(
                tallies[tree.path].usage(tree) for tree in sorted(self.record.trees, key=lambda tree: tree.path)
            ),
            outside=outside.usage(UserTree(path=b"", user="")) if outside else None,
            outside_examples=tuple(examples or ()),
        )

    def owners(self) -> Sequence[TreeOwner]:
        """Files with content by tree and owner, in that order."""
        return tuple(
            TreeOwner(tree=tree, uid=uid, size_bytes=size_bytes, files=files)
            for tree, uid, size_bytes, files in self._all(OWNED)
        )

    def largest_directories(self) -> Mapping[bytes, tuple[bytes, int]]:
        """The directory with the most entries in each tree, and their number."""
        return {tree: (path, names) for tree, path, names in self._all(LARGEST_DIRECTORIES)}

    def tiny_directories(self, trees: Collection[bytes], *, most: int) -> Iterator[TinyDirectory]:
        """For each of the trees, the `most` directories in its top that have the most tiny files in and below them."""
        for tree, top, files in self._all(TINY_IN, {"tiny": TINY_BELOW_BYTES, "most": most}) if trees else ():
            if tree in trees:
                yield TinyDirectory(tree=tree, path=join(tree, top) if top else tree, files=files)

    def owner_ids(self) -> tuple[frozenset[int], frozenset[int]]:
        """The uids and the gids of all paths in the trees."""
        uids, gids = self._all(OWNER_IDS)[0]
        return frozenset(uids or ()), frozenset(gids or ())

    def owner_surprises(self, noted: Mapping[SurpriseKind, NotedOwners]) -> Sequence[Surprise]:
        """The paths of noted owners, by tree and kind."""
        self._connection.execute(NOTED)
        for kind, owners in noted.items():
            self._connection.execute("INSERT INTO noted SELECT ?, unnest(?)", [kind.value, list(owners.names)])
        found = self._all(OWNED_BY_NOTED, {"examples": MAX_EXAMPLES}) if noted else []
        return tuple(
            Surprise(
                kind=SurpriseKind(kind),
                tree=tree,
                count=count,
                size_bytes=size_bytes,
                detail=describe_owners(noted[SurpriseKind(kind)], ids),
                examples=tuple(examples),
            )
            for kind, tree, count, size_bytes, examples, ids in found
        )

    def layout_surprises(self, rules: Mapping[bytes, Sequence[LayoutRule]]) -> Sequence[Surprise]:
        """The directories that size rules of their trees apply to, by tree and rule."""
        self._classify(rules)
        return tuple(
            Surprise(
                kind=SurpriseKind.LAYOUT,
                tree=tree,
                count=count,
                size_bytes=size_bytes,
                detail=describe_layout_rule(rules[tree][place]),
                examples=tuple(examples),
            )
            for tree, place, count, size_bytes, examples in self._all(CLASSES, {"examples": MAX_EXAMPLES})
        )

    def laid_out(self, rules: Mapping[bytes, Sequence[LayoutRule]]) -> Mapping[bytes, Sequence[LaidOut]]:
        """The directories of each tree with another layout than the directory above, in order of path."""
        self._classify(rules)
        found: dict[bytes, list[LaidOut]] = {}
        for tree, path, place in self._all(TURNS, {"most": MOST_LAID_OUT}):
            rule = None if place is None else rules[tree][place]
            found.setdefault(tree, []).append(LaidOut(path=path, rule=rule))
        return found

    def _classify(self, rules: Mapping[bytes, Sequence[LayoutRule]]) -> None:
        self._connection.execute(LAYOUT)
        for tree, of_tree in rules.items():
            for place, rule in enumerate(of_tree):
                self._connection.execute(
                    "INSERT INTO size_rules VALUES (?, ?, ?)", [tree, place, rule.larger_than_bytes]
                )
        if rules:
            self._connection.execute(CLASSED)

    def link_spans(self) -> Sequence[LinkSpan]:
        """Link groups with names in more than one tree, or in a tree and outside, by the set of trees."""
        self._connection.execute(SPANNING)
        members: dict[tuple[bytes, ...], list[SpanMember]] = {}
        for trees, tree, names, examples in self._all(SPAN_MEMBERS, {"examples": MAX_EXAMPLES}):
            # The empty path means no tree: no tree has this path.
            member = SpanMember(tree=tree or None, names=names, examples=tuple(examples))
            members.setdefault(tuple(trees), []).append(member)
        return tuple(
            LinkSpan(members=tuple(members[tuple(trees)]), groups=groups, size_bytes=size_bytes)
            for trees, groups, size_bytes in self._all(SPANS)
        )

    def symlinks(self) -> Iterator[SymlinkRow]:
        """Every symlink inside the trees, streamed in any order. Consume all before the next query."""
        reader = self._connection.sql(SYMLINKS).to_arrow_reader(ROWS_AT_ONCE)
        for block in reader:
            path, tree, target = (column.to_pylist() for column in block.columns)
            for index in range(len(path)):
                yield SymlinkRow(path=path[index], tree=tree[index], target=target[index] or b"")

    def findings(
        self, capabilities: TargetCapabilities | None, *, long_path_bytes: int, other_losses: Sequence[LossQuery] = ()
    ) -> Sequence[Surprise]:
        """Per tree: paths of at least `long_path_bytes`, and paths with attributes that the target cannot keep. None:
        not known.

        Labels that the kernel sets by its own policy (`security.selinux` and others) are counted only if the target
        keeps no attributes of that namespace.
        """
        possible = [*([] if capabilities is None else losses(capabilities)), *other_losses]
        predicates = {
            SurpriseKind.LONG_PATH: f"octet_length(path) >= {min(long_path_bytes, RSYNC_PATH_LIMIT_BYTES)}",
            **{loss.kind: loss.sql for loss in possible if loss.sql},
        }
        details = {SurpriseKind.LONG_PATH: _LONG_PATH, **{loss.kind: loss.words for loss in possible}}

        return tuple(
            Surprise(
                kind=SurpriseKind(kind),
                tree=tree,
                count=count,
                size_bytes=size_bytes,
                detail=details[SurpriseKind(kind)],
                examples=tuple(examples),
            )
            for kind, tree, count, size_bytes, examples in self._all(findings(predicates), {"examples": MAX_EXAMPLES})
        )

    def brick_uses(self) -> Sequence[TreeOnBrick]:
        """Usage of each brick by each user tree, and by paths outside every tree; by brick and tree, in order."""
        found = (
            TreeOnBrick(brick=brick, tree=tree, files=names, allocated_bytes=allocated_bytes)
            for brick, tree, names, _, allocated_bytes in self._all(BRICK_USES)
        )
        return sorted(found, key=lambda use: (use.brick or "", use.tree or b""))

    def listings(self, batches: Sequence[Sequence[bytes]]) -> Iterator[PathSequence]:
        """All paths of the trees of the batches (numbered from 1), for packing, without the roots of the trees; sorted
        and streamed by DuckDB. Consume all before the next query. The content of a link group is listed with the first
        tree of the batch that has one of its names; its names in other trees of the batch are listed as links to that
        name.
        """
        return listed(self._connection, batches, bricks=self._bricks, rows=self._to_pack)

    def reap(self, rules: Sequence[TreeRule], *, now_s: float) -> Reaping:
        """Select the files that the rules match; later listings leave out archived and skipped files."""
        reaping = Reaping(self._connection, self.record, rules, now_s=now_s)
        self._to_pack = reaping.keep_back()
        return reaping


@dataclass(slots=True)
class _TreeSums:
    """The sums of one tree, by the names of TreeUsage, and its age buckets as pairs of files and bytes."""

    sums: Counter[str] = field(default_factory=Counter)
    largest_path: bytes = b""
    median_age_s: float = 0.0
    by_mtime: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in AGE_BOUNDS])
    by_atime: list[list[int]] = field(default_factory=lambda: [[0, 0] for _ in AGE_BOUNDS])

    def usage(self, tree: UserTree) -> TreeUsage:
        return TreeUsage(
            tree=tree,
            **{name: self.sums[name] for name in _SUMS},
            largest_path=self.largest_path,
            by_mtime=_buckets(self.by_mtime),
            by_atime=_buckets(self.by_atime),
            median_age_s=self.median_age_s,
        )

    def add(self, kind: str, row: Sequence[int]) -> None:
        by_mtime, by_atime, names, size_bytes, allocated_bytes, tiny, largest_bytes, groups = row
        self.sums["allocated_bytes"] += allocated_bytes
        if kind == "directory":
            self.sums["directories"] += names
            return
        self.sums.update(files=names, size_bytes=size_bytes, tiny_files=tiny, link_groups=groups)
        self.sums["largest_bytes"] = max(self.sums["largest_bytes"], largest_bytes)
        if kind != "file":
            self.sums["symlinks" if kind == "symlink" else "specials"] += names
        for buckets, index in ((self.by_mtime, by_mtime), (self.by_atime, by_atime)):
            buckets[index][0] += names
            buckets[index][1] += size_bytes


_SUMS = (
    *("files", "directories", "size_bytes", "allocated_bytes", "tiny_files", "largest_bytes"),
    *("link_groups", "symlinks", "specials"),
)


def _buckets(sums: Sequence[Sequence[int]]) -> tuple[AgeBucket, ...]:
    return tuple(
        AgeBucket(label=label, max_age_s=max_age_s, files=files, size_bytes=size_bytes)
        for (label, max_age_s), (files, size_bytes) in zip(AGE_BOUNDS, sums, strict=True)
    )


def _time_bounds_ns(now_s: float) -> list[int]:
    """For each bucket but the last, the time after which a file of that age was changed."""
    now_ns = int(now_s * NS_PER_S)
    return [now_ns - max_age_s * NS_PER_S for _, max_age_s in AGE_BOUNDS if max_age_s is not None]


def _ancestors(path: bytes) -> Iterator[bytes]:
    current = parent(path)
    while current:
        yield current
        current = parent(current)
