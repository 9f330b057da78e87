"""What planning asks of a catalog: usage, surprises and the lists to pack. Every query is out of core."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb

from migrator.adapters.catalog import usage_sql
from migrator.adapters.catalog.brick_usage import BRICK_USES
from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.listings import ROWS_AT_ONCE, create_entries, listed
from migrator.adapters.catalog.reader import ClosedCatalog, open_closed
from migrator.adapters.catalog.reaping import Reaping
from migrator.decide.ages import AGE_BOUNDS
from migrator.decide.batching import LinkSpan, SpanMember
from migrator.decide.packing import Listing
from migrator.decide.surprises import MAX_EXAMPLES, Finding, SymlinkRow
from migrator.domain.paths import parent
from migrator.domain.plan import AgeBucket, SurpriseKind, TreeUsage
from migrator.domain.quota import TreeOwner
from migrator.domain.reap import TreeRule
from migrator.domain.scan import CatalogRecord
from migrator.domain.schedule_facts import TreeOnBrick
from migrator.domain.site import TargetCapabilities
from migrator.domain.tree import UserTree
from migrator.domain.units import DAY_S, MIB, NS_PER_S
from migrator.ports.usage import TINY_BELOW_BYTES, CatalogQueries, Usages

DUCKDB_MEMORY_BYTES = 448 * MIB
"""Of the 1 GB that planning may take; the rest is for what DuckDB does not count, pyarrow and the open chunks."""


class CatalogQueryFiles:
    """The `CatalogReader` port over a directory of catalogs; `temp_dir` takes what DuckDB spills."""

    def __init__(self, directory: Path, *, temp_dir: Path, threads: int | None = None) -> None:
        self._directory = directory
        self._temp_dir = temp_dir
        self._threads = threads

    @contextmanager
    def open(self, name: str) -> Iterator[CatalogQueries]:
        """Raises UsageError where there is no such catalog, Refused where it is half written or damaged."""
        catalog = open_closed(self._directory / name)
        with connect(DUCKDB_MEMORY_BYTES, self._temp_dir, threads=self._threads) as connection:
            yield UsageQueries(catalog, connection)


class UsageQueries:
    """The `CatalogQueries` port. One query at a time."""

    def __init__(self, catalog: ClosedCatalog, connection: duckdb.DuckDBPyConnection) -> None:
        self._record = catalog.record
        self._bricks = sorted(walk.brick for walk in catalog.record.bricks)
        self._connection = connection
        self._to_pack = "entries"
        create_entries(connection, catalog.part_files)
        self._create_trees()

    @property
    def record(self) -> CatalogRecord:
        """The closing record."""
        return self._record

    def _create_trees(self) -> None:
        roots = {tree.path for tree in self._record.trees}
        above = {b"", *(path for root in roots for path in _ancestors(root))}
        self._connection.execute(usage_sql.TREE_TABLES)
        for root in sorted(roots):
            self._connection.execute("INSERT INTO tree_roots VALUES (?)", [root])
        for path in sorted(roots | above):
            self._connection.execute("INSERT INTO ancestors VALUES (?)", [path])

    def _all(self, query: str, parameters: dict[str, object] | None = None) -> list[tuple[object, ...]]:
        return self._connection.execute(query, parameters).fetchall()

    def usages(self, *, now_s: float, tiny_below_bytes: int = TINY_BELOW_BYTES) -> Usages:
        """Counts, bytes and ages of every tree, and of what lies outside."""
        tallies: dict[bytes | None, _Tally] = {tree.path: _Tally() for tree in self._record.trees}
        parameters: dict[str, object] = {"tiny": tiny_below_bytes}
        parameters |= {f"bound{index}": bound for index, bound in enumerate(_time_bounds_ns(now_s))}
        for row in self._all(usage_sql.usage(len(AGE_BOUNDS)), parameters):
            _tally(tallies, row)
        for tree, day in self._all(usage_sql.MEDIAN_DAY):
            if tree in tallies:
                # The middle of the day of now, and what is dated in the future, is not younger than nothing.
                tallies[_path_or_none(tree)].median_age_s = max(now_s - (_int(day) + 0.5) * DAY_S, 0.0)
        for tree, path in self._all(usage_sql.LARGEST):
            if tree in tallies:
                tallies[_path_or_none(tree)].largest_path = _bytes(path)
        outside = tallies.pop(None, None)
        examples = self._all(usage_sql.OUTSIDE_EXAMPLES, {"examples": MAX_EXAMPLES})[0][0] if outside else None
        return Usages(
            trees=tuple(
                tallies[tree.path].usage(tree) for tree in sorted(self._record.trees, key=lambda tree: tree.path)
            ),
            outside=outside.usage(UserTree(path=b"", user="")) if outside else None,
            outside_examples=_paths(examples),
        )

    def owners(self) -> Sequence[TreeOwner]:
        """By tree and owner the files with content, in that order."""
        return tuple(
            TreeOwner(tree=_bytes(tree), uid=_int(uid), size_bytes=_int(size_bytes), files=_int(files))
            for tree, uid, size_bytes, files in self._all(usage_sql.OWNED)
        )

    def link_spans(self) -> Sequence[LinkSpan]:
        """Link groups with names in more than one tree, or in a tree and outside, by the set of trees."""
        self._connection.execute(usage_sql.SPANNING)
        members: dict[tuple[bytes, ...], list[SpanMember]] = {}
        for trees, tree, names, examples in self._all(usage_sql.SPAN_MEMBERS, {"examples": MAX_EXAMPLES}):
            members.setdefault(_paths(trees), []).append(
                # No tree's path is empty, so that the empty one can stand for what has no tree.
                SpanMember(tree=_bytes(tree) or None, names=_int(names), examples=_paths(examples))
            )
        return tuple(
            LinkSpan(members=tuple(members[_paths(trees)]), groups=_int(groups), size_bytes=_int(size_bytes))
            for trees, groups, size_bytes in self._all(usage_sql.SPANS)
        )

    def symlinks(self) -> Iterator[SymlinkRow]:
        """Every symlink inside the trees, streamed."""
        reader = self._connection.sql(usage_sql.SYMLINKS).to_arrow_reader(ROWS_AT_ONCE)
        for block in reader:
            path, tree, target = (column.to_pylist() for column in block.columns)
            for index in range(len(path)):
                yield SymlinkRow(path=path[index], tree=tree[index], target=target[index] or b"")

    def findings(self, capabilities: TargetCapabilities, *, long_path_bytes: int) -> Sequence[Finding]:
        """Foreign owners, long paths, and what the target cannot keep."""
        self._connection.execute(usage_sql.OWNERS)
        query, parameters = usage_sql.findings(capabilities, long_path_bytes)
        people = {tree: _int(count) for tree, count in self._all(usage_sql.FOREIGN_PEOPLE)}
        return tuple(
            Finding(
                kind=SurpriseKind(str(kind)),
                tree=_path_or_none(tree),
                count=_int(count),
                size_bytes=_int(size_bytes),
                examples=_paths(examples),
                people=people.get(tree, 0) if kind == SurpriseKind.FOREIGN_OWNER else 0,
            )
            for kind, tree, count, size_bytes, examples in self._all(query, {**parameters, "examples": MAX_EXAMPLES})
        )

    def brick_uses(self) -> Sequence[TreeOnBrick]:
        """By brick and tree, in order."""
        found = (
            TreeOnBrick(
                brick=None if brick is None else str(brick),
                tree=_path_or_none(tree),
                files=_int(names),
                allocated_bytes=_int(allocated_bytes),
            )
            for brick, tree, names, _, allocated_bytes in self._all(BRICK_USES)
        )
        return sorted(found, key=lambda use: (use.brick or "", use.tree or b""))

    def listings(self, batches: Sequence[Sequence[bytes]]) -> Iterator[Listing]:
        """All paths of the trees of the batches, for packing: sorted by DuckDB, streamed."""
        return listed(self._connection, batches, bricks=self._bricks, rows=self._to_pack)

    def reap(self, rules: Sequence[TreeRule], *, keep_file: str, now_s: float) -> Reaping:
        """What the rules match; listings leave out from now on what is archived or skipped."""
        reaping = Reaping(self._connection, self._record, rules, keep_file=keep_file, now_s=now_s)
        self._to_pack = reaping.keep_back()
        return reaping


class _Tally:
    """The sums of one tree while the groups of the query come in."""

    def __init__(self) -> None:
        self.files = 0
        self.directories = 0
        self.size_bytes = 0
        self.allocated_bytes = 0
        self.tiny_files = 0
        self.largest_bytes = 0
        self.largest_path = b""
        self.link_groups = 0
        self.symlinks = 0
        self.specials = 0
        self.median_age_s = 0.0
        self.by_mtime = [[0, 0] for _ in AGE_BOUNDS]
        self.by_atime = [[0, 0] for _ in AGE_BOUNDS]

    def usage(self, tree: UserTree) -> TreeUsage:
        return TreeUsage(
            tree=tree,
            files=self.files,
            directories=self.directories,
            size_bytes=self.size_bytes,
            allocated_bytes=self.allocated_bytes,
            tiny_files=self.tiny_files,
            largest_bytes=self.largest_bytes,
            largest_path=self.largest_path,
            link_groups=self.link_groups,
            symlinks=self.symlinks,
            specials=self.specials,
            by_mtime=_buckets(self.by_mtime),
            by_atime=_buckets(self.by_atime),
            median_age_s=self.median_age_s,
        )


def _tally(tallies: dict[bytes | None, _Tally], row: tuple[object, ...]) -> None:
    tally = tallies.setdefault(_path_or_none(row[0]), _Tally())
    kind = str(row[1])
    by_mtime, by_atime, names, size_bytes, allocated_bytes, tiny, largest_bytes, groups = map(_int, row[2:])
    tally.allocated_bytes += allocated_bytes
    if kind == "directory":
        tally.directories += names
        return
    tally.files += names
    tally.size_bytes += size_bytes
    tally.tiny_files += tiny
    tally.largest_bytes = max(tally.largest_bytes, largest_bytes)
    tally.link_groups += groups
    if kind == "symlink":
        tally.symlinks += names
    elif kind != "file":
        tally.specials += names
    for buckets, index in ((tally.by_mtime, by_mtime), (tally.by_atime, by_atime)):
        buckets[index][0] += names
        buckets[index][1] += size_bytes


def _buckets(sums: Sequence[Sequence[int]]) -> tuple[AgeBucket, ...]:
    return tuple(
        AgeBucket(label=label, max_age_s=max_age_s, files=files, size_bytes=size_bytes)
        for (label, max_age_s), (files, size_bytes) in zip(AGE_BOUNDS, sums, strict=True)
    )


def _time_bounds_ns(now_s: float) -> list[int]:
    """For every bucket but the last, the time above which a file is as young as that."""
    now_ns = int(now_s * NS_PER_S)
    return [now_ns - max_age_s * NS_PER_S for _, max_age_s in AGE_BOUNDS if max_age_s is not None]


def _ancestors(path: bytes) -> Iterator[bytes]:
    current = parent(path)
    while current:
        yield current
        current = parent(current)


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"a count of the catalog is {value!r}")
    return value


def _bytes(value: object) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError(f"a path of the catalog is {value!r}")
    return value


def _path_or_none(value: object) -> bytes | None:
    return None if value is None else _bytes(value)


def _paths(value: object) -> tuple[bytes, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise TypeError(f"a list of paths of the catalog is {value!r}")
    return tuple(map(_bytes, value))
