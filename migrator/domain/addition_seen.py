"""What a look at bricks that are to be added says, and what is to be done with them."""

from collections.abc import Mapping
from dataclasses import dataclass

from migrator.domain.addition import AdditionState, AdditionStep, TargetRoom
from migrator.domain.brick import VolumeState
from migrator.domain.brick_list import BrickRoom
from migrator.domain.scan import StrangeFiles
from migrator.domain.volume_tasks import TaskProgress, VolumeTask


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlace:
    """What lies where a new brick is to be, on its host. `unread` says why that is not known, empty where it is.

    `mount` is the mount point that the place lies on, `own`: that is another one than the host's root. `exists`: the
    directory is there. `volume_id` and `gfid` are what Gluster has left on it, in hex, empty where there is none;
    `marked_above` are directories above it, up to the mount point, that carry such a mark. `entries` are the first names
    in it but Gluster's own, `has_gluster_directory`: there is a `.glusterfs`. `others` are the first names that lie beside it
    on the same file system. `served_by` are processes of bricks that serve it now. `filesystem_id` tells the file system from every
    other one that was or will be made there; empty where that is not known.
    """

    name: str
    unread: str = ""
    mount: str = ""
    own: bool = False
    exists: bool = False
    device: str = ""
    filesystem: str = ""
    mount_options: str = ""
    total_bytes: int | None = None
    free_inodes: int | None = None
    volume_id: str = ""
    gfid: str = ""
    marked_above: tuple[str, ...] = ()
    entries: tuple[str, ...] = ()
    has_gluster_directory: bool = False
    others: tuple[str, ...] = ()
    served_by: tuple[int, ...] = ()
    filesystem_id: str = ""

    @property
    def stale(self) -> bool:
        """Whether it carries what is left of a brick."""
        return bool(self.volume_id or self.gfid or self.has_gluster_directory or self.marked_above)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditionSeen:
    """What a look at the world says, after the record was read. None everywhere: that look failed, or was not made.

    `state` is the source volume with its peers, bricks and heals, `tasks` every task that its status lists, `progress` the
    counters of the newest fix-layout or rebalance. `owners` tells of every brick of every volume of the pool to which
    volume it belongs. `places` tells by brick what lies where it is to be, `rooms` of the bricks of the volume what they
    lie on. `versions` are those of GlusterFS by host, of the volume and of the new bricks. `drains` are bricks of which a drain has not come to rest, `additions` those
    of other additions that have not. `stalled` says why a task that is in progress does not go on. `strange` was put on bricks of the
    volume past Gluster (None: no scan has read them). `blamed` tells of the set of a brick that takes its own place how many entries
    the other bricks that are up hold against each, so that it has to be healed there first.
    """

    state: VolumeState | None
    tasks: tuple[VolumeTask, ...] | None
    progress: TaskProgress | None = None
    owners: Mapping[str, str] | None = None
    places: Mapping[str, NewPlace] | None = None
    rooms: Mapping[str, BrickRoom] | None = None
    versions: Mapping[str, str | None] | None = None
    drains: tuple[str, ...] = ()
    additions: tuple[str, ...] = ()
    stalled: str = ""
    target: TargetRoom | None = None
    strange: tuple[StrangeFiles, ...] | None = ()
    blamed: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How the admin wants it. `rebalance` False: no file is moved onto the new bricks. `accept_unlike`: bricks that differ
    from the others in size or kind are no reason against. `take_back`: a brick that was taken offline for the exchange of its
    disk is to serve again what it had.
    """

    rebalance: bool = True
    accept_unlike: bool = False
    take_back: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Write `intent`, carry the step out, write `result`. `seen_done`: the world shows it done already.

    `reason` says why it is given up. `task_id` is the task of Gluster that the record takes for its own. `task_before` is
    set where a task is to be begun: the one that is listed now (empty: none); the record then forgets its own.
    """

    step: AdditionStep
    intent: AdditionState
    result: AdditionState
    seen_done: bool = False
    reason: str = ""
    task_id: str | None = None
    task_before: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Halt:
    """Nothing is touched. `words` say what was found, `reasons` each thing that speaks against going on, `hint` what people
    do about it. `look_again`: a look failed, and the next one may not.
    """

    words: str
    hint: str
    reasons: tuple[str, ...] = ()
    look_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """There is nothing left to do."""

    state: AdditionState
    words: str


Step = Act | Halt | Finished
