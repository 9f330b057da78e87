"""Tasks of a Gluster volume that move files between its bricks, with their counters by host, as glusterd tells them."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


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
