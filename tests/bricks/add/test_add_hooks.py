"""The site's hooks around an addition, over a simulated volume: those that people are told by when it has failed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.bricks.add.add import forget_addition
from migrator.bricks.add.model import AdditionEnding, AdditionState
from migrator.bricks.add.stage import AdditionCall
from migrator.core.errors import Refused, UsageError
from tests.bricks.add.addition_site import Site, addition_site
from tests.bricks.add.addition_world import NEW
from tests.support.kills import DoingHooks


@pytest.fixture
def hooks() -> DoingHooks:
    return DoingHooks(dict.fromkeys(AdditionCall.steps, lambda: None))


@pytest.fixture
def site(memory: Path, hooks: DoingHooks) -> Iterator[Site]:
    with addition_site(memory) as made:
        made.hooks = hooks
        yield made


def test_a_rebalance_that_breaks_off_is_told_once_and_nothing_is_stopped_by_that(site: Site, hooks: DoingHooks) -> None:
    site.glusterd.breaks, hooks.exit_codes = True, {"post-fail": 1}
    assert site.add().ending is AdditionEnding.HALTED
    assert site.states == [AdditionState.FAILED]
    assert hooks.called() == [("pre-add", ""), ("post-fail", "failed")]
    ((stage, failed, reason),) = hooks.reasons
    assert (stage, failed) == ("post-fail", "add")
    assert reason
    site.glusterd.breaks = False
    assert site.add().ending is AdditionEnding.DONE
    assert hooks.called() == [("post-add", "done")]
    assert site.add().ending is AdditionEnding.DONE
    assert hooks.called() == []
    assert not site.ledger.hooks.unfinished(AdditionCall.steps)


def test_a_few_files_that_could_not_be_moved_are_told_and_no_failure(site: Site, hooks: DoingHooks) -> None:
    site.glusterd.cannot_balance = 2
    for _ in range(2):
        added = site.add()
        assert (added.ending, added.failures) == (AdditionEnding.DONE, 2)
        assert "2 files could not be moved, and stay where they are" in added.words
    assert hooks.called() == [("pre-add", ""), ("post-add", "done")]


def test_guards_before_anything_is_changed_ring_nobody(site: Site, hooks: DoingHooks) -> None:
    site.volume.peer_up = False
    assert site.add().ending is AdditionEnding.HALTED
    assert hooks.called() == []


def forget(site: Site, *, accept_hooks: bool = False) -> AdditionState:
    return forget_addition([NEW], site.side, site.ledger, accept_hooks=accept_hooks, at_s=site.clock.now_s()).state


def test_an_addition_that_was_a_mistake_is_forgotten_while_it_has_changed_nothing(
    site: Site, hooks: DoingHooks
) -> None:
    with pytest.raises(UsageError, match="no addition"):
        forget(site)
    hooks.exit_codes = {"pre-add": 1}
    with pytest.raises(Refused):
        site.add()
    assert site.states == [AdditionState.PREPARING]
    with pytest.raises(Refused, match="pre-add hooks were called"):
        forget(site)
    for _ in range(2):
        assert forget(site, accept_hooks=True) is AdditionState.FORGOTTEN
    assert not site.ledger.additions.under_way()
    hooks.exit_codes = {}
    assert site.add().ending is AdditionEnding.DONE
    assert site.states == [AdditionState.FORGOTTEN, AdditionState.SETTLED]
    with pytest.raises(Refused, match="cannot be forgotten"):
        forget(site, accept_hooks=True)
