"""What earlier catalogs saw, the guards, the states of batches, a source that changed, and some trees of a batch alone."""

import asyncio
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from migrator.catalog.manifest import DIFFERENCES_FILE
from migrator.catalog.model import VerificationRecord
from migrator.catalog.ports import Scratch
from migrator.catalog.writer import CatalogDirectories
from migrator.core.entry import Entry
from migrator.core.errors import ExitCode, Interrupted, MigratorError, Refused, UsageError
from migrator.core.events import EventKind
from migrator.core.paths import is_beneath
from migrator.core.states import BatchState
from migrator.fs.model import DifferenceKind, ScanProblem, SourceHealth
from migrator.fs.ports import Digest
from migrator.fs.reading import ReadingFileSystem
from migrator.gluster import walks
from migrator.reap.model import archive_directory
from migrator.verify.joined import ListingWriter, SideListing
from tests.support.catalogs import whole_catalog
from tests.support.verify_world import OTHER_TREE, TREE, World, verify_world, walk_tree

WELL = SourceHealth(problems=(), fingerprint="same")
BRICK_DOWN = SourceHealth(problems=("brick gl2:/b1 is down",), fingerprint="same")


@pytest.fixture
def world(scratch: Path) -> Iterator[World]:
    with verify_world(scratch) as made:
        (made.tree / "sub").mkdir(parents=True)
        for name in ("a", "b", "sub/c"):
            (made.tree / name).write_text(name)
        yield made


def scan_now(world: World, name: str, *, close: bool = True, scope: tuple[bytes, ...] = ()) -> None:
    """A catalog of the tree on the source, as a scan would leave it, and its record in the ledger."""
    catalogs = CatalogDirectories(world.directory / "state" / "catalogs", scratch=Scratch(world.directory))
    scan_id = world.ledger.scans.start(catalog=name, via="mount", at_s=1.0, scope=scope)
    record = whole_catalog(name=name, scan_id=scan_id, via="mount", finished_at_s=None, whole=False, scope=scope)
    opened = catalogs.create(record)
    source = ReadingFileSystem(world.source_root)
    for entry in (found for found in [source.look(TREE), *walk_tree(source, TREE)] if found is not None):
        opened.writer.add(TREE, [entry])
        opened.writer.directories_done([entry.path])
    source.close()
    if close:
        closed = opened.writer.close(replace(record, finished_at_s=2.0, whole=True))
        world.ledger.scans.finish(closed)
    else:
        opened.writer.abandon()


@pytest.mark.parametrize(
    ("scope", "killed", "gone"),
    [((), False, 3), ((), True, 3), ((TREE, OTHER_TREE), False, 3), ((OTHER_TREE, TREE + b"x"), False, 0)],
)
def test_a_path_of_an_earlier_scan_that_is_absent_is_proven_gone(
    world: World, scope: tuple[bytes, ...], killed: bool, gone: int
) -> None:
    """A catalog of other trees is not read."""
    (world.tree / "old").mkdir()
    (world.tree / "old" / "file").touch()
    (world.tree / "sub" / "gone\n").touch()
    scan_now(world, "first", close=not killed, scope=scope)
    (world.tree / "sub" / "gone\n").unlink()
    shutil.rmtree(world.tree / "old")
    scan_now(world, "second")
    world.copy_trees()
    record = world.verify()
    assert (dict(record.differences), record.proven_gone, record.whole) == ({}, gone, True)
    assert record.exit_code is ExitCode.DONE


@pytest.mark.parametrize("harmed", [False, True])
def test_scans_before_a_verification_that_found_all_equal_are_not_read_again(world: World, harmed: bool) -> None:
    gone = world.tree / "sub" / "gone"
    gone.touch()
    scan_now(world, "first")
    world.copy_trees()
    first = world.verify()
    assert (first.exit_code, first.manifest is None) == (ExitCode.DONE, False)
    shutil.rmtree(world.manifests.catalogs.directory / "first")
    gone.unlink()
    (world.target_path / gone.relative_to(world.source_path)).unlink()
    world.copy_trees()
    if harmed:
        Path(first.manifest or "").unlink()
    record = world.verify()
    # Its manifest has what they saw.
    assert (record.proven_gone, record.whole) == ((0, False) if harmed else (1, True))
    assert dict(record.differences) == {}


