"""Mtimes of directories before the commit of a drain: those that only the leaving brick has are written through the mount."""

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from migrator.bricks.drain.directory_times import DirectoryTimes, KeptTimes
from migrator.bricks.known_directories import DirectoryFiles, MountedDirectories
from migrator.core.errors import ToolFailed
from migrator.gluster.model import Brick, BrickDirectory, VolumeState
from tests.support.fakes import inline
from tests.support.volumes import brick, volume

S = 10**9
ARBITER, LEAVING, STAYING = "gl1:/arbiter", "gl2:/b", "gl4:/b"
BRICKS = (
    brick(ARBITER, arbiter=True),
    brick(LEAVING),
    brick("gl3:/b"),
    brick("gl3:/c"),
    brick(STAYING),
    brick("gl5:/b"),
)
LEFT = {"home": 100, "home/last-here": 300, "home/last-there": 200, "home/alike": 50}
"""By directory, the mtime in seconds of the copies on the bricks that leave."""
KEPT = {"home": 100, "home/last-here": 200, "home/last-there": 250, "home/alike": 50}


@dataclass
class Volume:
    """Directories on two replica sets. The mount is a plain tree that shows the latest times."""

    root: Path
    state_dir: Path
    broken: set[str] = field(default_factory=set)
    walked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in LEFT:
            (self.root / name).mkdir(parents=True)
        for name, at_s in LATEST.items():
            os.utime(self.root / name, ns=(0, at_s * S))

    async def walk(
        self, brick: Brick, *, volume_id: str, take: Callable[[Sequence[BrickDirectory]], None], only: Any = None
    ) -> int:
        assert (volume_id, only) == (self.state().volume_id, None)
        if brick.name in self.broken:
            raise ToolFailed(f"{brick.name} is ill")
        self.walked.append(brick.name)
        times = LEFT if brick in BRICKS[:3] else KEPT
        take([self.facts(name, at_s * S) for name, at_s in times.items() if (self.root / name).exists()])
        return 0

    def facts(self, name: str, modified_ns: int) -> BrickDirectory:
        gfid = bytes(8) + (self.root / name).stat().st_ino.to_bytes(8, "big")
        return BrickDirectory(
            path=os.fsencode(name), gfid=gfid, mode=0o755, uid=0, gid=0, changed_ns=1, modified_ns=modified_ns
        )

    def state(self, **changes: object) -> VolumeState:
        return volume(*BRICKS, replica_count=3, **changes)

    def times(self) -> DirectoryTimes:
        walks: Any = self
        memory, mount = DirectoryFiles(self.state_dir), MountedDirectories(os.fsencode(self.root))
        return DirectoryTimes(walks=walks, memory=memory, mount=mount, blocking=inline)

    def keep(self, **changes: object) -> KeptTimes:
        return asyncio.run(self.times().keep(1, BRICKS[:3], self.state(**changes)))

    def written(self, work: Callable[[], KeptTimes]) -> tuple[KeptTimes, list[str]]:
        """What came of it, and the directories that were written. No mtime is ever another one after it."""
        before = {name: (self.root / name).stat() for name in LEFT}
        kept = work()
        after = {name: (self.root / name).stat() for name in LEFT}
        assert {name: one.st_mtime_ns for name, one in after.items()} == {
            n: one.st_mtime_ns for n, one in before.items()
        }
        return kept, [name for name in LEFT if after[name].st_ctime_ns != before[name].st_ctime_ns]


LATEST = {name: max(LEFT[name], KEPT[name]) for name in LEFT}


@pytest.fixture
def leaving(tmp_path: Path) -> Volume:
    return Volume(tmp_path / "mount", tmp_path / "state")


@pytest.mark.guarantee("drain-times")
def test_the_latest_mtimes_are_written_to_every_copy_and_no_others(leaving: Volume) -> None:
    assert leaving.written(leaving.keep) == (KeptTimes(kept=1), ["home/last-here"])
    assert leaving.walked == [LEAVING, "gl3:/c"], "one copy of each set, and no arbiter"
    assert list(leaving.state_dir.iterdir()) == []


def test_a_directory_that_a_user_changed_meanwhile_is_not_written(leaving: Volume) -> None:
    os.utime(leaving.root / "home/last-here", ns=(0, 7 * S))
    assert leaving.written(leaving.keep) == (KeptTimes(), [])


def test_a_directory_whose_time_cannot_be_written_is_counted(leaving: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "utime", refuse)
    assert leaving.written(leaving.keep) == (KeptTimes(lost=1), [])


@pytest.mark.parametrize("broken", [{LEAVING}, {"gl3:/c"}])
def test_another_copy_is_read(leaving: Volume, broken: set[str]) -> None:
    leaving.broken = broken
    assert leaving.written(leaving.keep) == (KeptTimes(kept=1), ["home/last-here"])


def test_more_is_written_if_a_set_that_stays_cannot_be_read(leaving: Volume) -> None:
    leaving.broken = {"gl3:/c", STAYING, "gl5:/b"}
    assert leaving.written(leaving.keep) == (KeptTimes(kept=3), ["home", "home/last-here", "home/alike"])


def test_a_drain_does_not_commit_without_the_times_of_its_bricks(leaving: Volume) -> None:
    leaving.broken = {LEAVING, "gl3:/b"}
    with pytest.raises(ToolFailed):
        leaving.keep()


def test_stale_times_of_a_volume_without_the_option_are_not_used(leaving: Volume) -> None:
    options = (("features.ctime", "off"),)
    assert leaving.written(lambda: leaving.keep(options=options)) == (KeptTimes(), [])
