"""Content that hosts read before the comparison: by the compiled program, on lanes of this machine."""

import asyncio
import os
import subprocess
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace

from migrator.catalog.copy_digests import CopyDigests
from migrator.catalog.model import ListedPath, VerificationRecord
from migrator.core.errors import Interrupted, ToolFailed
from migrator.core.events import Event, EventKind
from migrator.core.states import BatchState, ChunkKind, ChunkState, PassKind, PassState
from migrator.core.units import NS_PER_S
from migrator.fs.model import DifferenceKind
from migrator.fs.reading import ReadingFileSystem
from migrator.gluster.model import BrickRules, VolumeHealth
from migrator.hosts.local import LocalHost
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Completed, Host, HostLost
from migrator.hosts.process import LocalProcesses
from migrator.transfer.executors import LocalExecutor
from migrator.transfer.governor import Governing
from migrator.transfer.model import StreamCounters
from migrator.transfer.model_governor import Limits
from migrator.transfer.ports import BrickReadiness, ConnectedHost
from migrator.transfer.routes import HostLane
from migrator.verify.content import ContentReader, Readers
from migrator.verify.listings import Listings
from tests.support.fakes import FakeChunkLists, FakeProgress
from tests.support.native_builds import built, missing_for_native, placing
from tests.support.verify_world import TREE, World, verify_world
from tests.support.volumes import volume

pytestmark = pytest.mark.skipif(missing_for_native() is not None, reason=str(missing_for_native()))

LIST, BRICK = "plan.chunks/batch-0001.parquet", "gl1:/brick"
NAMES = (b"a", b"b", b"sub/c", b"sub/d")
MARGIN_NS = NS_PER_S // 10
RULES = BrickRules(times_from_mdata=True, distributed=True)


@pytest.fixture(autouse=True)
def short_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.verify.model.CTIME_MARGIN_NS", MARGIN_NS)


class Guard:
    """A volume: quiet, or with reasons against its bricks."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, ...]] = []

    async def look(self) -> BrickReadiness:
        return BrickReadiness(reasons=self.answers.pop(0) if self.answers else (), fingerprint="f")


@dataclass
class Site:
    """A verified tree in miniature, with a lane of the mount and one of a brick server that reads the same directory."""

    world: World
    lists: FakeChunkLists = field(default_factory=FakeChunkLists)
    guard: Any = field(default_factory=Guard)
    calls: list[tuple[str, bool, tuple[bytes, ...]]] = field(default_factory=list)
    """The side and the paths that the hosts were given."""
    reads: list[bytes] = field(default_factory=list)
    """The paths whose content this machine read through the source's mount."""
    limits: list[int | None] = field(default_factory=list)
    before_read: Callable[[str], Awaitable[None] | None] = lambda _host: None
    pass_id: int | None = None
    reread: bool = False

    def begin_pass(self) -> int:
        """The seed pass over what is listed."""
        if self.pass_id is None:
            chunks, plan = self.lists.chunks(LIST), self.world.plan.name
            seed: Any = {"kind": PassKind.SEED, "catalog": "c", "chunk_list": LIST, "chunks": chunks}
            self.pass_id = self.world.ledger.passes.start(plan=plan, batch=1, at_s=time.time(), **seed).id
        return self.pass_id

    def end_pass(self) -> None:
        self.world.ledger.passes.set_state(self.begin_pass(), PassState.DONE, time.time())

    def list_files(self, *chunks: Sequence[bytes], brick: str | None = BRICK) -> None:
        for names in chunks:
            paths = [ListedPath(path=TREE + b"/" + name, size_bytes=1) for name in names]
            self.lists.add(LIST, ChunkKind.FILES, TREE, paths, brick)

    def lane(self, host: str, *, reads_mount: bool) -> HostLane:
        site, world = self, self.world

        class Executor(LocalExecutor):
            async def digest(self, paths: Sequence[bytes], *, of_target: bool, **options: Any) -> Completed:
                if (held := site.before_read(host)) is not None:
                    await held
                site.calls.append((host, of_target, tuple(path.removeprefix(TREE + b"/") for path in paths)))
                assert options.pop("brick") == (None if host == "here" or of_target else RULES)
                site.limits.append(options["bwlimit_bytes_per_s"])
                return await super().digest(paths, of_target=of_target, brick=None, **options)

        async def reach(_: str) -> Host:
            return LocalHost(name=host)

        async def prepare(reached: Host, brick: str | None) -> ConnectedHost:
            executor = Executor(
                LocalProcesses(),
                source_root=world.source_root,
                target_root=world.target_root,
                compiled=placing(),
                host=reached.name,
            )
            return ConnectedHost(executor=executor, engines={}, brick=None if brick is None else RULES)

        return HostLane(host, 2, reads_mount=reads_mount, reach=reach, prepare=prepare)

    def readers(self) -> Readers:
        self.begin_pass()
        lists: Any = self.lists
        lanes = [self.lane(host, reads_mount=host == "here") for host in ("here", "gl1", "gl2")]
        return Readers(
            lanes=lanes, guard=self.guard, chunk_lists=lists, copy_digests=None if self.reread else self.copy_digests
        )

    @property
    def copy_digests(self) -> CopyDigests:
        return CopyDigests(self.world.tree.parent / "digests")

    def verify(self, **options: Any) -> VerificationRecord:
        self.calls.clear()
        self.reads.clear()
        return self.world.verify(readers=self.readers(), **options)

    def read_ahead(self) -> None:
        self.calls.clear()
        self.world.read_ahead(readers=self.readers(), carry=True)

    def given(self, *, of_target: bool = False) -> list[bytes]:
        return sorted(path for _, side, paths in self.calls if side is of_target for path in paths)


