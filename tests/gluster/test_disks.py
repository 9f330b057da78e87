"""What else lies on the disk of a brick, found on real file systems, partitions and mounts."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from migrator.core.units import MIB
from migrator.gluster import far_disk
from migrator.gluster.model import DiskFacts
from migrator.gluster.probes import probe_disks
from migrator.gluster.rules import disk_problems
from tests.conftest import MakeXfs
from tests.support.leftovers import detach, detach_when_killed
from tests.support.one_host import OneHost
from tests.support.xfs import run_tool, unmount


def look(path: Path, *others: Path, full: bool = True) -> DiskFacts:
    names = [f"gl1:{one}" for one in (path, *others)]
    return asyncio.run(probe_disks(OneHost(), names, full=full))[names[0]]


@pytest.fixture
def brick(make_xfs: MakeXfs) -> Path:
    path = make_xfs().path / "bricks" / "data"
    path.mkdir(parents=True)
    (path / "file").touch()
    return path


@pytest.mark.needs_root
@pytest.mark.guarantee("wipe")
def test_whatever_lies_beside_a_brick_is_found(brick: Path) -> None:
    mount = brick.parents[1]
    alone = look(brick)
    assert (alone.unexplained, alone.mount, disk_problems({"b": alone})) == ((), str(mount), ())
    assert alone.identity
    (mount / "lost+found").mkdir()
    assert look(brick) == alone
    storage = mount / "beegfs_storage"
    (storage / "chunks").mkdir(parents=True)
    (storage / "format.conf").touch()
    other = brick.parent / "other\n"
    other.mkdir()
    os.setxattr(other, "trusted.glusterfs.volume-id", bytes(16))
    assert look(brick).unexplained == (
        f"{storage} (a storage target of BeeGFS)",
        f"{brick.parent}/other\\n (a brick of volume {'00' * 16})",
    )
    assert look(brick, other).unexplained == (f"{storage} (a storage target of BeeGFS)",)
    (problem,) = disk_problems({"gl1:b": look(brick)})
    assert problem.startswith(f"the disk of gl1:{brick} holds more than that: {storage}")


@pytest.mark.needs_root
def test_a_disk_that_is_given_away_is_empty(brick: Path) -> None:
    mount = brick.parents[1]
    assert look(mount, full=False).unexplained == (f"{mount}/bricks",)
    assert look(brick, full=False).unexplained == (f"{brick}/file",)
    (brick / "file").unlink()
    assert look(brick, full=False).unexplained == ()


@pytest.mark.needs_root
def test_a_file_system_that_is_mounted_twice_or_has_one_in_it_is_found(brick: Path, tmp_path: Path) -> None:
    again, inside = tmp_path / "again", brick / "inside"
    for place, source in ((again, brick), (inside, tmp_path)):
        place.mkdir()
        run_tool("mount", "--bind", str(source), str(place))
    try:
        assert look(brick).unexplained == (
            f"{again} (the same file system, mounted again)",
            f"{inside} (a file system that is mounted in it)",
        )
    finally:
        unmount(inside)
        unmount(again)


@contextmanager
def partitions(directory: Path) -> Iterator[tuple[str, str]]:
    """Two partitions of one loop device."""
    image = directory / "disk.img"
    with image.open("wb") as file:
        file.truncate(700 * MIB)
    device = run_tool("losetup", "--find", "--show", str(image)).strip()
    detach_when_killed(device)
    try:
        for number, start in (("1", "2048"), ("2", "702048")):
            run_tool("addpart", device, number, start, "700000")
        yield f"{device}p1", f"{device}p2"
    finally:
        detach(device)


@pytest.mark.needs_root
def test_other_partitions_of_its_disk_are_found(scratch: Path) -> None:
    with partitions(scratch) as (first, second), ExitStack() as mounted:
        places = {}
        for device in (first, second):
            run_tool("mkfs.xfs", "-q", device)
            places[device] = scratch / os.path.basename(device)
            places[device].mkdir()
        run_tool("mount", first, str(places[first]))
        mounted.callback(unmount, places[first])
        brick = places[first] / "data"
        brick.mkdir()
        disk = look(brick)
        assert disk.unexplained == (f"{os.path.basename(second)} (on the same disk, not mounted)",)
        run_tool("mount", second, str(places[second]))
        mounted.callback(unmount, places[second])
        assert look(brick).unexplained == (f"{places[second]} ({os.path.basename(second)}, on the same disk)",)
        # A new file system is on the same disk still; the other partition is another place.
        assert disk.identity != look(places[second]).identity
        unmount(places[first])
        run_tool("mkfs.xfs", "-q", "-f", first)
        run_tool("mount", first, str(places[first]))
        assert look(brick).identity == disk.identity


def test_a_place_without_a_file_system_of_its_own_has_no_disk() -> None:
    disk = look(Path("/nowhere/brick"))
    assert (disk.mount, disk.unexplained) == ("", ())
    assert "file system of the root directory" in disk_problems({"b": disk})[0]
    assert "unknown: gone" in disk_problems({"b": DiskFacts(name="b", unread="gone")})[0]


def test_logical_volumes_are_traced_to_their_disks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sdb holds a volume group with a thin pool of two volumes, as Red Hat advises for bricks; sdc is another disk."""
    made = {
        "sdb": {"dev": "8:16", "wwid": "naa.5000"},
        "sdc": {"dev": "8:32"},
        "dm-0": {"dev": "253:0", "dm/uuid": "LVM-a-tmeta"},
        "dm-1": {"dev": "253:1", "dm/uuid": "LVM-a-tdata"},
        "dm-2": {"dev": "253:2", "dm/uuid": "LVM-a-tpool"},
        "dm-3": {"dev": "253:3", "dm/uuid": "LVM-a-pool"},
        "dm-4": {"dev": "253:4", "dm/uuid": "LVM-b1"},
        "dm-5": {"dev": "253:5", "dm/uuid": "LVM-b2"},
    }
    below = {"dm-0": ["sdb"], "dm-1": ["sdb"], "dm-2": ["dm-0", "dm-1"]}
    below |= {name: ["dm-2"] for name in ("dm-3", "dm-4", "dm-5")}
    (tmp_path / "by-number").mkdir()
    for name, files in made.items():
        (tmp_path / name / "slaves").mkdir(parents=True)
        (tmp_path / name / "holders").mkdir()
        for file, content in files.items():
            (tmp_path / name / file).parent.mkdir(exist_ok=True)
            (tmp_path / name / file).write_text(content + "\n")
        (tmp_path / "by-number" / files["dev"]).symlink_to(tmp_path / name)
    for name, lower in below.items():
        for one in lower:
            (tmp_path / name / "slaves" / one).symlink_to(tmp_path / one)
            (tmp_path / one / "holders" / name).symlink_to(tmp_path / name)
    monkeypatch.setattr(far_disk, "BLOCK_DEVICES", str(tmp_path / "by-number"))
    disk = far_disk.Disk("253:4")
    assert (sorted(disk.ends), disk.identity) == (["253:4", "253:5"], "naa.5000 LVM-b1")
    assert far_disk.Disk("8:32").names == {"8:32": "sdc"}
