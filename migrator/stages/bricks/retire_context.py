"""What a retirement works with: the ports, and the call that it is part of."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from migrator.domain.hooks import HookFacts, HookStep
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
from migrator.stages.bricks.brick_call import BrickCall
from migrator.stages.hooking import HookedStep

LOG = logging.getLogger("migrator.retirement")

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
class RetireCall(BrickCall):
    """One call of the verb; `run_id` and `directory` are None where nothing is changed."""

    world: RetirementWorld
    request: RetireRequest
    site: SiteRecord
    run_id: int | None
    directory: str | None = None

    @property
    def log(self) -> logging.Logger:
        """Where its events are logged."""
        return LOG

    @property
    def source_root(self) -> bytes:
        """The source, as hooks are told."""
        return self.world.source.root

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
