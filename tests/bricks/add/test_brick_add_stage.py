"""`brick add` as a stage: real hooks and a real ledger, with a volume and a target that are told what to say."""

import asyncio
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from migrator.app import new_token
from migrator.bricks.add import model as add_model
from migrator.bricks.add.add import add_bricks
from migrator.bricks.add.stage import AdditionWorld
from migrator.bricks.model import BrickRoom
from migrator.bricks.shared import read_bricks
from migrator.core.clock import SystemClock
from migrator.core.errors import Refused, UsageError
from migrator.core.tasks import DaemonThreads
from migrator.core.units import GIB
from migrator.fs.model import TargetCapabilities
from migrator.gluster.model import Brick, TaskProgress, VolumeState, VolumeTask
from migrator.hooks.stage import HookPrograms
from migrator.hosts.process import LocalProcesses
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.ledger.model import SiteRecord
from migrator.operations.model import StepResult
from migrator.report.status import read_status
from tests.bricks.add.addition_commands import NothingAsked
from tests.bricks.add.addition_world import NEW as ADDED
from tests.bricks.add.addition_world import World
from tests.support.catalogs import whole_catalog
from tests.support.fake_filesystem import IDENTITY
from tests.support.fakes import FakeLocks, FakeProgress, FakeRunFiles, VirtualClock, empty_disks, inline

NEW = "gl2:/srv/b2"
CATALOG = whole_catalog(rows=8, files=7)


class Volume(NothingAsked):
    """A volume of one brick that nothing is ever added to."""

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        brick = Brick(name="gl1:/b", host="gl1", path=b"/b", online=True)
        state = VolumeState(
            volume="vol1",
            volume_id="v",
            type="Distribute",
            started=True,
            bricks=(brick,),
            options=(),
            tasks=(),
            peers_down=(),
            heals=(),
        )
        return state, ()

    async def rooms(self) -> Mapping[str, BrickRoom]:
        return {"gl1:/b": BrickRoom(filesystem="xfs", total_bytes=40 * GIB)}

    async def owners(self) -> Mapping[str, str]:
        return {"gl1:/b": "vol1"}

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        raise AssertionError("there is no task")


class Growing(Volume):
    """The volume that an addition is simulated on: every task has moved all that there is at the second look at it."""

    def __init__(self) -> None:
        self.world = World(mounted=True)
        self.during: Callable[[], None] = lambda: None

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        seen = self.world.see()
        assert seen.state is not None
        assert seen.tasks is not None
        return seen.state, seen.tasks

    async def rooms(self) -> Mapping[str, BrickRoom]:
        return self.world.see().rooms or {}

    async def owners(self) -> Mapping[str, str]:
        return self.world.see().owners or {}

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        progress = self.world.see().progress
        self.during()
        self.world.moves()
        return progress

    async def add(self, bricks: Sequence[str]) -> None:
        self.world.add()

    async def fix_layout(self) -> str:
        return self.world.begin(fix_layout=True)

    async def rebalance(self) -> str:
        return self.world.begin(fix_layout=False)


