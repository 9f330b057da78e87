"""Cutovers and rollbacks over a simulated user, killed and disturbed anywhere: he loses nothing, and it always ends."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from migrator.core.entry import UserTree
from migrator.cutover.model import (
    CUTOVER_TRANSITIONS,
    CutoverAct,
    CutoverNotes,
    CutoverRecord,
    CutoverState,
    CutoverStep,
    Step,
)
from migrator.cutover.model_snapshot import FinalPassResult, LinkState, TopState, TreeProof, TreeSnapshot
from migrator.cutover.rules import begin_rollback, next_step, turned_back
from migrator.operations.model import Act, Finished, Halt
from tests.support.making import made

SOURCE, TARGET = "source", "target"
S = CutoverState
BACK = frozenset(state for state in S if "back" in state.value) - {S.ROLLED_BACK}
BY_CHOICE_OF_THE_USER = frozenset({S.SWITCHED, S.THAWING, S.THAWED, S.RETAINED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Luck:
    """What becomes of one act. `dies`: where the program is killed (empty: it is not)."""

    dies: str = ""
    fails: str = ""
    writes_meanwhile: bool = False


@dataclass(slots=True)
class Side:
    """One tree. `own_mode`: its user gave the top a mode of his own, which counts as open."""

    top: TopState
    content: int
    writers: bool = False
    own_mode: bool = False

    @property
    def enterable(self) -> bool:
        return self.top is TopState.OPEN


@dataclass(slots=True)
class World:
    """Everything there is. `tampered`: somebody else changed a top or the path, and it was not put right yet."""

    sides: dict[str, Side] = field(
        default_factory=lambda: {SOURCE: Side(TopState.OPEN, 1), TARGET: Side(TopState.FROZEN, 0)}
    )
    link: str = SOURCE
    latest: int = 1
    now_s: float = 100.0
    serial: int = 0
    frozen_serial: int = 0
    copied: FinalPassResult | None = None
    proof: TreeProof | None = None
    lacks_backup: bool = False
    tampered: bool = False
    record: CutoverRecord = field(
        default_factory=lambda: made(
            CutoverRecord,
            tree=UserTree(path=b"home/alice", user="alice"),
            state=S.PLANNED,
            times={S.PLANNED: 100.0},
        )
    )

    @property
    def state(self) -> CutoverState:
        return self.record.state

    @property
    def here(self) -> str:
        """The side that the user is being moved from."""
        return TARGET if self.state in BACK else SOURCE

    @property
    def there(self) -> str:
        return SOURCE if self.state in BACK else TARGET

    def tick(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def number(self) -> int:
        """As a ledger gives them; clocks may be set back."""
        self.serial += 1
        return self.serial

    def write(self, side: str) -> None:
        self.latest += 1
        self.sides[side].content = self.latest

    def seen(self) -> TreeSnapshot:
        target = self.sides[TARGET]
        own = target.own_mode and target.top is TopState.OPEN and self.state in BY_CHOICE_OF_THE_USER
        return TreeSnapshot(
            link=LinkState(self.link),
            source_top=self.sides[SOURCE].top,
            target_top=TopState.OTHER if own else target.top,
            writing=("vim of uid 7 writes",) if self.sides[self.here].writers else (),
            copied=self.copied,
            proof=self.proof,
            lacks_backup=self.lacks_backup,
        )

    def enter(self, state: CutoverState, **changes: object) -> None:
        """As the ledger does: by the table."""
        if state is not self.state:
            assert state in CUTOVER_TRANSITIONS[self.state], (self.state, state)
            changes["times"] = {**self.record.times, state: self.tick()}
            if state in (S.FROZEN, S.ROLLBACK_FROZEN):
                self.frozen_serial = self.serial
        self.record = replace(self.record, state=state, **changes)

    def carry_out(self, act: CutoverAct, luck: Luck) -> None:
        """One act as the stage does it: intent, act, result, or killed in between."""
        if luck.dies == "before":
            return
        notes = self.record.notes
        passes = self.copied.id if self.copied else 0
        proofs = self.proof.id if self.proof else 0
        if act.step is CutoverStep.FREEZE and notes.frozen_top is None:
            notes = CutoverNotes(frozen_top="before", passes_before=passes, proofs_before=proofs)
        if act.step is CutoverStep.ROLLBACK_FREEZE and self.state is not act.intent:
            notes = replace(notes, frozen_target_top="before", passes_before=passes, proofs_before=proofs)
        if act.step in (CutoverStep.VERIFY, CutoverStep.ROLLBACK_VERIFY) and not act.seen_done:
            notes = replace(notes, proofs_before=proofs)
        begins = act.step is CutoverStep.ROLLBACK_FREEZE and self.state is not act.intent
        failure = act.reason or ("" if begins else self.record.failure)
        self.enter(act.intent, notes=notes, failure=failure)
        if luck.dies == "after-intent":
            return
        if not act.seen_done and not self.do(act.step, luck):
            return
        if luck.dies != "before-result":
            self.enter(act.result)

    def do(self, step: CutoverStep, luck: Luck) -> bool:
        """Whether it came to its end, neither failed nor killed."""
        broken = luck.fails == "act" or luck.dies == "meanwhile"
        match step:
            case CutoverStep.FREEZE | CutoverStep.ROLLBACK_FREEZE:
                self.sides[self.here].top = TopState.PARTLY if broken else TopState.FROZEN
            case CutoverStep.REVERT | CutoverStep.ROLLBACK_REVERT:
                self.sides[self.here].top = TopState.PARTLY if broken else TopState.OPEN
            case CutoverStep.THAW | CutoverStep.ROLLBACK_THAW:
                self.sides[self.there].top = TopState.PARTLY if broken else TopState.OPEN
            case CutoverStep.FINAL_PASS | CutoverStep.CARRY_BACK:
                self.copy(luck, broken=broken)
            case CutoverStep.VERIFY | CutoverStep.ROLLBACK_VERIFY:
                if not broken:
                    self.verify(luck)
            case CutoverStep.SWITCH | CutoverStep.SWITCH_BACK:
                if not broken:
                    self.switch()
            case CutoverStep.RETAIN | CutoverStep.PURGE:
                pass
        if luck.fails == "act" and not luck.dies:
            self.record = replace(self.record, failure=f"{step.value} failed")
        return not broken

    def copy(self, luck: Luck, *, broken: bool) -> None:
        here, there = self.sides[self.here], self.sides[self.there]
        number = self.number()
        read = here.content
        changed = luck.writes_meanwhile and here.writers
        if changed:
            self.write(self.here)
        failed = luck.fails in ("file", "vanished") or broken
        if not failed:
            there.content = read
        self.copied = FinalPassResult(
            id=number,
            finished_at_s=None if broken else self.tick(),
            changed=int(changed),
            vanished=int(luck.fails == "vanished"),
            failed=int(luck.fails == "file"),
            whole=luck.fails != "whole",
        )

    def verify(self, luck: Luck) -> None:
        assert self.copied is not None
        here, there = self.sides[self.here], self.sides[self.there]
        self.proof = TreeProof(
            id=self.number(),
            whole=luck.fails != "whole",
            differences=int(here.content != there.content) + int(luck.fails == "difference"),
            by_policy=luck.fails != "policy",
            manifest=None if luck.fails == "manifest" else "m",
        )

    def switch(self) -> None:
        """The one act that must never be without proof: checked against what is, not against what was said."""
        here, there = self.sides[self.here], self.sides[self.there]
        assert self.link == self.here
        assert here.top is TopState.FROZEN
        assert there.top is TopState.FROZEN
        assert not here.writers
        assert there.content == self.latest == here.content
        copied, proof = self.copied, self.proof
        assert copied is not None and proof is not None and copied.finished_at_s is not None  # noqa: PT018
        assert (copied.changed, copied.vanished, copied.failed) == (0, 0, 0)
        assert proof.id > copied.id > self.frozen_serial
        assert copied.whole and proof.whole and proof.by_policy and not proof.differences  # noqa: PT018
        if self.there == TARGET:
            assert proof.manifest is not None
            assert not self.lacks_backup
        self.link = self.there


MOST_STEPS = 40
DEATHS = ("", "", "before", "after-intent", "meanwhile", "before-result")
FAILURES = ("", "", "", "act", "file", "vanished", "whole", "difference", "policy", "manifest")
LUCK = st.builds(Luck, dies=st.sampled_from(DEATHS), fails=st.sampled_from(FAILURES), writes_meanwhile=st.booleans())
WRITER_MAY_GO = frozenset(S) - {
    S.VERIFYING,
    S.VERIFIED,
    S.SWITCHING,
    S.ROLLBACK_VERIFYING,
    S.ROLLBACK_VERIFIED,
    S.SWITCHING_BACK,
}
"""Nobody can see a writer who comes and goes between two looks after the verification."""
OVER = (S.RETAINED, S.REVERTED, S.ROLLED_BACK)
SWITCHES = (S.SWITCHING, S.SWITCHING_BACK)


class CutoverMachine(RuleBasedStateMachine):
    """What may happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.rolls_back = False

    @initialize(far=st.integers(0, 11))
    def has_come_some_way(self, far: int) -> None:
        """So that what happens next happens in every state, also of a rollback."""
        for _ in range(far):
            self.rolls_back = self.rolls_back or self.world.state is S.RETAINED
            self.go(Luck())

    def decide(self) -> Step:
        world = self.world
        if self.rolls_back and turned_back(world.state):
            self.rolls_back = False
        ask = begin_rollback if self.rolls_back else next_step
        before = world.record
        step = ask(world.record, world.seen())
        assert world.record == before
        return step

    def go(self, luck: Luck) -> Step:
        world, step = self.world, self.decide()
        if isinstance(step, Act):
            self.check_explained(step)
            world.carry_out(step, luck)
        if isinstance(step, Finished):
            self.rolls_back = False
        return step

    def check_explained(self, act: CutoverAct) -> None:
        """Nothing is done to a world that this program did not leave."""
        world = self.world
        assert world.link != "other"
        assert TopState.OTHER not in (world.sides[SOURCE].top, world.sides[TARGET].top)
        if world.state not in SWITCHES:
            after = world.state in (S.SWITCHED, S.THAWING, S.THAWED, S.RETAINED) or world.state in BACK
            on_target = after and world.state not in (S.SWITCHED_BACK, S.ROLLBACK_THAWING)
            assert world.link == (TARGET if on_target else SOURCE)
        other = SOURCE if world.link == TARGET else TARGET
        assert world.sides[other].top is TopState.FROZEN, act

    @rule(lucky=st.integers(0, 5), luck=LUCK)
    def goes_on(self, lucky: int, luck: Luck) -> None:
        """Most of what can go wrong lies at the end of a long way."""
        for _ in range(lucky):
            self.go(Luck())
        self.go(luck)

    @rule(before_the_switch=st.sampled_from([False, False, False, True]))
    def asks_for_a_rollback(self, *, before_the_switch: bool) -> None:
        self.rolls_back = before_the_switch or self.world.state in (S.SWITCHED, S.THAWING, S.THAWED, S.RETAINED)

    @precondition(lambda self: self.world.state in (S.REVERTED, S.ROLLED_BACK) and not self.world.tampered)
    @rule()
    def begins_again(self) -> None:
        world = self.world
        self.rolls_back = False
        fresh = World().record
        world.record = replace(fresh, attempt=world.record.attempt + 1, times={S.PLANNED: world.tick()})

    @rule()
    def user_writes(self) -> None:
        world = self.world
        if world.link != "other" and world.sides[world.link].enterable:
            world.write(world.link)

    @precondition(lambda self: not self.world.tampered and self.world.sides[self.world.link].enterable)
    @rule()
    def user_opens_a_file(self) -> None:
        self.world.sides[self.world.link].writers = True

    @precondition(lambda self: not self.world.tampered and self.world.record.under_way)
    @rule()
    def root_writes_in_the_freeze(self) -> None:
        if self.world.link == self.world.here:
            self.world.sides[self.world.here].writers = True
            self.world.write(self.world.here)

    @precondition(lambda self: self.world.state in WRITER_MAY_GO)
    @rule()
    def writers_go(self) -> None:
        for side in self.world.sides.values():
            side.writers = False

    @precondition(lambda self: self.world.state in (S.THAWED, S.RETAINED) and not self.world.tampered)
    @rule()
    def user_gives_his_top_another_mode(self) -> None:
        self.world.sides[TARGET].own_mode = True

    @rule(lacks_backup=st.sampled_from([True, *[False] * 6]))
    def backups_come_and_go(self, *, lacks_backup: bool) -> None:
        self.world.lacks_backup = lacks_backup

    @precondition(lambda self: not self.world.tampered and self.world.state not in SWITCHES)
    @rule(to=st.sampled_from(["other", SOURCE, TARGET]))
    def somebody_changes_the_path(self, to: str) -> None:
        self.world.tampered = self.world.link != to
        self.world.link = to

    @precondition(lambda self: not self.world.tampered and self.world.state in SWITCHES)
    @rule()
    def somebody_takes_the_path_away_in_the_switch(self) -> None:
        self.was = self.world.link
        self.world.tampered = True
        self.world.link = "other"

    @precondition(lambda self: not self.world.tampered and self.world.record.under_way)
    @rule(side=st.sampled_from([SOURCE, TARGET]), top=st.sampled_from([TopState.OTHER, TopState.OPEN]))
    def somebody_changes_a_top(self, side: str, top: TopState) -> None:
        world = self.world
        if world.sides[side].top is TopState.FROZEN:
            world.tampered = True
            world.sides[side].top = top

    @precondition(lambda self: self.world.tampered)
    @rule()
    def people_put_it_right(self) -> None:
        """As the hints say; a tree that was opened for its user, where he works by its path, stays so."""
        world = self.world
        if world.state in SWITCHES:
            world.link = self.was if world.link == "other" else world.link
        else:
            on_target = world.state in (S.SWITCHED, S.THAWING, S.THAWED, S.RETAINED) or (
                world.state in BACK and world.state not in (S.SWITCHED_BACK, S.ROLLBACK_THAWING)
            )
            world.link = TARGET if on_target else SOURCE
        for name, side in world.sides.items():
            by_hand = side.top is TopState.OPEN and world.record.under_way and name != world.link
            if side.top is TopState.OTHER or by_hand:
                side.top = TopState.FROZEN
        world.tampered = False

    @precondition(lambda self: self.world.state is S.RETAINED and not self.world.tampered)
    @rule()
    def another_user_follows(self) -> None:
        self.world = World()
        self.rolls_back = False

    def is_run_until_it_ends(self) -> None:
        for _ in range(MOST_STEPS):
            step = self.go(Luck())
            assert not isinstance(step, Halt), step
            if isinstance(step, Finished):
                break
        else:
            raise AssertionError(f"has not ended: {self.world.record}")
        assert self.world.state in OVER
        assert self.world.link == (TARGET if self.world.state is S.RETAINED else SOURCE)
        assert self.world.sides[self.world.link].enterable

    def teardown(self) -> None:
        if self.world.tampered:
            self.people_put_it_right()
        self.is_run_until_it_ends()

    @invariant()
    def the_path_leads_to_all_that_was_written(self) -> None:
        world = self.world
        if not world.tampered:
            assert world.sides[world.link].content == world.latest

    @invariant()
    def the_user_works_in_one_place_or_can_be_thawed(self) -> None:
        world = self.world
        if world.tampered:
            return
        enterable = [name for name, side in world.sides.items() if side.enterable]
        assert enterable in ([world.link], [])
        if not enterable:
            assert world.record.under_way
            assert world.record.notes.frozen_top is not None
            if world.state in BACK:
                assert world.record.notes.frozen_target_top is not None


CutoverMachine.TestCase.settings = settings(stateful_step_count=25)
TestCutoverMachine = CutoverMachine.TestCase
