"""A Gluster volume and its tasks as glusterd describes them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

# ---
# A Gluster volume as glusterd describes it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Brick:
    """One brick: `name` is `host:/path` as glusterd writes it; `online` is None when status did not list it."""

    name: str
    host: str
    path: bytes
    online: bool | None
    arbiter: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickHeal:
    """What a brick waits to have healed: `entries` is None where that could not be told; `status` is Gluster's word."""

    brick: str
    status: str
    entries: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeState:
    """What a look at the volume saw. `tasks` are unfinished or uncommitted ones (`Rebalance`, `Remove brick`);
    `task_ids` are those of every task that is listed, ended ones too: another id means that one was begun meanwhile.

    `heals` and `peers_down` are None where they were not asked for: only who reads the bricks needs them. `heals` is
    empty on volumes that keep every file once.
    """

    volume: str
    volume_id: str
    type: str
    started: bool
    bricks: tuple[Brick, ...]
    options: tuple[tuple[str, str], ...]
    tasks: tuple[str, ...]
    replica_count: int = 1
    disperse_count: int = 0
    stripe_count: int = 1
    task_ids: tuple[str, ...] = ()
    heals: tuple[BrickHeal, ...] | None = None
    peers_down: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceHealth:
    """Whether what the source shows can be trusted to be all of it.

    `problems` is empty when healthy; each is a sentence. `fingerprint` changes when the brick list or an option
    changes, so that a look before and one after a pass can be compared. `state` is None where there is no Gluster.
    """

    problems: tuple[str, ...]
    fingerprint: str
    state: VolumeState | None = None


# ---
# Tasks of a Gluster volume that move files between its bricks, with their counters by host, as glusterd tells them.


class TaskKind(StrEnum):
    """What a task is; `other` is one that this program does not know."""

    REMOVE_BRICK = "remove-brick"
    REBALANCE = "rebalance"
    OTHER = "other"


class TaskStatus(StrEnum):
    """How far a task, or a host's part in it, is (cli1-xdr.x of GlusterFS 10.3). `unknown` is a number without a name."""

    NOT_STARTED = "not-started"
    IN_PROGRESS = "in-progress"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCounters:
    """What one host has done of a task. `host` is glusterd's word: `localhost` is the one that was asked; `host_id` is the
    id of its glusterd, which tells it in every answer.

    `fix_layout`: nothing is moved, only the layout of directories is put right.
    """

    host: str
    host_id: str
    files: int
    size_bytes: int
    lookups: int
    failures: int
    skipped: int
    status: TaskStatus
    fix_layout: bool
    runtime_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeTask:
    """A task that the volume's status lists; `bricks` are those that a remove-brick drains.

    A remove-brick is listed until it is committed or stopped, a rebalance for ever.
    """

    kind: TaskKind
    name: str
    id: str
    status: TaskStatus
    bricks: tuple[str, ...]

    @property
    def unfinished(self) -> bool:
        """Whether it moves files now, or waits for a commit; a status that is not known counts as that."""
        ended = (TaskStatus.STOPPED, TaskStatus.COMPLETED, TaskStatus.FAILED)
        return self.kind is TaskKind.REMOVE_BRICK or self.status not in ended


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskProgress:
    """The counters of one task, by its id; hosts whose glusterd is down are left out of them."""

    task_id: str
    counters: tuple[TaskCounters, ...]

    @property
    def names(self) -> dict[str, str]:
        """The hosts by what their samples have for them."""
        return {one.host_id or one.host: one.host for one in self.counters}

    @property
    def files(self) -> int:
        """Files that were moved."""
        return sum(one.files for one in self.counters)

    @property
    def size_bytes(self) -> int:
        """Bytes that were moved."""
        return sum(one.size_bytes for one in self.counters)

    @property
    def failures(self) -> int:
        """Files that could not be moved."""
        return sum(one.failures for one in self.counters)

    @property
    def skipped(self) -> int:
        """Files that were not to be moved."""
        return sum(one.skipped for one in self.counters)


def remove_brick_of(tasks: Sequence[VolumeTask], bricks: Sequence[str]) -> VolumeTask | None:
    """The remove-brick that drains any of these bricks."""
    wanted = set(bricks)
    return next((task for task in tasks if task.kind is TaskKind.REMOVE_BRICK and wanted & set(task.bricks)), None)


# ---
# Whose directories are: as they were before bricks were added, and as they are seen since.


SHUT = (0, 0, 0)
"""Owner, group and mode of a directory that GlusterFS has shut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryFacts:
    """A directory of the volume, as its mount shows it, or as one copy of it on a brick has it. `gfid` and `above` are its own gfid
    and that of the directory that it lies in (16 bytes; empty for one in the root). `mode` is its permission bits, with setgid and
    the like. `access` and `default` are its ACLs as their attributes hold them: empty where there is none, None where that is not
    told. `changed_ns` and `modified_ns` are its ctime and mtime, on a brick by Gluster's own record; None where there is none.
    """

    path: bytes
    gfid: bytes
    above: bytes = b""
    mode: int
    uid: int
    gid: int
    access: bytes | None = b""
    default: bytes | None = b""
    changed_ns: int | None = None
    modified_ns: int | None = None

    @property
    def shut(self) -> bool:
        """Whether it belongs to root, and nobody may do anything in it."""
        return (self.uid, self.gid, self.mode) == SHUT

    @property
    def inode(self) -> int:
        """Its inode number on a mount of the volume."""
        return int.from_bytes(self.gfid[8:], "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDirectory:
    """A directory that was not given back, and waits for people: how it was seen, why it was let alone, and the command that puts
    it right. `path` is below the root of the source, `gfid` in hex.
    """

    path: bytes
    gfid: str
    mode: int
    uid: int
    gid: int
    reason: str
    command: str
