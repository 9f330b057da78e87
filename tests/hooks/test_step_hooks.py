"""Hooks around the steps of a cutover: what stops which, what they are told, and who calls what is owed."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from migrator.core.clock import SystemClock
from migrator.core.errors import Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import DaemonThreads
from migrator.cutover.model import CutoverRecord
from migrator.hooks.model import HookFacts, HookProblem, HookStep
from migrator.hooks.stage import CutoverPlace, HookedStep, HookRefused, HookSkipped, StepHooks
from migrator.ledger.ledger import Ledger, open_ledger
from tests.hooks.fake_hooks import FakeHooks
from tests.support.fake_filesystem import IDENTITY
from tests.support.operations import plan_cutover
from tests.support.records import site_record
from tests.support.run_world import in_loop

CUTOVER = (HookStep.FREEZE, HookStep.SWITCH, HookStep.THAW)


@dataclass
class Cutover:
    """One attempt to cut a tree over, and the hooks around its steps; also the ports of the calls."""

    ledger: Ledger
    record: CutoverRecord
    hooks: FakeHooks = field(default_factory=FakeHooks)
    clock: SystemClock = field(default_factory=SystemClock)
    blocking: DaemonThreads = field(default_factory=DaemonThreads)
    said: list[str] = field(default_factory=list)
    given: int = 0

    def tokens(self) -> str:
        self.given += 1
        return f"token-{self.given}"

    @property
    def calling(self) -> StepHooks:
        def say(kind: EventKind, severity: Severity, subject: str, message: str) -> None:
            if severity is not Severity.INFO:
                self.said.append(f"{kind.value}: {subject}: {message}")

        return StepHooks(ports=self, hooks=self.hooks, run_id=1, say=say)

    def has(self, *where: str, **others: int) -> None:
        self.hooks.hooks |= dict.fromkeys(where, 0) | others

    def step(self, step: HookStep, *, back: bool = False) -> HookedStep:
        return CutoverPlace(step=step, record=self.record, back=back).hooked

    def facts(self, reason: str | None = None) -> HookFacts:
        return HookFacts(run_id=1, reason=reason, started_at_s=1.0)

    async def around(self, step: HookStep, *, stoppable: bool = True, fails: Exception | None = None) -> str:
        """The step with its hooks; what it does is a line among theirs."""

        async def work() -> str:
            self.hooks.calls.append(step.value)
            if fails is not None:
                raise fails
            return "worked"

        def after(facts: HookFacts, result: str) -> HookFacts:
            return replace(facts, state="done", reason=f"{result} after")

        return await self.calling.around(
            self.step(step), work, facts=self.facts("before"), after=after, stoppable=stoppable
        )


@pytest.fixture
def cutover(tmp_path: Path) -> Iterator[Cutover]:
    with open_ledger(tmp_path / "ledger.db", create=True) as ledger:
        ledger.site.create(site_record(IDENTITY, site_id="id"))
        ledger.runs.start(verb="cutover", pid=1, at_s=1.0, directory="runs/1")
        yield Cutover(ledger, plan_cutover(ledger))


@in_loop
async def test_hooks_enclose_a_step_and_get_the_facts_of_their_side(cutover: Cutover) -> None:
    cutover.has("pre-freeze.d/10-a", "pre-freeze.d/20-b", "post-freeze.d/10-a", "post-freeze.d/20-b")
    assert await cutover.around(HookStep.FREEZE) == "worked"
    assert cutover.hooks.called() == [
        "pre-freeze.d/10-a :before",
        "pre-freeze.d/20-b :before",
        "freeze",
        "post-freeze.d/20-b done:worked after",
        "post-freeze.d/10-a done:worked after",
    ]
    # Steps without hooks leave nothing in the ledger that somebody could owe.
    assert await cutover.around(HookStep.SWITCH) == "worked"
    for step in (HookStep.FREEZE, HookStep.SWITCH):
        assert cutover.ledger.hooks.open_since(step, cutover.step(step).key) is None
    for error, state in ((Refused("no"), "refused"), (ToolFailed("broken"), "failed")):
        cutover.hooks.called()
        with pytest.raises(type(error)):
            await cutover.around(HookStep.FREEZE, fails=error)
        assert cutover.hooks.called()[3:] == [
            f"post-freeze.d/20-b {state}:before",
            f"post-freeze.d/10-a {state}:before",
        ]
    assert cutover.said == []


@pytest.mark.parametrize(("code", "kind", "state"), [(62, HookSkipped, "skipped"), (1, HookRefused, "refused")])
@in_loop
async def test_a_pre_hook_stops_a_step_but_no_thaw(
    cutover: Cutover, code: int, kind: type[Refused], state: str
) -> None:
    for step in ("switch", "thaw"):
        cutover.has(*(f"{side}-{step}.d/{name}" for side in ("pre", "post") for name in ("10-a", "30-c")))
        cutover.has(**{f"pre-{step}.d/20-no": code})
    with pytest.raises(Refused, match=r"pre-switch.d/20-no .*not today") as raised:
        await cutover.around(HookStep.SWITCH)
    assert type(raised.value) is kind
    assert cutover.hooks.called() == [
        "pre-switch.d/10-a :before",
        "pre-switch.d/20-no :before",
        f"post-switch.d/10-a {state}:before",
    ]
    assert await cutover.around(HookStep.THAW, stoppable=False) == "worked"
    assert [call.split()[0] for call in cutover.hooks.called()] == [
        "pre-thaw.d/10-a",
        "pre-thaw.d/20-no",
        "pre-thaw.d/30-c",
        "thaw",
        "post-thaw.d/30-c",
        "post-thaw.d/10-a",
    ]
    stopped, failed = cutover.said
    assert stopped.startswith(f"hook-{state}: {cutover.record.tree.user}: cutover: the switch of ")
    assert f"failed (exit code {code}: not today); nothing is stopped by it" in failed


@in_loop
async def test_hooks_that_may_not_be_called_stop_no_thaw_and_are_owed_after_it(cutover: Cutover) -> None:
    cutover.has("post-thaw.d/10-a")
    cutover.hooks.problems = (HookProblem(b"/hooks", "can be written by others", "chmod"),)
    with pytest.raises(Refused, match="can be written by others"):
        await cutover.around(HookStep.FREEZE)
    assert cutover.hooks.called() == []
    assert await cutover.around(HookStep.THAW, stoppable=False) == "worked"
    assert cutover.hooks.called() == ["thaw"]
    assert all("no hook was called around the thaw of " in said for said in cutover.said)
    cutover.hooks.problems = ()
    for _ in range(2):
        await cutover.calling.catch_up(cutover.step(HookStep.THAW), cutover.facts("owed"))
    assert cutover.hooks.called() == ["post-thaw.d/10-a done:owed"]
