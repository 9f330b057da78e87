"""`brick add` over a simulated volume: the target, hooks, the throttle, what ends without a word, and the audit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.bricks.add import model as add_model
from migrator.bricks.add.add import forget_addition
from migrator.bricks.add.call import HOOK_STEPS
from migrator.bricks.add.model import AdditionState
from migrator.bricks.model import CallEnding
from migrator.bricks.status import read_bricks
from migrator.bricks.throttle import THROTTLE_OPTION
from migrator.catalog.model import CatalogRecord
from migrator.core.errors import ExitCode, LockHeld, MigratorError, Refused, ToolFailed, UsageError
from migrator.core.events import EventKind, Severity
from migrator.core.units import GIB
from migrator.gluster.model import DiskFacts, TaskStatus
from migrator.hooks.model import HookStep
from migrator.ledger.locks import VOLUME
from migrator.report.status import read_status
from tests.bricks.add.addition_site import Quick, Site, addition_site
from tests.bricks.add.grown_volume import EMPTY, NEW
from tests.support.catalogs import whole_catalog
from tests.support.fakes import VirtualClock
from tests.support.kills import DoingHooks, WaitingHooks

SOURCE, TARGET = add_model.AdditionSide
S, E = add_model.AdditionState, CallEnding


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with addition_site(tmp_path) as made:
        yield made


@pytest.fixture
def target_site(site: Site) -> Site:
    """An addition to the target."""
    site.side, site.throttle = TARGET, None
    return site


@pytest.fixture
def hooks() -> DoingHooks:
    return DoingHooks(dict.fromkeys(HOOK_STEPS, lambda: None))


@pytest.fixture
def hooked(memory: Path, hooks: DoingHooks) -> Iterator[Site]:
    with addition_site(memory) as made:
        made.hooks = hooks
        yield made


def with_room(site: Site, room_of: Callable[[int], add_model.TargetRoom]) -> None:
    """How large the target is, by the number of the look."""
    looks = iter(range(1, 1000))

    async def look() -> add_model.TargetRoom:
        return room_of(next(looks))

    site.ports["target_room"] = look


def room(total: int, targets: int | None = None) -> add_model.TargetRoom:
    return add_model.TargetRoom(total_bytes=total, storage_targets=targets)


def test_a_dry_run_lists_the_remaining_steps_of_a_brick_in_the_volume(site: Site) -> None:
    site.volume.add()
    told = site.add(dry_run=True)
    assert told.ending is E.PLANNED
    assert told.words == f"{NEW} is in the volume already: it would resume with the fix-layout, and what follows that"


def test_the_target_is_waited_for_until_it_shows_the_new_capacity(target_site: Site) -> None:
    with_room(target_site, lambda look: room(50 * GIB if look < 9 else 90 * GIB))
    assert target_site.add(dry_run=True).ending is E.PLANNED
    assert target_site.states == []
    done = target_site.add()
    assert (done.ending, done.state, done.size_bytes) == (E.DONE, S.SETTLED, 40 * GIB)
    (record,) = target_site.ledger.additions.all()
    assert record.notes.room_before == room(50 * GIB)
    steps = [one.step for one in target_site.ledger.additions.steps(record.id)]
    assert steps == [add_model.AdditionStep.PREPARE, add_model.AdditionStep.HAND_OVER, add_model.AdditionStep.FINISH]
    assert target_site.add().ending is E.DONE
    assert target_site.states == [S.SETTLED]


def test_missing_target_capacity_fails_the_addition_and_the_command_resumes(target_site: Site) -> None:
    # Bytes alone do not count where the target's own list tells.
    for total in (50, 90):
        with_room(target_site, lambda _, total=total: room(total * GIB, 3))  # type: ignore[misc]
        stuck = target_site.add()
        assert (stuck.ending, stuck.state) == (E.STUCK, S.HANDING)
        target_site.clock = VirtualClock()
    with_room(target_site, lambda _: room(50 * GIB, 4))
    assert target_site.add().ending is E.DONE
    (record,) = target_site.ledger.additions.all()
    assert record.notes.room_before == room(50 * GIB, 3)


@pytest.mark.parametrize("mounts", [True, False])
def test_hooks_mount_a_file_system_before_others_give_it_to_the_target(hooked: Site, mounts: bool) -> None:
    """`mounts`: the first hooks do what they are for."""
    mounted: set[str] = set()
    given: set[str] = set()

    def mount() -> None:
        if mounts:
            mounted.add(NEW)

    def give() -> None:
        assert mounted, "a storage target was set up on the root's file system"
        given.add(NEW)

    async def disks(names: Sequence[str]) -> Mapping[str, DiskFacts]:
        return {name: DiskFacts(name=name, mount="/srv/b" if name in mounted else "") for name in names}

    hooked.side, hooked.throttle, hooked.ports["disks"] = TARGET, None, disks
    with_room(hooked, lambda _: room(50 * GIB, 3 + len(given)))
    hooked.hooks = DoingHooks()
    without = hooked.add(dry_run=True)
    assert (without.ending, len(without.reasons)) == (E.HALTED, 1)
    hooked.hooks = hooks = DoingHooks({HookStep.ADD: mount, HookStep.ATTACH: give})
    planned = hooked.add(dry_run=True)
    assert (planned.ending, len(planned.reasons), hooks.called()) == (E.PLANNED, 1, [])
    if not mounts:
        with pytest.raises(Refused):
            hooked.add()
        assert (hooked.states, hooks.called()) == ([S.PREPARING], [("pre-add", "")])
        return
    assert hooked.add().ending is E.DONE
    assert hooks.called() == [
        ("pre-add", ""),
        ("pre-attach", ""),
        ("post-attach", "done"),
        ("post-add", "done"),
    ]


@pytest.mark.guarantee("wipe")
@pytest.mark.parametrize("step", [HookStep.ADD, HookStep.ATTACH])
def test_a_disk_is_checked_right_before_the_hook_that_makes_a_file_system_or_gives_it_away(
    hooked: Site, step: HookStep
) -> None:
    """The hook of an earlier step, or an earlier one of the same step, may have waited for days."""
    beside: list[str] = []
    given: set[str] = set()

    async def disks(names: Sequence[str]) -> Mapping[str, DiskFacts]:
        return {name: DiskFacts(name=name, mount="/srv/b", unexplained=tuple(beside)) for name in names}

    def meanwhile() -> None:
        beside.append("/srv/b/backup-of-somebody")

    hooked.side, hooked.throttle, hooked.ports["disks"] = TARGET, None, disks
    with_room(hooked, lambda _: room(50 * GIB, 3 + len(given)))
    deeds = {HookStep.ADD: lambda: None, HookStep.ATTACH: lambda: given.add(NEW)}
    hooks = WaitingHooks(deeds, meanwhile={HookStep.ADD: meanwhile} if step is HookStep.ADD else {})
    skips = DoingHooks(dict.fromkeys(deeds, lambda: None), exit_codes={"pre-attach": 62})
    hooked.hooks = hooks if step is HookStep.ADD else skips
    with pytest.raises(Refused):
        hooked.add()
    if step is HookStep.ATTACH:
        meanwhile()
        hooks.tokens_given = 100
        hooked.hooks = hooks
        with pytest.raises(Refused, match="backup-of-somebody"):
            hooked.add()
    assert (hooks.called(), given) == ([], set())
    beside.clear()
    # What a hook itself writes to the disk that it gives away does not stop the next one.
    hooks.meanwhile = {HookStep.ATTACH: meanwhile}
    assert hooked.add().ending is E.DONE
    assert given == {NEW}


def test_a_file_system_that_a_reboot_unmounted_is_mounted_again_before_it_is_given_away(hooked: Site) -> None:
    mounted: set[str] = set()
    given: set[str] = set()
    looks_after = 0

    def look(_: int) -> add_model.TargetRoom:
        # The check after the hooks knows how large the target is, and the next step does not.
        nonlocal looks_after
        looks_after += bool(mounted)
        return room(50 * GIB, 3) if looks_after < 2 else add_model.TargetRoom(total_bytes=None, storage_targets=None)

    async def disks(names: Sequence[str]) -> Mapping[str, DiskFacts]:
        return {name: DiskFacts(name=name, mount="/srv/b" if name in mounted else "") for name in names}

    hooked.side, hooked.throttle, hooked.ports["disks"] = TARGET, None, disks
    hooked.hooks = hooks = DoingHooks({HookStep.ADD: lambda: mounted.add(NEW), HookStep.ATTACH: lambda: given.add(NEW)})
    with_room(hooked, look)
    assert (hooked.add().ending, hooked.states) == (E.HALTED, [S.PREPARED])
    mounted.clear()
    assert hooks.called() == [("pre-add", "")]
    with_room(hooked, lambda _: room(50 * GIB, 3 + len(given)))
    assert hooked.add().ending is E.DONE
    assert [stage for stage, _ in hooks.called()][:2] == ["pre-add", "pre-attach"]


def test_a_place_that_is_not_right_is_refused_before_anything_is_written_or_after_the_hooks(
    hooked: Site, hooks: DoingHooks
) -> None:
    backups: list[str] = []
    hooked.volume.place = replace(EMPTY, mount="/", own=False)
    hooked.ports["back_up"] = backups.append
    hooked.hooks = DoingHooks()
    refused = hooked.add()
    assert refused.ending is E.HALTED
    assert any(NEW in reason for reason in refused.reasons)
    assert hooked.states == []
    assert hooked.ledger.runs.latest() is None
    hooked.hooks = hooks
    with pytest.raises(Refused):
        hooked.add()
    assert hooked.states == [S.PREPARING]
    assert backups == ["addition-1"]


def test_status_shows_the_progress_of_an_addition_at_any_time(site: Site) -> None:
    ledger = site.ledger
    told: list[add_model.AdditionStanding] = []
    site.glusterd = Quick(site.volume, ledger, site.clock)
    site.glusterd.during = lambda: told.extend(read_bricks(ledger).additions)
    assert site.add().ending is E.DONE
    assert {one.files for one in told if one.state is S.LAYOUT} == {None}
    assert {(one.files, one.size_bytes) for one in told if one.state is S.BALANCING} == {(9, 40 * GIB)}
    (settled,) = read_bricks(ledger).additions
    assert (settled.state, settled.moved_files, settled.lookups, settled.left_s) == (S.SETTLED, 2, 1, None)
    status = read_status(ledger, now_s=10.0)
    assert status.additions == (settled,)
    assert not any("addition" in one.subject for one in status.blocked)


def test_a_name_that_is_no_brick_is_refused(site: Site) -> None:
    with pytest.raises(UsageError, match="gl2:/srv/b2/"):
        site.add(bricks=("gl2:/srv/b2/",))
    assert site.states == []


WAY_OUT = "`gluster volume rebalance vol1 stop`"


def test_a_stalled_rebalance_fails_and_resumes_after_the_stop_in_the_hint(site: Site) -> None:
    site.glusterd.dead_for = 10_000
    began_s = site.clock.now_s()
    done = site.add()
    assert (done.ending, site.states) == (CallEnding.HALTED, [AdditionState.FAILED])
    assert "on localhost " in done.words
    assert WAY_OUT in done.words
    assert site.clock.now_s() - began_s < 3600.0
    # Whether it is so, people see; the same command alone begins nothing beside it.
    again = site.add()
    assert (again.ending, site.states) == (CallEnding.HALTED, [AdditionState.FAILED])
    assert WAY_OUT in again.reasons[0]
    assert site.volume.task is not None
    site.volume.task.status, site.glusterd.dead_for = TaskStatus.STOPPED, 0
    assert site.add().ending is CallEnding.DONE
    assert site.volume.even


@pytest.mark.parametrize(
    ("latency_s_at", "max_latency_s", "values"),
    [
        (lambda _: 0.2, 0.05, ["aggressive", "normal", "lazy"]),
        (lambda look: 0.2 if look < 5 else 0.01, 0.05, ["aggressive", "normal", "aggressive"]),
        (lambda _: 9.0, None, ["aggressive"]),
    ],
)
def test_it_gives_way_while_files_are_moved_and_is_put_back_at_the_end(
    site: Site, latency_s_at: Callable[[int], float], max_latency_s: float | None, values: list[str]
) -> None:
    site.glusterd.latency_s_at, site.max_latency_s = latency_s_at, max_latency_s
    site.glusterd.options[THROTTLE_OPTION] = "normal"
    assert site.add().ending is CallEnding.DONE
    assert site.glusterd.history == [*values, "normal"]
    assert site.glusterd.options == {THROTTLE_OPTION: "normal"}
    (record,) = site.ledger.additions.all()
    assert record.notes.options == ()
    assert site.volume.even
    said = [one.message for one in site.ledger.events.latest(100) if one.kind is EventKind.THROTTLE_SET][::-1]
    assert [words.partition(" now")[0] for words in said] == [f"{THROTTLE_OPTION} is {value}" for value in values]


def test_options_that_could_not_be_restored_are_by_the_next_call(site: Site) -> None:
    site.glusterd.breaks = True
    site.add()
    assert (site.states, site.glusterd.options) == ([AdditionState.FAILED], {})
    set_option = site.glusterd.set_option

    async def only_set(name: str, value: str | None) -> None:
        if value is None:
            raise ToolFailed("glusterd does not answer")
        await set_option(name, value)

    site.glusterd.set_option = only_set
    site.add()
    assert site.states == [AdditionState.FAILED]
    assert THROTTLE_OPTION in site.glusterd.options
    site.glusterd.set_option = set_option
    site.glusterd.history.clear()
    site.glusterd.breaks = False
    assert site.add().ending is CallEnding.DONE
    assert site.glusterd.history[0] is None
    assert site.glusterd.options == {}


class Scans:
    """Scans of all bricks, and what each comes to: reasons why it is not whole, or why it cannot be made."""

    def __init__(self, *found: Sequence[str] | MigratorError) -> None:
        self.found = list(found)
        self.made = 0

    async def __call__(self) -> CatalogRecord:
        self.made += 1
        found = self.found.pop(0) if len(self.found) > 1 else self.found[0]
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
def test_bricks_are_audited_after_a_rebalance_and_doubts_need_an_admin(
    site: Site, found: list[list[str] | MigratorError], doubts: tuple[str, ...]
) -> None:
    scans = Scans(*found)
    site.ports["scan"] = scans
    done = site.add()
    assert (done.ending, done.reasons) == (CallEnding.DOUBTED if doubts else CallEnding.DONE, doubts)
    assert done.exit_code is (ExitCode.ATTENTION if doubts else ExitCode.DONE)
    assert scans.made == len(found)
    assert site.states == [AdditionState.SETTLED]
    warned = [one.message for one in site.ledger.events.latest(100) if one.kind is EventKind.ADDITION_FAILED]
    assert warned == [f"audit: {doubt}" for doubt in doubts]
    # Given again nothing is left to do, and nothing is read, unless there were doubts: they last until an audit clears them.
    for ending in (done.ending, CallEnding.DONE):
        assert site.add().ending is ending
        scans.found = [[]]
    assert scans.made == len(found) + (len([TWICE, TWICE, ""]) if doubts else 0)


@pytest.mark.guarantee("moved-acl")
def test_files_are_shielded_until_the_rebalance_has_ended_and_not_while_the_bricks_are_read(site: Site) -> None:
    async def scan() -> CatalogRecord:
        assert not site.volume.shielded
        return whole_catalog()

    site.ports["scan"] = scan
    # Nothing is moved any more, so users may be, while the addition waits for an admin.
    site.glusterd.cannot_balance = 11
    assert (site.add().ending, site.states) == (E.HALTED, [S.FAILED])
    assert (site.volume.tasks_made, site.volume.shielded) == (2, False)
    site.glusterd.cannot_balance, site.glusterd.dead_for = 0, 10_000
    assert (site.add().ending, site.states) == (E.HALTED, [S.FAILED])
    # What stands still may move again, until an admin stops it.
    assert site.volume.task is not None
    assert (site.volume.moving, site.volume.shielded) == (True, True)
    site.volume.task.status, site.glusterd.dead_for = TaskStatus.STOPPED, 0
    assert site.add().ending is E.DONE
    assert not site.volume.shielded


def test_no_rebalance_begins_while_others_work_in_the_volume(site: Site) -> None:
    run, fix_layout = ExitStack(), site.glusterd.fix_layout

    async def beside_a_run() -> str:
        run.enter_context(site.locks.hold("a run", shared=(VOLUME,)))
        task_id: str = await fix_layout()
        return task_id

    site.glusterd.fix_layout = beside_a_run
    with pytest.raises(LockHeld, match="a run"):
        site.add()
    assert not site.volume.shielded
    run.close()
    assert site.add().ending is E.DONE
    assert site.locks.held == []


def test_a_volume_unreadable_for_long_halts_the_drain(site: Site) -> None:
    scans = Scans(Refused("2 entries wait to be healed"))
    site.ports["scan"] = scans
    done = site.add()
    assert done.ending is CallEnding.DOUBTED
    assert done.reasons == ("the bricks could not be read after the rebalance: 2 entries wait to be healed",)
    # A look a minute, for a quarter of an hour; in between, whatever that comes to, the daemons that heal are asked to.
    assert scans.made == 16
    assert site.glusterd.heals_asked == 14
    # That it waits, and why, is reported before it gives up.
    seen = [(one.kind, one.severity) for one in site.ledger.events.latest(100) if "2 entries" in one.message]
    assert seen[-1] == (EventKind.ADDITION_STEP, Severity.INFO)
    # The same entries have the same end.
    assert (site.add().exit_code, scans.made) == (ExitCode.ATTENTION, 32)


def test_a_failed_rebalance_is_reported_once_and_stops_nothing(hooked: Site, hooks: DoingHooks) -> None:
    hooked.glusterd.breaks, hooks.exit_codes = True, {"post-fail": 1}
    assert hooked.add().ending is CallEnding.HALTED
    assert hooked.states == [AdditionState.FAILED]
    assert hooks.called() == [("pre-add", ""), ("post-fail", "failed")]
    ((stage, failed, reason),) = hooks.reasons
    assert (stage, failed) == ("post-fail", "add")
    assert reason
    hooked.glusterd.breaks = False
    assert hooked.add().ending is CallEnding.DONE
    assert hooks.called() == [("post-add", "done")]
    assert hooked.add().ending is CallEnding.DONE
    assert hooks.called() == []
    assert not hooked.ledger.hooks.unfinished(HOOK_STEPS)


def forget(site: Site, *, accept_hooks: bool = False) -> AdditionState:
    return forget_addition([NEW], site.side, site.ledger, accept_hooks=accept_hooks, at_s=site.clock.now_s()).state


def test_an_addition_that_was_a_mistake_is_forgotten_while_it_has_changed_nothing(
    hooked: Site, hooks: DoingHooks
) -> None:
    with pytest.raises(UsageError):
        forget(hooked)
    hooks.exit_codes = {"pre-add": 1}
    with pytest.raises(Refused):
        hooked.add()
    assert hooked.states == [AdditionState.PREPARING]
    with pytest.raises(Refused):
        forget(hooked)
    assert hooked.states == [AdditionState.PREPARING]
    for _ in range(2):
        assert forget(hooked, accept_hooks=True) is AdditionState.FORGOTTEN
    assert not hooked.ledger.additions.under_way()
    hooks.exit_codes = {}
    assert hooked.add().ending is CallEnding.DONE
    assert hooked.states == [AdditionState.FORGOTTEN, AdditionState.SETTLED]
    with pytest.raises(Refused):
        forget(hooked, accept_hooks=True)
    assert hooked.states == [AdditionState.FORGOTTEN, AdditionState.SETTLED]
