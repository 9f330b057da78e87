"""Chunk lists of passes after the seed: they lie in the state directory, beside those of split chunks."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from migrator.catalog.ports import ChunkLists
from migrator.catalog.rules_packing import PackedChunk
from migrator.core.errors import MigratorError, Refused
from migrator.core.states import ChunkKind, PassKind
from migrator.plan.chunk_lists import ChunkListFiles
from migrator.plan.ports import PassListWriter


@pytest.fixture
def lists(tmp_path: Path) -> ChunkListFiles:
    files = ChunkListFiles(
        tmp_path / "plans", splits_dir=tmp_path / "state" / "splits", passes_dir=tmp_path / "state" / "passes"
    )
    ports: tuple[ChunkLists, PassListWriter] = (files, files)
    assert len(ports) == 2
    return files


def chunk(number: int, paths: Sequence[bytes]) -> PackedChunk:
    return PackedChunk(
        number=number,
        batch=1,
        kind=ChunkKind.FILES,
        tree=b"home/alice",
        paths=list(paths),
        sizes_bytes=[10] * len(paths),
        link_groups=[None] * len(paths),
        links_to=[None] * len(paths),
        mtimes_ns=[5] * len(paths),
        brick=None,
    )


def test_are_written_into_the_state_directory_and_read_by_their_name(lists: ChunkListFiles, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    written = lists.write_pass("spring", 3, 2, [chunk(1, [b"-rf", b"a\nb"]), chunk(2, [b"\xff"])])
    assert (written.chunks, written.files, written.size_bytes) == (2, 3, 30)
    assert (tmp_path / "state" / written.chunk_list).is_file()
    assert [one.number for one in lists.chunks(written.chunk_list)] == [1, 2]
    assert [one.path for one in lists.paths(written.chunk_list, 1)] == [b"-rf", b"a\nb"]
    assert lists.digest(written.chunk_list) == written.digest
    assert not (tmp_path / "plans").exists()


def test_every_pass_has_its_own(lists: ChunkListFiles) -> None:
    names = {
        lists.write_pass(plan, batch, number, [chunk(1, [b"x"])], kind=kind).chunk_list
        for plan in ("spring", "summer")
        for batch in (1, 2)
        for number in (1, 2)
        for kind in (PassKind.DELTA, PassKind.FINAL)
    }
    assert len(names) == 16


def test_may_be_without_chunks(lists: ChunkListFiles) -> None:
    written = lists.write_pass("spring", 1, 1, [])
    assert (written.chunks, list(lists.chunks(written.chunk_list))) == (0, [])


def test_are_replaced_by_what_is_written_later(lists: ChunkListFiles) -> None:
    first = lists.write_pass("spring", 1, 1, [chunk(1, [b"old"])])
    assert [one.path for one in lists.paths(first.chunk_list, 1)] == [b"old"]
    lists.write_pass("spring", 1, 1, [chunk(1, [b"new", b"newer"])])
    assert [one.path for one in lists.paths(first.chunk_list, 1)] == [b"new", b"newer"]


@pytest.mark.parametrize("name", ["passes/../secret", "passes//etc/passwd", "passes/none.parquet"])
def test_names_lead_nowhere_else(lists: ChunkListFiles, name: str) -> None:
    with pytest.raises(Refused):
        list(lists.chunks(name))


def test_of_a_plan_that_cannot_be_are_not_written(lists: ChunkListFiles, tmp_path: Path) -> None:
    with pytest.raises(MigratorError):
        lists.write_pass("../x", 1, 1, [])
    assert not list(tmp_path.rglob("*.parquet"))
