"""Which engine copies a chunk, and what the run stage relies on in one; run against every adapter of the port."""

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.catalog.model import SETTLED_BEFORE_SCAN_S, ListedPath
from migrator.core.states import ChunkKind
from migrator.core.units import NS_PER_S
from migrator.fs.model import TargetCapabilities
from migrator.hosts.ports import Completed
from migrator.lab.model import OddFiles
from migrator.plan.chunk_lists import ListedPaths
from migrator.site.model import DRIVERS
from migrator.transfer.engines.direct import DirectEngine
from migrator.transfer.engines.rsync import RsyncEngine
from migrator.transfer.meter import seconds_left
from migrator.transfer.model import AttemptVerdict, StreamCounters, StreamView
from migrator.transfer.ports import ChunkWork, CopyEngine
from migrator.transfer.rules import choose_engine
from tests.support.odd_trees import change_odd_tree, make_odd_tree
from tests.support.run_site import RealSite
from tests.support.snapshots import snapshot
from tests.support.streams import Streams, engine_of, make_trees
from tests.support.xfs import XfsMount
from tests.transfer.native_copy import direct_engine

VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")
TREE = b"home/alice"
FUTURE_S = 4_000_000_000


@pytest.fixture(params=[engine_of, direct_engine], ids=["rsync", "direct"])
def engine(request: pytest.FixtureRequest) -> CopyEngine:
    made: CopyEngine = request.param()
    return made


def work(*names: bytes, kind: ChunkKind = ChunkKind.FILES) -> ChunkWork:
    paths = [ListedPath(path=TREE + b"/" + name, size_bytes=1) for name in names]
    return ChunkWork(kind=kind, tree=TREE, paths=ListedPaths.of(paths), capabilities=TargetCapabilities())


def test_a_bad_end_without_a_word_is_never_done(engine: CopyEngine) -> None:
    for exit_code in (*range(1, 256), *range(-64, 0)):
        reader = engine.reader(work(b"one"), VIEW)
        outcome = reader.outcome(Completed(exit_code=exit_code, stdout=b"", stderr=b"", timed_out=False))
        assert outcome.verdict is not AttemptVerdict.DONE, exit_code
        assert outcome.message


def test_endless_complaints_take_bounded_memory_and_are_never_done(engine: CopyEngine) -> None:
    reader = engine.reader(work(b"one"), VIEW)
    for _ in range(50):
        reader.stderr(b"x" * (1 << 20))
    outcome = reader.outcome(Completed(exit_code=23, stdout=b"", stderr=b"", timed_out=False))
    assert outcome.verdict is AttemptVerdict.RETRY


@pytest.mark.needs_root
def test_it_copies_and_a_second_time_it_has_nothing_to_do(engine: CopyEngine, scratch: Path) -> None:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    (source / "file").write_bytes(b"content")
    streams = Streams(engine, scratch / "s", scratch / "t")
    first = streams.run([TREE + b"/file"], tree=TREE)
    assert (first.outcome.verdict, first.outcome.counters) == (
        AttemptVerdict.DONE,
        StreamCounters(files=1, size_bytes=7),
    )
    assert (target / "file").read_bytes() == b"content"
    time.sleep(SETTLED_BEFORE_SCAN_S + 0.1)
    (target / "file").chmod(0o600)  # a ctime that is later than the source's beyond doubt
    second = streams.run([TREE + b"/file"], tree=TREE)
    assert second.outcome.verdict is AttemptVerdict.DONE
    assert second.outcome.counters.size_bytes == 0


