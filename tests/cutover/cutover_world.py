"""A user, both trees and the path between them, simulated. Content is one number: every write makes a new one."""

from dataclasses import dataclass, field, replace

from migrator.core.entry import UserTree
from migrator.cutover import model as cutover
from tests.support.making import made

SOURCE, TARGET = "source", "target"
S = cutover.CutoverState
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

    top: cutover.TopSeen
    content: int
    writers: bool = False
    own_mode: bool = False

    @property
    def enterable(self) -> bool:
        return self.top is cutover.TopSeen.OPEN


@dataclass(slots=True)
class World:
    """Everything there is. `tampered`: somebody else changed a top or the path, and it was not put right yet."""

    sides: dict[str, Side] = field(
        default_factory=lambda: {SOURCE: Side(cutover.TopSeen.OPEN, 1), TARGET: Side(cutover.TopSeen.FROZEN, 0)}
    )
    link: str = SOURCE
    latest: int = 1
    now_s: float = 100.0
    serial: int = 0
    frozen_serial: int = 0
    copied: cutover.PassSeen | None = None
    proof: cutover.ProofSeen | None = None
    lacks_backup: bool = False
    tampered: bool = False
    record: cutover.CutoverRecord = field(
        default_factory=lambda: made(
            cutover.CutoverRecord,
            tree=UserTree(path=b"home/alice", user="alice"),
            state=S.PLANNED,
            times={S.PLANNED: 100.0},
        )
    )

    @property
    def state(self) -> cutover.CutoverState:
        return self.record.state

    @property
    def here(self) -> str:
        """The side that the way under way leads away from."""
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

    def seen(self) -> cutover.Seen:
        target = self.sides[TARGET]
        own = target.own_mode and target.top is cutover.TopSeen.OPEN and self.state in BY_CHOICE_OF_THE_USER
        return cutover.Seen(
            link=cutover.LinkSeen(self.link),
            source_top=self.sides[SOURCE].top,
            target_top=cutover.TopSeen.OTHER if own else target.top,
            writing=("somebody writes",) if self.sides[self.here].writers else (),
            copied=self.copied,
            proof=self.proof,
            lacks_backup=self.lacks_backup,
        )

    def enter(self, state: cutover.CutoverState, **changes: object) -> None:
        """As the ledger does: by the table."""
        if state is not self.state:
            assert state in cutover.CUTOVER_TRANSITIONS[self.state], (self.state, state)
            changes["times"] = {**self.record.times, state: self.tick()}
            if state in (S.FROZEN, S.ROLLBACK_FROZEN):
                self.frozen_serial = self.serial
        self.record = replace(self.record, state=state, **changes)  # type: ignore[arg-type]

    def carry_out(self, act: cutover.CutoverAct, luck: Luck) -> None:
        """One act as the stage does it: intent, act, result, or killed in between."""
        if luck.dies == "before":
            return
        notes = self.record.notes
        passes = self.copied.id if self.copied else 0
        proofs = self.proof.id if self.proof else 0
        if act.step is cutover.CutoverStep.FREEZE and notes.frozen_top is None:
            notes = cutover.CutoverNotes(frozen_top="before", passes_before=passes, proofs_before=proofs)
        if act.step is cutover.CutoverStep.ROLLBACK_FREEZE and self.state is not act.intent:
            notes = replace(notes, frozen_target_top="before", passes_before=passes, proofs_before=proofs)
        if act.step in (cutover.CutoverStep.VERIFY, cutover.CutoverStep.ROLLBACK_VERIFY) and not act.seen_done:
            notes = replace(notes, proofs_before=proofs)
        begins = act.step is cutover.CutoverStep.ROLLBACK_FREEZE and self.state is not act.intent
        failure = act.reason or ("" if begins else self.record.failure)
        self.enter(act.intent, notes=notes, failure=failure)
        if luck.dies == "after-intent":
            return
        if not act.seen_done and not self.do(act.step, luck):
            return
        if luck.dies != "before-result":
            self.enter(act.result)

    def do(self, step: cutover.CutoverStep, luck: Luck) -> bool:
        """Whether it came to its end, neither failed nor killed."""
        broken = luck.fails == "act" or luck.dies == "meanwhile"
        match step:
            case cutover.CutoverStep.FREEZE | cutover.CutoverStep.ROLLBACK_FREEZE:
                self.sides[self.here].top = cutover.TopSeen.PARTLY if broken else cutover.TopSeen.FROZEN
            case cutover.CutoverStep.REVERT | cutover.CutoverStep.ROLLBACK_REVERT:
                self.sides[self.here].top = cutover.TopSeen.PARTLY if broken else cutover.TopSeen.OPEN
            case cutover.CutoverStep.THAW | cutover.CutoverStep.ROLLBACK_THAW:
                self.sides[self.there].top = cutover.TopSeen.PARTLY if broken else cutover.TopSeen.OPEN
            case cutover.CutoverStep.FINAL_PASS | cutover.CutoverStep.CARRY_BACK:
                self.copy(luck, broken=broken)
            case cutover.CutoverStep.VERIFY | cutover.CutoverStep.ROLLBACK_VERIFY:
                if not broken:
                    self.verify(luck)
            case cutover.CutoverStep.SWITCH | cutover.CutoverStep.SWITCH_BACK:
                if not broken:
                    self.switch()
            case cutover.CutoverStep.RETAIN | cutover.CutoverStep.PURGE:
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
        self.copied = cutover.PassSeen(
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
        self.proof = cutover.ProofSeen(
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
        assert here.top is cutover.TopSeen.FROZEN
        assert there.top is cutover.TopSeen.FROZEN
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
