"""Storage and metadata targets of BeeGFS, and quotas. Pure."""

from dataclasses import dataclass
from enum import StrEnum

# ---
# What is known of the storage and metadata targets that a target's file system is made of.


class TargetKind(StrEnum):
    """What lies on it: contents of files, or their inodes."""

    METADATA = "metadata"
    STORAGE = "storage"


class Reachability(StrEnum):
    """Whether the management service hears of it. It says so late: about 100 s after a server has gone."""

    ONLINE = "Online"
    PROBABLY_OFFLINE = "Probably-offline"
    OFFLINE = "Offline"


class Consistency(StrEnum):
    """Whether what lies on it can be trusted."""

    GOOD = "Good"
    NEEDS_RESYNC = "Needs-resync"
    BAD = "Bad"


class CapacityPool(StrEnum):
    """How BeeGFS treats it when a file is made: from the low pool it takes targets only when no normal one is left, from
    the emergency pool last of all.
    """

    NORMAL = "normal"
    LOW = "low"
    EMERGENCY = "emergency"


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageTarget:
    """One of them. None stands for what was not told. `answers` is False where its server was asked and did not answer;
    `last_contact_s` is how long ago the management service heard of it; `storage_pool` is the number of its pool.
    """

    kind: TargetKind
    number: int
    name: str
    node: str
    reachability: Reachability | None
    consistency: Consistency | None
    pool: CapacityPool | None = None
    storage_pool: int | None = None
    last_contact_s: float | None = None
    answers: bool | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    total_inodes: int | None = None
    free_inodes: int | None = None

    @property
    def shown(self) -> str:
        """As people are told of it."""
        return f"{self.kind.value} target {self.name} ({self.number}, on {self.node})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StripeSettings:
    """How new files below a directory are spread: over so many targets, in pieces of so many bytes; None: as it is."""

    targets: int | None = None
    chunk_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFacts:
    """What new files in a directory get: `storage_pool` is the number of the pool whose targets they may lie on."""

    stripe: StripeSettings
    storage_pool: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSeen:
    """One look: every target, and the pool that user trees get theirs from, where that is known. `unanswered` are the kinds
    of which some server does not answer while it is not known which one.
    """

    targets: tuple[StorageTarget, ...]
    storage_pool: int | None = None
    unanswered: tuple[TargetKind, ...] = ()


# ---
# Quotas of the target: what a user takes up there, and may.


@dataclass(frozen=True, slots=True, kw_only=True)
class UserQuota:
    """Of one user, by his number. `limit_` None: there is none. BeeGFS counts *chunk files*: a file with content has at least
    one, and one on each of the storage targets that it is spread over; directories and empty files have none. `used_chunk_files`
    None: nobody counts them.
    """

    uid: int
    used_bytes: int = 0
    used_chunk_files: int | None = None
    limit_bytes: int | None = None
    limit_chunk_files: int | None = None

    @property
    def limited(self) -> bool:
        """Whether he has a limit at all."""
        return self.limit_bytes is not None or self.limit_chunk_files is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOwner:
    """What one user owns in one user tree of the source. Only files with content count, each inode once; bytes are those that
    are surely taken up: of a file with holes, what is allocated.
    """

    tree: bytes
    uid: int
    size_bytes: int
    files: int
