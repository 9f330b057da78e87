"""What lies on this machine now: mounts, loop devices, network namespaces and the processes in them."""

import os
import shutil
from collections.abc import Collection

from migrator.domain.mounts import Mount, parse_mountinfo
from migrator.domain.paths import is_beneath

NAMESPACES_DIRECTORY = "/run/netns"

CLUSTER_PROGRAMS = ("glusterd", "gluster", "glusterfs", "ip", "nsenter", "unshare", "mkfs.xfs", "mount", "sleep")


def why_no_cluster() -> str | None:
    """Why a Gluster cluster cannot be had on this machine; None where it can."""
    if os.geteuid() != 0:
        return "only root can make namespaces, mounts and loop devices"
    missing = [program for program in CLUSTER_PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    absent = [device for device in ("/dev/fuse", "/dev/loop-control") if not os.path.exists(device)]
    if absent:
        return f"this machine has no {' and no '.join(absent)}"
    return None


def mounts_beneath(directory: bytes) -> tuple[Mount, ...]:
    """Mounts on a directory or beneath it, in this mount namespace, the last one mounted first."""
    with open("/proc/self/mountinfo", "rb") as table:
        mounts = parse_mountinfo(table.read())
    return tuple(mount for mount in reversed(mounts) if is_beneath(mount.point, directory))


def loops_beneath(directory: bytes) -> tuple[str, ...]:
    """Loop devices whose backing file lies beneath a directory, deleted ones too."""
    found: list[str] = []
    for name in os.listdir("/sys/block"):
        if name.startswith("loop"):
            try:
                with open(f"/sys/block/{name}/loop/backing_file", "rb") as file:
                    backing = file.read().rstrip(b"\n")
            except OSError:  # not in use, or gone between the two looks
                continue
            if backing.startswith(directory + b"/"):
                found.append(f"/dev/{name}")
    return tuple(found)


def holder_of(device: str) -> str | None:
    """A process that has a loop device mounted in a mount namespace of its own: "process 4711 (sshd)"; None: nobody seen."""
    try:
        status = os.stat(device)
    except OSError:
        return None
    field = b" %d:%d " % (os.major(status.st_rdev), os.minor(status.st_rdev))
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/mountinfo", "rb") as mounts:
                holds = any(field in line for line in mounts)
            if holds:
                with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as name:
                    return f"process {pid} ({name.read().strip()})"
        except OSError:  # it ended
            continue
    return None


def namespace_exists(name: str) -> bool:
    """Whether a network namespace of that name is there."""
    return os.path.lexists(f"{NAMESPACES_DIRECTORY}/{name}")


def processes_in(namespaces: Collection[str]) -> tuple[int, ...]:
    """The processes in network namespaces, by the namespaces' inodes; names that are not there are left out."""
    wanted: set[tuple[int, int]] = set()
    for name in namespaces:
        try:
            status = os.stat(f"{NAMESPACES_DIRECTORY}/{name}")
        except OSError:
            continue
        wanted.add((status.st_dev, status.st_ino))
    found: list[int] = []
    for name in os.listdir("/proc"):
        if wanted and name.isdigit():
            try:
                status = os.stat(f"/proc/{name}/ns/net")
            except OSError:  # ended between the two looks, or ended and not reaped
                continue
            if (status.st_dev, status.st_ino) in wanted:
                found.append(int(name))
    return tuple(found)
