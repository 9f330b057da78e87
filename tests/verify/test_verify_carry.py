"""Content that an earlier verification read is not read again; whatever was touched since is. On a real file system."""

import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from migrator.catalog.model import VerificationRecord
from migrator.core.events import EventKind, Severity
from migrator.core.states import BatchState
from migrator.core.units import NS_PER_S
from migrator.fs.model import DifferenceKind
from migrator.fs.ports import Digest
from tests.support.verify_world import OTHER_TREE, TREE, World, verify_world

NAMES = ("a", "b", "sub/c", "sub/linked", "sub/linked too")

MARGIN_NS = NS_PER_S // 10
"""Far more than a tick of the local clock, and short enough to wait for in every test."""


@pytest.fixture(autouse=True)
def short_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.verify.model.CTIME_MARGIN_NS", MARGIN_NS)


def grow_old() -> None:
    """Until content that is read from now on can be carried over."""
    time.sleep(2 * MARGIN_NS / NS_PER_S)


@pytest.fixture
def world(scratch: Path) -> Iterator[World]:
    with verify_world(scratch) as made:
        (made.tree / "sub").mkdir(parents=True)
        for name in NAMES[:4]:
            (made.tree / name).write_bytes(name.encode() * 1000)
        os.link(made.tree / NAMES[3], made.tree / NAMES[4])
        (made.tree / "symlink").symlink_to("a")
        made.copy_trees()
        grow_old()
        yield made


@pytest.fixture
def reads(world: World) -> list[bytes]:
    return world.watch_reads()


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_file_that_was_given_short_and_has_not_changed_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    reads, plain = 0, world.source.digest

    def digest(path: bytes, algorithm: str) -> Digest:
        nonlocal reads
        reads += path == TREE + b"/a"
        if path == TREE + b"/a" and reads <= times:
            return Digest(value=b"d" * 16, size_bytes=4, changed=True)
        return plain(path, algorithm)

    monkeypatch.setattr(world.source, "digest", digest)
    monkeypatch.setattr("migrator.verify.mounted_content._PAUSES_S", (0.0, 0.0))
    record = world.verify()
    assert (len(record.differences), reads) == ((0, times + 1) if times < 3 else (1, 3))


def again(world: World) -> VerificationRecord:
    return world.verify(carry=True)


def test_nothing_is_read_again_while_nothing_changes(world: World, reads: list[bytes]) -> None:
    first = world.verify()
    assert (first.digested_files, first.carried_files, first.percent_content) == (5, 0, 100.0)
    reads.clear()
    second, third = again(world), again(world)
    assert reads == []
    for record in (second, third):
        assert (record.digested_files, record.digested_bytes) == (0, 0)
        assert (record.carried_files, record.carried_bytes) == (5, first.digested_bytes)
        assert (record.percent_content, record.whole, dict(record.differences)) == (100.0, True, {})
    assert world.batch_state() is BatchState.VERIFIED
    rows = {row["path"]: row for row in world.manifest_rows(third)}
    assert {row["read_by"] for row in rows.values() if row["type"] == "file"} == {first.id}
    assert {row["read_by"] for row in rows.values() if row["type"] != "file"} == {None}
    same = ("digest", "ino", "target_ino", "target_mtime_ns", "target_ctime_ns", "source_clock_ns", "target_clock_ns")
    for row in world.manifest_rows(first):
        assert {key: row[key] for key in same} == {key: rows[row["path"]][key] for key in same}
    assert world.ledger.verifications.latest(third.plan, 1) == third
    summary = [event.message for event in world.progress.events if event.kind is EventKind.VERIFY_FINISHED][-1]
    assert "had been read before and has not changed since" in summary


def mapped(path: Path) -> None:
    with path.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
        memory[0:1] = b"#"


def written(path: Path) -> None:
    path.write_bytes(b"#" + path.read_bytes()[1:])


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"#" + path.read_bytes()[1:])
    other.replace(path)