@dataclass
class Site:
    """What is asked, and what the target says. `clock` None: the real one, with real hooks."""

    directory: Path
    ledger: Ledger
    room: Callable[[int], add_model.TargetRoom]
    clock: VirtualClock | None = field(default_factory=VirtualClock)
    looks: int = 0
    own: bool = True
    brick: str = field(default_factory=lambda: NEW)
    size_bytes: int = 10 * GIB
    volume: Volume = field(default_factory=Volume)
    versions: Mapping[str, str] = field(default_factory=lambda: {"gl1": "11.1", "gl2": "11.1"})
    backups: list[str] = field(default_factory=list)

    async def _room(self) -> add_model.TargetRoom:
        self.looks += 1
        return self.room(self.looks)

    async def _versions(self, hosts: Collection[str]) -> Mapping[str, str | None]:
        return {host: self.versions.get(host) for host in hosts}

    async def _places(self, bricks: Sequence[str]) -> Mapping[str, add_model.NewPlace]:
        return {
            name: add_model.NewPlace(
                name=name,
                mount="/srv/b2" if self.own else "/",
                own=self.own,
                filesystem="xfs",
                total_bytes=self.size_bytes,
            )
            for name in bricks
        }

    def hook(self, where: str, text: str) -> None:
        file = self.directory / "hooks" / where
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        file.write_text(
            f'#!/bin/sh\necho "$MIGRATOR_STAGE $MIGRATOR_SIDE $MIGRATOR_BRICK $MIGRATOR_STATE" >>calls\n{text}\n'
        )
        file.chmod(0o755)

    def add(
        self, side: add_model.AdditionSide = add_model.AdditionSide.TARGET, *, dry_run: bool = False
    ) -> add_model.AdditionSummary:
        hooks = HookPrograms(
            LocalProcesses(grace_s=0.5, one_output=True),
            directory=os.fsencode(self.directory / "hooks"),
            site_file=os.fsencode(self.directory / "site.toml"),
            timeout_s=60.0,
        )
        world = AdditionWorld(
            volume=self.volume,
            source_root=b"/mnt/gl",
            target_root=b"/mnt/beegfs",
            places=self._places,
            disks=empty_disks,
            versions=self._versions,
            target_room=self._room,
            back_up=self.backups.append,
            hooks=hooks if self.clock is None else None,
            ledger=self.ledger,
            locks=FakeLocks(),
            files=FakeRunFiles(),
            progress=FakeProgress(),
            clock=self.clock or SystemClock(),
            blocking=inline if self.clock is not None else DaemonThreads(),
            tokens=new_token,
        )
        request = add_model.AdditionRequest(
            bricks=(self.brick,),
            side=side,
            pid=1,
            wish=add_model.Wish(),
            dry_run=dry_run,
            poll_s=5.0 if self.clock is not None else 0.01,
            seen_within_s=300.0,
        )
        return asyncio.run(add_bricks(request, world))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger.db", create=True) as made:
        made.site.create(
            SiteRecord(
                site_id="s",
                name="rehearsal",
                created_at_s=1.0,
                source=IDENTITY,
                target=IDENTITY,
                capabilities=TargetCapabilities(),
                capabilities_probed_at_s=1.0,
            )
        )
        yield made


def room(total: int, targets: int | None = None) -> add_model.TargetRoom:
    return add_model.TargetRoom(total_bytes=total, storage_targets=targets)


def test_a_dry_run_tells_of_a_brick_that_is_in_the_volume_what_is_left_to_do(tmp_path: Path, ledger: Ledger) -> None:
    volume = Growing()
    volume.world.add()
    site = Site(tmp_path, ledger, lambda _: room(100), brick=ADDED, volume=volume)
    told = site.add(add_model.AdditionSide.SOURCE, dry_run=True)
    assert told.ending is add_model.AdditionEnding.PLANNED
    assert told.words == f"{ADDED} is in the volume already: it would resume with the fix-layout, and what follows that"


def test_the_target_is_waited_for_until_it_shows_the_new_capacity(tmp_path: Path, ledger: Ledger) -> None:
    site = Site(tmp_path, ledger, lambda look: room(50 * GIB if look < 9 else 59 * GIB))
    assert site.add(dry_run=True).ending is add_model.AdditionEnding.PLANNED
    assert ledger.additions.all() == []
    done = site.add()
    assert (done.ending, done.state, done.size_bytes) == (
        add_model.AdditionEnding.DONE,
        add_model.AdditionState.SETTLED,
        10 * GIB,
    )
    (record,) = ledger.additions.all()
    assert record.notes.room_before == room(50 * GIB)
    steps = [one.step for one in ledger.additions.steps(record.id)]
    assert steps == [add_model.AdditionStep.PREPARE, add_model.AdditionStep.HAND_OVER, add_model.AdditionStep.FINISH]
    assert site.add().ending is add_model.AdditionEnding.DONE
    assert len(ledger.additions.all()) == 1


def test_a_target_that_never_shows_it_fails_and_the_same_command_goes_on(tmp_path: Path, ledger: Ledger) -> None:
    site = Site(tmp_path, ledger, lambda _: room(50 * GIB, 3))
    stuck = site.add()
    assert (stuck.ending, stuck.state) == (add_model.AdditionEnding.STUCK, add_model.AdditionState.HANDING)
    assert "does not show the new capacity" in stuck.words
    site.clock = VirtualClock()
    # Bytes alone do not count where the target's own list tells.
    site.room = lambda _: room(90 * GIB, 3)
    assert site.add().ending is add_model.AdditionEnding.STUCK
    site.clock, site.room = VirtualClock(), lambda _: room(50 * GIB, 4)
    assert site.add().ending is add_model.AdditionEnding.DONE
    (record,) = ledger.additions.all()
    assert record.notes.room_before == room(50 * GIB, 3)


