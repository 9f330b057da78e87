"""The digests that the compiled program reports: as columns of Arrow, without a step of Python for each file, and those of
streams in a file for each attempt, as evidence of what was on the source.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from pyarrow._csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

from migrator.catalog.columns import Columns
from migrator.core.durable import replacing

DIGESTS_SCHEMA = Columns[Any](
    "place:int64? ino:uint64? size:int64? mtime_ns:int64? ctime_ns:int64? digest:binary?"
).schema
"""A file by its place in a list, with its facts and its digest in hexadecimal."""

_LINE = re.compile(rb"^D ([0-9]{1,10} [0-9]{1,20} [0-9]{1,19} -?[0-9]{1,19} -?[0-9]{1,19} [0-9a-f]{32})$", re.MULTILINE)
_AS_READ = ReadOptions(column_names=DIGESTS_SCHEMA.names, use_threads=False)
_AS_SPLIT = ParseOptions(delimiter=" ", quote_char=False)
_AS_TYPED = ConvertOptions(column_types=DIGESTS_SCHEMA)
_TOKEN = re.compile(r"[0-9A-Za-z-]+")


def read_lines(output: bytes | bytearray) -> pa.RecordBatch:
    """The files of a list that the compiled program has read, by their places there; other lines are ignored."""
    lines = b"\n".join(_LINE.findall(output))
    # What has a number too large for any file is damaged, and is read again.
    with suppress(pa.ArrowInvalid):
        if lines:
            return one_batch(DIGESTS_SCHEMA, read_csv(BytesIO(lines), _AS_READ, _AS_SPLIT, _AS_TYPED).to_batches())
    return no_digests()


def no_digests() -> pa.RecordBatch:
    """The digests of an attempt that reported none."""
    return one_batch(DIGESTS_SCHEMA, [])


def one_batch(schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """All rows in one batch."""
    whole: pa.RecordBatch = pa.concat_batches([pa.RecordBatch.from_pylist([], schema=schema), *batches])  # type: ignore[attr-defined]
    return whole


class CopyDigests(Struct, frozen=True):
    """The digests that streams reported of what they copied: a file for each attempt that succeeded, under the attempt's token,
    which no other attempt has, of whatever ledger. Thread-safe.
    """

    directory: Path

    def keep(self, token: str, output: bytes) -> None:
        """Record the digests in the output of an attempt durably, if there are any. May be called again. Raises OSError."""
        digests = read_lines(output)
        if not digests.num_rows:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        with replacing(self._file(token)) as stream:
            pq.write_table(pa.Table.from_batches([digests]), stream, compression="zstd", use_dictionary=False)

    def read(self, token: str) -> pa.RecordBatch:
        """The digests of an attempt: none if it reported none, or if its file cannot be read, which costs a reading of the source."""
        with suppress(OSError, pa.ArrowException):
            found = pq.read_table(self._file(token), schema=DIGESTS_SCHEMA)
            return one_batch(DIGESTS_SCHEMA, found.to_batches())
        return no_digests()

    def _file(self, token: str) -> Path:
        if _TOKEN.fullmatch(token) is None:
            raise ValueError(f"{token!r} is no token of an attempt")
        return self.directory / f"{token}.parquet"
