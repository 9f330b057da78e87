"""The wiring: creates every implementation for a site and hands it to the stages as ports."""

import asyncio
import os
import secrets
from collections.abc import Callable
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from migrator.catalog.ports import Scratch
from migrator.core.clock import Clock, SystemClock
from migrator.core.errors import UsageError
from migrator.core.progress import Progress
from migrator.core.tasks import DaemonThreads
from migrator.fs.beneath import read_mounts
from migrator.fs.kinds.table import KINDS
from migrator.fs.model import mount_of
from migrator.fs.ports import SourceFileSystem
from migrator.gluster.model import volume_state
from migrator.hosts.ports import Processes
from migrator.ledger.locks import Locks
from migrator.reap.rules import atime_problem
from migrator.site.config import Site

if TYPE_CHECKING:
    from migrator.app.ledger import MigrationLedger
    from migrator.beegfs.tool import BeegfsTargets
    from migrator.catalog.copy_digests import CopyDigests
    from migrator.catalog.files import ClosedCatalogs
    from migrator.catalog.manifest import ManifestDirectories
    from migrator.catalog.queries import CatalogReads
    from migrator.catalog.records import CatalogLedger
    from migrator.catalog.writer import CatalogDirectories
    from migrator.fs.moving import MovingTarget
    from migrator.fs.reading import PosixSource
    from migrator.fs.writing import MountedTarget
    from migrator.gluster.volume import GlusterSource
    from migrator.hooks.calls import Hooks
    from migrator.ledger.ledger import Ledger
    from migrator.ledger.model import SiteRecord
    from migrator.notices.model import NoticePlace
    from migrator.operations.journal import Journal
    from migrator.operations.run_files import RunFiles
    from migrator.plan.chunk_lists import ChunkListFiles
    from migrator.plan.document import PlanFiles
    from migrator.plan.model import Plan
    from migrator.plan.store import CatalogQueryFiles
    from migrator.reap.store import ReapListFiles
    from migrator.site.filesystem import FileSystemCommand
    from migrator.transfer.delta.store import Comparisons, MoveListFiles
    from migrator.transfer.executors import LocalExecutor


def processes() -> Processes:
    """The programs of this machine."""
    from migrator.hosts.process import LocalProcesses

    return LocalProcesses()


def new_token() -> str:
    """A new random token."""
    return secrets.token_hex(16)


class OperationPorts(TypedDict):
    """The ports that all tracked operations have."""

    hooks: "Hooks"
    ledger: "MigrationLedger"
    locks: Locks
    files: "RunFiles"
    progress: Progress
    clock: Clock
    blocking: DaemonThreads
    tokens: Callable[[], str]


