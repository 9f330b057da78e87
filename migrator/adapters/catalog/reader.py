"""Opening a catalog that is closed: half-written and torn ones are refused before anything is planned on them."""

from dataclasses import dataclass
from pathlib import Path

from migrator.adapters.catalog.records import read_record
from migrator.adapters.catalog.schema import CLOSING_RECORD, numbered
from migrator.domain.errors import Refused, UsageError
from migrator.domain.scan import CatalogRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedCatalog:
    """A catalog that was written to its end. `part_files` and `problem_files` are for DuckDB's `read_parquet`."""

    directory: Path
    record: CatalogRecord
    part_files: tuple[Path, ...]
    problem_files: tuple[Path, ...]


def open_closed(directory: Path) -> ClosedCatalog:
    """The catalog in a directory. It need not be whole: the record says.

    Raises UsageError where there is none, Refused where it is half written (no closing record) or where a part is
    missing or has another size than was recorded.
    """
    if not directory.is_dir():
        raise UsageError(
            f"there is no catalog {directory.name!r}",
            cause=f"{directory} is missing: never scanned, or removed",
            hint="run `migrator scan`",
        )
    try:
        record, parts = read_record(directory / CLOSING_RECORD)
    except FileNotFoundError:
        raise Refused(
            f"catalog {directory.name!r} is half written: it has no closing record",
            cause="its scan was interrupted or is still running",
            hint="run `migrator scan`: it goes on where it was",
        ) from None
    for part in parts:
        file = directory / part.name
        size_bytes = file.stat().st_size if file.is_file() else None
        if size_bytes != part.size_bytes:
            found = "is missing" if size_bytes is None else f"has {size_bytes} bytes instead of {part.size_bytes}"
            raise Refused(
                f"catalog {directory.name!r} is damaged: {part.name} {found}",
                cause="a file of the catalog was removed, cut off or changed after the scan",
                hint="run `migrator scan --restart` for a new catalog",
            )
    return ClosedCatalog(
        directory=directory,
        record=record,
        part_files=tuple(directory / part.name for part in parts),
        problem_files=tuple(numbered(directory, "problems").values()),
    )
