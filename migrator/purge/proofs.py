"""The proofs of one tree from a manifest, in an index on disk: memory use does not depend on the size of the tree."""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from typing import Any

import duckdb
from msgspec.structs import astuple, replace

from migrator.catalog.database import connect, own_directory
from migrator.catalog.ports import Scratch
from migrator.core.entry import Entry, EntryType
from migrator.core.errors import Refused
from migrator.core.paths import join
from migrator.cutover.model import PurgeSum
from migrator.fs.rules_equality import FileState
from migrator.purge.model import Archive, Compared, ManifestSum, Proof
from migrator.reap.model import ReapRow, archive_name
from migrator.site.model import ReapAction
from migrator.verify.content import FileGroup, Filling
from migrator.verify.digests import Known, proven

_BATCH_ROWS = 20_000
_ASKED_AT_ONCE = 500
_CACHE_KIB = 64 * 1024
_COLUMNS = (
    *("path", "type", "size", "mtime_ns", "ctime_ns", "uid", "gid", "mode", "symlink_target", "rdev", "xattr_digest"),
    *("digest", "algorithm", "ino", "archive", "target_clock_ns"),
)
_UNSIGNED = ("rdev", "ino")
"""Unsigned 64-bit numbers. SQLite has none, so the index stores the signed number with the same bits."""
_SIGN = 1 << 63
_SIGNED = "CASE WHEN {name} >= 9223372036854775808 THEN ({name}::HUGEINT - 18446744073709551616)::BIGINT ELSE {name}::BIGINT END"
_SKIPPED = ReapRow.__struct_fields__
_ALL = 1 << 64

_SCHEMA = f"""
    CREATE TABLE proofs ({", ".join(_COLUMNS)}, later, PRIMARY KEY (path)) WITHOUT ROWID;
    CREATE TABLE surveyed (path PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE unchanged (path PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE read_again (path PRIMARY KEY, ino, size, mtime_ns, ctime_ns) WITHOUT ROWID;
    CREATE TABLE links (ino PRIMARY KEY, seen, nlink, size, is_file) WITHOUT ROWID;
    CREATE TABLE listed (path PRIMARY KEY, digest) WITHOUT ROWID;
    CREATE TABLE skipped ({", ".join(_SKIPPED)}, PRIMARY KEY (path)) WITHOUT ROWID;
"""


_LISTED = "INSERT INTO listed VALUES (?, ?) ON CONFLICT (path) DO UPDATE SET digest = NULL"
_PAIRED = "FROM proofs LEFT JOIN listed USING (path) WHERE type = 'file'"
_COMPARED = f"""
    SELECT coalesce(sum(listed.digest = proofs.digest), 0), coalesce(sum(size * (listed.digest = proofs.digest)), 0),
        coalesce(sum(listed.path IS NULL), 0),
        coalesce(sum(listed.path NOTNULL AND coalesce(listed.digest <> proofs.digest, 1)), 0)
    {_PAIRED}
"""
_NOT_EQUAL = f"SELECT path {_PAIRED} AND coalesce(listed.digest <> proofs.digest, 1) ORDER BY path LIMIT 5"
_EXTRA = """
    SELECT count(*) FROM listed
    WHERE NOT EXISTS (SELECT 1 FROM proofs WHERE proofs.path = listed.path AND type = 'file')
"""


@contextmanager
def open_proofs(
    manifest: str,
    tree: bytes,
    *,
    archives: Mapping[int, int],
    archive_directory: bytes,
    skipped: Iterable[Sequence[ReapRow]],
    newer: Sequence[str],
    scratch: Scratch,
) -> "Iterator[IndexedProofs]":
    """The proofs of one tree from Parquet manifests, for the duration of the block. The index lies in the directory of
    `scratch` and is removed at the end.

    Manifests in `newer` take precedence, later ones over earlier ones. `archives` has the sizes of the tree's proven
    archives in `archive_directory` by number; `skipped` has the rows of the plan's reap list that it skips. Raises
    Refused if the manifest is missing or unreadable. Blocking.
    """
    with own_directory(scratch.directory) as directory:
        database = sqlite3.connect(directory / "proofs.db", isolation_level=None, check_same_thread=False)
        database.row_factory = sqlite3.Row
        with closing(IndexedProofs(database, archives, archive_directory)) as proofs:
            # A crash discards the index, so it need not be durable.
            for pragma in ("journal_mode = OFF", "synchronous = OFF", f"cache_size = -{_CACHE_KIB}"):
                database.execute(f"PRAGMA {pragma}")
            database.executescript(_SCHEMA)
            _fill(database, scratch, manifest, tree, later=False)
            for one in newer:
                _fill(database, scratch, one, tree, later=True)
            for block in skipped:
                rows = [astuple(replace(row, ino=_signed(row.ino))) for row in block]
                _insert(database, "INSERT INTO skipped", rows)
            yield proofs


