"""What changed between two catalogs, found with DuckDB out of core."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from migrator.adapters.catalog import comparison_sql
from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.listings import ROWS_AT_ONCE, create_entries, listed
from migrator.adapters.catalog.reader import ClosedCatalog, open_closed
from migrator.adapters.catalog.usage import DUCKDB_MEMORY_BYTES
from migrator.decide.packing import Listing
from migrator.decide.rename_order import Relocation, in_order
from migrator.domain.changes import ChangeKind, Changes, ChangeTally, Gone, Rename, TreeChanges
from migrator.domain.entry import EntryType
from migrator.domain.errors import Refused
from migrator.domain.scan import CatalogRecord
from migrator.domain.units import NS_PER_S
from migrator.ports.changes import Comparison

SETTLED_BEFORE_SCAN_S = comparison_sql.SETTLED_BEFORE_SCAN_S

_RANGES_AT_ONCE = 100
_ORDERING_ROUNDS = 4


class ComparisonFiles:
    """The `Comparisons` port over a directory of catalogs; `temp_dir` takes what DuckDB spills."""

    def __init__(self, directory: Path, *, temp_dir: Path, threads: int | None = None) -> None:
        self._directory = directory
        self._temp_dir = temp_dir
        self._threads = threads

    @contextmanager
    def open(
        self,
        base: str,
        now: str,
        *,
        trees: Collection[bytes],
        unsettled: Collection[bytes] = (),
        unsettled_trees: Collection[bytes] = (),
        reap_list: Path | None = None,
    ) -> Iterator[Comparison]:
        """Raises UsageError where there is no such catalog, Refused where one is damaged or does not cover the trees, or
        `now` is not whole.
        """
        before = open_closed(self._directory / base)
        after = open_closed(self._directory / now)
        if not after.record.whole:
            raise Refused(
                f"catalog {now!r} is not whole: what it does not list may be there all the same",
                cause="; ".join(after.record.reasons) or "the scan says so",
                hint="run `migrator scan` when the source is healthy",
            )
        for catalog in (before.record, after.record):
            _require_covered(catalog, trees)
        with connect(DUCKDB_MEMORY_BYTES, self._temp_dir, threads=self._threads) as connection:
            compared = _Tables(connection, before, after, reap_list)
            compared.fill(trees=trees, unsettled=unsettled, unsettled_trees=unsettled_trees)
            yield _ComparedFiles(connection, before, after, sorted(set(trees)))


def _require_covered(catalog: CatalogRecord, trees: Collection[bytes]) -> None:
    if not catalog.covers(trees):
        raise Refused(
            f"catalog {catalog.name!r} was made of other user trees than those that are compared",
            cause="everything in a tree that was not scanned would look as if it were new or had vanished",
        )


class _Tables:
    """The tables of one comparison, made one after another."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        base: ClosedCatalog,
        now: ClosedCatalog,
        reap_list: Path | None,
    ) -> None:
        self._connection = connection
        self._reap_list = reap_list
        ended_at_s = base.record.finished_at_s or base.record.started_at_s
        self._young = comparison_sql.Young(
            after_ns=int((base.record.started_at_s - SETTLED_BEFORE_SCAN_S) * NS_PER_S),
            until_ns=int((ended_at_s + SETTLED_BEFORE_SCAN_S) * NS_PER_S),
        )
        create_entries(connection, base.part_files, view="base_rows")
        create_entries(connection, now.part_files, view="now_rows")
        connection.execute(comparison_sql.MACROS)
        connection.execute(comparison_sql.SETTINGS_TABLES)

    def fill(
        self, *, trees: Collection[bytes], unsettled: Collection[bytes], unsettled_trees: Collection[bytes]
    ) -> None:
        again = set(unsettled_trees)
        for tree in sorted(set(trees)):
            resend = tree in again
            self._connection.execute("INSERT INTO wanted VALUES (?, ?, ?)", [tree, resend, not resend])
        self._insert("unsettled", path=sorted(set(unsettled)))
        self._connection.execute(comparison_sql.differing(self._young))
        self._connection.execute(comparison_sql.SIDES)
        self._place_directories()
        if self._add_occupied():
            self._place_directories()
        self._connection.execute(comparison_sql.reaped(self._reap_list))
        self._match_in_order()
        for query in (comparison_sql.ORIGINS, comparison_sql.SENT, comparison_sql.VANISHED):
            self._connection.execute(query)

    def _insert(self, table: str, **columns: Sequence[object]) -> None:
        if any(columns.values()):
            arrays = [pa.array(values, type=_COLUMN_TYPES[name]) for name, values in columns.items()]
            self._connection.from_arrow(pa.table(arrays, names=list(columns))).insert_into(table)

    def _place_directories(self) -> None:
        self._connection.execute(comparison_sql.PAIRED)
        self._connection.execute(comparison_sql.HEADED)
        self._connection.execute("CREATE OR REPLACE TEMP TABLE blocked (path BLOB, tree BLOB, place BLOB)")
        if self._place():
            self._connection.execute(comparison_sql.BLOCKED)
            self._place()

    def _place(self) -> bool:
        """Whether there is anything that moves paths."""
        sources = self._connection.execute(comparison_sql.SEGMENT_SOURCES).fetchall()
        self._connection.execute(comparison_sql.SEGMENTS_TABLE)
        trees, starts, cuts, targets, holders = [], [], [], [], []
        for tree, start, source in _segments(sources):
            path, _, target, held_by = source or (None, None, None, None)
            trees.append(tree)
            starts.append(start)
            cuts.append(None if path is None else len(path))
            targets.append(target)
            holders.append(held_by)
        self._insert("segments", tree=trees, start=starts, cut=cuts, target=targets, held_by=holders)
        self._connection.execute(comparison_sql.PLACED)
        return bool(sources)

    def _add_occupied(self) -> bool:
        found = [path for (path,) in self._connection.execute(comparison_sql.OCCUPIED).fetchall()]
        directories: list[bytes] = []
        for path in found:
            if not (directories and path.startswith(directories[-1] + b"/")):
                directories.append(path)
        for start in range(0, len(directories), _RANGES_AT_ONCE):
            some = directories[start : start + _RANGES_AT_ONCE]
            parameters = {f"start{index}": path + b"/" for index, path in enumerate(some)}
            parameters |= {f"end{index}": path + b"0" for index, path in enumerate(some)}
            self._connection.execute(comparison_sql.beneath(len(some), self._young), parameters)
        return bool(directories)

    def _match_in_order(self) -> None:
        for turn in range(_ORDERING_ROUNDS + 1):
            for query in (comparison_sql.SLOTS, comparison_sql.MOVED_FILES, comparison_sql.RENAMED):
                self._connection.execute(query)
            rows = self._connection.execute(comparison_sql.TO_ORDER).fetchall()
            relocations = [
                Relocation(path=old, new=new, place=place, held_by=held_by, directory=directory)
                for old, new, _, place, held_by, directory in rows
            ]
            ordered = in_order(relocations)
            if not ordered.impossible:
                break
            if turn < _ORDERING_ROUNDS - 1:
                self._insert("excluded", path=[relocations[index].path for index in ordered.impossible])
            else:
                for tree in {rows[index][2] for index in ordered.impossible}:
                    self._connection.execute("UPDATE wanted SET renames = false WHERE tree = ?", [tree])
            self._place_directories()
        self._connection.execute(comparison_sql.ORDERED_TABLE)
        self._insert(
            "ordered",
            number=list(range(len(ordered.order))),
            old=[relocations[index].path for index, _ in ordered.order],
            called=[called for _, called in ordered.order],
        )


