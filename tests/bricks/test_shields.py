"""Shields: files without an ACL below a default ACL keep their access while bricks are drained or filled."""

import asyncio
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from migrator.bricks.shields import Shields, is_shield, shield
from migrator.bricks.status import shield_blockers
from migrator.core.entry import ACL_ACCESS
from migrator.core.errors import ToolFailed
from migrator.core.tasks import DaemonThreads
from migrator.fs.acl import owning_group_bits, parse_acl
from migrator.gluster.model import Brick, VolumeState
from tests.bricks.drain.real_drains import SETTINGS
from tests.support.brick_reports import brick_reports
from tests.support.cluster.fixtures import MakeLab, with_ssh
from tests.support.cluster.site import lab_site
from tests.support.hand_brick import HandBrick
from tests.support.volumes import volume


@given(st.integers(0, 0o7777))
def test_a_shield_grants_what_the_mode_grants(mode: int) -> None:
    entries = parse_acl(shield(mode)) or ()
    assert is_shield(shield(mode))
    assert [entry.permissions for entry in entries] == [mode >> 6 & 7, mode >> 3 & 7, mode >> 3 & 7, mode & 7]
    assert owning_group_bits(entries) == mode >> 3 & 7


@dataclass
class Shielded:
    """A brick that is its own mount."""

    brick: HandBrick
    shields: Shields

    def state(self) -> VolumeState:
        at = Brick(name="gl1:/b", host="gl1", path=os.fsencode(self.brick.root), online=True)
        return volume(at, volume_id=str(uuid.UUID(int=self.brick.seed)))

    def put_on(self) -> int:
        return asyncio.run(self.shields.put_on(self.state()))

    def take_off(self) -> int:
        return asyncio.run(self.shields.take_off(self.state()))

    def inode(self, gfid: bytes) -> int:
        return next(inode for inode, known in self.brick.gfids.items() if known == gfid)

    def all(self) -> dict[Path, tuple[int, bytes | None]]:
        """Mode and ACL of every file."""
        files = [path for path in self.brick.root.glob("home/**/*") if path.is_file() and not path.is_symlink()]
        return {path: (path.stat().st_mode, access(path)) for path in files}


def access(path: Path) -> bytes | None:
    try:
        return os.getxattr(path, ACL_ACCESS)
    except OSError:
        return None


def setfacl(*words: str | Path) -> None:
    subprocess.run(["setfacl", *words], check=True)


@pytest.fixture
def shielded(brick: HandBrick, tmp_path: Path) -> Shielded:
    for name in ("open/a", "open/b", "open/own", "open/deep/er", "closed/a"):
        brick.file(f"home/{name}", mode=0o640)
    os.link(brick.root / "home/open/b", brick.root / "home/open/again")
    (brick.root / "home/open/symlink").symlink_to("a")
    setfacl("-m", "u:20501:r", brick.root / "home/open/own")
    setfacl("-d", "-m", "u:20500:rwx", brick.root / "home/open")
    brick.adopt()
    made = Shielded(
        brick, Shields(reports=brick_reports(), root=b"", directory=tmp_path / "shields", blocking=DaemonThreads())
    )
    made.shields = replace(made.shields, root=os.fsencode(brick.root), inode_of=made.inode)
    return made


@pytest.mark.needs_root
@pytest.mark.guarantee("moved-acl")
def test_files_that_a_move_would_open_are_shielded_and_nothing_is_left_of_it(shielded: Shielded) -> None:
    before, root = shielded.all(), shielded.brick.root / "home"
    assert shielded.put_on() == 2
    during = shielded.all()
    changed = {path for path in before if during[path] != before[path]}
    assert changed == {root / "open/a", root / "open/b", root / "open/again"}
    assert {during[path] for path in changed} == {(0o100640, shield(0o640))}
    (file,) = shielded.shields.directory.iterdir()
    file.write_bytes(file.read_bytes()[:-5])  # as a kill leaves it
    assert (shielded.put_on(), shielded.shields.on) == (0, True)
    assert (shielded.take_off(), shielded.shields.on) == (2, False)
    assert shielded.all() == before
    assert shielded.take_off() == 0
    shutil.rmtree(root / "open")
    assert (shielded.put_on(), shielded.shields.on) == (0, False)


def chmod(path: Path) -> None:
    path.chmod(0o660)


def own_acl(path: Path) -> None:
    setfacl("-m", "u:20502:r", path)


def exchange(path: Path) -> None:
    path.unlink()
    path.symlink_to("own")


