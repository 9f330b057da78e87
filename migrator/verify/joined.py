"""Both sides of a batch, each listed by one compiled walk, and joined out of core: most paths are equal, the rest is left."""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
from msgspec import Struct

from migrator.catalog.brick_parts import write_part
from migrator.catalog.database import connect, content_bytes_sql, directory_of, literal, numbered_part, ranges
from migrator.catalog.files import ROW_SCHEMA, part_name
from migrator.catalog.manifest import MANIFEST_SCHEMA, READINGS_SCHEMA, ParquetDraft, reading_of
from migrator.catalog.model import ReadContent
from migrator.catalog.ports import Scratch
from migrator.catalog.walk_rows import decode_rows
from migrator.core.entry import BLOCK_BYTES
from migrator.core.errors import Refused
from migrator.core.paths import show, tree_of
from migrator.core.units import format_count
from migrator.fs.model import DigestPolicy, ScanProblem, SurpriseKind, TargetCapabilities
from migrator.fs.rules import SPARSENESS_FACTOR, SPARSENESS_SLACK_BYTES, sample_limit, sample_seed
from migrator.fs.rules_equality import same_attributes_sql, same_content_sql, shows_time_sql, unchanged_sql
from migrator.gluster.walks import BrickHello, WalkProblems
from migrator.verify import model

# --- Listings


class SideListing(Struct, frozen=True, kw_only=True):
    """One side: files with the rows of a catalog, and what could not be read.

    The bricks may hold another content than the mount shows of the files that a scan `from_bricks` took from the mount, and
    of the `marked` ones, if the mount was listed.
    """

    files: tuple[str, ...] = ()
    problems: tuple[ScanProblem, ...] = ()
    from_bricks: bool = False
    marked: tuple[bytes, ...] = ()

    def problems_in(self, trees: Collection[bytes]) -> list[ScanProblem]:
        """Those at or beneath the root of one of these trees."""
        return [one for one in self.problems if tree_of(one.path, trees) is not None]


_PART_ROWS = 200_000
_MOST_PROBLEMS = 100_000


@dataclass(slots=True)
class ListingWriter:
    """The `BrickListener` port: writes what a walk of a mount sends to a directory, which has to exist."""

    directory: Path
    trees: Sequence[bytes]
    found_problems: list[ScanProblem] = field(init=False, default_factory=list)
    _device: int = field(init=False, default=0)
    _batches: list[pa.RecordBatch] = field(init=False, default_factory=list)
    _rows: int = field(init=False, default=0)
    _files: list[str] = field(init=False, default_factory=list)

    async def hello(self, hello: BrickHello) -> None:
        """Take the device of the mount."""
        self._device = hello.device

    async def rows(self, payload: memoryview) -> None:
        """Add entries. Raises OSError."""
        batch = decode_rows(payload, trees=self.trees, brick="", dev=self._device)
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows >= _PART_ROWS:
            await asyncio.to_thread(self._write)

    directories = rows

    async def listings(self, payload: memoryview) -> None:
        """A mount is walked without them."""

    async def problems(self, found: WalkProblems) -> None:
        """Keep them: each path is looked up once more. Raises Refused if there are too many."""
        self.found_problems += (*found.unreadable, *found.to_ask, *found.strange)
        if len(self.found_problems) > _MOST_PROBLEMS:
            one = self.found_problems[0]
            raise Refused(
                f"nothing was verified: more than {format_count(_MOST_PROBLEMS)} paths cannot be read",
                cause=f"as {show(one.path)} ({one.operation}: {one.reason}): servers are down, or the file system is damaged",
                hint="repair it, check with `migrator doctor`, then verify again",
            )

    def close(self) -> SideListing:
        """Write the rest. Raises OSError."""
        self._write()
        return SideListing(files=tuple(self._files), problems=tuple(self.found_problems))

    def _write(self) -> None:
        file = self.directory / part_name(len(self._files))
        write_part(file, pa.Table.from_batches(self._batches, schema=ROW_SCHEMA))
        self._files.append(str(file))
        self._batches, self._rows = [], 0


# --- The join
#
# A path is equal if `fs.rules.compare` would find no difference, and no loss but that of its time,
# which every path of a target may have; and if its content, where that is compared, has a reading that is carried over
# (`model.is_carried_over`). Paths that are listed twice on a side, or had a problem, are left.


