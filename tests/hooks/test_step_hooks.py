"""Hooks around steps of runs and cutovers: what stops which, what they are told, what is owed, killed anywhere."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.core.clock import SystemClock
from migrator.core.errors import Refused, ToolFailed
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import DaemonThreads
from migrator.cutover.call import CutoverPlace
from migrator.cutover.model import CutoverRecord
from migrator.hooks.calls import HookedStep, HookRefused, HookSkipped, StepHooks
from migrator.hooks.model import Hook, HookCall, HookFacts, HookProblem, HookResult, HooksFound, HookStep, all_stages
from tests.support.fake_filesystem import IDENTITY
from tests.support.fakes import FakeLocks
from tests.support.kills import Death, InventedHooks
from tests.support.operations import plan_cutover
from tests.support.records import rows_of, site_record
from tests.support.run_world import World, in_loop, small_world

STAGES = {stage.name: stage for stage in all_stages()}


@dataclass
class FakeHooks(InventedHooks):
    """`hooks` gives the exit code of each, as `pre-freeze.d/10-a`; `calls` are with the state and reason that were told."""

    hooks: dict[str, int] = field(default_factory=dict)
    problems: tuple[HookProblem, ...] = ()
    before_find: Callable[[], None] = lambda: None
    in_call: Callable[[HookCall], None] = lambda _: None
    calls: list[str] = field(default_factory=list)
    unended: bool = False

    def find(self) -> HooksFound:
        self.before_find()
        return HooksFound(hooks=tuple(map(hook, self.hooks)), problems=self.problems)

    async def call(self, call: HookCall) -> HookResult:
        told, name = dict(call.environment), f"{call.hook.stage.name}.d/{call.hook.name.decode()}"
        self.calls.append(f"{name} {told['MIGRATOR_STATE']}:{told['MIGRATOR_REASON']}")
        self.in_call(call)
        return HookResult(exit_code=self.hooks[name], output=b"not today")

    async def end(self, token: str) -> bool:
        return not self.unended

    def called(self) -> list[str]:
        """What was called since the last question."""
        calls, self.calls[:] = list(self.calls), []
        return calls


def hook(where: str) -> Hook:
    directory, _, name = where.partition(".d/")
    return Hook(stage=STAGES[directory], name=name.encode(), path=b"/" + where.encode())


CUTOVER = (HookStep.FREEZE, HookStep.SWITCH, HookStep.THAW)


@dataclass
class Cutover:
    """One attempt to cut a tree over, and the hooks around its steps; also the ports of the calls."""

    ledger: MigrationLedger
    record: CutoverRecord
    hooks: FakeHooks = field(default_factory=FakeHooks)
    clock: SystemClock = field(default_factory=SystemClock)
    blocking: DaemonThreads = field(default_factory=DaemonThreads)
    locks: FakeLocks = field(default_factory=FakeLocks)
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

        return StepHooks(ports=self, hooks=self.hooks, run_id=1, report=say)

    def has(self, *where: str, **others: int) -> None:
        self.hooks.hooks |= dict.fromkeys(where, 0) | others

    def step(self, step: HookStep) -> HookedStep:
        return CutoverPlace(step=step, record=self.record, back=False).hooked

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

        facts = self.facts("before")
        return await self.calling.around(self.step(step), work, facts=facts, after=after, stoppable=stoppable)


@pytest.fixture
def cutover(tmp_path: Path) -> Iterator[Cutover]:
    with MigrationLedger.open(tmp_path / "ledger.db", create=True) as ledger:
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
async def test_a_pre_hook_stops_steps_but_no_thaw(cutover: Cutover, code: int, kind: type[Refused], state: str) -> None:
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


STEPS = (HookStep.BATCH, HookStep.PASS)
PRE, POST = ["pre-batch.d/10-x", "pre-pass.d/10-x"], ["post-pass.d/10-x", "post-batch.d/10-x"]


@pytest.fixture
def hooks() -> FakeHooks:
    return FakeHooks(dict.fromkeys((*PRE, *POST), 0))


@pytest.fixture
def world(tmp_path: Path, hooks: FakeHooks) -> Iterator[World]:
    made = small_world(tmp_path, files=2)
    made.hooks = hooks
    yield made
    made.ledger.close()


def run_until_death(world: World, hooks: FakeHooks, left: int) -> bool:
    """Whether the death came before the end of the run."""
    death = Death(left)

    def in_call(call: HookCall) -> None:
        assert call.token in [one.token for _, one in world.ledger.hooks.unfinished(STEPS)]
        death.tick()

    hooks.in_call = in_call
    died = world.run_until(death)
    hooks.in_call = lambda _: None
    return died


@pytest.mark.guarantee("hooks")
@pytest.mark.parametrize("first", [1, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_a_kill_at_any_call_loses_no_hook(tmp_path: Path, hooks: FakeHooks, first: int) -> None:
    left, died = first, True
    while died:
        directory = tmp_path / str(left)
        directory.mkdir()
        world = small_world(directory, files=2)
        world.hooks = hooks
        try:
            hooks.calls.clear()
            died = run_until_death(world, hooks, left)
            streams, before = len(world.streams.streams), len(hooks.calls)
            asyncio.run(world.run())
            assert world.is_copied()
            stages = [call.split()[0] for call in hooks.calls]
            # The guards were asked before anything was copied, in each run that copied.
            if len(world.streams.streams) > streams:
                assert stages[before : before + 2] == PRE
            done = [call.split()[0] for call in hooks.calls if call.endswith(" done:")]
            assert list(dict.fromkeys(done)) == POST
            outcomes = "SELECT count(*) FROM hook_calls WHERE outcome = 'go-on' GROUP BY step_id, stage"
            ended = rows_of(directory / "ledger.db", outcomes)
            assert {count for (count,) in ended} == {1}
            unclosed = "SELECT count(*) FROM hook_steps WHERE closed_at_s IS NULL"
            assert rows_of(directory / "ledger.db", unclosed) == [(0,)]
            assert not world.ledger.hooks.unfinished(STEPS)
            before = len(hooks.calls)
            asyncio.run(world.run())
            assert len(hooks.calls) == before
        finally:
            world.ledger.close()
        left += 7
    assert left > 40


@in_loop
@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), TimeoutError()])
async def test_unreadable_hooks_are_refused(world: World, hooks: FakeHooks, error: OSError) -> None:
    def fail() -> None:
        raise error

    hooks.before_find = fail
    for dry_run in (True, False):
        with pytest.raises(Refused):
            await world.run(dry_run=dry_run)
    assert not world.streams.streams


@in_loop
async def test_a_hook_that_cannot_be_ended_is_not_called_beside_itself(world: World, hooks: FakeHooks) -> None:
    await world.run()
    calls, records = len(hooks.calls), world.ledger.hooks
    step = records.open_step(run_id=1, step=HookStep.BATCH, subject="left by a killed run", at_s=1.0)
    records.intend(step_id=step.id, hook=hook(PRE[0]), token="left", at_s=1.0)
    hooks.unended = True
    with pytest.raises(Refused, match="10-x of an earlier run cannot be ended"):
        await world.run()
    assert len(records.unfinished(STEPS)) == 1
    hooks.unended = False
    await world.run()
    assert len(records.unfinished(STEPS)) == 0
    assert len(hooks.calls) == calls
