"""Drains over a simulated volume: the way out and back, guards, options, failures, and what is left."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from migrator.app.ledger import MigrationLedger
from migrator.bricks.add.model import AdditionNotes
from migrator.bricks.model import CallEnding
from migrator.bricks.status import read_bricks
from migrator.catalog.model import TreeOnBricks
from migrator.core.entry import UserTree
from migrator.core.errors import LockHeld, Refused, UsageError
from migrator.core.events import Event, EventKind
from migrator.core.units import GIB
from migrator.core.windows import Window
from migrator.gluster.model import BrickMarks, ChangedOption, TaskStatus
from migrator.ledger.locks import VOLUME, of_brick
from tests.bricks.drain.drain_site import REQUEST, VOLUME_ID, S, Site
from tests.bricks.drain.drained_volume import LAZY, LEAVING, NORMAL, THROTTLE
from tests.support.fakes import FakeProgress
from tests.support.kills import Killed, new_ledger
from tests.support.operations import THERE, do, plan_addition, plan_cutover


@pytest.fixture
def site(memory: Path) -> Iterator[Site]:
    with MigrationLedger.open(new_ledger(memory / "ledger.db")) as ledger:
        yield Site(ledger)


def test_bricks_are_drained_and_everything_is_put_back(site: Site) -> None:
    site.volume.options[THROTTLE] = NORMAL
    done = site.drain()
    assert (done.ending, site.state) == (CallEnding.DONE, S.COMMITTED)
    assert LEAVING not in site.volume.inside
    assert site.volume.reachable() == set(range(1, 10))
    assert site.volume.options == {THROTTLE: NORMAL}
    assert site.backups == ["drain-1-commit"]
    assert site.locks.held == []
    (standing,) = read_bricks(site.ledger).drains
    assert (standing.files, standing.moved_files, standing.left_files) == (5, 5, 0)
    assert site.progress.snapshots
    assert site.drain().ending is CallEnding.DONE


def test_without_a_commit_it_waits_and_the_lock_of_passes_is_free(site: Site) -> None:
    with site.locks.hold("a run", shared=(VOLUME,)), pytest.raises(LockHeld):
        site.drain(commit=False)
    assert site.volume.task is None
    done = site.drain(commit=False)
    assert (done.ending, site.state) == (CallEnding.WAITS, S.AUDITED)
    assert LEAVING in site.volume.inside
    assert site.locks.held == []


def test_a_commit_waits_for_streams_that_read_its_brick_and_for_nothing_else(site: Site) -> None:
    site.drain(commit=False)
    stream = ExitStack()
    stream.enter_context(site.locks.hold("a stream", shared=(of_brick(LEAVING),)))

    class UntilItWaits(FakeProgress):
        def event(self, event: Event) -> None:
            super().event(event)
            if event.kind is EventKind.DRAIN_DOUBTED:
                assert LEAVING in site.volume.inside
                stream.close()

    site.progress = UntilItWaits()
    with site.locks.hold("a run", shared=(VOLUME,)):
        assert site.drain().ending is CallEnding.DONE
    assert any("(a stream)" in event.message for event in site.progress.events)


def nothing() -> None:
    """A look without anything new."""


def test_a_drain_without_a_watching_command_is_not_stalled(site: Site) -> None:
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
    assert site.drain(commit=False).ending is CallEnding.WAITS
    assert site.volume.task is task


ALICE, BOB = (UserTree(path=f"home/{user}".encode(), user=user) for user in ("alice", "bob"))


def test_sources_of_users_on_the_target_are_purged_first_or_accepted(site: Site) -> None:
    site.trees = tuple(TreeOnBricks(tree=tree.path, files=2, size_bytes=GIB) for tree in (ALICE, BOB))
    # Nobody works on the target yet: whatever lies there is moved because it has to be.
    assert site.drain(dry_run=True).ending is CallEnding.PLANNED
    do(site.ledger.cutovers, plan_cutover(site.ledger, name="plan", tree=ALICE), *THERE)
    (reason,) = (refused := site.drain()).reasons
    assert (refused.ending, site.state) == (CallEnding.HALTED, None)
    assert "`migrator purge --plan plan --user alice --dry-run`" in reason
    assert refused.check is not None
    assert [(one.user, one.files, one.size_bytes) for one in refused.check.retained] == [("alice", 2, GIB)]
    assert site.drain(accept_retained=True).ending is CallEnding.DONE


def test_marks_are_asked_for_before_a_drain_and_not_once_it_has_set_some_itself(site: Site) -> None:
    site.marks = (BrickMarks(brick=LEAVING, files=1, examples=(b"home/a",)),)
    refused = site.drain()
    assert refused.ending is CallEnding.HALTED
    assert "home/a" in refused.reasons[0]
    assert site.volume.task is None
    site.marks = ()
    site.volume.unmovable = {5}
    assert site.drain().ending is not CallEnding.DONE
    site.marks, site.volume.unmovable = (BrickMarks(brick=LEAVING, files=1, examples=(b"home/a",)),), set()
    assert site.drain().ending is CallEnding.DONE


def test_guards_stop_it_before_anything_is_written_down(site: Site) -> None:
    site.version, site.open_files = None, None
    done = site.drain()
    assert (done.ending, int(done.exit_code), site.state) == (CallEnding.HALTED, 4, None)
    hosts = ["gl1", "gl2", "gl3"]
    assert [host in reason for host, reason in zip(hosts, done.reasons, strict=False)] == [True] * 3, done.reasons
    assert "--accept-open-files" in done.reasons[3]
    assert (site.volume.task, site.volume.options) == (None, {})
    site.version = "10.3"
    assert site.drain(accept_open_files=True).ending is CallEnding.DONE


@pytest.mark.guarantee("wipe")
def test_a_disk_with_anything_else_on_it_is_not_wiped(site: Site) -> None:
    planned = site.drain(dry_run=True)
    assert (planned.ending, site.state, site.volume.task) == (CallEnding.PLANNED, None, None)
    assert planned.check is not None
    assert (planned.check.problems, planned.check.linked_symlinks, planned.check.catalog) == ((), (), "c1")
    word = planned.confirm
    site.on_disk = ("/srv/b/IMPORTANT",)
    shown = site.drain(dry_run=True)
    assert (shown.ending, shown.confirm) == (CallEnding.PLANNED, None)
    assert "/srv/b/IMPORTANT" in shown.wipe_problems[0]
    with pytest.raises(Refused, match="IMPORTANT"):
        site.drain(confirm=word)
    site.on_disk, site.disk = (), "serial-2"
    with pytest.raises(Refused):
        site.drain(confirm=word)
    assert (site.state, site.volume.task) == (None, None)
    site.disk = "serial-1"
    assert site.drain(confirm=word).ending is CallEnding.DONE


def test_unknown_bricks_and_drains_are_refused(site: Site) -> None:
    with pytest.raises(UsageError, match="gl9:/x"):
        site.drain(bricks=("gl9:/x",))
    with pytest.raises(UsageError):
        site.stop()
    assert (site.state, site.volume.task) == (None, None)
    site.drain(commit=False)
    site.stop()
    site.volume.start()
    with pytest.raises(UsageError):
        site.stop()
    assert site.state is S.STOPPED
    assert site.volume.task is not None


def test_an_option_that_a_killed_drain_has_left_is_put_back_by_the_next_one(site: Site) -> None:
    site.volume.options[THROTTLE] = NORMAL
    site.drain(commit=False)
    site.glusterd.dies_of = NORMAL
    with pytest.raises(Killed):
        site.stop()
    site.glusterd.dies_of = None
    assert (site.state, site.volume.options) == (S.STOPPED, {THROTTLE: LAZY})
    assert site.drain().ending is CallEnding.DONE
    assert site.volume.options == {THROTTLE: NORMAL}
    # A value that an admin sets afterwards stays.
    site.volume.options[THROTTLE] = LAZY
    with suppress(UsageError):
        site.stop()
    assert site.volume.options == {THROTTLE: LAZY}


def test_an_option_left_by_an_addition_is_not_taken_for_the_value_before(site: Site) -> None:
    record = plan_addition(site.ledger, ("gl9:/b",), volume_id=VOLUME_ID)
    option = ChangedOption(name=THROTTLE, before=NORMAL, given=("aggressive",))
    site.ledger.additions.note(record.id, AdditionNotes(options=(option,)))
    site.volume.options[THROTTLE] = "aggressive"
    assert site.drain().ending is CallEnding.DONE
    assert site.volume.options == {THROTTLE: NORMAL}


@pytest.mark.parametrize(("minute", "value"), [(19 * 60, "aggressive"), (12 * 60, LAZY)])
def test_the_throttle_holds_in_its_windows_and_is_lazy_outside(site: Site, minute: int, value: str) -> None:
    site.throttle, site.minute = "aggressive", minute
    site.windows = (Window(days=(0,), start_minute=18 * 60, end_minute=6 * 60),)
    site.drain(commit=False)
    assert site.volume.options == {THROTTLE: value}
    assert site.stop().ending is CallEnding.TAKEN_BACK
    assert site.volume.options == {}


@pytest.mark.parametrize(("raced", "by_itself"), [(1, True), (3, True), (4, False)])
def test_a_file_that_a_user_renamed_under_gluster_is_tried_again_a_few_times(
    site: Site, raced: int, by_itself: bool
) -> None:
    site.volume.raced = raced
    if not by_itself:
        assert (site.drain().ending, site.state) == (CallEnding.HALTED, S.FAILED)
    assert site.drain().ending is CallEnding.DONE
    assert site.volume.reachable() == set(range(1, 10))
    assert site.volume.options == {}


def becomes(site: Site, **values: bool) -> Callable[[], None]:
    """A look at which the volume has changed."""

    def change() -> None:
        for name, value in values.items():
            setattr(site.volume, name, value)

    return change


def messages(site: Site, kind: EventKind) -> list[str]:
    return [one.message for one in site.ledger.events.latest(200) if one.kind is kind]


def loses_its_mover(site: Site, *, looks: int) -> None:
    """The host reboots, and its glusterd takes another process for the one that moves files, until somebody helps."""
    site.glusterd.meanwhile = [becomes(site, silent=True), *[nothing] * looks, becomes(site, silent=False)]


def test_a_silent_host_that_is_up_is_waited_for_with_a_hint(site: Site) -> None:
    loses_its_mover(site, looks=60)
    assert site.drain().ending is CallEnding.DONE
    told = messages(site, EventKind.DRAIN_DOUBTED)
    assert len(told) == 2
    assert ["`rm -f" in one for one in told] == [True, False]
    assert all("gl3" in one for one in told)
    assert site.volume.reachable() == set(range(1, 10))


def test_a_host_silent_past_the_limit_fails_the_drain_and_the_command_resumes(site: Site) -> None:
    loses_its_mover(site, looks=10_000)
    done = site.drain(stall_s=600.0)
    assert (done.ending, int(done.exit_code), site.state) == (CallEnding.HALTED, 4, S.FAILED)
    assert "gl3" in done.words
    assert "systemctl restart glusterd" in done.words
    assert (LEAVING in site.volume.inside, site.volume.options) == (True, {})
    site.glusterd.meanwhile, site.volume.silent = [], False
    assert site.drain().ending is CallEnding.DONE


def kill(site: Site, *, brick_up: bool = True) -> None:
    """End the rebalance processes without telling glusterd; while a brick is down, they do nothing anyway."""
    assert site.volume.task is not None
    site.volume.task.dead, site.volume.brick_up = True, brick_up


def test_a_drain_restarts_after_its_rebalance_process_is_killed(site: Site) -> None:
    site.glusterd.meanwhile = [nothing, nothing, lambda: kill(site)]
    assert site.drain().ending is CallEnding.DONE
    failed = messages(site, EventKind.DRAIN_FAILED)
    assert ["gl3" in one for one in failed] == [True]
    times = site.ledger.drains.read(1).times
    assert times[S.FAILED] - times[S.PLANNED] < 120.0
    assert site.volume.reachable() == set(range(1, 10))
    assert site.volume.options == {}


def test_a_lost_fix_layout_ends_the_wait(site: Site) -> None:
    assert site.drain(commit=False).ending is CallEnding.WAITS
    site.glusterd.loses_layouts = True
    done = site.stop()
    assert (done.ending, int(done.exit_code), site.state) == (CallEnding.STUCK, 1, S.SETTLING)
    assert "on gl3 " in done.words
    assert "`gluster volume rebalance vol1 stop`" in done.words
    # As the hint says.
    (layout,) = site.glusterd.layouts
    site.glusterd.loses_layouts, site.glusterd.layouts[layout] = False, TaskStatus.STOPPED
    assert site.stop().ending is CallEnding.TAKEN_BACK
    assert len(site.glusterd.layouts) == 2


def test_a_rebalance_process_is_not_lost_while_a_brick_is_down(site: Site) -> None:
    def is_up() -> None:
        assert site.state is S.DRAINING
        site.volume.brick_up = True

    site.glusterd.meanwhile = [nothing, lambda: kill(site, brick_up=False), *[nothing] * 50, is_up]
    assert site.drain(stall_s=600.0).ending is CallEnding.DONE
    assert site.volume.reachable() == set(range(1, 10))


def reboots(site: Site, *, looks: int) -> None:
    """The host goes and comes again, its brick after some looks more, and Gluster breaks off for want of it."""

    def comes() -> None:
        assert site.volume.task is not None
        site.volume.peer_up, site.volume.brick_up = True, False
        site.volume.task.status = TaskStatus.FAILED

    goes, is_up = becomes(site, peer_up=False), becomes(site, brick_up=True)
    site.glusterd.meanwhile = [nothing, goes, nothing, nothing, comes, *[nothing] * looks, is_up]


def test_a_drain_broken_off_by_a_reboot_restarts_when_the_brick_is_up(site: Site) -> None:
    reboots(site, looks=20)
    assert site.drain().ending is CallEnding.DONE
    assert site.volume.tasks_made == 2
    assert site.volume.reachable() == set(range(1, 10))
    assert site.volume.options == {}


def test_a_drain_that_breaks_off_every_time_is_not_restarted_forever(site: Site) -> None:
    def breaks_off() -> None:
        if site.volume.task is not None:
            site.volume.task.status = TaskStatus.FAILED

    site.glusterd.meanwhile = [breaks_off] * 10_000
    assert (site.drain().ending, site.state) == (CallEnding.HALTED, S.FAILED)
    assert site.volume.tasks_made == 4
    assert LEAVING in site.volume.inside
