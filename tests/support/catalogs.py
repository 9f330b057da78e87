"""Catalogs of invented entries, written by the product's own writer, for tests of what reads catalogs."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from migrator.catalog.files import ClosedCatalogs, open_closed
from migrator.catalog.model import BrickWalk, CatalogRecord
from migrator.catalog.writer import PartsWriter
from migrator.core.entry import Entry, EntryType, UserTree
from migrator.core.paths import name as name_of
from migrator.core.paths import parent, show
from tests.support.making import made

SITE_ID = "0b0e1a34-0000-4000-8000-000000000001"


_WHOLE = made(
    CatalogRecord,
    name="c1",
    scan_id=1,
    site_id="s",
    via="bricks",
    started_at_s=1.0,
    finished_at_s=2.0,
    whole=True,
    rows=1,
    files=1,
    directories=1,
    size_bytes=1,
)


def whole_catalog(**changes: Any) -> CatalogRecord:
    """The closing record of a whole scan of the bricks, some fields changed."""
    return replace(_WHOLE, **changes)


def invented(path: bytes, type: EntryType = EntryType.FILE, **facts: Any) -> Entry:  # noqa: A002 - the word of the domain
    """An entry whose facts of no interest are filled in (also where they are given as None); its inode is its own."""
    given: dict[str, Any] = {"size_bytes": 0, "uid": 1000, "gid": 100, "mode": 0o644, "mtime_ns": 0, "nlink": 1}
    given |= {name: fact for name, fact in facts.items() if fact is not None}
    given = {"atime_ns": 0, "ctime_ns": given["mtime_ns"], "dev": 64, "rdev": 0, **given}
    given = {"blocks": (given["size_bytes"] + 511) // 512, "ino": hash(path) & (2**63 - 1), **given}
    return Entry(path=path, type=type, **given)


def directory(path: bytes, *, uid: int = 1000) -> Entry:
    """A directory."""
    return invented(path, EntryType.DIRECTORY, size_bytes=4096, mode=0o755, nlink=2, uid=uid)


def symlink(path: bytes, target: bytes) -> Entry:
    """A symlink."""
    return invented(path, EntryType.SYMLINK, size_bytes=len(target), blocks=0, mode=0o777, symlink_target=target)


def write_catalog(
    catalogs_dir: Path,
    entries: Iterable[Entry],
    trees: Sequence[bytes],
    *,
    name: str = "catalog-1",
    whole: bool = True,
    max_part_rows: int = 100_000,
    bricks: Sequence[str] = (),
    scope: tuple[bytes, ...] = (),
) -> CatalogRecord:
    """A closed catalog of these entries, in their order; its users are named as the last parts of the trees. `bricks`
    are those that it says were walked, `scope` the trees that it says it covers (empty: everything).
    """
    catalog = catalogs_dir / name
    catalog.mkdir(parents=True)
    writer = PartsWriter(catalog, max_part_rows=max_part_rows)

    def place(entry: Entry) -> tuple[bytes, bytes | None]:
        owner = next((tree for tree in trees if entry.path == tree or entry.path.startswith(tree + b"/")), None)
        return parent(entry.path), owner

    rows = files = 0
    for (_, tree), run in groupby(entries, key=place):
        found = list(run)
        rows += len(found)
        files += sum(entry.type is not EntryType.DIRECTORY for entry in found)
        writer.add(tree, found)
    record = made(
        CatalogRecord,
        name=name,
        scan_id=1,
        site_id=SITE_ID,
        via="mount",
        trees=tuple(UserTree(path=tree, user=show(name_of(tree))) for tree in trees),
        started_at_s=1000.0,
        finished_at_s=1060.0,
        whole=whole,
        reasons=() if whole else ("brick gl1:/brick was down",),
        rows=rows,
        files=files,
        directories=rows - files,
        bricks=tuple(
            BrickWalk(brick=brick, host=brick.partition(":")[0], rows=0, directories=0, elapsed_s=1.0, whole=True)
            for brick in bricks
        ),
        scope=scope,
    )
    return writer.close(record)


def closed_catalogs(directory: Path) -> ClosedCatalogs:
    """Those in a directory without a ledger: each is taken for the one that was recorded."""
    return ClosedCatalogs(directory, lambda name: open_closed(directory / name).record)