@pytest.mark.needs_root
@pytest.mark.parametrize("atimes", [True, False])
def test_access_times_are_carried_over_if_wanted(engine: CopyEngine, scratch: Path, atimes: bool) -> None:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    assert isinstance(engine, DirectEngine | RsyncEngine)
    streams = Streams(replace(engine, atimes=atimes), scratch / "s", scratch / "t")
    (source / "file").write_bytes(b"content")
    # rsync carries whole seconds.
    step = NS_PER_S if isinstance(engine, RsyncEngine) else 1
    # Earlier than the mtime: reading would set it.
    for atime_ns in (1_400_000_001_123_456_789, -1_500_000_001):
        os.utime(source / "file", ns=(atime_ns, FUTURE_S * NS_PER_S))
        assert streams.run([TREE + b"/file"], tree=TREE).outcome.verdict is AttemptVerdict.DONE
        assert (source / "file").stat().st_atime_ns == atime_ns
        seen = (target / "file").stat()
        assert ((seen.st_atime_ns == atime_ns // step * step), seen.st_mtime_ns) == (atimes, FUTURE_S * NS_PER_S)


@pytest.mark.needs_root
@pytest.mark.guarantee("ctime")
def test_the_built_in_engine_copies_a_file_again_that_was_rewritten_with_equal_size_and_mtime(scratch: Path) -> None:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    engine = direct_engine()
    streams = Streams(engine, scratch / "s", scratch / "t")
    (source / "file").write_bytes(b"before")
    os.utime(source / "file", (FUTURE_S, FUTURE_S))
    streams.run([TREE + b"/file"], tree=TREE)
    # On a volume of Gluster a write alone keeps an mtime in the future.
    (source / "file").write_bytes(b"after!")
    os.utime(source / "file", (FUTURE_S, FUTURE_S))
    streams.run([TREE + b"/file"], tree=TREE)
    assert (target / "file").read_bytes() == b"after!"


@dataclass
class Copied:
    """A site whose trees one engine copies. `run` makes the passes that are left, and returns its exit code."""

    site: RealSite
    engine: str

    @property
    def tree(self) -> Path:
        return self.site.source.path / "home" / "odd"

    def run(self) -> int:
        done = self.site.run("--engine", self.engine, "--deltas", "3")
        assert done.returncode in (0, 3), done.stderr
        return done.returncode

    def verify(self) -> int:
        return self.site.migrator("verify", "--user-batch", "1").returncode

    def differences(self) -> dict[bytes, tuple[object, object]]:
        """What the target has otherwise, path by path; nothing is left out."""
        here = snapshot(os.fsencode(self.tree))
        there = snapshot(os.fsencode(self.site.target.path / "home" / "odd"))
        return {name: (here.get(name), there.get(name)) for name in here | there if here.get(name) != there.get(name)}


def engines(*always: str) -> pytest.MarkDecorator:
    """Every engine, those that are not named here in exhaustive runs only."""
    names = ("auto", "rsync", "fpsync", "direct", "parsyncfp2")
    marks = {name: () if name in always else pytest.mark.exhaustive for name in names}
    return pytest.mark.parametrize("copied", [pytest.param(name, marks=marks[name]) for name in names], indirect=True)


@pytest.fixture
def copied(request: pytest.FixtureRequest, scratch: Path, xfs_source: XfsMount, xfs_target: XfsMount) -> Copied:
    """One site for each engine, not yet planned. `auto` is `direct`; both drivers take the same way."""
    engine: str = request.param
    if engine in DRIVERS and not all(map(shutil.which, ("fpsync", "fpart"))):
        pytest.skip("fpsync is not installed")
    site = RealSite(scratch / "site", xfs_source, xfs_target)
    if engine == "parsyncfp2" and shutil.which("parsyncfp2") is None:
        site.with_stand_in(scratch / "bin")
    return Copied(site=site, engine=engine)


@pytest.mark.needs_root
@engines("auto", "rsync")
def test_every_engine_brings_what_the_source_shows_by_seed_and_delta(
    copied: Copied, odd_tree: tuple[Path, OddFiles]
) -> None:
    tree, _ = odd_tree
    make_odd_tree(tree)
    before = snapshot(os.fsencode(tree))
    copied.site.prepare()
    assert copied.run() == 0
    assert copied.differences() == {}
    assert snapshot(os.fsencode(tree)) == before, "the source was changed"
    change_odd_tree(tree)
    assert copied.run() == 0
    assert copied.differences() == {}
    assert copied.verify() == 0


@pytest.mark.needs_root
@engines("auto", "fpsync")
def test_every_engine_repairs_by_delta_what_a_verification_found(copied: Copied) -> None:
    copied.tree.mkdir(parents=True)
    for name in ("kept", "damaged", "removed"):
        (copied.tree / name).write_text(name)
    copied.site.prepare()
    assert copied.run() == 0
    there = copied.site.target.path / "home" / "odd"
    seen = (there / "damaged").stat()
    (there / "damaged").write_text("DAMAGED")
    os.utime(there / "damaged", ns=(seen.st_atime_ns, seen.st_mtime_ns))
    (there / "removed").unlink()
    assert copied.verify() == 3
    assert copied.run() == 0
    assert copied.differences() == {}
    assert copied.verify() == 0


@pytest.mark.parametrize(
    ("requested", "kind", "from_brick", "expected"),
    [
        ("auto", ChunkKind.FILES, True, "direct"),
        ("auto", ChunkKind.FILES, False, "direct"),
        ("auto", ChunkKind.LINKS, False, "direct"),
        ("auto", ChunkKind.DIRECTORIES, False, "direct"),
        ("auto", ChunkKind.RANGED_FILES, False, "direct"),
        ("auto", ChunkKind.RANGES, False, "direct"),
        ("direct", ChunkKind.FILES, False, "direct"),
        ("rsync", ChunkKind.FILES, True, "direct"),
        ("rsync", ChunkKind.FILES, False, "rsync"),
        ("rsync", ChunkKind.RANGED_FILES, False, "rsync"),
        ("rsync", ChunkKind.LINKS, False, "direct"),
        ("rsync", ChunkKind.RANGES, False, None),
        ("fpsync", ChunkKind.RANGED_FILES, False, "rsync"),
        ("parsyncfp2", ChunkKind.RANGES, False, None),
    ],
)
def test_choice(*, requested: str, kind: ChunkKind, from_brick: bool, expected: str | None) -> None:
    assert choose_engine(requested, kind, from_brick=from_brick, beyond_rsync=False) == expected
    beyond = choose_engine(requested, kind, from_brick=from_brick, beyond_rsync=True)
    assert beyond == ("direct" if expected == "rsync" else expected)


def test_the_slower_of_files_and_bytes_counts() -> None:
    assert seconds_left(100, 1000, files_per_s=10.0, bytes_per_s=1000.0) == 10.0
    assert seconds_left(10, 5000, files_per_s=10.0, bytes_per_s=1000.0) == 5.0
    assert seconds_left(5, 10, files_per_s=0.0, bytes_per_s=10.0) is None
    assert seconds_left(0, 0, files_per_s=0.0, bytes_per_s=0.0) == 0.0