_JOINED_ROWS = 500_000
"""Of each side in one join, about: larger batches are first cut into parts, each a range of paths. Twice as many take a quarter
more processor time in 512 MiB (3 x 10^7 rows, `python -m bench scale`).
"""
_DRAWN_OF_A_PART = 100
"""The paths of each side that are drawn for one part, to choose the ranges: parts then differ by a tenth."""
_ROW_COLUMNS = """
    path, type, size, blocks, mtime_ns, ctime_ns, ino, uid, gid, mode, symlink_target, rdev, link_group, xattr_digest, nlink
"""
_READING_COLUMNS = ", ".join(READINGS_SCHEMA.names)
_CUT = {
    "source": _ROW_COLUMNS,
    "target": _ROW_COLUMNS,
    "readings": _READING_COLUMNS,
    "earlier": "path",
    "accounted": "path",
}
_LEFT_AT_ONCE = 16_384
_FIRST_AFTER_SLASH = b"0"
"""`/` is 0x2f and `0` 0x30: the paths in a directory sort between the two."""

_SETTINGS = """
    CREATE TEMP TABLE wanted (tree BLOB);
    CREATE TEMP TABLE doubtful (path BLOB, of_source BOOLEAN);
    CREATE TEMP TABLE found_late (path BLOB);
    CREATE TEMP TABLE not_by_brick (path BLOB)
"""

_DRAWN = """
    SELECT path FROM (SELECT path FROM source_rows UNION ALL SELECT path FROM target_rows)
    WHERE hash(path) % {every} = 0 ORDER BY path
"""

_TWICE = """
    CREATE OR REPLACE TEMP TABLE twice AS
    SELECT hash(path) AS key FROM source_part GROUP BY key HAVING count(*) > 1
    UNION ALL SELECT hash(path) AS key FROM target_part GROUP BY key HAVING count(*) > 1
"""

_OF_READING = {"ino": "target_ino", "mtime_ns": "target_mtime_ns", "ctime_ns": "target_ctime_ns"}
"""The state of the target in a reading. It has the size of the source."""

_ALIKE = f"""
    CREATE OR REPLACE TEMP TABLE alike AS
    SELECT s.path, s.type, s.size, {content_bytes_sql("s.")} AS bytes, s.mtime_ns, s.ctime_ns, s.ino, s.uid, s.gid, s.mode, s.symlink_target, s.rdev,
        s.link_group, s.xattr_digest, r.digest, CASE WHEN r.digest IS NOT NULL THEN $algorithm END AS algorithm,
        t.ino AS target_ino, t.mtime_ns AS target_mtime_ns, t.ctime_ns AS target_ctime_ns, r.read_by,
        r.source_clock_ns, r.target_clock_ns, NULL::BIGINT AS archive,
        s.nlink AS source_nlink, t.nlink AS target_nlink, t.symlink_target AS target_link
    FROM source_part s JOIN target_part t ON s.path = t.path LEFT JOIN readings_part r ON s.type = 'file' AND {{sampled}} AND r.path = s.path
        AND {unchanged_sql("r.", "s.")} AND {unchanged_sql("r.", "t.", named=_OF_READING)}
    WHERE s.path NOT IN (SELECT tree FROM wanted) AND hash(s.path) NOT IN (SELECT key FROM twice)
        AND {same_attributes_sql("s.", "t.")} AND {{same_content}}
        AND s.mtime_ns BETWEEN $earliest_ns AND $latest_ns
        AND {shows_time_sql("t.mtime_ns", "s.mtime_ns", granularity="$grain_ns")}
        AND (s.type <> 'file' OR (r.digest IS NOT NULL OR NOT {{sampled}})
            AND (s.blocks * {BLOCK_BYTES} >= s.size OR t.blocks * {BLOCK_BYTES}
                <= {SPARSENESS_FACTOR} * s.blocks * {BLOCK_BYTES} + {SPARSENESS_SLACK_BYTES}))
        AND s.path NOT IN (SELECT path FROM doubtful)
"""  # noqa: S608 - constants of this program

_TOTALS = """
    SELECT count(*), count(*) FILTER (type = 'file'),
        coalesce(sum(bytes // greatest(source_nlink, 1)), 0)::BIGINT,
        count(digest) FILTER (read_by = $verification), count(digest) FILTER (read_by <> $verification),
        coalesce(sum(bytes // greatest(source_nlink, 1)) FILTER (digest IS NOT NULL AND read_by = $verification), 0)::BIGINT,
        coalesce(sum(bytes // greatest(source_nlink, 1)) FILTER (digest IS NOT NULL AND read_by <> $verification), 0)::BIGINT,
        count(*) FILTER (mtime_ns <> target_mtime_ns), count(*) FILTER (symlink_target <> target_link)
    FROM alike
"""