class IndexedProofs:
    """The proofs of one tree in the index, with the notes of one purge. Thread-safe. Notes need not survive a crash:
    the next run collects them again.
    """

    def __init__(self, database: sqlite3.Connection, archives: Mapping[int, int], archive_directory: bytes) -> None:
        self._database = database
        self._archives = archives
        self._archive_directory = archive_directory
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the index when no query runs.

        Threads of a stopped purge may still query it: sqlite3 then raises an error, but would crash if the index was
        closed during a query.
        """
        with self._lock:
            self._database.close()

    def of_block(self, paths: Sequence[bytes]) -> Mapping[bytes, Proof]:
        """The proofs of some paths; paths without a proof are left out."""
        found: dict[bytes, Proof] = {}
        for start in range(0, len(paths), _ASKED_AT_ONCE):
            asked = paths[start : start + _ASKED_AT_ONCE]
            # Only placeholders are joined here; every path is a parameter.
            query = f"SELECT * FROM proofs WHERE path IN ({', '.join('?' * len(asked))})"  # noqa: S608
            with self._lock:
                rows = self._database.execute(query, asked).fetchall()
            found.update((row["path"], self._proof(dict(row))) for row in rows)
        return found

    def skipped(self, path: bytes) -> ReapRow | None:
        """The row of the plan's reap list, if the plan skips the path."""
        with self._lock:
            row = self._database.execute("SELECT * FROM skipped WHERE path = ?", (path,)).fetchone()
        if row is None:
            return None
        return ReapRow(**dict(row) | {"action": ReapAction(row["action"]), "ino": row["ino"] % _ALL})

    def total(self) -> ManifestSum:
        """Totals of the tree in the manifest."""
        query = "SELECT count(*), coalesce(sum(type = ? AND digest IS NULL), 0), min(target_clock_ns) FROM proofs"
        with self._lock:
            names, without, oldest_ns = self._database.execute(query, [EntryType.FILE.value]).fetchone()
        return ManifestSum(names=names, without_digest=without, oldest_ns=oldest_ns)

    def algorithms(self) -> tuple[str, ...]:
        """The algorithms of the digests; those of archived files may be older."""
        with self._lock:
            rows = self._database.execute("SELECT DISTINCT algorithm FROM proofs WHERE algorithm NOTNULL").fetchall()
        return tuple(sorted(one for (one,) in rows))

    def digests(self) -> Iterator[tuple[bytes, bytes]]:
        """Path and digest of every regular file, in order of path."""
        query = "SELECT path, digest FROM proofs WHERE type = ? AND digest NOTNULL AND path > ? ORDER BY path LIMIT ?"
        rows: list[Any] = [(b"",)]
        while rows:
            with self._lock:
                rows = self._database.execute(query, [EntryType.FILE.value, rows[-1][0], _BATCH_ROWS]).fetchall()
            yield from ((path, digest) for path, digest in rows)

    def compare(self, listed: Iterable[tuple[bytes, bytes]]) -> Compared:
        """Compare paths and digests of an archive with the regular files. A path that is listed twice counts as different."""
        with self._lock:
            self._database.execute("DELETE FROM listed")
        rows = iter(listed)
        while block := list(islice(rows, _BATCH_ROWS)):
            with self._lock:
                self._database.execute("BEGIN")
                self._database.executemany(_LISTED, block)
                self._database.execute("COMMIT")
        with self._lock:
            files, size_bytes, missing, different = self._database.execute(_COMPARED).fetchone()
            examples = self._database.execute(_NOT_EQUAL).fetchall()
            (extra,) = self._database.execute(_EXTRA).fetchone()
        return Compared(
            files=files,
            size_bytes=size_bytes,
            missing=missing,
            different=different,
            extra=extra,
            examples=tuple(path for (path,) in examples),
        )

    def note_read(self, path: bytes, ino: int, ctime_ns: int) -> None:
        """Note that the content was read and matches: from now on the proof has this inode and ctime."""
        with self._lock:
            self._database.execute(
                "UPDATE proofs SET ctime_ns = ?, ino = ? WHERE path = ?", (ctime_ns, _signed(ino), path)
            )

    def note_unchanged(self, paths: Iterable[bytes]) -> None:
        """Note files whose user has not changed them on the target: their content there is to be read again."""
        with self._lock:
            self._database.executemany("INSERT OR IGNORE INTO unchanged VALUES (?)", [(path,) for path in paths])

    def groups(self, algorithm: str) -> Iterator[FileGroup]:
        """The noted files that have digests of this algorithm, for hosts to read. A group has the same name as long as
        the manifests are the same, whichever of its files are noted.
        """
        query = """
            SELECT path, size, EXISTS (SELECT 1 FROM unchanged WHERE unchanged.path = proofs.path) AS noted FROM proofs
            WHERE type = ? AND algorithm = ? AND archive IS NULL AND path > ? ORDER BY path LIMIT ?
        """
        number, first, last, filled, noted = 0, b"", b"", Filling(), Filling()

        def group() -> FileGroup:
            known = partial(self._to_read, algorithm, first, last)
            return FileGroup(
                number=number, name=f"{number:08d}", files=noted.files, size_bytes=noted.size_bytes, known=known
            )

        after = b""
        while True:
            with self._lock:
                asked = (EntryType.FILE.value, algorithm, after, _BATCH_ROWS)
                rows = self._database.execute(query, asked).fetchall()
            for path, size_bytes, is_noted in rows:
                if not filled.takes(1, size_bytes):
                    if noted.files:
                        yield group()
                    number, first, filled, noted = number + 1, path, Filling(1, size_bytes), Filling()
                first, last = first or path, path
                if is_noted:
                    noted = Filling(noted.files + 1, noted.size_bytes + size_bytes)
            if not rows:
                break
            after = rows[-1][0]
        if noted.files:
            yield group()

    def _to_read(self, algorithm: str, first: bytes, last: bytes) -> Known:
        query = """
            SELECT path, coalesce(ino, 0), size, mtime_ns, ctime_ns, digest FROM proofs JOIN unchanged USING (path)
            WHERE path BETWEEN ? AND ? AND algorithm = ? ORDER BY path
        """
        with self._lock:
            rows = self._database.execute(query, (first, last, algorithm)).fetchall()
        return proven([(path, ino % _ALL, *facts) for path, ino, *facts in rows])

    def take_readings(self, files: Sequence[str], scratch: Scratch) -> None:
        """Take what hosts have read: files with rows of `READINGS_SCHEMA`. Raises Refused."""
        if not files:
            return
        try:
            with connect(scratch, threads=1) as rows:
                rows.execute(_READINGS, {"files": list(files)})
                while block := rows.fetchmany(_BATCH_ROWS):
                    self.note_read_again(
                        (path, FileState(ino=ino, size_bytes=size_bytes, mtime_ns=mtime_ns, ctime_ns=ctime_ns))
                        for path, ino, size_bytes, mtime_ns, ctime_ns in block
                    )
        except duckdb.Error as error:
            raise Refused(
                f"the readings of hosts cannot be read: {str(error).partition(chr(10))[0]}",
                cause="its files in the state directory are damaged",
                hint="remove its directory .readings among the manifests, then run the same command again",
            ) from error

    def note_read_again(self, read: Iterable[tuple[bytes, FileState]]) -> None:
        """Note files of the target that had the proven content, with what they were then."""
        rows = [(path, _signed(one.ino), one.size_bytes, one.mtime_ns, one.ctime_ns) for path, one in read]
        with self._lock:
            self._database.executemany("INSERT OR REPLACE INTO read_again VALUES (?, ?, ?, ?, ?)", rows)

    def read_again(self, path: bytes) -> FileState | None:
        """What a file of the target was when its content was read again; None if it was not."""
        with self._lock:
            row = self._database.execute("SELECT * FROM read_again WHERE path = ?", (path,)).fetchone()
        if row is None:
            return None
        _, ino, size_bytes, mtime_ns, ctime_ns = row
        return FileState(ino=ino % _ALL, size_bytes=size_bytes, mtime_ns=mtime_ns, ctime_ns=ctime_ns)

    def not_read_again(self) -> Iterator[Sequence[Proof]]:
        """The proofs of noted files that were not read again, in blocks, in order of path. Each comes once."""
        query = """
            SELECT proofs.* FROM unchanged JOIN proofs USING (path)
            WHERE path > ? AND NOT EXISTS (SELECT 1 FROM read_again WHERE read_again.path = proofs.path)
            ORDER BY path LIMIT ?
        """
        after = b""
        while True:
            with self._lock:
                rows = [dict(row) for row in self._database.execute(query, (after, _ASKED_AT_ONCE))]
            if not rows:
                return
            after = rows[-1]["path"]
            yield [self._proof(row) for row in rows]

    def note_surveyed(self, paths: Iterable[bytes]) -> None:
        """Note paths that are still on the source."""
        with self._lock:
            self._database.executemany("INSERT OR IGNORE INTO surveyed VALUES (?)", [(path,) for path in paths])

    def not_surveyed(self) -> Iterator[Sequence[tuple[Proof, int]]]:
        """The proofs of all other paths below the top in blocks, in order of path, each with the number of names of its file."""
        query = """
            SELECT *, max(1, (SELECT count(*) FROM proofs AS other WHERE other.ino = proofs.ino)) AS names FROM proofs
            WHERE path > ? AND NOT EXISTS (SELECT 1 FROM surveyed WHERE surveyed.path = proofs.path)
            ORDER BY path LIMIT ?
        """
        with self._lock:
            self._database.execute("CREATE INDEX IF NOT EXISTS proofs_by_ino ON proofs (ino)")
        after = b""
        while True:
            with self._lock:
                rows = [dict(row) for row in self._database.execute(query, (after, _ASKED_AT_ONCE))]
            if not rows:
                return
            after, names = rows[-1]["path"], [row.pop("names") for row in rows]
            yield list(zip(map(self._proof, rows), names, strict=True))

    def note_links(self, files: Sequence[Entry]) -> None:
        """Note names of hard-linked files. Each name once."""
        rows = [(_signed(one.ino), one.nlink, one.content_bytes, one.type is EntryType.FILE) for one in files]
        with self._lock:
            self._database.executemany(
                "INSERT INTO links VALUES (?, 1, ?, ?, ?) ON CONFLICT (ino) DO UPDATE SET seen = seen + 1, "
                "nlink = max(nlink, excluded.nlink)",
                rows,
            )

    def link_sum(self) -> tuple[PurgeSum, int]:
        """The sum that removing the noted files frees (without inodes and bytes of files with other names), and the
        number of files with other names.
        """
        query = """
            SELECT coalesce(sum(seen), 0), coalesce(sum(seen >= nlink), 0),
                coalesce(sum(CASE WHEN seen >= nlink AND is_file THEN size ELSE 0 END), 0), coalesce(sum(seen < nlink), 0)
            FROM links
        """
        with self._lock:
            names, inodes, size_bytes, outside = self._database.execute(query).fetchone()
        return PurgeSum(names=names, inodes=inodes, size_bytes=size_bytes), outside

    def _proof(self, facts: dict[str, Any]) -> Proof:
        facts |= {"later": bool(facts["later"]), "type": EntryType(facts["type"])}
        facts |= {name: None if facts[name] is None else facts[name] % _ALL for name in _UNSIGNED}
        number, _ = facts.pop("archive"), facts.pop("target_clock_ns")
        archive = None
        if number is not None:
            path = join(self._archive_directory, archive_name(number))
            archive = Archive(path=path, size_bytes=self._archives.get(number))
        return Proof(size_bytes=facts.pop("size"), archive=archive, **facts)