def test_hooks_are_told_the_side_and_the_last_ones_are_called_once(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    calls = tmp_path / "calls"
    site = Site(tmp_path, ledger, lambda _: room(1, 4 if calls.exists() and "pre-add" in calls.read_text() else 3))
    site.clock = None
    site.hook("pre-add.d/50-set-up", "exit 0")
    site.hook("post-add.d/50-tell", "exit 0")
    for _ in range(2):
        assert site.add().ending is add_model.AdditionEnding.DONE
    assert calls.read_text().splitlines() == [f"pre-add target {NEW} ", f"post-add target {NEW} done"]


def test_a_hook_that_refuses_leaves_the_step_for_the_next_call(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site = Site(tmp_path, ledger, lambda _: room(1, 3))
    site.clock = None
    site.hook("pre-add.d/20-make", "echo '/dev/sdx is mounted' >&2; exit 1")
    with pytest.raises(Refused, match="/dev/sdx is mounted"):
        site.add()
    (record,) = ledger.additions.all()
    assert record.state is add_model.AdditionState.HANDING
    assert [one.result for one in ledger.additions.steps(record.id)][-1] is StepResult.FAILED


def test_a_place_that_no_hook_can_put_right_is_refused_before_anything_is_written(
    tmp_path: Path, ledger: Ledger
) -> None:
    site = Site(tmp_path, ledger, lambda _: room(1), own=False)
    refused = site.add(add_model.AdditionSide.SOURCE)
    assert refused.ending is add_model.AdditionEnding.HALTED
    assert any("not on one of its own" in reason for reason in refused.reasons)
    assert ledger.additions.all() == []
    assert ledger.runs.latest() is None


def test_the_version_of_every_host_counts(tmp_path: Path, ledger: Ledger) -> None:
    for versions, words in (({"gl1": "11.1"}, "gl2 is not known"), ({"gl1": "11.0", "gl2": "11.1"}, "11.0 on gl1")):
        refused = Site(tmp_path, ledger, lambda _: room(1), versions=versions).add(add_model.AdditionSide.SOURCE)
        assert refused.ending is add_model.AdditionEnding.HALTED
        (reason,) = refused.reasons
        assert words in reason


def test_status_tells_how_far_an_addition_is_at_any_time(tmp_path: Path, ledger: Ledger) -> None:
    scan = ledger.scans.start(catalog="c1", via="bricks", at_s=1.0)
    ledger.scans.finish(replace(CATALOG, scan_id=scan))
    volume = Growing()
    site = Site(tmp_path, ledger, lambda _: room(1), volume=volume, brick=ADDED, size_bytes=40 * GIB)
    told: list[add_model.AdditionStanding] = []
    volume.during = lambda: told.extend(read_bricks(ledger).additions)
    assert site.add(add_model.AdditionSide.SOURCE).ending is add_model.AdditionEnding.DONE
    layouts = [one for one in told if one.state is add_model.AdditionState.LAYOUT]
    balancing = [one for one in told if one.state is add_model.AdditionState.BALANCING]
    assert {one.files for one in layouts} == {None}
    assert {(one.files, one.size_bytes) for one in balancing} == {(7, 40 * GIB)}
    (settled,) = read_bricks(ledger).additions
    assert (settled.state, settled.moved_files, settled.lookups, settled.left_s) == (
        add_model.AdditionState.SETTLED,
        2,
        1,
        None,
    )
    status = read_status(ledger, now_s=10.0)
    assert status.additions == (settled,)
    assert not any("addition" in one.subject for one in status.blocked)


def test_hooks_that_do_not_put_it_right_are_seen_through(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site = Site(tmp_path, ledger, lambda _: room(1), own=False)
    site.clock = None
    site.hook("pre-add.d/20-make", "exit 0")
    with pytest.raises(Refused, match="not on one of its own"):
        site.add(add_model.AdditionSide.SOURCE)
    (record,) = ledger.additions.all()
    assert record.state is add_model.AdditionState.PREPARING
    assert site.backups == [f"addition-{record.id}"]


def test_a_name_that_is_no_brick_is_refused(tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bricks.add.test_brick_add_stage.NEW", "gl2:/srv/b2/")
    with pytest.raises(UsageError, match="is no brick"):
        Site(tmp_path, ledger, lambda _: room(1)).add()