_COLUMN_TYPES: "dict[str, pa.DataType]" = {
    **dict.fromkeys(("path", "tree", "start", "target", "held_by", "old", "called"), pa.binary()),
    **dict.fromkeys(("cut", "number"), pa.int64()),
}

_Source = tuple[bytes, bytes, bytes | None, bytes | None]


def _segments(sources: Sequence[_Source]) -> Iterator[tuple[bytes, bytes, _Source | None]]:
    """Tree, beginning and directory of every run of paths that lie nearest beneath one directory of `sources` (path,
    tree, ...), which come with what lies in one right behind it. None: beneath none of them.
    """
    open_ones: list[_Source] = []

    def close(until: bytes | None) -> Iterator[tuple[bytes, bytes, _Source | None]]:
        while open_ones and (until is None or not until.startswith(open_ones[-1][0] + b"/")):
            last = open_ones.pop()
            # The byte behind the slash: no path beneath the directory begins like that.
            yield last[1], last[0] + b"0", open_ones[-1] if open_ones else None

    for source in sources:
        yield from close(source[0])
        open_ones.append(source)
        yield source[1], source[0] + b"/", source
    yield from close(None)


class _ComparedFiles:
    """The `Comparison` port. One query at a time."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        base: ClosedCatalog,
        now: ClosedCatalog,
        trees: Sequence[bytes],
    ) -> None:
        self._connection = connection
        self._bricks = sorted(walk.brick for walk in now.record.bricks)
        self._chosen = False
        self._changes = self._count(base.record.name, now.record.name, trees)

    @property
    def changes(self) -> Changes:
        """What changed, tree by tree, counted."""
        return self._changes

    def _count(self, base: str, now: str, trees: Sequence[bytes]) -> Changes:
        before = {
            tree: (names, size) for tree, names, size in self._connection.execute(comparison_sql.BEFORE).fetchall()
        }
        tallies: dict[bytes, dict[ChangeKind, ChangeTally]] = {}
        for tree, kind, paths, directories, size in self._connection.execute(comparison_sql.TALLIES).fetchall():
            tally = ChangeTally(paths=paths, directories=directories, size_bytes=size)
            tallies.setdefault(tree, {})[ChangeKind(kind)] = tally
        return Changes(
            base=base,
            now=now,
            trees=tuple(
                TreeChanges(
                    tree=tree,
                    names_before=before.get(tree, (0, 0))[0],
                    bytes_before=before.get(tree, (0, 0))[1],
                    by_kind=tallies.get(tree, {}),
                )
                for tree in trees
            ),
        )

    def _rows(self, query: str) -> Iterator[tuple[Any, ...]]:
        for block in self._connection.sql(query).to_arrow_reader(ROWS_AT_ONCE):
            yield from zip(*(column.to_pylist() for column in block.columns), strict=True)

    def renames(self) -> Iterator[Rename]:
        """Directories in an order that works, then files in order of their new path."""
        for tree, old, new, kind, size_bytes, mtime_ns in self._rows(comparison_sql.RENAMES):
            yield Rename(tree=tree, old=old, new=new, type=EntryType(kind), size_bytes=size_bytes, mtime_ns=mtime_ns)

    def gone(self) -> Iterator[Gone]:
        """The outermost paths that vanished, each with what lies in it right behind it, in order of path."""
        counted: list[Gone] = []
        # Positions in `counted` of those that the row lies in: what a rename brought out of a directory that is gone
        # may hold paths that are gone by themselves.
        inside: list[int] = []
        for path, tree, kind, outermost in self._rows(comparison_sql.GONE):
            while inside and not path.startswith(counted[inside[-1]].path + b"/"):
                inside.pop()
            if not inside:
                yield from counted
                counted.clear()
            if outermost:
                inside.append(len(counted))
                counted.append(Gone(tree=tree, path=path, type=EntryType(kind), names=0))
            counted[inside[-1]] = replace(counted[inside[-1]], names=counted[inside[-1]].names + 1)
        yield from counted

    def listings(self, batches: Sequence[Sequence[bytes]]) -> Iterator[Listing]:
        """What is to be sent, in the order of the scan."""
        if not self._chosen:
            self._connection.execute(comparison_sql.ENTRIES)
            self._chosen = True
        return listed(self._connection, batches, bricks=self._bricks)
