"""`brick drain --recover` on a real cluster: what Gluster cannot move comes back through the mount, and the brick goes."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.bricks.recover.model import WORK_DIRECTORY
from migrator.lab.model import LabBrick
from tests.bricks.drain.real_drains import digests
from tests.support.cluster.comparing import wait_until_is_there
from tests.support.cluster.fixtures import MakeLab, with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import LabSite, lab_site
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root]

HOSTILE = b"-left\n\xff behind"
TIME_NS = 1_577_934_245_678_901_234


@pytest.fixture
def lab(make_lab: MakeLab) -> LabHandle:
    lab = make_lab(hosts=3, bricks_per_host=1, users=2, files=60, odd=False)
    with_ssh(lab)
    return lab


@pytest.fixture
def site(lab: LabHandle, tmp_path: Path) -> Iterator[LabSite]:
    target = Path(os.fsdecode(lab.state.target)) / f"recovered-{os.getpid()}-{time.monotonic_ns()}"
    target.mkdir()
    more = '[drain]\nthrottle = "aggressive"\npoll = "0.2s"\n'
    with lab_site(lab, tmp_path / "site", target, via="auto", hosts=True, more=more) as made:
        made.json("init")
        made.json("scan", "--via", "bricks")
        yield made


def made_on(lab: LabHandle, brick: LabBrick, directory: Path, make: str, *, elsewhere: bool = False) -> Path:
    """A new file or symlink that lies on this brick, or `elsewhere`: Gluster places it by its name."""
    on_brick = lab.brick_directory(brick) / directory.relative_to(lab.source)
    for number in range(200):
        one = directory / f"{make}-{number}"
        if make == "symlink":
            one.symlink_to(f"nowhere-{number}")
        else:
            one.write_bytes(b"content of " + os.fsencode(one.name))
        if os.path.lexists(on_brick / one.name) is not elsewhere:
            return one
        one.unlink()
    raise AssertionError("no name lies there")


@pytest.mark.guarantee("drain-commit")
@pytest.mark.guarantee("drain-recover")
def test_what_gluster_leaves_comes_back_and_the_brick_goes(lab: LabHandle, site: LabSite) -> None:  # noqa: PLR0915
    """One lab for all of it: they are dear."""
    brick = lab.bricks[-1]
    root = lab.brick_directory(brick)
    home = lab.source / "home" / "left"
    home.mkdir()
    # After the scan, so that the guard does not know it.
    symlink = made_on(lab, brick, home, "symlink")
    os.link(symlink, home / "symlink-again", follow_symlinks=False)
    # Gluster moves these itself.
    linked = made_on(lab, brick, home, "linked")
    os.link(linked, home / "linked-again")
    os.chown(linked, 20001, 20002)
    linked.chmod(0o640)
    os.setxattr(linked, "user.kept", b"value")
    os.utime(linked, ns=(TIME_NS + 1, TIME_NS))
    before = digests(lab.source)
    words = (brick.name, "--accept-open-files")

    # Gluster fails, what it left is set aside, and the program is killed there.
    killed = site.start_patient("migrator.bricks.recover.stage.SETTLE_S", 3600.0, "brick", "drain", *words, "--recover")
    aside = Path(os.fsdecode(os.fsencode(lab.source) + b"/" + WORK_DIRECTORY)) / "aside/home/left"
    try:
        wait_for(
            lambda: killed.poll() is not None or (aside.is_dir() and any(aside.iterdir())), "something is set aside"
        )
        assert killed.poll() is None, site.json("brick", "status")
    finally:
        killed.kill()
        killed.wait()
    # What was put there past Gluster, of a hostile name: the volume is never asked for it, as clients can hang on that.
    placed = os.fsencode(root) + b"/home/left/" + HOSTILE
    with open(placed, "wb") as file:
        file.write(b"past Gluster")
    # The volume has the name of this one, for another file, which is on another brick.
    taken = made_on(lab, brick, home, "taken", elsewhere=True)
    theirs = taken.read_bytes()
    (root / "home/left" / taken.name).write_bytes(b"of the brick")

    refused = site.json("brick", "drain", *words, "--recover", code=4)
    assert taken.read_bytes() == theirs
    with open(placed, "rb") as file:
        assert file.read() == b"past Gluster"
    assert f"home/left/{taken.name}" in refused["left_behind"], refused
    assert len(refused["left_behind"]) == 2
    assert not os.path.lexists(os.fsencode(lab.source) + b"/" + WORK_DIRECTORY)
    # What is neither open nor contested was brought back by that call already.
    for one in (symlink, home / "symlink-again"):
        assert not os.path.lexists(root / one.relative_to(lab.source)), one

    (root / "home/left" / taken.name).unlink()
    Path(os.fsdecode(placed)).unlink()
    done = site.json("brick", "drain", *words, "--recover")
    assert done["ending"] == "done", done
    assert (done["standing"]["failures"], done["standing"]["skipped"]) == (0, 0)
    again = home / "symlink-again"
    assert symlink.readlink() == again.readlink() == Path(f"nowhere-{symlink.name.partition('-')[2]}")
    assert symlink.lstat().st_ino == again.lstat().st_ino
    facts = linked.stat()
    assert facts.st_ino == (home / "linked-again").stat().st_ino
    assert (facts.st_nlink, facts.st_uid, facts.st_gid, facts.st_mode & 0o7777) == (2, 20001, 20002, 0o640)
    assert facts.st_mtime_ns == TIME_NS
    assert os.getxattr(linked, "user.kept") == b"value"
    wait_until_is_there(lambda: digests(lab.source), before, more=True)
    assert not os.path.lexists(os.fsencode(lab.source) + b"/" + WORK_DIRECTORY)