def test_a_path_that_cannot_be_looked_at_is_unproven(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (world.tree / "doubtful").touch()
    scan_now(world, "first")
    (world.tree / "doubtful").unlink()
    world.copy_trees()
    plain = world.source.look

    def look(path: bytes) -> Entry | None:
        if path.endswith(b"/doubtful"):
            raise TimeoutError(110, "Connection timed out", path)
        return plain(path)

    monkeypatch.setattr(world.source, "look", look)
    record = world.verify()
    assert dict(record.differences) == {DifferenceKind.UNPROVEN: 1}
    assert record.proven_gone == 0


def spoil_listing(monkeypatch: pytest.MonkeyPatch, side: str, without: bytes | None, *doubts: bytes) -> None:
    """A listing of a side lacks a path and all beneath it, and has problems: a server was away for a moment."""
    plain = ListingWriter.close

    def close(writer: ListingWriter) -> SideListing:
        if writer.directory.name == side:
            for number, batch in enumerate(writer._batches):
                kept = [
                    without is None or not is_beneath(path or b"", without) for path in batch.column("path").to_pylist()
                ]
                writer._batches[number] = batch.filter(pa.array(kept))
            writer.found_problems += [ScanProblem(path=path, operation="list", errno=5, reason="") for path in doubts]
        return plain(writer)

    monkeypatch.setattr(ListingWriter, "close", close)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(
    ("without", "doubts"),
    [
        (b"home", (b"home",)),
        (b"home", ()),
        (TREE, (TREE,)),
        (TREE + b"/sub", (TREE + b"/sub",)),
        (None, (TREE, b"", b"home")),
    ],
)
def test_a_path_that_a_listing_lacks_is_looked_up(
    world: World, monkeypatch: pytest.MonkeyPatch, side: str, without: bytes | None, doubts: tuple[bytes, ...]
) -> None:
    world.copy_trees()
    (world.source_path / "home" / "bob").mkdir()
    (world.tree / "sub" / "new").touch()
    archives = archive_directory(TREE, world.ledger.site.required().name_seed)
    (world.target_path / os.fsdecode(archives) / "inner").mkdir(parents=True)
    spoil_listing(monkeypatch, side, without, *doubts, archives)
    for _ in range(2):
        record = world.verify()
        assert missing_paths(record) == {TREE + b"/sub/new"}
        assert (record.whole, record.paths, record.equal_paths) == (True, 6, 4)
        rows = [row["path"] for row in world.manifest_rows(record)]
        assert sorted(rows) == [TREE, TREE + b"/a", TREE + b"/b", TREE + b"/sub/c"]


def call(*argv: str | Path) -> None:
    subprocess.run(argv, check=True)


@pytest.mark.parametrize("path", ["", "sub", "a"])
def test_a_file_system_mounted_within_a_tree_is_not_compared(world: World, path: str) -> None:
    world.copy_trees()
    over = world.directory / "over"
    over.mkdir()
    (over / "file").write_text("a")
    place, mounted = world.tree / path, over / "file" if path == "a" else over
    call("mount", "--bind", mounted, place)
    try:
        record = world.verify()
    finally:
        call("umount", place)
    assert not record.whole
    assert record.differences[DifferenceKind.UNREADABLE] >= 1


def test_a_root_that_is_mounted_over_while_it_is_listed_hides_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.copy_trees()
    (world.tree / "new").touch()
    walked = walks.walk_mount

    async def walk_mount(*given: Any, **named: Any) -> Any:
        over = world.directory / "state"
        await asyncio.to_thread(call, "mount", "--bind", over, world.source_path)
        try:
            return await walked(*given, **named)
        finally:
            await asyncio.to_thread(call, "umount", world.source_path)

    world.source.look(TREE)
    monkeypatch.setattr("migrator.verify.listings.walk_mount", walk_mount)
    assert missing_paths(world.verify()) == {TREE + b"/new"}


def missing_paths(record: VerificationRecord) -> set[bytes]:
    assert record.manifest is not None
    rows = pq.read_table(Path(record.manifest).with_name(DIFFERENCES_FILE)).to_pylist()
    return {row["path"] for row in rows if row["kind"] == DifferenceKind.MISSING}


@pytest.mark.parametrize("arrived", [True, False])
def test_a_directory_that_both_listings_missed_is_walked_after_all(
    world: World, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    (world.tree / "late" / "inner").mkdir(parents=True)
    (world.tree / "late" / "inner" / "old").write_text("old")
    (world.tree / "late" / "gone").write_text("gone")
    scan_now(world, "first")
    (world.tree / "late" / "gone").unlink()
    if arrived:
        world.copy_trees()
    else:
        shutil.move(world.tree / "late", world.directory / "aside")
        world.copy_trees()
        shutil.move(world.directory / "aside", world.tree / "late")
    (world.tree / "late" / "inner" / "new").write_text("no scan has seen it")
    late = TREE + b"/late"
    for side in ("source", "target"):
        spoil_listing(monkeypatch, side, late)
    record = world.verify()
    missing = missing_paths(record)
    new = late + b"/inner/new"
    lost = {late, late + b"/inner", late + b"/inner/old"}
    assert missing == ({new} if arrived else {new, *lost})
    assert record.differences[DifferenceKind.MISSING] == len(missing)
    assert record.proven_gone == 1
    rows = [row["path"] for row in world.manifest_rows(record)]
    assert len(rows) == len(set(rows))


def test_a_catalog_that_is_lost_or_damaged_makes_it_not_whole(world: World) -> None:
    catalogs = world.manifests.catalogs.directory
    scan_now(world, "first")
    scan_now(world, "second")
    scan_now(world, "of another", scope=(OTHER_TREE,))
    world.copy_trees()
    for name in ("second", "of another"):
        next((catalogs / name).glob("part-*")).unlink()
    shutil.rmtree(catalogs / "first")
    record = world.verify()
    assert not record.whole
    assert len(record.reasons) == 2
    assert any("first" in reason for reason in record.reasons)
    assert any("second" in reason and "missing" in reason for reason in record.reasons)
    assert record.exit_code is ExitCode.REFUSED


def test_a_tree_that_vanished_from_the_source_is_a_clear_finding(world: World) -> None:
    scan_now(world, "first")
    world.copy_trees()
    shutil.rmtree(world.tree)
    record = world.verify()
    assert not record.whole
    assert record.reasons == (
        "user tree home/alice is no longer on the source: was it renamed or removed since the scan? Scan and plan again",
    )
    assert dict(record.differences) == {}


def test_a_tree_that_never_arrived_is_missing_path_by_path(world: World) -> None:
    record = world.verify()
    assert dict(record.differences) == {DifferenceKind.MISSING: 5}
    assert record.whole


def test_a_brick_that_is_down_before_refuses_before_anything_is_read(world: World) -> None:
    world.copy_trees()
    world.source.answers = (BRICK_DOWN,)
    with pytest.raises(Refused, match="brick gl2:/b1 is down"):
        world.verify()
    assert world.ledger.verifications.latest(world.plan.name, 1) is None
    assert [event.kind for event in world.progress.events] == [EventKind.GUARD_REFUSED]


@pytest.mark.parametrize("after", [BRICK_DOWN, SourceHealth(problems=(), fingerprint="other")])
def test_a_brick_that_goes_down_meanwhile_makes_it_not_whole(world: World, after: SourceHealth) -> None:
    world.copy_trees()
    world.source.answers = (WELL, after)
    record = world.verify()
    assert (dict(record.differences), record.whole) == ({}, False)
    assert record.reasons
    assert world.batch_state() is BatchState.SEEDED
    assert record.exit_code is ExitCode.REFUSED


@pytest.mark.parametrize("side", ["source_path", "target_path"])
def test_another_directory_in_a_mounts_place_is_refused(world: World, side: str) -> None:
    world.copy_trees()
    path: Path = getattr(world, side)
    path.rename(path.with_name("moved"))
    path.mkdir()
    with pytest.raises(Refused, match=side.removesuffix("_path")):
        world.verify()


def test_a_batch_that_has_not_been_run_is_refused(world: World) -> None:
    world.set_trees((TREE,), (OTHER_TREE,), state=BatchState.PLANNED)
    with pytest.raises(Refused, match="has not been run"):
        world.verify(2)


def test_a_plan_of_another_site_is_refused(world: World) -> None:
    world.plan = replace(world.plan, site_id="other")
    with pytest.raises(Refused, match="another site"):
        world.verify()


def test_a_state_directory_that_cannot_be_written_is_one_clear_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.copy_trees()
    monkeypatch.setattr(world.target, "sync", lambda: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    with pytest.raises(MigratorError, match="Input/output error"):
        world.verify()
    assert list((world.directory / "state" / "manifests").iterdir()) == []


def test_a_defect_in_a_worker_thread_ends_the_work_and_is_raised(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: bytes, algorithm: str) -> Digest:
        raise ZeroDivisionError("a defect")

    world.copy_trees()
    monkeypatch.setattr(world.source, "digest", fail)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        world.verify()


def test_cancellation_ends_soon_and_leaves_no_manifest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.copy_trees()
    plain, cancelled = world.source.digest, threading.Event()

    async def cancel_in_the_middle() -> None:
        loop = asyncio.get_running_loop()
        reached = asyncio.Event()

        def digest(path: bytes, algorithm: str) -> Digest:
            loop.call_soon_threadsafe(reached.set)
            cancelled.wait()
            return plain(path, algorithm)

        monkeypatch.setattr(world.source, "digest", digest)
        task = asyncio.create_task(world.verify_now())
        await reached.wait()
        task.cancel()
        cancelled.set()
        with pytest.raises(Interrupted):
            await task

    many = world.tree / "many"
    many.mkdir()
    for number in range(2000):
        (many / str(number)).touch()
    world.copy_trees()
    asyncio.run(cancel_in_the_middle())
    monkeypatch.undo()
    assert list((world.directory / "state" / "manifests").iterdir()) == []
    assert world.verify().exit_code is ExitCode.DONE


def test_a_sync_that_hangs_ends_the_verification(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = threading.Event()
    monkeypatch.setattr(world.target, "sync", answers.wait)

    async def verify() -> None:
        try:
            with pytest.raises(MigratorError, match=r"took more than 0\.0 s"):
                await world.verify_now(stall_timeout_s=0.0)
        finally:
            answers.set()

    asyncio.run(verify())
    monkeypatch.undo()
    world.copy_trees()
    assert world.verify().exit_code is ExitCode.DONE


@pytest.mark.guarantee("names")
@pytest.mark.skipif(os.geteuid() != 0, reason="without root the roots' owner is the user anyway")
def test_hostile_names_are_data_everywhere(world: World) -> None:
    names = [b"new\nline", b"\xff\xfe", b"-rf", b"n" * 255, b"\x1b[31m", b"'; DROP TABLE unaccounted; --", b"\\"]
    for name in names:
        (world.tree / os.fsdecode(name)).touch()
    scan_now(world, "first")
    world.copy_trees()
    for name in names:
        (world.copy / os.fsdecode(name)).unlink()
        (world.tree / os.fsdecode(name)).unlink()
    os.utime(world.copy, ns=(0, 0))
    record = world.verify()
    assert record.proven_gone == len(names)
    assert dict(record.differences) == {}


def test_a_scan_that_was_stopped_and_took_its_catalog_away_is_no_catalog_that_is_missing(world: World) -> None:
    world.copy_trees()
    world.ledger.scans.start(catalog="of the bricks", via="bricks", at_s=1.0)
    world.ledger.scans.start(catalog="of some trees", via="mount", at_s=1.0, scope=(TREE,))
    record = world.verify()
    assert (dict(record.differences), record.reasons, record.whole) == ({}, (), True)
    world.ledger.scans.start(catalog="of everything", via="mount", at_s=1.0)
    record = world.verify()
    assert not record.whole
    assert any("of everything" in reason for reason in record.reasons)


@pytest.fixture
def two_trees(scratch: Path) -> Iterator[World]:
    """A batch of two trees, which share one hard-linked file."""
    with verify_world(scratch) as made:
        for tree in (TREE, OTHER_TREE):
            (made.source_path / os.fsdecode(tree) / "sub").mkdir(parents=True)
            (made.source_path / os.fsdecode(tree) / "sub" / "file").write_bytes(tree)
        os.link(made.tree / "sub" / "file", made.source_path / os.fsdecode(OTHER_TREE) / "linked")
        made.set_trees((OTHER_TREE, TREE))
        made.copy_trees(OTHER_TREE, TREE)
        yield made


def test_only_the_chosen_trees_are_compared(two_trees: World) -> None:
    (two_trees.target_path / os.fsdecode(OTHER_TREE) / "sub" / "file").unlink()
    record = two_trees.verify(trees=(TREE,))
    assert (record.trees, record.paths, dict(record.differences), record.whole) == ((TREE,), 3, {}, True)
    assert {row["path"] for row in two_trees.manifest_rows(record)} == {TREE, TREE + b"/sub", TREE + b"/sub/file"}
    assert record.exit_code is ExitCode.DONE
    last = two_trees.progress.snapshots[-1]
    assert getattr(last, "paths", None) == 3
    other = two_trees.verify(trees=(OTHER_TREE,))
    assert other.differences[DifferenceKind.MISSING.value] == 1
    records = two_trees.ledger.verifications
    assert list(records.of_tree(two_trees.plan.name, 1, TREE)) == [record]
    assert list(records.of_tree(two_trees.plan.name, 1, OTHER_TREE)) == [replace(other, examples=())]
    assert records.latest(two_trees.plan.name, 1) is None


def test_a_difference_in_one_tree_takes_verified_away_from_the_batch(two_trees: World) -> None:
    two_trees.verify()
    assert dict(two_trees.verify(trees=(TREE,)).differences) == {}
    assert two_trees.batch_state() is BatchState.VERIFIED
    (two_trees.copy / "sub" / "file").write_bytes(b"elsewhere")
    assert two_trees.verify(trees=(OTHER_TREE,)).exit_code is ExitCode.ATTENTION
    assert two_trees.batch_state() is BatchState.SEEDED


@pytest.mark.parametrize("tree", [b"home/carol", b"home/alice/sub", b"home/alice/", b""])
def test_a_tree_that_the_batch_does_not_have_is_a_usage_error(two_trees: World, tree: bytes) -> None:
    with pytest.raises(UsageError, match="has no user tree"):
        two_trees.verify(trees=(TREE, tree))
    assert list(two_trees.ledger.verifications.all()) == []
