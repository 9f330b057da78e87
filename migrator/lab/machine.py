"""Mounts, loop devices, namespaces and processes of this machine, and programs that a lab runs."""

import os
import shutil
import stat
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import Any

from migrator.core.clock import Clock
from migrator.core.errors import ToolFailed
from migrator.core.paths import is_beneath, show
from migrator.core.tasks import task_group
from migrator.fs.beneath import read_mounts
from migrator.fs.model import Mount
from migrator.hosts.ports import Command, Completed, Processes
from migrator.lab.model import LabHost

# The current state: mounts, loop devices, network namespaces and processes in them


NAMESPACES_DIRECTORY = "/run/netns"

CLUSTER_PROGRAMS = ("glusterd", "gluster", "glusterfs", "ip", "nsenter", "unshare", "mkfs.xfs", "mount", "sleep")


def why_no_cluster() -> str | None:
    """Why a Gluster cluster is impossible on this machine; None if it is possible."""
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
    """Mounts on a directory or below it, in this mount namespace, the latest first."""
    return tuple(mount for mount in reversed(read_mounts()) if is_beneath(mount.point, directory))


def loops_beneath(directory: bytes) -> tuple[str, ...]:
    """Loop devices whose backing file is below a directory, also if it was deleted."""
    found: list[str] = []
    for name in os.listdir("/sys/block"):
        if name.startswith("loop"):
            try:
                with open(f"/sys/block/{name}/loop/backing_file", "rb") as file:
                    backing = file.read().rstrip(b"\n")
            except OSError:  # not in use, or removed meanwhile
                continue
            if backing.startswith(directory + b"/"):
                found.append(f"/dev/{name}")
    return tuple(found)


def namespace_exists(name: str) -> bool:
    """Whether a network namespace of that name exists."""
    return os.path.lexists(f"{NAMESPACES_DIRECTORY}/{name}")


def processes_in(namespaces: Collection[str]) -> tuple[int, ...]:
    """The processes in network namespaces, by the namespaces' inodes; missing names are left out."""
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
            except OSError:  # ended meanwhile, or not reaped yet
                continue
            if (status.st_dev, status.st_ino) in wanted:
                found.append(int(name))
    return tuple(found)


# Programs, started so that their remaining processes are found again


_TIMEOUT_S = 120.0
_TAIL_BYTES = 2000


class LabTools:
    """Runs programs with the lab's token in their environment.

    The token differs from the command's own: processes that a command leaves running (glusterd, bricks, the mount's
    client) must outlive it, until `lab down` ends them.
    """

    def __init__(self, processes: Processes, token: str) -> None:
        self._processes = processes
        self._environment = {"MIGRATOR_TOKEN": token}

    async def attempt(self, *argv: str | bytes, stdin: bytes = b"", timeout_s: float = _TIMEOUT_S) -> Completed:
        """Run a program; its failure is a value."""
        return await self._processes.run(
            Command(
                argv=tuple(os.fsencode(argument) for argument in argv),
                stdin=stdin,
                environment=self._environment,
                timeout_s=timeout_s,
            )
        )

    async def run(self, *argv: str | bytes, stdin: bytes = b"", timeout_s: float = _TIMEOUT_S) -> bytes:
        """Run a program and return its output. Raises ToolFailed with its messages."""
        completed = await self.attempt(*argv, stdin=stdin, timeout_s=timeout_s)
        if completed.exit_code or completed.timed_out:
            shown = " ".join(show(os.fsencode(argument)) for argument in argv)
            output = show((completed.stderr + completed.stdout).strip()[-_TAIL_BYTES:])
            ended = "ran into its time limit" if completed.timed_out else f"ended with code {completed.exit_code}"
            raise ToolFailed(f"{shown} {ended}: {output}" if output else f"{shown} {ended}")
        return completed.stdout

    async def on_host(self, host: LabHost, *argv: str | bytes) -> bytes:
        """As `run`, in the namespaces of a host."""
        return await self.run(*entering(host), *argv)

    async def attempt_on_host(self, host: LabHost, *argv: str | bytes) -> Completed:
        """As `attempt`, in the namespaces of a host."""
        return await self.attempt(*entering(host), *argv)


def entering(host: LabHost) -> tuple[str, ...]:
    """The prefix of a command on a host."""
    return ("nsenter", "--target", str(host.holder_pid), "--net", "--mount", "--uts", "--")


# Waiting, and concurrent work


_POLL_S = 0.1


async def until(
    check: Callable[[], Awaitable[str | None]],
    *,
    clock: Clock,
    deadline_s: float,
    cause: str = "this machine is very busy, or Gluster is broken",
    hint: str = "give the command again when less is going on here",
) -> None:
    """Poll until the check returns None; otherwise it returns the reason to wait. Raises ToolFailed with the last
    reason, and with that cause and hint, at the deadline.
    """
    end_s = clock.monotonic_s() + deadline_s
    while (reason := await check()) is not None:
        if clock.monotonic_s() > end_s:
            raise ToolFailed(
                f"{reason}, after {deadline_s:.0f} s of waiting",
                cause=cause,
                hint=hint,
            )
        await clock.sleep(_POLL_S)


async def all_of(work: Iterable[Coroutine[Any, Any, object]]) -> None:
    """Run all at once; when one fails the others are cancelled and its error is raised."""
    async with task_group() as group:
        for one in work:
            group.create_task(one)


def remove_tree(path: bytes) -> None:
    """Remove a directory with everything in it, at any depth. Never follows a symlink. Nothing may be mounted in it."""
    if os.geteuid() != 0:  # read-only directories of a lab without root
        for _, directories, _, fd in os.fwalk(path):
            for name in directories:
                if stat.S_ISDIR(os.lstat(name, dir_fd=fd).st_mode):
                    os.chmod(name, stat.S_IRWXU, dir_fd=fd)
    shutil.rmtree(path)
