"""The two sides of a rollback: what they show, and that the source's top is left alone."""

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator.core.entry import EntryType
from migrator.cutover.carry_back import SourceSide, TargetSide
from migrator.gluster.model import SourceHealth
from tests.support.delta_changes import write

pytestmark = pytest.mark.needs_root

TREE = b"home/ann"


@dataclass
class Other:
    problems: tuple[str, ...] = ()

    async def health(self) -> SourceHealth:
        return SourceHealth(problems=self.problems, fingerprint="of its own")


def target_side(root: Path, *, problems: tuple[str, ...] = ()) -> TargetSide:
    return TargetSide(os.fsencode(root), tree=TREE, source=Other(problems))  # type: ignore[arg-type]


def source_side(root: Path) -> SourceSide:
    return SourceSide(os.fsencode(root), tree=TREE, source=Other(("brick one is down",)))  # type: ignore[arg-type]


@pytest.fixture
def top(tmp_path: Path) -> Path:
    made = tmp_path / "home" / "ann"
    write(made / "file", "file")
    write(made / "deep" / ".migrator-archive", "a file of the user's own")
    write(made / ".migrator-archive" / "000001.tar.zst", "packed")
    return made


def test_archives_in_the_top_do_not_show_and_the_same_name_elsewhere_does(top: Path, tmp_path: Path) -> None:
    for side in (target_side(tmp_path), source_side(tmp_path)):
        names = {entry.path for block in side.read_directory(TREE) for entry in block.entries}
        assert names == {b"home/ann/file", b"home/ann/deep"}
        assert side.look(b"home/ann/.migrator-archive") is None
        assert side.look(b"home/ann/.migrator-archive/000001.tar.zst") is None
        assert list(side.read_directory(b"home/ann/.migrator-archive")) == []
        assert side.look(b"home/ann/deep/.migrator-archive") is not None
        assert [block.entries[0].path for block in side.read_directory(b"home/ann/deep")] == [
            b"home/ann/deep/.migrator-archive"
        ]
        side.close()
    assert (top / ".migrator-archive" / "000001.tar.zst").exists()


@pytest.mark.parametrize(
    ("uid", "mode", "shown"),
    [(0, 0o500, 0o700), (0, 0o2500, 0o700), (0, 0o700, 0o700), (0, 0o755, 0o755), (60001, 0o500, 0o500)],
)
def test_only_a_frozen_top_of_the_target_counts_as_closed(
    top: Path, tmp_path: Path, uid: int, mode: int, shown: int
) -> None:
    os.chown(top, uid, 60001)
    top.chmod(mode)
    side = target_side(tmp_path)
    seen = side.look(TREE)
    assert seen is not None
    assert (seen.uid, seen.mode) == (uid, shown)
    side.close()


def test_the_top_of_the_source_is_not_made(top: Path, tmp_path: Path) -> None:
    side = source_side(tmp_path)
    before = top.stat()
    side.make_parents(TREE, ())
    assert top.stat() == before
    with pytest.raises(OSError, match="another user tree"):
        side.make_parents(b"home/bob", ())
    top.rename(tmp_path / "home" / "elsewhere")
    with pytest.raises(OSError, match="no user tree is here"):
        side.make_parents(TREE, ())
    side.close()


def test_the_target_is_as_healthy_as_both_sides_are(top: Path, tmp_path: Path) -> None:
    assert top.is_dir()
    healthy, sick, gone = target_side(tmp_path), target_side(tmp_path, problems=("down",)), target_side(tmp_path / "no")
    assert asyncio.run(healthy.health()).problems == ()
    assert asyncio.run(healthy.health()).fingerprint not in ("", "of its own")
    assert asyncio.run(sick.health()).problems == ("down",)
    assert asyncio.run(gone.health()).problems != ()
    assert asyncio.run(source_side(tmp_path).health()).problems == ("brick one is down",)


def test_files_and_directories_are_flushed_and_nothing_else_is_opened(top: Path, tmp_path: Path) -> None:
    os.mkfifo(top / "fifo")
    (top / "symlink").symlink_to("fifo")
    side = source_side(tmp_path)
    side.flush([b"home/ann/file", b"home/ann/deep", b"home/ann/fifo", b"home/ann/symlink", b"home/ann/gone/deeper"])
    seen = side.look(b"home/ann/fifo")
    assert seen is not None
    assert seen.type is EntryType.FIFO
    side.close()
