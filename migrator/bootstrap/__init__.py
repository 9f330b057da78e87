"""The only place that knows every adapter: from a site to the ports that the stages ask for."""

import asyncio
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from migrator.adapters.clock import SystemClock
from migrator.adapters.executors.threads import DaemonExecutor, DaemonThreads
from migrator.adapters.ledger.locks import FlockLocks
from migrator.config.site import Site
from migrator.decide.reap import atime_problem
from migrator.domain.errors import UsageError
from migrator.domain.mounts import Mount, mount_of
from migrator.domain.site import TargetCapabilities
from migrator.ports.clock import Clock
from migrator.ports.filesystem import SourceFileSystem
from migrator.ports.processes import Processes

if TYPE_CHECKING:
    from migrator.adapters.beegfs.targets import BeegfsTargets
    from migrator.adapters.catalog.comparison import ComparisonFiles
    from migrator.adapters.catalog.manifest import ManifestDirectories
    from migrator.adapters.catalog.store import CatalogDirectories
    from migrator.adapters.catalog.usage import CatalogQueryFiles
    from migrator.adapters.executors.activity import ProcActivity
    from migrator.adapters.executors.local import LocalExecutor
    from migrator.adapters.filesystems.gluster import GlusterSource
    from migrator.adapters.filesystems.moving import MovingTarget
    from migrator.adapters.filesystems.posix import PosixSource
    from migrator.adapters.filesystems.target import MountedTarget
    from migrator.adapters.hooks.program import HookPrograms
    from migrator.adapters.ledger.sqlite import SqliteLedger
    from migrator.adapters.output.run_files import DirectoryRunFiles
    from migrator.adapters.plans.chunk_lists import ChunkListFiles
    from migrator.adapters.plans.documents import PlanFiles
    from migrator.adapters.plans.move_lists import MoveListFiles
    from migrator.adapters.plans.reap_lists import ReapListFiles


def clock() -> Clock:
    """The clocks of this machine."""
    return SystemClock()


def processes() -> Processes:
    """The programs of this machine."""
    from migrator.adapters.executors.process import LocalProcesses

    return LocalProcesses()


def let_no_thread_hold(loop: asyncio.AbstractEventLoop) -> None:
    """What hangs on a file system that does not answer must not keep the program from ending."""
    loop.set_default_executor(DaemonExecutor())


def mounts() -> tuple[Mount, ...]:
    """What is mounted on this machine, now. Raises OSError."""
    from migrator.adapters.filesystems.mountinfo import read_mounts

    return read_mounts()


def process_is_gone(pid: int, at_s: float) -> bool:
    """Whether the process that had this pid at that time is not on this machine any more."""
    from migrator.adapters.executors.proc import was_at_work

    return not was_at_work(pid, at_s)


def new_token() -> str:
    """A random token for one attempt."""
    return secrets.token_hex(16)


