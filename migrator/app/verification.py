"""Wiring of verifications."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from migrator.app import Wiring
from migrator.app.scan import marks_reader
from migrator.app.transfer import pass_engine, run_world, scanning
from migrator.core.progress import Progress
from migrator.fs.model import DigestPolicy
from migrator.fs.ports import SourceFileSystem
from migrator.fs.writing import MountedTarget
from migrator.hosts.site import SiteHosts
from migrator.plan.model import Plan
from migrator.reap.archive import ProvenArchives
from migrator.reap.files import MountedArchiveFolders

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger
    from migrator.transfer.context import TransferPorts
    from migrator.verify.content import Readers
    from migrator.verify.verify import Verification


def archive_folders(wiring: Wiring, ledger: "MigrationLedger") -> MountedArchiveFolders:
    """Where the archives of trees are on the target."""
    return MountedArchiveFolders(wiring.target_root, ledger.site.required().name_seed, owners=wiring.site.users.owners)


def proven_archives(wiring: Wiring, ledger: "MigrationLedger") -> ProvenArchives:
    """Archived paths, for verification and purge."""
    return ProvenArchives(ledger.archives, archive_folders(wiring, ledger))


def verification(
    wiring: Wiring,
    source: SourceFileSystem,
    target: MountedTarget,
    *,
    plan: Plan,
    batch: int,
    policy: DigestPolicy,
    trees: tuple[bytes, ...] = (),
    carry: bool = True,
    ledger: "MigrationLedger",
    progress: Progress,
) -> "Verification":
    """A verification of this site."""
    from migrator.verify.verify import Verification

    return Verification(
        plan=plan,
        batch=batch,
        policy=policy,
        trees=trees,
        carry=carry,
        workers=wiring.site.verify.workers,
        stall_timeout_s=wiring.site.transfer.stall_timeout_s,
        source=source,
        target=target,
        manifests=wiring.manifests(ledger),
        ledger=ledger,
        progress=progress,
        clock=wiring.clock,
        reap_lists=wiring.reap_lists(),
        links=wiring.site.rewritten_links,
        archived=proven_archives(wiring, ledger),
    )


@asynccontextmanager
async def reading_hosts(
    wiring: Wiring,
    source: SourceFileSystem,
    target: MountedTarget,
    *,
    hosts: SiteHosts,
    ledger: "MigrationLedger",
    progress: Progress,
    jobs: int | None,
    reread: bool,
) -> AsyncIterator["Readers"]:
    """The hosts that copy, as readers of content, for the length of the block. `jobs` as for `run_world`, `reread` as in
    `Readers`.
    """
    engine = pass_engine(wiring.site)
    ports = run_world(wiring, source, target, hosts=hosts, ledger=ledger, progress=progress, engine=engine, jobs=jobs)
    async with ports as world:
        yield readers_of(wiring, world, source, hosts=hosts, reread=reread)


def readers_of(
    wiring: Wiring,
    world: "TransferPorts",
    source: SourceFileSystem,
    *,
    hosts: SiteHosts,
    reread: bool = False,
    frozen: bool = False,
) -> "Readers":
    """The hosts of a run as readers of content. `reread`: they read the source's content even if it was digested while it was
    copied. `frozen` as in `Readers`.
    """
    from migrator.verify.content import Readers

    has_bricks = world.bricks is not None and any(not lane.reads_mount for lane in world.lanes)
    return Readers(
        lanes=world.lanes,
        guard=world.bricks,
        chunk_lists=world.chunk_lists,
        copy_digests=None if reread or not wiring.source_tool.kind.ctimes.holds else world.copy_digests,
        governing=world.governing,
        scan=scanning(wiring, world, hosts=hosts, via="bricks") if has_bricks else None,
        marks=marks_reader(wiring.site, source, hosts) if has_bricks else None,
        frozen=frozen,
    )
