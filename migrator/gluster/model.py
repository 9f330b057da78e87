"""A Gluster volume and its tasks as glusterd describes them. Pure."""

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from migrator.fs.model import SourceHealth

SPLIT_BRAIN = "its copies are in split-brain"
"""In messages about files."""


class Brick(Struct, frozen=True, kw_only=True):
    """One brick: `name` is `host:/path` as glusterd writes it; `online` is None when status did not list it."""

    name: str
    host: str
    path: bytes
    online: bool | None
    arbiter: bool = False


class BrickRules(Struct, frozen=True, kw_only=True):
    """How a brick differs from the mount: whether times of files are in `trusted.glusterfs.mdata` (`features.ctime`),
    and whether the volume is `distributed` over several subvolumes, whose mount hides the setgid and sticky bits of
    a file that has both. A `replicated` volume has several copies of each file. With `marks`, its walk reports those.
    """

    times_from_mdata: bool
    distributed: bool
    replicated: bool = False
    marks: bool = True


class Mark(StrEnum):
    """An attribute by which Gluster makes the mount differ from a brick's file, as the walk of a brick reports it.

    `CORRUPTED`: the scrubber marked this copy; the mount shows another one, or EIO. `PENDING`: a copy lacks operations, and
    the mount shows one that has them. `MIGRATION`: a data file with the marks of a move to another brick, and
    `LINK_WITH_CONTENT`: a link-to file with content; without a task that moves files, a failed one left them.
    """

    CORRUPTED = "corrupted"
    PENDING = "pending"
    MIGRATION = "migration"
    LINK_WITH_CONTENT = "link-with-content"


class DiskFacts(Struct, frozen=True, kw_only=True):
    """The disk of a brick. `unread` has the reason if it is unknown.

    `mount` is the mount point of its file system, empty if that is the root's. `identity` identifies the disk and the
    partition or logical volume, independent of their content. `unexplained` are the first other entries on the disk.
    """

    name: str
    unread: str = ""
    mount: str = ""
    identity: str = ""
    unexplained: tuple[str, ...] = ()


class BrickHeal(Struct, frozen=True, kw_only=True):
    """The pending heals of a brick: `entries` is None if unknown; `status` is Gluster's text."""

    brick: str
    status: str
    entries: int | None


class VolumeState(Struct, frozen=True, kw_only=True):
    """A snapshot of the volume. `tasks` are the unfinished or uncommitted ones (`Rebalance`, `Remove brick`);
    `task_ids` has the ids of all listed tasks, ended ones too: a new id means that a task was started meanwhile.

    `heals` and `peers_down` are None if they were not requested: only reading bricks needs them. `heals` is empty on
    volumes without replicas.
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


class VolumeHealth(SourceHealth, frozen=True, kw_only=True):
    """The health of a Gluster volume, with the state that it follows from."""

    state: VolumeState


def volume_state(health: SourceHealth | None) -> VolumeState | None:
    """The state of the volume; None without Gluster, or if it is unknown."""
    return health.state if isinstance(health, VolumeHealth) else None


# Tasks that move files between bricks, with their counters by host.


class TaskKind(StrEnum):
    """The kind of a task; `other`: not known to this program."""

    REMOVE_BRICK = "remove-brick"
    REBALANCE = "rebalance"
    OTHER = "other"


class TaskStatus(StrEnum):
    """The status of a task, or of a host's part in it (cli1-xdr.x of GlusterFS 10.3). `unknown`: a number without a
    name.
    """

    NOT_STARTED = "not-started"
    IN_PROGRESS = "in-progress"
    STOPPED = "stopped"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"


MOVING = (TaskStatus.IN_PROGRESS, TaskStatus.NOT_STARTED)
"""A host is `not started` for a moment after a start."""


class TaskCounters(Struct, frozen=True, kw_only=True):
    """One host's part in a task."""

    host: str
    """glusterd's name for the host: `localhost` is the one that answers."""
    host_id: str
    """Id of its glusterd, the same in every answer."""
    files: int
    """Files that it moved."""
    size_bytes: int
    """Bytes that it moved."""
    lookups: int
    """Files that it inspected."""
    failures: int
    """Files that it could not move."""
    skipped: int
    """Files that it left in place."""
    status: TaskStatus
    """The status of its part."""
    fix_layout: bool
    """It only fixes the layout of directories and moves no files."""
    runtime_s: float
    """How long it has run."""


