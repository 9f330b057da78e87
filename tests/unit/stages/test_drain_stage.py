"""Drains driven over a simulated volume: killed at every call, refused, taken back, throttled."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.adapters.ledger.sqlite import SqliteLedger, open_ledger
from migrator.adapters.plans.documents import PlanFiles
from migrator.domain.addition import AdditionNotes, AdditionSide
from migrator.domain.brick import BrickHeal, VolumeState
from migrator.domain.cutover import CutoverNotes, CutoverState, CutoverStep
from migrator.domain.cutover_seen import Act as CutoverAct
from migrator.domain.drain import ChangedOption
from migrator.domain.drain_preflight import BrickMarks, TreeOnBricks
from migrator.domain.drain_run import DrainEnding
from migrator.domain.errors import ExitCode, LockHeld, Refused, ToolFailed, UsageError
from migrator.domain.events import EventKind
from migrator.domain.probe import Probe, ProbeSide
from migrator.domain.recovery import RecoverySummary
from migrator.domain.schedule import BatchStep, OrderSchedule, Outcome, Schedule, ScheduleOrder, SubvolumeStep
from migrator.domain.tree import UserTree
from migrator.domain.units import GIB
from migrator.domain.volume_tasks import TaskStatus, VolumeTask
from migrator.domain.windows import Window
from migrator.ports.site import SiteRecord
from migrator.stages.brick_standings import read_bricks
from migrator.stages.bricks import drain_acting
from tests.catalogs import whole_catalog
from tests.contracts.plans import small_plan
from tests.deaths import Death, Killed
from tests.drain_site import IDENTITY, REQUEST, VOLUME_ID, S, Site
from tests.fakes import VirtualClock
from tests.unit.decide.drain_world import LAZY, LEAVING, NORMAL, STAYING, THROTTLE

ALICE, BOB = (UserTree(path=f"home/{user}".encode(), user=user) for user in ("alice", "bob"))
TO_THE_TARGET = (
    (CutoverStep.FREEZE, CutoverState.FREEZING, CutoverState.FROZEN),
    (CutoverStep.FINAL_PASS, CutoverState.FINAL_PASS, CutoverState.FINAL_PASS),
    (CutoverStep.VERIFY, CutoverState.VERIFYING, CutoverState.VERIFIED),
    (CutoverStep.SWITCH, CutoverState.SWITCHING, CutoverState.SWITCHED),
    (CutoverStep.THAW, CutoverState.THAWING, CutoverState.THAWED),
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_ledger(tmp_path / "ledger.db", create=True) as ledger:
        ledger.site.create(
            SiteRecord(
                site_id="site-0001",
                name="test",
                created_at_s=1.0,
                source=IDENTITY,
                target=IDENTITY,
                capabilities=None,
                capabilities_probed_at_s=None,
            )
        )
        scan = ledger.scans.start(catalog="c1", via="bricks", at_s=1.0)
        ledger.scans.finish(
            whole_catalog(
                scan_id=scan, site_id="site-0001", trees=(UserTree(path=b"home/a", user="a"),), rows=5, files=5
            )
        )
        yield Site(ledger)


def test_bricks_are_drained_and_everything_is_put_back(site: Site) -> None:
    site.volume.options[THROTTLE] = NORMAL
    done = site.drain()
    assert (done.ending, site.state) == (DrainEnding.DONE, S.COMMITTED)
    assert LEAVING not in site.volume.inside
    assert site.volume.reachable() == set(range(1, 10))
    assert site.volume.options == {THROTTLE: NORMAL}
    assert site.backups == ["drain-1-commit"]
    assert site.locks.held == set()
    (standing,) = read_bricks(site.ledger).drains
    assert (standing.files, standing.moved_files, standing.left_files) == (5, 5, 0)
    assert site.progress.snapshots
    assert site.drain().ending is DrainEnding.DONE


def test_what_the_plan_has_purged_first_is_not_moved_for_nothing(site: Site, tmp_path: Path) -> None:
    site.plans = PlanFiles(tmp_path / "plans", site_id="site-0001")
    plan = replace(small_plan(trees=(ALICE, BOB)), site_id="site-0001", schedule=schedule_of(LEAVING))
    path, checksum = site.plans.write(plan)
    site.ledger.plans.record(plan, path=path, checksum=checksum)
    site.trees = tuple(TreeOnBricks(tree=tree.path, files=2, size_bytes=GIB) for tree in (ALICE, BOB))
    # Nobody works on the target yet: whatever lies there is moved because it has to be.
    assert site.drain(dry_run=True).ending is DrainEnding.PLANNED
    for tree, batch in ((ALICE, 1), (BOB, 2)):
        cut_over(site.ledger, tree, batch)
    (reason,) = (refused := site.drain()).reasons
    assert (refused.ending, site.state) == (DrainEnding.HALTED, None)
    assert "2 files (1.0 GiB) of 1 user" in reason
    assert "`migrator purge --plan plan --user alice --dry-run`" in reason
    assert refused.check is not None
    assert [(one.user, one.purge_planned_first) for one in refused.check.retained or ()] == [
        ("alice", True),
        ("bob", False),
    ]
    Path(path).write_text("{}")
    (reason,) = site.drain().reasons
    assert "is not known" in reason
    assert site.drain(accept_retained=True).ending is DrainEnding.DONE


def schedule_of(brick: str) -> Schedule:
    """Alice is purged before the brick is drained, and bob after it."""
    steps = tuple(
        BatchStep(batch=number, begins_day=0.0, moved_day=0.0, freed_day=day, waited_days=0.0)
        for number, day in ((1, 5.0), (2, 50.0))
    )
    drained = SubvolumeStep(subvolume=1, bricks=(brick,), drain_begins_day=5.0, cleared_day=9.0, moved_bytes=1)
    outcome = Outcome(done_day=60.0, obstacle=None, batches=steps, subvolumes=(drained,), hosts=())
    return Schedule(problem=None, orders=(OrderSchedule(order=ScheduleOrder.PLANNED, outcome=outcome),))


def cut_over(ledger: SqliteLedger, tree: UserTree, batch: int) -> None:
    """He works on the target."""
    record = ledger.cutovers.plan(plan="plan", batch=batch, tree=tree, predicted_freeze_s=None, at_s=1.0)
    notes = CutoverNotes(frozen_top="{}", frozen_target_top="{}")
    for step, intent, result in TO_THE_TARGET:
        made = ledger.cutovers.intend(
            record.id, CutoverAct(step=step, intent=intent, result=result), at_s=2.0, notes=notes
        )
        ledger.cutovers.finish(made, result, at_s=3.0)


def test_it_goes_on_after_a_kill_at_every_call(site: Site) -> None:
    """Each call has one more kill than the one before: until the whole way was gone without one."""
    site.volume.options[THROTTLE] = NORMAL
    calls = 0
    while True:
        calls += 1
        death = Death(left=calls)
        try:
            done = site.drain(death=death)
        except Killed:
            assert site.volume.reachable() == set(range(1, 10))
        else:
            break
    assert calls > 10
    assert done.ending is DrainEnding.DONE
    assert site.volume.options == {THROTTLE: NORMAL}
    assert LEAVING not in site.volume.inside


@pytest.mark.parametrize("calls", range(1, 45))
def test_a_drain_that_was_killed_anywhere_is_taken_back_also_with_a_kill_in_that(site: Site, calls: int) -> None:
    with pytest.raises(Killed):
        # Begun, and killed while it is watched.
        site.drain(death=Death(left=28))
    assert site.came_to(S.STARTED, S.DRAINING, S.STARTING)
    with suppress(Killed):
        site.stop(death=Death(left=calls))
    if not site.came_to(S.STOPPED) or site.volume.options:
        assert site.stop().ending is DrainEnding.TAKEN_BACK
    assert site.volume.task is None
    assert site.volume.layout_right
    assert site.volume.options == {}
    assert site.volume.reachable() == set(range(1, 10))


def test_what_was_taken_back_already_is_told_and_nothing_is_done(site: Site) -> None:
    site.drain(commit=False)
    assert site.stop().ending is DrainEnding.TAKEN_BACK
    before = site.ledger.runs.latest()
    again = site.stop()
    assert (again.ending, again.exit_code) == (DrainEnding.TAKEN_BACK, ExitCode.DONE)
    assert again.words.startswith("there is nothing to take back")
    assert site.ledger.runs.latest() == before


def test_marks_are_asked_for_before_a_drain_and_not_once_it_has_set_some_itself(site: Site) -> None:
    site.marks = (BrickMarks(brick=LEAVING, files=1, examples=(b"home/a",)),)
    refused = site.drain()
    assert refused.ending is DrainEnding.HALTED
    assert "the mark of an earlier drain" in refused.reasons[0]
    assert site.volume.task is None
    site.marks = ()
    site.volume.unmovable = {5}
    assert site.drain().ending is not DrainEnding.DONE
    site.marks, site.volume.unmovable = (BrickMarks(brick=LEAVING, files=1, examples=(b"home/a",)),), set()
    assert site.drain().ending is DrainEnding.DONE


def test_an_option_that_a_killed_drain_has_left_is_put_back_by_the_next_one(site: Site) -> None:
    site.volume.options[THROTTLE] = NORMAL
    site.drain(commit=False)
    site.glusterd.dies_of = NORMAL
    with pytest.raises(Killed):
        site.stop()
    site.glusterd.dies_of = None
    assert (site.state, site.volume.options) == (S.STOPPED, {THROTTLE: LAZY})
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.options == {THROTTLE: NORMAL}
    # What somebody sets afterwards is his.
    site.volume.options[THROTTLE] = LAZY
    with suppress(UsageError):
        site.stop()
    assert site.volume.options == {THROTTLE: LAZY}


def test_it_gives_way_to_users_and_what_it_was_killed_with_is_put_back(site: Site) -> None:
    site.throttle, site.max_latency_s = "aggressive", 0.05
    now_s = VirtualClock().now_s()
    for minute in range(6):
        site.ledger.probes.add(Probe(side=ProbeSide.SOURCE, at_s=now_s - 360.0 + 60.0 * minute, waited_s=1.0))
    with pytest.raises(Killed):
        site.drain(death=Death(left=4))
    site.drain(commit=False)
    assert site.volume.options == {THROTTLE: LAZY}
    said = [one.message for one in site.ledger.events.latest(100) if one.kind is EventKind.THROTTLE_SET]
    assert "small operations on the source take longer than 50 ms (of late 1,000 ms)" in said[0]
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.options == {}


def test_what_an_addition_has_left_changed_is_not_taken_for_what_was_there_before(site: Site) -> None:
    additions = site.ledger.additions
    record = additions.plan(
        side=AdditionSide.SOURCE, volume="vol1", volume_id=VOLUME_ID, bricks=["gl9:/b"], instead_of=None, at_s=1.0
    )
    option = ChangedOption(name=THROTTLE, before=NORMAL, given=("aggressive",))
    additions.note(record.id, AdditionNotes(options=(option,)))
    site.volume.options[THROTTLE] = "aggressive"
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.options == {THROTTLE: NORMAL}


def test_files_that_could_not_be_moved_stop_the_commit_until_they_are(site: Site) -> None:
    site.volume.unmovable = {5}
    done = site.drain()
    assert (done.ending, int(done.exit_code), site.state) == (DrainEnding.HALTED, 4, S.FAILED)
    assert "failures" in done.words
    assert LEAVING in site.volume.inside
    assert site.volume.options == {}
    site.volume.unmovable = set()
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.reachable() == set(range(1, 10))


@pytest.mark.parametrize("raced", [1, 3])
def test_a_file_that_a_user_renamed_under_gluster_does_not_wait_for_people(site: Site, raced: int) -> None:
    site.volume.raced = raced
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.reachable() == set(range(1, 10))
    assert site.volume.options == {}


def test_a_drain_is_not_begun_anew_for_ever(site: Site) -> None:
    site.volume.raced = 4
    assert (site.drain().ending, site.state) == (DrainEnding.HALTED, S.FAILED)
    assert site.drain().ending is DrainEnding.DONE


def test_a_drain_that_ran_out_of_room_says_so_and_waits(site: Site) -> None:
    site.volume.raced, site.volume.fills = 1, True
    done = site.drain()
    assert (done.ending, site.state) == (DrainEnding.HALTED, S.FAILED)
    assert "1 file could not be moved" in done.words
    assert "beyond cluster.min-free-disk" in done.words
    task_id = site.volume.task.id if site.volume.task else None
    assert (site.drain().ending, site.state) == (DrainEnding.HALTED, S.FAILED)
    assert site.volume.task is not None
    assert site.volume.task.id == task_id
    site.volume.room, site.volume.fills = True, False
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.reachable() == set(range(1, 10))


def test_what_the_audit_finds_stops_the_commit_whatever_gluster_says(site: Site) -> None:
    site.volume.unmovable, site.volume.silent_failures = {5}, True
    done = site.drain()
    assert (done.ending, site.state, done.left_behind) == (DrainEnding.HALTED, S.FAILED, (b"left",))
    assert site.backups == []


def test_what_comes_to_the_brick_before_the_commit_is_seen_no_more(site: Site) -> None:
    """The guard is the last audit: a write after it is Gluster's own business, which sends new files elsewhere."""
    states: list[bool] = []
    site.glusterd.before_commit = lambda: states.append("run" in site.locks.held)
    assert site.drain().ending is DrainEnding.DONE
    assert states == [True]


