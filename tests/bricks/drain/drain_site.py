"""Everything that a drain works with: a real ledger over a simulated volume, whose calls may be killed."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.bricks.drain import model as drain_model
from migrator.bricks.drain.call import HOOK_STEPS, DrainPorts
from migrator.bricks.drain.directory_times import KeptTimes
from migrator.bricks.drain.drain import drain_bricks, stop_drain
from migrator.bricks.drain.wipe import wipe_word
from migrator.bricks.throttle import ThrottleRules
from migrator.catalog.model import BrickContent, TreeOnBricks
from migrator.catalog.walk_rows import BrickEntry
from migrator.core.entry import EntryType
from migrator.core.errors import ToolFailed
from migrator.core.events import EventKind
from migrator.core.units import DAY_S, GIB
from migrator.core.windows import Window
from migrator.gluster.model import (
    Brick,
    BrickMarks,
    BrickRoom,
    DiskFacts,
    PlaceSeen,
    TaskKind,
    TaskProgress,
    TaskStatus,
    VolumeState,
    VolumeTask,
)
from migrator.gluster.rules import LOOKUP_OPTION
from migrator.gluster.walks import BrickHello, BrickListener, BrickTotals
from migrator.hooks.model import HookStep
from tests.bricks.drain.drained_volume import LAZY, LEAVING, DrainedVolume
from tests.bricks.verb_ports import SimulatedShields, ports_of
from tests.support.fakes import FakeLocks, FakeProgress, VirtualClock
from tests.support.kills import Death, DoingHooks, Killed

S = drain_model.DrainState
VOLUME_ID = "v"
REQUEST = drain_model.DrainRequest(bricks=(LEAVING,), pid=1, poll_s=1.0)


@dataclass
class Glusterd:
    """The `DrainCommands` port over the simulated volume. While files move, one of `meanwhile` comes before each poll."""

    volume: DrainedVolume
    layouts: dict[str, TaskStatus] = field(default_factory=dict)
    loses_layouts: bool = False
    before_commit: Callable[[], None] | None = None
    dies_of: str | None = None
    meanwhile: list[Callable[[], None]] = field(default_factory=list)

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        if self.meanwhile and self.volume.task is not None:
            self.meanwhile.pop(0)()
        state = self.volume.state()
        if state is None:
            raise ToolFailed("glusterd does not answer")
        layouts = tuple(
            VolumeTask(kind=TaskKind.REBALANCE, name="Rebalance", id=one, status=status, bricks=())
            for one, status in self.layouts.items()
        )
        return state, (*self.volume.tasks(), *layouts)

    async def rooms(self) -> Mapping[str, BrickRoom]:
        free_bytes = 100 * GIB if self.volume.room else GIB
        room = BrickRoom(total_bytes=100 * GIB, free_bytes=free_bytes, total_inodes=10_000, free_inodes=9_000)
        leaving = replace(room, free_bytes=90 * GIB)
        return {name: leaving if name == LEAVING else room for name in self.volume.inside}

    async def option(self, name: str) -> str:
        return {"cluster.min-free-disk": "10%", LOOKUP_OPTION: self.volume.lookups}[name]

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        if task.id not in self.layouts:
            progress = self.volume.progress()
            self.volume.moves_files()
            return progress
        layout, status = self.volume.layout(), self.layouts[task.id]
        if not self.loses_layouts:
            self.layouts[task.id] = TaskStatus.COMPLETED
        if layout is None:
            return None
        counters = tuple(replace(one, status=status) for one in layout.counters)
        return replace(layout, task_id=task.id, counters=counters)

    async def start(self, bricks: Sequence[str]) -> str:
        assert tuple(bricks) == (LEAVING,)
        assert self.volume.lookups == "off"
        assert self.volume.shielded
        self.volume.start()
        assert self.volume.task is not None
        return self.volume.task.id

    async def stop(self, bricks: Sequence[str]) -> TaskProgress:
        progress = self.volume.progress()
        if progress is None:
            raise ToolFailed("Brick ops failed on gl3")
        self.volume.stop()
        return progress

    async def commit(self, bricks: Sequence[str]) -> None:
        if self.before_commit is not None:
            self.before_commit()
        assert self.volume.lookups == "off"
        self.volume.commit()

    async def fix_layout(self) -> str:
        if TaskStatus.IN_PROGRESS in self.layouts.values():
            raise ToolFailed("Rebalance is already started")
        self.volume.layout_id, self.volume.layout_right = self.volume.new_id(), True
        self.layouts[self.volume.layout_id] = TaskStatus.IN_PROGRESS
        return self.volume.layout_id

    async def set_option(self, name: str, value: str | None) -> None:
        if name == LOOKUP_OPTION:
            self.volume.lookups = str(value)
            return
        if value is not None and value == self.dies_of:
            raise Killed
        if value is None:
            self.volume.options.pop(name, None)
        else:
            self.volume.options[name] = value


@dataclass
class Walks:
    """The brick, walked."""

    volume: DrainedVolume
    hosts: Collection[str] = ("gl1", "gl2", "gl3")

    async def reach(self, host: str) -> None: ...

    async def walk(self, brick: Brick, *, listener: BrickListener, **_: Any) -> BrickTotals:
        await listener.hello(BrickHello(volume_id=VOLUME_ID, root_gfid=bytes(15) + b"\1", device=7))
        left = len(self.volume.bricks[brick.name])
        if left:
            await listener.rows(memoryview(bytes(left)))
        return BrickTotals(rows=left, directories=1, problems=0)


@dataclass
class Times:
    """The mtimes of directories over the commit."""

    volume: DrainedVolume

    async def keep(self, drain_id: int, bricks: Sequence[Brick], state: VolumeState) -> KeptTimes:
        assert (drain_id > 0, [one.name for one in bricks]) == (True, [LEAVING])
        assert LEAVING in {one.name for one in state.bricks}
        before, self.volume.times_kept = self.volume.times_kept, True
        return KeptTimes(kept=0 if before else 3)


@dataclass(frozen=True)
class Contents:
    """What a catalog says."""

    trees: tuple[TreeOnBricks, ...] = ()

    def content(self, catalog: str, bricks: Sequence[str]) -> BrickContent | None:
        assert tuple(bricks) == (LEAVING,)
        return BrickContent(
            files=5,
            size_bytes=5,
            largest_bytes=4096,
            linked_symlinks=(b"home/a/link",),
            trees=self.trees,
        )


class Source:
    """Where the symlink with several names was put right since."""

    root = b"/mnt/gl"

    def look(self, path: bytes) -> None:
        assert path == b"home/a/link"

    def read_directory(self, path: bytes) -> tuple[object, ...]:
        assert path == b""
        return ()


@dataclass
class Site:
    """Everything that a drain works with."""

    ledger: MigrationLedger
    volume: DrainedVolume = field(default_factory=DrainedVolume)
    locks: FakeLocks = field(default_factory=FakeLocks)
    progress: FakeProgress = field(default_factory=FakeProgress)
    backups: list[str] = field(default_factory=list)
    throttle: str | None = LAZY
    windows: tuple[Window, ...] = ()
    minute: int = 0
    max_latency_s: float | None = None
    version: str | None = "10.3"
    open_files: int | None = 0
    trees: tuple[TreeOnBricks, ...] = ()
    marks: tuple[BrickMarks, ...] | None = ()
    begins_at_s: float = 1000.0
    pause_s: float = 0.0
    hooks: DoingHooks = field(default_factory=DoingHooks)
    disk: str = "serial-1"
    mount: str = "/srv/b"
    on_disk: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.glusterd = Glusterd(self.volume)

    def world(self, death: Death | None) -> DrainPorts:
        async def versions(names: Collection[str]) -> Mapping[str, str | None]:
            return dict.fromkeys(names, self.version)

        async def open_files(_: Sequence[Brick], __: Sequence[bytes]) -> int | None:
            return self.open_files

        async def places(_: Sequence[Brick], __: str) -> Mapping[str, PlaceSeen]:
            return self.volume.places()

        async def disks(names: Sequence[str]) -> Mapping[str, DiskFacts]:
            facts = {name: DiskFacts(name=name, mount=self.mount, identity=self.disk) for name in names}
            return facts | {LEAVING: replace(facts[LEAVING], unexplained=self.on_disk)}

        async def marks(_: Sequence[Brick], volume_id: str) -> tuple[BrickMarks, ...] | None:
            assert volume_id == VOLUME_ID
            return self.marks

        clock = VirtualClock()
        clock.at_s = self.begins_at_s
        self.begins_at_s += self.pause_s
        return ports_of(
            DrainPorts,
            self.ledger,
            death,
            volume=self.glusterd,
            source=Source(),
            walks=Walks(self.volume),
            times=Times(self.volume),
            read_block=lambda payload: (BrickEntry(b"left", EntryType.FILE, 5, bytes(16), 1),) * len(payload),
            contents=lambda: Contents(self.trees),
            versions=versions,
            open_files=open_files,
            places=places,
            disks=disks,
            back_up=self.backups.append,
            throttle=ThrottleRules(
                throttle=self.throttle,
                windows=self.windows,
                local_time=lambda _: (0, self.minute),
                max_latency_s=self.max_latency_s,
            ),
            hooks=self.hooks,
            locks=self.locks,
            shields=SimulatedShields(self.volume, self.locks),
            progress=self.progress,
            clock=clock,
            retain_s=60.0,
            marks=marks,
        )

    def drain(self, *, death: Death | None = None, **changes: Any) -> drain_model.DrainSummary:
        return asyncio.run(drain_bricks(replace(REQUEST, **changes), self.world(death)))

    def stop(self, *, death: Death | None = None, **changes: Any) -> drain_model.DrainSummary:
        return asyncio.run(stop_drain(replace(REQUEST, **changes), self.world(death)))

    def came_to(self, *states: drain_model.DrainState) -> bool:
        """Whether the drain is in one of these states."""
        return self.state in states

    @property
    def state(self) -> drain_model.DrainState | None:
        record = self.ledger.drains.latest(VOLUME_ID, (LEAVING,))
        return None if record is None else record.state


EVERYTHING = set(range(1, 10))
WORD = wipe_word("s", "v", {LEAVING: DiskFacts(name=LEAVING, identity="serial-1")})


@dataclass
class HookedSite(Site):
    """One hook on either side of every step of a drain."""

    given: int = 0
    pause_s: float = DAY_S
    hooks: DoingHooks = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        deeds = dict.fromkeys(HOOK_STEPS, lambda: None)
        self.hooks = DoingHooks(deeds | {HookStep.WIPE: self._wipe, HookStep.HAND_OVER: self._give})

    def _wipe(self) -> None:
        assert not self.volume.shielded
        # The volume is asked by the simulation: nothing is wiped that is in it, or has a file.
        self.volume.wipe()

    def _give(self) -> None:
        assert self.volume.place is PlaceSeen.EMPTY
        self.given += 1

    def has_left(self) -> tuple[object, ...]:
        """What is simulated, as it lies there."""
        return (self.glusterd, self.hooks)

    def again(self, ledger: MigrationLedger) -> "HookedSite":
        """One like this, over a copy of its ledger."""
        site = HookedSite(ledger, volume=deepcopy(self.volume))
        site.hooks.tokens_given = self.hooks.tokens_given
        return site

    def owes_nothing(self) -> bool:
        """Whether no step with hooks is open, and no call without an end."""
        record = self.ledger.drains.latest("v", (LEAVING,))
        subject = f"drain {0 if record is None else record.id}"
        keys = (subject, *(f"{subject}: {step}" for step in HOOK_STEPS))
        still = [key for key in keys for step in HOOK_STEPS if self.ledger.hooks.open_since(step, key)]
        return not still and not self.ledger.hooks.unfinished(HOOK_STEPS)

    def warnings(self) -> list[str]:
        """What was said of hooks that failed."""
        return [one.message for one in self.ledger.events.latest(500) if one.kind is EventKind.HOOK_FAILED]
