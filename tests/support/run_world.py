"""A whole small migration for tests of `run`: fake file systems and streams, a real ledger."""

import asyncio
import dataclasses
import functools
import itertools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec

from msgspec.structs import replace

from migrator.app.ledger import MigrationLedger
from migrator.beegfs.tool import StorageTargets
from migrator.catalog.copy_digests import CopyDigests
from migrator.catalog.model import ListedPath
from migrator.core.entry import UserTree
from migrator.core.states import CHUNK_ORDER, BatchState, ChunkKind, PassKind, PassState
from migrator.core.tasks import Blocking
from migrator.fs.model import TargetCapabilities
from migrator.hooks.calls import Hooks
from migrator.plan.model import Batch, Plan
from migrator.site.model import RSYNC
from migrator.transfer.context import TransferPorts as Outside
from migrator.transfer.governor import Governing
from migrator.transfer.model import FileProblem
from migrator.transfer.model_runs import RunRequest, RunSummary
from migrator.transfer.run import run_batches
from tests.support import fakes
from tests.support.fake_filesystem import IDENTITY, FakeFileSystem
from tests.support.fake_streams import FakeLane, FakeStreams
from tests.support.kills import Death, DoingHooks, Dying, Killed
from tests.support.plans import small_plan
from tests.support.records import site_record

P = ParamSpec("P")
ALICE, BOB = b"home/alice", b"home/bob"
LIST = "plan.chunks/batch-0001.parquet"


