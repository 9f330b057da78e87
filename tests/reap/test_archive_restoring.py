"""What comes out of archives: all of it, exactly, and never over what is there."""

import os
import subprocess
from pathlib import Path

import pytest

from migrator.core.errors import UsageError
from migrator.reap.model import ArchiveLimits
from tests.reap.archive_world import TREE, World, make_odd_tree, restored_tree, write
from tests.support.snapshots import snapshot

pytestmark = pytest.mark.needs_root


def test_everything_odd_comes_back_exactly(world: World, place: Path) -> None:
    make_odd_tree(world.tree)
    os.setxattr(world.tree + b"/attributes", b"user.\xff=%", b"\xfe\n21 hdrcharset=x\n")
    before = snapshot(world.tree, directories=False)
    done = world.archive(world.rows())
    assert (done.archives, done.members, dict(done.left_out)) == (1, len(before), {})
    listed = ["tar", "--zstd", "-tf", str(world.archives / "000001.tar.zst")]
    subprocess.run(listed, check=True, capture_output=True)
    assert world.restore(b"", to=place).restored == len(before)
    assert snapshot(restored_tree(place), directories=False) == before
    restored = os.stat(restored_tree(place) + b"/sparse")
    assert restored.st_blocks * 512 < restored.st_size
    # Access times, which a snapshot leaves out, are neither changed on the source.
    for tree in (world.tree, restored_tree(place)):
        assert os.stat(tree + b"/before-1970").st_atime_ns == -499_999_993


def test_gnu_tar_and_zstd_extract_an_archive_exactly(world: World, place: Path) -> None:
    make_odd_tree(world.tree)
    world.archive(world.rows(), limits=ArchiveLimits(max_members=10))
    for file in sorted(world.archives.glob("*.tar.zst")):
        subprocess.run(["zstd", "--test", "-q", str(file)], check=True)
        subprocess.run(
            ["tar", "--zstd", "--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-xpf", str(file)],
            cwd=place,
            check=True,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
        )
    assert snapshot(os.fsencode(place), directories=False) == snapshot(world.tree, directories=False)


def test_what_is_there_is_not_overwritten_unless_asked_for(world: World) -> None:
    write(world.tree + b"/docs/a", b"archived")
    write(world.tree + b"/docs/b", b"archived too")
    world.archive(world.rows())
    write(world.copy + b"/docs/a", b"of the user")
    done = world.restore(b"docs")
    assert (done.restored, done.not_restored) == (1, 1)
    assert "--overwrite" in done.examples[0].reason
    with open(world.copy + b"/docs/a", "rb") as file:
        assert file.read() == b"of the user"
    done = world.restore(b"docs", overwrite=True)
    assert (done.restored, done.not_restored) == (2, 0)
    archived = {name: facts for name, facts in snapshot(world.copy).items() if name.startswith(b"docs/")}
    assert archived == {name: facts for name, facts in snapshot(world.tree).items() if name.startswith(b"docs/")}


def test_symlinks_and_files_in_the_way_are_refused(world: World, place: Path) -> None:
    write(world.tree + b"/docs/a")
    write(world.tree + b"/notes/b")
    world.archive(world.rows())
    os.symlink(os.fsencode(place), world.copy + b"/docs")  # noqa: PTH211 (the path is bytes)
    write(world.copy + b"/notes")
    done = world.restore(b".", overwrite=True)
    assert (done.restored, done.not_restored) == (0, 2)
    assert all("in the way" in one.reason for one in done.examples)
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (b"docs/a.txt", {b"docs/a.txt"}),
        (b"docs", {b"docs/a.txt", b"docs/deep/b.txt", b"docs/star*"}),
        (TREE + b"/docs/a.txt", {b"docs/a.txt"}),
        (TREE + b"/docs/*.txt", {b"docs/a.txt"}),
        (TREE, {b"docs/a.txt", b"docs/deep/b.txt", b"docs/star*", b"c.txt", b"a"}),
        (b"docs/", {b"docs/a.txt", b"docs/deep/b.txt", b"docs/star*"}),
        (b"*.txt", {b"docs/a.txt", b"docs/deep/b.txt", b"c.txt"}),
        (b"docs/*.txt", {b"docs/a.txt"}),
        (b"docs/star*", {b"docs/star*"}),
        (b"d*", {b"docs/a.txt", b"docs/deep/b.txt", b"docs/star*"}),
    ],
)
def test_paths_and_globs(world: World, place: Path, pattern: bytes, names: set[bytes]) -> None:
    for name in (b"docs/a.txt", b"docs/deep/b.txt", b"docs/star*", b"c.txt", b"a"):
        write(world.tree + b"/" + name)
    world.archive(world.rows())
    world.restore(pattern, to=place)
    assert set(snapshot(restored_tree(place), directories=False)) == names
    with pytest.raises(UsageError, match="nothing that is archived"):
        world.restore(b"a.tx", b"*.tx", to=place)
