"""Directories that became root's with mode 0000 get owner and mode back, and no others are touched."""

import os
import stat
from pathlib import Path

import pytest

from migrator.adapters.catalog.directory_owners import directory_owners
from migrator.adapters.filesystems.putting_back import put_owners_back
from migrator.domain.directory_owners import DirectoryOwner, OwnersPutBack
from migrator.domain.entry import EntryType
from tests.catalogs import invented, write_catalog

pytestmark = pytest.mark.needs_root


def scanned(root: Path, name: bytes) -> DirectoryOwner:
    facts = os.lstat(os.path.join(os.fsencode(root), name))
    return DirectoryOwner(
        path=name, inode=facts.st_ino, mode=stat.S_IMODE(facts.st_mode), uid=facts.st_uid, gid=facts.st_gid
    )


def make(root: Path, name: str, *, mode: int = 0o2750, uid: int = 20001) -> DirectoryOwner:
    path = root / name
    path.mkdir(parents=True)
    os.chown(path, uid, uid)
    path.chmod(mode)
    return scanned(root, os.fsencode(name))


def shut(root: Path, name: str) -> None:
    os.chown(root / name, 0, 0)
    (root / name).chmod(0)


def test_a_shut_directory_gets_owner_and_mode_back_also_below_another_one(tmp_path: Path) -> None:
    outer, inner = make(tmp_path, "home"), make(tmp_path, "home/in\udcff er", mode=0o1777, uid=20002)
    shut(tmp_path, "home/in\udcff er")
    shut(tmp_path, "home")
    found = put_owners_back(os.fsencode(tmp_path), [inner, outer])
    assert found == OwnersPutBack(looked_at=2, mended=2, examples=(inner.path, outer.path))
    assert [scanned(tmp_path, one.path) for one in (outer, inner)] == [outer, inner]
    assert put_owners_back(os.fsencode(tmp_path), [inner, outer]) == OwnersPutBack(looked_at=2)


def test_what_people_have_changed_stays(tmp_path: Path) -> None:
    names = ("closed", "given", "root's", "replaced", "swapped", "gone", "always")
    known = [make(tmp_path, name, **({"mode": 0, "uid": 0} if name == "always" else {})) for name in names]
    (tmp_path / "closed").chmod(0)
    os.chown(tmp_path / "given", 20003, 20003)
    os.chown(tmp_path / "root's", 0, 0)
    (tmp_path / "replaced").rename(tmp_path / "kept")
    make(tmp_path, "replaced", mode=0, uid=0)
    (tmp_path / "elsewhere").mkdir()
    shut(tmp_path, "elsewhere")
    (tmp_path / "swapped").rmdir()
    (tmp_path / "swapped").symlink_to("elsewhere")
    (tmp_path / "gone").rmdir()
    before = {path.name: scanned(tmp_path, os.fsencode(path.name)) for path in tmp_path.iterdir()}
    assert put_owners_back(os.fsencode(tmp_path), known) == OwnersPutBack(looked_at=len(names))
    assert {path.name: scanned(tmp_path, os.fsencode(path.name)) for path in tmp_path.iterdir()} == before


def test_a_catalog_tells_owner_and_mode_of_every_directory(tmp_path: Path) -> None:
    ino = 2**63 + 5
    entries = [
        invented(b"home", EntryType.DIRECTORY, mode=0o755, uid=0, gid=0),
        invented(b"home/a\xff", EntryType.DIRECTORY, mode=0o2750, uid=20001, gid=20002, ino=ino),
        invented(b"home/file"),
    ]
    write_catalog(tmp_path, entries, (b"home/a\xff",))
    found = {one.path: one for one in directory_owners(tmp_path, "catalog-1", temp_dir=tmp_path / "tmp")}
    assert set(found) == {b"home", b"home/a\xff"}
    assert found[b"home/a\xff"] == DirectoryOwner(path=b"home/a\xff", inode=ino, mode=0o2750, uid=20001, gid=20002)
