"""The catalogs of a site: one directory for each."""

from pathlib import Path
from typing import TYPE_CHECKING

from migrator.adapters.catalog.reader import ClosedCatalog, open_closed
from migrator.adapters.catalog.records import write_record
from migrator.adapters.catalog.schema import CLOSING_RECORD, OPENING_RECORD
from migrator.adapters.catalog.writer import MAX_PART_ROWS, PartsWriter
from migrator.adapters.durable import sync
from migrator.domain.scan import CatalogRecord
from migrator.ports.catalog import CatalogTotals, OpenCatalog

if TYPE_CHECKING:
    from migrator.adapters.catalog.brick_parts import BrickPartsWriter


class CatalogDirectories:
    """The `Catalogs` port over a directory; `temp_dir` takes what DuckDB spills."""

    def __init__(self, directory: Path, *, temp_dir: Path, max_part_rows: int = MAX_PART_ROWS) -> None:
        self._directory = directory
        self._temp_dir = temp_dir
        self._max_part_rows = max_part_rows

    def create(self, record: CatalogRecord) -> OpenCatalog:
        """A new catalog with this opening record. Raises OSError, also FileExistsError where the name is taken."""
        directory = self._directory / record.name
        directory.mkdir(parents=True)
        write_record(directory / OPENING_RECORD, record, ())
        sync(self._directory)
        return OpenCatalog(
            record=record,
            writer=PartsWriter(directory, max_part_rows=self._max_part_rows),
            frontier=(b"",),
            totals=CatalogTotals(),
        )

    def load_for_bricks(self) -> None:
        """Load what `create_from_bricks` needs, in a thread, while something else is waited for. Blocking; changes nothing."""
        # A scan of the mount that is not gone on with asks no database, and need not wait for one.
        import migrator.adapters.catalog.brick_parts  # noqa: F401, PLC0415

    def create_from_bricks(self, record: CatalogRecord, *, bricks: int) -> "BrickPartsWriter":
        """A new catalog for the walks of so many bricks. Raises OSError, also FileExistsError."""
        # As above.
        from migrator.adapters.catalog.brick_parts import BrickPartsWriter  # noqa: PLC0415

        directory = self._directory / record.name
        directory.mkdir(parents=True)
        write_record(directory / OPENING_RECORD, record, ())
        sync(self._directory)
        return BrickPartsWriter(
            directory, trees=[tree.path for tree in record.trees], temp_dir=self._temp_dir, bricks=bricks
        )

    def discard(self, name: str) -> None:
        """Remove a catalog that was never closed. Raises OSError; it may be gone already."""
        directory = self._directory / name
        if directory.is_dir() and not (directory / CLOSING_RECORD).exists():
            for file in directory.iterdir():
                file.unlink()
            directory.rmdir()

    def resume(self, name: str) -> OpenCatalog | None:
        """Go on with a catalog; None where it was never begun on disk. Raises Refused where it cannot go on."""
        directory = self._directory / name
        if not (directory / OPENING_RECORD).is_file():
            return None
        # As above.
        from migrator.adapters.catalog.resume import resume  # noqa: PLC0415

        return resume(directory, temp_dir=self._temp_dir, max_part_rows=self._max_part_rows)

    def closing_record(self, name: str) -> CatalogRecord | None:
        """The record of a closed catalog; None for others. Raises Refused where a part of it is missing or torn."""
        if not (self._directory / name / CLOSING_RECORD).is_file():
            return None
        return self.closed(name).record

    def closed(self, name: str) -> ClosedCatalog:
        """A closed catalog, for reading. Raises UsageError or Refused as `open_closed` does."""
        return open_closed(self._directory / name)
