"""Hooks of a cutover's steps as real programs, called by the stage on a real ledger."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from migrator.app import new_token
from migrator.core.clock import SystemClock
from migrator.core.entry import UserTree
from migrator.core.events import EventKind, Severity
from migrator.core.tasks import DaemonThreads
from migrator.cutover.model import CutoverRecord
from migrator.hooks.model import HookFacts, HookStep
from migrator.hooks.stage import CutoverPlace, HookPrograms, StepHooks
from migrator.hosts.process import LocalProcesses
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.ledger.model import SiteRecord
from tests.support.fake_filesystem import IDENTITY

ALICE = UserTree(path=b"home/alice", user="alice")
SITE = SiteRecord(
    site_id="id",
    name="site",
    created_at_s=1.0,
    source=IDENTITY,
    target=IDENTITY,
    capabilities=None,
    capabilities_probed_at_s=None,
)


@dataclass(frozen=True)
class Ports:
    ledger: Ledger
    clock: SystemClock = field(default_factory=SystemClock)
    blocking: DaemonThreads = field(default_factory=DaemonThreads)
    tokens: Callable[[], str] = new_token


@dataclass
class HookedCutover:
    """One attempt to cut alice's tree over, and the hooks around its steps. Every hook writes a line into a file."""

    directory: Path
    ledger: Ledger
    record: CutoverRecord
    run_id: int
    said: list[tuple[EventKind, Severity, str, str]] = field(default_factory=list)

    @property
    def calls_file(self) -> Path:
        return self.directory / "calls"

    @property
    def hooks_dir(self) -> Path:
        return self.directory / "hooks"

    @property
    def programs(self) -> HookPrograms:
        return HookPrograms(
            LocalProcesses(grace_s=0.5, one_output=True),
            directory=os.fsencode(self.hooks_dir),
            site_file=os.fsencode(self.directory / "site.toml"),
            timeout_s=60.0,
        )

    @property
    def calling(self) -> StepHooks:
        def say(kind: EventKind, severity: Severity, subject: str, message: str) -> None:
            self.said.append((kind, severity, subject, message))

        return StepHooks(
            ports=Ports(self.ledger),
            hooks=self.programs,
            site=SITE,
            source_root=b"/src",
            target_root=b"/dst",
            run_id=self.run_id,
            say=say,
        )

    def hook(self, where: str, text: str = "exit 0", *, mode: int = 0o755) -> Path:
        """A hook that writes its name, the user, the state and the reason down, and then does what it is given."""
        file = self.hooks_dir / where
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        file.write_text(
            "#!/bin/sh\n"
            f'echo "{where} $MIGRATOR_USER:$MIGRATOR_STATE:$MIGRATOR_REASON" >> "{self.calls_file}"\n{text}\n'
        )
        file.chmod(mode)
        return file

    def calls(self) -> list[str]:
        """What was called since the last question."""
        if not self.calls_file.exists():
            return []
        lines = self.calls_file.read_text().splitlines()
        self.calls_file.unlink()
        return lines

    def did(self, what: str) -> None:
        """A line of the step itself."""
        with self.calls_file.open("a") as stream:
            stream.write(what + "\n")

    def warnings(self) -> list[str]:
        """What was said since the last question that is no mere information."""
        said = [
            f"{kind.value}: {subject}: {message}"
            for kind, severity, subject, message in self.said
            if severity is not Severity.INFO
        ]
        self.said.clear()
        return said

    def place(self, step: HookStep, *, back: bool = False) -> CutoverPlace:
        return CutoverPlace(step=step, record=self.record, back=back)

    def facts(self, reason: str | None = None) -> HookFacts:
        return HookFacts(
            run_id=self.run_id, plan="plan", batch=1, trees=(ALICE,), user="alice", reason=reason, started_at_s=1.0
        )

    async def around(self, step: HookStep, *, stoppable: bool = True, fails: Exception | None = None) -> str:
        """The step with its hooks; what it does is a line among theirs."""

        async def work() -> str:
            self.did(step.value)
            if fails is not None:
                raise fails
            return "worked"

        async def after(facts: HookFacts, result: str) -> HookFacts:
            return replace(facts, state="done", reason=f"{result} after")

        return await self.calling.around(
            self.place(step).hooked, work, facts=self.facts("before"), after=after, stoppable=stoppable
        )


@contextmanager
def hooked_cutover(directory: Path) -> Iterator[HookedCutover]:
    """A ledger with one attempt, for the length of the block."""
    with open_ledger(directory / "ledger.db", create=True) as ledger:
        run_id = ledger.runs.start(verb="cutover", pid=os.getpid(), at_s=1.0, directory="runs/1")
        record = ledger.cutovers.plan(plan="plan", batch=1, tree=ALICE, predicted_freeze_s=60.0, at_s=1.0)
        yield HookedCutover(directory, ledger, record, run_id)
