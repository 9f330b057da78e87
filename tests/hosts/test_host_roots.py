"""The roots of a host, read with a real Python there, and whether they are the roots that the site means."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from migrator.core.errors import ToolFailed
from migrator.fs.model import SENTINEL_NAME, MountIdentity
from migrator.hosts.model import HostRoots, brick_problem, target_problem
from migrator.hosts.process import LocalProcesses
from migrator.hosts.site import look_at_roots
from tests.support.xfs import XfsMount

PYTHON = os.fsencode(sys.executable)
RECORDED = MountIdentity(filesystem="xfs", mounted_from="/dev/sdb", device=1, fsid=1, root_ino=128, sentinel="site one")
VOLUME = "0a1b2c3d-0000-1111-2222-333344445555"


def look(target: Path | None, brick: Path | None, python: bytes = PYTHON) -> HostRoots:
    roots = [os.fsencode(path) if path else b"" for path in (target, brick)]
    return asyncio.run(look_at_roots(LocalProcesses(), python=python, target=roots[0], brick=roots[1]))


@pytest.mark.needs_root
def test_sentinel_and_volume(xfs_source: XfsMount) -> None:
    root = xfs_source.path
    found = look(root / "gone", root)
    assert (found.sentinel, found.target_error) == (None, "No such file or directory")
    assert found.volume_id is None
    assert found.brick_error
    (root / os.fsdecode(SENTINEL_NAME)).write_text("site one\n")
    os.setxattr(root, "trusted.glusterfs.volume-id", bytes(range(16)))
    found = look(root, root)
    assert (found.sentinel, found.volume_id) == ("site one", bytes(range(16)).hex())
    with pytest.raises(ToolFailed, match="cannot be looked at"):
        look(root, None, b"/bin/false")


@pytest.mark.parametrize(
    ("recorded", "found", "problem"),
    [
        (RECORDED, HostRoots(sentinel="site one"), None),
        (RECORDED, HostRoots(target_error="No such file or directory"), "not mounted at /mnt/t"),
        (RECORDED, HostRoots(sentinel="site two"), "site two"),
        (None, HostRoots(sentinel="site one"), ""),
    ],
)
def test_only_the_recorded_sentinel_is_the_target(
    recorded: MountIdentity | None, found: HostRoots, problem: str | None
) -> None:
    told = target_problem(recorded, found, "/mnt/t")
    assert told is None if problem is None else told is not None and problem in told


def test_a_brick_carries_its_volumes_id() -> None:
    assert brick_problem(VOLUME, HostRoots(volume_id=VOLUME.replace("-", "")), "gl1:/b") is None
    assert "another volume" in (brick_problem(VOLUME, HostRoots(volume_id="00" * 16), "gl1:/b") or "")
    assert "no brick" in (brick_problem(VOLUME, HostRoots(brick_error="No data available"), "gl1:/b") or "")
    assert brick_problem(None, HostRoots(volume_id="00" * 16), "gl1:/b") is not None
