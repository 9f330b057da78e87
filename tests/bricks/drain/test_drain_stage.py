"""Drains driven over a simulated volume: the way out and the way back."""

import pytest

from migrator.bricks.drain.model import DrainEnding
from migrator.bricks.shared import read_bricks
from migrator.core.errors import ExitCode, LockHeld, UsageError
from migrator.gluster.model import TaskStatus
from tests.bricks.drain.drain_site import REQUEST, S, Site
from tests.bricks.drain.drain_world import LEAVING, NORMAL, THROTTLE
from tests.support.kills import Killed


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


def test_what_was_taken_back_already_is_told_and_nothing_is_done(site: Site) -> None:
    site.drain(commit=False)
    assert site.stop().ending is DrainEnding.TAKEN_BACK
    again = site.stop()
    assert (again.ending, again.exit_code) == (DrainEnding.TAKEN_BACK, ExitCode.DONE)
    site.volume.start()
    with pytest.raises(UsageError, match="that this program began"):
        site.stop()


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


def nothing() -> None:
    """A look without anything new."""


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