@pytest.fixture
def site(scratch: Path) -> Iterator[Site]:
    with verify_world(scratch) as world:
        (world.tree / "sub").mkdir(parents=True)
        for name in NAMES:
            (world.tree / os.fsdecode(name)).write_bytes(name * 1000)
        world.copy_trees()
        time.sleep(2 * MARGIN_NS / NS_PER_S)
        yield Site(world, reads=world.watch_reads())


@pytest.fixture
def each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No chunks are read together."""
    monkeypatch.setattr("migrator.verify.content._GROUP_FILES", 1)


def test_hosts_read_both_sides_once_and_this_machine_nothing(site: Site) -> None:
    site.list_files(NAMES[:2], NAMES[1:3])  # as after a delta pass that sent one again
    site.list_files(NAMES[3:], brick=None)
    site.end_pass()
    record = site.verify()
    assert (record.whole, dict(record.differences), record.digested_files) == (True, {}, 4)
    assert (record.percent_content, site.world.batch_state()) == (100.0, BatchState.VERIFIED)
    assert site.given() == site.given(of_target=True) == sorted(NAMES)
    read_on = {paths: host for host, of_target, paths in site.calls if not of_target}
    assert read_on == {NAMES[:3]: "gl1", NAMES[3:]: "here"}, "small chunks of a brick are read together"
    assert site.reads == []
    rows = [row for row in site.world.manifest_rows(record) if row["type"] == "file"]
    assert {row["read_by"] for row in rows} == {record.id}
    # Its manifest is as good as any: nothing is read again.
    again = site.verify(carry=True)
    assert (again.carried_files, site.calls, site.reads) == (4, [], [])


def test_content_read_ahead_is_not_read_again(site: Site) -> None:
    site.list_files(NAMES)
    site.read_ahead()
    assert site.given() == site.given(of_target=True) == sorted(NAMES)
    assert site.world.ledger.verifications.newest_id() == 0
    # But by one that reads the source again, whatever was digested while it was copied.
    site.reread = True
    assert site.verify().whole
    assert site.given() == site.given(of_target=True) == sorted(NAMES)
    site.reread = False
    site.end_pass()
    record = site.verify()
    assert (record.whole, record.digested_files, site.given(), site.reads) == (True, 4, [], [])
    # That verification is the proof of what passes brought before it.
    site.read_ahead()
    assert site.given() == []


def test_files_digested_while_copied_are_read_on_the_target_only(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    names, again = (*NAMES, b"late"), b"sub/again"
    for tree in (site.world.tree, site.world.copy):
        os.link(tree / "sub" / "d", tree / "sub" / "again")
    time.sleep(2 * MARGIN_NS / NS_PER_S)
    listed = [(name, 7 if name in (b"sub/d", again) else None) for name in (*names, again)]
    paths = [ListedPath(path=TREE + b"/" + name, size_bytes=1, link_group=group) for name, group in listed]
    site.lists.add(LIST, ChunkKind.FILES, TREE, paths, BRICK)
    passes, directory = site.world.ledger.passes, str(site.world.tree.parent / "run")
    (copied,) = passes.copied(site.begin_pass(), [ChunkKind.FILES])
    for tree in (site.world.tree, site.world.copy):
        (tree / "late").write_bytes(b"made after the pass began")
        for changed in (tree / "late", tree / "sub", tree):
            os.utime(changed, ns=(0, 0))
    digest = [str(built()), "digest", "--tree", str(site.world.tree)]
    done = subprocess.run(digest, input=b"".join(b":%s\0" % name for name in names), capture_output=True, check=True)
    run_id = site.world.ledger.runs.start(verb="run", pid=1, at_s=1.0, directory=directory)
    begun: Any = {"run_id": run_id, "token": "t", "host": "gl1", "engine": "direct", "argv": (), "at_s": 1.0}
    ended: Any = {"at_s": 1.0, "exit_code": 0, "counters": StreamCounters(), "stderr_tail": b"", "problems": ()}
    attempt_id = passes.intend(chunk_id=copied.chunk.id, **begun)
    passes.started(attempt_id, ProcessIdentity(pid=1, start_ticks=1, boot_id="b"))
    passes.finish(attempt_id, state="succeeded", chunk_state=ChunkState.DONE, **ended)
    site.copy_digests.keep("t", done.stdout)
    change_both_alike(site)
    time.sleep(2 * MARGIN_NS / NS_PER_S)
    record = site.verify()
    assert (record.whole, dict(record.differences), record.digested_files) == (True, {}, 6)
    assert (site.given(), site.given(of_target=True)) == ([], sorted((*names, again)))
    # What has changed since the stream read it, or changed after the pass began, is read again.
    assert sorted(site.reads) == [b"a", b"late"]
    site.reread = True
    assert site.verify().digested_files == 6
    assert (site.given(), site.reads) == (sorted((*names, again)), [])
    monkeypatch.setattr(ReadingFileSystem, "trusted_ctimes", False)
    site.reread = False
    assert (site.verify().digested_files, site.calls) == (6, [])
    # Two threads may read both names of a file at the same time.
    assert {b"sub/d" if path == again else path for path in site.reads} == {*NAMES, b"late"}


@pytest.mark.usefixtures("each_alone")
def test_the_hosts_of_all_copies_read(site: Site) -> None:
    state = volume(BRICK, "gl2:/copy", replica_count=2)
    site.world.source.answers = (VolumeHealth(problems=(), fingerprint="f", state=state),)
    site.list_files(*([name] for name in NAMES))
    assert site.verify().digested_files == 4
    assert ({host for host, *_ in site.calls}, site.reads) == ({"gl1", "gl2"}, [])


def change_source(site: Site) -> None:
    (site.world.tree / "a").write_bytes(b"#" * 1000)


def change_both_alike(site: Site) -> None:
    facts = (site.world.tree / "a").stat()
    for tree in (site.world.tree, site.world.copy):
        (tree / "a").write_bytes(b"#" * 1000)
        os.utime(tree / "a", ns=(facts.st_atime_ns, facts.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "differences"),
    [
        (change_source, {DifferenceKind.CONTENT.value: 1, DifferenceKind.MTIME.value: 1}),
        (change_both_alike, {}),
    ],
)
def test_a_file_that_changed_since_hosts_read_it_is_read_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, change: Callable[[Site], None], differences: dict[str, int]
) -> None:
    site.list_files(NAMES)
    read, listed, changed = ContentReader.read_chunks, Listings.of_both, asyncio.Event()

    async def change_afterwards(content: ContentReader, *given: Any) -> None:
        await read(content, *given)
        change(site)
        changed.set()

    async def list_then(listings: Listings, *given: Any) -> Any:
        await changed.wait()
        return await listed(listings, *given)

    monkeypatch.setattr(ContentReader, "read_chunks", change_afterwards)
    monkeypatch.setattr(Listings, "of_both", list_then)
    record = site.verify()
    assert site.reads == [b"a"]
    assert dict(record.differences) == differences


def test_files_that_differ_or_are_in_no_list_are_left_to_this_machine(site: Site) -> None:
    site.list_files([b"a", b"b", b"gone"])
    facts = (site.world.copy / "a").stat()
    (site.world.copy / "a").write_bytes(b"#" * 1000)
    os.utime(site.world.copy / "a", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    record = site.verify()
    assert sorted(site.reads) == [b"a", b"sub/c", b"sub/d"]
    assert dict(record.differences) == {DifferenceKind.CONTENT.value: 1}
    assert record.digested_files == 3


@pytest.mark.usefixtures("each_alone")
@pytest.mark.parametrize("is_old", [False, True])
def test_an_interrupted_verification_reads_on_where_it_was(site: Site, is_old: bool) -> None:
    site.list_files(*([name] for name in NAMES), brick=None)

    async def interrupted() -> None:
        running = asyncio.current_task()
        assert running is not None
        read: list[str] = []

        def stop_at_the_third(host: str) -> None:
            read.append(host)
            if len(read) > 4:
                running.cancel()

        site.before_read = stop_at_the_third
        readers = site.readers()
        readers.lanes[0].jobs = 1
        await site.world.verify_now(readers=replace(readers, lanes=readers.lanes[:1], guard=None))

    with pytest.raises(Interrupted) as raised:
        asyncio.run(interrupted())
    assert "hosts have read" in raised.value.hint
    site.before_read = lambda _host: None
    if is_old:
        for part in (site.world.manifests.directory / ".readings").rglob("chunk-*"):
            os.utime(part, (1, 1))
    record = site.verify()
    assert site.given() == sorted(NAMES if is_old else NAMES[2:])
    assert (record.digested_files, record.carried_files, site.reads) == (4, 0, [])
    # And the next one, which was not interrupted, reads everything.
    site.verify()
    assert site.given() == sorted(NAMES)


def test_chunks_of_a_lost_host_are_read_through_the_mount(site: Site) -> None:
    site.list_files(NAMES[:2], NAMES[2:])

    def lose(host: str) -> None:
        if host == "gl1":
            raise HostLost("it is gone")

    site.before_read = lose
    record = site.verify()
    assert {host for host, *_ in site.calls} == {"here"}
    assert (record.digested_files, dict(record.differences), site.reads) == (4, {}, [])
    (lost,) = [event for event in site.world.progress.events if event.kind is EventKind.HOST_LOST]
    assert "gl1" in lost.message


@pytest.mark.usefixtures("each_alone")
def test_a_host_that_answers_again_reads_its_brick_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.transfer.pool._FIRST_PAUSE_S", 0.001)
    site.list_files(*([name] for name in NAMES))
    tried, again = Counter[str](), asyncio.Event()

    async def lose_once(host: str) -> None:
        tried[host] += 1
        if host == "gl1" and tried[host] == 1:
            raise HostLost("it is gone")
        if host == "gl1":
            again.set()
        await again.wait()

    site.before_read = lose_once
    record = site.verify()
    assert "gl1" in {host for host, *_ in site.calls}
    assert (record.digested_files, dict(record.differences), site.reads) == (4, {}, [])
    assert EventKind.HOST_FOUND in {event.kind for event in site.world.progress.events}


@pytest.mark.usefixtures("each_alone")
@pytest.mark.parametrize("patience_s", [0.0, 180.0])
def test_files_that_no_host_can_read_are_left_to_this_machine(
    site: Site, monkeypatch: pytest.MonkeyPatch, patience_s: float
) -> None:
    monkeypatch.setattr("migrator.verify.content.PATIENCE_S", patience_s)
    monkeypatch.setattr("migrator.transfer.pool._FIRST_PAUSE_S", 0.001)
    site.list_files(*([name] for name in NAMES))

    def lose(host: str) -> None:
        raise ToolFailed("the program cannot run")

    site.before_read = lose
    record = site.verify()
    assert (record.digested_files, dict(record.differences), sorted(site.reads)) == (4, {}, sorted(NAMES))


@pytest.mark.parametrize("answers", [[("a task runs",)], [(), ("a task runs",)]])
def test_a_brick_counts_only_while_the_volume_is_quiet(site: Site, answers: list[tuple[str, ...]]) -> None:
    site.list_files(NAMES)
    site.guard.answers = answers
    record = site.verify()
    (by_mount,) = [paths for host, of_target, paths in site.calls if host == "here" and not of_target]
    assert (by_mount, record.digested_files) == (NAMES, 4)


def test_other_algorithms_missing_lists_and_samples(site: Site) -> None:
    site.list_files(NAMES)
    assert site.verify(algorithm="sha256").digested_files == 4
    assert (site.calls, sorted(site.reads)) == ([], sorted(NAMES))
    site.lists.lists, lists = {}, site.lists.lists
    assert site.verify().digested_files == 4
    site.lists.lists = lists
    record = site.verify(share=0.5)
    assert 0 < len(site.given()) < 4
    assert (record.digested_files, site.reads) == (len(site.given()), [])


@pytest.mark.usefixtures("each_alone")
def test_streams_share_the_limit_of_runs_and_wait_while_the_migration_is_paused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.transfer.governor.LOOK_EVERY_S", 0.01)
    site.list_files(*([name] for name in NAMES))
    ledger = site.world.ledger
    ledger.controls.hold(by="root", reason="a test", at_s=1.0)

    async def paused_first() -> VerificationRecord:
        told = asyncio.Event()

        class Told(FakeProgress):
            def event(self, event: Event) -> None:
                if "no chunk starts until it is resumed" in event.message:
                    told.set()

        site.world.progress = Told()
        governing = Governing(
            ledger=ledger,
            load_of=AsyncMock(return_value=None),
            limits=Limits(bwlimit_bytes_per_s=40_000_000),
            windows=(),
            local_time=lambda _at_s: (0, 0),
            in_words=str,
        )
        readers = replace(site.readers(), governing=governing)
        verifying = asyncio.create_task(site.world.verify_now(readers=readers))
        await told.wait()
        assert site.calls == []
        ledger.controls.resume(by="root", at_s=2.0)
        return await verifying

    record = asyncio.run(paused_first())
    assert (record.digested_files, site.reads) == (4, [])
    # One host has work, with two streams; each reads both sides.
    assert site.limits == [20_000_000] * 8
