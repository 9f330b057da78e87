"""One user tree between two real file systems, with a real ledger, for tests of the step that runs drivers."""

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from migrator.core.clock import SystemClock
from migrator.core.entry import UserTree
from migrator.core.states import ChunkKind, PassKind
from migrator.core.tasks import SharedCall
from migrator.core.units import GIB
from migrator.fs.model import Need, TargetCapabilities
from migrator.fs.reading import PosixSource
from migrator.fs.writing import MountedTarget
from migrator.gluster.model import SourceHealth
from migrator.hosts import proc
from migrator.hosts.process import LocalProcesses
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.plan.model import Batch, ListedPath
from migrator.transfer.context import HealthNow, Invocation, PassUnderWay, World
from migrator.transfer.engines.drivers import Driver, DriverDirectories
from migrator.transfer.executors import LocalExecutor
from migrator.transfer.model import AttemptRecord, ChunkRecord, RunRequest
from migrator.transfer.passes import run_driver_step
from migrator.transfer.ports import Driving
from migrator.transfer.run_files import RunFiles
from tests.support.fake_filesystem import IDENTITY
from tests.support.fakes import FakeChunkLists, FakeProgress, inline
from tests.support.native_builds import placing
from tests.support.plans import small_plan
from tests.support.records import site_record
from tests.support.snapshots import names_of
from tests.support.streams import Ran, Streams, engine_of

LIST = "plan.chunks/batch-0001.parquet"
_NOT_USED: Any = None


class BootedExecutor(LocalExecutor):
    """On a machine that was started when the test says."""

    boot = ""

    @property
    def boot_id(self) -> str:
        return self.boot


