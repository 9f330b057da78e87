"""A drain with its hooks, killed before every call: on the whole way out, where it fails, and on the way back."""

from contextlib import suppress
from pathlib import Path

import pytest

from migrator.bricks.drain.model import DrainEnding, DrainState, DrainStep
from migrator.bricks.drain.stage import DrainCall
from migrator.hooks.model import HookOutcome, HookStep
from migrator.ledger.ledger import Ledger, open_ledger
from tests.bricks.drain.drain_site import EVERYTHING, WORD, HookedSite, S
from tests.bricks.drain.drain_world import LEAVING
from tests.support.kills import Death, Killed, killed_everywhere, new_ledger

pytestmark = pytest.mark.exhaustive

FORWARD = (HookStep.DRAIN, HookStep.AUDIT, HookStep.COMMIT, HookStep.WIPE, HookStep.HAND_OVER)


def test_killed_before_any_call_the_same_command_comes_to_the_same_end(memory: Path) -> None:
    died_in: set[DrainState | None] = set()
    for site, killed in killed_everywhere(new_ledger(memory / "prepared.db"), HookedSite, drain_all, died_in):
        assert site.volume.reachable() == EVERYTHING
        if killed:
            done = site.drain(confirm=WORD)
            assert done.ending is DrainEnding.DONE, done
        assert (site.state, site.locks.held) == (S.HANDED_OVER, [])
        assert site.volume.reachable() == EVERYTHING
        assert (LEAVING in site.volume.inside, site.volume.options) == (False, {})
        assert site.given
        assert sorted(site.hooks.told()) == sorted(f"post-{step.value}" for step in FORWARD)
        assert {stage for stage, _ in site.hooks.calls}.isdisjoint({"pre-stop", "post-stop", "post-fail"})
        assert site.owes_nothing()
    assert died_in >= set(S) - {S.FAILED, S.STOPPING, S.SETTLING, S.STOPPED}


def test_killed_before_any_call_of_the_way_back_every_pair_of_hooks_is_closed(memory: Path) -> None:
    """Begun, and taken back by a call that is killed; then by one that is not."""
    prepared, died_in = new_ledger(memory / "prepared.db"), set[DrainState | None]()
    with open_ledger(prepared) as ledger:
        begun = HookedSite(ledger)
        begun.drain(commit=False)
    for site, _ in killed_everywhere(prepared, begun.again, stop, died_in):
        assert site.stop().ending is DrainEnding.TAKEN_BACK
        assert (site.state, site.volume.options, site.volume.layout_right) == (S.STOPPED, {}, True)
        ends = [call for call in site.hooks.calls if call[0].startswith("post-")]
        assert list(dict.fromkeys(ends)) == [("post-stop", "done"), ("post-drain", "stopped")]
        assert site.owes_nothing()
    assert died_in >= {S.AUDITED, S.STOPPING, S.SETTLING, S.STOPPED}


def test_killed_before_any_call_every_failure_is_told_once(memory: Path) -> None:
    """Gluster has more files that it cannot move than a call tries again by itself. The same command is given once more."""
    prepared, died_in = new_ledger(memory / "prepared.db"), set[DrainState | None]()
    with open_ledger(prepared) as ledger:
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
        assert (site.drain().ending, site.state) == (DrainEnding.HALTED, S.FAILED)
        # First what a killed call owes, then what has failed again since.
        again = len(given_up(ledger)) - len(failures)
        assert site.hooks.called() == [("post-fail", "failed")] * (len(failures) - told + again)
        # Every failure was told by a call that came to its end, and by no second one.
        assert told_of(ledger) == [f"drain 1: failure at step {step}" for step in given_up(ledger)]
        assert not ledger.hooks.unfinished(DrainCall.steps)
    assert died_in == {S.STARTED, S.DRAINING, S.DRAINED, S.FAILED}


def drain_all(site: HookedSite, death: Death) -> None:
    site.drain(death=death, confirm=WORD)


def drain(site: HookedSite, death: Death) -> None:
    site.drain(death=death)


def stop(site: HookedSite, death: Death) -> None:
    site.stop(death=death)


def dies() -> None:
    raise Killed


def given_up(ledger: Ledger) -> list[int]:
    return [step.id for step in ledger.drains.steps(1) if step.step is DrainStep.GIVE_UP]


def told_of(ledger: Ledger) -> list[str]:
    """Of which failures the hook has come to its end, once for every time that it did."""
    keys = [f"drain 1: failure at step {step.id}" for step in ledger.drains.steps(1)]
    hooked = [(key, ledger.hooks.latest(HookStep.FAIL, key)) for key in keys]
    calls = [(key, call) for key, step in hooked if step is not None for call in ledger.hooks.of_step(step.id)]
    return [key for key, call in calls if call.outcome is HookOutcome.GO_ON]
