"""What a drain changes of the volume's options, over a simulated volume: the throttle, and what is put back by whom."""

from contextlib import suppress

import pytest

from migrator.bricks.add.model import AdditionNotes
from migrator.bricks.drain.model import ChangedOption, DrainEnding
from migrator.core.errors import UsageError
from migrator.core.events import EventKind
from migrator.core.probe import Probe, ProbeSide
from migrator.core.windows import Window
from tests.bricks.drain.drain_site import VOLUME_ID, S, Site
from tests.bricks.drain.drain_world import LAZY, NORMAL, THROTTLE
from tests.support.fakes import VirtualClock
from tests.support.kills import Death, Killed
from tests.support.operations import plan_addition


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
    # A value that an admin sets afterwards stays.
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
    assert "small operations on the source take longer than 50 ms" in said[0]
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.options == {}


def test_what_an_addition_has_left_changed_is_not_taken_for_what_was_there_before(site: Site) -> None:
    record = plan_addition(site.ledger, ("gl9:/b",), volume_id=VOLUME_ID)
    option = ChangedOption(name=THROTTLE, before=NORMAL, given=("aggressive",))
    site.ledger.additions.note(record.id, AdditionNotes(options=(option,)))
    site.volume.options[THROTTLE] = "aggressive"
    assert site.drain().ending is DrainEnding.DONE
    assert site.volume.options == {THROTTLE: NORMAL}


@pytest.mark.parametrize(("minute", "value"), [(19 * 60, "aggressive"), (12 * 60, LAZY)])
def test_the_throttle_holds_in_its_windows_and_is_lazy_outside(site: Site, minute: int, value: str) -> None:
    site.throttle, site.minute = "aggressive", minute
    site.windows = (Window(days=(0,), start_minute=18 * 60, end_minute=6 * 60),)
    site.drain(commit=False)
    assert site.volume.options == {THROTTLE: value}
    assert site.stop().ending is DrainEnding.TAKEN_BACK
    assert site.volume.options == {}
