"""The closed directory of the source: only what was judged goes, and only this program gets there."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.core.entry import Entry
from migrator.core.errors import Refused
from migrator.fs.reading import ReadingFileSystem
from migrator.purge.files import MountedPlaces
from migrator.purge.model import PURGE_NAME

PLACE = PURGE_NAME + b"/cutover-000003-token"


@pytest.fixture
def places(tmp_path: Path) -> Iterator[MountedPlaces]:
    (tmp_path / "home/alice").mkdir(parents=True)
    (tmp_path / "home/alice/f").write_text("f")
    made = MountedPlaces(os.fsencode(tmp_path))
    yield made
    made.close()


def seen(root: Path, path: bytes) -> Entry:
    entry = ReadingFileSystem(os.fsencode(root)).look(path)
    assert entry is not None
    return entry


def test_another_directory_or_a_symlink_in_its_place_is_not_moved(places: MountedPlaces, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="another directory"):
        places.put(b"home/alice", PLACE, ino=1)
    (tmp_path / "home/alice").rename(tmp_path / "away")
    (tmp_path / "home/alice").symlink_to(tmp_path / "away")
    with pytest.raises(OSError, match="another directory"):
        places.put(b"home/alice", PLACE, ino=(tmp_path / "away").stat().st_ino)
    assert (tmp_path / "away/f").exists()


@pytest.mark.parametrize("made", ["file", "symlink", "open"])
def test_a_closed_directory_of_somebody_else_is_refused(places: MountedPlaces, tmp_path: Path, made: str) -> None:
    theirs = tmp_path / ".migrator-purge"
    if made == "file":
        theirs.write_text("")
    elif made == "symlink":
        theirs.symlink_to(tmp_path / "home")
    else:
        theirs.mkdir()
        theirs.chmod(0o755)
    with pytest.raises(Refused):
        places.put(b"home/alice", PLACE, ino=(tmp_path / "home/alice").stat().st_ino)
    assert (tmp_path / "home/alice/f").exists()


def test_only_what_was_seen_is_removed(places: MountedPlaces, tmp_path: Path) -> None:
    path, file = b"home/alice/f", tmp_path / "home/alice/f"
    before = seen(tmp_path, path)
    file.write_text("g")
    assert not places.remove(path, before)
    now = seen(tmp_path, path)
    others = [
        replace(now, ino=now.ino + 1),
        replace(now, size_bytes=2),
        replace(now, mode=0o600 if now.mode != 0o600 else 0o644),
        replace(now, uid=now.uid + 1),
        replace(now, ctime_ns=now.ctime_ns - 1),
    ]
    assert not any(places.remove(path, other) for other in others)
    file.rename(tmp_path / "home/alice/other")
    file.symlink_to(tmp_path / "home/alice/other")
    assert not places.remove(path, now)
    assert (tmp_path / "home/alice/other").exists()
    link = seen(tmp_path, path)
    assert places.remove(path, link)
    assert (tmp_path / "home/alice/other").exists()


def as_user(work: Callable[[], object]) -> int:
    """The exit code of a process of the user 60001: 0, or 13 if permission was denied."""
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(60001, 60001, 60001)
        os.setresuid(60001, 60001, 60001)
        try:
            work()
        except PermissionError:
            os._exit(13)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.needs_root
def test_a_directory_is_closed_to_whoever_has_it_open(places: MountedPlaces, tmp_path: Path) -> None:
    top = tmp_path / "home/alice"
    os.chown(top, 60001, 60001)
    entry = seen(tmp_path, b"home/alice")
    fd = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    assert as_user(lambda: os.open("before", os.O_CREAT | os.O_WRONLY, dir_fd=fd)) == 0
    places.close_directory(b"home/alice", seen(tmp_path, b"home/alice"))
    assert as_user(lambda: os.open("after", os.O_CREAT | os.O_WRONLY, dir_fd=fd)) == 13
    assert as_user(lambda: os.unlink("f", dir_fd=fd)) == 13
    os.close(fd)
    places.close_directory(b"home/alice", entry)
    with pytest.raises(OSError, match="another directory"):
        places.close_directory(b"home/alice", replace(entry, ino=1))