REQUEST = RunRequest(plan="plan", batches=(1,), jobs=2, pid=4711, reserve_bytes=0)


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test that is a coroutine in an event loop of its own."""

    @functools.wraps(test)
    def body(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return body


def listed(path: bytes, size_bytes: int = 1, group: int | None = None, link_to: bytes | None = None) -> ListedPath:
    return ListedPath(path=path, size_bytes=size_bytes, link_group=group, link_to=link_to)


@dataclass
class World:
    """Everything outside the program, over several runs of it."""

    ledger: MigrationLedger
    source: FakeFileSystem = field(default_factory=lambda: FakeFileSystem(b"/src"))
    target: FakeFileSystem = field(default_factory=lambda: FakeFileSystem(b"/dst"))
    lists: fakes.FakeChunkLists = field(default_factory=fakes.FakeChunkLists)
    documents: fakes.FakeDocuments = field(default_factory=fakes.FakeDocuments)
    progress: fakes.FakeProgress = field(default_factory=fakes.FakeProgress)
    locks: fakes.FakeLocks = field(default_factory=fakes.FakeLocks)
    files: fakes.FakeRunFiles = field(init=False)
    request: RunRequest = REQUEST
    blocking: Blocking = fakes.inline
    streams: FakeStreams = field(init=False)
    clock: fakes.VirtualClock = field(default_factory=fakes.VirtualClock)
    tokens: Callable[[], str] = field(init=False)
    more_lanes: list[FakeLane] = field(default_factory=list)
    bricks: Any = None
    storage: StorageTargets | None = None
    governing: Callable[[], Governing] | None = None
    hooks: Hooks = field(default_factory=DoingHooks)
    rsync_takes_bytes: int = 4000
    """The longest name that rsync takes, in a run with that engine."""

    def __post_init__(self) -> None:
        self.files = fakes.FakeRunFiles(self.locks)
        self.streams = FakeStreams(self.source, self.target)
        numbers = itertools.count(1)
        self.tokens = lambda: f"token-{next(numbers)}"

    async def run(self, death: Death | None = None, **changes: Any) -> RunSummary:
        request = replace(self.request, **changes)
        self.clock = clock = fakes.VirtualClock()
        ports: dict[str, Any] = {
            "source": self.source,
            "target": self.target,
            "streams": self.streams,
            "chunk_lists": self.lists,
            "documents": self.documents,
            "ledger": self.ledger,
            "locks": self.locks,
            "progress": self.progress,
            "files": self.files,
            "activity": fakes.still,
        }
        if death is not None:
            ports = {name: Dying(port, death) for name, port in ports.items()}
            self.locks.held.clear()
        streams = ports.pop("streams")
        rsync = dataclasses.replace(self.streams, name=RSYNC, longest_name_bytes=self.rsync_takes_bytes)
        own = FakeLane(streams, streams, request.jobs, rsync=rsync if request.engine == RSYNC else None)
        lanes: Any = [own, *self.more_lanes]
        ports["lanes"] = lanes
        ports["bricks"], ports["driving"], ports["storage"] = self.bricks, None, self.storage
        files = ports.pop("files")
        ports["governing"] = None if self.governing is None else self.governing()
        # Fake streams report no digests.
        ports["copy_digests"] = CopyDigests(Path("no-digests"))
        world = Outside(clock=clock, tokens=self.tokens, blocking=self.blocking, **ports)
        return await run_batches(request, world, files=files, hooks=self.hooks)

    def run_until(self, death: Death) -> bool:
        """Run until the program is killed, and its streams with it; whether that came before the end."""
        try:
            asyncio.run(self.run(death))
        except BaseExceptionGroup as group:
            if not group.subgroup(Killed):
                raise
        except Killed:
            pass
        finally:
            self.streams.alive.clear()
        return death.happened

    def leave_attempt(self, host: str = "here", at_s: float = 1.0, *, batch: int = 1) -> int:
        """A seed pass with an attempt at its first chunk of files that a killed run has left unfinished; its chunk."""
        passes = self.ledger.passes
        chunks = self.lists.chunks(LIST)
        passes.start(
            plan="plan", batch=batch, kind=PassKind.SEED, catalog="c", chunk_list=LIST, chunks=chunks, at_s=at_s
        )
        chunk = passes.pending(1, "files", 9)[0].id
        killed = self.ledger.runs.start(verb="run", pid=1, at_s=at_s, directory="runs/killed")
        passes.intend(chunk_id=chunk, run_id=killed, token="old", host=host, engine="fake", argv=(), at_s=at_s)
        return chunk

    @property
    def pass_state(self) -> PassState:
        record = self.ledger.passes.find("plan", 1, PassKind.SEED)
        assert record is not None
        return record.state

    @property
    def attention(self) -> Sequence[FileProblem]:
        record = self.ledger.passes.find("plan", 1, PassKind.SEED)
        return () if record is None else self.ledger.passes.attention(record.id)

    @property
    def vanished(self) -> int:
        record = self.ledger.passes.find("plan", 1, PassKind.SEED)
        return 0 if record is None else self.ledger.passes.vanished_count(record.id)

    @property
    def batch_state(self) -> BatchState:
        record = self.ledger.plans.read("plan")
        assert record is not None
        return record.batches[1]

    def is_copied(self, *but: bytes) -> bool:
        """Whether the target holds what the source holds, except for some paths."""
        wanted = {path: node for path, node in self.source.shown().items() if path not in but}
        found = {path: node for path, node in self.target.shown().items() if path in wanted}
        return wanted == found


def small_world(
    directory: Path,
    *,
    files: int = 8,
    per_chunk: int = 2,
    trees: Sequence[bytes] = (ALICE,),
    bricks: Sequence[str | None] = (None,),
) -> World:
    """A batch of some trees with so many files each, one link group in the first and a link between trees."""
    ledger = MigrationLedger.open(directory / "ledger.db", create=True)
    world = World(ledger=ledger)
    for tree in trees:
        world.source.add(tree)
        world.source.add(tree + b"/sub")
        for number in range(files):
            world.source.add(tree + b"/sub/f%02d" % number, b"content %d" % number)
    plan_chunks(world, trees, per_chunk, bricks)
    record_plan(world, trees)
    return world


def plan_chunks(world: World, trees: Sequence[bytes], per_chunk: int, bricks: Sequence[str | None] = (None,)) -> None:
    """Chunk lists over what the source holds now; chunks of files go to the bricks by turns."""
    turns = itertools.cycle(bricks)
    for kind in CHUNK_ORDER:
        for tree in trees:
            paths = [path for path in sorted(world.source.nodes) if path.startswith(tree + b"/")]
            directories = [path for path in paths if world.source.nodes[path].type.value == "directory"]
            content = [path for path in paths if path not in directories]
            match kind:
                case ChunkKind.DIRECTORIES | ChunkKind.DIRECTORY_TIMES:
                    world.lists.add(LIST, kind, tree, [listed(path, 0) for path in directories])
                case ChunkKind.FILES:
                    for first in range(0, len(content), per_chunk):
                        some = content[first : first + per_chunk]
                        world.lists.add(LIST, kind, tree, [_row(world, path) for path in some], next(turns))
                case ChunkKind.LINKS | ChunkKind.RANGES | ChunkKind.RANGED_FILES | ChunkKind.TREE:
                    pass


def plan_in_ranges(world: World, path: bytes, sizes_bytes: Sequence[int], brick: str) -> None:
    """Lists a file in ranges of these sizes as well, so that it is put in place when they are there."""
    (tree,) = {chunk.tree for chunk in world.lists.chunks(LIST)}
    for size_bytes in sizes_bytes:
        world.lists.add(LIST, ChunkKind.RANGES, tree, [listed(path, size_bytes)], brick)
    world.lists.add(LIST, ChunkKind.RANGED_FILES, tree, [listed(path, 0)], brick)
    record_plan(world)


def record_plan(world: World, trees: Sequence[bytes] = (ALICE,)) -> Plan:
    """The site and the plan, in the ledger."""
    plan = small_plan()
    chunks = list(world.lists.chunks(LIST))
    users = tuple(UserTree(path=tree, user=tree.rpartition(b"/")[2].decode()) for tree in trees)
    batch: Batch = replace(
        plan.batches[0],
        trees=users,
        chunks=len(chunks),
        chunk_list=LIST,
        chunk_list_digest=f"digest of {LIST}",
    )
    plan = replace(plan, batches=(batch,))
    path, checksum = world.documents.write(plan)
    world.ledger.site.create(
        site_record(IDENTITY, site_id=plan.site_id, capabilities=TargetCapabilities(), capabilities_probed_at_s=1.0)
    )
    world.ledger.plans.record(plan, path=path, checksum=checksum)
    return plan


def _row(world: World, path: bytes) -> ListedPath:
    node = world.source.nodes[path]
    names = [name for name, other in world.source.nodes.items() if other is node]
    return listed(path, len(node.content), node.ino if len(names) > 1 else None)
