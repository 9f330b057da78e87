"""Everything that an addition works with: a real ledger over a simulated volume, whose tasks users feel."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from migrator.app import new_token
from migrator.bricks.add import model as add_model
from migrator.bricks.add.add import add_bricks
from migrator.bricks.add.stage import AdditionWorld
from migrator.bricks.model import BrickRoom
from migrator.bricks.shared import THROTTLE_OPTION, ThrottleRules
from migrator.core.errors import ToolFailed
from migrator.core.probe import Probe, ProbeSide
from migrator.gluster.model import TaskProgress, VolumeState, VolumeTask
from migrator.ledger.ledger import Ledger, open_ledger
from tests.bricks.add.addition_commands import NothingAsked
from tests.bricks.add.addition_world import NEW, ROOM, World
from tests.support.fakes import FakeLocks, FakeProgress, FakeRunFiles, VirtualClock, empty_disks, inline
from tests.support.kills import Death, DoingHooks, Killed, dying, new_ledger, ticking

LOOKS = 9
"""How often the task is looked at before it has come to its end."""


@dataclass
class Glusterd(NothingAsked):
    """The `AdditionCommands` port over the simulated volume. Whenever a task is looked at, somebody has probed. `dead_for`: for so many
    looks at a rebalance nothing is moved, nor does its run time go on.
    """

    volume: World
    ledger: Ledger
    clock: VirtualClock
    latency_s: float = 0.2
    options: dict[str, str] = field(default_factory=dict)
    history: list[str | None] = field(default_factory=list)
    breaks: bool = False
    cannot_balance: int = 0
    dead_for: int = 0
    looks: int = 0
    heals_asked: int = 0
    killed_at: tuple[int, bool] | None = None

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        seen = self.volume.see()
        return replace(seen.state, options=tuple(self.options.items())), seen.tasks

    async def rooms(self) -> Mapping[str, BrickRoom]:
        return dict.fromkeys(self.volume.inside, ROOM)

    async def owners(self) -> Mapping[str, str]:
        return dict.fromkeys(self.volume.inside, "vol1")

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        moved = self.volume.task
        if self.dead_for and moved is not None and not moved.fix_layout:
            self.dead_for -= 1
            return self.volume.see().progress
        if moved is not None:
            moved.ran_s += 1.0
        self.looks += 1
        probe = Probe(side=ProbeSide.SOURCE, at_s=self.clock.now_s(), waited_s=self.latency_s)
        self.ledger.probes.add(probe)
        if self.looks % LOOKS == 0:
            if self.breaks:
                self.volume.breaks()
            elif self.cannot_balance and self.volume.task is not None and not self.volume.task.fix_layout:
                self.volume.moves_all_but(self.cannot_balance)
            else:
                self.volume.moves()
        found = self.volume.see().progress
        assert found is None or found.task_id == task.id
        return found

    async def add(self, bricks: Sequence[str]) -> None:
        assert tuple(bricks) == (NEW,)
        self.volume.add()

    async def heal(self) -> None:
        self.heals_asked += 1
        raise ToolFailed("gluster says: the volume has no copies")

    async def fix_layout(self) -> str:
        return self._begin(fix_layout=True)

    async def rebalance(self) -> str:
        return self._begin(fix_layout=False)

    def _begin(self, *, fix_layout: bool) -> str:
        if self.volume.moving:
            raise ToolFailed("another task is in progress")
        return self.volume.begin(fix_layout=fix_layout)

    async def set_option(self, name: str, value: str | None) -> None:
        assert name == THROTTLE_OPTION
        at = len(self.history) + 1
        if self.killed_at == (at, False):
            raise Killed
        notes = [record.notes.options for record in self.ledger.additions.all()]
        assert any(notes), "an option was changed that nothing is written down of"
        self.history.append(value)
        self.options.pop(name, None)
        if value is not None:
            self.options[name] = value
        if self.killed_at == (at, True):
            raise Killed


class Quick(Glusterd):
    """Whatever is begun has come to its end at the second look."""

    during: Callable[[], None] = staticmethod(lambda: None)

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        found = self.volume.see().progress
        self.during()
        self.volume.moves()
        return found


def world_of(ledger: Ledger, death: Death | None, **ports: Any) -> AdditionWorld:
    """The ports of an addition: fakes, unless given. The program is killed before one of its calls if `death` says so."""

    async def versions(hosts: Collection[str]) -> Mapping[str, str | None]:
        return dict.fromkeys(hosts, "11.1")

    async def room() -> add_model.TargetRoom:
        raise AssertionError("nothing goes to the target")

    given: dict[str, Any] = {
        "disks": empty_disks,
        "versions": versions,
        "target_room": room,
        "back_up": lambda _: None,
        "hooks": DoingHooks(),
        "ledger": ledger,
        "locks": FakeLocks(),
        "files": FakeRunFiles(),
        "progress": FakeProgress(),
        "clock": VirtualClock(),
        "blocking": inline,
        "tokens": new_token,
        **ports,
    }
    if death is not None:
        given |= {name: dying(given[name], death) for name in ("volume", "hooks", "ledger")}
        calls = ("places", "versions", "target_room", "back_up", "blamed")
        given |= {name: ticking(given[name], death) for name in calls if name in given}
    return AdditionWorld(**given)


@dataclass
class Site:
    """Everything that an addition works with; `ports` take the place of others."""

    ledger: Ledger
    volume: World = field(default_factory=World)
    side: add_model.AdditionSide = add_model.AdditionSide.SOURCE
    wish: add_model.Wish = field(default_factory=add_model.Wish)
    clock: VirtualClock = field(default_factory=VirtualClock)
    locks: FakeLocks = field(default_factory=FakeLocks)
    hooks: DoingHooks = field(default_factory=DoingHooks)
    throttle: str | None = "aggressive"
    max_latency_s: float | None = 0.05
    glusterd_of: Callable[[World, Ledger, VirtualClock], Glusterd] = Glusterd
    ports: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.glusterd = self.glusterd_of(self.volume, self.ledger, self.clock)

    async def places(self, _: Sequence[str]) -> Mapping[str, add_model.NewPlace]:
        return {NEW: self.volume.place}

    def add(self, death: Death | None = None, *, dry_run: bool = False, brick: str = NEW) -> add_model.AdditionSummary:
        throttle = ThrottleRules(throttle=self.throttle, max_latency_s=self.max_latency_s)
        world = world_of(
            self.ledger,
            death,
            volume=self.glusterd,
            **{
                "places": self.places,
                "locks": self.locks,
                "clock": self.clock,
                "hooks": self.hooks,
                "tokens": self.hooks.new_token,
                "throttle": throttle,
                **self.ports,
            },
        )
        request = add_model.AdditionRequest(
            bricks=(brick,), side=self.side, pid=1, wish=self.wish, dry_run=dry_run, poll_s=60.0, seen_within_s=300.0
        )
        return asyncio.run(add_bricks(request, world))

    @property
    def states(self) -> list[add_model.AdditionState]:
        return [record.state for record in self.ledger.additions.all()]


@contextmanager
def addition_site(tmp_path: Path) -> Iterator[Site]:
    with open_ledger(new_ledger(tmp_path / "ledger.db")) as ledger:
        yield Site(ledger)
