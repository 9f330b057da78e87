"""What is done with bricks that are out of the volume."""

from dataclasses import replace

import pytest

from migrator.bricks.drain.model import OUT_STATES, AuditSeen, DrainState, PlaceSeen
from migrator.bricks.drain.rules import next_step
from migrator.operations.model import Finished, Halt
from tests.support.drain_looks import (
    BRICK,
    CLEAN,
    HAND_OVER,
    WIPE,
    D,
    S,
    act,
    out,
    record,
    seen,
)


@pytest.mark.parametrize("state", sorted(OUT_STATES))
def test_without_a_hand_over_it_ends_at_the_commit(state: DrainState) -> None:
    assert isinstance(next_step(record(state), out()), Finished)


@pytest.mark.parametrize("state", [S.COMMITTED, S.WIPING])
def test_a_brick_is_wiped_only_when_a_fresh_audit_found_nothing(state: DrainState) -> None:
    def step(place: PlaceSeen | None = PlaceSeen.BRICK, audit: AuditSeen | None = CLEAN) -> object:
        places = None if place is None else {BRICK: place}
        return next_step(record(state), out(places=places, audit=audit), hand_over=True)

    assert step() == WIPE
    again = act(D.AUDIT, state, state)
    assert step(audit=None) == again
    assert step(audit=replace(CLEAN, started_at_s=49.0)) == again
    for bad in (replace(CLEAN, left=1), replace(CLEAN, unsure=1), replace(CLEAN, whole=False)):
        assert isinstance(step(audit=bad), Halt)
    assert step(PlaceSeen.EMPTY, None) == replace(WIPE, seen_done=True)
    for place in (PlaceSeen.OTHER, PlaceSeen.UNKNOWN, None):
        assert isinstance(step(place), Halt)
    unmounted = step(PlaceSeen.UNMOUNTED)
    assert unmounted == WIPE if state is S.WIPING else isinstance(unmounted, Halt)


@pytest.mark.parametrize("state", [S.COMMITTED, S.WIPING, S.WIPED])
@pytest.mark.parametrize("hand_over", [True, False])
def test_nothing_is_wiped_or_given_away_that_is_in_a_volume_again(*, state: DrainState, hand_over: bool) -> None:
    step = next_step(record(state), seen(tasks=()), hand_over=hand_over)
    assert isinstance(step, Halt)
    assert "in the volume again" in step.words
    assert isinstance(next_step(record(state), out(state=None), hand_over=True), Halt)


def test_the_hand_over() -> None:
    assert next_step(record(S.WIPED), out(), hand_over=True) == HAND_OVER
    assert next_step(record(S.HANDING_OVER), out(), hand_over=True) == HAND_OVER
    again = next_step(record(S.HANDING_OVER), seen(tasks=()), hand_over=True)
    assert again == replace(HAND_OVER, seen_done=True)
    for look in (out(), seen(tasks=())):
        assert isinstance(next_step(record(S.HANDED_OVER), look, hand_over=True), Finished)


@pytest.mark.parametrize(
    ("bricks", "said"), [(("gl1:/b",), "gl1:/b is out"), (("gl1:/b", "gl2:/b"), "gl1:/b, gl2:/b are out")]
)
def test_one_brick_is_out_and_several_are(bricks: tuple[str, ...], said: str) -> None:
    look = out()
    assert look.state is not None
    step = next_step(replace(record(S.COMMITTED), bricks=bricks), replace(look, state=replace(look.state, bricks=())))
    assert isinstance(step, Finished)
    assert step.words.startswith(f"{said} of the volume")
