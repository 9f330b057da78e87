"""An addition on a simulated volume, killed and disturbed at every place."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.bricks.add.model import AdditionAct, AdditionState, AdditionStep, NewPlace, Wish
from migrator.bricks.add.rules import begin_again, next_step
from migrator.gluster.model import TaskStatus
from migrator.operations.model import Finished, Halt
from tests.bricks.add.addition_world import EMPTY, NEW, Died, World

S = AdditionState
STALE = NewPlace(**{**{name: getattr(EMPTY, name) for name in EMPTY.__slots__}, "exists": True, "volume_id": "76"})


def by_hand_add(world: World) -> None:
    if (
        world.mounted
        and not world.moving
        and NEW not in world.inside
        and not world.place.stale
        and not world.place.entries
    ):
        world.add()


def by_hand_task(*, fix_layout: bool) -> Callable[[World], None]:
    def begin(world: World) -> None:
        if not world.moving:
            world.begin(fix_layout=fix_layout)

    return begin


def by_hand_stop(world: World) -> None:
    world.task = None


def unmounts(world: World) -> None:
    if NEW not in world.inside:
        world.mounted = False


def marks(world: World) -> None:
    if NEW not in world.inside:
        world.place = STALE


DISTURBANCES: dict[str, Callable[[World], None]] = {
    "glusterd goes": lambda world: setattr(world, "asks", False),
    "glusterd comes": lambda world: setattr(world, "asks", True),
    "a peer goes": lambda world: setattr(world, "peer_up", False),
    "a peer comes": lambda world: setattr(world, "peer_up", True),
    "files are moved": World.moves,
    "the task breaks": World.breaks,
    "added by hand": by_hand_add,
    "fix-layout by hand": by_hand_task(fix_layout=True),
    "rebalance by hand": by_hand_task(fix_layout=False),
    "stopped by hand": by_hand_stop,
    "unmounted": unmounts,
    "marked": marks,
    "hooks are wrong": lambda world: setattr(world, "hooks_right", False),
    "hooks are right": lambda world: setattr(world, "hooks_right", True),
}
INSTANTS = ("", "", "", "before", "intended", "begun", "done")
STEPS = st.one_of(
    st.tuples(st.just("step"), st.sampled_from(INSTANTS), st.booleans()),
    st.tuples(st.just("world"), st.sampled_from(sorted(DISTURBANCES)), st.just(False)),
)


def call(world: World, wish: Wish, *, dies: str = "", fails: bool = False, again: bool = False) -> object:
    """One step of the program; what was decided."""
    step = (begin_again if again else next_step)(world.record, world.look(), wish)
    if isinstance(step, AdditionAct):
        try:
            world.carry_out(step, dies=dies, fails=fails)
        except Died:
            return None
    return step


def to_the_end(world: World, wish: Wish) -> object:
    """The command given again and again, on a world that behaves."""
    world.asks = world.peer_up = world.hooks_right = True
    step: object = None
    for _ in range(60):
        step = call(world, wish, again=world.record.state is S.FAILED)
        if isinstance(step, Finished):
            return step
        if isinstance(step, Halt):
            assert step.look_again or NEW not in world.inside, step
            # People do what the halt tells: they wait, and take off marks.
            world.moves()
            if NEW not in world.inside:
                world.place, world.mounted = EMPTY, True
    return step


def come_to(world: World, state: AdditionState) -> None:
    while world.record.state is not state:
        call(world, Wish())


def check(world: World, *, rebalance: bool) -> None:
    assert world.added <= 1
    if world.record.state is S.SETTLED:
        assert NEW in world.inside
        assert world.layout_right
        assert world.even or not rebalance


@given(st.lists(STEPS, max_size=30), st.booleans())
def test_killed_and_disturbed_anywhere_it_ends_with_the_brick_in_use(
    events: list[tuple[str, str, bool]], rebalance: bool
) -> None:
    world, wish = World(), Wish(rebalance=rebalance)
    for kind, what, fails in events:
        if kind == "world":
            DISTURBANCES[what](world)
        else:
            call(world, wish, dies=what, fails=fails, again=world.record.state is S.FAILED)
        check(world, rebalance=rebalance)
    assert isinstance(to_the_end(world, wish), Finished)
    assert world.record.state is S.SETTLED
    check(world, rebalance=rebalance)


@pytest.mark.parametrize(
    ("state", "failures", "given_up"), [(S.BALANCING, 10, False), (S.BALANCING, 11, True), (S.LAYOUT, 1, True)]
)
def test_a_few_files_that_users_rename_while_they_are_moved_are_no_failure_of_a_rebalance(
    state: S, failures: int, given_up: bool
) -> None:
    world = World()
    come_to(world, state)
    world.moves_all_but(failures)
    step = next_step(world.record, world.see(), Wish())
    assert isinstance(step, AdditionAct)
    assert (step.step is AdditionStep.GIVE_UP) is given_up
    assert (f"{failures} file" in step.reason) is given_up


def test_no_task_is_begun_beside_another_one_and_no_wish_for_one_ends_without() -> None:
    world = World()
    come_to(world, S.ADDED)
    world.begin(fix_layout=False)
    step = next_step(world.record, world.see(), Wish())
    assert isinstance(step, Halt)
    assert step.look_again
    world.moves()
    come_to(world, S.BALANCING)
    halted = next_step(world.record, world.see(), Wish(rebalance=False))
    assert isinstance(halted, Halt)
    assert "none is wanted" in halted.words
    by_hand_stop(world)
    last = call(world, Wish(rebalance=False))
    assert isinstance(last, AdditionAct)
    assert last.step is AdditionStep.FINISH


def test_a_host_that_does_not_tell_ends_nothing() -> None:
    world = World()
    while world.record.state is not S.LAYOUT or world.record.notes.task_id is None:
        call(world, Wish())
    world.moves()
    world.peer_up = False
    halted = next_step(world.record, world.see(), Wish())
    assert isinstance(halted, Halt)
    assert halted.look_again
    assert world.task is not None
    assert world.task.status is TaskStatus.COMPLETED
