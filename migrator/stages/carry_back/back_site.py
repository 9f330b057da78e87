"""The site of one rollback: a small one with source and target exchanged, whose only batch is one user tree.

It has a ledger, catalogs, lists and manifests of its own, so that what was seen on the target is never taken for something
that was seen on the source. Its seed pass has no chunks: both sides were equal at the switch. It stands for the catalog of what
the target was then, which the first pass is compared with.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.cutover import CutoverRecord
from migrator.domain.errors import LedgerCorrupt
from migrator.domain.plan import Batch, Order, Plan, TransferCost
from migrator.domain.run import RunRequest
from migrator.domain.site import Capacity, TargetCapabilities
from migrator.domain.states import PassKind
from migrator.domain.verification import DigestPolicy, VerificationRecord
from migrator.ports.activity import Activity
from migrator.ports.back_sides import BackSide, BackSource, SwitchedCatalogs
from migrator.ports.blocking import Blocking
from migrator.ports.carrying_back import SourceChange
from migrator.ports.catalog import ChunkLists
from migrator.ports.clock import Clock
from migrator.ports.lanes import Lanes
from migrator.ports.ledger import Ledger
from migrator.ports.manifest import Manifests
from migrator.ports.passes import PassRecord
from migrator.ports.plans import PlanDocuments
from migrator.ports.progress import Progress
from migrator.ports.reap import ReapLists
from migrator.ports.run_files import RunFiles
from migrator.ports.site import SiteRecord
from migrator.ports.usage import ChunkListWriter
from migrator.stages.run.delta import Deltas

PLAN = "back"
_NO_COST = TransferCost(s_per_file=0.0, s_per_byte=0.0, streams=1, basis="not asked for")
_NO_ROOM = Capacity(total_bytes=0, free_bytes=0, total_inodes=None, free_inodes=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackParts:
    """Everything that carrying back needs, of one cutover. `site` is the migration's own, and `source` and `target` are its
    sides, whichever way files go; `ledger`, lists, `manifests` and `deltas` are those of the site of the rollback.

    `proof` is the verification that the cutover was switched with, None where the migration's ledger does not know it;
    `proof_ledger` is the rollback's ledger as a verification has to see it, with the migration's own sides. `own_documents`
    and `reap_lists` are the migration's own, too.

    `flushes`: the source's mount lets no sync of the whole file system through, so files are synced one by one.
    """

    site: SiteRecord
    source: BackSource
    target: BackSide
    flushes: bool
    proof: VerificationRecord | None
    own_documents: PlanDocuments
    reap_lists: ReapLists
    switched: SwitchedCatalogs
    ledger: Ledger
    proof_ledger: Ledger
    chunk_lists: ChunkLists
    list_writer: ChunkListWriter
    documents: PlanDocuments
    manifests: Manifests
    files: RunFiles
    lanes: Lanes
    deltas: Deltas
    request: RunRequest
    policy: DigestPolicy
    verify_workers: int
    progress: Progress
    clock: Clock
    activity: Activity
    blocking: Blocking
    tokens: Callable[[], str]


class Openings(Protocol):
    """Opens the sites of rollbacks. The file systems are opened anew for every block."""

    def open(self, record: CutoverRecord) -> AbstractAsyncContextManager[BackParts]:
        """The site of this cutover's rollback, made where there is none."""

    def tops(
        self, record: CutoverRecord
    ) -> AbstractContextManager[tuple[BackSide, BackSide, TargetCapabilities | None]]:
        """The source, the target, and what the target keeps: to look at both tops."""

    def read(self, record: CutoverRecord) -> AbstractContextManager[Ledger | None]:
        """Its ledger alone, to be read; None where there is no such site yet."""

    def changed_source(
        self, record: CutoverRecord, *, before: str, now: str, carried: Sequence[str]
    ) -> Sequence[SourceChange]:
        """What the migration's own catalogs of the source say somebody changed there, but for what the catalogs `carried` of
        this rollback's site explain. Blocking; raises UsageError, Refused.
        """

    def give_up_source(self, record: CutoverRecord, changes: Sequence[SourceChange], *, at_s: float) -> int:
        """Note down durably what is to be carried back whether it changed or not, and move what stands there to the trash of
        the source; how many paths. Blocking; raises OSError.
        """

    @property
    def policy(self) -> DigestPolicy:
        """How much content a verification has to read."""


def exchanged(site: SiteRecord, known: SiteRecord | None) -> SiteRecord:
    """The site of a rollback: what is read there is the target. What the source keeps is known where it was probed."""
    return SiteRecord(
        site_id=site.site_id,
        name=site.name,
        created_at_s=site.created_at_s,
        source=site.target,
        target=site.source,
        capabilities=known.capabilities if known else None,
        capabilities_probed_at_s=known.capabilities_probed_at_s if known else None,
    )


def switched_pass(ledger: Ledger, record: CutoverRecord) -> PassRecord | None:
    """The pass that stands for what the target was at the switch; None where that was not noted down."""
    return ledger.passes.find(PLAN, record.id, PassKind.SEED)


def newest_pass(ledger: Ledger, record: CutoverRecord) -> PassRecord | None:
    """The newest pass that carries back, however it ended."""
    return ledger.passes.find(PLAN, record.id, PassKind.FINAL)


def read_site(ledger: Ledger) -> SiteRecord:
    """The exchanged site as its ledger has it. Raises LedgerCorrupt."""
    site = ledger.site.read()
    if site is None:
        raise LedgerCorrupt("the ledger of a rollback knows no site", hint="remove its directory below state_dir/back")
    return site


def make_plan(
    record: CutoverRecord, *, site: SiteRecord, catalog: str, scan_id: int, chunk_list: str, chunk_list_digest: str
) -> Plan:
    """A plan of one batch with one tree. The batch has the number of the cutover, so that places in the trash of the source
    differ from user to user.
    """
    batch = Batch(
        number=record.id,
        trees=(record.tree,),
        size_bytes=0,
        files=0,
        directories=0,
        chunks=0,
        chunk_list=chunk_list,
        chunk_list_digest=chunk_list_digest,
        forecast_s=0.0,
        fits=True,
    )
    return Plan(
        name=PLAN,
        site=site.name,
        site_id=site.site_id,
        created_at_s=record.since_s,
        order=Order.HEAVIEST,
        catalog=catalog,
        scan_id=scan_id,
        catalog_whole=True,
        size_bytes=0,
        files=0,
        directories=0,
        ranking=(),
        outside=None,
        batches=(batch,),
        surprises=(),
        cost=_NO_COST,
        forecast_s=0.0,
        target=_NO_ROOM,
        problems=(),
        emptying=(),
    )
