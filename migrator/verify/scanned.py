"""The source as a scan of its bricks lists it: a mount of Gluster lists some hundred paths a second, bricks list thousands."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrator.catalog.model import ScanProblem
from migrator.core.entry import Entry
from migrator.fs.ports import Block, Digest, ReadablePaths
from migrator.fs.reading import problem_of

if TYPE_CHECKING:
    from migrator.catalog.listing import DirectoryListing


@dataclass(frozen=True, slots=True)
class ScannedSource:
    """Directories come from the listing, and everything else from the mount: single paths, content, and paths with ACLs or
    other attributes, whose values no catalog has. Thread-safe.

    A path that was made since the scan is missing from its directory; the comparison looks paths up before it reports one.
    """

    mount: ReadablePaths
    listing: "DirectoryListing"

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        """As the port."""
        entries: list[Entry] = []
        problems: list[ScanProblem] = []
        try:
            for entry, has_attributes in self.listing.directory(path):
                try:
                    found = self.mount.look(entry.path) if has_attributes else entry
                except OSError as error:
                    problems.append(problem_of(entry.path, "lstat", error))
                    continue
                entries += [] if found is None else [found]
                if len(entries) >= block_entries:
                    yield Block(entries=tuple(entries), problems=tuple(problems))
                    entries, problems = [], []
        except OSError as error:
            problems.append(problem_of(path, "list", error))
        yield Block(entries=tuple(entries), problems=tuple(problems))

    def look(self, path: bytes) -> Entry | None:
        """As the port."""
        return self.mount.look(path)

    def digest(self, path: bytes, algorithm: str) -> Digest:
        """As the port."""
        return self.mount.digest(path, algorithm)
