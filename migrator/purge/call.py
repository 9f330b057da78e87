"""One call of `purge`: its ports."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from migrator.catalog.manifest import ManifestDirectories
from migrator.catalog.model import VerificationRecord
from migrator.catalog.ports import Scratch
from migrator.core.entry import UserTree
from migrator.cutover.model import CutoverRecord
from migrator.cutover.model_snapshot import LinkState
from migrator.cutover.writers import WriterSearch
from migrator.fs.ports import SourceFileSystem, TargetFileSystem
from migrator.operations.call import Call
from migrator.operations.run_files import CallPorts
from migrator.purge import model
from migrator.purge.files import MountedPlaces
from migrator.purge.records import PurgeLedger
from migrator.reap.archive import ProvenArchives
from migrator.reap.model import ReapRow
from migrator.scan.marks import ReadMarks
from migrator.verify.content import Readers

LOG = logging.getLogger("migrator.purge")


class PurgePorts(CallPorts, frozen=True, kw_only=True):
    """The ports."""

    ledger: PurgeLedger
    source: SourceFileSystem
    target: TargetFileSystem
    places: MountedPlaces
    scratch: Scratch
    manifests: ManifestDirectories
    storage: Callable[[], Awaitable[tuple[str, ...]]] | None
    writers: WriterSearch
    link: Callable[[UserTree], LinkState]
    """The side to which the path of a tree's user leads (blocking; raises OSError)."""
    back_up: Callable[[str], None]
    """Copies the ledger under a name before anything is freed (blocking)."""
    archived: Callable[[], ProvenArchives]
    """The current content of proven archives."""
    skipped: Callable[[CutoverRecord], Iterable[Sequence[ReapRow]]]
    """The rows of the reap list of the tree's plan that it skips (blocking; raises Refused if plan or list cannot be read)."""
    carried: Callable[[CutoverRecord], Sequence[VerificationRecord] | None] = lambda _: None
    """The verifications of what rollbacks of a cutover carried to the source, oldest first; None if nothing was carried
    (blocking; raises MigratorError).
    """
    marks: ReadMarks | None = None
    readers: Callable[[], AbstractAsyncContextManager[Readers]] | None = None
    """Connects to the hosts that read the target; None: this machine reads it."""


PurgeCall: TypeAlias = Call[PurgePorts, model.PurgeRequest]
