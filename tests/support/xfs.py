"""XFS on loop devices for tests: mounted for the length of a block, and gone afterwards, also when the test failed."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from migrator.core.units import MIB

UNMOUNT_DEADLINE_S = 600.0


@dataclass(frozen=True, slots=True)
class XfsMount:
    """A fresh file system: `path` is its root, `root` the same as bytes, `device` the loop device."""

    path: Path
    device: str

    @property
    def root(self) -> bytes:
        return os.fsencode(self.path)

    def remount(self, *options: str) -> None:
        """Change options, as `remount("ro")`."""
        run_tool("mount", "-o", ",".join(("remount", *options)), str(self.path))

    def mount_again(self) -> None:
        """Unmount it and mount it from its device, which may have been shut down. Streams and hosts of other tests have copies of
        all mounts until they have taken them off, and the last process of a stream lets go a moment after its end: while there
        is one of these, mount(8) would give back the file system as it is now.
        """
        # The loop device goes with its last user: hold it over the unmount.
        device = os.open(self.device, os.O_RDONLY)
        try:
            unmount(self.path)
            deadline = time.monotonic() + UNMOUNT_DEADLINE_S
            while os.path.exists(f"/sys/fs/xfs/{os.path.basename(self.device)}"):
                assert time.monotonic() < deadline, f"{self.device} is still mounted somewhere"
                time.sleep(0.01)
            run_tool("mount", "-t", "xfs", self.device, str(self.path))
        finally:
            os.close(device)


def run_tool(*argv: str) -> str:
    """Run a program to its end; its output is the message where it fails."""
    done = subprocess.run(argv, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError(f"{argv} gave {done.returncode}: {os.fsdecode(done.stdout + done.stderr)}")
    return os.fsdecode(done.stdout)


def missing_for_root_tests() -> str | None:
    """Why tests that need root cannot run here; None where they can."""
    if os.geteuid() != 0:
        return "not root"
    return None


def missing_for_xfs() -> str | None:
    """Why loop-mounted XFS cannot be had here; None where it can."""
    if reason := missing_for_root_tests():
        return reason
    for tool in ("mkfs.xfs", "mount", "losetup"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    if not os.path.exists("/dev/loop-control"):
        return "no loop devices (/dev/loop-control is missing)"
    return None


def _is_mounted(path: Path) -> bool:
    """By the list of mounts: of a file system that was shut down `ismount` says that it is none."""
    points = (line.split(b" ")[4] for line in Path("/proc/self/mountinfo").read_bytes().splitlines())
    place = os.fsencode(path.parent.resolve() / path.name)
    # Blanks, tabs, newlines and backslashes stand there as three octal digits: a root of tests has them.
    return place in (re.sub(rb"\\([0-7]{3})", lambda code: bytes([int(code[1], 8)]), point) for point in points)


def unmount(path: Path) -> None:
    """Unmount everything that lies on a path; detach it where it stays busy beyond the deadline, and say so."""
    deadline = time.monotonic() + UNMOUNT_DEADLINE_S
    while _is_mounted(path):
        done = subprocess.run(["umount", str(path)], capture_output=True, check=False)
        if done.returncode and time.monotonic() > deadline:
            run_tool("umount", "-l", str(path))
            raise RuntimeError(f"{path} was busy and had to be detached: {os.fsdecode(done.stderr)}")
        if done.returncode:
            time.sleep(0.05)


@contextmanager
def bound(what: Path, at: Path) -> Iterator[None]:
    """A directory shown at another place as well, for the length of the block."""
    run_tool("mount", "--bind", str(what), str(at))
    try:
        yield
    finally:
        unmount(at)


@contextmanager
def xfs(
    directory: Path, *, size_bytes: int = 512 * MIB, max_inodes: int | None = None, until_2038: bool = False
) -> Iterator[XfsMount]:
    """A fresh XFS of a size (from 32 MiB on) mounted in an existing directory, with about so many inodes. It holds no
    time after `until_2038`.

    The image is sparse and loses its name at once: the loop device (freed with its last mount) keeps it.
    """
    mount_point = directory / "mnt"
    mount_point.mkdir()
    image = directory / "xfs.img"
    try:
        with image.open("wb") as file:
            file.truncate(size_bytes)
        options = ["-i", "size=512"]
        if max_inodes is not None:  # a share of the space, in whole percents
            options = ["-i", f"size=512,maxpct={max(1, round(100 * max_inodes * 512 / size_bytes))}"]
        options += ["-m", "bigtime=0"] if until_2038 else []
        if size_bytes < 300 * MIB:
            options.insert(0, "--unsupported")
        run_tool("mkfs.xfs", "-q", *options, str(image))
        run_tool("mount", "-t", "xfs", "-o", "loop", str(image), str(mount_point))
    finally:
        image.unlink(missing_ok=True)
    try:
        device = run_tool("findmnt", "-n", "-o", "SOURCE", "--mountpoint", str(mount_point)).strip()
        yield XfsMount(mount_point, device)
    finally:
        unmount(mount_point)
        mount_point.rmdir()
