"""The list of what an audit found on drained bricks, in the directory of a run."""

from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from migrator.domain.drain_seen import LeftKind
from migrator.domain.paths import percent_escape

_NAME = "left.tsv"


class LeftListFile:
    """The `LeftList` port: a line a path, of the brick, what it is, and the path percent-escaped. That of an earlier audit in the
    same directory is replaced.
    """

    def __init__(self, directory: str) -> None:
        self._file = Path(directory) / _NAME
        self._file.unlink(missing_ok=True)
        self._lock = Lock()
        self._written = False

    @property
    def file(self) -> str | None:
        """As the port says."""
        return str(self._file) if self._written else None

    def add(self, brick: str, kind: LeftKind, paths: Iterable[bytes]) -> None:
        """As the port says."""
        with self._lock, self._file.open("a", encoding="utf-8") as opened:
            opened.writelines(f"{brick}\t{kind.value}\t{percent_escape(path)}\n" for path in paths)
            self._written = True
