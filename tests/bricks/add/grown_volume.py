"""A volume that a brick is added to, simulated, and what may happen to it meanwhile. It shares no code with the decision."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from migrator.bricks.add.model import AdditionSnapshot
from migrator.core.units import GIB
from migrator.gluster.model import BrickRoom, NewPlace, TaskCounters, TaskKind, TaskProgress, TaskStatus, VolumeTask
from tests.support.making import made
from tests.support.volumes import brick, volume

T = TaskStatus
OLD, NEW = "gl1:/srv/b/data", "gl2:/srv/b/data"
EMPTY = NewPlace(name=NEW, mount="/srv/b", own=True, filesystem="xfs", total_bytes=40 * GIB, free_inodes=10**6)
ROOM = BrickRoom(filesystem="xfs", total_bytes=40 * GIB, free_bytes=20 * GIB)


@dataclass(slots=True)
class Task:
    """A fix-layout or a rebalance as glusterd has it."""

    id: str
    fix_layout: bool
    status: TaskStatus = T.IN_PROGRESS
    failures: int = 0
    ran_s: float = 0.0


@dataclass(slots=True)
class GrownVolume:
    """Everything there is."""

    inside: set[str] = field(default_factory=lambda: {OLD})
    place: NewPlace = EMPTY
    layout_right: bool = True
    even: bool = True
    task: Task | None = None
    tasks_made: int = 0
    asks: bool = True
    peer_up: bool = True
    hooks_right: bool = True
    added: int = 0
    shielded: bool = False

    # What Gluster does.

    def add(self) -> None:
        assert self.place.own, "glusterd refuses a place that is on the root"
        assert not self.place.stale, "glusterd refuses what was a brick"
        assert not self.place.entries, "old directories would be listed twice"
        assert not self.moving, "glusterd refuses it while files are moved"
        self.inside.add(NEW)
        self.added += 1
        self.layout_right = self.even = False
        self.place = replace(self.place, exists=True, volume_id="76", gfid="01", has_gluster_directory=True)

    @property
    def moving(self) -> bool:
        return self.task is not None and self.task.status is T.IN_PROGRESS

    def begin(self, *, fix_layout: bool) -> str:
        assert not self.moving, "glusterd refuses two tasks at once"
        self.tasks_made += 1
        self.task = Task(id=f"t{self.tasks_made}", fix_layout=fix_layout)
        return self.task.id

    def moves(self) -> None:
        if self.task is not None and self.task.status is T.IN_PROGRESS:
            self.task.status = T.COMPLETED
            self.layout_right = self.layout_right or NEW in self.inside
            self.even = self.even or (not self.task.fix_layout and NEW in self.inside)

    def breaks(self) -> None:
        if self.task is not None and self.task.status is T.IN_PROGRESS:
            self.task.status, self.task.failures = T.FAILED, 3

    def moves_all_but(self, failures: int) -> None:
        """The task comes to its end, as `moves` has it, and could not move that many."""
        self.moves()
        assert self.task is not None
        self.task.failures = failures

    # What the program sees.

    def see(self) -> AdditionSnapshot:
        state = volume(
            *(brick(name, online=self.peer_up) for name in sorted(self.inside)),
            volume_id="v",
            peers_down=() if self.peer_up else ("gl1",),
            heals=(),
        )
        tasks: tuple[VolumeTask, ...] = ()
        progress = None
        if self.task is not None:
            task = self.task
            tasks = (VolumeTask(kind=TaskKind.REBALANCE, name="Rebalance", id=task.id, status=task.status, bricks=()),)
            counters = made(
                TaskCounters,
                host="localhost",
                files=1,
                lookups=1,
                failures=task.failures,
                status=task.status,
                fix_layout=task.fix_layout,
                runtime_s=task.ran_s,
            )
            progress = TaskProgress(task_id=task.id, counters=(counters,) if self.peer_up else ())
        return AdditionSnapshot(
            state=state,
            tasks=tasks,
            progress=progress,
            owners=dict.fromkeys(self.inside, "vol1"),
            places={NEW: self.place},
            rooms=dict.fromkeys(self.inside, ROOM),
            versions={"gl1": "11.1", "gl2": "11.1"},
        )