_LOSSES = f"""
    SELECT path, '{SurpriseKind.LOSS_TIME}' AS kind, mtime_ns || ' ns becomes ' || target_mtime_ns || ' ns' AS detail
    FROM alike WHERE mtime_ns <> target_mtime_ns
    UNION ALL SELECT path, '{SurpriseKind.SYMLINK_REWRITTEN}', symlink_target::VARCHAR || ' becomes ' || target_link::VARCHAR
    FROM alike WHERE symlink_target <> target_link
"""  # noqa: S608 - kinds of this program

_LINKS = """
    SELECT path, ino AS source_ino, source_nlink, target_ino, target_nlink
    FROM alike WHERE type <> 'directory' AND greatest(source_nlink, target_nlink) > 1
"""

_OUTPUTS = {"verified": f"SELECT {', '.join(MANIFEST_SCHEMA.names)} FROM alike", "loss": _LOSSES, "link": _LINKS}  # noqa: S608

_LEFT = """
    SELECT l.*, r.* EXCLUDE (path)
    FROM (
        SELECT path, bool_or(on_source) AS on_source, bool_or(on_target) AS on_target, bool_or(now) AS now
        FROM (
            SELECT path, type = 'directory' AND path NOT IN (SELECT path FROM doubtful WHERE of_source) AS on_source,
                false AS on_target, true AS now
            FROM source_part
            UNION ALL
            SELECT path, false, type = 'directory' AND path NOT IN (SELECT path FROM doubtful WHERE NOT of_source), true
            FROM target_part
            UNION ALL SELECT path, false, false, true FROM doubtful WHERE {within}
            UNION ALL SELECT path, false, false, false FROM earlier_part
            UNION ALL SELECT path, false, false, false FROM accounted_part
        ) AS seen ANTI JOIN alike USING (path)
        WHERE path NOT IN (SELECT tree FROM wanted)
        GROUP BY path
    ) AS l LEFT JOIN readings_part r ON r.path = l.path
"""

_LATE = """
    CREATE OR REPLACE TEMP TABLE late AS
    SELECT l.*, r.* EXCLUDE (path)
    FROM (SELECT DISTINCT path, false AS on_source, false AS on_target, true AS now FROM found_late
        WHERE path NOT IN (SELECT path FROM read_parquet($accounted, union_by_name = true) SEMI JOIN found_late USING (path))
    ) AS l LEFT JOIN readings_rows r ON r.path = l.path
"""

_READINGS = f"""
    SELECT {_READING_COLUMNS} FROM readings
    WHERE digest IS NOT NULL AND read_by IS NOT NULL AND ctime_ns + {{margin_ns}} <= source_clock_ns
        AND target_ctime_ns + {{margin_ns}} <= target_clock_ns AND path NOT IN (SELECT path FROM not_by_brick)
"""  # noqa: S608 - constants of this program
"""The condition of `model.is_carried_over` that does not depend on the present state. Readings of `not_by_brick` may be of the
content of a brick: these files are read through the mount.
"""


_TAKEN_FROM_MOUNT = "INSERT INTO not_by_brick SELECT path FROM source_rows WHERE type = 'file' AND brick IS NULL"


class EqualTotals(Struct, frozen=True, kw_only=True):
    """Paths added to the manifest as equal; `carried_*` by an earlier verification. Sizes as in `paths.Tally`."""

    paths: int
    files: int
    size_bytes: int
    digested_files: int
    carried_files: int
    digested_bytes: int
    carried_bytes: int
    floored_times: int
    rewritten_links: int


class Left(Struct, frozen=True):
    """A path to look at. `on_source` and `on_target`: it was a directory there, whose entries were listed. `now`: it was
    listed now, and not only by an earlier scan. `readings` are of its content, some of an earlier state.
    """

    path: bytes
    on_source: bool = False
    on_target: bool = False
    now: bool = True
    readings: tuple[ReadContent, ...] = ()


T = TypeVar("T")


