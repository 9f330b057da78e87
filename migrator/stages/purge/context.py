"""What a purge works with, and what it is asked to do."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from migrator.domain.cutover import CutoverRecord
from migrator.domain.cutover_seen import BackupSeen
from migrator.domain.events import EventKind, Severity
from migrator.domain.paths import join
from migrator.domain.purge import LeadsTo
from migrator.domain.reap import ReapRow
from migrator.domain.tree import UserTree
from migrator.domain.verification import VerificationRecord
from migrator.ports.blocking import Blocking
from migrator.ports.clock import Clock
from migrator.ports.filesystem import SourceFileSystem, TargetFileSystem
from migrator.ports.freezing import WriterSearch
from migrator.ports.hooks import Hooks
from migrator.ports.ledger import Ledger
from migrator.ports.locks import Locks
from migrator.ports.manifest import Manifests
from migrator.ports.progress import Progress
from migrator.ports.purging import ClosedPlaces, Manifest, StorageTargets
from migrator.ports.run_files import RunFiles
from migrator.stages.reap.archived import ProvenArchives
from migrator.stages.saying import say

LOG = logging.getLogger("migrator.purge")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeWorld:
    """The ports. `link` says where the path of a user leads, given his tree (blocking; raises OSError where that cannot be
    seen); `backup` whether the backup of the target is recorded that the site asks for; `back_up` copies the ledger, with a name for the copy, before anything is freed (blocking); `hooks` None: none
    are called.

    `carried` gives the verifications of what rollbacks of a cutover have carried to the source, oldest first; None where nothing
    was carried (blocking; raises MigratorError).

    `archived` is what proven archives hold, as it is now. `skipped` are the rows of the reap list of the tree's plan that it skips; it raises
    Refused where plan or list cannot be read (blocking).
    """

    source: SourceFileSystem
    target: TargetFileSystem
    places: ClosedPlaces
    manifest: Manifest
    manifests: Manifests
    storage: StorageTargets
    writers: WriterSearch
    link: Callable[[UserTree], LeadsTo]
    backup: Callable[[CutoverRecord], BackupSeen]
    back_up: Callable[[str], None]
    archived: Callable[[], ProvenArchives]
    skipped: Callable[[CutoverRecord], Iterable[Sequence[ReapRow]]]
    hooks: Hooks | None
    ledger: Ledger
    locks: Locks
    files: RunFiles
    progress: Progress
    clock: Clock
    blocking: Blocking
    tokens: Callable[[], str]
    carried: Callable[[CutoverRecord], Sequence[VerificationRecord] | None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeRequest:
    """What to purge: trees of a plan, by batch. `confirm` is the checksum that was given; `named`: the user was named, so a
    tree that may not be purged is a refusal, not something to be left for later.

    `vouched`: the freeze hook answers for who writes where that cannot be seen. `names_per_s` bounds what is removed, and less
    goes while probes pass `max_latency_s` (None: no limit).
    """

    plan: str
    trees: Mapping[int, tuple[UserTree, ...]]
    pid: int
    named: bool = False
    confirm: str | None = None
    dry_run: bool = False
    reread: bool = False
    vouched: bool = False
    retain_s: int
    max_shrink: float
    names_per_s: int
    max_latency_s: float | None = None
    workers: int = 4
    heartbeat_interval_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of the verb."""

    world: PurgeWorld
    request: PurgeRequest
    run_id: int | None

    def say(self, kind: EventKind, severity: Severity, subject: str, message: str) -> None:
        """An event: onto the screen, into the log, and, unless it is a dry run, into the ledger."""
        say(self.world, kind, severity, subject, message, run_id=self.run_id, log=LOG)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A tree and where it lies now: `at` is its path, or its name in its place of the purge."""

    tree: bytes
    at: bytes

    @property
    def moved(self) -> bool:
        """Whether it lies in its place of the purge."""
        return self.at != self.tree

    def known_as(self, path: bytes) -> bytes:
        """What the user knew a path by that lies there now."""
        return join(self.tree, path[len(self.at) + 1 :]) if len(path) > len(self.at) else self.tree


async def in_thread(work: Callable[[], T]) -> T:
    """Blocking work beside the event loop."""
    return await asyncio.to_thread(work)
