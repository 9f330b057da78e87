"""What a recovery does in the volume, on a real file system: names that somebody changes under it, and a directory of its own
that is not its own.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from migrator.bricks.recover.model import Leftover
from migrator.bricks.recover.stage import MountedVolumeRecovery
from migrator.core.entry import EntryType
from tests.support.making import made

pytestmark = pytest.mark.needs_root

WORK = ".migrator-recover"


def leftover(name: bytes = b"home/a") -> Leftover:
    return made(
        Leftover,
        brick="gl1:/b",
        names=(name,),
        type=EntryType.FILE,
        gfid=b"g" * 16,
        inode=1,
        link_count=1,
        mode=0o640,
        mtime_ns=5,
        ctime_ns=5,
        atime_ns=5,
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/a").write_bytes(b"the leftover")
    return tmp_path


def recovery(root: Path) -> MountedVolumeRecovery:
    return MountedVolumeRecovery(os.fsencode(root))


@pytest.mark.guarantee("drain-recover")
@pytest.mark.parametrize("how", ["owner", "mode", "symlink"])
def test_a_directory_of_its_name_that_a_user_has_made_is_left_as_it_is(root: Path, how: str) -> None:
    made = root / WORK if how != "symlink" else root / "home/theirs"
    made.mkdir(mode=0o700)
    for inner in ("copy", "aside"):
        (made / inner).mkdir()
    (made / "copy/thesis").write_bytes(b"of the user")
    if how == "owner":
        os.chown(made, 20500, 20500)
    elif how == "mode":
        made.chmod(0o755)
    else:
        (root / WORK).symlink_to(made)
    # Named as the copy would be: it must not be taken for it either.
    os.link(root / "home/a", made / "copy" / os.fsdecode(leftover().key))
    before = sorted(str(path) for path in root.rglob("*"))
    tries: tuple[Callable[[MountedVolumeRecovery], Any], ...] = (
        lambda one: one.copy_inode(leftover()),
        lambda one: one.begin_copy(leftover()),
        lambda one: one.set_aside(b"home/a"),
        lambda one: one.put_back(b"home/a"),
        lambda one: one.drop_copy(leftover()),
        lambda one: one.tidy(()),
    )
    for attempt in tries:
        with pytest.raises((PermissionError, NotADirectoryError)):
            attempt(recovery(root))
    assert sorted(str(path) for path in root.rglob("*")) == before


@pytest.mark.guarantee("drain-recover")
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_takes_the_name_in_the_moment_in_which_it_is_set_aside_keeps_it(
    root: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = os.rename
    calls: list[bytes] = []

    def rename(source: Any, target: Any, **places: Any) -> None:
        if not calls:
            right(root / "home/a", root / "home/elsewhere")
            if kind == "file":
                (root / "home/a").write_bytes(b"new")
            else:
                (root / "home/a").mkdir()
                (root / "home/a/inner").write_bytes(b"inner")
        calls.append(source)
        right(source, target, **places)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OSError, match="took its name"):
        recovery(root).set_aside(b"home/a")
    assert calls
    found = root / "home/a" if kind == "file" else root / "home/a/inner"
    assert found.read_bytes() == (b"new" if kind == "file" else b"inner")
    assert not (root / WORK / "aside/home/a").exists()
    assert (root / "home/elsewhere").read_bytes() == b"the leftover"


def test_what_was_set_aside_comes_back_and_what_has_its_name_stays(root: Path) -> None:
    one = recovery(root)
    one.set_aside(b"home/a")
    assert not (root / "home/a").exists()
    (root / "home/a").write_bytes(b"new")
    with pytest.raises(FileExistsError):
        one.put_back(b"home/a")
    (root / "home/a").unlink()
    one.put_back(b"home/a")
    one.tidy(())
    assert (root / "home/a").read_bytes() == b"the leftover"
    assert not (root / WORK).exists()