@dataclass
class DriverWorld:
    """`drive` is one run of the step; everything stays for the next. `copy_rest` is the ordinary look that follows."""

    directory: Path
    source: Path
    target: Path
    driver: Driver
    tree: bytes = b"home/alice"
    jobs: int = 3
    part_files: int = 50
    part_bytes: int = GIB
    request: RunRequest = field(
        default_factory=lambda: RunRequest(
            plan="plan", batches=(1,), jobs=3, pid=os.getpid(), progress_interval_s=0.05, sample_interval_s=0.2
        )
    )
    ledger: Ledger = field(init=False)
    pass_id: int = field(init=False)
    lists: FakeChunkLists = field(default_factory=FakeChunkLists)
    progress: FakeProgress = field(default_factory=FakeProgress)
    states: DriverDirectories = field(init=False)
    boot_id: str = field(default_factory=proc.boot_id)
    synced: int = 0
    tokens: list[str] = field(default_factory=list)
    under_way: PassUnderWay = field(init=False)

    def __post_init__(self) -> None:
        self.ledger = open_ledger(self.directory / "ledger.db", create=True)
        self.states = DriverDirectories(self.directory / "drivers")
        self.target_tree.mkdir(parents=True, mode=0o700)
        plan = small_plan()
        self.batch: Batch = replace(
            plan.batches[0], trees=(UserTree(path=self.tree, user="alice"),), chunk_list=LIST, chunk_list_digest="d"
        )
        _, others = self.names()
        listed = [ListedPath(path=self.tree + b"/" + name, size_bytes=1) for name in others]
        self.lists.add(LIST, ChunkKind.FILES, self.tree, listed)
        self.ledger.site.create(site_record(IDENTITY, site_id=plan.site_id))
        self.ledger.plans.record(plan, path="plan.json", checksum="c")
        chunks = list(self.lists.chunks(LIST))
        self.pass_id = self.ledger.passes.start(
            plan=plan.name,
            batch=1,
            kind=PassKind.SEED,
            catalog=plan.catalog,
            chunk_list=self.batch.chunk_list,
            chunks=chunks,
            at_s=1.0,
        ).id

    @property
    def source_tree(self) -> Path:
        return self.source / os.fsdecode(self.tree)

    @property
    def target_tree(self) -> Path:
        return self.target / os.fsdecode(self.tree)

    def names(self) -> tuple[list[bytes], list[bytes]]:
        return names_of(os.fsencode(self.source_tree))

    async def drive(self, **changes: Any) -> None:
        """Run the step; `changes` are of the request."""
        async with self._step(**changes) as (under_way, driving):
            await run_driver_step(under_way, driving)

    def copy_rest(self) -> Sequence[Ran]:
        """All names, in chunks as a pass has them."""
        streams = Streams(engine_of(), self.source, self.target)
        directories, others = self.names()
        return [
            streams.run(self._fitting(streams, names), tree=self.tree, kind=kind)
            for kind, names in (
                (ChunkKind.DIRECTORIES, directories),
                (ChunkKind.FILES, others),
                (ChunkKind.DIRECTORY_TIMES, directories),
            )
        ]

    def fitting(self) -> set[bytes]:
        """The names that an ordinary stream can take: others go by descriptor."""
        engine, names = engine_of(), self.names()
        return {name for name in (*names[0], *names[1]) if engine.fits(self.tree, self.tree + b"/" + name)}

    @property
    def chunk(self) -> ChunkRecord:
        (chunk,) = self.ledger.passes.add_trees(self.pass_id, {self.tree: Need()})
        return chunk

    @property
    def attempts(self) -> Sequence[AttemptRecord]:
        return self.ledger.passes.attempts_of_chunk(self.chunk.id)

    @property
    def said(self) -> list[str]:
        return [event.message for event in self.progress.events]

    def living(self, name: bytes = b"") -> list[int]:
        """The pids of all that drivers consist of, or only of programs of one name."""
        pids = [process.pid for found in proc.carriers(self.tokens).values() for process in found]
        return [pid for pid in pids if not name or _name_of(pid) == name]

    def _fitting(self, streams: Streams, names: Iterable[bytes]) -> list[bytes]:
        paths = (self.tree + b"/" + name for name in names)
        return [path for path in paths if streams.engine.fits(self.tree, path)]

    @asynccontextmanager
    async def _step(self, **changes: Any) -> AsyncIterator[tuple[PassUnderWay, Driving]]:
        source, target = PosixSource(os.fsencode(self.source)), MountedTarget(os.fsencode(self.target))
        ports: dict[str, Any] = {
            "source": source,
            "target": target,
            "chunk_lists": self.lists,
            "ledger": self.ledger,
            "progress": self.progress,
            "clock": SystemClock(),
            "blocking": inline,
            "tokens": self._token,
        }
        world = World(**{port.name: ports.get(port.name, _NOT_USED) for port in fields(World)})

        async def sync() -> None:
            self.synced += 1
            target.sync()

        async def health() -> HealthNow:
            return HealthNow(problems=(), doubts=())

        executor = BootedExecutor(
            LocalProcesses(grace_s=2.0),
            source_root=os.fsencode(self.source),
            target_root=os.fsencode(self.target),
            compiled=placing(),
        )
        executor.boot = self.boot_id
        driving = Driving(
            driver=self.driver,
            executor=executor,
            states=self.states,
            part_files=self.part_files,
            part_bytes=self.part_bytes,
        )
        with RunFiles(self.directory / "runs").open("run", 1.0) as directory:
            self.under_way = PassUnderWay(
                invocation=Invocation(
                    world=world, request=replace(self.request, **changes), run_id=self._run_id(), directory=directory
                ),
                batch=self.batch,
                pass_id=self.pass_id,
                kind=PassKind.SEED,
                chunk_list=self.batch.chunk_list,
                capabilities=TargetCapabilities(),
                health_before=_NO_HEALTH,
                sync=SharedCall(sync),
                health=SharedCall(health),
            )
            try:
                yield self.under_way, driving
            finally:
                self.under_way.sync.abandon()
                self.under_way.health.abandon()
                source.close()
                target.close()

    def _token(self) -> str:
        self.tokens.append(os.urandom(16).hex())
        return self.tokens[-1]

    def _run_id(self) -> int:
        return self.ledger.runs.start(verb="run", pid=os.getpid(), at_s=1.0, directory="runs")


def _name_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().strip()
    except OSError:
        return b""


_NO_HEALTH: SourceHealth = _NOT_USED
