"""Findings of an audit of drained bricks. Pure."""

from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import EntryType


class LeftKind(StrEnum):
    """The kind of a finding of an audit on a brick."""

    FILE = "file"
    MAY_BE_DATA = "may-be-data"
    NO_GFID = "no-gfid"
    UNREADABLE = "unreadable"


class Leftover(Struct, frozen=True, kw_only=True):
    """A finding of an audit. The fields after `path` are known for files (`type` None: they are not); `reason` is the
    walk's for all others. `link_count` excludes Gluster's own link.
    """

    brick: str
    kind: LeftKind
    path: bytes
    type: EntryType | None = None
    size_bytes: int = 0
    gfid: bytes = b""
    link_count: int = 1
    reason: str = ""


class VolumeName(Struct, frozen=True, kw_only=True):
    """What the mount shows under a name. `gfid` is empty if it is not reported."""

    gfid: bytes
    type: EntryType
    size_bytes: int


class DrainAudit(Struct, frozen=True, kw_only=True):
    """The newest audit by this process: every brick of the drain, walked on its host.

    `left` counts entries that are not directories, link-to files or Gluster's own. `unsure` counts entries whose kind
    is not certain. `whole` is set if every brick was walked and nothing was unreadable. `examples` and `reasons` are
    for people. `leftovers` are the first findings, `list_file` lists all, and `commands_file` has the commands for an
    administrator.
    """

    started_at_s: float
    whole: bool
    left: int
    unsure: int
    examples: tuple[bytes, ...] = ()
    reasons: tuple[str, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    list_file: str | None = None
    commands_file: str | None = None

    @property
    def clean(self) -> bool:
        """Return whether the audit is complete and found no data left."""
        return self.whole and not self.left and not self.unsure