def truncated(path: Path) -> None:
    size_bytes = path.stat().st_size
    os.truncate(path, 10)
    os.truncate(path, size_bytes)


def hole(path: Path) -> None:
    with path.open("r+b") as stream:
        stream.write(bytes(100))


@pytest.mark.guarantee("carried-proofs")
@pytest.mark.parametrize("side", ["tree", "copy"])
@pytest.mark.parametrize("change", [mapped, written, replaced, truncated, hole])
def test_whatever_changes_content_is_read_again(
    world: World, reads: list[bytes], change: Callable[[Path], None], side: str
) -> None:
    world.verify()
    reads.clear()
    tree: Path = getattr(world, side)
    before = os.stat(tree), (tree / "a").stat().st_mtime_ns
    change(tree / "a")
    os.utime(tree, ns=(before[0].st_atime_ns, before[0].st_mtime_ns))
    os.utime(tree / "a", ns=(1, before[1]))
    record = again(world)
    assert reads == [b"a"]
    assert record.differences[DifferenceKind.CONTENT.value] == 1
    assert record.carried_files == 4


@pytest.mark.guarantee("carried-proofs")
@pytest.mark.parametrize("side", ["tree", "copy"])
def test_a_page_that_was_mapped_before_and_is_written_after_the_reading_is_read_again(
    world: World, reads: list[bytes], side: str
) -> None:
    file: Path = getattr(world, side) / "b"
    mtime_ns = file.stat().st_mtime_ns
    with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as memory:
        # The page is dirty now, and further writes to it give no new times until it was written back.
        memory[5:6] = memory[5:6]
        os.utime(file, ns=(1, mtime_ns))
        grow_old()
        assert world.verify().digested_files == 5
        reads.clear()
        memory[5:6] = b"#"
        os.utime(file, ns=(1, mtime_ns))
        record = again(world)
    assert reads == [b"b"]
    assert record.differences[DifferenceKind.CONTENT.value] == 1


def test_a_clock_that_cannot_be_read_means_that_all_is_read(
    world: World, reads: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(world.target, "clock_ns", fails)
        assert world.verify().digested_files == 5
    reads.clear()
    assert again(world).digested_files == 5
    with monkeypatch.context() as patched:
        patched.setattr(world.source, "sync", fails)
        assert world.verify().digested_files == 5
    reads.clear()
    assert again(world).digested_files == 5
    assert again(world).carried_files == 5


@pytest.mark.parametrize("spoil", ["removed", "changed", "cut short"])
def test_a_manifest_that_is_not_what_the_ledger_knows_is_not_asked(
    world: World, reads: list[bytes], spoil: str
) -> None:
    first = world.verify()
    assert first.manifest is not None
    manifest = Path(first.manifest)
    if spoil == "removed":
        manifest.unlink()
    elif spoil == "changed":
        table = pq.read_table(manifest)
        pq.write_table(table, manifest)
    else:
        manifest.write_bytes(b"PAR1")
    reads.clear()
    record = again(world)
    assert (record.digested_files, record.carried_files) == (5, 0)
    warnings = [event.message for event in world.progress.events if event.severity is Severity.WARNING]
    assert any("its manifest is not readable" in message for message in warnings)
    assert again(world).carried_files == 5


def test_trees_are_known_from_whatever_batch_and_plan_they_were_in(world: World, reads: list[bytes]) -> None:
    other = world.source_path / os.fsdecode(OTHER_TREE)
    other.mkdir()
    (other / "file").write_text("of bob")
    world.copy_trees(OTHER_TREE)
    grow_old()
    world.verify()
    world.set_trees((OTHER_TREE, TREE), ())
    reads.clear()
    record = again(world)
    assert (record.digested_files, record.carried_files) == (1, 5)
    assert reads == [OTHER_TREE + b"/file"]
    assert again(world).carried_files == 6