@pytest.mark.parametrize("written", [False, True])
def test_an_original_that_was_written_to_after_its_proof_stops_the_commit(
    site: Site, written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.volume.unmovable, site.volume.silent_failures = {5}, True

    class Proof:
        """What is left is in the volume with the same content, until the backup is made."""

        async def proven(self) -> Mapping[str, frozenset[bytes]]:
            return {LEAVING: frozenset() if written and site.backups else frozenset({b"left"})}

    monkeypatch.setattr(drain_acting, "recovery_of", lambda *_: Proof())
    committed: list[bool] = []

    def commits() -> None:
        committed.append(True)
        # For the simulated volume: it knows of no second copy.
        site.volume.bricks[LEAVING].clear()

    site.glusterd.before_commit = commits
    if written:
        with pytest.raises(Refused, match="left on the bricks"):
            site.drain()
        assert LEAVING in site.volume.inside
    else:
        site.drain()
    assert committed == ([] if written else [True])


def test_nothing_is_brought_back_while_a_copy_is_old_or_a_brick_is_not_seen(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.volume.unmovable, site.volume.silent_failures = {5}, True
    asked: list[str] = []
    healthy = site.glusterd.state_and_tasks

    async def unhealed() -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        state, tasks = await healthy()
        return replace(state, heals=(BrickHeal(brick=LEAVING, status="Connected", entries=3),)), tasks

    class Recovering:
        async def proven(self) -> Mapping[str, frozenset[bytes]]:
            # From now on: nothing spoke against the beginning.
            monkeypatch.setattr(site.glusterd, "state_and_tasks", unhealed)
            return {}

        async def bring_back(self) -> RecoverySummary:
            asked.append("bring back")
            return RecoverySummary(recovered=0, names=0, problems=())

    monkeypatch.setattr(drain_acting, "recovery_of", lambda *_: Recovering())
    done = site.drain(recover=True)
    assert "wait to be healed" in done.words
    assert (asked, LEAVING in site.volume.inside) == ([], True)


def test_what_a_recovery_left_alone_is_for_people_and_not_for_gluster_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.volume.unmovable = {5}

    class Recovering:
        async def proven(self) -> Mapping[str, frozenset[bytes]]:
            return {}

        async def bring_back(self) -> RecoverySummary:
            return RecoverySummary(recovered=0, names=0, problems=("home/a: it waits to be healed",))

    monkeypatch.setattr(drain_acting, "recovery_of", lambda *_: Recovering())
    done = site.drain(recover=True)
    assert (done.ending, site.state) == (DrainEnding.HALTED, S.FAILED)
    begun = [one for one in site.ledger.events.latest(100) if one.message.startswith("start: task")]
    # Once at first, and once more after the recovery, as Gluster's counters stay with the task.
    assert len(begun) == 2


def test_without_a_commit_it_waits_and_the_lock_of_passes_is_free(site: Site) -> None:
    site.locks.held.add("run")
    with pytest.raises(LockHeld):
        site.drain(commit=False)
    assert site.volume.task is None
    site.locks.held.discard("run")
    done = site.drain(commit=False)
    assert (done.ending, site.state) == (DrainEnding.WAITS, S.AUDITED)
    assert LEAVING in site.volume.inside
    assert site.locks.held == set()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("version", "11.0", "11.0"),
        ("version", None, "not known"),
        ("open_files", 3, "3 files are open"),
        ("open_files", None, "how many files are open"),
    ],
)
def test_a_guard_stops_it_before_anything_is_written_down(site: Site, name: str, value: object, words: str) -> None:
    setattr(site, name, value)
    done = site.drain()
    assert (done.ending, int(done.exit_code), site.state) == (DrainEnding.HALTED, 4, None)
    assert any(words in reason for reason in done.reasons), done.reasons
    assert (site.volume.task, site.volume.options) == (None, {})
    if name == "open_files":
        assert site.drain(accept_open_files=True).ending is DrainEnding.DONE


