"""An addition whose rebalance has ended without a word to glusterd, on a simulated volume."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.bricks.add.model import AdditionEnding, AdditionState
from migrator.gluster.model import TaskStatus
from tests.bricks.add.addition_site import Site, addition_site

WAY_OUT = "`gluster volume rebalance vol1 stop` ends it, and the same command begins another one"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with addition_site(tmp_path) as made:
        yield made


def test_it_fails_within_some_looks_and_goes_on_when_it_was_stopped_as_told(site: Site) -> None:
    site.glusterd.dead_for = 10_000
    began_s = site.clock.now_s()
    done = site.add()
    assert (done.ending, site.states) == (AdditionEnding.HALTED, [AdditionState.FAILED])
    assert "on localhost no process moves files any more" in done.words
    assert WAY_OUT in done.words
    assert site.clock.now_s() - began_s < 3600.0
    # Whether it is so, people see; the same command alone begins nothing beside it.
    again = site.add()
    assert (again.ending, site.states) == (AdditionEnding.HALTED, [AdditionState.FAILED])
    assert WAY_OUT in again.reasons[0]
    assert site.volume.task is not None
    site.volume.task.status, site.glusterd.dead_for = TaskStatus.STOPPED, 0
    assert site.add().ending is AdditionEnding.DONE
    assert site.volume.even


def test_what_is_only_heard_of_late_is_waited_for(site: Site) -> None:
    site.glusterd.dead_for = 4
    assert site.add().ending is AdditionEnding.DONE
    assert site.volume.tasks_made == 2
