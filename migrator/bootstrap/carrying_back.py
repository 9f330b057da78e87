"""What carrying back is made of: the sides of one user tree, and the site of its rollback."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from migrator import bootstrap
from migrator.adapters.catalog.comparison import ComparisonFiles
from migrator.adapters.catalog.manifest import ManifestDirectories
from migrator.adapters.catalog.retained import changed_source
from migrator.adapters.catalog.store import CatalogDirectories
from migrator.adapters.catalog.switched import SwitchedCatalogFiles
from migrator.adapters.durable import write_durably
from migrator.adapters.executors.local import LocalExecutor
from migrator.adapters.executors.local_host import LocalHost
from migrator.adapters.filesystems.back_sides import SourceSide, TargetSide
from migrator.adapters.filesystems.gluster import GlusterSource
from migrator.adapters.filesystems.moving import MovingTarget
from migrator.adapters.filesystems.posix import PosixSource
from migrator.adapters.ledger.exchanged import ProofLedger
from migrator.adapters.ledger.sqlite import SqliteLedger, open_ledger
from migrator.adapters.output.run_files import DirectoryRunFiles
from migrator.adapters.plans.chunk_lists import ChunkListFiles
from migrator.adapters.plans.documents import PlanFiles
from migrator.adapters.plans.move_lists import MoveListFiles
from migrator.bootstrap.back_ledgers import back_directory, back_ledger
from migrator.bootstrap.deltas import SCAN_WORKERS
from migrator.bootstrap.scanning import user_map
from migrator.bootstrap.streams import OWN_HOST, OneHost, Places, WayMaker
from migrator.decide.engine_choice import DRIVERS, copies_ranges
from migrator.decide.packing import ChunkLimits
from migrator.domain.archives import ARCHIVE_DIRECTORY
from migrator.domain.brick import VolumeState
from migrator.domain.convergence import Limits
from migrator.domain.cutover import CutoverRecord
from migrator.domain.entry import EntryType
from migrator.domain.errors import ToolFailed
from migrator.domain.paths import parent
from migrator.domain.run import RetryPolicy, RunRequest
from migrator.domain.scan import CatalogRecord
from migrator.domain.site import TargetCapabilities
from migrator.domain.trash import trash_place
from migrator.domain.verification import DigestPolicy, VerificationRecord
from migrator.ports.carrying_back import SourceChange, SourceChangeKind
from migrator.ports.hosts import Host
from migrator.ports.lanes import Way
from migrator.ports.ledger import Ledger
from migrator.ports.progress import Progress
from migrator.ports.site import SiteRecord
from migrator.ports.streams import Executor
from migrator.stages.carry_back import BackParts, CarryingBack
from migrator.stages.carry_back.back_site import PLAN, exchanged
from migrator.stages.run.delta import Deltas
from migrator.stages.run.lanes import HostLane, LaneSet
from migrator.stages.scan import ScanRequest, scan

_GIVEN_UP = "given-up"
"""In the directory of a rollback: the paths, each with a NUL, that are carried back whether they changed or not."""


def carrying_back(
    wiring: bootstrap.Wiring, *, own: Ledger, known: SiteRecord, progress: Progress, policy: DigestPolicy
) -> CarryingBack:
    """Carrying back for one site. `own` is the ledger of the migration, `known` the site as that has it; `policy` is how
    much content is verified.
    """
    return CarryingBack(BackSites(wiring, own=own, known=known, progress=progress, policy=policy))


class BackSites:
    """The `Openings` port: `state_dir/back/NUMBER-TOKEN`, by the number and the token of the cutover."""

    def __init__(
        self, wiring: bootstrap.Wiring, *, own: Ledger, known: SiteRecord, progress: Progress, policy: DigestPolicy
    ) -> None:
        self._wiring = wiring
        self._own = own
        self._known = known
        self._progress = progress
        self._policy = policy

    @property
    def policy(self) -> DigestPolicy:
        """As it was given."""
        return self._policy

    @contextmanager
    def read(self, record: CutoverRecord) -> Iterator[Ledger | None]:
        """The ledger, as the port says. One whose making was interrupted is none yet."""
        with back_ledger(self._wiring, record) as ledger:
            yield ledger

    @asynccontextmanager
    async def open(self, record: CutoverRecord) -> AsyncIterator[BackParts]:
        """The whole site, as the port says."""
        directory, wiring = self._directory(record), self._wiring
        with self._ledger(directory) as ledger, wiring.source() as real:
            kept = ledger.site.read()
            source, target = self._sides(record, real, kept.capabilities if kept else None)
            moves, here = MovingTarget(wiring.source_root), _Here()
            try:
                yield self._parts(
                    record,
                    directory,
                    ledger=ledger,
                    source=source,
                    target=target,
                    moves=moves,
                    here=here,
                )
            finally:
                await here.close()
                for side in (source, target, moves):
                    side.close()

    @contextmanager
    def tops(self, record: CutoverRecord) -> Iterator[tuple[SourceSide, TargetSide, TargetCapabilities | None]]:
        """Both sides, as the port says."""
        with self._wiring.source() as real:
            source, target = self._sides(record, real, None)
            try:
                yield source, target, self._known.capabilities
            finally:
                source.close()
                target.close()

    def changed_source(
        self, record: CutoverRecord, *, before: str, now: str, carried: Sequence[str]
    ) -> Sequence[SourceChange]:
        """By the migration's own catalogs, as the port says."""
        catalogs, back = self._wiring.site.catalogs_dir, self._directory(record) / "catalogs"
        return changed_source(
            catalogs / before,
            catalogs / now,
            tree=record.tree.path,
            carried=[back / name for name in carried],
            ctimes=self._wiring.site.source.kind != "gluster",
            temp_dir=self._wiring.temp_dir,
        )

    def give_up_source(self, record: CutoverRecord, changes: Sequence[SourceChange], *, at_s: float) -> int:
        """Note down what is overwritten, and keep what stands there, as the port says."""
        directory = self._directory(record)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        again = {*self._given_up(directory)}
        for change in changes:
            # What was made and what is moved away changes the times of the directory that holds it.
            again |= {change.path, parent(change.path)}
        write_durably(directory / _GIVEN_UP, b"".join(path + b"\0" for path in sorted(again)))
        place, kept = trash_place(at_s, record.id, "rollback", 0), 0
        moves = MovingTarget(self._wiring.source_root)
        try:
            moves.open_place(place)
            for change in changes:
                # Of a directory that was there before only attributes differ, and what lies in it is listed by itself.
                if change.stands is EntryType.DIRECTORY and change.kind is SourceChangeKind.CHANGED:
                    continue
                kept += moves.trash(change.path, place) is not None
        finally:
            moves.close()
        return kept

    @staticmethod
    def _given_up(directory: Path) -> tuple[bytes, ...]:
        try:
            return tuple(path for path in (directory / _GIVEN_UP).read_bytes().split(b"\0") if path)
        except FileNotFoundError:
            return ()

    def _sides(
        self, record: CutoverRecord, real: PosixSource | GlusterSource, kept: TargetCapabilities | None
    ) -> tuple[SourceSide, TargetSide]:
        wiring, tree = self._wiring, record.tree.path
        source = SourceSide(wiring.source_root, kept, tree=tree, hidden=ARCHIVE_DIRECTORY, real=real)
        known = self._known.capabilities
        return source, TargetSide(wiring.target_root, known, tree=tree, hidden=ARCHIVE_DIRECTORY, other=real)

    def _directory(self, record: CutoverRecord) -> Path:
        return back_directory(self._wiring, record)

    @contextmanager
    def _ledger(self, directory: Path) -> Iterator[SqliteLedger]:
        with open_ledger(directory / "ledger.db", create=True) as ledger:
            if ledger.site.read() is None:
                ledger.site.create(exchanged(self._known, None))
            (directory / "made").touch()
            yield ledger

    def _parts(
        self,
        record: CutoverRecord,
        directory: Path,
        *,
        ledger: SqliteLedger,
        source: SourceSide,
        target: TargetSide,
        moves: MovingTarget,
        here: "_Here",
    ) -> BackParts:
        wiring, site = self._wiring, self._wiring.site
        lists = ChunkListFiles(directory / "plans", splits_dir=directory / "splits", passes_dir=directory / "passes")
        return BackParts(
            site=self._known,
            source=source,
            target=target,
            # Its device number changes with every mount: a file system of servers, or of FUSE.
            flushes=self._known.source.device is None,
            proof=self._proof(record),
            own_documents=wiring.plans(self._known.site_id),
            reap_lists=wiring.reap_lists(),
            switched=SwitchedCatalogFiles(
                directory / "catalogs", manifests=wiring.manifests(), hidden=ARCHIVE_DIRECTORY, temp_dir=wiring.temp_dir
            ),
            ledger=ledger,
            proof_ledger=ProofLedger.over(ledger, site=self._known, own=self._own),
            chunk_lists=lists,
            list_writer=lists,
            documents=PlanFiles(directory / "plans", site_id=self._known.site_id),
            manifests=ManifestDirectories(
                directory / "manifests", catalogs_dir=directory / "catalogs", temp_dir=wiring.temp_dir
            ),
            files=DirectoryRunFiles(directory / "runs"),
            lanes=self._lanes(ledger, here),
            deltas=self._deltas(directory, lists, ledger=ledger, target=target, moves=moves),
            request=self._request(record),
            policy=self._policy,
            verify_workers=site.verify.workers,
            progress=self._progress,
            clock=wiring.clock,
            activity=wiring.activity(),
            blocking=wiring.blocking(),
            tokens=bootstrap.new_token,
        )

    def _proof(self, record: CutoverRecord) -> VerificationRecord | None:
        """The verification that the cutover was switched with."""
        found = self._own.verifications.of_plan(record.plan)
        return next((one for one in found if one.id == record.notes.verification_id), None)

    def _request(self, record: CutoverRecord) -> RunRequest:
        transfer = self._wiring.site.transfer
        return RunRequest(
            plan=PLAN,
            batches=(record.id,),
            jobs=transfer.jobs,
            pid=os.getpid(),
            engine=self._engine,
            lease_s=transfer.lease_s,
            bwlimit_bytes_per_s=transfer.bwlimit_bytes_per_s,
            retry=RetryPolicy(),
            stall_timeout_s=transfer.stall_timeout_s,
            sample_interval_s=transfer.sample_interval_s,
            reserve_bytes=transfer.reserve_bytes,
        )

    @property
    def _engine(self) -> str:
        """Drivers take whole trees, and only what changed is carried."""
        engine = self._wiring.site.transfer.engine
        return "auto" if engine in DRIVERS else engine

    def _lanes(self, ledger: Ledger, here: "_Here") -> LaneSet:
        """This machine, through both mounts."""

        async def no_volume() -> VolumeState:
            raise ToolFailed("what is carried back is not read from bricks")

        wiring = self._wiring
        maker = WayMaker(wiring.site, known=ledger.site.read(), volume=no_volume)
        places = Places(source=wiring.target_root, target=wiring.source_root, own=True)

        async def make(host: Host, brick: str | None) -> Way:
            way = await maker.way(host, brick, places)
            here.executors.append(way.executor)
            return way

        hosts = OneHost(here.host)
        return LaneSet(
            [HostLane(OWN_HOST, jobs=wiring.site.transfer.jobs, reads_mount=True, hosts=hosts, make_way=make)]
        )

    def _deltas(
        self, directory: Path, lists: ChunkListFiles, *, ledger: SqliteLedger, target: TargetSide, moves: MovingTarget
    ) -> Deltas:
        wiring, site = self._wiring, self._wiring.site
        transfer = site.transfer
        return Deltas(
            scan=self._scan(directory, ledger=ledger, target=target),
            comparisons=ComparisonFiles(directory / "catalogs", temp_dir=wiring.temp_dir),
            pass_lists=lists,
            move_lists=MoveListFiles(directory / "moves"),
            differing=ManifestDirectories(
                directory / "manifests", catalogs_dir=directory / "catalogs", temp_dir=wiring.temp_dir
            ),
            moves=moves,
            chunk_limits=ChunkLimits(
                max_bytes=transfer.chunk_size_bytes,
                max_files=transfer.chunk_files,
                range_size_bytes=transfer.range_size_bytes if copies_ranges(self._engine) else None,
            ),
            again=self._given_up(directory),
            max_shrink=transfer.max_shrink,
            trash_keep_s=transfer.trash_keep_s,
            limits=Limits(max_freeze_s=site.cutover.max_freeze_s, max_delta_passes=1),
        )

    def _scan(
        self, directory: Path, *, ledger: SqliteLedger, target: TargetSide
    ) -> Callable[[Sequence[bytes]], Awaitable[CatalogRecord]]:
        wiring, site = self._wiring, self._wiring.site

        async def scan_target(trees: Sequence[bytes]) -> CatalogRecord:
            return await scan(
                ScanRequest(
                    trees=site.users.trees,
                    exclude=site.users.exclude,
                    users=user_map(site),
                    via="mount",
                    workers=SCAN_WORKERS,
                    only=tuple(trees),
                ),
                source=target,
                ledger=ledger,
                catalogs=CatalogDirectories(directory / "catalogs", temp_dir=wiring.temp_dir),
                progress=self._progress,
                clock=wiring.clock,
            )

        return scan_target


class _Here:
    """This machine, with the executors that were made for it: they hold the source open, to tell of every error."""

    def __init__(self) -> None:
        self.host = LocalHost(name=OWN_HOST)
        self.executors: list[Executor] = []

    async def close(self) -> None:
        """Let go of all."""
        for executor in self.executors:
            if isinstance(executor, LocalExecutor):
                await executor.close()
        await self.host.close()
