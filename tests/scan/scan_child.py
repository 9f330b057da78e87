"""One scan in a process of its own, to be killed: `python -m tests.scan.scan_child DIRECTORY HANG_AFTER`.

After HANG_AFTER directories (or halves of them) one thread stands still, and `standing` is printed; the others do so a few
directories later, so that however late the kill comes, most of the scan is still to be done.
"""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from migrator.fs.ports import Block
from migrator.fs.reading import PosixSource
from tests.support.scan_site import ScanSite

_MORE = 3
"""So many directories, or halves, are done by others after one thread stands still."""


class Hanging(PosixSource):
    """Stands still at a directory, or after half of its blocks."""

    def __init__(self, root: bytes, hang_after: int) -> None:
        super().__init__(root)
        self._left = hang_after
        self._counting = threading.Lock()

    def read_directory(self, path: bytes, *, block_entries: int = 4096) -> Iterator[Block]:
        for number, block in enumerate(super().read_directory(path, block_entries=3)):
            if number == 1:
                self._step()
            yield block
        self._step()

    def _step(self) -> None:
        with self._counting:
            self._left -= 1
            left = self._left
        if left == 0:
            os.write(1, b"standing\n")
        if left == 0 or left < -_MORE:
            threading.Event().wait()


def main() -> None:
    site = ScanSite(Path(sys.argv[1]))
    source = Hanging(os.fsencode(site.root), int(sys.argv[2]))
    site.scan(source=source, max_part_rows=8)
    os.write(1, b"done\n")


if __name__ == "__main__":
    main()
