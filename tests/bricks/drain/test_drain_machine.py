"""Drains over a simulated volume, killed and disturbed anywhere: no file is lost by them, and they always end."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from migrator.bricks.drain.model import DrainAct, DrainState, DrainStep, PlaceSeen, Step
from migrator.bricks.drain.rules import begin_again, begin_stop, next_step, taken_back
from migrator.gluster.model import TaskStatus
from migrator.operations.model import Finished, Halt
from tests.bricks.drain.drain_world import LAZY, LEAVING, NORMAL, STAYING, THROTTLE, Luck, World

S = DrainState
MOST_STEPS = 60
DEATHS = ("", "before", "after-intent", "meanwhile", "before-result")
LUCK = st.builds(Luck, dies=st.sampled_from(("", "", *DEATHS)), fails=st.sampled_from((False, False, False, True)))
OVER = (S.HANDED_OVER, S.STOPPED)


class DrainMachine(RuleBasedStateMachine):
    """What may happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.stops = False

    @initialize(far=st.integers(0, 14), throttle=st.sampled_from([None, NORMAL]))
    def has_come_some_way(self, far: int, throttle: str | None = None) -> None:
        """So that what happens next happens in every state."""
        if throttle is not None:
            self.world.options[THROTTLE] = throttle
        self.before = dict(self.world.options)
        for _ in range(far):
            self.go(Luck())

    def decide(self, *, again: bool = False) -> Step:
        world = self.world
        before = world.record
        if self.stops and taken_back(world.state):
            self.stops = False
        if self.stops:
            step = begin_stop(world.record, world.seen())
        elif again:
            step = begin_again(world.record, world.seen())
        else:
            step = next_step(world.record, world.seen(), hand_over=True)
        assert world.record == before
        return step

    def go(self, luck: Luck, *, again: bool = False) -> Step:
        step = self.decide(again=again)
        if isinstance(step, DrainAct):
            if step.step is DrainStep.COMMIT and not step.seen_done:
                assert not self.stops
            self.world.carry_out(step, luck)
        return step

    @rule(lucky=st.integers(0, 6), luck=LUCK)
    def goes_on(self, lucky: int, luck: Luck) -> None:
        for _ in range(lucky):
            self.go(Luck())
        self.go(luck)

    @rule(luck=LUCK)
    def is_begun_again(self, luck: Luck) -> None:
        if not self.stops:
            self.world.new_process()
            self.go(luck, again=True)

    @rule()
    def is_to_be_taken_back(self) -> None:
        self.stops = self.world.state not in (S.COMMITTED, S.WIPING, S.WIPED, S.HANDING_OVER, S.HANDED_OVER)

    @precondition(lambda self: self.world.state in OVER and LEAVING in self.world.inside)
    @rule()
    def is_drained_once_more(self) -> None:
        """The next attempt begins when the one before has put back what it had changed."""
        if not isinstance(next_step(self.world.record, self.world.seen(), hand_over=True), Finished):
            return
        self.stops = False
        if not self.world.options_of_somebody:
            self.before = dict(self.world.options)
        self.world.begin_another()

    @rule()
    def gluster_works(self) -> None:
        self.world.moves_files()

    @rule(where=st.sampled_from([STAYING, LEAVING]))
    def user_writes(self, where: str) -> None:
        """New files land on the leaving brick only while Gluster has not come to its end there."""
        world = self.world
        done = world.task is not None and world.task.status is not TaskStatus.IN_PROGRESS
        if where == LEAVING and (LEAVING not in world.inside or done):
            where = STAYING
        world.files += 1
        world.bricks[where].add(world.files)

    @rule()
    def somebody_writes_at_the_commit(self) -> None:
        self.world.late_write = True

    @rule(unmovable=st.booleans(), silent=st.booleans())
    def files_cannot_be_moved(self, *, unmovable: bool, silent: bool) -> None:
        """Also without a word: `completed` with files left, as older versions say."""
        self.world.unmovable = {min(self.world.bricks[LEAVING])} if unmovable and self.world.bricks[LEAVING] else set()
        self.world.silent_failures = silent

    @rule(up=st.sampled_from([True, True, False]))
    def glusterd_comes_and_goes(self, *, up: bool) -> None:
        self.world.glusterd_up = up

    @rule(up=st.sampled_from([True, True, False]))
    def the_host_comes_and_goes(self, *, up: bool) -> None:
        self.world.peer_up = up

    @rule(room=st.sampled_from([True, True, False]))
    def room_comes_and_goes(self, *, room: bool) -> None:
        self.world.room = room

    @precondition(lambda self: self.world.task is not None)
    @rule(stalled=st.booleans())
    def the_process_that_moves_dies(self, *, stalled: bool) -> None:
        assert self.world.task is not None
        self.world.task.dead = True
        self.world.stalled = stalled

    @precondition(lambda self: self.world.task is not None)
    @rule(long=st.booleans())
    def the_host_reboots_and_glusterd_loses_what_moves(self, *, long: bool) -> None:
        self.world.silent, self.world.silent_for_long = True, long

    @precondition(lambda self: self.world.task is not None)
    @rule()
    def admin_stops_it(self) -> None:
        self.world.stop()

    @precondition(lambda self: self.world.task is None and LEAVING in self.world.inside)
    @rule()
    def admin_begins_one(self) -> None:
        self.world.start()
        self.world.layout_of_somebody = self.world.state in (S.PLANNED, S.PREFLIGHT, S.SETTLING, S.STOPPED)

    @precondition(lambda self: self.world.task is not None)
    @rule()
    def admin_commits_it(self) -> None:
        """As older versions let him, also with files left."""
        world = self.world
        assert world.task is not None
        if world.task.status is TaskStatus.COMPLETED:
            world.forced = world.forced or bool(world.bricks[LEAVING])
            world.take_out()

    @precondition(lambda self: LEAVING in self.world.inside)
    @rule(really=st.sampled_from([False, False, False, True]))
    def admin_forces_it_out(self, *, really: bool) -> None:
        if really:
            self.world.forced = self.world.forced or bool(self.world.bricks[LEAVING])
            self.world.take_out()

    @precondition(lambda self: LEAVING not in self.world.inside and self.world.place is PlaceSeen.BRICK)
    @rule()
    def admin_brings_files_back(self) -> None:
        world = self.world
        world.bricks[STAYING] |= world.bricks[LEAVING]
        world.bricks[LEAVING] = set()
        world.forced = False
        world.new_process()

    @rule(value=st.sampled_from(["aggressive", None]))
    def admin_changes_the_option(self, value: str | None) -> None:
        if value is None:
            self.world.options.pop(THROTTLE, None)
        else:
            self.world.options[THROTTLE] = value
        self.world.options_of_somebody = True

    def put_right(self) -> None:
        """As the hints say."""
        world = self.world
        world.glusterd_up = world.peer_up = world.room = True
        world.silent = world.silent_for_long = False
        world.unmovable, world.silent_failures = set(), False
        if world.task is not None and world.task.dead:
            world.task.dead, world.stalled = False, False
        if LEAVING not in world.inside and world.place is PlaceSeen.BRICK:
            self.admin_brings_files_back()
        if world.state in (S.STOPPING, S.SETTLING, S.PLANNED, S.PREFLIGHT, S.STOPPED) and world.task is not None:
            world.stop()
        world.new_process()

    def is_run_until_it_ends(self) -> None:
        world = self.world
        for number in range(MOST_STEPS):
            step = self.go(Luck(), again=number == 0)
            if isinstance(step, Finished):
                break
            if isinstance(step, Halt):
                if world.state in (S.PLANNED, S.PREFLIGHT) and LEAVING not in world.inside:
                    break
                assert world.state is S.FAILED or self.stops or world.forced, (step, world.record)
                self.stops = False
                self.put_right()
                self.go(Luck(), again=True)
        else:
            raise AssertionError(f"has not ended: {world.record}")

    def teardown(self) -> None:
        if not hasattr(self, "before"):
            return
        self.put_right()
        self.is_run_until_it_ends()
        world = self.world
        if world.state in OVER:
            assert world.task is None or world.state is S.HANDED_OVER
            assert world.layout_right or world.layout_of_somebody
            if not world.options_of_somebody:
                assert world.options == self.before
        if world.state is S.HANDED_OVER:
            assert LEAVING not in world.inside
            assert world.bricks[LEAVING] == set()
        assert world.reachable() == set(range(1, world.files + 1))

    @invariant()
    def nothing_is_lost_but_what_people_took_away(self) -> None:
        world = self.world
        everywhere = set().union(*world.bricks.values())
        assert everywhere == set(range(1, world.files + 1))
        if not world.forced:
            assert world.reachable() == everywhere

    @invariant()
    def options_are_never_forgotten(self) -> None:
        world = self.world
        if world.options.get(THROTTLE) == LAZY:
            assert world.record.notes.options is not None


DrainMachine.TestCase.settings = settings(stateful_step_count=25)
TestDrainMachine = DrainMachine.TestCase
