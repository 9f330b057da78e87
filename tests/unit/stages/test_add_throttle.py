"""An addition of bricks that users feel: the throttle of its rebalance, on a simulated volume, killed at any change."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from migrator.adapters.ledger.sqlite import SqliteLedger, open_ledger
from migrator.domain.addition import AdditionSide, AdditionState, TargetRoom
from migrator.domain.addition_run import AdditionEnding, AdditionRequest, AdditionSummary
from migrator.domain.addition_seen import NewPlace, Wish
from migrator.domain.brick import VolumeState
from migrator.domain.brick_list import BrickRoom
from migrator.domain.errors import ExitCode, MigratorError, Refused, ToolFailed
from migrator.domain.events import EventKind
from migrator.domain.probe import Probe, ProbeSide
from migrator.domain.scan import CatalogRecord
from migrator.domain.site import TargetCapabilities
from migrator.domain.volume_tasks import TaskProgress, VolumeTask
from migrator.ports.site import SiteRecord
from migrator.stages.bricks.add import add_bricks
from migrator.stages.bricks.add_context import AdditionWorld, Scan
from migrator.stages.bricks.lookups import LOOKUP_OPTION
from migrator.stages.bricks.throttling import THROTTLE_OPTION, ThrottleRules
from tests.catalogs import whole_catalog
from tests.deaths import Killed
from tests.fake_filesystem import IDENTITY
from tests.fakes import FakeLocks, FakeProgress, FakeRunFiles, VirtualClock, inline
from tests.unit.decide.addition_world import NEW, ROOM, World

LOOKS = 9
"""How often the task is looked at before it has come to its end."""


@dataclass
class Glusterd:
    """The `AdditionCommands` port over the simulated volume. Whenever a task is looked at, somebody has probed."""

    volume: World
    ledger: SqliteLedger
    clock: VirtualClock
    latency_s: float = 0.2
    options: dict[str, str] = field(default_factory=dict)
    history: list[str | None] = field(default_factory=list)
    breaks: bool = False
    looks: int = 0
    killed_at: tuple[int, bool] | None = None

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        seen = self.volume.see()
        assert seen.state is not None
        assert seen.tasks is not None
        return replace(seen.state, options=tuple(self.options.items())), tuple(seen.tasks)

    async def rooms(self) -> Mapping[str, BrickRoom]:
        return dict.fromkeys(self.volume.inside, ROOM)

    async def owners(self) -> Mapping[str, str]:
        return dict.fromkeys(self.volume.inside, "vol1")

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        self.looks += 1
        probe = Probe(side=ProbeSide.SOURCE, at_s=self.clock.now_s(), waited_s=self.latency_s)
        self.ledger.probes.add(probe)
        if self.looks % LOOKS == 0:
            if self.breaks:
                self.volume.breaks()
            else:
                self.volume.moves()
        found = self.volume.see().progress
        assert found is None or found.task_id == task.id
        return found

    async def add(self, bricks: Sequence[str]) -> None:
        assert tuple(bricks) == (NEW,)
        self.volume.add()

    async def replace(self, old: str, new: str) -> None:
        raise AssertionError("nothing is to be replaced")

    async def fix_layout(self) -> str:
        return self.volume.begin(fix_layout=True)

    async def rebalance(self) -> str:
        return self.volume.begin(fix_layout=False)

    async def option(self, name: str) -> str:
        assert name == LOOKUP_OPTION
        return "off"

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


@dataclass
class Site:
    """Everything that an addition works with."""

    ledger: SqliteLedger
    volume: World = field(default_factory=lambda: World(mounted=True))
    clock: VirtualClock = field(default_factory=VirtualClock)
    throttle: str | None = "aggressive"
    scan: Scan | None = None

    def __post_init__(self) -> None:
        self.glusterd = Glusterd(self.volume, self.ledger, self.clock)

    def add(self) -> AdditionSummary:
        async def versions(hosts: Collection[str]) -> Mapping[str, str | None]:
            return dict.fromkeys(hosts, "11.1")

        async def places(_: Sequence[str]) -> Mapping[str, NewPlace]:
            return {NEW: self.volume.place}

        async def room() -> TargetRoom:
            raise AssertionError("nothing goes to the target")

        world = AdditionWorld(
            volume=self.glusterd,
            source_root=b"/mnt/gl",
            target_root=b"/mnt/beegfs",
            places=places,
            versions=versions,
            target_room=room,
            back_up=lambda _: None,
            hooks=None,
            ledger=self.ledger,
            locks=FakeLocks(),
            files=FakeRunFiles(),
            progress=FakeProgress(),
            clock=self.clock,
            blocking=inline,
            tokens=lambda: "token",
            throttle=ThrottleRules(throttle=self.throttle, windows=(), local_time=lambda _: (0, 0), max_latency_s=0.05),
            scan=self.scan,
        )
        request = AdditionRequest(bricks=(NEW,), side=AdditionSide.SOURCE, pid=1, wish=Wish(), poll_s=60.0)
        return asyncio.run(add_bricks(request, world))

    @property
    def states(self) -> list[AdditionState]:
        return [record.state for record in self.ledger.additions.all()]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_ledger(tmp_path / "ledger.db", create=True) as ledger:
        ledger.site.create(
            SiteRecord(
                site_id="s",
                name="test",
                created_at_s=1.0,
                source=IDENTITY,
                target=IDENTITY,
                capabilities=TargetCapabilities(),
                capabilities_probed_at_s=1.0,
            )
        )
        yield Site(ledger)


def test_it_gives_way_while_files_are_moved_and_is_put_back_at_the_end(site: Site) -> None:
    site.glusterd.options[THROTTLE_OPTION] = "normal"
    assert site.add().ending is AdditionEnding.DONE
    assert site.glusterd.history == ["aggressive", "normal", "lazy", "normal"]
    assert site.glusterd.options == {THROTTLE_OPTION: "normal"}
    (record,) = site.ledger.additions.all()
    assert record.notes.options == ()
    assert site.volume.even
    said = [one.message for one in site.ledger.events.latest(100) if one.kind is EventKind.THROTTLE_SET][::-1]
    assert [words.partition(" now")[0] for words in said] == [
        f"{THROTTLE_OPTION} is {value}" for value in ("aggressive", "normal", "lazy")
    ]


def test_a_fast_source_is_let_alone_and_without_a_throttle_nothing_is_set(site: Site) -> None:
    site.glusterd.latency_s = 0.001
    site.throttle = None
    assert site.add().ending is AdditionEnding.DONE
    assert site.glusterd.history == []


def test_it_is_put_back_where_the_rebalance_fails(site: Site) -> None:
    site.glusterd.breaks = True
    assert site.add().ending is not AdditionEnding.DONE
    assert site.states == [AdditionState.FAILED]
    assert site.glusterd.options == {}
    site.glusterd.breaks = False
    assert site.add().ending is AdditionEnding.DONE
    assert site.glusterd.options == {}


def test_what_could_not_be_put_back_is_by_the_next_call(site: Site) -> None:
    site.glusterd.breaks = True
    set_option = site.glusterd.set_option

    async def only_set(name: str, value: str | None) -> None:
        if value is None:
            raise ToolFailed("glusterd does not answer")
        await set_option(name, value)

    site.glusterd.set_option = only_set  # type: ignore[method-assign]
    site.add()
    assert site.states == [AdditionState.FAILED]
    assert THROTTLE_OPTION in site.glusterd.options
    site.glusterd.set_option = set_option  # type: ignore[method-assign]
    site.glusterd.history.clear()
    site.glusterd.breaks = False
    assert site.add().ending is AdditionEnding.DONE
    assert site.glusterd.history[0] is None
    assert site.glusterd.options == {}


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("change", range(1, 5))
def test_a_kill_at_any_change_leaves_nothing_changed_in_the_end(site: Site, change: int, done: bool) -> None:
    site.glusterd.killed_at = (change, done)
    with suppress(Killed):
        site.add()
    assert len(site.glusterd.history) == (change if done else change - 1)
    assert site.states != [AdditionState.SETTLED]
    site.glusterd.killed_at = None
    assert site.add().ending is AdditionEnding.DONE
    assert site.states == [AdditionState.SETTLED]
    assert site.glusterd.options == {}
    assert site.ledger.additions.all()[0].notes.options == ()


class Scans:
    """Scans of all bricks, and what each comes to: reasons why it is not whole, or why it cannot be made."""

    def __init__(self, *found: Sequence[str] | MigratorError) -> None:
        self._found = list(found)
        self.made = 0

    async def __call__(self) -> CatalogRecord:
        self.made += 1
        found = self._found.pop(0) if len(self._found) > 1 else self._found[0]
        if isinstance(found, MigratorError):
            raise found
        return whole_catalog(whole=not found, reasons=tuple(found))


TWICE = "1 path was found more than once (home/a)"


@pytest.mark.parametrize(
    ("found", "doubts"),
    [
        ([[]], ()),
        # Somebody renamed while it was read: what was not there the second time is none.
        ([[TWICE], []], ()),
        ([[TWICE], [TWICE]], (TWICE,)),
        # Where users write to copies, something waits to be healed now and then.
        ([Refused("2 entries wait to be healed"), ToolFailed("gl2 is not reached"), []], ()),
        ([[TWICE], Refused("2 entries wait to be healed"), [TWICE]], (TWICE,)),
    ],
)
def test_all_bricks_are_read_after_a_rebalance_and_doubts_are_for_people(
    site: Site, found: list[list[str] | MigratorError], doubts: tuple[str, ...]
) -> None:
    scans = Scans(*found)
    site.scan = scans
    done = site.add()
    assert (done.ending, done.reasons) == (AdditionEnding.DOUBTED if doubts else AdditionEnding.DONE, doubts)
    assert done.exit_code is (ExitCode.ATTENTION if doubts else ExitCode.DONE)
    assert scans.made == len(found)
    assert site.states == [AdditionState.SETTLED]
    warned = [one.message for one in site.ledger.events.latest(100) if one.kind is EventKind.ADDITION_FAILED]
    assert warned == [f"audit: {doubt}" for doubt in doubts]
    # Given again nothing is left to do, and nothing is read.
    assert site.add().ending is AdditionEnding.DONE
    assert scans.made == len(found)


def test_a_volume_that_cannot_be_read_for_long_is_for_people(site: Site) -> None:
    scans = Scans(Refused("2 entries wait to be healed"))
    site.scan = scans
    done = site.add()
    assert done.ending is AdditionEnding.DOUBTED
    assert done.reasons == ("the bricks could not be read after the rebalance: 2 entries wait to be healed",)
    # A look a minute, for a quarter of an hour.
    assert scans.made == 16
