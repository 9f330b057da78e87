"""Move lists: one Parquet file for each delta pass, its renames first, then what vanished."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from migrator.adapters.durable import file_digest, replacing, sync
from migrator.domain.changes import Gone, Rename
from migrator.domain.entry import EntryType
from migrator.domain.errors import Refused, UsageError
from migrator.ports.move_lists import WrittenMoves

_FIELDS: list["pa.Field[Any]"] = [
    pa.field("what", pa.string(), nullable=False),
    pa.field("tree", pa.binary(), nullable=False),
    pa.field("path", pa.binary(), nullable=False),
    pa.field("new_path", pa.binary()),
    pa.field("type", pa.string(), nullable=False),
    pa.field("size", pa.int64()),
    pa.field("mtime_ns", pa.int64()),
    pa.field("names", pa.int64()),
]
MOVES_SCHEMA = pa.schema(_FIELDS)
"""`what` is `rename` (with `new_path`, `size` and `mtime_ns`) or `gone` (with `names`); a row group holds one of them."""

ROW_GROUP_ROWS = 20_000

_RENAME, _GONE = "rename", "gone"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}", re.ASCII)
_SUFFIX = ".parquet"


class MoveListFiles:
    """The `MoveLists` port over one directory. A list's name is relative to it, so that a site can be moved."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, name: str, renames: Iterable[Rename], gone: Iterable[Gone]) -> WrittenMoves:
        """Write a list durably, as the port says. Raises UsageError for what cannot be a name, and OSError."""
        if not _NAME.fullmatch(name):
            raise UsageError(f'"{name}" cannot be the name of a move list', hint="letters, digits, dots, dashes")
        move_list = name + _SUFFIX
        self._directory.mkdir(parents=True, exist_ok=True)
        sync(self._directory.parent)
        with replacing(self._directory / move_list) as stream:
            renamed, vanished = _write(stream, renames, gone)
        return WrittenMoves(move_list=move_list, digest=self.digest(move_list), renames=renamed, gone=vanished)

    def renames(self, move_list: str) -> Iterator[Rename]:
        """The renames of a list, in order."""
        for row in self._rows(move_list, _RENAME):
            yield Rename(
                tree=row["tree"],
                old=row["path"],
                new=row["new_path"],
                type=EntryType(row["type"]),
                size_bytes=row["size"],
                mtime_ns=row["mtime_ns"],
            )

    def gone(self, move_list: str) -> Iterator[Gone]:
        """What vanished, in order."""
        for row in self._rows(move_list, _GONE):
            yield Gone(tree=row["tree"], path=row["path"], type=EntryType(row["type"]), names=row["names"])

    def digest(self, move_list: str) -> str:
        """BLAKE2b over the file, in hexadecimal. Raises Refused where it is missing."""
        file = self._file(move_list)
        try:
            return file_digest(file)
        except FileNotFoundError:
            raise _missing(move_list, file) from None

    def _rows(self, move_list: str, what: str) -> Iterator[dict[str, Any]]:
        file = self._file(move_list)
        try:
            with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
                if not parquet.schema_arrow.equals(MOVES_SCHEMA):
                    raise _damaged(move_list, file, "it has other columns")
                for group in range(parquet.metadata.num_row_groups):
                    statistics = parquet.metadata.row_group(group).column(0).statistics
                    if statistics is None or statistics.max not in (_RENAME, _GONE):
                        raise _damaged(move_list, file, "what its rows are is not known")
                    if statistics.max == what:
                        yield from parquet.read_row_group(group).to_pylist()
        except FileNotFoundError:
            raise _missing(move_list, file) from None
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _damaged(move_list, file, str(error)) from error

    def _file(self, move_list: str) -> Path:
        if not _NAME.fullmatch(move_list):
            raise Refused(
                f"{move_list!r} cannot be a move list of this site",
                cause="move lists lie in the state directory",
                hint="bring the state directory back as it was",
            )
        return self._directory / move_list


def _write(stream: BinaryIO, renames: Iterable[Rename], gone: Iterable[Gone]) -> tuple[int, int]:
    counts = [0, 0]
    with pq.ParquetWriter(
        stream,
        MOVES_SCHEMA,
        compression="zstd",
        write_statistics=["what"],
        write_page_checksum=True,
        use_dictionary=["what", "tree", "type"],  # type: ignore[arg-type] # a list of columns is documented
    ) as writer:
        left = iter(renames)
        while some := list(islice(left, ROW_GROUP_ROWS)):
            writer.write_batch(_rename_rows(some))
            counts[0] += len(some)
        vanished = iter(gone)
        while block := list(islice(vanished, ROW_GROUP_ROWS)):
            writer.write_batch(_gone_rows(block))
            counts[1] += len(block)
    return counts[0], counts[1]


def _rename_rows(renames: Sequence[Rename]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(_RENAME, pa.string()), len(renames)),
            pa.array([rename.tree for rename in renames], pa.binary()),
            pa.array([rename.old for rename in renames], pa.binary()),
            pa.array([rename.new for rename in renames], pa.binary()),
            pa.array([rename.type.value for rename in renames], pa.string()),
            pa.array([rename.size_bytes for rename in renames], pa.int64()),
            pa.array([rename.mtime_ns for rename in renames], pa.int64()),
            pa.nulls(len(renames), pa.int64()),
        ],
        schema=MOVES_SCHEMA,
    )


def _gone_rows(gone: Sequence[Gone]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(_GONE, pa.string()), len(gone)),
            pa.array([one.tree for one in gone], pa.binary()),
            pa.array([one.path for one in gone], pa.binary()),
            pa.nulls(len(gone), pa.binary()),
            pa.array([one.type.value for one in gone], pa.string()),
            pa.nulls(len(gone), pa.int64()),
            pa.nulls(len(gone), pa.int64()),
            pa.array([one.names for one in gone], pa.int64()),
        ],
        schema=MOVES_SCHEMA,
    )


def _missing(move_list: str, file: Path) -> Refused:
    return Refused(
        f"the move list {move_list!r} is missing",
        cause=f"{file} was removed while its delta pass was under way",
        hint="bring the state directory back as it was",
    )


def _damaged(move_list: str, file: Path, why: str) -> Refused:
    return Refused(
        f"the move list {move_list!r} cannot be read: {why}",
        cause=f"{file} was cut off or replaced",
        hint="bring the state directory back as it was",
    )
