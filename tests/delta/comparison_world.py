"""A source of two user trees that is scanned twice, and all that a comparison of the two catalogs says."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from migrator.catalog.ports import Scratch
from migrator.core.entry import Entry, EntryType
from migrator.core.states import ChunkKind
from migrator.core.units import NS_PER_S
from migrator.delta.model import ChangeKind, Changes
from migrator.delta.store import Comparison, Comparisons
from tests.delta.changing_trees import Source
from tests.support.catalogs import closed_catalogs, write_catalog

A, B = b"home/a", b"home/b"
TREES = (A, B)
FILE, DIRECTORY, SYMLINK = EntryType.FILE, EntryType.DIRECTORY, EntryType.SYMLINK
SETTLED_NS = 998 * NS_PER_S
"""Catalogs of `write_catalog` begin at 1000 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that a comparison says."""

    changes: Changes
    renames: list[tuple[bytes, bytes]]
    gone: list[tuple[bytes, int]]
    files: set[bytes]
    directories: set[bytes]

    def kinds(self) -> dict[str, int]:
        """How many paths of every kind there are."""
        counted = {kind.value: self.changes.tally(kind).paths for kind in ChangeKind}
        return {kind: paths for kind, paths in counted.items() if paths}


class World:
    """A source that is scanned twice."""

    def __init__(self, catalogs: Path) -> None:
        self.source = Source(TREES)
        self._catalogs = catalogs
        self._base: Sequence[Entry] = ()
        self._times = 0

    def files(self, *paths: bytes, size_bytes: int = 10) -> None:
        for path in paths:
            self.source.make(path, FILE, size_bytes)

    def directories(self, *paths: bytes) -> None:
        for path in paths:
            self.source.make(path, DIRECTORY)

    def scan(self, **options: bool) -> None:
        """The scan that the target was made from."""
        self._base = copy.deepcopy(self.source).entries(**options)

    @contextmanager
    def _open(
        self, base: Sequence[Entry], now: Sequence[Entry], trees: Sequence[bytes], **settings: Any
    ) -> Iterator[Comparison]:
        self._times += 1
        catalogs = self._catalogs / str(self._times)
        for name, entries in (("base", base), ("now", now)):
            write_catalog(catalogs, entries, TREES, name=name)
        comparisons = Comparisons(closed_catalogs(catalogs), scratch=Scratch(self._catalogs / "tmp"), threads=1)
        with comparisons.open("base", "now", trees=trees, **settings) as comparison:
            yield comparison

    def compare(
        self,
        *,
        base: Sequence[Entry] | None = None,
        now: Sequence[Entry] | None = None,
        trees: Sequence[bytes] = TREES,
        **settings: Any,
    ) -> Seen:
        """Scan again and compare; or compare other rows."""
        before, after = base or self._base, now or self.source.entries()
        with self._open(before, after, trees, **settings) as comparison:
            listings = list(comparison.listings([trees]))
            return Seen(
                changes=comparison.changes,
                renames=[(one.old, one.new) for one in comparison.renames()],
                gone=[(one.path, one.names) for one in comparison.gone()],
                files={path for one in listings if one.kind is not ChunkKind.DIRECTORIES for path in one.paths},
                directories={path for one in listings if one.kind is ChunkKind.DIRECTORIES for path in one.paths},
            )


def change(entries: Sequence[Entry], path: bytes, **facts: object) -> list[Entry]:
    """The rows with other facts of one path."""
    assert any(entry.path == path for entry in entries)
    return [replace(entry, **facts) if entry.path == path else entry for entry in entries]  # type: ignore[arg-type]


def one_file(world: World) -> list[Entry]:
    world.directories(A + b"/d")
    world.files(A + b"/d/f", A + b"/d/other", B + b"/f")
    world.scan()
    return world.source.entries()
