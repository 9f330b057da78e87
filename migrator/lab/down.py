"""`lab down`: remove all that `lab up` made, at whatever point it was killed, and nothing else."""

import os
import signal
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from migrator.core.clock import Clock
from migrator.core.errors import Refused, ToolFailed
from migrator.core.paths import show
from migrator.fs.model import Mount
from migrator.hosts.ports import Processes
from migrator.lab import machine
from migrator.lab.model import LabPhase, LabState, down_command
from migrator.lab.record import read_record, write_record

_GRACE_S = 3.0
_UNMOUNT_TIMEOUT_S = 10.0
_UNMOUNT_DEADLINE_S = 10.0
_DEADLINE_S = 60.0
_ASIDE = b".migrator-lab-"


def aside_name(directory: bytes, token: str) -> bytes:
    """A lab's directory before its record is written, and while it is removed: hidden, beside the final one."""
    parent, _, name = directory.rpartition(b"/")
    return b"%s/.%s%s%s" % (parent, name, _ASIDE, token.encode("ascii"))


async def lab_down(directory: bytes, processes: Processes, clock: Clock) -> bool:
    """End all processes of a lab and remove its directory; False if there was no lab.

    Ends only processes that carry the lab's token or are in its network namespaces. May be called again, also after a
    crash. Raises Refused for a directory that is no lab, ToolFailed if something remains.
    """
    directory = real_path(directory)
    if not _remove_what_is_aside(directory):
        return False
    state = read_record(directory)
    if state.spec.directory != directory:
        raise Refused(
            f"the lab in {show(directory)} was made as {show(state.spec.directory)}",
            cause="its directory was moved or copied",
            hint="move it back: its mounts and loop devices have the old name",
        )
    if state.phase is not LabPhase.STOPPING:
        state = replace(state, phase=LabPhase.STOPPING)
        write_record(state)
    # The tools of `down` must not carry the token, or it would end itself.
    tools = machine.LabTools(processes, "")
    # End the mount's client first: an unmount waits in the kernel for hanging requests (seen: 52 s, with hanging
    # bricks).
    await _end_processes(state, processes, clock)
    for mounted in machine.mounts_beneath(directory):
        await _unmount(mounted, directory, tools, clock)
    for name in state.namespaces:
        if machine.namespace_exists(name):
            await tools.run("ip", "netns", "delete", name)
    for device in machine.loops_beneath(directory):
        await tools.attempt("losetup", "--detach", device)  # most end with their mount
    await _until(lambda: _nothing_left(directory), directory, clock, _DEADLINE_S)
    os.rename(directory, aside_name(directory, state.token))  # noqa: PTH104 (bytes)
    _remove_what_is_aside(directory)
    return True


async def _until(check: Callable[[], Awaitable[str | None]], directory: bytes, clock: Clock, deadline_s: float) -> None:
    await machine.until(
        check,
        clock=clock,
        deadline_s=deadline_s,
        cause="somebody has a file or a shell open in the lab, or this machine is very busy",
        hint=f"end what uses the lab, then call `{down_command(directory)}`: it may be called again",
    )


async def _unmount(mounted: Mount, directory: bytes, tools: machine.LabTools, clock: Clock) -> None:
    if mounted.filesystem.startswith("fuse"):
        # A lazy unmount abandons files that are still open there, since the lab ends.
        await tools.attempt("umount", "--lazy", mounted.point, timeout_s=_UNMOUNT_TIMEOUT_S)
        return

    async def unmounted() -> str | None:
        completed = await tools.attempt("umount", mounted.point, timeout_s=_UNMOUNT_TIMEOUT_S)
        return (
            None if completed.exit_code == 0 else f"{show(mounted.point)} is in use by a process that is not the lab's"
        )

    await _until(unmounted, directory, clock, _UNMOUNT_DEADLINE_S)


async def _nothing_left(directory: bytes) -> str | None:
    mounts, loops = machine.mounts_beneath(directory), machine.loops_beneath(directory)
    if mounts:
        return f"{show(mounts[0].point)} is still mounted"
    return f"{loops[0]} is still in use: see `grep {loops[0]} /proc/*/mounts`" if loops else None


async def _end_processes(state: LabState, processes: Processes, clock: Clock) -> None:
    async def all_ended() -> str | None:
        if not await processes.end(state.token, grace_s=_GRACE_S):
            return "a process of the lab cannot be ended"
        # Processes without the token were started by hand in the lab's namespaces.
        others = machine.processes_in(state.namespaces)
        for pid in others:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return f"process {others[0]} does not end" if others else None

    await _until(all_ended, state.spec.directory, clock, _DEADLINE_S)


def real_path(directory: bytes) -> bytes:
    """The absolute path without symlinks, as in the mount table and the loop devices."""
    return os.path.realpath(directory)


def _remove_what_is_aside(directory: bytes) -> bool:
    """Remove leftovers of an `up` that was killed before its record was in place, or of a `down`; returns whether the
    lab itself is there.
    """
    parent, _, name = directory.rpartition(b"/")
    if not os.path.isdir(parent or b"/"):  # noqa: PTH112 (bytes)
        return False
    for entry in map(os.fsencode, os.listdir(parent or b"/")):
        if entry.startswith(b"." + name + _ASIDE):
            path = parent + b"/" + entry
            if machine.mounts_beneath(path):
                raise ToolFailed(f"something is mounted in {show(path)}", hint="unmount it, then call this again")
            machine.remove_tree(path)
    return os.path.lexists(directory)
