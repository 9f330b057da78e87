"""Late writes are copied to the trash by a stream, and only what arrived there unchanged is put in its place."""

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from migrator.catalog.manifest import MANIFEST_SCHEMA
from migrator.catalog.ports import Scratch
from migrator.core.entry import EntryType
from migrator.cutover.late import KnownDirectory, LateWrites, close_block
from migrator.cutover.source_changes import SourceChange, SourceChangeKind
from migrator.fs.model import TargetCapabilities, trash_place
from migrator.fs.reading import PosixSource
from migrator.fs.writing import MountedTarget
from migrator.hosts.process import LocalProcesses
from migrator.transfer.executors import LocalExecutor
from migrator.transfer.ports import ConnectedHost
from tests.support.fake_streams import FakeLane
from tests.support.native_builds import placing
from tests.transfer.native_copy import direct_engine

pytestmark = pytest.mark.needs_root

TREE = b"home/ann"


@dataclass(slots=True)
class ChangingLane(FakeLane):
    """A lane of this machine. `change` happens when it is connected: after the late writes were judged."""

    change: Callable[[], object] = lambda: None

    async def connect(self, brick: str | None) -> ConnectedHost:
        self.change()
        return await FakeLane.connect(self, brick)


@dataclass
class Sides:
    directory: Path

    def __post_init__(self) -> None:
        for side in (self.source, self.target):
            side.mkdir(parents=True)

    @property
    def source(self) -> Path:
        return self.directory / "source" / os.fsdecode(TREE)

    @property
    def target(self) -> Path:
        return self.directory / "target" / os.fsdecode(TREE)

    def made(self, name: str) -> SourceChange:
        facts = (self.source / name).lstat()
        return SourceChange(
            path=TREE + b"/" + os.fsencode(name),
            kind=SourceChangeKind.MADE,
            stands=EntryType.of_mode(facts.st_mode),
            size_bytes=facts.st_size,
            mtime_ns=facts.st_mtime_ns,
        )

    def carry(self, *names: str, change: Callable[[], object] = lambda: None) -> set[str]:
        """Carry new paths over; returns the names that were left."""
        manifest = self.directory / "manifest.parquet"
        pq.write_table(pa.Table.from_pylist([], schema=MANIFEST_SCHEMA), manifest)
        roots = os.fsencode(self.directory / "source"), os.fsencode(self.directory / "target")
        source, target = PosixSource(roots[0]), MountedTarget(roots[1])
        executor = LocalExecutor(LocalProcesses(), source_root=roots[0], target_root=roots[1], compiled=placing())
        writes = LateWrites(
            source=source,
            target=target,
            capabilities=TargetCapabilities(),
            lane=ChangingLane(executor, direct_engine(), change=change),  # type: ignore[arg-type] # the port
            token="late",
            tree=TREE,
            place=trash_place(1_700_000_000.0, 1, "late", 1),
            manifest=str(manifest),
            scratch=Scratch(self.directory / "scratch"),
        )

        async def carry() -> set[str]:
            try:
                left = await writes.carry([self.made(name) for name in names])
            finally:
                await executor.close()
            return {os.fsdecode(one.path.removeprefix(TREE + b"/")) for one in left}

        try:
            return asyncio.run(carry())
        finally:
            source.close()
            target.close()


@pytest.fixture
def sides(scratch: Path) -> Sides:
    made = Sides(scratch)
    (made.source / "new" / "deep").mkdir(parents=True)
    for name in ("file", "new/file", "new/deep/file"):
        (made.source / name).write_text(name)
    (made.source / "link").symlink_to("file")
    os.chown(made.source / "new", 1001, 1002)
    return made


ALL = ("file", "link", "new", "new/deep", "new/deep/file", "new/file")


@pytest.mark.guarantee("late-writes")
def test_new_paths_arrive_with_their_attributes(sides: Sides) -> None:
    assert sides.carry(*ALL) == set()
    for name in ("file", "new/file", "new/deep/file"):
        assert (sides.target / name).read_text() == name
    assert (sides.target / "link").readlink() == Path("file")
    assert ((sides.target / "new").stat().st_uid, (sides.target / "new").stat().st_gid) == (1001, 1002)
    assert (sides.target / "new").stat().st_mtime_ns == (sides.source / "new").stat().st_mtime_ns
    assert sides.carry("file") == set(), "it may be called again"


@pytest.mark.guarantee("late-writes")
@pytest.mark.parametrize("how", ["gone", "longer", "another type"])
def test_a_path_that_changes_after_it_was_judged_is_left_with_its_directory(sides: Sides, how: str) -> None:
    changed = sides.source / "new" / "deep" / "file"

    def change() -> None:
        if how == "longer":
            changed.write_text("longer than before")
            return
        changed.unlink()
        if how == "another type":
            changed.symlink_to("/etc/passwd")

    assert sides.carry(*ALL, change=change) == {"new", "new/deep", "new/deep/file", "new/file"}
    assert not (sides.target / "new").exists()
    assert (sides.target / "file").read_text() == "file"


def test_a_name_that_the_user_took_meanwhile_is_kept(sides: Sides) -> None:
    assert sides.carry("file", change=lambda: (sides.target / "file").write_text("mine")) == {"file"}
    assert (sides.target / "file").read_text() == "mine"


@pytest.mark.needs_root
@pytest.mark.parametrize(
    ("uid", "mode", "noted"),
    [(1001, 0o755, False), (0, 0o755, False), (0, 0o700, False), (1001, 0o777, True), (0, 0o777, True)],
)
def test_a_directory_that_a_killed_call_has_closed_by_half_is_not_changed(
    tmp_path: Path, uid: int, mode: int, noted: bool
) -> None:
    directory, notes = tmp_path / "tree" / "one", tmp_path / "noted"
    directory.mkdir(parents=True)
    directory.chmod(mode)
    os.chown(directory, uid, -1)
    close_block(os.fsencode(tmp_path), [KnownDirectory(b"tree/one", 1001, 0o755)], noted=notes)
    facts = directory.stat()
    assert (facts.st_uid, facts.st_mode & 0o7777) == (0, 0o700)
    assert notes.exists() == noted
