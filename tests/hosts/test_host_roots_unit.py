"""Whether what a host would read and write is what the site means."""

from migrator.fs.model import MountIdentity
from migrator.hosts.model import HostRoots, brick_problem, target_problem

RECORDED = MountIdentity(filesystem="xfs", mounted_from="/dev/sdb", device=1, fsid=1, root_ino=128, sentinel="site one")
VOLUME = "0a1b2c3d-0000-1111-2222-333344445555"


def test_the_recorded_sentinel_is_the_target() -> None:
    assert target_problem(RECORDED, HostRoots(sentinel="site one"), "/mnt/t") is None


def test_an_empty_mount_point_is_no_target() -> None:
    problem = target_problem(RECORDED, HostRoots(target_error="No such file or directory"), "/mnt/t")
    assert problem == (
        "the target is not mounted at /mnt/t there: its sentinel cannot be read (No such file or directory)"
    )


def test_another_sites_target_is_none() -> None:
    assert "site two" in (target_problem(RECORDED, HostRoots(sentinel="site two"), "/mnt/t") or "")


def test_without_a_recorded_sentinel_nothing_can_be_proven() -> None:
    assert target_problem(None, HostRoots(sentinel="site one"), "/mnt/t") is not None


def test_a_brick_carries_its_volumes_id() -> None:
    assert brick_problem(VOLUME, HostRoots(volume_id=VOLUME.replace("-", "")), "gl1:/b") is None
    assert "another volume" in (brick_problem(VOLUME, HostRoots(volume_id="00" * 16), "gl1:/b") or "")
    assert "no brick" in (brick_problem(VOLUME, HostRoots(brick_error="No data available"), "gl1:/b") or "")
    assert brick_problem(None, HostRoots(volume_id="00" * 16), "gl1:/b") is not None