class VolumeTask(Struct, frozen=True, kw_only=True):
    """A task that the volume's status lists: a remove-brick until it is committed or stopped, a rebalance forever."""

    NO_KEYS: ClassVar = frozenset({"text"})

    kind: TaskKind
    """Its kind."""
    name: str
    """Its name in Gluster's words."""
    id: str
    """Gluster's id of it."""
    status: TaskStatus
    """Its status."""
    bricks: tuple[str, ...]
    """The bricks that a remove-brick drains."""
    counters: "tuple[TaskCounters, ...] | None" = None
    """The part of each host; None if it was not read, or glusterd does not report it."""

    @property
    def unfinished(self) -> bool:
        """It moves files, or waits for a commit; an unknown status counts as unfinished."""
        ended = (TaskStatus.STOPPED, TaskStatus.COMPLETED, TaskStatus.FAILED)
        return self.kind is TaskKind.REMOVE_BRICK or self.status not in ended

    @property
    def text(self) -> str:
        """The task for people, as in `Remove brick (in progress) of gl1:/srv/b1`."""
        shown = f"{self.name} ({self.status.replace('-', ' ')})"
        return f"{shown} of {' '.join(self.bricks)}" if self.bricks else shown


class TaskProgress(Struct, frozen=True, kw_only=True):
    """The counters of one task, without hosts whose glusterd is down."""

    task_id: str
    counters: tuple[TaskCounters, ...]

    @property
    def moving(self) -> bool:
        """True if any host moves files."""
        return any(one.status in MOVING for one in self.counters)

    @property
    def names(self) -> dict[str, str]:
        """The hosts by the ids in their samples."""
        return {one.host_id or one.host: one.host for one in self.counters}

    @property
    def files(self) -> int:
        """Moved files."""
        return sum(one.files for one in self.counters)

    @property
    def size_bytes(self) -> int:
        """Moved bytes."""
        return sum(one.size_bytes for one in self.counters)

    @property
    def failures(self) -> int:
        """The files whose move failed."""
        return sum(one.failures for one in self.counters)

    @property
    def skipped(self) -> int:
        """The skipped files, which were not to be moved."""
        return sum(one.skipped for one in self.counters)


def remove_brick_of(tasks: Sequence[VolumeTask], bricks: Sequence[str]) -> VolumeTask | None:
    """The remove-brick that drains any of these bricks."""
    wanted = set(bricks)
    return next((task for task in tasks if task.kind is TaskKind.REMOVE_BRICK and wanted & set(task.bricks)), None)


# Directories: their state before bricks were added, and their current state.


SHUT = (0, 0, 0)
"""Owner, group and mode of a directory after a fault of GlusterFS has made it inaccessible."""


class BrickDirectory(Struct, frozen=True, kw_only=True):
    """A directory of the volume, as shown by the mount or as stored by one copy on a brick.

    `above` is the gfid of its parent (16 bytes; empty for a directory in the root). `mode` has the permission bits,
    setgid and sticky. `access` and `default` are the attributes of its ACLs: empty if there is none, None if unknown.
    `changed_ns` and `modified_ns` are its ctime and mtime, on a brick from Gluster's own record; None without one.
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
        """True if it belongs to root with mode 0000."""
        return (self.uid, self.gid, self.mode) == SHUT

    @property
    def inode(self) -> int:
        """Its inode number on a mount of the volume."""
        return int.from_bytes(self.gfid[8:], "big")


class ListedDirectory(Struct, frozen=True, kw_only=True):
    """A directory that was not repaired and needs attention."""

    path: bytes
    gfid: str
    """Gluster's id of it, in hex."""
    mode: int
    """Its mode, as seen last."""
    uid: int
    """Its owner, as seen last."""
    gid: int
    """Its group, as seen last."""
    reason: str
    """Why it was not repaired."""
    command: str
    """The command that repairs it."""


