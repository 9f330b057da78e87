"""What the run stage relies on in an engine; run against every adapter of the port."""

from pathlib import Path

import pytest

from migrator.core.states import ChunkKind
from migrator.fs.model import TargetCapabilities
from migrator.hosts.ports import Completed
from migrator.plan.model import ListedPath
from migrator.transfer.model import StreamCounters, Verdict
from migrator.transfer.ports import ChunkWork, Engine, StreamView
from tests.support.streams import Streams, engine_of, make_trees
from tests.transfer.native_copy import direct_engine

VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")
TREE = b"home/alice"


@pytest.fixture(params=[engine_of, direct_engine], ids=["rsync", "direct"])
def engine(request: pytest.FixtureRequest) -> Engine:
    made: Engine = request.param()
    return made


def work(*names: bytes, kind: ChunkKind = ChunkKind.FILES) -> ChunkWork:
    paths = [ListedPath(path=TREE + b"/" + name, size_bytes=1) for name in names]
    return ChunkWork(kind=kind, tree=TREE, paths=paths, capabilities=TargetCapabilities())


@pytest.mark.parametrize("exit_code", [*range(1, 256), *range(-64, 0)])
def test_a_bad_end_without_a_word_is_never_done(engine: Engine, exit_code: int) -> None:
    reader = engine.reader(work(b"one"), VIEW)
    outcome = reader.outcome(Completed(exit_code=exit_code, stdout=b"", stderr=b"", timed_out=False))
    assert outcome.verdict is not Verdict.DONE
    assert outcome.message


def test_endless_complaints_take_bounded_memory_and_are_never_done(engine: Engine) -> None:
    reader = engine.reader(work(b"one"), VIEW)
    for _ in range(50):
        reader.stderr(b"x" * (1 << 20))
    outcome = reader.outcome(Completed(exit_code=23, stdout=b"", stderr=b"", timed_out=False))
    assert outcome.verdict is Verdict.RETRY


@pytest.mark.needs_root
def test_it_copies_and_a_second_time_it_has_nothing_to_do(engine: Engine, scratch: Path) -> None:
    source, target = make_trees(scratch / "s", scratch / "t", tree=TREE)
    (source / "file").write_bytes(b"content")
    streams = Streams(engine, scratch / "s", scratch / "t")
    first = streams.run([TREE + b"/file"], tree=TREE)
    assert (first.outcome.verdict, first.outcome.counters) == (Verdict.DONE, StreamCounters(files=1, size_bytes=7))
    assert (target / "file").read_bytes() == b"content"
    second = streams.run([TREE + b"/file"], tree=TREE)
    assert (second.outcome.verdict, second.outcome.counters) == (Verdict.DONE, StreamCounters())
