"""Whether manifests cover every path of a catalog of the source."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb

from migrator.bricks.retire import model, rules
from migrator.catalog.database import connect
from migrator.catalog.files import ClosedCatalogs
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import ROWS_AT_ONCE, create_entries
from migrator.core.entry import EntryType
from migrator.core.errors import MigratorError, Refused
from migrator.core.paths import join
from migrator.cutover.model import SETTLED_STATES
from migrator.cutover.rules_states import newest_attempts
from migrator.fs.ports import SourceFileSystem
from migrator.purge.model import Archive, Proof
from migrator.reap.model import archive_directory, archive_name

if TYPE_CHECKING:
    from migrator.bricks.records import BrickLedger
    from migrator.catalog.manifest import ManifestDirectories

# Joining every path of a catalog with the manifest that proves it.


_FACTS = ("type", "size", "mtime_ns", "ctime_ns", "uid", "gid", "mode", "symlink_target", "rdev", "xattr_digest", "ino")
_PROVEN = (*_FACTS, "digest", "algorithm", "archive")
_HERE = ", ".join(f"here.{name}" for name in ("path", "tree", *_FACTS))
_THEN = ", ".join(f"proven.{name} AS p_{name}" for name in ("tree", *_PROVEN))
_NO_PROOF = ", ".join(f"NULL AS p_{name}" for name in ("tree", *_PROVEN))

# A manifest counts only for its own tree. A newer one may cover other trees.
_BESIDE = """
    SELECT {here}, {then}
    FROM (SELECT * FROM entries WHERE type <> 'directory') here LEFT JOIN (
        SELECT moved.tree AS tree, rows.* EXCLUDE (filename)
        FROM read_parquet([{manifests}], filename = true, union_by_name = true) rows JOIN moved
            ON moved.manifest = rows.filename
            AND rows.path > moved.tree || '/'::BLOB AND rows.path < moved.tree || '0'::BLOB
    ) proven ON proven.path = here.path