class Joined:
    """Both sides of some trees. Blocking, except `next_of`; one call at a time; to be closed.

    `now` are readings of this `verification`, whatever number they were made under; `before` those of earlier manifests.
    `earlier` are the files of earlier catalogs, `accounted` those of earlier manifests that have their paths. The roots of the
    trees are neither added nor left. `cuts` are the paths that begin the parts but the first, in order.
    """

    def __init__(
        self,
        source: SideListing,
        target: SideListing,
        *,
        trees: Sequence[bytes],
        now: Sequence[str],
        before: Sequence[str],
        earlier: Sequence[str],
        accounted: Sequence[str],
        verification: int,
        policy: DigestPolicy,
        capabilities: TargetCapabilities,
        scratch: Scratch,
    ) -> None:
        self._policy = policy
        self._links = capabilities.rewritten_links
        self._verification = verification
        self._given: dict[str, object] = {
            "algorithm": policy.algorithm,
            "grain_ns": max(capabilities.time_granularity_ns, 1),
            "earliest_ns": capabilities.earliest_time_ns,
            "latest_ns": capabilities.latest_time_ns,
        }
        self._trees = tuple(trees)
        self._database = connect(scratch)
        self._database.execute(_SETTINGS)
        self._fill("wanted", {"tree": pa.array(self._trees, type=pa.binary())})
        doubtful = [(one.path, side is source) for side in (source, target) for one in side.problems_in(set(trees))]
        paths, of_source = pa.array([path for path, _ in doubtful], type=pa.binary()), [of for _, of in doubtful]
        self._fill("doubtful", {"path": paths, "of_source": pa.array(of_source, type=pa.bool_())})
        for name, listing in (("source_rows", source), ("target_rows", target)):
            rows = self._rows(listing.files, ROW_SCHEMA)
            rows.filter("tree IN (SELECT tree FROM wanted)").create_view(name)
        self._fill("not_by_brick", {"path": pa.array(source.marked, type=pa.binary())})
        if source.from_bricks:
            self._database.execute(_TAKEN_FROM_MOUNT)
        of_now = _READING_COLUMNS.replace("read_by", f"{verification} AS read_by")
        read = self._rows(now, READINGS_SCHEMA).project(of_now)
        read.union(self._rows(before, READINGS_SCHEMA).project(_READING_COLUMNS)).create_view("readings")
        self._database.execute(f"CREATE TEMP VIEW readings_rows AS {_READINGS.format(margin_ns=model.CTIME_MARGIN_NS)}")
        # A parameter would make it a division of 128 bits: ten times the processor time.
        every = max(_JOINED_ROWS // _DRAWN_OF_A_PART, 1)
        drawn = [path for (path,) in self._database.execute(_DRAWN.format(every=every)).fetchall()]
        of_a_part = 2 * _JOINED_ROWS // every
        self.cuts: Sequence[bytes] = drawn[of_a_part::of_a_part]
        self._ranges = ranges(self.cuts)
        # Of a manifest, which is in order of path, only the row groups of these trees are read.
        within = _within(self._trees)
        of_trees = f"tree IN (SELECT tree FROM wanted) OR {within}"  # noqa: S608 - literals of DuckDB's own
        self._rows(earlier, ROW_SCHEMA).filter(of_trees).create_view("earlier_rows")
        self._rows(accounted, MANIFEST_SCHEMA).filter(within).create_view("accounted_rows")
        self._cut = TemporaryDirectory(prefix="joined-", dir=directory_of(self._database))

    def _cut_into_parts(self) -> None:
        """Write the rows of each side, of the readings, and of earlier scans, to a file per part."""
        part = numbered_part([f"path < {literal(cut)}" for cut in self.cuts])
        for name, columns in _CUT.items() if self.cuts else ():
            cut = f"SELECT {columns}, {part} AS part FROM {name}_rows"  # noqa: S608 - literals of DuckDB's own
            given = {"cut": f"{self._cut.name}/{name}"}
            self._database.execute(f"COPY ({cut}) TO $cut (FORMAT parquet, PARTITION_BY (part))", given)

    def _take(self, part: int) -> None:
        """Let the views show one part."""
        for name in _CUT:
            files = [str(file) for file in Path(self._cut.name, name, f"part={part}").glob("*.parquet")]
            if files:
                rows: Any = self._database.read_parquet(files, hive_partitioning=False)
            else:
                rows = self._database.view(f"{name}_rows").filter("false" if self.cuts else "true")
            rows.create_view(f"{name}_part")

    def equal(self, draft: ParquetDraft) -> Iterator[EqualTotals]:
        """Add all equal paths to a draft, part by part, and keep the rest for `left`. Call once. Raises OSError."""
        sampled = "true"
        given = dict(self._given)
        if self._policy.share < 1.0:
            sampled = "left(md5($seed || s.path), 16) < $limit"
            given |= {"seed": sample_seed(self._policy), "limit": sample_limit(self._policy)}
        query = _ALIKE.format(sampled=sampled, same_content=same_content_sql("s.", "t.", links=self._links))
        self._cut_into_parts()
        for part, within in enumerate(self._ranges):
            self._take(part)
            self._database.execute(_TWICE)
            self._database.execute(query, given)
            # Content may have been read for several passes that listed the same file.
            ((doubled,),) = self._database.execute("SELECT count(*) > count(DISTINCT hash(path)) FROM alike").fetchall()
            if doubled:
                self._database.execute("CREATE OR REPLACE TEMP TABLE alike AS SELECT DISTINCT ON (path) * FROM alike")
            for name, rows in _OUTPUTS.items():
                if (file := draft.place_for(name)) is not None:
                    self._database.execute(f"COPY ({rows}) TO $file (FORMAT parquet)", {"file": file})
            left = f"COPY ({_LEFT.format(within=within)}) TO $file (FORMAT parquet)"
            self._database.execute(left, {"file": str(self._left_of(part))})
            (totals,) = self._database.execute(_TOTALS, {"verification": self._verification}).fetchall()
            self._database.execute("DROP TABLE alike")
            yield EqualTotals(**dict(zip(EqualTotals.__struct_fields__, totals, strict=True)))

    def left(self) -> Iterator[Sequence[Left]]:
        """After `equal`: all other paths of both sides and of earlier catalogs, in order, in blocks."""
        for part in range(len(self._ranges)):
            yield from self._blocks("read_parquet($file)", {"file": str(self._left_of(part))})

    def late(self, draft: ParquetDraft) -> Iterator[Sequence[Left]]:
        """The paths that were given to `add` since the last call and are not in the draft, in order, in blocks."""
        self._database.execute(_LATE, {"accounted": draft.accounted()})
        self._database.execute("DELETE FROM found_late")
        yield from self._blocks("late", {})

    def _left_of(self, part: int) -> Path:
        return Path(self._cut.name, f"left-{part:06d}.parquet")

    def _blocks(self, rows: str, given: Mapping[str, str]) -> Iterator[Sequence[Left]]:
        cursor = self._database.execute(f"SELECT * FROM {rows} ORDER BY path", given)  # noqa: S608 - names of this module
        found = chain.from_iterable(iter(partial(cursor.fetchmany, _LEFT_AT_ONCE), []))
        paths = (_left(list(some)) for _, some in groupby(found, key=itemgetter(0)))
        while block := tuple(islice(paths, _LEFT_AT_ONCE)):
            yield block

    def close(self) -> None:
        """Release the memory. May be called again."""
        self._database.close()
        self._cut.cleanup()

    def listed_roots(self, side: str) -> set[bytes]:
        """The trees whose root is a directory on a side (`source` or `target`) and was listed without a problem."""
        query = f"""
            SELECT path FROM {side}_rows
            WHERE path = tree AND type = 'directory' AND path NOT IN (SELECT path FROM doubtful WHERE of_source = (? = 'source'))
        """  # noqa: S608 - the name of a side
        return {path for (path,) in self._database.execute(query, [side]).fetchall()}

    def add(self, names: Iterable[bytes]) -> None:
        """Take paths that were found after the listings, for the next `late`."""
        left = iter(names)
        while block := list(islice(left, _LEFT_AT_ONCE)):
            self._fill("found_late", {"path": pa.array(block, type=pa.binary())})

    async def next_of(self, items: Iterator[T]) -> T | None:
        """The next item of `equal` or `left`, in a thread; None at the end. A cancellation interrupts its query, and takes effect
        when that has ended.
        """
        query = asyncio.ensure_future(asyncio.to_thread(next, items, None))
        try:
            return await asyncio.shield(query)
        except asyncio.CancelledError:
            self._database.interrupt()
            await asyncio.wait({query})
            query.exception()
            raise

    def _rows(self, files: Sequence[str], schema: pa.Schema) -> duckdb.DuckDBPyRelation:
        return self._database.read_parquet(list(files)) if files else self._database.from_arrow(schema.empty_table())

    def _fill(self, table: str, columns: "Mapping[str, pa.Array[Any]]") -> None:
        self._database.register("given", pa.table(dict(columns)))
        self._database.execute(f"INSERT INTO {table} SELECT * FROM given")  # noqa: S608 - a name of this module
        self._database.unregister("given")


def _within(trees: Sequence[bytes]) -> str:
    """The SQL condition of a path that is the root of a tree or beneath it."""
    every = [
        f"path = {literal(tree)} OR (path > {literal(tree + b'/')} AND path < {literal(tree + _FIRST_AFTER_SLASH)})"
        for tree in trees
    ]
    return " OR ".join(["false", *every])


def _left(rows: Sequence[tuple[Any, ...]]) -> Left:
    path, on_source, on_target, now, *_ = rows[0]
    readings = tuple(reading_of(row[4:]) for row in rows if row[4] is not None)
    return Left(path, on_source=on_source, on_target=on_target, now=now, readings=readings)