@pytest.mark.needs_root
@pytest.mark.parametrize("change", [chmod, own_acl, exchange, Path.unlink])
def test_changes_by_users_meanwhile_stay(shielded: Shielded, change: Callable[[Path], None]) -> None:
    file = shielded.brick.root / "home/open/a"
    shielded.put_on()
    change(file)
    wanted = shielded.all()
    with_own_acl = change is own_acl
    shielded.take_off()
    left = shielded.all()
    if file in left:
        assert left[file] == (wanted[file][0], wanted[file][1] if with_own_acl else None)
    assert left[file.with_name("own")] == wanted[file.with_name("own")]


@pytest.mark.needs_root
@pytest.mark.guarantee("moved-acl")
def test_shields_come_off_files_that_were_renamed_with_their_directory_or_by_themselves(shielded: Shielded) -> None:
    root = shielded.brick.root / "home"
    assert shielded.put_on() == 2
    (root / "open/a").rename(root / "closed/moved")
    (root / "open/own").rename(root / "open/a")
    (root / "closed").rename(root / "renamed")
    (root / "open").rename(root / "closed")
    wanted = access(root / "closed/a")
    assert (shielded.take_off(), shielded.shields.on) == (2, False)
    for path in (root / "renamed/moved", root / "closed/b"):
        assert (path.stat().st_mode & 0o777, access(path)) == (0o640, None)
    assert access(root / "closed/a") == wanted


@pytest.mark.needs_root
@pytest.mark.guarantee("moved-acl")
def test_a_shield_that_was_not_reached_stays_listed_and_is_named(shielded: Shielded) -> None:
    root = shielded.brick.root / "home"
    shielded.put_on()
    assert list(shield_blockers(shielded.shields.directory, (), ())) != []
    usual = shielded.shields
    gfid = os.getxattr(root / "open/b", "trusted.gfid")
    # Somebody renames it whenever it is looked for.
    shielded.shields = replace(usual, inode_of=lambda one: 0 if one == gfid else shielded.inode(one))
    for taken in (root / "open/a", None):
        with pytest.raises(ToolFailed, match=gfid.hex()):
            shielded.take_off()
        assert taken is None or access(taken) is None
        assert (usual.on, access(root / "open/b")) == (True, shield(0o640))
        (blocker,) = shield_blockers(usual.directory, (), ())
        assert gfid.hex() in blocker.on
    shielded.shields = usual
    assert (shielded.take_off(), usual.on, access(root / "open/b")) == (1, False, None)
    assert list(shield_blockers(usual.directory, (), ())) == []


@pytest.mark.needs_root
def test_a_brick_that_cannot_be_read_is_refused(shielded: Shielded) -> None:
    shielded.brick.seed += 1
    with pytest.raises(ToolFailed, match="no brick of this volume"):
        shielded.put_on()


@pytest.mark.cluster
@pytest.mark.needs_root
@pytest.mark.guarantee("moved-acl")
def test_files_whose_directory_is_renamed_while_a_brick_is_drained_lose_their_shields(
    make_lab: MakeLab, tmp_path: Path
) -> None:
    lab = with_ssh(make_lab(hosts=2, bricks_per_host=2, users=1, files=20, odd=False))
    top = lab.source / "shared"
    (top / "before").mkdir(parents=True)
    for number in range(40):
        (top / "before" / f"{number}").write_text("content")
        (top / "before" / f"{number}").chmod(0o640)
    setfacl("-d", "-m", "u:20500:rwx", top / "before")
    brick = lab.bricks[0]
    with lab_site(lab, tmp_path / "site", lab.target, via="auto", hosts=True, more=SETTINGS) as site:
        site.json("init")
        site.json("scan", "--via", "bricks")
        site.json("brick", "drain", brick.name, "--accept-open-files", "--no-commit")
        assert [access(path) for path in (top / "before").iterdir()] == [shield(0o640)] * 40
        assert [one for one in site.json("status")["blocked"] if one["subject"] == "shields"] == []
        (top / "before").rename(top / "after")
        (top / "before").mkdir()
        (top / "after" / "0").rename(top / "before" / "1")
        site.json("brick", "stop", brick.name)
        assert list((site.directory / "state" / "shields").iterdir()) == []
        files = [*(top / "after").iterdir(), top / "before" / "1"]
        assert {(path.stat().st_mode & 0o777, access(path)) for path in files} == {(0o640, None)}
        assert len(files) == 40
        (top / "after" / "7").chmod(0o660)
        assert subprocess.run(
            ["getfacl", "-c", top / "after" / "7"], capture_output=True, check=True
        ).stdout.split() == [*(b"user::rw-", b"group::rw-", b"other::---")]