class Wiring:
    """The implementations for one site, created and imported on demand, so that no verb waits for libraries of
    others. File systems are opened anew for every call.
    """

    def __init__(self, site: Site, *, own_journal: bool = True) -> None:
        """`own_journal` False: the site is that of a rollback, which the journal of the migration covers."""
        self.site = site
        self._own_journal = own_journal
        self.clock = SystemClock()
        self.blocking = DaemonThreads()

    @cached_property
    def processes(self) -> Processes:
        """The programs of this machine."""
        return processes()

    @property
    def source_root(self) -> bytes:
        return os.fsencode(self.site.source.mount)

    @property
    def target_root(self) -> bytes:
        return os.fsencode(self.site.target.root)

    @property
    def scratch(self) -> Scratch:
        return Scratch(self.site.site.state_dir / "tmp", self.site.site.memory_bytes)

    @property
    def rollbacks(self) -> Path:
        """The directory with the sites of all rollbacks."""
        return self.site.site.state_dir / "back"

    def upgrade_rollbacks(self) -> None:
        """Upgrade the ledgers of all rollbacks that an earlier release made. Raises as `Ledger.open`."""
        from migrator.app.ledger import MigrationLedger

        for made in sorted(self.rollbacks.glob("*/made")):
            MigrationLedger.open(made.with_name("ledger.db"), clock=self.clock).close()

    def ledger(self, *, create: bool = False, read_only: bool = False) -> "MigrationLedger":
        """The ledger; the caller closes it. Raises UsageError if there is none, or if it belongs to a site of another
        name.
        """
        from migrator.app.ledger import MigrationLedger

        name = self.site.site.name
        ledger = MigrationLedger.open(self.site.ledger_file, create=create, read_only=read_only, clock=self.clock)
        ledger.site.rewritten_links = self.site.rewritten_links
        known = ledger.site.read()
        if known is not None and known.name != name:
            ledger.close()
            raise UsageError(
                f"the ledger {ledger.file} belongs to the site {known.name!r}, not to {name!r}",
                cause="[site] state_dir names the directory of another site, or [site] name was changed",
                hint="correct state_dir or name in site.toml",
            )
        return ledger

    def locks(self) -> Locks:
        journal = self.journal().note if self._own_journal else None
        return Locks(self.site.site.state_dir / "locks", self.clock, journal)

    def journal(self) -> "Journal":
        """The journal of the site, on the target."""
        from migrator.operations.journal import Journal

        return Journal(self.target_root, self.site.ledger_file, self.clock, new_token)

    def source(self) -> "closing[PosixSource | GlusterSource]":
        """The source, for the length of a block. Raises UsageError."""
        from migrator.fs.reading import PosixSource

        is_gluster = self.site.source.kind == "gluster"
        return closing(self._gluster_source() if is_gluster else PosixSource(self.source_root, self.source_tool))

    @cached_property
    def source_tool(self) -> "FileSystemCommand":
        """The own command of the source's file system. Gluster's is asked by the source itself."""
        from migrator.beegfs.tool import BeegfsTargets
        from migrator.site.filesystem import FileSystemCommand

        section, root = self.site.source, self.source_root
        is_beegfs = section.kind == "beegfs"
        also = BeegfsTargets(processes=self.processes, mount=root, root=root).problems if is_beegfs else None
        return FileSystemCommand(KINDS[section.kind], root, self.processes, also=also)

    @cached_property
    def target_tool(self) -> "FileSystemCommand":
        """The own command of the target's file system. BeeGFS's is `storage_targets`."""
        from migrator.site.filesystem import FileSystemCommand

        return FileSystemCommand(KINDS[self.site.target.kind], self.target_root, self.processes)

    def _gluster_source(self) -> "GlusterSource":
        from migrator.gluster.volume import GlusterCommands, GlusterSource
        from migrator.hosts.process import LocalConversation

        section = self.site.source
        if section.volume is None:
            raise UsageError("[source] volume is missing", hint="name the Gluster volume in site.toml")
        commands = GlusterCommands(
            self.processes,
            self.clock,
            volume=section.volume,
            gluster=section.gluster,
            conversations=LocalConversation,
        )
        return GlusterSource(self.source_root, commands, shields=self.site.shields_dir)

    def target(self, known: "SiteRecord | None" = None) -> "closing[MountedTarget]":
        """The target, for the length of a block; `known` is the site in the ledger."""
        from migrator.fs.writing import MountedTarget

        return closing(
            MountedTarget(
                self.target_root,
                known.capabilities if known else None,
                self.target_tool,
                owners=self.site.users.owners,
                links=self.site.rewritten_links,
            )
        )

    def storage_targets(self) -> "BeegfsTargets | None":
        """The storage targets of the target; None, without running any tool, if it is not BeeGFS."""
        section = self.site.target
        if section.kind != "beegfs":
            return None
        from migrator.beegfs.tool import BeegfsTargets

        return BeegfsTargets(
            processes=self.processes,
            mount=os.fsencode(section.mount),
            root=self.target_root,
            command=section.beegfs,
            owners=self.site.users.owners,
        )

    def catalogs(self) -> "CatalogDirectories":
        """The catalogs, for writing."""
        from migrator.catalog.writer import CatalogDirectories

        return CatalogDirectories(self.site.catalogs_dir, scratch=self.scratch)

    def closed_catalogs(self, ledger: "CatalogLedger") -> "ClosedCatalogs":
        """The catalogs, for reading."""
        from migrator.catalog.files import ClosedCatalogs

        return ClosedCatalogs(self.site.catalogs_dir, ledger.scans.named)

    def catalog_queries(self, ledger: "CatalogLedger") -> "CatalogQueryFiles":
        """The catalogs, for planning."""
        from migrator.plan.store import CatalogQueryFiles

        return CatalogQueryFiles(self.closed_catalogs(ledger), scratch=self.scratch)

    def catalog_reads(self, ledger: "CatalogLedger") -> "CatalogReads":
        """Samples, and use and content of bricks, from catalogs."""
        from migrator.catalog.queries import CatalogReads

        return CatalogReads(self.closed_catalogs(ledger), scratch=self.scratch)

    def manifests(self, ledger: "CatalogLedger") -> "ManifestDirectories":
        from migrator.catalog.manifest import ManifestDirectories

        return ManifestDirectories(self.site.manifests_dir, catalogs=self.closed_catalogs(ledger), scratch=self.scratch)

    @property
    def switched_link(self) -> str | None:
        """The path of users that a cutover switches; None if hooks make the switch."""
        cutover = self.site.cutover
        return cutover.link if cutover.switch == "symlink" else None

    def notice_place(self, ledger: "Ledger") -> "NoticePlace":
        """The site in notices to users. Raises UsageError before `init`."""
        from migrator.notices.model import NoticePlace

        known = ledger.site.required()
        return NoticePlace(
            site=known.name,
            site_id=known.site_id,
            source_root=self.source_root,
            target_root=self.target_root,
            link=self.switched_link,
            times=self.site.cutover.times,
        )

    def plans(self, known: "SiteRecord | None") -> "PlanFiles":
        """The plan documents of the site in the ledger; None: of any site, read-only."""
        from migrator.plan.document import PlanFiles

        return PlanFiles(self.site.site.plans_dir, site_id=known.site_id if known else None)

    def plan(self, ledger: "Ledger", name: str) -> "Plan":
        """A plan of this site. Raises UsageError, and Refused if it belongs to another site or was changed."""
        return self.plans(ledger.site.read()).read(name)[0]

    def copy_digests(self) -> "CopyDigests":
        """The digests that streams reported of what they copied."""
        from migrator.catalog.copy_digests import CopyDigests

        return CopyDigests(self.site.digests_dir)

    def chunk_lists(self) -> "ChunkListFiles":
        """The chunk lists of plans, of later passes, and of split chunks."""
        from migrator.plan.chunk_lists import ChunkListFiles

        site = self.site.site
        return ChunkListFiles(
            site.plans_dir, splits_dir=site.state_dir / "splits", passes_dir=site.state_dir / "passes"
        )

    def reap_lists(self) -> "ReapListFiles":
        from migrator.reap.store import ReapListFiles

        return ReapListFiles(self.site.site.plans_dir)

    async def atime_problem(self, source: SourceFileSystem) -> str | None:
        """Why the source does not keep access times; None if it does, or if neither [reap] nor [transfer] uses them."""
        if not (self.site.reap.policy.needs_atime or self.site.transfer.atimes):
            return None
        health, shown = await asyncio.gather(
            source.health(), asyncio.to_thread(lambda: mount_of(read_mounts(), os.path.realpath(self.source_root)))
        )
        state = volume_state(health)
        options = None if state is None else dict(state.options)
        return atime_problem(self.site.source.kind, options, shown)

    def comparisons(self, ledger: "CatalogLedger") -> "Comparisons":
        """The comparison of two catalogs."""
        from migrator.transfer.delta.store import Comparisons

        return Comparisons(self.closed_catalogs(ledger), scratch=self.scratch)

    def move_lists(self) -> "MoveListFiles":
        """The move lists of delta passes."""
        from migrator.transfer.delta.store import MoveListFiles

        return MoveListFiles(self.site.site.state_dir / "moves")

    def target_moves(self) -> "closing[MovingTarget]":
        """Renames on the target, and its trash, for the length of a block."""
        from migrator.fs.moving import MovingTarget

        return closing(MovingTarget(self.target_root))

    def run_files(self) -> "RunFiles":
        from migrator.operations.run_files import RunFiles

        return RunFiles(self.site.runs_dir, self.locks())

    def hooks(self) -> "Hooks":
        from migrator.hooks.calls import Hooks
        from migrator.hosts.process import LocalProcesses

        return Hooks(
            processes=LocalProcesses(one_output=True),
            directory=os.fsencode(self.site.site.hooks_dir),
            site_file=os.fsencode(self.site.file),
            source_root=self.source_root,
            target_root=self.target_root,
            timeout_s=self.site.hooks.timeout_s,
        )

    def operation_ports(self, ledger: "MigrationLedger", progress: Progress) -> OperationPorts:
        return OperationPorts(
            hooks=self.hooks(),
            ledger=ledger,
            locks=self.locks(),
            files=self.run_files(),
            progress=progress,
            clock=self.clock,
            blocking=self.blocking,
            tokens=new_token,
        )

    def executor(self) -> "LocalExecutor":
        from migrator.native.program import native_program
        from migrator.transfer.executors import LocalExecutor

        async def compiled() -> bytes:
            return native_program().path

        return LocalExecutor(
            self.processes, source_root=self.source_root, target_root=self.target_root, compiled=compiled
        )