class Wiring:
    """The adapters of one site, made when they are asked for. File systems are opened anew for every call.

    They are also loaded then, with their libraries: no verb waits for those of others.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.clock = clock()

    @cached_property
    def processes(self) -> Processes:
        """The programs of this machine."""
        return processes()

    @property
    def source_root(self) -> bytes:
        """Where the source is mounted."""
        return os.fsencode(self.site.source.mount)

    @property
    def target_root(self) -> bytes:
        """Where the trees go."""
        return os.fsencode(self.site.target.root)

    @property
    def temp_dir(self) -> Path:
        """Where queries spill what does not fit into memory."""
        return self.site.site.state_dir / "tmp"

    def ledger(self, *, create: bool = False, read_only: bool = False) -> "SqliteLedger":
        """The ledger; the caller closes it. Raises UsageError where there is none."""
        from migrator.adapters.ledger.sqlite import open_ledger

        return open_ledger(self.site.ledger_file, create=create, read_only=read_only)

    def locks(self) -> FlockLocks:
        """The locks of the site."""
        return FlockLocks(self.site.site.state_dir / "locks", self.clock)

    @contextmanager
    def source(self) -> "Iterator[PosixSource | GlusterSource]":
        """The source, for the length of the block. Raises UsageError."""
        filesystem = self._gluster_source() if self.site.source.kind == "gluster" else self._posix_source()
        try:
            yield filesystem
        finally:
            filesystem.close()

    def _posix_source(self) -> "PosixSource":
        from migrator.adapters.filesystems.posix import PosixSource

        return PosixSource(self.source_root)

    def _gluster_source(self) -> "GlusterSource":
        from migrator.adapters.executors.conversation import LocalConversations
        from migrator.adapters.filesystems.gluster import GlusterCommands, GlusterSource

        section = self.site.source
        if section.volume is None:
            raise UsageError("[source] volume is missing", hint="name the Gluster volume in site.toml")
        commands = GlusterCommands(
            self.processes,
            self.clock,
            volume=section.volume,
            gluster=section.gluster,
            conversations=LocalConversations(),
        )
        return GlusterSource(self.source_root, commands, volume=section.volume)

    @contextmanager
    def target(self, capabilities: TargetCapabilities | None = None) -> "Iterator[MountedTarget]":
        """The target, for the length of the block; `capabilities` as the ledger has them."""
        from migrator.adapters.filesystems.target import MountedTarget

        filesystem = MountedTarget(self.target_root, capabilities)
        try:
            yield filesystem
        finally:
            filesystem.close()

    def storage_targets(self) -> "BeegfsTargets | None":
        """The storage targets of the target; None where it is no BeeGFS: then no tool is ever started."""
        section = self.site.target
        if section.kind != "beegfs":
            return None
        from migrator.adapters.beegfs.targets import BeegfsTargets

        return BeegfsTargets(
            processes=self.processes,
            mount=os.fsencode(section.mount),
            root=self.target_root,
            command=section.beegfs,
        )

    def catalogs(self) -> "CatalogDirectories":
        """The catalogs, for writing."""
        from migrator.adapters.catalog.store import CatalogDirectories

        return CatalogDirectories(self.site.catalogs_dir, temp_dir=self.temp_dir)

    def catalog_queries(self) -> "CatalogQueryFiles":
        """The catalogs, for planning."""
        from migrator.adapters.catalog.usage import CatalogQueryFiles

        return CatalogQueryFiles(self.site.catalogs_dir, temp_dir=self.temp_dir)

    def manifests(self) -> "ManifestDirectories":
        """The manifests."""
        from migrator.adapters.catalog.manifest import ManifestDirectories

        return ManifestDirectories(self.site.manifests_dir, catalogs_dir=self.site.catalogs_dir, temp_dir=self.temp_dir)

    def plans(self, site_id: str | None) -> "PlanFiles":
        """The plan documents; `site_id` None: of any site, for looking at them."""
        from migrator.adapters.plans.documents import PlanFiles

        return PlanFiles(self.site.site.plans_dir, site_id=site_id)

    def chunk_lists(self) -> "ChunkListFiles":
        """The chunk lists beside the plans, those of later passes, and those of split chunks."""
        from migrator.adapters.plans.chunk_lists import ChunkListFiles

        site = self.site.site
        return ChunkListFiles(
            site.plans_dir, splits_dir=site.state_dir / "splits", passes_dir=site.state_dir / "passes"
        )

    def reap_lists(self) -> "ReapListFiles":
        """The reap lists beside the plans."""
        from migrator.adapters.plans.reap_lists import ReapListFiles

        return ReapListFiles(self.site.site.plans_dir)

    async def atime_problem(self, source: SourceFileSystem) -> str | None:
        """Why the source does not tell when files were read; None where it does, and where no rule of [reap] asks."""
        policy = self.site.reap.policy
        if not any(rule.needs_atime for rule in (policy.rule, *policy.by_name.values())):
            return None
        health, shown = await asyncio.gather(source.health(), asyncio.to_thread(self._source_mount))
        options = None if health.state is None else dict(health.state.options)
        return atime_problem(self.site.source.kind, options, shown)

    def _source_mount(self) -> Mount | None:
        return mount_of(mounts(), os.path.realpath(self.source_root))

    def comparisons(self) -> "ComparisonFiles":
        """Catalogs, for comparing two of them."""
        from migrator.adapters.catalog.comparison import ComparisonFiles

        return ComparisonFiles(self.site.catalogs_dir, temp_dir=self.temp_dir)

    def move_lists(self) -> "MoveListFiles":
        """The move lists of delta passes."""
        from migrator.adapters.plans.move_lists import MoveListFiles

        return MoveListFiles(self.site.site.state_dir / "moves")

    @contextmanager
    def target_moves(self) -> "Iterator[MovingTarget]":
        """Renames on the target, and its trash, for the length of the block."""
        from migrator.adapters.filesystems.moving import MovingTarget

        moving = MovingTarget(self.target_root)
        try:
            yield moving
        finally:
            moving.close()

    def run_files(self) -> "DirectoryRunFiles":
        """Run directories."""
        from migrator.adapters.output.run_files import DirectoryRunFiles

        return DirectoryRunFiles(self.site.runs_dir)

    def hooks(self) -> "HookPrograms":
        """The hooks of the site."""
        from migrator.adapters.executors.process import LocalProcesses
        from migrator.adapters.hooks.program import HookPrograms

        return HookPrograms(
            LocalProcesses(one_output=True),
            directory=os.fsencode(self.site.site.hooks_dir),
            site_file=os.fsencode(self.site.file),
            timeout_s=self.site.hooks.timeout_s,
        )

    def activity(self) -> "ProcActivity":
        """Whether streams still do something."""
        from migrator.adapters.executors.activity import ProcActivity

        return ProcActivity()

    def blocking(self) -> DaemonThreads:
        """Threads for calls that may hang in the kernel."""
        return DaemonThreads()

    def executor(self) -> "LocalExecutor":
        """Streams on this machine."""
        from migrator.adapters.executors.local import LocalExecutor
        from migrator.adapters.native.program import native_program

        async def compiled() -> bytes:
            return native_program().path

        return LocalExecutor(
            self.processes, source_root=self.source_root, target_root=self.target_root, compiled=compiled
        )
