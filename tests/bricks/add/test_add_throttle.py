"""An addition of bricks that users feel: the throttle of its rebalance, on a simulated volume, killed at any change."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from migrator.bricks.add.model import AdditionEnding, AdditionState
from migrator.bricks.shared import THROTTLE_OPTION
from migrator.core.errors import ToolFailed
from migrator.core.events import EventKind
from tests.bricks.add.addition_site import Site, addition_site
from tests.support.kills import Killed


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with addition_site(tmp_path) as made:
        yield made


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


def test_what_could_not_be_put_back_is_by_the_next_call(site: Site) -> None:
    site.glusterd.breaks = True
    site.add()
    assert (site.states, site.glusterd.options) == ([AdditionState.FAILED], {})
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