def test_no_room_stops_it(site: Site) -> None:
    site.volume.room = False
    done = site.drain()
    assert any(f"{STAYING} has 0 B beyond cluster.min-free-disk" in reason for reason in done.reasons), done.reasons


def test_a_dry_run_changes_nothing_and_says_the_word(site: Site) -> None:
    done = site.drain(dry_run=True)
    assert (done.ending, site.state, site.volume.task) == (DrainEnding.PLANNED, None, None)
    assert done.check is not None
    assert (done.check.problems, done.check.linked_symlinks, done.check.catalog) == ((), (), "c1")
    assert done.confirm is not None
    with pytest.raises(Refused, match="word to confirm"):
        site.drain(confirm="other")
    assert site.drain(confirm=done.confirm).ending is DrainEnding.DONE


def test_unknown_bricks_and_drains_are_told(site: Site) -> None:
    with pytest.raises(UsageError, match="has no brick gl9:/x"):
        site.drain(bricks=("gl9:/x",))
    with pytest.raises(UsageError, match="no drain of"):
        site.stop()


@pytest.mark.parametrize(("minute", "value"), [(19 * 60, "aggressive"), (12 * 60, LAZY)])
def test_the_throttle_holds_in_its_windows_and_is_lazy_outside(site: Site, minute: int, value: str) -> None:
    site.throttle, site.minute = "aggressive", minute
    site.windows = (Window(days=(0,), start_minute=18 * 60, end_minute=6 * 60),)
    site.drain(commit=False)
    assert site.volume.options == {THROTTLE: value}
    assert site.stop().ending is DrainEnding.TAKEN_BACK
    assert site.volume.options == {}