_ROWS = f"""
    SELECT {", ".join(_SIGNED.format(name=name) if name in _UNSIGNED else name for name in _COLUMNS)}, $later
    FROM read_parquet($manifest) WHERE path = $tree OR path >= $first AND path < $end
"""  # noqa: S608 # columns of this module
"""DuckDB skips row groups with other paths, because a manifest is in order of path."""


_READINGS = "SELECT path, target_ino, size, target_mtime_ns, target_ctime_ns FROM read_parquet($files)"


def _fill(database: sqlite3.Connection, scratch: Scratch, manifest: str, tree: bytes, *, later: bool) -> None:
    """Add the proofs of a manifest; those of a `later` one replace earlier ones."""
    into = "INSERT OR REPLACE INTO proofs" if later else "INSERT INTO proofs"
    within = {"tree": tree, "first": tree + b"/", "end": tree + b"0"}
    try:
        # One thread keeps the order; SQLite inserts rows in order fastest.
        with connect(scratch, threads=1) as rows:
            rows.execute(_ROWS, {**within, "manifest": manifest, "later": later})
            while block := rows.fetchmany(_BATCH_ROWS):
                _insert(database, into, block)
    except duckdb.Error as error:
        raise _unreadable(manifest, str(error).partition("\n")[0]) from error
    except sqlite3.IntegrityError as error:
        raise _unreadable(manifest, "it has a path twice") from error


def _insert(database: sqlite3.Connection, into: str, rows: Sequence[Sequence[object]]) -> None:
    database.execute("BEGIN")
    database.executemany(f"{into} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    database.execute("COMMIT")


def _signed(value: int) -> int:
    return value - _ALL if value >= _SIGN else value


def _unreadable(manifest: str, why: str) -> Refused:
    return Refused(
        f"the manifest {manifest} cannot be read: {why}",
        cause="it was moved, removed or damaged since the verification",
        hint="bring it back from a backup of the state directory: without it nothing of the tree may be freed",
    )
