"""The records that the engine of our own writes, and the lines that it reads."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migrator.core.states import ChunkKind
from migrator.fs.model import TargetCapabilities
from migrator.hosts.ports import Completed
from migrator.plan.model import ListedPath
from migrator.transfer.engines.direct import DirectEngine, DirectProgress
from migrator.transfer.model import FileProblemKind, StreamCounters, Verdict
from migrator.transfer.ports import BrickRules, ChunkWork, StreamView

VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")
TREE = b"home/alice"
ENGINE = DirectEngine(program=b"/opt/migrator-native", privileged=True)


def work(
    *paths: ListedPath,
    kind: ChunkKind = ChunkKind.FILES,
    brick: BrickRules | None = None,
    capabilities: TargetCapabilities | None = None,
    recopy: bool = False,
) -> ChunkWork:
    return ChunkWork(
        kind=kind,
        tree=TREE,
        paths=paths,
        capabilities=capabilities or TargetCapabilities(),
        brick=brick,
        recopy=recopy,
        bwlimit_bytes_per_s=5,
    )


def path(name: bytes, **facts: int | bool) -> ListedPath:
    return ListedPath(path=TREE + b"/" + name, **({"size_bytes": 1, "file_size_bytes": 7} | facts))  # type: ignore[arg-type]


def test_a_record_has_what_a_path_needs_and_no_more() -> None:
    listed = (
        path(b"plain", mtime_ns=5),
        path(b"linked", link_group=2**70 + 3),
    )
    assert ENGINE.command(work(*listed), VIEW).stdin == b":plain\0l3:linked\0"
    assert (
        b":linked\0"
        in ENGINE.command(work(*listed, capabilities=TargetCapabilities(keeps_hard_links=False)), VIEW).stdin.split(
            b"plain"
        )[1]
    )


@pytest.mark.parametrize("said", [b"F 1 bad source 2 open\n", b"hello\n", b"F 0 bad", b"x" * 10000])
def test_what_cannot_be_understood_is_never_done(said: bytes) -> None:
    reader = ENGINE.reader(work(path(b"one")), VIEW)
    reader.stdout(said)
    outcome = reader.outcome(Completed(exit_code=0, stdout=b"", stderr=b"", timed_out=False))
    assert outcome.verdict is Verdict.RETRY


@given(st.lists(st.integers(0, 200), max_size=20))
def test_pieces_may_be_cut_anywhere(cuts: list[int]) -> None:
    text = b"P 1 10\nF 0 changed source 0 -\nP 3 30\n"
    progress = DirectProgress(2)
    places = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    for start, end in itertools.pairwise(places):
        progress.take(text[start:end])
    assert not progress.garbled
    assert progress.counters == StreamCounters(files=3, size_bytes=30)
    assert [event.kind for event in progress.events] == [FileProblemKind.CHANGED]
