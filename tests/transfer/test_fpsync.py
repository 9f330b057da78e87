"""The real fpsync and parsyncfp2 (or a stand-in with its options and faults) as drivers, over XFS."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pytest

from migrator.core.clock import SystemClock
from migrator.core.entry import UserTree
from migrator.core.errors import ToolFailed
from migrator.core.states import AttemptState, ChunkKind, ChunkState, PassKind
from migrator.core.tasks import SharedCall
from migrator.core.units import GIB, KIB
from migrator.fs.model import Need, TargetCapabilities
from migrator.fs.reading import PosixSource
from migrator.fs.writing import MountedTarget
from migrator.gluster.model import SourceHealth
from migrator.hosts import proc
from migrator.hosts.process import LocalProcesses
from migrator.lab.model import OddFiles
from migrator.ledger.ledger import Ledger, open_ledger
from migrator.operations.run_files import RunFiles
from migrator.plan.model import Batch, ListedPath
from migrator.transfer.context import HealthNow, Invocation, PassUnderWay, World
from migrator.transfer.engines.drivers import (
    Driver,
    DriverDirectories,
    Fpsync,
    Parsyncfp2,
    locate_fpsync,
    locate_parsyncfp2,
)
from migrator.transfer.executors import LocalExecutor
from migrator.transfer.model import AttemptRecord, ChunkRecord, RunRequest, StopReason
from migrator.transfer.passes import doubtful_trees, run_driver_step
from migrator.transfer.ports import Driving
from tests.support.fake_filesystem import IDENTITY
from tests.support.fakes import FakeChunkLists, FakeProgress, inline
from tests.support.native_builds import placing
from tests.support.plans import small_plan
from tests.support.records import site_record
from tests.support.snapshots import names_of, snapshot
from tests.support.streams import Ran, Streams, engine_of
from tests.support.xfs import XfsMount

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
        with RunFiles(self.directory / "runs", world.locks).open("run", 1.0) as directory:
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


pytestmark = pytest.mark.needs_root

TREE = b"home/alice"
ODD = b"home/odd"
SLOW = 24 * KIB
"""Bytes per second of a driver that is ended in the middle: it must be at work for some seconds."""


def programs() -> Sequence[bytes]:
    try:
        return locate_fpsync()
    except ToolFailed as error:
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.fixture
def driver() -> Fpsync:
    return Fpsync(programs(), privileged=True)


def fill(tree: Path, *, files: int, size_bytes: int = 100) -> None:
    """Files in a few directories; every tenth has a second name in a directory that is read at another time."""
    (tree / "linked").mkdir(parents=True)
    for number in range(files):
        above = tree / f"d{number % 5}"
        above.mkdir(exist_ok=True)
        file = above / f"f{number:04d}"
        file.write_bytes(os.urandom(8) + b"x" * size_bytes)
        if number % 10 == 0:
            (tree / "linked" / f"l{number:04d}").hardlink_to(file)


@pytest.fixture
def world(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount, driver: Fpsync) -> DriverWorld:
    fill(xfs_source.path / "home" / "alice", files=400)
    return DriverWorld(scratch, xfs_source.path, xfs_target.path, driver)


def equal_but(world: DriverWorld) -> dict[bytes, object]:
    """What differs between both sides, of what a stream can take."""
    here, there = (snapshot(os.fsencode(tree)) for tree in (world.source_tree, world.target_tree))
    return {name: (here[name], there.get(name)) for name in sorted(world.fitting()) if here[name] != there.get(name)}


def test_a_tree_is_brought_and_what_was_split_is_linked_by_the_look_that_follows(world: DriverWorld) -> None:
    asyncio.run(world.drive())
    assert world.chunk.state is ChunkState.DONE
    assert world.synced == 1
    (attempt,) = world.attempts
    assert (attempt.state, attempt.exit_code, attempt.engine) == (AttemptState.SUCCEEDED, 0, "fpsync")
    assert not list((world.directory / "drivers").rglob("part.*")), "its lists are not kept"
    assert world.target_tree.stat().st_mode & 0o777 == 0o700, "the tree's root stays closed"
    first, second = (world.target_tree / name for name in ("d0/f0000", "linked/l0000"))
    split = [number for number in range(0, 400, 10) if not same_file(world.target_tree, number)]
    assert split, "hard links over parts are what it cannot do"
    assert attempt.counters.files == 400 + len(split)
    assert first.read_bytes() == second.read_bytes()
    rest = world.copy_rest()
    assert rest[1].outcome.counters.size_bytes == 0, "nothing has to be sent again"
    assert equal_but(world) == {}


def same_file(tree: Path, number: int) -> bool:
    return (tree / f"d{number % 5}" / f"f{number:04d}").samefile(tree / "linked" / f"l{number:04d}")


def test_odd_files_do_no_harm(
    scratch: Path, odd_tree: tuple[Path, OddFiles], xfs_source: XfsMount, xfs_target: XfsMount, driver: Fpsync
) -> None:
    before = snapshot(os.fsencode(odd_tree[0]))
    world = DriverWorld(scratch, xfs_source.path, xfs_target.path, driver, tree=ODD, part_files=7)
    asyncio.run(world.drive())
    assert world.under_way.stop_found is None
    assert snapshot(os.fsencode(odd_tree[0])) == before, "the source was changed"
    arrived = snapshot(os.fsencode(world.target_tree))
    assert any(b"\n" in name for name in arrived), "names with newlines are no trouble for it"
    world.copy_rest()
    assert equal_but(world) == {}


def crawled(world: DriverWorld) -> bool:
    return any((world.directory / "drivers").rglob("fp_done"))


async def until_streams_work(world: DriverWorld, task: "asyncio.Task[object]") -> None:
    """The crawl has ended, and rsyncs are at work."""
    while not (crawled(world) and world.living(b"rsync")):
        assert not task.done(), task
        await asyncio.sleep(0.02)


@pytest.mark.exhaustive
@pytest.mark.parametrize("rebooted", [False, True])
def test_ended_in_the_middle_it_is_begun_again(world: DriverWorld, *, rebooted: bool) -> None:
    async def cancel() -> None:
        task = asyncio.create_task(world.drive(bwlimit_bytes_per_s=SLOW))
        await until_streams_work(world, task)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert not world.living()
    assert world.chunk.state is ChunkState.PENDING
    assert [attempt.state for attempt in world.attempts] == [AttemptState.INTERRUPTED]
    assert doubtful_trees(world.under_way) == {TREE}
    if rebooted:
        world.boot_id = "another"
    asyncio.run(world.drive())
    again = world.attempts[1]
    assert again.state is AttemptState.SUCCEEDED
    assert (" -I " in again.argv[again.argv.index("-o") + 1]) is rebooted
    assert (again.counters.files >= 400) is rebooted, "what had arrived is sent again after another boot alone"
    assert doubtful_trees(world.under_way) == frozenset()
    world.copy_rest()
    assert equal_but(world) == {}
    assert not list(world.target_tree.rglob(".*.??????"))


def test_a_missing_program_stops_it(world: DriverWorld) -> None:
    with pytest.raises(ToolFailed, match="fpsync was not found"):
        locate_fpsync(path="/nowhere")
    world.driver = Fpsync([b"/usr/bin/no-fpsync", *programs()[1:]], privileged=True)
    asyncio.run(world.drive())
    assert world.under_way.stop_found is not None
    assert world.under_way.stop_found[0] is StopReason.TOOL_MISSING
    world.driver = Fpsync([*programs()[:2], b"/usr/bin/no-rsync"], privileged=True)
    asyncio.run(world.drive())
    assert world.under_way.stop_found[0] is StopReason.TOOL_MISSING, world.under_way.stop_found


STAND_IN = Path(__file__).resolve().parent.parent / "fixtures" / "parsyncfp2"


def stand_in() -> list[bytes]:
    for name in ("perl", "fpart", "rsync", "ps"):
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not installed")
    return [os.fsencode(STAND_IN)]


@pytest.fixture(params=["stand-in", "real"])
def parsyncfp2(request: pytest.FixtureRequest) -> Parsyncfp2:
    if request.param == "stand-in":
        return Parsyncfp2(stand_in(), privileged=True)
    try:
        return Parsyncfp2(locate_parsyncfp2(), privileged=True)
    except ToolFailed as error:
        pytest.skip(f"{error.message} ({error.hint})")


@pytest.fixture
def many_parts(scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount, parsyncfp2: Parsyncfp2) -> DriverWorld:
    fill(xfs_source.path / "home" / "alice", files=300, size_bytes=16 * KIB)
    return DriverWorld(scratch, xfs_source.path, xfs_target.path, parsyncfp2, part_bytes=256 * KIB)


def test_a_tree_is_brought_although_it_ends_before_its_rsyncs(many_parts: DriverWorld) -> None:
    asyncio.run(many_parts.drive(bwlimit_bytes_per_s=8 * 1024 * KIB))
    assert many_parts.under_way.stop_found is None, many_parts.said
    assert many_parts.chunk.state is ChunkState.DONE
    assert not many_parts.living()
    assert [attempt.state for attempt in many_parts.attempts] == [AttemptState.SUCCEEDED], many_parts.said
    assert many_parts.attempts[0].counters.files >= 300
    assert many_parts.target_tree.stat().st_mode & 0o777 == 0o700, "the tree's root stays closed"
    rest = many_parts.copy_rest()
    assert rest[1].outcome.counters.size_bytes == 0, "nothing has to be sent again"
    assert equal_but(many_parts) == {}
