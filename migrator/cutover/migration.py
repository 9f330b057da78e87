"""The migration of user trees from one side to the other. A rollback is the same migration with its sides exchanged."""

import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from migrator.catalog.files import ClosedCatalogs
from migrator.catalog.ports import Scratch
from migrator.core.states import ChunkState, PassKind, PassState
from migrator.cutover.model import CutoverRecord
from migrator.cutover.model_snapshot import FinalPassResult, TreeProof
from migrator.fs.model import DigestPolicy
from migrator.ledger.model import SiteRecord
from migrator.operations.run_files import RecordedRun, RunFiles
from migrator.plan.model import Batch, Plan
from migrator.site.config import FileSystemKind, Site, SourceSection, TargetSection
from migrator.transfer.bases import covers, pass_number
from migrator.transfer.context import RunInvocation, TransferPorts
from migrator.transfer.delta.delta import DeltaPass, Deltas
from migrator.transfer.delta.final import final_passes
from migrator.transfer.model import FileProblemKind, PassRecord
from migrator.transfer.model_runs import BatchSummary, RunRequest
from migrator.transfer.records import TransferLedger
from migrator.transfer.run_hooks import RunHooks, RunStep

if TYPE_CHECKING:
    from migrator.verify.verify import Verification

# Both directions.


Verifying = Callable[[Plan, int, tuple[bytes, ...]], AbstractContextManager["Verification"]]
"""A verification of some trees (empty: all) of a batch of a plan: all attributes, and the content that was not proven
before.
"""


class Migration(Struct, frozen=True, kw_only=True):
    """Brings user trees from the source to the target of `world`.

    Its passes, catalogs and verifications are in the ledger of `world`. A rollback is a migration whose source is the
    target of the site. It has a ledger, catalogs, lists and manifests of its own, to keep facts about the two sides
    apart.
    """

    world: TransferPorts
    files: RunFiles
    deltas: Deltas
    catalogs: ClosedCatalogs
    scratch: Scratch
    verifying: Verifying

    @asynccontextmanager
    async def recorded(
        self, request: RunRequest, *, verb: str, log: logging.Logger | None = None
    ) -> AsyncIterator[tuple[RecordedRun, RunInvocation]]:
        """Record a call in the ledger for the length of the block, as `RunFiles.recorded`."""
        world = self.world
        async with self.files.recorded(world.ledger, world.clock, verb=verb, pid=request.pid, log=log) as run:
            yield run, RunInvocation(world=world, request=request, run_id=run.id, directory=run.directory)

    def final_passes(
        self, invocation: RunInvocation, plan: Plan, site: SiteRecord, batch: Batch, *, hooks: RunHooks | None = None
    ) -> AsyncIterator[tuple[BatchSummary, PassRecord]]:
        """Passes over the trees of a batch, until every rename succeeds, as `final_passes` of `transfer.delta`. `hooks`
        calls the hooks of each pass.
        """
        ledger = self.world.ledger

        async def run() -> BatchSummary:
            final = DeltaPass(
                invocation=invocation, plan=plan, site=site, batch=batch, deltas=self.deltas, kind=PassKind.FINAL
            )
            if hooks is None:
                return await final.run()
            number = pass_number(ledger.passes, plan, batch, PassKind.FINAL)
            step = RunStep(batch=batch, kind=PassKind.FINAL, number=number)
            return await hooks.around(step, final.run)

        return final_passes(ledger, plan, batch, run)


