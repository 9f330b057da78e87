"""The limit of a freeze: given up when it is reached, refused when the load makes it too long, and where its seconds went."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from migrator.core.entry import UserTree
from migrator.cutover import model as cutover
from migrator.cutover import preflight
from migrator.cutover.model_snapshot import LinkState
from migrator.cutover.rules import next_step
from migrator.cutover.rules_freezes import FreezePart, freeze_parts
from migrator.operations.model import Act, StepRecord, StepResult
from migrator.transfer.rules_convergence import load_factor
from tests.conftest import MakeXfs
from tests.cutover.test_rules import record, world
from tests.support.cut_site import CutSite, cut_site, top_facts
from tests.support.making import made

S, C = cutover.CutoverState, cutover.CutoverStep

# --- Where the seconds went


def step(name: cutover.CutoverStep, begun_s: float, ended_s: float | None, **more: Any) -> StepRecord[Any]:
    result = {"result": None if ended_s is None else StepResult.DONE} | more
    return made(StepRecord, step=name, intended_at_s=begun_s, ended_at_s=ended_s, **result)


FROZEN = made(
    cutover.CutoverRecord,
    tree=UserTree(path=b"home/alice", user="alice"),
    state=S.RETAINED,
    times={S.RETAINED: 200.0},
    frozen_at_s=100.0,
    thawed_at_s=130.0,
)
STEPS = (
    step(C.FREEZE, 100.0, 103.0),
    step(C.FINAL_PASS, 105.0, 112.0),
    step(C.VERIFY, 112.5, 120.0),
    step(C.SWITCH, 126.0, 127.0),
    step(C.THAW, 127.0, 130.0),
    step(C.RETAIN, 130.0, 190.0),
)
PARTS = {
    FreezePart.CLOSE: 3.0,
    FreezePart.SEARCH: 8.5,
    FreezePart.SCAN: 4.0,
    FreezePart.COPY: 3.0,
    FreezePart.VERIFY: 7.5,
    FreezePart.SWITCH: 1.0,
    FreezePart.THAW: 3.0,
}


def test_parts_of_a_freeze_add_up_to_it() -> None:
    assert freeze_parts(FROZEN, STEPS, scan_s=4.0, until_s=999.0) == PARTS


def test_parts_of_a_freeze_that_lasts_or_was_interrupted() -> None:
    lasting = replace(FROZEN, thawed_at_s=None)
    steps = (STEPS[0], step(C.FINAL_PASS, 105.0, None))
    assert freeze_parts(lasting, steps, scan_s=None, until_s=111.0) == {
        FreezePart.CLOSE: 3.0,
        FreezePart.SEARCH: 2.0,
        FreezePart.SCAN: 6.0,
    }
    given_up = (STEPS[0], step(C.FINAL_PASS, 105.0, 120.0, result=StepResult.INTERRUPTED), step(C.REVERT, 121.0, 130.0))
    assert freeze_parts(FROZEN, given_up, scan_s=None, until_s=999.0) == {
        FreezePart.CLOSE: 3.0,
        FreezePart.SEARCH: 3.0,
        FreezePart.INTERRUPTED: 15.0,
        FreezePart.THAW: 9.0,
    }
    assert freeze_parts(replace(FROZEN, frozen_at_s=None), (), scan_s=None, until_s=999.0) == {}


@pytest.mark.parametrize(
    "state", [S.FREEZING, S.FROZEN, S.FINAL_PASS, S.VERIFYING, S.VERIFIED, S.SWITCHING, S.SWITCHED, S.THAWING]
)
def test_a_freeze_over_its_limit_is_reverted_only_before_the_switch(state: cutover.CutoverState) -> None:
    act = next_step(record(state), world(state, too_long="it lasts"))
    assert isinstance(act, Act)
    before = state not in (S.SWITCHED, S.THAWING)
    assert (act.step is C.REVERT, act.reason) == (before, "it lasts" if before else "")
    if state is S.SWITCHING:
        switched = world(state, too_long="it lasts", link=LinkState.TARGET)
        assert next_step(record(state), switched) == cutover.act_of(C.SWITCH, seen_done=True)


def test_load_is_how_much_longer_a_scan_takes_and_never_below_one() -> None:
    assert load_factor([], 100.0) == 1.0
    assert load_factor([10.0, 10.0, 10.0], 5.0) == 1.0
    assert load_factor([9.8, 9.8, 99.8], 39.8) == pytest.approx(4.0)
    # What a scan of a few files takes says little.
    assert load_factor([0.01], 0.05) < 1.5


# --- The real thing


@pytest.fixture
def site(scratch: Path, make_xfs: MakeXfs) -> Iterator[CutSite]:
    with cut_site(scratch, make_xfs(), make_xfs(), stages=("pre-freeze",)) as made_site:
        yield made_site


def predicted(seconds: float) -> Callable[[], None]:
    """The prediction of the call, without the load of the machine."""

    def patch() -> None:
        preflight.Preflight.predicted_freeze_s = lambda *_, **__: seconds  # type: ignore[method-assign]

    return patch


def predicted_under_load(seconds: float) -> Callable[[], None]:
    """The prediction of the call, whatever the load of the machine."""

    async def under_load(*_: object) -> tuple[float, float]:
        return seconds, 1.0

    def patch() -> None:
        predicted(seconds)()
        preflight.Preflight.predicted_under_load = under_load  # type: ignore[method-assign, assignment]

    return patch


@pytest.mark.needs_root
@pytest.mark.guarantee("frozen-users")
@pytest.mark.parametrize("hook", ["post-pass.d/60-waits", "pre-switch.d/60-waits"])
def test_a_freeze_that_reaches_its_limit_is_reverted_with_its_parts(site: CutSite, hook: str) -> None:
    """A hook that never ends; the limit ends it, and nothing else."""
    site.write(cutover='max_freeze = "5s"')
    gate = site.directory / "gate"
    os.mkfifo(gate)
    # Root owns the top of a frozen user: the pass before the freeze is not held.
    site.hook(hook, f'test "$(stat -c %u {site.source()})" = 0 || exit 0\nread _ < {gate}')
    before, top = site.snapshot(), top_facts(site.source())

    done = site.start("cutover", "--user", "ann", "--json", before=predicted_under_load(0.5)).end()

    assert done.code == 4, done.err
    assert done.outcome["ending"] == "given-up"
    site.assert_works_on("source", before, hooks_ended=False)
    assert top_facts(site.source()) == top
    state, failure = site.states()[-1]
    assert state == "reverted"
    assert "max_freeze" in failure
    parts = done.outcome["freeze_parts_s"]
    assert parts
    assert sum(parts.values()) == pytest.approx(done.outcome["cutover"]["freeze_s"])


@pytest.mark.needs_root
def test_changes_are_on_the_target_before_the_freeze(site: CutSite) -> None:
    (site.source() / "new").write_text("made after the last run")
    site.hook("pre-freeze.d/60-there", f"cmp {site.source()}/new {site.target()}/new")
    assert site.cutover()["ending"] == "moved"


@pytest.mark.needs_root
def test_a_load_that_makes_the_freeze_too_long_is_found_right_before_it(site: CutSite) -> None:
    site.write(cutover='max_freeze = "60s"')

    def loaded() -> None:
        predicted(0.5)()
        preflight.load_factor = lambda *_: 1000.0  # type: ignore[attr-defined]

    refused = site.start("cutover", "--user", "ann", "--json", before=loaded).end()

    assert refused.code == 4, refused.err
    assert refused.outcome["ending"] == "refused"
    assert refused.outcome["predicted_freeze_s"] >= 500.0
    assert site.states() == []
    accepted = site.start("cutover", "--user", "ann", "--json", "--accept-freeze", before=loaded).end().outcome
    assert accepted["ending"] == "moved"
    parts = accepted["freeze_parts_s"]
    assert {"close", "search", "scan", "copy", "verify", "switch", "thaw"} == set(parts)
    assert sum(parts.values()) == pytest.approx(accepted["cutover"]["freeze_s"])
    (told,) = site.call("report", "--json").json["freezes"]
    assert (told["parts_s"], told["predicted_freeze_s"]) == (parts, accepted["predicted_freeze_s"])
