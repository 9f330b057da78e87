"""What a retirement works with: the ports, and the call that it is part of."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from migrator.domain.events import Event, EventKind, Severity
from migrator.domain.hooks import HookFacts, HookSite, HookStep
from migrator.domain.retirement import Endpoint, RetirementRecord, RetireRequest, Uncovered
from migrator.domain.scan import CatalogRecord
from migrator.ports.blocking import Blocking
from migrator.ports.clock import Clock
from migrator.ports.filesystem import SourceFileSystem
from migrator.ports.freezing import WriterSearch
from migrator.ports.hooks import Hooks
from migrator.ports.ledger import Ledger
from migrator.ports.locks import Locks
from migrator.ports.manifest import Manifests
from migrator.ports.progress import Progress
from migrator.ports.retirements import CoverFiles, RetirementCommands
from migrator.ports.run_files import RunFiles
from migrator.ports.site import SiteRecord
from migrator.stages.hooking import HookedStep, HookWorld, StepHooks

LOG = logging.getLogger("migrator.retirement")
_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING, Severity.ERROR: logging.ERROR}

WriteList = Callable[[Iterable[Uncovered]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetirementWorld:
    """The ports. `scan` makes a new catalog of the whole source. `endpoints` tells whose the known connections to bricks are,
    with sentences about hosts that could not be asked. `list_to` opens the list of uncovered paths in a run's directory and
    gives what appends to it and the file's name (blocking). `back_up` keeps a copy of the ledger under a name (blocking).
    """

    volume: RetirementCommands
    source: SourceFileSystem
    target_root: bytes
    writers: WriterSearch
    endpoints: Callable[[], Awaitable[tuple[Mapping[str, Endpoint], tuple[str, ...]]]]
    scan: Callable[[], Awaitable[CatalogRecord]]
    cover: CoverFiles
    manifests: Manifests
    list_to: Callable[[str], AbstractContextManager[tuple[WriteList, str]]]
    back_up: Callable[[str], None]
    hooks: Hooks | None
    ledger: Ledger
    locks: Locks
    files: RunFiles
    progress: Progress
    clock: Clock
    blocking: Blocking
    tokens: Callable[[], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireCall:
    """One call of the verb; `run_id` and `directory` are None where nothing is changed."""

    world: RetirementWorld
    request: RetireRequest
    site: SiteRecord
    run_id: int | None
    directory: str | None = None

    def now_s(self) -> float:
        """The time."""
        return self.world.clock.now_s()

    def say(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """An event: onto the screen, into the log, and, unless nothing is changed, into the ledger."""
        event = Event(at_s=self.now_s(), kind=kind, severity=severity, subject=subject, message=message)
        if self.run_id is not None:
            self.world.ledger.events.add(event, self.run_id)
        self.world.progress.event(event)
        LOG.log(_LEVELS[severity], "%s", message, extra={"event": kind.value, "subject": subject})

    def hooking(self) -> StepHooks | None:
        """Calls the hooks; None where there are none to be called."""
        world = self.world
        if world.hooks is None or self.run_id is None:
            return None
        return StepHooks(
            world=HookWorld(
                hooks=world.hooks,
                records=world.ledger.hooks,
                site=HookSite(
                    site_id=self.site.site_id,
                    name=self.site.name,
                    file=world.hooks.site_file,
                    source_root=world.source.root,
                    target_root=world.target_root,
                ),
                run_id=self.run_id,
                clock=world.clock,
                blocking=world.blocking,
                tokens=world.tokens,
                say=self.say,
            )
        )

    def facts(self, record: RetirementRecord, *, state: str = "") -> HookFacts:
        """What a hook is told."""
        return HookFacts(
            run_id=self.run_id or 0,
            files=record.files,
            size_bytes=record.size_bytes,
            state=state,
            started_at_s=self.now_s(),
        )


def hooked(record: RetirementRecord) -> HookedStep:
    """A retirement, as hooks are called around it."""
    return HookedStep(
        step=HookStep.RETIRE,
        key=f"retirement {record.id}",
        subject=subject_of(record.volume),
        words=f"retiring volume {record.volume}",
    )


def subject_of(volume: str) -> str:
    """That of its events."""
    return f"retirement of {volume}"
