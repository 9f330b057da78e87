"""The records that the engine of our own writes."""

from migrator.core.states import ChunkKind
from migrator.fs.model import TargetCapabilities
from migrator.plan.model import ListedPath
from migrator.transfer.engines.direct import DirectEngine
from migrator.transfer.model import StreamView
from migrator.transfer.ports import ChunkWork

VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")
TREE = b"home/alice"
ENGINE = DirectEngine(program=b"/opt/migrator-native", privileged=True)


def work(*paths: ListedPath, **keeps: bool) -> ChunkWork:
    return ChunkWork(kind=ChunkKind.FILES, tree=TREE, paths=paths, capabilities=TargetCapabilities(**keeps))  # type: ignore[arg-type]


def path(name: bytes, **facts: int | bool) -> ListedPath:
    return ListedPath(path=TREE + b"/" + name, **({"size_bytes": 1, "file_size_bytes": 7} | facts))  # type: ignore[arg-type]


def test_a_record_has_what_a_path_needs_and_no_more() -> None:
    listed = (path(b"plain", mtime_ns=5), path(b"linked", link_group=2**70 + 3))
    assert ENGINE.command(work(*listed), VIEW).stdin == b":plain\0l3:linked\0"
    assert ENGINE.command(work(*listed, keeps_hard_links=False), VIEW).stdin == b":plain\0:linked\0"
