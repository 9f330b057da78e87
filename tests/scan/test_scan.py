"""The scan of real directories, from the mount to the closing record."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from migrator.catalog.model import ScanTimes
from migrator.core.errors import Interrupted, MigratorError, Refused, UsageError
from migrator.fs.model import SourceHealth
from migrator.lab.model import OddFiles
from migrator.native.program import NativeProgram, native_program
from tests.support.answering_mount import AnsweringMount, answering_mount
from tests.support.beegfs_like import missing_for_fuse
from tests.support.scan_site import Lying, ScanSite, WatchedWalk, grow


@pytest.fixture
def site(tmp_path: Path) -> Iterator[ScanSite]:
    made = ScanSite(tmp_path)
    yield made
    made.close()


@pytest.fixture
def lying(site: ScanSite) -> Iterator[Lying]:
    source = Lying(os.fsencode(site.root))
    yield source
    source.close()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> WatchedWalk:
    return WatchedWalk(monkeypatch)


@pytest.fixture
def answering(scratch: Path) -> Iterator[tuple[ScanSite, AnsweringMount]]:
    """A site whose source is mounted by FUSE."""
    if reason := missing_for_fuse():
        pytest.skip(f"needs FUSE: {reason}")
    (scratch / "backing").mkdir()
    with answering_mount(scratch, scratch / "backing") as mount:
        grow(scratch / "backing", ["alice", "bob"])
        site = ScanSite(scratch, root=mount.path)
        yield site, mount
        site.close()


def truth(root: Path) -> set[bytes]:
    """Every path beneath the root, by `os.walk`."""
    base = os.fsencode(root)
    return {
        os.path.relpath(os.path.join(directory, name), base)
        for directory, directories, files in os.walk(base)
        for name in directories + files
    }


def test_every_path_has_one_row_with_its_tree(site: ScanSite) -> None:
    site.grow(["alice", "bob"])
    (site.root / "stray").write_text("nobody's")
    (site.root / "home" / "loose").write_text("nobody's")
    (site.root / "home" / "link").symlink_to("alice")
    record = site.scan()
    rows = site.rows(record)
    assert record.whole
    assert [row["path"] for row in rows] == sorted(truth(site.root))
    trees = {row["path"]: row["tree"] for row in rows}
    assert trees[b"home"] is None
    assert trees[b"home/link"] is None
    assert trees[b"stray"] is None
    assert trees[b"home/alice"] == b"home/alice"
    assert trees[b"home/alice/d0/f0"] == b"home/alice"
    assert trees[b"home/bob/d2"] == b"home/bob"
    assert (record.rows, record.directories, record.files) == (len(rows), 9, len(rows) - 9)
    assert record.size_bytes == sum(row["size"] for row in rows if row["type"] == "file")
    assert record.problems == 0
    assert site.ledger.scans.latest() == replace(record, times=ScanTimes()), "times are in the catalog alone"
    assert site.catalogs().closed(record.name).record == record
    assert site.ledger.scans.unfinished() is None


@pytest.mark.needs_root
def test_odd_files_arrive_in_the_catalog_as_they_are(odd_tree: tuple[Path, OddFiles], tmp_path: Path) -> None:
    tree, odd = odd_tree
    site = ScanSite(tmp_path, root=tree.parent.parent)
    try:
        record = site.scan()
        rows = {row["path"]: row for row in site.rows(record)}
        assert record.whole, record.reasons
        assert len(rows) == record.rows
        for paths in odd.paths.values():
            for path in paths:
                entry = site.source.look(b"home/odd/" + path)
                assert entry is not None
                row = rows[entry.path]
                assert (row["type"], row["size"], row["mode"]) == (entry.type.value, entry.size_bytes, entry.mode)
                assert (row["mtime_ns"], row["ino"], row["rdev"]) == (entry.mtime_ns, entry.ino, entry.rdev)
                assert (row["symlink_target"], row["link_group"]) == (entry.symlink_target, entry.link_group)
                assert bool(row["xattr_digest"]) == bool(entry.xattrs)
    finally:
        site.close()


@pytest.mark.guarantee("unreadable-directory")
def test_a_directory_that_cannot_be_read_is_recorded_and_the_scan_is_not_whole(
    answering: tuple[ScanSite, AnsweringMount],
) -> None:
    site, mount = answering
    path = b"home/alice/d1"
    mount.answer(errors={os.fsdecode(path): errno.EACCES})
    record = site.scan()
    assert not record.whole
    assert record.problems == 1
    assert record.reasons == ("1 path could not be read: home/alice/d1 (open: Permission denied)",)
    assert record.set_apart == (b"home/alice",)
    assert record.whole_of([b"home/bob"])
    assert not record.whole_of([b"home/bob", b"home/alice"])
    assert site.problems(record) == [
        {"path": path, "operation": "open", "errno": errno.EACCES, "reason": "Permission denied"}
    ]
    paths = [row["path"] for row in site.rows(record)]
    assert b"home/alice/d1" in paths
    assert b"home/alice/d1/f0" not in paths
    assert b"home/bob/d1/f0" in paths


GOOD = SourceHealth(problems=(), fingerprint="f")
DOWN = SourceHealth(problems=("brick h1:/b is down",), fingerprint="f")
OTHER = SourceHealth(problems=(), fingerprint="g")


@pytest.mark.parametrize(
    ("healths", "reason"), [([DOWN, GOOD], "is down"), ([GOOD, DOWN], "is down"), ([GOOD, OTHER], "")]
)
def test_a_volume_that_is_not_the_same_and_healthy_makes_the_scan_not_whole(
    site: ScanSite, lying: Lying, healths: list[SourceHealth], reason: str
) -> None:
    site.grow(["alice"])
    lying.healths = healths
    record = site.scan(source=lying)
    assert not record.whole
    assert any(reason in one for one in record.reasons)


@pytest.mark.parametrize("instead", [True, False], ids=["an empty directory", "nothing"])
def test_a_source_that_is_not_in_its_place_is_refused(site: ScanSite, instead: bool) -> None:
    site.grow(["alice"])
    site.root.rename(site.root.with_name("elsewhere"))
    if instead:
        site.root.mkdir()
    with pytest.raises(Refused, match="is not what `migrator init` recorded"):
        site.scan()
    assert site.ledger.scans.latest(finished=False) is None


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        (["house/*"], "no directory of the source"),
        (["home/file"], "no directory of the source"),
        (["link/*"], "no directory of the source"),
        (["home/*", "home/alice/*"], "overlap"),
        (["home/*", "home/alice"], "two globs"),
    ],
)
def test_globs_that_cannot_be_are_told_before_anything_is_written(
    site: ScanSite, trees: list[str], message: str
) -> None:
    site.grow(["alice"])
    (site.root / "home" / "file").touch()
    (site.root / "link").symlink_to("home")
    with pytest.raises(UsageError, match=message):
        site.scan(trees=trees)
    assert not site.catalogs_dir.exists()
    assert site.ledger.scans.latest(finished=False) is None


def test_entries_that_are_listed_twice_have_one_row(answering: tuple[ScanSite, AnsweringMount]) -> None:
    site, mount = answering
    mount.answer(doubled=["home", "home/alice", "home/alice/d1"])
    record = site.scan()
    mount.answer()
    assert [row["path"] for row in site.rows(record)] == sorted(truth(site.root))


@pytest.mark.parametrize(
    ("healths", "reason"),
    [([GOOD, DOWN, GOOD, GOOD], "brick h1:/b is down"), ([GOOD, GOOD, OTHER, OTHER], "between two sessions")],
)
def test_problems_of_the_volume_count_in_a_resumed_scan(
    site: ScanSite, lying: Lying, watched: WatchedWalk, healths: list[SourceHealth], reason: str
) -> None:
    site.grow(["alice", "bob"])
    lying.healths = healths
    with pytest.raises(Interrupted):
        asyncio.run(watched.cancelled(site, 4, source=lying, max_part_rows=7))
    record = site.scan(source=lying)
    assert not record.whole
    assert any(reason in row["reason"] for row in site.problems(record))


@pytest.mark.parametrize("workers", [1, 3, 16])
@pytest.mark.parametrize("after_frames", [0, 1, 2, 3, 5, 8, 13, 21, 34])
def test_a_scan_that_is_stopped_anywhere_is_resumed_with_the_rest(
    site: ScanSite, watched: WatchedWalk, after_frames: int, workers: int
) -> None:
    site.grow(["alice", "bob", "carol"], directories=4, files=9)
    (site.root / "home" / "alice" / "d1" / "deep" / "deeper").mkdir(parents=True)
    whole = site.rows(site.scan(restart=True))
    watched.done.clear()
    with pytest.raises(Interrupted):
        asyncio.run(watched.cancelled(site, after_frames, workers=workers, max_part_rows=5, restart=True))
    first = set(watched.done)
    watched.done.clear()
    record = site.scan(workers=workers, max_part_rows=5)
    assert record.whole, record.reasons
    assert site.rows(record) == whole
    assert first.isdisjoint(watched.done), "what was done is not read again"
    assert len(watched.done) == len(set(watched.done))
    assert (record.rows, record.files) == (len(whole), sum(row["type"] != "directory" for row in whole))
    assert record.size_bytes == sum(row["size"] for row in whole if row["type"] == "file")


def test_a_mount_that_dies_stops_the_scan_and_its_errors_are_not_taken_for_the_truth(
    answering: tuple[ScanSite, AnsweringMount],
) -> None:
    site, mount = answering
    mount.answer(dies_at="home/alice/d1")
    with pytest.raises(Refused, match="lost in the middle"):
        site.scan()
    mount.answer()
    record = site.scan()
    assert [row["path"] for row in site.rows(record)] == sorted(truth(site.root))
    assert {row["path"] for row in site.problems(record)} == {b""}, "the source was ill meanwhile, and no path of it"
    assert not record.whole


def test_a_disk_that_takes_no_more_is_said_and_the_scan_can_go_on(site: ScanSite, watched: WatchedWalk) -> None:
    site.grow(["alice", "bob"])
    moved = site.catalogs_dir.with_name("moved")

    async def lose_the_directory(frame: int) -> None:
        if frame == 3:
            site.catalogs_dir.rename(moved)

    watched.before_frame = lose_the_directory
    with pytest.raises(Exception, match="catalog cannot be written"):
        site.scan(workers=1, max_part_rows=5)
    moved.rename(site.catalogs_dir)
    record = site.scan()
    assert record.whole
    assert [row["path"] for row in site.rows(record)] == sorted(truth(site.root))


@pytest.mark.parametrize("passed_on_bytes", [0, 1000, 2000, 4000])
def test_a_walk_whose_program_ends_is_resumed(
    site: ScanSite, tmp_path: Path, passed_on_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.grow(["alice", "bob"])
    ending, real = tmp_path / "ending", os.fsdecode(native_program().path)
    ending.write_text(f'#!/bin/sh\n{real} "$@" | head -c {passed_on_bytes}\nkill -KILL $$\n')
    ending.chmod(0o755)
    with monkeypatch.context() as patched:
        patched.setattr("migrator.scan.mount.native_program", lambda: NativeProgram(os.fsencode(ending), ""))
        with pytest.raises(MigratorError, match="broke off"):
            site.scan(max_part_rows=5)
    record = site.scan()
    assert record.whole, record.reasons
    assert [row["path"] for row in site.rows(record)] == sorted(truth(site.root))


def test_a_scan_that_ended_without_telling_the_ledger_is_over(site: ScanSite) -> None:
    site.grow(["alice"])
    record = site.scan()
    site.forget_the_end()
    assert site.ledger.scans.unfinished() is not None
    assert site.scan().name == record.name
    assert site.ledger.scans.unfinished() is None
