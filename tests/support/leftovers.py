"""Removes what a killed run of tests would leave behind: mounts, loop devices, network namespaces, labs and directories.

A run that ends removes them itself, and so does one that is interrupted. For one that is killed, another process waits for its end.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

_DEADLINE_S = 600.0
_NAMESPACE, _LOOP = b"netns ", b"loop "


def remove_when_killed(directory: Path) -> Path:
    """Remove this directory, with everything in it, once this process has ended. Returns it; may be called again."""
    _send(os.fsencode(directory.resolve()))
    return directory


def remove_namespace_when_killed(name: str) -> None:
    """Remove this network namespace, with its processes, once this process has ended. May be called again."""
    _send(_NAMESPACE + name.encode("ascii"))


def detach_when_killed(device: str) -> None:
    """Detach this loop device as `detach`, if it still has the file that it has now, once this process has ended."""
    _send(_LOOP + device.encode("ascii") + b" " + _file_of(device))


def _send(what: bytes) -> None:
    # A write of less than PIPE_BUF is not mixed with that of another thread.
    os.write(_watcher().stdin.fileno(), what + b"\0")  # type: ignore[union-attr]


@cache
def _watcher() -> "subprocess.Popen[bytes]":
    """A process that reads until this one has ended, whatever ends it: nobody else has the other end of the pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.leftovers"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _remove_directory(directory: Path) -> None:
    for record in directory.glob("*/lab.json"):
        subprocess.run([sys.executable, "-m", "migrator", "lab", "down", "--dir", str(record.parent)], check=False)
    for point in sorted(_mounted_beneath(os.fsencode(directory)), reverse=True):
        # Its loop device goes with it.
        subprocess.run(["umount", "-l", point], check=False)
    shutil.rmtree(directory, ignore_errors=True)


def _mounted_beneath(directory: bytes) -> list[bytes]:
    points = (line.split(b" ")[4] for line in Path("/proc/self/mountinfo").read_bytes().splitlines())
    return [point for point in points if point.startswith(directory + b"/")]


def detach(device: str) -> None:
    """Detach a loop device without its partitions, which would be on the disk of whoever gets it next."""
    deadline_s = time.monotonic() + _DEADLINE_S
    while left := list(Path("/sys/block", os.path.basename(device)).glob("loop*p*")):
        for partition in left:
            number = (partition / "partition").read_text().strip()
            subprocess.run(["delpart", device, number], check=False, capture_output=True)
        assert time.monotonic() < deadline_s, f"{left} are in use"
        time.sleep(0.01)
    subprocess.run(["losetup", "--detach", device], check=False)


def _file_of(device: str) -> bytes:
    """The file of a loop device; empty if it has none. The kernel marks one that was removed."""
    with suppress(OSError):
        found = Path("/sys/block", os.path.basename(device), "loop", "backing_file").read_bytes()
        return found.rstrip(b"\n").removesuffix(b" (deleted)")
    return b""


def _remove_namespace(name: str) -> None:
    listed = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True)
    for pid in listed.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def main() -> None:
    # Directories first: what is mounted in them holds partitions.
    for named in sorted(sys.stdin.buffer.read().split(b"\0")):
        if named.startswith(_NAMESPACE):
            _remove_namespace(named.removeprefix(_NAMESPACE).decode("ascii"))
        elif named.startswith(_LOOP):
            device, _, file = named.removeprefix(_LOOP).decode("ascii").partition(" ")
            if _file_of(device) == file.encode("ascii"):
                detach(device)
        elif named and (directory := Path(os.fsdecode(named))).exists():
            _remove_directory(directory)


if __name__ == "__main__":
    main()