class ClientSeen(Struct, frozen=True, kw_only=True):
    """A client that is connected to a brick. `address` is `IP:PORT` as the brick sees it."""

    brick: str
    address: str


class BrickRoom(Struct, frozen=True, kw_only=True):
    """The file system of a brick, as its host's glusterd reports it; None for values that it did not report."""

    device: str | None = None
    """Its device."""
    filesystem: str | None = None
    """Its type."""
    total_bytes: int | None = None
    free_bytes: int | None = None
    total_inodes: int | None = None
    free_inodes: int | None = None

    def part_of(self, bricks: int) -> "BrickRoom":
        """Return the share of one of so many bricks on this file system."""
        amounts = {name: getattr(self, name) for name in ("total_bytes", "free_bytes", "total_inodes", "free_inodes")}
        return replace(self, **{name: known if known is None else known // bricks for name, known in amounts.items()})


class GlusterFault(Struct, frozen=True, kw_only=True):
    """A fault of GlusterFS that matters to those who drain, add or read bricks."""

    versions: str
    """The versions with the fault."""
    fault: str
    """The fault."""
    advice: str
    """How to avoid it."""
    stops_drain: bool
    """A drain is refused on these versions."""
    reference: str = ""
    """Its issue at gluster/glusterfs; empty: it was seen in experiments."""


class ChangedOption(Struct, frozen=True, kw_only=True):
    """An option of the volume that a drain changes: its value before (None: not set), and every value that this program
    has given it since. Both are recorded before the change.
    """

    name: str
    before: str | None
    given: tuple[str, ...]


class BrickMarks(Struct, frozen=True, kw_only=True):
    """Hard-linked files of a brick with the mark of an earlier drain (`trusted.glusterfs.dht.linkto`, and the mode of a
    data file): their number, and the first names. `strange` files have no gfid, because they were created on the brick
    without Gluster. `unseen` counts files that could not be read.
    """

    brick: str
    files: int
    examples: tuple[bytes, ...] = ()
    strange: int = 0
    strange_examples: tuple[bytes, ...] = ()
    unseen: int = 0


class PlaceSeen(StrEnum):
    """The content of a brick's former place on its host, after the brick left the volume. `brick`: the brick's files.
    `empty`: a mounted, empty file system. `unmounted`: no file system of its own. `other`: anything else. `unknown`:
    the query failed.
    """

    BRICK = "brick"
    EMPTY = "empty"
    UNMOUNTED = "unmounted"
    OTHER = "other"
    UNKNOWN = "unknown"


class NewPlace(Struct, frozen=True, kw_only=True):
    """The content of the path of a new brick, on its host."""

    name: str
    """The brick, as `host:/path`."""
    unread: str = ""
    """Why it could not be inspected."""
    mount: str = ""
    """Mount point of its file system."""
    own: bool = False
    """That is not the host's root file system."""
    exists: bool = False
    """The directory exists."""
    device: str = ""
    """Device of the file system."""
    filesystem: str = ""
    """Its type."""
    mount_options: str = ""
    """Its mount options."""
    total_bytes: int | None = None
    free_inodes: int | None = None
    volume_id: str = ""
    """Gluster's mark of a volume on it, in hex; empty: none."""
    gfid: str = ""
    """Gluster's mark of a file on it, in hex; empty: none."""
    marked_above: tuple[str, ...] = ()
    """Directories above it, up to the mount point, with such a mark."""
    entries: tuple[str, ...] = ()
    """The first names in it, without Gluster's own."""
    has_gluster_directory: bool = False
    """It has a `.glusterfs`."""
    others: tuple[str, ...] = ()
    """The first other names on the same file system."""
    served_by: tuple[int, ...] = ()
    """Brick processes that serve it now."""
    filesystem_id: str = ""
    """Id of the file system, which differs from that of every other one that is made there; empty if unknown."""

    @property
    def stale(self) -> bool:
        """It has the marks of a former brick."""
        return bool(self.volume_id or self.gfid or self.has_gluster_directory or self.marked_above)
