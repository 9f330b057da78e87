"""Values of a site: its links, its rules for old and tiny files, and the engines that site.toml can name. Pure."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from migrator.core.entry import EntryType
from migrator.fs.model import FileLook, Mount


class Setting(Struct, frozen=True, kw_only=True):
    """A key of site.toml."""

    section: str
    """Its section."""
    key: str
    """Its name."""
    value: str | None
    """Its value in the form of site.toml; None if it is not set and has no default."""
    is_default: bool
    """The value is the default."""
    meaning: str
    """Its meaning."""


class LinkReading(Struct, frozen=True, kw_only=True):
    """The state of a user's link. All paths are absolute.

    `path` is the link that site.toml names. `way` holds every directory and symlink on the way to it, from the root on;
    it ends at the first one that others could redirect. `directory` is the link's directory, without symlinks, and
    `mount` the mount there; None if the way ended before. `type` is None if nothing has the link's name. For a symlink,
    `text` is its content and `leads_to` the real path of its target; None if the target is missing or cannot be found
    out (`unread`).
    """

    path: bytes
    way: tuple[FileLook, ...] = ()
    directory: bytes | None = None
    mount: Mount | None = None
    type: EntryType | None = None
    text: bytes | None = None
    leads_to: bytes | None = None
    unread: str = ""


class LinkPlace(Struct, frozen=True, kw_only=True):
    """A site's settings for links: `link` of site.toml, and the absolute roots of source and target.

    `volume` is the Gluster volume of the source; None if the source is no Gluster volume.
    """

    link: str
    source_root: bytes
    target_root: bytes
    volume: str | None = None


class LinkProblem(Struct, frozen=True, kw_only=True):
    """Why a link cannot be switched, and the remedy."""

    message: str
    fix: str


class ReapAction(StrEnum):
    """The treatment of matched files: they are reported only and copied as all others, packed into archives, or not copied."""

    LIST = "list"
    ARCHIVE = "archive"
    SKIP = "skip"


class ReapClock(StrEnum):
    """The timestamp that defines the age of a file. ATIME: the later of atime and mtime, since a write changes no atime."""

    MTIME = "mtime"
    ATIME = "atime"


class ReapRule(Struct, frozen=True, kw_only=True):
    """The files of one user tree to reap. All conditions must hold (None: no condition); without any, no file matches.

    `exclude` are globs of `migrator.reap.rules`. `hidden` and `executables` include files that the default leaves out.
    """

    action: ReapAction = ReapAction.LIST
    older_than_s: int | None = None
    smaller_than_bytes: int | None = None
    by: ReapClock = ReapClock.MTIME
    exclude: tuple[str, ...] = ()
    hidden: bool = False
    executables: bool = False

    @property
    def matches_anything(self) -> bool:
        """True if it has any condition."""
        return self.older_than_s is not None or self.smaller_than_bytes is not None

    @property
    def needs_atime(self) -> bool:
        """True if it depends on atime."""
        return self.older_than_s is not None and self.by is ReapClock.ATIME


class ReapPolicy(Struct, frozen=True, kw_only=True):
    """The rule of the site, and those of users (by name) and user trees (by path, as shown)."""

    rule: ReapRule = ReapRule()
    by_name: Mapping[str, ReapRule] = {}

    @property
    def needs_atime(self) -> bool:
        """True if any rule depends on atime."""
        return any(rule.needs_atime for rule in (self.rule, *self.by_name.values()))


AUTO = "auto"
RSYNC = "rsync"
DIRECT = "direct"
DRIVERS = ("fpsync", "parsyncfp2")
"""Programs that copy whole trees through the mount, in a seed pass before its chunks."""


def needs_rsync(requested: str) -> bool:
    """True if chunks that are read through the mount are copied by rsync, those after a driver included."""
    return requested not in (AUTO, DIRECT)


def copies_ranges(requested: str) -> bool:
    """True if big files are planned in ranges: only `direct` copies ranges."""
    return not needs_rsync(requested)