def test_glusterd_that_is_away_for_a_while_is_waited_for(site: Site) -> None:
    with pytest.raises(Killed):
        site.drain(death=Death(left=28))
    site.volume.glusterd_up = False
    with pytest.raises(ToolFailed):
        site.drain()
    site.volume.glusterd_up = True
    assert site.drain().ending is DrainEnding.DONE


def nothing() -> None:
    """A look without anything new."""


def messages(site: Site, kind: EventKind) -> list[str]:
    return [one.message for one in site.ledger.events.latest(200) if one.kind is kind]


def loses_its_mover(site: Site, *, looks: int) -> None:
    """The host reboots, and its glusterd takes another process for the one that moves files, until somebody helps."""

    def lost(is_lost: bool) -> Callable[[], None]:
        return lambda: setattr(site.volume, "silent", is_lost)

    site.glusterd.meanwhile = [lost(True), *[nothing] * looks, lost(False)]


def test_a_host_that_is_up_and_silent_is_waited_for_and_what_helps_is_told_while_it_is(site: Site) -> None:
    loses_its_mover(site, looks=60)
    assert site.drain().ending is DrainEnding.DONE
    told = messages(site, EventKind.DRAIN_DOUBTED)
    assert len(told) == 2
    assert any(one.endswith("although every host and brick is up; that is waited for") for one in told)
    assert any("on gl3, where `pgrep -f [r]ebalance/vol1` finds none, run `rm -f" in one for one in told)
    assert site.volume.reachable() == set(range(1, 10))


