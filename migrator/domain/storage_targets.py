"""What is known of the storage and metadata targets that a target's file system is made of."""

from dataclasses import dataclass
from enum import StrEnum


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
