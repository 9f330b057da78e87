"""The source as a scan of its bricks lists it: a mount of Gluster lists some hundred paths a second, bricks list thousands."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from migrator.core.entry import Entry
from migrator.fs.ports import Block, Digest, ReadablePaths
from migrator.fs.reading import problem_of

if TYPE_CHECKING:
    from migrator.catalog.listing import DirectoryListing


@dataclass(frozen=True, slots=True)
class ScannedSource:
    """Directories come from the listing, with digests of attributes only, and everything else from the mount. Thread-safe.

    A path that was made since the scan is missing from its directory; the comparison looks paths up before it reports one.
    """

    mount: ReadablePaths
    listing: "DirectoryListing"

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        """As the port."""
        entries = self.listing.directory(path)
        try:
            while block := tuple(islice(entries, block_entries)):
                yield Block(entries=block, problems=())
        except OSError as error:
            yield Block(entries=(), problems=(problem_of(path, "list", error),))

    def look(self, path: bytes) -> Entry | None:
        """As the port."""
        return self.mount.look(path)

    def digest(self, path: bytes, algorithm: str) -> Digest:
        """As the port."""
        return self.mount.digest(path, algorithm)
