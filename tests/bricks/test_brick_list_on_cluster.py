"""`brick list` on a real cluster."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator.fs.model import SENTINEL_NAME
from tests.support.cluster.fixtures import with_ssh
from tests.support.cluster.handle import LabHandle
from tests.support.cluster.site import LabSite, lab_site

pytestmark = [pytest.mark.cluster, pytest.mark.needs_root, pytest.mark.exhaustive]


@pytest.fixture
def site(lab: LabHandle, tmp_path: Path) -> Iterator[LabSite]:
    with_ssh(lab)
    target = lab.target / "brick-list"
    target.mkdir(exist_ok=True)
    try:
        with lab_site(lab, tmp_path / "site", target, via="auto", hosts=True) as made:
            made.json("init")
            yield made
    finally:
        for entry in target.iterdir():
            entry.unlink()
        target.rmdir()


def counted(lab: LabHandle) -> dict[str, int]:
    """Names of files on every brick, without Gluster's own and without the sentinel."""
    return {brick.name: files_of(lab.brick_directory(brick)) for brick in lab.bricks}


def files_of(root: Path) -> int:
    count = 0
    # By descriptor: some of the lab's paths are longer than a path may be.
    for directory, below, names, fd in os.fwalk(root):
        if Path(directory) == root:
            below[:] = [name for name in below if not name.startswith(".glusterfs")]
            names[:] = [name for name in names if name != os.fsdecode(SENTINEL_NAME)]
        # Symlinks to directories are among `below`, and not entered.
        symlinks = [name for name in below if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)]
        count += len(symlinks) + sum(is_data(fd, name) for name in names)
    return count


def is_data(fd: int, name: str) -> bool:
    """Whether it is no link-to file."""
    if stat.S_IMODE(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode) != stat.S_ISVTX:
        return True
    return "trusted.glusterfs.dht.linkto" not in os.listxattr(f"/proc/self/fd/{fd}/{name}", follow_symlinks=False)


def test_bricks_with_their_room_and_their_users(lab: LabHandle, site: LabSite) -> None:
    before = site.json("brick", "list")
    assert [brick["uses"] for brick in before["bricks"]] == [None] * 6
    assert "nothing was scanned yet" in before["notes"][0]

    site.json("scan", "--via", "bricks")
    listing = site.json("brick", "list")
    assert {brick["name"] for brick in listing["bricks"]} == {brick.name for brick in lab.bricks}
    assert {brick["state"] for brick in listing["bricks"]} == {"up"}
    assert not any(brick["draining"] for brick in listing["bricks"])
    for brick in listing["bricks"]:
        assert brick["room"]["filesystem"] == "xfs"
        assert 0 < brick["room"]["free_bytes"] < brick["room"]["total_bytes"]
        assert 0 < brick["room"]["free_inodes"] <= brick["room"]["total_inodes"]
    assert {brick["name"]: brick["files"] for brick in listing["bricks"]} == counted(lab)
    assert listing["gluster_version"][0].isdigit()
    assert listing["versions"] == {brick["host"]: listing["gluster_version"] for brick in listing["bricks"]}
    assert all(fault["versions"] != "from 11.0, before 11.1" for fault in listing["faults"])
    assert listing["tasks"] == []

    user = next(use["user"] for brick in listing["bricks"] for use in brick["uses"] if use["user"])
    only = site.json("brick", "list", "--user", user)
    assert {use["user"] for brick in only["bricks"] for use in brick["uses"]} == {user}
    unknown = site.call("brick", "list", "--user", "nobody-at-all")
    assert unknown.returncode == 2
    assert "knows no user" in unknown.stderr

    shown = site.call("brick", "list")
    assert shown.returncode == 0
    assert "Known faults" in shown.stdout
    assert "Traceback" not in shown.stderr


def test_a_brick_that_is_down_and_a_host_that_does_not_tell(lab: LabHandle, site: LabSite) -> None:
    brick = lab.bricks[-1]
    with lab.brick_down(brick):
        listing = site.json("brick", "list")
        assert {one["name"]: one["state"] for one in listing["bricks"]}[brick.name] == "down"
        assert "fewer files" in site.call("brick", "list").stdout
    # Not the first host: the lab's own command asks that one.
    host = lab.state.hosts[-1]
    with lab.glusterd_down(host):
        listing = site.json("brick", "list")
        of_host = [one for one in listing["bricks"] if one["host"] == host.address]
        assert [one["state"] for one in of_host] == ["unknown"] * 2
        assert [one["room"]["free_bytes"] for one in of_host] == [None] * 2
        assert listing["peers_down"] == [host.address]