def test_a_host_that_is_silent_for_long_fails_the_drain_and_the_same_command_goes_on_with_it(site: Site) -> None:
    loses_its_mover(site, looks=10_000)
    done = site.drain(stall_s=600.0)
    assert (done.ending, int(done.exit_code), site.state) == (DrainEnding.HALTED, 4, S.FAILED)
    assert "no counters of the drain are told by gl3 for 10 min" in done.words
    assert "systemctl restart glusterd" in done.words
    assert (LEAVING in site.volume.inside, site.volume.options) == (True, {})
    # It is not ended either: that is refused as well.
    taken = site.stop()
    assert (taken.ending, site.state) == (DrainEnding.STUCK, S.STOPPING)
    assert "systemctl restart glusterd" in taken.hint
    assert "Brick ops failed" in taken.words
    site.glusterd.meanwhile, site.volume.silent = [], False
    assert site.stop().ending is DrainEnding.TAKEN_BACK


def test_a_silent_host_that_was_helped_between_two_calls_goes_on_with_the_same_task(site: Site) -> None:
    loses_its_mover(site, looks=10_000)
    assert site.drain(stall_s=600.0).ending is DrainEnding.HALTED
    task = site.volume.task
    site.glusterd.meanwhile = [*[nothing] * 30, lambda: setattr(site.volume, "silent", False)]
    assert site.drain(commit=False).ending is DrainEnding.WAITS
    assert site.volume.task is task


