"""The journal of a churn: every path that it is about to touch, written before it is touched.

JSON lines with percent-escaped paths relative to the root. `paths` are names whose entry, content or attributes change;
`parents` directories that get another mtime; `subtrees` directories that change with everything in them.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from migrator.domain.paths import is_beneath, parent, percent_escape, percent_unescape


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """Everything that a journal names."""

    paths: frozenset[bytes]
    parents: frozenset[bytes]
    subtrees: frozenset[bytes]
    operations: int

    def covers(self, path: bytes) -> bool:
        """Whether a difference at this path is the churn's: touched itself, or in a directory that moved."""
        if path in self.paths or path in self.parents:
            return True
        return any(is_beneath(path, subtree) for subtree in self.subtrees)


class ChurnJournal:
    """Appends to a journal; close it, or use it as a context manager. What is written survives `kill -9`."""

    def __init__(self, file: bytes) -> None:
        self._fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def intend(self, operation: str, paths: Iterable[bytes], subtrees: Iterable[bytes] = ()) -> None:
        """Write down one operation before it is done. Raises OSError."""
        named, moved = sorted(paths), sorted(subtrees)
        line = {
            "operation": operation,
            "paths": [percent_escape(path) for path in named],
            "parents": [percent_escape(path) for path in sorted({parent(path) for path in (*named, *moved)})],
            "subtrees": [percent_escape(path) for path in moved],
        }
        os.write(self._fd, json.dumps(line).encode("ascii") + b"\n")


def read_journal(file: bytes) -> Touched:
    """Everything that a journal names; a last line that was cut off by a crash was never acted upon."""
    paths: set[bytes] = set()
    parents: set[bytes] = set()
    subtrees: set[bytes] = set()
    operations = 0
    with open(file, "rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            entry = json.loads(line)
            operations += 1
            paths.update(map(percent_unescape, entry["paths"]))
            parents.update(map(percent_unescape, entry["parents"]))
            subtrees.update(map(percent_unescape, entry["subtrees"]))
    return Touched(
        paths=frozenset(paths), parents=frozenset(parents), subtrees=frozenset(subtrees), operations=operations
    )
