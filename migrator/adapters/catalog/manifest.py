"""Manifests as Parquet files: one directory a verification, with what differs and what is lost beside the manifest."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from migrator.adapters.catalog.database import connect
from migrator.adapters.catalog.earlier_manifest import ParquetEarlierManifest
from migrator.adapters.catalog.manifest_draft import DRAFT_DIRECTORY, ParquetDraft
from migrator.adapters.catalog.manifest_schema import DIFFERENCES_FILE, EXPECTED_FILE
from migrator.adapters.durable import file_digest, sync
from migrator.decide.expectations import Loss
from migrator.domain.errors import Refused
from migrator.domain.plan import SurpriseKind
from migrator.domain.verification import Difference, DifferenceKind
from migrator.ports.manifest import Examples

PART_ROWS = 50_000
_PIECE_ROWS = 2048
_NOT_MENDED = (DifferenceKind.EXTRA, DifferenceKind.UNREADABLE, DifferenceKind.UNPROVEN)
"""What sending a path again does not put right."""


class ManifestDirectories:
    """The `Manifests` port over a directory; `catalogs_dir` holds the catalogs of the site."""

    def __init__(self, directory: Path, *, catalogs_dir: Path, temp_dir: Path, part_rows: int = PART_ROWS) -> None:
        self._directory = directory
        self._catalogs_dir = catalogs_dir
        self._temp_dir = temp_dir
        self._part_rows = part_rows

    def create(self, name: str, *, algorithm: str) -> ParquetDraft:
        """Begin a manifest, as the port says."""
        directory = self._directory / name
        if directory.exists():
            shutil.rmtree(directory)
        (directory / DRAFT_DIRECTORY).mkdir(parents=True)
        sync(self._directory)
        return ParquetDraft(
            directory,
            catalogs_dir=self._catalogs_dir,
            temp_dir=self._temp_dir,
            algorithm=algorithm,
            part_rows=self._part_rows,
        )

    def examples(self, manifest: str, *, per_kind: int = 5) -> Examples:
        """Some findings of each kind, in order of path."""
        directory = Path(manifest).parent
        with connect(temp_dir=self._temp_dir) as database:
            differences = _first_of_each_kind(database, directory / DIFFERENCES_FILE, per_kind)
            losses = _first_of_each_kind(database, directory / EXPECTED_FILE, per_kind)
        return Examples(
            differences=tuple(
                Difference(path=path, kind=DifferenceKind(kind), source=source, target=target)
                for path, kind, source, target in differences
            ),
            losses=tuple(Loss(path=path, kind=SurpriseKind(kind), detail=detail) for path, kind, detail in losses),
        )

    def differing(self, manifest: str) -> Iterator[bytes]:
        """The paths of the source that differ on the target or are missing there, in order."""
        file = Path(manifest).parent / DIFFERENCES_FILE
        if not file.is_file():
            raise _missing(file)
        with connect(temp_dir=self._temp_dir) as database:
            cursor = database.execute(
                "SELECT DISTINCT path FROM read_parquet(?) WHERE kind NOT IN (SELECT unnest(?)) ORDER BY path",
                [str(file), [kind.value for kind in _NOT_MENDED]],
            )
            while rows := cursor.fetchmany(_PIECE_ROWS):
                yield from (path for (path,) in rows)

    def digest(self, manifest: str) -> str:
        """The digest of the manifest's file as it is now."""
        file = Path(manifest)
        if not file.is_file():
            raise _missing(file)
        return file_digest(file)

    def open_earlier(self, manifest: str, *, digest: str) -> ParquetEarlierManifest:
        """Open the manifest of an earlier verification, as the port says."""
        if self.digest(manifest) != digest:
            raise Refused(
                "the manifest of a verification is not the one that was written",
                cause=f"{manifest} was changed or damaged since",
                hint="verify the batch again",
            )
        return ParquetEarlierManifest(Path(manifest))


def _first_of_each_kind(database: duckdb.DuckDBPyConnection, file: Path, per_kind: int) -> Sequence[tuple[Any, ...]]:
    if not file.is_file():
        raise _missing(file)
    query = """
        SELECT * FROM read_parquet(?)
        QUALIFY row_number() OVER (PARTITION BY kind ORDER BY path) <= ? ORDER BY kind, path
    """
    return database.execute(query, [str(file), per_kind]).fetchall()


def _missing(file: Path) -> Refused:
    return Refused(
        f"{file.name} of a verification is missing",
        cause=f"{file} was moved or removed since",
        hint="verify the batch again",
    )
