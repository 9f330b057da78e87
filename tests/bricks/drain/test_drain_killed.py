"""A drain of a simulated volume: disturbed at any poll, killed at any call or before every one, and taken back."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from migrator.app.ledger import MigrationLedger
from migrator.bricks.drain.call import HOOK_STEPS
from migrator.bricks.drain.model import UNTOUCHED_STATES, DrainState, DrainStep
from migrator.bricks.model import CallEnding
from migrator.core.errors import MigratorError, ToolFailed
from migrator.gluster.model import PlaceSeen, TaskProgress, TaskStatus, VolumeState, VolumeTask
from migrator.hooks.model import HookOutcome, HookStep
from tests.bricks.drain.drain_site import EVERYTHING, WORD, Glusterd, HookedSite, S
from tests.bricks.drain.drained_volume import LAZY, LEAVING, NORMAL, STAYING, THROTTLE, DrainedVolume
from tests.support.kills import Death, Killed, killed_everywhere, new_ledger


def fact(name: str, *, value: object) -> Callable[[DrainedVolume], None]:
    return lambda world: setattr(world, name, value)


def user_writes(world: DrainedVolume) -> None:
    """Gluster puts new files on the leaving brick only until its rebalance there has ended."""
    done = world.task is not None and world.task.status is not TaskStatus.IN_PROGRESS
    world.writes(STAYING if done or LEAVING not in world.inside else LEAVING)


def one_cannot_be_moved(world: DrainedVolume) -> None:
    world.unmovable = set(sorted(world.bricks[LEAVING])[:1])


def mover_dies(world: DrainedVolume) -> None:
    if world.task is not None:
        world.task.dead = True


def admin_begins(world: DrainedVolume) -> None:
    if world.task is None and LEAVING in world.inside:
        world.start()


def admin_commits(world: DrainedVolume) -> None:
    """As older versions let them, also with files left."""
    if world.task is not None and world.task.status is TaskStatus.COMPLETED:
        admin_forces_out(world)


def admin_forces_out(world: DrainedVolume) -> None:
    if LEAVING in world.inside:
        world.forced = world.forced or bool(world.bricks[LEAVING])
        world.take_out()


def admin_brings_files_back(world: DrainedVolume) -> None:
    if LEAVING not in world.inside and world.place is PlaceSeen.BRICK:
        world.bricks[STAYING] |= world.bricks[LEAVING]
        world.bricks[LEAVING] = set()
        world.forced = False


def admin_sets_the_option(world: DrainedVolume) -> None:
    world.options[THROTTLE] = "aggressive"


DISTURBANCES: dict[str, Callable[[DrainedVolume], None]] = {
    "glusterd goes": fact("glusterd_up", value=False),
    "glusterd comes": fact("glusterd_up", value=True),
    "the host goes": fact("peer_up", value=False),
    "the host comes": fact("peer_up", value=True),
    "no room": fact("room", value=False),
    "room": fact("room", value=True),
    "the mover is lost": fact("silent", value=True),
    "the mover is found": fact("silent", value=False),
    "failures are not counted": fact("silent_failures", value=True),
    "a late write": fact("late_write", value=True),
    "files are moved": DrainedVolume.moves_files,
    "a file cannot be moved": one_cannot_be_moved,
    "the mover dies": mover_dies,
    "a user writes": user_writes,
    "begun by hand": admin_begins,
    "stopped by hand": DrainedVolume.stop,
    "committed by hand": admin_commits,
    "forced out by hand": admin_forces_out,
    "files are brought back by hand": admin_brings_files_back,
    "the option is set by hand": admin_sets_the_option,
}


@dataclass
class Disturbed(Glusterd):
    """Something happens at some looks: so many looks after the one before."""

    events: list[tuple[int, str]] | None = None
    ledger: MigrationLedger | None = None

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        while self.events and self.events[0][0] <= 0:
            DISTURBANCES[self.events.pop(0)[1]](self.volume)
        if self.events:
            self.events[0] = (self.events[0][0] - 1, self.events[0][1])
        return await super().state_and_tasks()

    async def start(self, bricks: Sequence[str]) -> str:
        """Refused if somebody has begun one or taken the brick out since the last look, never because the program has."""
        assert self.ledger is not None
        if LEAVING not in self.volume.inside:
            raise ToolFailed(f"Incorrect brick {LEAVING} for volume v")
        record, task = self.ledger.drains.latest("v", (LEAVING,)), self.volume.task
        if task is not None:
            assert record is None or task.id != record.notes.task_id
            raise ToolFailed("An earlier remove-brick task exists for volume v")
        return await super().start(bricks)

    async def stop(self, bricks: Sequence[str]) -> TaskProgress:
        """Only a drain that the ledger knows is ended."""
        assert self.ledger is not None
        record, task = self.ledger.drains.latest("v", (LEAVING,)), self.volume.task
        assert record is not None
        assert task is None or task.id in (record.notes.task_id, record.notes.task_before)
        return await super().stop(bricks)


def put_right(world: DrainedVolume) -> None:
    """As the hints say."""
    world.glusterd_up = world.peer_up = world.room = True
    world.silent = world.silent_failures = world.late_write = False
    world.unmovable = set()
    if world.task is not None:
        world.task.dead = False
    admin_brings_files_back(world)


def nothing_is_lost(site: HookedSite) -> None:
    """But what people took away; and no option is forgotten."""
    world, everything = site.volume, set(range(1, site.volume.files + 1))
    assert set().union(*world.bricks.values()) == everything
    if not world.forced:
        assert world.reachable() == everything
    if world.options.get(THROTTLE) == LAZY:
        assert any(record.notes.options is not None for record in site.ledger.drains.all())


EVENTS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(sorted(DISTURBANCES))), max_size=12)
CALLS = st.lists(st.tuples(st.integers(1, 250), st.sampled_from([False, False, True])), max_size=4)


@settings(deadline=None, max_examples=20)
@given(EVENTS, CALLS, st.sampled_from([None, NORMAL]))
@example(
    [(0, "glusterd comes"), (3, "files are moved"), (0, "files are moved"), (5, "a late write")], [(250, False)], None
)
@example(
    [
        *((number, "a file cannot be moved") for number in (2, 3, 4)),
        (1, "the option is set by hand"),
        (3, "begun by hand"),
    ],
    [(93, False), (61, False)],
    None,
)
@example([(2, "a late write"), (6, "committed by hand"), (5, "the host goes")], [(172, False)], None)
@example([(1, "a file cannot be moved"), (6, "forced out by hand")], [(2, False), (33, False), (57, False)], None)
def test_killed_and_disturbed_anywhere_nothing_is_lost_and_it_ends(
    events: list[tuple[int, str]], calls: list[tuple[int, bool]], throttle: str | None
) -> None:
    shared = Path("/dev/shm")
    with (
        TemporaryDirectory(dir=shared if shared.is_dir() else None) as directory,
        MigrationLedger.open(new_ledger(Path(directory) / "ledger.db")) as ledger,
    ):
        site = HookedSite(ledger)
        world, touched = site.volume, any(name == "the option is set by hand" for _, name in events)
        site.glusterd = Disturbed(world, events=events, ledger=ledger)
        if throttle is not None:
            world.options[THROTTLE] = throttle
        before = dict(world.options)
        for left, back in calls:
            with suppress(Killed, MigratorError):
                if back:
                    site.stop(death=Death(left=left), stall_s=600.0)
                else:
                    site.drain(death=Death(left=left), confirm=WORD, stall_s=600.0)
            nothing_is_lost(site)
        # The same command again and again, on a world that behaves.
        for _ in range(20):
            events.clear()
            put_right(world)
            if LEAVING not in world.inside and (site.state is S.STOPPED or site.state in {None, *UNTOUCHED_STATES}):
                return
            if site.state in (S.STOPPING, S.SETTLING):
                with suppress(MigratorError):
                    site.stop(stall_s=600.0)
                if site.state is S.STOPPING and world.task is not None:
                    world.stop()  # begun by hand meanwhile
            else:
                with suppress(MigratorError):
                    if site.drain(confirm=WORD, stall_s=600.0).ending is CallEnding.DONE:
                        break
                if world.task is not None and site.state in {None, S.STOPPED, *UNTOUCHED_STATES}:
                    world.stop()
        nothing_is_lost(site)
        assert (site.state, world.bricks[LEAVING], world.forced) == (S.HANDED_OVER, set(), False)
        assert world.layout_right
        assert touched or world.options == before


FORWARD = (HookStep.DRAIN, HookStep.AUDIT, HookStep.COMMIT, HookStep.WIPE, HookStep.HAND_OVER)


@pytest.mark.exhaustive
def test_killed_before_any_call_the_same_command_ends_alike(memory: Path) -> None:
    died_in: set[DrainState | None] = set()
    for site, killed in killed_everywhere(new_ledger(memory / "prepared.db"), HookedSite, drain_all, died_in):
        assert site.volume.reachable() == EVERYTHING
        if killed:
            done = site.drain(confirm=WORD)
            assert done.ending is CallEnding.DONE, done
        assert (site.state, site.locks.held) == (S.HANDED_OVER, [])
        assert site.volume.reachable() == EVERYTHING
        assert (LEAVING in site.volume.inside, site.volume.options) == (False, {})
        assert site.given
        assert sorted(site.hooks.told()) == sorted(f"post-{step.value}" for step in FORWARD)
        assert {stage for stage, _ in site.hooks.calls}.isdisjoint({"pre-stop", "post-stop", "post-fail"})
        assert site.owes_nothing()
    assert died_in >= set(S) - {S.FAILED, S.STOPPING, S.SETTLING, S.STOPPED}


@pytest.mark.exhaustive
def test_killed_before_any_call_a_stop_closes_every_pair_of_hooks(memory: Path) -> None:
    """Begun, and taken back by a call that is killed; then by one that is not."""
    prepared, died_in = new_ledger(memory / "prepared.db"), set[DrainState | None]()
    with MigrationLedger.open(prepared) as ledger:
        begun = HookedSite(ledger)
        begun.drain(commit=False)
    for site, _ in killed_everywhere(prepared, begun.again, stop, died_in):
        assert site.stop().ending is CallEnding.TAKEN_BACK
        assert (site.state, site.volume.options, site.volume.layout_right) == (S.STOPPED, {}, True)
        ends = [call for call in site.hooks.calls if call[0].startswith("post-")]
        assert list(dict.fromkeys(ends)) == [("post-stop", "done"), ("post-drain", "stopped")]
        assert site.owes_nothing()
    assert died_in >= {S.AUDITED, S.STOPPING, S.SETTLING, S.STOPPED}


@pytest.mark.exhaustive
def test_killed_before_any_call_every_failure_is_reported_once(memory: Path) -> None:
    """Gluster has more files that it cannot move than a call tries again by itself. The same command is given once more."""
    prepared, died_in = new_ledger(memory / "prepared.db"), set[DrainState | None]()
    with MigrationLedger.open(prepared) as ledger:
        begun = HookedSite(ledger)
        begun.volume.unmovable = set(range(10, 22))
        begun.volume.bricks[LEAVING] |= begun.volume.unmovable
        begun.glusterd.meanwhile = [dies]
        with suppress(Killed):
            begun.drain()
        assert begun.state is S.STARTED
    for site, _ in killed_everywhere(prepared, begun.again, drain, died_in):
        ledger = site.ledger
        told, failures = len(told_of(ledger)), given_up(ledger)
        site.hooks.called()
        assert (site.drain().ending, site.state) == (CallEnding.HALTED, S.FAILED)
        # First what a killed call owes, then what has failed again since.
        again = len(given_up(ledger)) - len(failures)
        assert site.hooks.called() == [("post-fail", "failed")] * (len(failures) - told + again)
        # Every failure was told by a call that came to its end, and by no second one.
        assert told_of(ledger) == [f"drain 1: failure at step {step}" for step in given_up(ledger)]
        assert not ledger.hooks.unfinished(HOOK_STEPS)
    assert died_in == {S.STARTED, S.DRAINING, S.DRAINED, S.FAILED}


def drain_all(site: HookedSite, death: Death) -> None:
    site.drain(death=death, confirm=WORD)


def drain(site: HookedSite, death: Death) -> None:
    site.drain(death=death)


def stop(site: HookedSite, death: Death) -> None:
    site.stop(death=death)


def dies() -> None:
    raise Killed


def given_up(ledger: MigrationLedger) -> list[int]:
    return [step.id for step in ledger.drains.steps(1) if step.step is DrainStep.GIVE_UP]


def told_of(ledger: MigrationLedger) -> list[str]:
    """The failures whose hook has ended, one entry per call."""
    keys = [f"drain 1: failure at step {step.id}" for step in ledger.drains.steps(1)]
    hooked = [(key, ledger.hooks.latest(HookStep.FAIL, key)) for key in keys]
    calls = [(key, call) for key, step in hooked if step is not None for call in ledger.hooks.of_step(step.id)]
    return [key for key, call in calls if call.outcome is HookOutcome.GO_ON]
