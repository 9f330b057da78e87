"""Everything that an addition works with: a real ledger over a simulated volume, whose tasks users feel."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.bricks.add import model as add_model
from migrator.bricks.add.add import add_bricks
from migrator.bricks.add.call import AdditionPorts
from migrator.bricks.throttle import THROTTLE_OPTION, ThrottleRules
from migrator.core.errors import ToolFailed
from migrator.core.probe import Probe, ProbeSide
from migrator.gluster.model import BrickRoom, NewPlace, TaskProgress, VolumeState, VolumeTask
from migrator.gluster.rules import LOOKUP_OPTION
from tests.bricks.add.grown_volume import NEW, ROOM, GrownVolume
from tests.bricks.verb_ports import SimulatedShields, ports_of
from tests.support.fakes import FakeLocks, VirtualClock, empty_disks
from tests.support.kills import Death, DoingHooks, new_ledger

LOOKS = 9
"""How often the task is looked at before it has come to its end."""


@dataclass
class Glusterd:
    """The `AdditionCommands` port over the simulated volume, as far as it may be asked. Lookups are as an addition leaves
    them. Each poll has a probe of both sides, of which only the source's may count; `dead_for` so many nothing moves.
    """

    volume: GrownVolume
    ledger: MigrationLedger
    clock: VirtualClock
    latency_s_at: Callable[[int], float] = lambda _: 0.2
    options: dict[str, str] = field(default_factory=dict)
    history: list[str | None] = field(default_factory=list)
    breaks: bool = False
    cannot_balance: int = 0
    dead_for: int = 0
    looks: int = 0
    heals_asked: int = 0

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        seen = self.volume.see()
        return replace(seen.state, options=tuple(self.options.items())), seen.tasks

    async def option(self, name: str) -> str:
        assert name == LOOKUP_OPTION
        return "off"

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
        for side, latency_s in ((ProbeSide.SOURCE, self.latency_s_at(self.looks)), (ProbeSide.TARGET, 9.0)):
            self.ledger.probes.add(Probe(side=side, at_s=self.clock.now_s(), waited_s=latency_s))
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
        assert self.volume.shielded
        return self._begin(fix_layout=False)

    def _begin(self, *, fix_layout: bool) -> str:
        if self.volume.moving:
            raise ToolFailed("another task is in progress")
        return self.volume.begin(fix_layout=fix_layout)

    async def set_option(self, name: str, value: str | None) -> None:
        assert name == THROTTLE_OPTION
        notes = [record.notes.options for record in self.ledger.additions.all()]
        assert any(notes), "an option was changed that nothing is written down of"
        self.history.append(value)
        self.options.pop(name, None)
        if value is not None:
            self.options[name] = value


class Quick(Glusterd):
    """Whatever is begun has come to its end at the second look."""

    during: Callable[[], None] = staticmethod(lambda: None)

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        found = self.volume.see().progress
        self.during()
        self.volume.moves()
        return found


async def same_versions(hosts: Collection[str]) -> Mapping[str, str | None]:
    """What GlusterFS every host has."""
    return dict.fromkeys(hosts, "11.1")


async def no_target() -> add_model.TargetRoom:
    raise AssertionError("nothing goes to the target")


PORTS: dict[str, Any] = {"disks": empty_disks, "versions": same_versions, "target_room": no_target}


@dataclass
class Site:
    """Everything that an addition works with; `ports` take the place of others."""

    ledger: MigrationLedger
    volume: Any = field(default_factory=GrownVolume)
    side: add_model.AdditionSide = add_model.AdditionSide.SOURCE
    wish: add_model.Wish = field(default_factory=add_model.Wish)
    clock: VirtualClock = field(default_factory=VirtualClock)
    locks: FakeLocks = field(default_factory=FakeLocks)
    hooks: DoingHooks = field(default_factory=DoingHooks)
    throttle: str | None = "aggressive"
    max_latency_s: float | None = 0.05
    glusterd_of: Callable[[Any, MigrationLedger, VirtualClock], Any] = Glusterd
    ports: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.glusterd = self.glusterd_of(self.volume, self.ledger, self.clock)

    async def places(self, _: Sequence[str]) -> Mapping[str, NewPlace]:
        return {NEW: self.volume.place}

    def add(self, death: Death | None = None, **asked: Any) -> add_model.AdditionSummary:
        ports = PORTS | {"hooks": self.hooks, "locks": self.locks, "clock": self.clock, "places": self.places}
        ports["shields"] = SimulatedShields(self.volume, self.locks)
        ports["throttle"] = ThrottleRules(throttle=self.throttle, max_latency_s=self.max_latency_s)
        world = ports_of(AdditionPorts, self.ledger, death, volume=self.glusterd, **(ports | self.ports))
        usual: dict[str, Any] = {
            "bricks": (NEW,),
            "side": self.side,
            "wish": self.wish,
            "poll_s": 60.0,
            "seen_within_s": 300.0,
        }
        return asyncio.run(add_bricks(add_model.AdditionRequest(pid=1, **usual | asked), world))

    @property
    def states(self) -> list[add_model.AdditionState]:
        return [record.state for record in self.ledger.additions.all()]

    @property
    def state(self) -> add_model.AdditionState | None:
        """Of the newest addition."""
        return self.states[-1] if self.states else None


@contextmanager
def addition_site(tmp_path: Path) -> Iterator[Site]:
    with MigrationLedger.open(new_ledger(tmp_path / "ledger.db")) as ledger:
        yield Site(ledger)
