"""Drains that fail, over a simulated volume: by files, by room, by reboots, by a host that tells nothing any more."""

from collections.abc import Callable

import pytest

from migrator.bricks.drain.model import DrainEnding
from migrator.core.events import EventKind
from migrator.gluster.model import TaskStatus
from tests.bricks.drain.drain_site import S, Site
from tests.bricks.drain.drain_world import LEAVING


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


@pytest.mark.parametrize(("raced", "by_itself"), [(1, True), (3, True), (4, False)])
def test_a_file_that_a_user_renamed_under_gluster_is_tried_again_a_few_times(
    site: Site, raced: int, by_itself: bool
) -> None:
    site.volume.raced = raced
    if not by_itself:
        assert (site.drain().ending, site.state) == (DrainEnding.HALTED, S.FAILED)
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.reachable() == set(range(1, 10))
    assert site.volume.options == {}


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


def nothing() -> None:
    """A look without anything new."""


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


def test_a_host_that_is_up_and_silent_is_waited_for_and_what_helps_is_told_while_it_is(site: Site) -> None:
    loses_its_mover(site, looks=60)
    assert site.drain().ending is DrainEnding.DONE
    told = messages(site, EventKind.DRAIN_DOUBTED)
    assert len(told) == 2
    assert any(one.endswith("although every host and brick is up; waiting for it") for one in told)
    assert any("on gl3, if `pgrep -f [r]ebalance/vol1` finds none, run `rm -f" in one for one in told)
    assert site.volume.reachable() == set(range(1, 10))


def test_a_host_that_is_silent_for_long_fails_the_drain_and_the_same_command_goes_on_with_it(site: Site) -> None:
    loses_its_mover(site, looks=10_000)
    done = site.drain(stall_s=600.0)
    assert (done.ending, int(done.exit_code), site.state) == (DrainEnding.HALTED, 4, S.FAILED)
    assert "no counters of the drain are reported by gl3 for 10 min" in done.words
    assert "systemctl restart glusterd" in done.words
    assert (LEAVING in site.volume.inside, site.volume.options) == (True, {})
    # It is not ended either: that is refused as well.
    taken = site.stop()
    assert (taken.ending, site.state) == (DrainEnding.STUCK, S.STOPPING)
    assert "systemctl restart glusterd" in taken.hint
    assert "Brick ops failed" in taken.words
    site.glusterd.meanwhile, site.volume.silent = [], False
    assert site.stop().ending is DrainEnding.TAKEN_BACK


def killed(site: Site) -> None:
    """What moves files, without a word to glusterd."""
    assert site.volume.task is not None
    site.volume.task.dead = True


def waits_for_brick(site: Site) -> None:
    """What moves files does nothing while a brick is down."""
    killed(site)
    site.volume.brick_up = False


def test_what_moves_files_is_killed_and_another_one_is_begun_by_itself(site: Site) -> None:
    site.glusterd.meanwhile = [nothing, nothing, lambda: killed(site)]
    assert site.drain().ending is DrainEnding.DONE
    failed = messages(site, EventKind.DRAIN_FAILED)
    assert ["on gl3 no process moves files any more" in one for one in failed] == [True]
    times = site.ledger.drains.read(1).times
    assert times[S.FAILED] - times[S.PLANNED] < 120.0
    assert site.volume.reachable() == set(range(1, 10))
    assert site.volume.options == {}


def test_a_layout_that_nothing_puts_right_any_more_is_not_waited_for_in_vain(site: Site) -> None:
    assert site.drain(commit=False).ending is DrainEnding.WAITS
    site.glusterd.loses_layouts = True
    done = site.stop()
    assert (done.ending, int(done.exit_code), site.state) == (DrainEnding.STUCK, 1, S.SETTLING)
    assert "on gl3 no process moves files any more" in done.words
    assert "`gluster volume rebalance vol1 stop` ends it, and the same command begins another one" in done.words
    # As told.
    (layout,) = site.glusterd.layouts
    site.glusterd.loses_layouts, site.glusterd.layouts[layout] = False, TaskStatus.STOPPED
    assert site.stop().ending is DrainEnding.TAKEN_BACK
    assert len(site.glusterd.layouts) == 2


def test_what_moves_files_is_not_given_up_while_a_brick_is_down(site: Site) -> None:
    def is_up() -> None:
        assert site.state is S.DRAINING
        site.volume.brick_up = True

    site.glusterd.meanwhile = [nothing, lambda: waits_for_brick(site), *[nothing] * 500, is_up]
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.reachable() == set(range(1, 10))


def test_what_a_call_before_saw_of_a_run_time_counts_for_nothing(site: Site) -> None:
    """Its host was put right between the two calls."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    site.glusterd.meanwhile = [*[lambda: killed(site)] * 50, interrupted]
    with pytest.raises(KeyboardInterrupt):
        site.drain()
    site.glusterd.meanwhile = [*[nothing] * 20, lambda: setattr(site.volume.task, "dead", False)]
    assert site.drain(commit=False).ending is DrainEnding.WAITS
    assert site.volume.tasks_made == 1


def reboots(site: Site, *, looks: int) -> None:
    """The host goes and comes again, its brick after some looks more, and Gluster breaks off for want of it."""

    def comes() -> None:
        assert site.volume.task is not None
        site.volume.peer_up, site.volume.brick_up = True, False
        site.volume.task.status = TaskStatus.FAILED

    goes, is_up = becomes(site, peer_up=False), becomes(site, brick_up=True)
    site.glusterd.meanwhile = [nothing, goes, nothing, nothing, comes, *[nothing] * looks, is_up]


def test_what_breaks_off_by_a_reboot_begins_anew_by_itself_when_the_brick_is_up(site: Site) -> None:
    reboots(site, looks=20)
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.tasks_made == 2
    assert site.volume.reachable() == set(range(1, 10))
    assert site.volume.options == {}


def test_a_drain_that_breaks_off_every_time_is_not_restarted_forever(site: Site) -> None:
    def breaks_off() -> None:
        if site.volume.task is not None:
            site.volume.task.status = TaskStatus.FAILED

    site.glusterd.meanwhile = [breaks_off] * 10_000
    assert (site.drain().ending, site.state) == (DrainEnding.HALTED, S.FAILED)
    assert site.volume.tasks_made == 4
    assert LEAVING in site.volume.inside
