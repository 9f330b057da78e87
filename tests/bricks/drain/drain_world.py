"""A volume, its bricks and its glusterd, simulated: what a drain works on, and what may happen to it meanwhile.

It shares no code with the decision but the words. Every file is a number; the mount shows those on the bricks of the volume.
"""

from dataclasses import dataclass, field, replace

from migrator.bricks.drain import model as drain
from migrator.gluster.model import Brick, TaskCounters, TaskKind, TaskProgress, TaskStatus, VolumeState, VolumeTask

S, T = drain.DrainState, TaskStatus
LEAVING = "gl3:/b"
STAYING = "gl1:/b"
THROTTLE, NORMAL, LAZY = "cluster.rebal-throttle", "normal", "lazy"
PER_LOOK = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """What becomes of one act. `dies`: where the program is killed (empty: it is not)."""

    dies: str = ""
    fails: bool = False


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
class World:
    """Everything there is. `unmovable` files stay on the leaving brick and are counted as failures. `raced`: in so many tasks
    a file that a user has renamed counts as a failure, although it is nowhere on the brick. `fills`: when a task has come to its
    end, the bricks that stay are full. `silent`: the host is up and tells no counters, because its glusterd has lost what moves
    files; neither status nor stop is answered then. `silent_for_long`: for longer than that is waited for. `lookups` is
    cluster.lookup-optimize.
    """

    bricks: dict[str, set[int]] = field(
        default_factory=lambda: {STAYING: {1, 2}, "gl2:/b": {3, 4}, LEAVING: {5, 6, 7, 8, 9}}
    )
    inside: list[str] = field(default_factory=lambda: [STAYING, "gl2:/b", LEAVING])
    place: drain.PlaceSeen = drain.PlaceSeen.BRICK
    unmovable: set[int] = field(default_factory=set)
    silent_failures: bool = False
    raced: int = 0
    fills: bool = False
    task: Task | None = None
    layout_id: str | None = None
    layout_right: bool = True
    layout_of_somebody: bool = False
    options: dict[str, str] = field(default_factory=dict)
    options_of_somebody: bool = False
    lookups: str = "on"
    glusterd_up: bool = True
    peer_up: bool = True
    brick_up: bool = True
    silent: bool = False
    silent_for_long: bool = False
    room: bool = True
    forced: bool = False
    files: int = 9
    tasks_made: int = 0
    now_s: float = 100.0
    audit: drain.AuditSeen | None = None
    stalled: bool = False
    late_write: bool = False
    record: drain.DrainRecord = field(
        default_factory=lambda: drain.DrainRecord(
            id=1,
            volume="vol1",
            volume_id="v",
            bricks=(LEAVING,),
            attempt=1,
            state=S.PLANNED,
            times={S.PLANNED: 100.0},
        )
    )

    @property
    def state(self) -> drain.DrainState:
        return self.record.state

    def tick(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def reachable(self) -> set[int]:
        return set().union(*(self.bricks[name] for name in self.inside))

    def new_id(self) -> str:
        self.tasks_made += 1
        return f"t{self.tasks_made}"

    def new_process(self) -> None:
        """The program was begun anew: what it has seen itself is forgotten."""
        self.audit = None

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

    def seen(self) -> drain.DrainSeen:
        if not self.glusterd_up:
            return drain.DrainSeen(state=None, tasks=None, audit=self.audit, places=self.places())
        state = VolumeState(
            volume="vol1",
            volume_id="v",
            type="Distribute",
            started=True,
            bricks=tuple(
                Brick(
                    name=name,
                    host=name[:3],
                    path=b"/b",
                    online=None if name == LEAVING and not self.peer_up else name != LEAVING or self.brick_up,
                )
                for name in self.inside
            ),
            options=tuple(sorted(self.options.items())),
            tasks=(),
            peers_down=() if self.peer_up else ("gl3",),
        )
        task = self.task
        tasks: tuple[VolumeTask, ...] = ()
        progress = None
        if task is not None:
            # A host whose glusterd is down tells nothing, and the aggregate says that nothing was begun.
            counters = (self.counters(task),) if self.peer_up else ()
            progress = None if self.peer_up and self.silent else TaskProgress(task_id=task.id, counters=counters)
            tasks = (
                VolumeTask(
                    kind=TaskKind.REMOVE_BRICK,
                    name="Remove brick",
                    id=task.id,
                    status=task.status if self.peer_up else T.NOT_STARTED,
                    bricks=(LEAVING,),
                ),
            )
            if not self.peer_up:
                # The worst that a look can say: the task is not even listed.
                tasks = ()
        return drain.DrainSeen(
            state=state,
            tasks=tasks,
            progress=progress,
            layout=self.layout(),
            preflight=self.preflight(),
            stalled="no file was moved for an hour" if self.stalled and task is not None and task.dead else "",
            silent="gl3 tells nothing for an hour" if progress is None and tasks and self.silent_for_long else "",
            audit=self.audit,
            places=self.places(),
        )

    def counters(self, task: Task) -> TaskCounters:
        return TaskCounters(
            host="gl3",
            host_id="3",
            files=task.moved,
            size_bytes=task.moved,
            lookups=0,
            failures=task.failures,
            skipped=0,
            status=task.status,
            fix_layout=False,
            runtime_s=task.ran_s,
        )

    def layout(self) -> TaskProgress | None:
        if self.layout_id is None:
            return None
        done = replace(self.counters(Task(id="")), status=T.COMPLETED, failures=0, fix_layout=True)
        return TaskProgress(task_id=self.layout_id, counters=(done,))

    def preflight(self) -> tuple[str, ...]:
        found = []
        if not self.room:
            found.append("there is no room")
        if self.task is not None and self.task.id != self.record.notes.task_id:
            found.append("another task")
        if not self.peer_up:
            found.append("a host is missing")
        return tuple(found)

    def places(self) -> dict[str, drain.PlaceSeen]:
        return {LEAVING: self.place}

    # What the program does.

    def enter(self, state: drain.DrainState, **changes: object) -> None:
        """As the ledger does: by the table."""
        if state is not self.state:
            assert state in drain.DRAIN_TRANSITIONS[self.state], (self.state, state)
            changes["times"] = {**self.record.times, state: self.tick()}
        self.record = replace(self.record, state=state, **changes)  # type: ignore[arg-type]

    def note(self, **facts: object) -> None:
        notes = replace(self.record.notes, **{name: fact for name, fact in facts.items() if fact is not None})  # type: ignore[arg-type]
        self.record = replace(self.record, notes=notes)

    def carry_out(self, act: drain.DrainAct, luck: Luck) -> None:
        """One act as the stage does it: intent, act, result, or killed in between."""
        if luck.dies == "before":
            self.new_process()
            return
        if act.step is drain.DrainStep.STOP and act.seen_done and self.state not in drain.UNTOUCHED_STATES:
            assert self.task is None
        before = self.options.get(THROTTLE)
        if act.step is drain.DrainStep.START and self.record.notes.options is None:
            self.note(options=(drain.ChangedOption(name=THROTTLE, before=before, given=(LAZY,)),))
        self.note(task_id=act.task_id, task_before=act.task_before)
        failure = {"failure": act.reason} if act.reason else {}
        self.enter(act.intent, **failure)
        done = luck.dies != "after-intent" and (act.seen_done or self.do(act, luck))
        if done and luck.dies != "before-result":
            self.enter(act.result)
        if luck.dies:
            self.new_process()

    def do(self, act: drain.DrainAct, luck: Luck) -> bool:
        """Whether it came to its end, neither failed nor killed."""
        if luck.fails:
            self.record = replace(self.record, failure=f"{act.step.value} failed")
            return False
        if act.step is drain.DrainStep.START:
            return self.do_start(luck)
        if act.step is drain.DrainStep.WATCH:
            return self.watch()
        if luck.dies == "meanwhile":
            return False
        match act.step:
            case drain.DrainStep.AUDIT:
                self.walk()
            case drain.DrainStep.COMMIT:
                self.commit()
            case drain.DrainStep.WIPE:
                self.wipe()
            case drain.DrainStep.STOP:
                assert self.task is not None
                if self.silent:
                    return False
                self.stop()
            case drain.DrainStep.SETTLE:
                if not self.settle():
                    return False
            case drain.DrainStep.RESTORE:
                self.restore()
            case _:
                pass
        return True

    def do_start(self, luck: Luck) -> bool:
        if not self.options_of_somebody:
            self.options[THROTTLE] = LAZY
        if self.task is not None:
            # Only what is left of our own drain may be ended.
            assert self.task.id == self.record.notes.task_before
            assert self.task.dead or self.silent or self.task.status is not T.IN_PROGRESS
            if self.silent:
                return False
            self.stop()
        if luck.dies == "meanwhile":
            return False
        assert self.room
        self.start()
        if luck.dies:
            # It was begun, and nobody wrote down its id.
            return False
        assert self.task is not None
        self.note(task_id=self.task.id)
        return True

    def watch(self) -> bool:
        self.moves_files()
        return self.task is not None and self.task.status is T.COMPLETED and not self.silent

    def walk(self) -> None:
        began_at_s = self.tick()
        left = len(self.bricks[LEAVING]) if self.place is drain.PlaceSeen.BRICK else 0
        self.audit = drain.AuditSeen(
            started_at_s=began_at_s, whole=self.peer_up, left=left if self.peer_up else 0, unsure=0
        )

    def commit(self) -> None:
        """The one act that must never be without proof: checked against what is, not against what was said."""
        task = self.task
        assert task is not None
        assert task.status is T.COMPLETED
        assert (task.failures, self.bricks[LEAVING]) == (0, set())
        assert self.peer_up
        assert not self.silent
        if self.late_write:
            # By a client that has not heard of the drain, in the moment before the commit.
            self.files += 1
            self.bricks[LEAVING].add(self.files)
            self.late_write, self.forced = False, True
        self.take_out()

    def wipe(self) -> None:
        assert LEAVING not in self.inside
        assert self.bricks[LEAVING] == set()
        self.place = drain.PlaceSeen.EMPTY

    def settle(self) -> bool:
        if self.task is not None:
            return False
        self.layout_id = self.new_id()
        self.note(layout_task_id=self.layout_id)
        self.layout_right = True
        return True

    def restore(self) -> None:
        for option in self.record.notes.options or ():
            assert self.options.get(option.name) in option.given
            if option.before is None:
                self.options.pop(option.name)
            else:
                self.options[option.name] = option.before

    def begin_another(self) -> None:
        """The next attempt at the same bricks."""
        self.record = drain.DrainRecord(
            id=self.record.id + 1,
            volume="vol1",
            volume_id="v",
            bricks=(LEAVING,),
            attempt=self.record.attempt + 1,
            state=S.PLANNED,
            times={S.PLANNED: self.tick()},
            notes=drain.DrainNotes(),
        )
        assert self.record.state in drain.UNTOUCHED_STATES
