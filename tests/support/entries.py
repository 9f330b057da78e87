"""Entries for tests of pure decisions."""

from dataclasses import replace
from typing import Any

from migrator.core.entry import Entry, EntryType

_PLAIN = Entry(
    path=b"home/alice/file",
    type=EntryType.FILE,
    size_bytes=8192,
    blocks=16,
    uid=1001,
    gid=1002,
    mode=0o644,
    mtime_ns=1_500_000_000_123_456_789,
    atime_ns=1,
    ctime_ns=2,
    dev=3,
    rdev=0,
    ino=4,
    nlink=1,
)


def entry(path: bytes = b"home/alice/file", **changes: Any) -> Entry:
    """A plain file, or something else with some changes."""
    return replace(_PLAIN, path=path, **changes)
