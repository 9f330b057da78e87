"""Asking the manifest of an earlier verification what content was read, path by path.

A manifest is sorted by path, so what lies in one directory lies in few row groups, and a walk that goes tree by tree asks
the same few again and again. Those are held, and no more: memory is flat in the size of the manifest.
"""

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from migrator.domain.errors import Refused
from migrator.domain.verification import ContentReading, ReadContent, SideFacts

_HELD_GROUPS = 12
_PATH = "path"
_COLUMNS = (
    "ino",
    "size",
    "mtime_ns",
    "ctime_ns",
    "target_ino",
    "target_mtime_ns",
    "target_ctime_ns",
    "digest",
    "read_by",
    "source_clock_ns",
    "target_clock_ns",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The rows of one row group: their paths, in order, and the other columns by name."""

    paths: list[bytes]
    columns: "Mapping[str, pa.ChunkedArray[Any]]"


class ParquetEarlierManifest:
    """The `EarlierManifest` port over one file. Thread-safe."""

    def __init__(self, file: Path, *, held_groups: int = _HELD_GROUPS) -> None:
        self._held_groups = held_groups
        self._lock = threading.Lock()
        self._held: OrderedDict[int, _Group] = OrderedDict()
        self._closed = False
        try:
            self._file = pq.ParquetFile(file)
            self._groups, self._firsts = self._index()
        except (OSError, pa.ArrowException) as error:
            raise Refused(
                "the manifest of a verification cannot be read",
                cause=f"{file}: {error}",
                hint="verify the batch again",
            ) from error

    def find(self, paths: Sequence[bytes]) -> Mapping[bytes, ReadContent]:
        """What is known of the content of these paths, as the port says."""
        found: dict[bytes, ReadContent] = {}
        with self._lock:
            # In order, so that every group is looked at once.
            for path in sorted(paths):
                try:
                    content = self._find(path)
                except (OSError, pa.ArrowException):
                    continue
                if content is not None:
                    found[path] = content
        return found

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._closed = True
            self._held.clear()
            self._file.close()

    def _index(self) -> tuple[list[int], list[bytes]]:
        """The groups that have rows, and the first path of each. Not from the file's statistics: those may be cut short."""
        missing = {_PATH, *_COLUMNS} - set(self._file.schema_arrow.names)
        if missing:
            raise pa.ArrowInvalid(f"it has no columns {', '.join(sorted(missing))}")
        groups: list[int] = []
        firsts: list[bytes] = []
        for number in range(self._file.num_row_groups):
            batch = next(self._file.iter_batches(batch_size=1, row_groups=[number], columns=[_PATH]), None)
            if batch is not None and batch.num_rows:
                groups.append(number)
                firsts.append(batch.column(0)[0].as_py())
        if any(later < earlier for earlier, later in pairwise(firsts)):
            raise pa.ArrowInvalid("its rows are not in order")
        return groups, firsts

    def _find(self, path: bytes) -> ReadContent | None:
        place = bisect_right(self._firsts, path) - 1
        if place < 0 or self._closed:
            return None
        group = self._group(self._groups[place])
        row = bisect_left(group.paths, path)
        if row >= len(group.paths) or group.paths[row] != path:
            return None
        return _content({name: column[row].as_py() for name, column in group.columns.items()})

    def _group(self, number: int) -> _Group:
        held = self._held.get(number)
        if held is not None:
            self._held.move_to_end(number)
            return held
        table = self._file.read_row_group(number, columns=[_PATH, *_COLUMNS])
        group = _Group(
            paths=[path or b"" for path in table.column(_PATH).to_pylist()],
            columns={name: table.column(name) for name in _COLUMNS},
        )
        self._held[number] = group
        if len(self._held) > self._held_groups:
            self._held.popitem(last=False)
        return group


def _content(row: Mapping[str, Any]) -> ReadContent | None:
    if row["digest"] is None or row["read_by"] is None:
        return None
    # Where there is a digest both sides had the same size.
    return ReadContent(
        source=_side(row["ino"], row["size"], row["mtime_ns"], row["ctime_ns"]),
        target=_side(row["target_ino"], row["size"], row["target_mtime_ns"], row["target_ctime_ns"]),
        digest=row["digest"],
        reading=ContentReading(
            verification=row["read_by"],
            source_clock_ns=row["source_clock_ns"],
            target_clock_ns=row["target_clock_ns"],
        ),
    )


def _side(ino: int, size_bytes: int, mtime_ns: int, ctime_ns: int) -> SideFacts:
    return SideFacts(ino=ino, size_bytes=size_bytes, mtime_ns=mtime_ns, ctime_ns=ctime_ns)
