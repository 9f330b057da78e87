"""Facts for the preflight checks of a drain. None always means unknown. Pure."""

from collections.abc import Mapping

from msgspec import Struct

from migrator.catalog.model import StrangeFiles
from migrator.gluster.model import BrickMarks, BrickRoom, VolumeState, VolumeTask


class BrickLoad(Struct, frozen=True, kw_only=True):
    """The content of a brick, from its walk or the catalog: names of files, allocated bytes, and the largest file."""

    files: int
    allocated_bytes: int
    largest_bytes: int


class RetainedSource(Struct, frozen=True, kw_only=True):
    """Files on leaving bricks of a user who works on the target."""

    tree: bytes
    user: str
    plan: str
    """The plan of their cutover."""
    files: int
    size_bytes: int
    due_in_s: float
    """Time until their source may be purged ([cutover] retain)."""


class DrainFacts(Struct, frozen=True, kw_only=True):
    """The facts for the preflight checks of a drain.

    `task_of_record` is the id of a failed drain that this attempt started itself. `rooms` covers all bricks; `load` is
    the content of the leaving subvolume. `min_free_disk` is the option's value in effect (`10%`, or bytes). `versions`
    has the GlusterFS version of each host of the volume. `open_files` counts clients' descriptors on the leaving
    bricks; `open_files_accepted` is set if the operator accepts them. `drains_elsewhere` names other bricks whose drain
    has not ended.

    `scanned` is set if a complete catalog includes the bricks. `catalog_is_old` is set if another drain or an addition
    has moved files between bricks since then. From the catalog, `linked_symlinks` are symlinks with several names on
    the leaving bricks, and `retained` are files there of users who work on the target. `retained_accepted` allows
    moving them in vain. `strange` files were created on the volume's bricks without Gluster. `marks` are those of
    earlier drains on the leaving bricks. They are not queried if an own drain (`task_of_record`) has left some.
    """

    bricks: tuple[str, ...]
    state: VolumeState
    tasks: tuple[VolumeTask, ...]
    task_of_record: str | None
    rooms: Mapping[str, BrickRoom] | None
    load: BrickLoad | None
    min_free_disk: str | None
    versions: Mapping[str, str | None]
    open_files: int | None
    open_files_accepted: bool
    drains_elsewhere: tuple[str, ...]
    scanned: bool
    catalog_is_old: bool = False
    linked_symlinks: tuple[bytes, ...] = ()
    retained: tuple[RetainedSource, ...] = ()
    retained_accepted: bool = False
    strange: tuple[StrangeFiles, ...] = ()
    marks: tuple[BrickMarks, ...] | None = ()


class DrainCheck(Struct, frozen=True, kw_only=True):
    """The facts of the preflight checks. None means unknown."""

    problems: tuple[str, ...]
    """Failed checks."""
    used_bytes: int | None
    """Bytes in use on the bricks to drain."""
    used_inodes: int | None
    """Inodes in use on the bricks to drain."""
    rooms: Mapping[str, BrickRoom] | None
    """The file systems of the remaining bricks, by name."""
    min_free_disk: str | None
    """The volume's option `cluster.min-free-disk` in force."""
    versions: Mapping[str, str | None]
    """GlusterFS of each host."""
    open_files: int | None
    """Number of open files on the bricks to drain."""
    catalog: str | None
    """The catalog that the following figures come from."""
    catalog_at_s: float | None
    """When it was scanned."""
    files: int | None
    """Names to move."""
    size_bytes: int | None
    """Bytes to move."""
    largest_bytes: int | None
    """Size of the largest file to move."""
    linked_symlinks: tuple[bytes, ...] = ()
    """Symlinks with several names, which Gluster does not move."""
    retained: tuple[RetainedSource, ...] = ()
    """Files of users who work on the target."""
