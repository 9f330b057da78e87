"""Changes of a source that is kept. Pure."""

from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import EntryType


class SourceChangeKind(StrEnum):
    """The kind of change to a path of a retained source. A directory that replaces another type of entry was `made`."""

    MADE = "made"
    CHANGED = "changed"
    REMOVED = "removed"


class SourceChange(Struct, frozen=True, kw_only=True):
    """A path of a retained source that differs from the final pass, except for what a rollback carried back. `stands`
    is the present type; None if nothing is there. Size and mtime are those of the scan.
    """

    path: bytes
    kind: SourceChangeKind
    stands: EntryType | None
    size_bytes: int | None = None
    mtime_ns: int | None = None
