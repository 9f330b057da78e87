"""What a lab's removal sees of the machine, on a real loop device."""

import os
import subprocess
from pathlib import Path

import pytest

from migrator.stages.lab.machine import holder_of, loops_beneath
from tests.cluster.handle import wait_until

pytestmark = pytest.mark.needs_root


def test_who_keeps_a_disk_busy_in_a_mount_namespace_of_its_own_is_named(scratch: Path) -> None:
    image, point = scratch / "image", scratch / "point"
    point.mkdir()
    image.touch()
    os.truncate(image, 8 * 1024 * 1024)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, point], check=True)
    holder = None
    try:
        (device,) = loops_beneath(os.fsencode(scratch))
        holder = subprocess.Popen(["unshare", "--mount", "--propagation", "private", "sleep", "infinity"])
        comm = Path(f"/proc/{holder.pid}/comm")
        wait_until(lambda: comm.read_text() == "sleep\n", "it is in its namespace")
        subprocess.run(["umount", point], check=True)
        assert holder_of(device) == f"process {holder.pid} (sleep)"
    finally:
        if holder is not None:
            holder.kill()
            holder.wait()
        subprocess.run(["umount", point], check=False, capture_output=True)
    wait_until(lambda: loops_beneath(os.fsencode(scratch)) == (), "the loop device is free")
    assert holder_of(device) is None
