"""What a lab's removal sees of the machine, on a real loop device."""

import os
import subprocess
from pathlib import Path

import pytest

from migrator.lab.machine import holder_of, loops_beneath
from tests.support.cluster.handle import wait_until
from tests.support.xfs import run_tool

pytestmark = pytest.mark.needs_root


def test_who_keeps_a_disk_busy_in_a_mount_namespace_of_its_own_is_named(scratch: Path) -> None:
    image, point = scratch / "image", scratch / "point"
    point.mkdir()
    image.touch()
    os.truncate(image, 8 * 1024 * 1024)
    run_tool("mkfs.ext4", "-q", str(image))
    # Until it is given back nobody else gets this device, and nobody else's namespace can have a copy of the mount.
    device = run_tool("losetup", "--find", "--show", str(image)).strip()
    holder = None
    try:
        assert loops_beneath(os.fsencode(scratch)) == (device,)
        assert holder_of(device) is None
        mounted = f"mount {device} {point} && exec sleep infinity"
        holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sh", "-c", mounted])
        comm = Path(f"/proc/{holder.pid}/comm")
        wait_until(lambda: comm.read_text() == "sleep\n", "it is in its namespace")
        assert not point.is_mount()
        assert holder_of(device) == f"process {holder.pid} (sleep)"
        holder.kill()
        holder.wait()
        assert holder_of(device) is None
    finally:
        if holder is not None:
            holder.kill()
            holder.wait()
        run_tool("losetup", "--detach", device)
    wait_until(lambda: loops_beneath(os.fsencode(scratch)) == (), "the loop device is free")
