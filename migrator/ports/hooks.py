"""Finding hooks and calling them, and what the ledger keeps of both."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.hooks import Hook, HookCall, HookOutcome, HookResult, HooksFound, HookStep


class Hooks(Protocol):
    """The hooks of a site."""

    @property
    def directory(self) -> bytes:
        """Where they are looked for."""

    @property
    def site_file(self) -> bytes:
        """The site.toml that they belong to, absolute: with it a hook can ask this program."""

    @property
    def timeout_s(self) -> float:
        """How long a call may take."""

    def find(self) -> HooksFound:
        """All hooks as they lie there now, and what speaks against them. Blocking; starts nothing."""

    async def call(self, call: HookCall) -> HookResult:
        """Call one, to its end or to its time limit: then everything that it started is ended. So it is on cancellation,
        before that is raised on. A hook that cannot be started is a value.
        """

    async def end(self, token: str) -> bool:
        """End what is left of a call; False where something of it cannot be ended (in D state)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookStepRecord:
    """A step that hooks are called around: open from before its `pre` hooks until after its `post` ones. `state` is how it
    ended, empty while it is open.
    """

    id: int
    step: HookStep
    subject: str
    opened_at_s: float
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCallRecord:
    """One call; without `finished_at_s` nobody knows how it ended. `stage` as `pre-batch`."""

    id: int
    step_id: int
    stage: str
    name: bytes
    token: str
    started_at_s: float
    finished_at_s: float | None
    exit_code: int | None
    outcome: HookOutcome | None
    output: bytes


class HookRecords(Protocol):
    """Steps with hooks around them, and every call. `subject` says which batch, pass or brick a step is about."""

    def open_step(self, *, run_id: int, step: HookStep, subject: str, at_s: float) -> HookStepRecord:
        """Write down that a step begins. What a run that ended early left open of it is closed: it begins anew."""

    def open_since(self, step: HookStep, subject: str) -> HookStepRecord | None:
        """The step that an earlier run left open; None where there is none."""

    def latest(self, step: HookStep, subject: str) -> HookStepRecord | None:
        """The step as it was begun last, open or not; None where it never was."""

    def close_step(self, step_id: int, *, state: str, at_s: float) -> None:
        """Its `post` hooks were called. May be recorded again."""

    def intend(self, *, step_id: int, hook: Hook, token: str, at_s: float) -> int:
        """Write a call down before the hook is started; returns its id."""

    def finish(self, call_id: int, *, at_s: float, exit_code: int | None, outcome: HookOutcome, output: bytes) -> None:
        """How a call ended. The first result counts."""

    def unfinished(self, steps: Collection[HookStep]) -> Sequence[HookCallRecord]:
        """Calls around these steps that a crash left without a result. Another verb may be at work on other steps."""

    def of_step(self, step_id: int) -> Sequence[HookCallRecord]:
        """The calls of a step, oldest first."""
