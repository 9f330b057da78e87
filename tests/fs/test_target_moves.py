"""What renaming on the target and its trash do, on XFS and on a file system with BeeGFS's limits."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import pytest

from migrator.core.errors import Refused
from migrator.fs import moving
from migrator.fs.model import TRASH_NAME, trash_place
from migrator.fs.moving import Expired, MovingTarget
from tests.conftest import MakeXfs
from tests.support.beegfs_like import beegfs_like, missing_for_fuse
from tests.support.xfs import bound

pytestmark = pytest.mark.needs_root

BEGUN_S = 1_700_000_000
PLACE = trash_place(BEGUN_S, 1, "delta", 1)
DAY_S = 86400
LEADS_NOWHERE = f"{os.strerror(errno.ELOOP)}|{os.strerror(errno.ENOTDIR)}"
HOSTILE = (b"-rf", b"new\nline", b"\xff\xfe", b"a" * 255, b"quo'te")


class Target:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.moves = MovingTarget(os.fsencode(path))

    def file(self, path: bytes, content: bytes = b"x") -> None:
        self.directory(os.path.dirname(path))
        with open(self.at(path), "wb") as stream:
            stream.write(content)

    def directory(self, path: bytes) -> None:
        os.makedirs(self.at(path), exist_ok=True)

    def symlink(self, path: bytes, to: bytes) -> None:
        os.symlink(to, self.at(path))  # noqa: PTH211 (the path is bytes)

    def at(self, path: bytes) -> bytes:
        return os.path.join(os.fsencode(self.path), path)

    def read(self, path: bytes) -> bytes:
        with open(self.at(path), "rb") as stream:
            return stream.read()

    def there(self, path: bytes) -> bool:
        return os.path.lexists(self.at(path))


@pytest.fixture(params=["xfs", "beegfs", "no flag"])
def target(
    request: pytest.FixtureRequest, make_xfs: MakeXfs, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Target]:
    if request.param == "beegfs" and (reason := missing_for_fuse()):
        pytest.skip(f"needs FUSE: {reason}")
    if request.param == "no flag":
        monkeypatch.setattr(moving, "_rename_without_replacing", lambda *_: errno.EINVAL)
    with beegfs_like(scratch) if request.param == "beegfs" else nullcontext(make_xfs().path) as path:
        made = Target(path)
        yield made
        made.moves.close()


@pytest.fixture
def outside(scratch: Path) -> Path:
    """Where symlinks of these tests lead: nothing may come or go there."""
    place = scratch / "outside"
    place.mkdir()
    return place


def in_trash(path: bytes) -> bytes:
    return b"/".join((TRASH_NAME, PLACE.encode(), path))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_is_moved_and_the_directories_above_are_made_closed(target: Target, name: bytes) -> None:
    target.file(b"home/a/" + name, b"content")
    target.moves.move(b"home/a/" + name, b"home/a/new/deeper/" + name)
    assert target.read(b"home/a/new/deeper/" + name) == b"content"
    assert not target.there(b"home/a/" + name)
    for made in (b"home/a/new", b"home/a/new/deeper"):
        facts = os.stat(target.at(made))
        assert (facts.st_mode & 0o777, facts.st_uid, facts.st_gid) == (0o700, 0, 0)
    target.moves.move(b"home/a/new/deeper/" + name, b"home/a/" + name, shared=True)
    assert target.read(b"home/a/" + name) == b"content"
    assert not target.there(b"home/a/new/deeper/" + name)


@pytest.mark.parametrize("taken", ["file", "empty directory", "full directory", "symlink"])
def test_nothing_is_ever_overwritten(target: Target, taken: str) -> None:
    target.file(b"home/a/old", b"old")
    target.directory(b"home/a/olddir")
    match taken:
        case "file":
            target.file(b"home/a/new", b"new")
        case "empty directory":
            target.directory(b"home/a/new")
        case "full directory":
            target.file(b"home/a/new/x")
        case _:
            target.symlink(b"home/a/new", b"nowhere")
    before = target.moves.look(b"home/a/new")
    for old, shared in product((b"home/a/old", b"home/a/olddir"), (False, True)):
        with pytest.raises(FileExistsError):
            target.moves.move(old, b"home/a/new", shared=shared)
        assert target.there(old)
    assert target.moves.look(b"home/a/new") == before


def test_an_entry_that_cannot_be_moved_stays(target: Target) -> None:
    target.directory(b"home/a/d")
    target.file(b"home/a/taken")
    for new in (b"home/a/new", b"home/a/taken"):
        with pytest.raises(FileNotFoundError):
            target.moves.move(b"home/a/none", new)
    assert target.moves.trash(b"home/a/none", PLACE) is None
    with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
        target.moves.move(b"home/a/d", b"home/a/d/e")
    assert target.there(b"home/a/d")
    assert target.moves.expire(BEGUN_S) == Expired()
    assert not target.there(TRASH_NAME)


@pytest.mark.parametrize("path", [b"", b"/etc/x", b"home/../x", b"home//x", b"./x", b"home/a/.."])
def test_paths_that_are_none_lead_nowhere(target: Target, path: bytes) -> None:
    target.file(b"home/a/f")
    calls: tuple[Callable[[], object], ...] = (
        lambda: target.moves.move(b"home/a/f", path),
        lambda: target.moves.move(path, b"home/a/g"),
        lambda: target.moves.trash(path, PLACE),
        lambda: target.moves.trash(b"home/a/f", PLACE, name=path),
        lambda: target.moves.make_directory(path),
    )
    for call in calls:
        with pytest.raises(OSError, match="not the path of an entry"):
            call()
    assert target.there(b"home/a/f")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_is_taken_in_the_trash_gets_a_suffix(target: Target, name: bytes) -> None:
    went = set()
    for number in range(3):
        target.file(b"home/a/" + name, b"%d" % number)
        path = target.moves.trash(b"home/a/" + name, PLACE)
        assert path is not None
        assert target.read(path) == b"%d" % number
        went.add(path)
    assert len(went) == 3


@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_an_entry_in_the_trash_blocks_no_later_one(target: Target, kind: str, outside: Path) -> None:
    """A file (or a symlink to anywhere) was taken away, and later something that lay in a directory of its name."""
    target.directory(b"home/a")
    if kind == "file":
        target.file(b"home/a/d")
    else:
        target.symlink(b"home/a/d", os.fsencode(outside))
    target.moves.trash(b"home/a/d", PLACE)
    target.file(b"home/a/d/f", b"2")
    path = target.moves.trash(b"home/a/d/f", PLACE)
    assert path is not None
    assert path != in_trash(b"home/a/d/f")
    assert target.read(path) == b"2"
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("what", ["symlink", "file", "owner", "mode", "place symlink"])
def test_a_trash_that_is_not_roots_alone_is_refused(target: Target, what: str, outside: Path) -> None:
    (outside / "20200101T000000Z-batch-0001-delta-0001").mkdir()
    trash = target.path / os.fsdecode(TRASH_NAME)
    match what:
        case "symlink":
            trash.symlink_to(outside)
        case "file":
            trash.touch()
        case "owner":
            trash.mkdir(mode=0o700)
            os.chown(trash, 4321, 0)
        case "mode":
            trash.mkdir()
            trash.chmod(0o750)
        case _:
            trash.mkdir(mode=0o700)
            (trash / PLACE).symlink_to(outside)
    target.file(b"home/a/f")
    with pytest.raises(Refused, match=r"not a directory of root's alone"):
        target.moves.open_place(PLACE)
    with pytest.raises(Refused, match=r"not a directory of root's alone"):
        target.moves.trash(b"home/a/f", PLACE)
    if what != "place symlink":
        with pytest.raises(Refused, match=r"not a directory of root's alone"):
            target.moves.expire(BEGUN_S)
    assert target.there(b"home/a/f")
    assert [entry.name for entry in outside.iterdir()] == ["20200101T000000Z-batch-0001-delta-0001"]


def test_a_file_system_that_is_mounted_on_the_trash_is_refused(make_xfs: MakeXfs) -> None:
    target, other = Target(make_xfs().path), make_xfs()
    trash = target.path / os.fsdecode(TRASH_NAME)
    trash.mkdir(mode=0o700)
    other.path.chmod(0o700)
    with bound(other.path, trash), pytest.raises(Refused, match="another file system"):
        target.moves.open_place(PLACE)
    target.moves.close()


@pytest.mark.parametrize("swapped", [b"home/a/d", b"home/a/new"])
def test_a_directory_that_is_swapped_for_a_symlink_leads_nowhere(target: Target, swapped: bytes, outside: Path) -> None:
    (outside / "f").write_text("theirs")
    target.file(b"home/a/d/f", b"ours")
    target.directory(b"home/a/new")
    assert target.moves.look(b"home/a/d/f") is not None
    target.moves.move(swapped, b"aside")
    target.symlink(swapped, os.fsencode(outside))
    with pytest.raises(OSError, match=LEADS_NOWHERE):
        target.moves.move(b"home/a/d/f", b"home/a/new/g")
    with pytest.raises(OSError, match=LEADS_NOWHERE):
        target.moves.make_directory(swapped + b"/x")
    if swapped == b"home/a/d":
        assert target.moves.trash(b"home/a/d/f", PLACE) is None
    assert [entry.name for entry in outside.iterdir()] == ["f"]


def test_places_expire_by_their_names(target: Target) -> None:
    places = [trash_place(BEGUN_S + day * DAY_S, 1, "delta", day) for day in range(4)]
    for place in places:
        target.file(b"home/a/d/f")
        target.moves.trash(b"home/a/d", place)
    strange = target.path / os.fsdecode(TRASH_NAME) / "notes"
    strange.mkdir()
    (strange / "f").touch()
    expired = target.moves.expire(BEGUN_S + 3 * DAY_S, keep={places[1]})
    assert (expired.places, expired.problems) == (2, ())
    assert expired.names == 2 * 5  # the place, home, a, d, f
    left = sorted(entry.name for entry in strange.parent.iterdir())
    assert left == sorted([places[1], places[3], "notes"])
    assert (strange / "f").exists()
    assert target.moves.expire(BEGUN_S + 3 * DAY_S, keep={places[1]}) == Expired()
    # A place that is opened again lasts from then on.
    again = trash_place(BEGUN_S + 9 * DAY_S, 1, "delta", 1)
    target.moves.open_place(again, again=True)
    assert target.moves.expire(BEGUN_S + 9 * DAY_S).places == 1
    assert (strange.parent / again / "home/a/d/f").exists()
    assert not (strange.parent / places[1]).exists()


def test_expiry_takes_links_and_leaves_what_they_lead_to(target: Target, outside: Path) -> None:
    (outside / "f").touch()
    target.directory(b"home/a/d")
    target.symlink(b"home/a/d/link", os.fsencode(outside))
    target.moves.trash(b"home/a/d", PLACE)
    # Also where the place itself was replaced.
    target.symlink(b"/".join((TRASH_NAME, trash_place(BEGUN_S, 2, "delta", 1).encode())), os.fsencode(outside))
    expired = target.moves.expire(BEGUN_S + 1)
    assert expired.places == 1
    assert len(expired.problems) == 1
    assert (outside / "f").exists()


def test_expiry_enters_no_mount_also_of_the_same_file_system(make_xfs: MakeXfs) -> None:
    target, other = Target(make_xfs().path), make_xfs()
    (other.path / "theirs").touch()
    target.file(b"home/a/ours/f")
    for name in (b"same", b"other"):
        target.directory(b"home/b/" + name)
        target.moves.trash(b"home/b/" + name, PLACE)
    trashed = target.path / os.fsdecode(in_trash(b"home/b"))
    with bound(target.path / "home", trashed / "same"), bound(other.path, trashed / "other"):
        expired = target.moves.expire(BEGUN_S + 1)
        assert len(expired.problems) == 2
        assert expired.places == 0
        assert target.there(b"home/a/ours/f")
        assert (other.path / "theirs").exists()
    assert target.moves.expire(BEGUN_S + 1).places == 1
    target.moves.close()


def test_deep_and_wide_directories_go_whole(make_xfs: MakeXfs) -> None:
    target = Target(make_xfs().path)
    target.directory(b"home/a/d")
    fd = os.open(target.at(b"home/a/d"), os.O_RDONLY)
    depth = 60
    for _ in range(depth):  # some 12,000 bytes of path
        os.mkdir(b"n" * 200, dir_fd=fd)
        deeper = os.open(b"n" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = deeper
    for number in range(3000):
        os.close(os.open(b"%d" % number, os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)
    target.moves.trash(b"home/a/d", PLACE)
    expired = target.moves.expire(BEGUN_S + 1)
    assert (expired.places, expired.problems) == (1, ())
    assert expired.names == 3000 + depth + 4
    assert list((target.path / os.fsdecode(TRASH_NAME)).iterdir()) == []
    target.moves.close()


def test_an_entry_that_cannot_be_removed_is_reported_and_the_others_go(make_xfs: MakeXfs) -> None:
    target = Target(make_xfs().path)
    for name in (b"stays", b"goes"):
        target.file(b"home/a/" + name)
        target.moves.trash(b"home/a/" + name, PLACE)
    stays = target.at(in_trash(b"home/a/stays"))
    subprocess.run(["chattr", "+i", stays], check=True)
    try:
        expired = target.moves.expire(BEGUN_S + 1)
        assert expired.places == 0
        assert len(expired.problems) == 1
        assert "home/a/stays" in expired.problems[0]
        assert not target.there(in_trash(b"home/a/goes"))
    finally:
        subprocess.run(["chattr", "-i", stays], check=True)
    assert target.moves.expire(BEGUN_S + 1).places == 1
    target.moves.close()
