"""A user tree whose user works on the target, by a ledger that was filled as a cutover fills it, and what purges it."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from migrator.app import new_token
from migrator.app.ledger import MigrationLedger
from migrator.catalog.model import VerificationRecord
from migrator.catalog.ports import Scratch
from migrator.core.clock import SystemClock
from migrator.core.entry import UserTree
from migrator.core.states import PassKind
from migrator.core.tasks import DaemonThreads
from migrator.cutover import model as cutover
from migrator.cutover.model_snapshot import LinkState
from migrator.cutover.writers import WriterSearch, local_writers
from migrator.fs.ports import SourceFileSystem
from migrator.hosts.process import LocalProcesses
from migrator.ledger.locks import Locks
from migrator.operations.run_files import RunFiles
from migrator.purge.call import PurgePorts
from migrator.purge.files import MountedPlaces
from migrator.purge.model import PurgeRequest, PurgeSummary, TreePurge
from migrator.purge.purge import purge
from migrator.reap.archive import ProvenArchives
from migrator.reap.files import MountedArchiveFolders
from migrator.scan.marks import ReadMarks
from migrator.verify.content import Readers
from tests.support.catalogs import whole_catalog
from tests.support.fakes import FakeProgress
from tests.support.kills import DoingHooks
from tests.support.operations import RETAIN, THERE, do
from tests.support.verify_world import TREE, World, verify_world

DAY_S = 86_400.0


def retain(
    ledger: MigrationLedger,
    plan: str,
    tree: UserTree,
    verification: int,
    *,
    let_in_s: float,
    target_thawed_ns: int | None = None,
) -> cutover.CutoverRecord:
    """What a cutover leaves: every step of it, up to `retained`."""
    catalog = f"final-{verification}"
    at_s = let_in_s - 60
    ledger.scans.finish(
        whole_catalog(
            name=catalog,
            scan_id=ledger.scans.start(catalog=catalog, via="mount", at_s=at_s, scope=(tree.path,)),
            via="mount",
            trees=(tree,),
            started_at_s=at_s,
            finished_at_s=at_s,
            scope=(tree.path,),
        )
    )
    number = 1 + len([one for one in ledger.passes.of_batch(plan, 1) if one.kind is PassKind.FINAL])
    final = ledger.passes.start(
        plan=plan,
        batch=1,
        kind=PassKind.FINAL,
        number=number,
        catalog=catalog,
        base_catalog="catalog-1",
        chunk_list=f"passes/{plan}/batch-0001-final-{number:04d}.parquet",
        chunks=(),
        at_s=at_s,
    )
    record = ledger.cutovers.plan(plan=plan, batch=1, tree=tree, predicted_freeze_s=60.0, at_s=let_in_s - 100)
    notes = cutover.CutoverNotes(
        frozen_top="{}",
        final_pass_id=final.id,
        verification_id=verification,
        target_thawed_ns=target_thawed_ns,
    )
    for move in (*THERE, RETAIN):
        record = do(
            ledger.cutovers, record, move, at_s=let_in_s - 0.5 if move is THERE[-1] else let_in_s - 50, notes=notes
        )
    return record


@dataclass
class LaterClock(SystemClock):
    """The real clock, so many seconds later by the wall."""

    later_s: float = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.later_s


@dataclass
class PurgeSite:
    """A site whose user tree `home/alice` is retained since just now, and is looked at 40 days later."""

    world: World
    proof: VerificationRecord
    record: cutover.CutoverRecord
    places: MountedPlaces
    clock: LaterClock
    leads_to: LinkState | OSError = LinkState.TARGET
    search: WriterSearch | None = None
    read_by: SourceFileSystem | None = None
    storage: tuple[str, ...] = ()
    backups: list[str] = field(default_factory=list)
    hooks: DoingHooks = field(default_factory=DoingHooks)
    require_archive: int = 0
    marks: ReadMarks | None = None
    readers: Callable[[], AbstractAsyncContextManager[Readers]] | None = None

    @property
    def tree(self) -> UserTree:
        return self.record.tree

    @property
    def source(self) -> Path:
        return self.world.source_path / os.fsdecode(self.tree.path)

    @property
    def target(self) -> Path:
        return self.world.target_path / os.fsdecode(self.tree.path)

    @property
    def closed(self) -> Path:
        return self.world.source_path / ".migrator-purge" / f"cutover-{self.record.own_name}"

    @property
    def state(self) -> cutover.CutoverState:
        return self.world.ledger.cutovers.read(self.record.id).state

    def ports(self) -> PurgePorts:
        world = self.world

        def link(_tree: UserTree) -> LinkState:
            if isinstance(self.leads_to, OSError):
                raise self.leads_to
            return self.leads_to

        async def storage() -> tuple[str, ...]:
            return self.storage

        locks = Locks(world.directory / "locks", self.clock)
        return PurgePorts(
            source=self.read_by or world.source,
            target=world.target,
            places=self.places,
            scratch=Scratch(world.directory / "temporary"),
            manifests=world.manifests,
            storage=storage,
            writers=self.search or partial(local_writers, LocalProcesses(), world.source),
            link=link,
            back_up=self.backups.append,
            archived=lambda: ProvenArchives(
                world.ledger.archives,
                MountedArchiveFolders(world.target_root, world.ledger.site.required().name_seed),
            ),
            skipped=lambda _record: (),
            hooks=self.hooks,
            ledger=world.ledger,
            locks=locks,
            files=RunFiles(world.directory / "runs", locks),
            progress=FakeProgress(),
            clock=self.clock,
            blocking=DaemonThreads(),
            tokens=new_token,
            marks=self.marks,
            readers=self.readers,
        )

    def request(self, *, dry_run: bool = False, confirm: str | None = None, reread: bool = True) -> PurgeRequest:
        return PurgeRequest(
            trees=(self.tree,),
            pid=os.getpid(),
            confirm=confirm,
            dry_run=dry_run,
            reread=reread,
            vouched=True,
            require_archive=self.require_archive,
            retain_s=30 * int(DAY_S),
            max_shrink=0.5,
            names_per_s=100_000,
            workers=3,
        )

    def dry_run(self) -> PurgeSummary:
        return asyncio.run(purge(self.request(dry_run=True), self.ports()))

    def purge(self, *, reread: bool = True) -> TreePurge:
        """As after a dry run whose checksum is given."""
        confirm = self.dry_run().checksum
        summary = asyncio.run(purge(self.request(confirm=confirm, reread=reread), self.ports()))
        (tree,) = summary.trees
        return tree


def freeze(tree: Path) -> None:
    """The top as a freeze leaves it."""
    os.chown(tree, 0, -1)
    tree.chmod(0o500)


def thaw(copy: Path, uid: int) -> None:
    """The tree on the target as its user has it."""
    os.chown(copy, uid, uid)
    copy.chmod(0o755)


@contextmanager
def purge_site(
    directory: Path,
    source: Path,
    target: Path,
    fill: Callable[[Path], object],
    *,
    share: float = 1.0,
    tree: bytes = TREE,
    let_in_later_s: float = 0.0,
    target_clock: bool = False,
) -> Iterator[PurgeSite]:
    """`fill` makes what is in the tree; it is copied, verified (content of a `share` of the files), and let in. With
    `target_clock`, the record has the time of that by the target's clock too.
    """
    top = source / os.fsdecode(tree)
    with verify_world(directory, source, target) as world:
        if tree != TREE:
            world.set_trees((tree,), (TREE,))
        top.mkdir(parents=True)
        fill(top)
        freeze(top)
        world.copy_trees(tree)
        proof = world.verify(share=share)
        assert proof.whole, proof.reasons
        clock = LaterClock()
        user, let_in_s = UserTree(path=tree, user="alice"), clock.now_s() + let_in_later_s
        clock_ns = world.target.clock_ns() if target_clock else None
        record = retain(world.ledger, world.plan.name, user, proof.id, let_in_s=let_in_s, target_thawed_ns=clock_ns)
        clock.later_s = 40 * DAY_S
        thaw(target / os.fsdecode(tree), 60001)
        places = MountedPlaces(world.source_root)
        try:
            yield PurgeSite(world=world, proof=proof, record=record, places=places, clock=clock)
        finally:
            places.close()
