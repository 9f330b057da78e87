"""A directory mounted by FUSE, where each request takes its time and is counted (slow_mount.c)."""

import os
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.timing import ContestantFailed
from migrator.core.units import NS_PER_S

KINDS = ("lookups", "attributes", "listings", "changes", "opens", "reads", "writes", "closes", "syncs")
"""In the order of `enum request`."""
_SOURCE = Path(__file__).with_name("slow_mount.c")
_MOUNTED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class SlowMount:
    path: Path
    counts: Path

    def requests(self) -> dict[str, int]:
        """The requests since the beginning, by kind."""
        return dict(zip(KINDS, struct.unpack(f"{len(KINDS)}Q", self.counts.read_bytes()), strict=True))


@contextmanager
def slow_mount(
    directory: Path, backing: Path, *, call_s: float, fsync_s: float = 0.0, cached_s: float = 1.0
) -> Iterator[SlowMount]:
    """`backing`, mounted in an existing directory for the length of the block. Names and attributes are cached for
    `cached_s`; a sync takes `fsync_s`, another request `call_s`. Raises ContestantFailed where it cannot be built.
    """
    mount_point, counts = directory / "slow", directory / "counts"
    mount_point.mkdir()
    times = (str(round(call_s * NS_PER_S)), str(round(fsync_s * NS_PER_S)), str(cached_s))
    process = subprocess.Popen([_built(directory), backing, mount_point, counts, *times], stdin=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + _MOUNTED_WITHIN_S
        while not os.path.ismount(mount_point):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise ContestantFailed("the slow file system could not be mounted")
            time.sleep(0.01)
        yield SlowMount(mount_point, counts)
    finally:
        if subprocess.run(["fusermount3", "-u", "-q", mount_point], check=False).returncode != 0:
            process.kill()
            subprocess.run(["fusermount3", "-u", "-q", "-z", mount_point], check=False)
        process.wait()


def _built(directory: Path) -> Path:
    made = directory / "slow_mount"
    try:
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True, check=True
        ).stdout.split()
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-o", made, _SOURCE, *flags], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise ContestantFailed("a compiler, pkg-config and libfuse3-dev are needed") from error
    return made