def reboots(site: Site, *, looks: int) -> None:
    """The host goes and comes again, its brick after some looks more, and Gluster breaks off for want of it."""

    def goes() -> None:
        site.volume.peer_up = False

    def comes() -> None:
        assert site.volume.task is not None
        site.volume.peer_up, site.volume.brick_up = True, False
        site.volume.task.status = TaskStatus.FAILED

    def is_up() -> None:
        site.volume.brick_up = True

    site.glusterd.meanwhile = [nothing, goes, nothing, nothing, comes, *[nothing] * looks, is_up]


def test_bricks_that_come_up_after_their_host_are_waited_for_where_the_drain_was_just_begun(site: Site) -> None:
    def goes() -> None:
        site.volume.peer_up = False

    def comes() -> None:
        site.volume.peer_up, site.volume.brick_up = True, False

    def is_up() -> None:
        site.volume.brick_up = True

    site.glusterd.meanwhile = [goes, nothing, comes, *[nothing] * 40, is_up]
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.tasks_made == 1


def test_what_breaks_off_by_a_reboot_begins_anew_by_itself_when_the_brick_is_up(site: Site) -> None:
    reboots(site, looks=20)
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.tasks_made == 2
    assert site.volume.reachable() == set(range(1, 10))
    assert site.volume.options == {}


def test_what_breaks_off_by_a_reboot_waits_for_people_where_the_brick_stays_down(site: Site) -> None:
    reboots(site, looks=10_000)
    done = site.drain()
    assert (done.ending, int(done.exit_code), site.state) == (DrainEnding.HALTED, 4, S.FAILED)
    assert f"brick {LEAVING} is down" in done.words
    site.glusterd.meanwhile, site.volume.brick_up = [], True
    assert site.drain().ending is DrainEnding.DONE


def test_what_breaks_off_again_and_again_is_not_begun_anew_for_ever(site: Site) -> None:
    def breaks_off() -> None:
        if site.volume.task is not None:
            site.volume.task.status = TaskStatus.FAILED

    site.glusterd.meanwhile = [breaks_off] * 10_000
    assert (site.drain().ending, site.state) == (DrainEnding.HALTED, S.FAILED)
    assert site.volume.tasks_made == 4
    assert LEAVING in site.volume.inside


def test_a_drain_that_nobody_watched_for_long_does_not_stand_still_for_that(site: Site) -> None:
    def dies() -> None:
        raise Killed

    site.volume.bricks[LEAVING] |= set(range(10, 40))
    site.volume.files = 39
    site.glusterd.meanwhile = [nothing, nothing, dies]
    with pytest.raises(Killed):
        site.drain()
    task, sample = site.volume.task, site.ledger.drains.samples(1)[-1]
    assert (site.state, sample.status) == (S.DRAINING, TaskStatus.IN_PROGRESS)
    site.begins_at_s += 10 * REQUEST.stall_s
    assert site.drain(commit=False).ending is DrainEnding.WAITS
    assert site.volume.task is task
