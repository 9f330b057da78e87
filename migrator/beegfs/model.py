"""Storage and metadata targets of BeeGFS, and quotas. Pure."""

from enum import StrEnum
from typing import ClassVar

from msgspec import Struct


class TargetKind(StrEnum):
    """The kind of a target: it stores contents of files, or their inodes."""

    METADATA = "metadata"
    STORAGE = "storage"


class Reachability(StrEnum):
    """Whether the management service receives a target's heartbeats. It reports a lost server only after about 100 s."""

    ONLINE = "Online"
    PROBABLY_OFFLINE = "Probably-offline"
    OFFLINE = "Offline"


class Consistency(StrEnum):
    """Whether the content of a target can be trusted."""

    GOOD = "Good"
    NEEDS_RESYNC = "Needs-resync"
    BAD = "Bad"


class CapacityPool(StrEnum):
    """The pool by free space. New files go to the low pool only if no target is in the normal pool, and to the
    emergency pool last.
    """

    NORMAL = "normal"
    LOW = "low"
    EMERGENCY = "emergency"


class StorageTarget(Struct, frozen=True, kw_only=True):
    """A storage or metadata target. None means unknown."""

    NO_KEYS: ClassVar = frozenset({"shown"})

    kind: TargetKind
    """What the target stores."""
    number: int
    """Its number in BeeGFS."""
    name: str
    """Its name."""
    node: str
    """Name of its server."""
    reachability: Reachability | None
    """Whether the management service receives its heartbeats."""
    consistency: Consistency | None
    """Whether its content can be trusted."""
    pool: CapacityPool | None = None
    """The pool by free space that it is in."""
    storage_pool: int | None = None
    """Number of its storage pool."""
    last_contact_s: float | None = None
    """Time since its last contact with the management service."""
    answers: bool | None = None
    """False if its server did not answer a question."""
    total_bytes: int | None = None
    free_bytes: int | None = None
    total_inodes: int | None = None
    free_inodes: int | None = None

    @property
    def percent_free(self) -> float | None:
        """Percentage of its bytes that are free."""
        return None if self.free_bytes is None or not self.total_bytes else 100.0 * self.free_bytes / self.total_bytes

    @property
    def shown(self) -> str:
        """The target for people."""
        return f"{self.kind.value} target {self.name} ({self.number}, on {self.node})"


class StripeSettings(Struct, frozen=True, kw_only=True):
    """How new files in a directory are striped: the number of targets, the chunk size, and their storage pool by name or
    number. None: unchanged.
    """

    targets: int | None = None
    chunk_bytes: int | None = None
    pool: str | None = None


class LayoutRule(Struct, frozen=True, kw_only=True):
    """Settings for the directories of the user trees that one of the globs matches (none: all), or only for directories
    with more than half of their bytes in files larger than `larger_than_bytes`.
    """

    stripe: StripeSettings
    trees: tuple[str, ...] = ()
    larger_than_bytes: int | None = None


class LaidOut(Struct, frozen=True, kw_only=True):
    """A directory whose settings differ from those of the directory above. `rule` None: it has those of its tree."""

    path: bytes
    rule: LayoutRule | None


class DirectorySettings(Struct, frozen=True, kw_only=True):
    """The settings for new files in a directory; `storage_pool` is the number of the pool of their targets."""

    stripe: StripeSettings
    storage_pool: int | None = None


class StorageState(Struct, frozen=True, kw_only=True):
    """A snapshot: every target, and the storage pool of the user trees, if known. `unanswered` are the kinds of targets
    of which an unknown server does not answer.
    """

    targets: tuple[StorageTarget, ...]
    storage_pool: int | None = None
    unanswered: tuple[TargetKind, ...] = ()


class MetadataForecast(Struct, frozen=True, kw_only=True):
    """The inodes that a plan is expected to take on one metadata target, and those that are free there."""

    name: str
    """The target's name."""
    node: str
    """The metadata server's name."""
    free_inodes: int
    """Inodes that are free now."""
    expected_inodes: int
    """Inodes that the plan is expected to take."""


class StorageSample(Struct, frozen=True, kw_only=True):
    """The targets at one time. The newest sample of each day is kept."""

    day: int
    """Days since 1970-01-01."""
    at_s: float
    """When the sample was taken."""
    targets: tuple[StorageTarget, ...]
    """All storage and metadata targets."""


# Quotas: a user's usage and limits on the target.


class UserQuota(Struct, frozen=True, kw_only=True):
    """The quota of one user, by uid. `limit_` None: no limit. BeeGFS counts *chunk files*: a file with content has one
    on each storage target that it is striped over; directories and empty files have none. `used_chunk_files` None:
    not counted. `counted` False: nor are the bytes, and `used_bytes` is 0. `exempt`: somebody set that
    the user has no limit of bytes (version 8 reports it).
    """

    uid: int
    used_bytes: int = 0
    counted: bool = True
    exempt: bool = False
    used_chunk_files: int | None = None
    limit_bytes: int | None = None
    limit_chunk_files: int | None = None

    @property
    def limited(self) -> bool:
        """True if there is any limit."""
        return self.limit_bytes is not None or self.limit_chunk_files is not None


class LimitState(StrEnum):
    """An owner's limit on the target. `at the cutover`: trees of the owner are not cut over yet. `used up`: it is not set,
    since the owner could then write nothing.
    """

    SET = "set"
    DUE = "to set now"
    LATER = "at the cutover"
    DIFFERS = "another limit"
    USED_UP = "used up"
    UNKNOWN = "unknown"


class OwnerLimit(Struct, frozen=True, kw_only=True):
    """A limit of bytes of one owner on the target, which stands for the limits of the source on these user trees."""

    uid: int
    """The owner."""
    size_bytes: int
    """The limit."""
    trees: tuple[bytes, ...]
    """The user trees that had a limit on the source."""


class LostLimit(Struct, frozen=True, kw_only=True):
    """A limit of a directory of the source for which no owner's limit can stand."""

    directory: bytes
    """A directory of the source that has the limit."""
    size_bytes: int
    """The limit."""
    reason: str
    """Why no owner's limit can stand for it."""


class TreeOwner(Struct, frozen=True, kw_only=True):
    """The files of one owner in one user tree of the source. Only files with content count, each inode once."""

    tree: bytes
    uid: int
    """The owner."""
    size_bytes: int
    """Bytes of these files; only the allocated bytes of a sparse file."""
    files: int
    """Number of files with content."""
