"""An addition on a simulated volume: disturbed at any look, killed at any call or before every one, with its hooks."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.bricks.add.model import AdditionSide, AdditionState, TargetRoom, Wish
from migrator.bricks.model import CallEnding
from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.units import GIB
from migrator.gluster.model import VolumeState, VolumeTask
from migrator.hooks.model import HookStep
from tests.bricks.add.addition_site import Glusterd, Quick, Site, addition_site
from tests.bricks.add.grown_volume import EMPTY, NEW, GrownVolume
from tests.support.fakes import VirtualClock
from tests.support.kills import Death, DoingHooks, Killed, killed_everywhere, new_ledger

S, E = AdditionState, CallEnding
STALE = replace(EMPTY, exists=True, volume_id="76")


def add_by_hand(world: GrownVolume) -> None:
    if not (world.moving or NEW in world.inside or world.place.stale or not world.place.own):
        world.add()


def begin_by_hand(*, fix_layout: bool) -> Callable[[GrownVolume], None]:
    def begin(world: GrownVolume) -> None:
        if not world.moving:
            world.begin(fix_layout=fix_layout)

    return begin


def put(place: object) -> Callable[[GrownVolume], None]:
    """What lies where the brick is to be, as long as it is not in the volume."""
    return lambda world: None if NEW in world.inside else setattr(world, "place", place)


def fact(name: str, *, value: bool) -> Callable[[GrownVolume], None]:
    return lambda world: setattr(world, name, value)


DISTURBANCES: dict[str, Callable[[GrownVolume], None]] = {
    "glusterd goes": fact("asks", value=False),
    "glusterd comes": fact("asks", value=True),
    "a peer goes": fact("peer_up", value=False),
    "a peer comes": fact("peer_up", value=True),
    "files are moved": GrownVolume.moves,
    "the task breaks": GrownVolume.breaks,
    "added by hand": add_by_hand,
    "fix-layout by hand": begin_by_hand(fix_layout=True),
    "rebalance by hand": begin_by_hand(fix_layout=False),
    "stopped by hand": lambda world: setattr(world, "task", None),
    "unmounted": put(replace(EMPTY, mount="/", own=False)),
    "marked": put(STALE),
    "hooks are wrong": fact("hooks_right", value=False),
    "hooks are right": fact("hooks_right", value=True),
}


@dataclass
class Disturbed(Glusterd):
    """Something happens at some looks: so many looks after the one before."""

    events: list[tuple[int, str]] | None = None

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        while self.events and self.events[0][0] <= 0:
            DISTURBANCES[self.events.pop(0)[1]](self.volume)
        if self.events:
            self.events[0] = (self.events[0][0] - 1, self.events[0][1])
        if not self.volume.asks:
            raise ToolFailed("glusterd does not answer")
        return await super().state_and_tasks()


EVENTS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(sorted(DISTURBANCES))), max_size=12)


@settings(deadline=None, max_examples=12)
@given(EVENTS, st.lists(st.integers(1, 150), max_size=4), st.booleans())
def test_killed_and_disturbed_anywhere_it_ends_with_the_brick_in_use(
    events: list[tuple[int, str]], kills: list[int], rebalance: bool
) -> None:
    shared = Path("/dev/shm")
    with (
        TemporaryDirectory(dir=shared if shared.is_dir() else None) as directory,
        addition_site(Path(directory)) as site,
    ):
        world, site.wish = site.volume, Wish(rebalance=rebalance)
        site.glusterd = Disturbed(world, site.ledger, site.clock, events=events)
        site.hooks = DoingHooks({HookStep.ADD: lambda: put(EMPTY)(world) if world.hooks_right else None})
        for left in kills:
            with suppress(Killed, MigratorError):
                site.add(Death(left=left))
            assert world.added <= 1
        # The same command again and again, on a world that behaves.
        for _ in range(20):
            events.clear()
            world.asks = world.peer_up = world.hooks_right = True
            with suppress(MigratorError):
                if site.add().ending is E.DONE:
                    break
            # People do what the halt tells: they wait, and take off marks.
            world.moves()
            put(EMPTY)(world)
        assert site.states[-1] is S.SETTLED
        assert (world.added, NEW in world.inside, world.layout_right) == (1, True, True)
        assert world.even or not rebalance


@pytest.mark.parametrize(("failures", "ending"), [(10, E.DONE), (11, E.HALTED)])
def test_a_few_files_that_users_rename_while_they_are_moved_are_no_failure_of_a_rebalance(
    tmp_path: Path, failures: int, ending: CallEnding
) -> None:
    with addition_site(tmp_path) as site:
        site.glusterd.cannot_balance = failures
        for _ in range(2):
            added = site.add()
            assert (added.ending, site.states == [S.SETTLED]) == (ending, ending is E.DONE)
        assert (f"{failures} files could not be moved, and stay where they are" in added.words) is (ending is E.DONE)


LEFT = replace(EMPTY, exists=True, volume_id="76", entries=("home",))


@dataclass
class Dying(Site):
    """What a brick has left is on the place of the new one until a hook makes a file system."""

    throttle: str | None = "normal"
    max_latency_s: float | None = None
    glusterd_of: Callable[[Any, MigrationLedger, VirtualClock], Any] = Quick
    given: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.volume.place = LEFT
        self.called = self.hooks = DoingHooks({HookStep.ADD: self._make} | self._giving())
        self.ports = {"target_room": self._room}

    async def _room(self) -> TargetRoom:
        return TargetRoom(total_bytes=50 * GIB, storage_targets=3 + len(self.given))

    def _giving(self) -> dict[HookStep, Callable[[], None]]:
        if self.side is AdditionSide.SOURCE:
            return {}
        # As the lab's own hook: what was given is not given twice.
        return {HookStep.ATTACH: lambda: self.given.add(NEW)}

    def _make(self) -> None:
        assert NEW not in self.volume.inside, "a file system was made on a brick that is in use"
        self.volume.place = EMPTY

    def has_left(self) -> tuple[object, ...]:
        """What is simulated, as it lies there."""
        return (self.volume, self.glusterd.options, self.called, sorted(self.given))

    def comes_to_its_end(self) -> None:
        """By the same command."""
        done = self.add()
        assert (done.ending, self.state) == (CallEnding.DONE, S.SETTLED), done
        assert self.glusterd.options == {}
        assert not self.volume.shielded
        assert self.locks.held == []
        (record,) = self.ledger.additions.all()
        assert not record.notes.options
        handed = ["post-attach"] if self.side is AdditionSide.TARGET else []
        assert self.called.told() in (["post-add"], [*handed, "post-add"])
        assert not self.ledger.hooks.unfinished((HookStep.ADD,))


def every_remains(memory: Path, died_in: set[AdditionState | None], **of: Any) -> Iterator[Dying]:
    """A site for everything that a killed addition can leave; the states that they died in are added to the set."""
    prepared = new_ledger(memory / "prepared.db")
    for site, _ in killed_everywhere(prepared, lambda ledger: Dying(ledger, **of), Dying.add, died_in):
        yield site


@pytest.mark.parametrize("rebalance", [True, False])
@pytest.mark.exhaustive
def test_killed_before_any_call_a_brick_is_added_once_and_used(memory: Path, rebalance: bool) -> None:
    died_in: set[AdditionState | None] = set()
    for site in every_remains(memory, died_in, wish=Wish(rebalance=rebalance)):
        site.comes_to_its_end()
        assert site.volume.added == 1
        assert site.volume.layout_right
        assert site.volume.even is rebalance
    balanced = {S.BALANCING, S.BALANCED} if rebalance else set()
    assert died_in >= {S.PLANNED, S.PREPARING, S.PREPARED, S.ADDING, S.ADDED, S.LAYOUT, S.LAID_OUT, *balanced}


@pytest.mark.exhaustive
def test_killed_before_any_call_a_disk_is_given_to_the_target(memory: Path) -> None:
    died_in: set[AdditionState | None] = set()
    for site in every_remains(memory, died_in, side=AdditionSide.TARGET):
        site.comes_to_its_end()
        assert (site.given, site.volume.added) == ({NEW}, 0)
        # What the target had before it was given anything is known, whenever the program died.
        (record,) = site.ledger.additions.all()
        assert record.notes.room_before == TargetRoom(total_bytes=50 * GIB, storage_targets=3)
    assert died_in >= {S.PLANNED, S.PREPARING, S.PREPARED, S.HANDING, S.SEEN}
