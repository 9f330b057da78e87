"""What has to be known before bricks are drained. None everywhere stands for what is not known."""

from collections.abc import Mapping
from dataclasses import dataclass

from migrator.domain.brick import VolumeState
from migrator.domain.brick_list import BrickRoom
from migrator.domain.scan import StrangeFiles
from migrator.domain.volume_tasks import VolumeTask


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickLoad:
    """What a brick holds, by its walk or the catalog: names of files, allocated bytes, and the largest file."""

    files: int
    allocated_bytes: int
    largest_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeOnBricks:
    """What one user tree has on bricks, by a catalog: names of files, and bytes of their content; a hard-linked file's bytes
    count once.
    """

    tree: bytes
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetainedSource:
    """What still lies on leaving bricks of a user who works on the target. `plan` is the one that he was cut over by, `due_in_s`
    how long his source is still kept ([cutover] retain). `purge_planned_first`: the schedule of the plan in force has it
    purged before these bricks are drained.
    """

    tree: bytes
    user: str
    plan: str
    files: int
    size_bytes: int
    due_in_s: float
    purge_planned_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickMarks:
    """Hard-linked files of a brick that carry the mark of an earlier drain (`trusted.glusterfs.dht.linkto`, and the mode of a
    data file): how many, and the first names. `strange` files have no gfid: they were put there past Gluster. `unseen` counts
    what could not be looked at.
    """

    brick: str
    files: int
    examples: tuple[bytes, ...] = ()
    strange: int = 0
    strange_examples: tuple[bytes, ...] = ()
    unseen: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainFacts:
    """Everything that the guards before a drain look at.

    `task_of_record` is the id of the drain that this attempt has begun itself, where one is left that failed. `rooms` are
    those of all bricks; `load` is what the leaving subvolume holds. `min_free_disk` is the volume's option as it is in
    effect (`10%`, or bytes), `quorum` the problems of the pool's quorum. `versions` are those of GlusterFS by host of the
    volume. `open_files` counts descriptors of clients on the leaving bricks, `open_files_accepted` that they were
    accepted by name. `linked_symlinks` are symlinks with several names, on the leaving bricks. `drains_elsewhere` names other
    bricks of which a drain has not come to rest. `retained` is what users who work on the target still have there,
    `retained_accepted` that it is moved for nothing, `unread_plan` why the plan in force cannot be read. `marks` are those of
    earlier drains on the leaving bricks; none are asked for while a drain of its own (`task_of_record`) has left some. `strange` is
    what was put on the bricks of the volume past Gluster. `catalog_is_old` says that files were
    moved between bricks, by another drain or an addition, since the scan that `load` is by.
    """

    bricks: tuple[str, ...]
    state: VolumeState | None
    tasks: tuple[VolumeTask, ...] | None
    task_of_record: str | None
    rooms: Mapping[str, BrickRoom] | None
    load: BrickLoad | None
    min_free_disk: str | None
    quorum: tuple[str, ...] | None
    versions: Mapping[str, str | None] | None
    open_files: int | None
    open_files_accepted: bool
    linked_symlinks: tuple[bytes, ...] | None
    drains_elsewhere: tuple[str, ...] | None
    retained: tuple[RetainedSource, ...] | None = ()
    retained_accepted: bool = False
    unread_plan: str = ""
    marks: tuple[BrickMarks, ...] | None = ()
    strange: tuple[StrangeFiles, ...] | None = ()
    catalog_is_old: bool | None = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickContent:
    """What a catalog knows of bricks that are to be drained: names of files, bytes of their content and on the disk, the
    largest file on the disk, symlinks with several names (the first ones), and what each user tree has there. A hard-linked
    file's bytes count once.
    """

    files: int
    size_bytes: int
    allocated_bytes: int
    largest_bytes: int
    linked_symlinks: tuple[bytes, ...]
    trees: tuple[TreeOnBricks, ...] = ()