class TreeMigration(Struct, frozen=True, kw_only=True):
    """One tree in one direction: its plan and batch in the ledger of that direction. All methods block."""

    ledger: TransferLedger
    plan: str
    batch: int
    tree: bytes

    def newest_numbers(self) -> tuple[int, int]:
        """The numbers of the newest pass over the tree, and of the newest verification; 0 if there is none."""
        passes = self.ledger.passes.over_tree(self.tree)
        return max((one.id for one in passes), default=0), self.ledger.verifications.newest_id()

    def proofs(self, policy: DigestPolicy) -> tuple[FinalPassResult | None, TreeProof | None]:
        """The newest final pass over the tree, of any attempt, and the newest finished verification.

        Numbers decide whether the verification began after the pass (see `CutoverNotes.proofs_before`), not times. A
        verification compares both sides as they are, so one that began later covers the result of the pass.
        """
        ledger, passes = self.ledger, self.ledger.passes
        finals = (one for one in reversed(passes.of_batch(self.plan, self.batch)) if one.kind is PassKind.FINAL)
        made = next((one for one in finals if covers(passes, one, (self.tree,))), None)
        if made is None:
            return None, None
        scan = next((one for one in ledger.scans.all() if one.name == made.catalog), None)
        counts, totals = passes.problem_counts(made.id), passes.totals(made.id)
        # An unfinished chunk without files counts as one file.
        left = sum(count for state, count in totals.chunks.items() if state not in (ChunkState.DONE, ChunkState.SPLIT))
        not_there = counts.get(FileProblemKind.BAD, 0) + counts.get(FileProblemKind.MOVED, 0)
        done = made.state is PassState.DONE
        copied = FinalPassResult(
            id=made.id,
            finished_at_s=made.finished_at_s if done else None,
            changed=counts.get(FileProblemKind.CHANGED, 0),
            vanished=counts.get(FileProblemKind.VANISHED, 0),
            failed=not_there + max(totals.files - totals.done_files, left),
            whole=done and scan is not None and scan.whole,
        )
        found = ledger.verifications.of_tree(self.plan, self.batch, self.tree)
        if not found:
            return copied, None
        latest = found[-1]
        proof = TreeProof(
            id=latest.id,
            whole=latest.whole,
            differences=sum(latest.differences.values()),
            by_policy=latest.policy.algorithm == policy.algorithm and latest.policy.share >= policy.share,
            manifest=latest.manifest,
            reasons=latest.reasons,
        )
        return copied, proof


# The sites of rollbacks: the sides exchanged, and one user tree as the only batch of the only plan.


ROLLBACK_PLAN = "back"
"""The name of the plan of a rollback, in its own ledger. Its batch has the number of the cutover."""

_MADE = "made"
"""A file in the directory of a rollback: its ledger is complete."""


def exchanged(site: Site, state_dir: Path) -> Site:
    """The site with its sides exchanged: it reads the target and writes to the source, both through their mounts. Its
    files are in `state_dir`.
    """
    return replace(
        site,
        site=replace(site.site, state_dir=state_dir, plans_dir=state_dir / "plans"),
        source=SourceSection(kind=_by_mount(site.target.kind), mount=site.target.root, via="mount"),
        target=TargetSection(kind=_by_mount(site.source.kind), mount=site.source.mount),
        # The side that is written to has the program's numbers of owners.
        users=replace(site.users, uid_map=(), gid_map=()),
        transfer=replace(site.transfer, movers="local"),
    )


def _by_mount(kind: FileSystemKind) -> FileSystemKind:
    """The kind of a file system whose bricks or storage targets are not used."""
    return "posix" if kind in ("gluster", "beegfs") else kind


class RollbackSites(Struct, frozen=True, kw_only=True):
    """The sites of the rollbacks of a migration: a directory with a ledger for each cutover, below `directory`. `open`
    opens such a ledger for reading.
    """

    directory: Path
    open: Callable[[Path], TransferLedger]

    def directory_of(self, record: CutoverRecord) -> Path:
        """The directory of one cutover's rollback. Its name is unique over all ledgers."""
        return self.directory / record.own_name

    def prepare(self, record: CutoverRecord, ledger: TransferLedger, site: SiteRecord) -> SiteRecord:
        """Record the site with its sides exchanged in the ledger of a rollback, and return it; `site` is the
        migration's. The capabilities of the source are probed later. May be called again.
        """
        if ledger.site.read() is None:
            ledger.site.create(
                replace(site, source=site.target, target=site.source, capabilities=None, capabilities_probed_at_s=None)
            )
        ledger.site.update_identities(site.target, site.source)
        (self.directory_of(record) / _MADE).touch()
        return ledger.site.required()

    @contextmanager
    def read(self, record: CutoverRecord) -> Iterator[TreeMigration | None]:
        """The rollback of a cutover, by its ledger; None if there is none, or its creation was interrupted."""
        directory = self.directory_of(record)
        if not (directory / _MADE).exists():
            yield None
            return
        with self.open(directory / "ledger.db") as ledger:
            yield rollback_of(ledger, record)


def rollback_of(ledger: TransferLedger, record: CutoverRecord) -> TreeMigration:
    """The rollback of a cutover, in the rollback's own ledger."""
    return TreeMigration(ledger=ledger, plan=ROLLBACK_PLAN, batch=record.id, tree=record.tree.path)