"""
_ALONE = "SELECT {here}, {none} FROM entries here WHERE type <> 'directory'"


def cover_paths(
    catalogs: ClosedCatalogs, catalog: str, moved: Mapping[bytes, str], *, name_seed: int, scratch: Scratch
) -> Iterator[Sequence[tuple[model.CatalogedPath, Proof | None]]]:
    """Yield every path of a catalog that is not a directory, in blocks, with its row in the manifest of its moved tree.
    `moved` has the manifest of each tree; `name_seed` is that of the site. Queries spill to `scratch`. Raises
    UsageError if there is no such catalog, and Refused if the catalog or a manifest cannot be read. Blocking.
    """
    closed = catalogs.open(catalog)
    try:
        with connect(scratch) as connection:
            create_entries(connection, closed.part_files)
            for block in connection.sql(_query(connection, moved)).to_arrow_reader(ROWS_AT_ONCE):
                yield [_pair(row, name_seed) for row in block.to_pylist()]
    except duckdb.Error as error:
        raise Refused(
            f"the catalog {catalog} cannot be compared with the manifests: {error}",
            cause="a manifest, or a part of the catalog, was removed or damaged",
            hint="bring the manifests back from a backup of the state directory: without them nothing is proven",
        ) from error


def _query(connection: duckdb.DuckDBPyConnection, moved: Mapping[bytes, str]) -> str:
    if not moved:
        return _ALONE.format(here=_HERE, none=_NO_PROOF)
    connection.execute("CREATE TEMP TABLE moved (tree BLOB, manifest VARCHAR)")
    connection.executemany("INSERT INTO moved VALUES (?, ?)", list(moved.items()))
    # A table function takes only literals as parameters.
    names = ", ".join("'" + file.replace("'", "''") + "'" for file in sorted(set(moved.values())))
    return _BESIDE.format(here=_HERE, then=_THEN, manifests=names)


def _pair(row: Mapping[str, Any], name_seed: int) -> tuple[model.CatalogedPath, Proof | None]:
    found = model.CatalogedPath(path=row["path"], tree=row["tree"], **_facts(row, ""))
    if row["p_tree"] is None:
        return found, None
    archive = None
    if row["p_archive"] is not None:
        # Whether the archive still counts is not checked here.
        where = join(archive_directory(row["p_tree"], name_seed), archive_name(row["p_archive"]))
        archive = Archive(path=where, size_bytes=None)
    proof = Proof(
        path=row["path"],
        digest=row["p_digest"],
        algorithm=row["p_algorithm"],
        archive=archive,
        **_facts(row, "p_"),
    )
    return found, proof


def _facts(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    facts = {name: row[prefix + name] for name in _FACTS if name not in ("type", "size")}
    return {**facts, "type": EntryType(row[f"{prefix}type"]), "size_bytes": row[f"{prefix}size"]}


# Judging them.


WriteList = Callable[[Iterable[model.Uncovered]], None]
OpenList = Callable[[str], AbstractContextManager[tuple[WriteList, str]]]
"""Opens the list of uncovered paths in a run's directory, and returns a function to append to it and the file's name
(blocking).
"""
PathsWithProofs = Callable[[str, Mapping[bytes, str]], Iterator[Sequence[tuple[model.CatalogedPath, Proof | None]]]]
"""`cover_paths` of a site: the paths of a catalog, with their proofs in the manifests of these trees."""

_EXAMPLES = 20
"""Number of paths of each kind to show. The list file has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverCheck:
    """Checks every path of a catalog, reading content where a proof needs it, in `workers` threads. `directory` gets the
    list of uncovered paths; None: no list is written.
    """

    ledger: "BrickLedger"
    manifests: "ManifestDirectories"
    source: SourceFileSystem
    paths: PathsWithProofs
    open_list: OpenList
    directory: str | None
    workers: int

    async def run(self, catalog: str, catalog_at_s: float) -> tuple[model.CoverFound, tuple[str, ...]]:
        """Check every path of a catalog, reading content where a proof needs it. Also return why some manifests do not
        count. Raises Refused, UsageError, OSError.
        """
        moved, unproven = await self._manifests()
        tally, gate = CoverTally(), asyncio.Semaphore(self.workers)
        listing = nullcontext(None) if self.directory is None else self.open_list(self.directory)
        with listing as opened:
            write, name = opened if opened is not None else (None, None)
            blocks = self.paths(catalog, moved)
            while (block := await asyncio.to_thread(next, blocks, None)) is not None:
                judged = [
                    (path, rules.judge_path(path, proof, moved=moved, unproven=unproven)) for path, proof in block
                ]
                again = [pair for pair, (_, one) in zip(block, judged, strict=True) if one is model.Cover.READ]
                read = await asyncio.gather(
                    *(self._read(path, proof, gate) for path, proof in again if proof is not None)
                )
                uncovered = tally.add(judged, dict(read))
                if write is not None and uncovered:
                    write(uncovered)
        found = model.CoverFound(
            catalog=catalog,
            catalog_at_s=catalog_at_s,
            proven=tally.sum(model.Cover.PROVEN),
            own=tally.sum(model.Cover.OWN),
            read=tally.sum(model.Cover.READ),
            uncovered={kind: tally.sum(kind) for kind in model.UncoveredKind if tally.paths[kind]},
            examples=tuple(one for kind in model.UncoveredKind for one in tally.examples.get(kind, ())),
            list_file=name if tally.examples else None,
        )
        return found, tuple(unproven.values())

    async def _read(
        self, found: model.CatalogedPath, proof: Proof, gate: asyncio.Semaphore
    ) -> tuple[bytes, model.Cover | model.Uncovered]:
        digest, problem = None, ""
        async with gate:
            try:
                read = await asyncio.to_thread(self.source.digest, found.path, proof.algorithm or "")
                digest, problem = read.value, "changed while it was read" if read.changed else ""
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) else None
                problem = f"could not be read: {why or error}"
        return found.path, rules.judge_content(found, proof, digest, problem)

    async def _manifests(self) -> tuple[Mapping[bytes, str], Mapping[bytes, str]]:
        """Return the manifests that count, by tree, and why the manifest of another user who works on the target does
        not, by tree.
        """
        ledger = self.ledger
        proofs = {one.id: one for one in ledger.verifications.all()}
        moved: dict[bytes, str] = {}
        unproven: dict[bytes, str] = {}
        for record in newest_attempts(ledger.cutovers.all()):
            tree = record.tree.path
            if record.state not in SETTLED_STATES:
                continue
            proof = proofs.get(record.notes.verification_id or 0)
            digest = None
            if proof is not None and proof.manifest is not None:
                with suppress(MigratorError, OSError):
                    digest = await asyncio.to_thread(self.manifests.digest, proof.manifest)
            problem = rules.manifest_problem(record, proof, digest)
            if problem is None and proof is not None and proof.manifest is not None:
                moved[tree] = proof.manifest
            else:
                unproven[tree] = f"{record.tree.user}: {problem}"
        return moved, unproven


@dataclass(slots=True, kw_only=True)
class CoverTally:
    """Counts judged paths, and keeps the first of each kind that is not covered."""

    paths: Counter[model.Cover | model.UncoveredKind] = field(default_factory=Counter)
    sizes: Counter[model.Cover | model.UncoveredKind] = field(default_factory=Counter)
    examples: dict[model.UncoveredKind, list[model.Uncovered]] = field(default_factory=dict)

    def add(
        self,
        judged: Iterable[tuple[model.CatalogedPath, model.Cover | model.Uncovered]],
        read: Mapping[bytes, model.Cover | model.Uncovered],
    ) -> list[model.Uncovered]:
        """Count these, of which some were `read`. Return those that are not covered."""
        uncovered: list[model.Uncovered] = []
        for found, first in judged:
            last = read.get(found.path, first)
            if isinstance(last, model.Uncovered):
                uncovered.append(last)
                self._count(last.kind, found)
                self._keep(last)
                continue
            if first is model.Cover.READ:
                self._count(first, found)
            self._count(last, found)
        return uncovered

    def sum(self, name: model.Cover | model.UncoveredKind) -> model.PathSum:
        return model.PathSum(paths=self.paths[name], size_bytes=self.sizes[name])

    def _count(self, name: model.Cover | model.UncoveredKind, found: model.CatalogedPath) -> None:
        self.paths[name] += 1
        self.sizes[name] += found.size_bytes if found.type is EntryType.FILE else 0

    def _keep(self, one: model.Uncovered) -> None:
        kept = self.examples.setdefault(one.kind, [])
        kept.append(one)
        kept.sort(key=lambda example: example.path)
        del kept[_EXAMPLES:]
