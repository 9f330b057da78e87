"""Choosing what is reaped, with DuckDB, out of core."""

from collections.abc import Iterator, Sequence

import duckdb
import pyarrow as pa

from migrator.adapters.catalog import reaping_sql
from migrator.adapters.catalog.comparison_sql import SETTLED_BEFORE_SCAN_S
from migrator.adapters.catalog.listings import ROWS_AT_ONCE
from migrator.decide.reap import rule_words
from migrator.decide.reap_globs import parse_globs
from migrator.domain.reap import ReapClock, ReapDirectory, ReapedTree, ReapRow, TreeRule, reap_rows
from migrator.domain.scan import CatalogRecord
from migrator.domain.units import NS_PER_S

_BLOCK_BYTES = 512


class Reaping:
    """The `ReapSelection` port over the view `entries` of a connection. One query at a time."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        record: CatalogRecord,
        rules: Sequence[TreeRule],
        *,
        keep_file: str,
        now_s: float,
    ) -> None:
        self._connection = connection
        self._rules = rules
        excludes = list(dict.fromkeys(one.rule.exclude for one in rules if one.rule.exclude))
        self._insert_rules(excludes, now_s)
        self._insert_kept(keep_file)
        # What a comparison takes for young, by the same figures.
        after_ns = int((record.started_at_s - SETTLED_BEFORE_SCAN_S) * NS_PER_S)
        until_ns = int(((record.finished_at_s or record.started_at_s) + SETTLED_BEFORE_SCAN_S) * NS_PER_S)
        parameters: dict[str, object] = {"after": after_ns, "until": until_ns}
        for number, globs in enumerate(excludes):
            parameters[f"exclude{number}"] = reaping_sql.globs_pattern(parse_globs(globs))
        query = reaping_sql.candidates(len(excludes), after="$after", until="$until")
        connection.execute(query, parameters)
        connection.execute(reaping_sql.CHOSEN)
        connection.execute("DROP TABLE candidates")

    def _insert_rules(self, excludes: Sequence[tuple[str, ...]], now_s: float) -> None:
        now_ns = int(now_s * NS_PER_S)
        rules = [one.rule for one in self._rules]
        table = pa.table(
            {
                "tree": pa.array([one.tree.path for one in self._rules], pa.binary()),
                "ordinal": pa.array(range(len(rules)), pa.int32()),
                "action": pa.array([rule.action.value for rule in rules], pa.string()),
                "smaller": pa.array([rule.smaller_than_bytes for rule in rules], pa.int64()),
                "before_ns": pa.array(
                    [None if rule.older_than_s is None else now_ns - rule.older_than_s * NS_PER_S for rule in rules],
                    pa.int64(),
                ),
                "by_atime": pa.array([rule.by is ReapClock.ATIME for rule in rules], pa.bool_()),
                "hidden": pa.array([rule.hidden for rule in rules], pa.bool_()),
                "executables": pa.array([rule.executables for rule in rules], pa.bool_()),
                "linked": pa.array([rule.linked for rule in rules], pa.bool_()),
                "excludes": pa.array(
                    [excludes.index(rule.exclude) if rule.exclude else None for rule in rules], pa.int32()
                ),
            }
        )
        self._connection.execute(reaping_sql.RULES_TABLE)
        if rules:
            self._connection.from_arrow(table).insert_into("reap_rules")

    def _insert_kept(self, keep_file: str) -> None:
        suffix = b"/" + keep_file.encode("utf-8", "surrogateescape")
        found = self._connection.execute(reaping_sql.KEEP_FILES, {"length": len(suffix), "suffix": suffix}).fetchall()
        outermost: list[tuple[bytes, bytes]] = []
        for directory, tree in found:
            if not (outermost and (directory + b"/").startswith(outermost[-1][0] + b"/")):
                outermost.append((directory, tree))
        table = pa.table(
            {
                "tree": pa.array([tree for _, tree in outermost], pa.binary()),
                "start": pa.array([directory + b"/" for directory, _ in outermost], pa.binary()),
                # The byte behind the slash: no path beneath the directory begins like that.
                "until": pa.array([directory + b"0" for directory, _ in outermost], pa.binary()),
            }
        )
        self._connection.execute(reaping_sql.KEPT_TABLE)
        if outermost:
            self._connection.from_arrow(table).insert_into("kept")

    def trees(self) -> Sequence[ReapedTree]:
        """Counted, tree by tree."""
        sums: dict[int, list[int]] = {}
        for ordinal, nlink, names, size, blocks, oldest_ns in self._connection.execute(reaping_sql.TALLIES).fetchall():
            share = max(nlink, 1)
            found = sums.setdefault(ordinal, [0, 0, 0, 0, oldest_ns])
            found[0] += names
            found[1] += names // share
            found[2] += size // share
            found[3] += blocks // share * _BLOCK_BYTES
            found[4] = min(found[4], oldest_ns)
        return [
            ReapedTree(
                tree=self._rules[ordinal].tree,
                action=self._rules[ordinal].rule.action,
                rule=rule_words(self._rules[ordinal].rule),
                files=found[0],
                inodes=found[1],
                size_bytes=found[2],
                allocated_bytes=found[3],
                oldest_ns=found[4],
            )
            for ordinal, found in sorted(sums.items())
        ]

    def rows(self, *, listed: bool = False) -> Iterator[Sequence[ReapRow]]:
        """What is archived or skipped (and with `listed` what is only reported), sorted by DuckDB, streamed."""
        query = self._connection.sql(reaping_sql.ROWS, params={"listed": listed})
        for block in query.to_arrow_reader(ROWS_AT_ONCE):
            yield reap_rows(column.to_pylist() for column in block.columns)

    def directories(self, limit: int) -> dict[bytes, Sequence[ReapDirectory]]:
        """Of every tree the directories that hold most of it, by bytes."""
        found: dict[bytes, list[ReapDirectory]] = {}
        rows = self._connection.execute(reaping_sql.DIRECTORIES, {"most": limit}).fetchall()
        for ordinal, directory, files, size_bytes in rows:
            tree = self._rules[ordinal].tree.path
            found.setdefault(tree, []).append(ReapDirectory(path=directory, files=files, size_bytes=size_bytes))
        return dict(found)

    def keep_back(self) -> str:
        """From here on lists are packed without what is archived or skipped: the name of the view that has the rest."""
        self._connection.execute(reaping_sql.LISTED_VIEW)
        return "moving"
