"""A volume, its bricks and its glusterd, simulated without code of the decision. Every file is a number."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from migrator.gluster.model import PlaceSeen, TaskCounters, TaskProgress, TaskStatus, VolumeState, VolumeTask
from tests.support.making import made
from tests.support.volumes import brick, remove_brick, volume

T = TaskStatus
LEAVING = "gl3:/b"
STAYING = "gl1:/b"
THROTTLE, NORMAL, LAZY = "cluster.rebal-throttle", "normal", "lazy"
PER_LOOK = 2


@dataclass(slots=True)
class Task:
    """A remove-brick as glusterd has it."""

    id: str
    status: TaskStatus = T.IN_PROGRESS
    moved: int = 0
    failures: int = 0
    dead: bool = False
    ran_s: float = 0.0


@dataclass(slots=True)
class DrainedVolume:
    """Everything there is. `unmovable` files stay on the leaving brick and are counted as failures. `raced`: in so many
    tasks a file that a user has renamed counts as a failure, although it is nowhere on the brick. `fills`: when a task
    has ended, the bricks that stay are full. `silent`: the host is up and reports no counters, because its glusterd has
    lost the rebalance process; neither status nor stop is answered then. `late_write`: a user writes to the leaving
    brick right before the commit. `forced`: files were committed out of the volume by others. `lookups` is
    cluster.lookup-optimize. `times_kept`: the mtimes of directories that are latest on the leaving brick are on the others
    too.
    """

    bricks: dict[str, set[int]] = field(
        default_factory=lambda: {STAYING: {1, 2}, "gl2:/b": {3, 4}, LEAVING: {5, 6, 7, 8, 9}}
    )
    inside: list[str] = field(default_factory=lambda: [STAYING, "gl2:/b", LEAVING])
    place: PlaceSeen = PlaceSeen.BRICK
    unmovable: set[int] = field(default_factory=set)
    silent_failures: bool = False
    raced: int = 0
    fills: bool = False
    task: Task | None = None
    layout_id: str | None = None
    layout_right: bool = True
    options: dict[str, str] = field(default_factory=dict)
    lookups: str = "on"
    glusterd_up: bool = True
    peer_up: bool = True
    brick_up: bool = True
    silent: bool = False
    room: bool = True
    forced: bool = False
    late_write: bool = False
    files: int = 9
    tasks_made: int = 0
    shielded: bool = False
    times_kept: bool = False

    @property
    def moving(self) -> bool:
        return self.task is not None

    def reachable(self) -> set[int]:
        return set().union(*(self.bricks[name] for name in self.inside))

    def writes(self, where: str) -> None:
        self.files += 1
        self.bricks[where].add(self.files)

    def new_id(self) -> str:
        self.tasks_made += 1
        return f"t{self.tasks_made}"

    # What Gluster does by itself.

    def moves_files(self) -> None:
        task = self.task
        if task is None or task.status is not T.IN_PROGRESS or task.dead or self.silent:
            return
        task.ran_s += 1.0
        left = sorted(self.bricks[LEAVING] - self.unmovable)
        for one in left[:PER_LOOK]:
            self.bricks[LEAVING].remove(one)
            self.bricks[STAYING].add(one)
            task.moved += 1
        if len(left) <= PER_LOOK:
            task.status = T.COMPLETED
            task.failures = 0 if self.silent_failures else len(self.bricks[LEAVING])
            if self.raced:
                self.raced -= 1
                task.failures += 1
            self.room = self.room and not self.fills

    def start(self) -> None:
        assert self.task is None
        assert len(self.inside) > 1
        self.task = Task(id=self.new_id())
        self.layout_right = False

    def stop(self) -> None:
        self.task = None

    def take_out(self) -> None:
        self.task = None
        self.inside.remove(LEAVING)
        self.layout_right = True

    def state(self) -> VolumeState | None:
        if not self.glusterd_up:
            return None
        up = {LEAVING: self.brick_up if self.peer_up else None}
        return volume(
            *(brick(name, online=up.get(name, True)) for name in self.inside),
            volume_id="v",
            options=tuple(sorted(self.options.items())),
            peers_down=() if self.peer_up else ("gl3",),
        )

    def tasks(self) -> tuple[VolumeTask, ...]:
        """The worst that can be seen while a host is away: the task is not even listed."""
        task = self.task
        if task is None or not self.peer_up:
            return ()
        return (remove_brick(LEAVING, id=task.id, status=task.status),)

    def progress(self) -> TaskProgress | None:
        if self.task is None or (self.peer_up and self.silent):
            return None
        return TaskProgress(task_id=self.task.id, counters=(self.counters(self.task),) if self.peer_up else ())

    def counters(self, task: Task) -> TaskCounters:
        return made(
            TaskCounters,
            host="gl3",
            host_id="3",
            files=task.moved,
            size_bytes=task.moved,
            failures=task.failures,
            status=task.status,
            runtime_s=task.ran_s,
        )

    def layout(self) -> TaskProgress | None:
        if self.layout_id is None:
            return None
        done = replace(self.counters(Task(id="")), status=T.COMPLETED, failures=0, fix_layout=True)
        return TaskProgress(task_id=self.layout_id, counters=(done,))

    def places(self) -> dict[str, PlaceSeen]:
        return {LEAVING: self.place}

    # What the program does.

    def commit(self) -> None:
        """The one act that must never be without proof: checked against what is, not against what was said."""
        task = self.task
        assert task is not None
        assert task.status is T.COMPLETED
        assert (task.failures, self.bricks[LEAVING]) == (0, set())
        assert self.peer_up
        assert not self.silent
        if self.late_write:
            # By a client that has not heard of the drain.
            self.writes(LEAVING)
            self.late_write, self.forced = False, True
        assert self.times_kept
        self.take_out()

    def wipe(self) -> None:
        assert LEAVING not in self.inside
        assert self.bricks[LEAVING] == set()
        self.place = PlaceSeen.EMPTY
