"""Who uses which brick, compared with a plain reading of the same entries."""

from pathlib import Path

import pytest

from migrator.bricks.drain.model import TreeOnBricks
from migrator.bricks.model import BrickUse
from migrator.catalog.ports import Scratch
from migrator.catalog.queries import BrickContentFiles, BrickUsageFiles
from migrator.core.errors import UsageError
from tests.support.catalogs import closed_catalogs, directory, invented, symlink, write_catalog

ONE, TWO, EMPTY = "gl1:/b1", "gl1:/b2", "gl2:/b1"
TREES = (b"home/alice", b"home/b\xff\nb")
LINKED = (b"home/alice/1", b"home/b\xff\nb/2")


def usage(tmp_path: Path) -> BrickUsageFiles:
    return BrickUsageFiles(closed_catalogs(tmp_path), scratch=Scratch(tmp_path / "tmp"))


def use(user: str | None, files: int, size_bytes: int, blocks: int) -> BrickUse:
    return BrickUse(user=user, files=files, size_bytes=size_bytes, allocated_bytes=blocks * 512)


def test_by_brick_and_user(tmp_path: Path) -> None:
    entries = [
        directory(b"home"),
        directory(b"home/alice"),
        invented(b"home/alice/a", size_bytes=10, blocks=8, brick=ONE),
        invented(b"home/alice/b", size_bytes=1000, blocks=16, brick=TWO),
        invented(b"home/alice/c", size_bytes=5, blocks=8, brick=ONE),
        symlink(b"home/alice/l", b"/somewhere/far"),
        directory(b"home/b\xff\nb"),
        invented(b"home/b\xff\nb/x", size_bytes=7, blocks=8, brick=ONE),
        invented(b"lost", size_bytes=70, blocks=24, brick=ONE),
    ]
    write_catalog(tmp_path, entries, TREES, bricks=(ONE, TWO, EMPTY))
    assert usage(tmp_path).uses("catalog-1") == {
        ONE: (use(None, 1, 70, 24), use("alice", 2, 15, 16), use("b\\xff\\x0ab", 1, 7, 8)),
        TWO: (use("alice", 1, 1000, 16),),
        EMPTY: (),
        # A symlink's size is none of the user's data; this one was asked of the mount.
        None: (use("alice", 1, 0, 0),),
    }


def test_bytes_of_a_hard_linked_file_count_once_on_its_brick(tmp_path: Path) -> None:
    ino = 2**63 + 5
    names = (b"home/alice/1", b"home/alice/2", b"home/b\xff\nb/3", b"outside")
    entries = [invented(name, size_bytes=100, blocks=8, ino=ino, nlink=4, brick=ONE) for name in names]
    write_catalog(tmp_path, entries, TREES, bricks=(ONE,))
    found = usage(tmp_path).uses("catalog-1")[ONE]
    assert {one.user: one.files for one in found} == {"alice": 2, "b\\xff\\x0ab": 1, None: 1}
    assert sum(one.size_bytes for one in found) == 100
    assert sum(one.allocated_bytes for one in found) == 8 * 512
    assert found[0] == use("alice", 2, 100, 8)


def test_what_the_trees_have_on_bricks_that_are_to_be_drained(tmp_path: Path) -> None:
    ino = 2**63 + 5
    linked = [invented(name, size_bytes=100, blocks=8, ino=ino, nlink=2, brick=ONE) for name in LINKED]
    entries = [
        *linked,
        directory(b"home/alice/d"),
        invented(b"home/alice/a", size_bytes=10, blocks=8, brick=TWO),
        invented(b"home/alice/b", size_bytes=1000, blocks=8, brick=EMPTY),
        invented(b"lost", size_bytes=7, blocks=8, brick=ONE),
    ]
    write_catalog(tmp_path, entries, TREES, bricks=(ONE, TWO, EMPTY))
    contents = BrickContentFiles(closed_catalogs(tmp_path), scratch=Scratch(tmp_path / "tmp"))
    found = contents.content("catalog-1", (ONE, TWO))
    assert found is not None
    assert (found.files, found.size_bytes) == (4, 117)
    assert found.trees == (
        TreeOnBricks(tree=TREES[0], files=2, size_bytes=110),
        TreeOnBricks(tree=TREES[1], files=1, size_bytes=0),
    )
    assert contents.content("catalog-1", ("gl9:/b",)) is None


def test_several_trees_of_one_user_a_catalog_of_the_mount_and_an_empty_one(tmp_path: Path) -> None:
    trees = (b"home/alice", b"work/alice")
    entries = [invented(tree + b"/a", size_bytes=number, blocks=8, brick=ONE) for number, tree in enumerate(trees, 1)]
    write_catalog(tmp_path, entries, trees, bricks=(ONE,))
    assert usage(tmp_path).uses("catalog-1") == {ONE: (use("alice", 2, 3, 16),)}
    write_catalog(tmp_path, [invented(b"home/alice/a", size_bytes=3, blocks=8)], TREES, name="mount")
    assert set(usage(tmp_path).uses("mount")) == {None}
    write_catalog(tmp_path, [], TREES, name="empty", bricks=(ONE,))
    assert usage(tmp_path).uses("empty") == {ONE: ()}
    with pytest.raises(UsageError, match="no catalog"):
        usage(tmp_path).uses("catalog-9")
