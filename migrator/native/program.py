"""The compiled program: its path in the installation, and its placement on hosts."""

import asyncio
import os
import platform
import struct
from functools import cache
from pathlib import Path

from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.paths import show
from migrator.hosts.ports import Host

PROGRAM_NAME = "migrator-native"

_INSTALL = "install migrator from its wheel, or from its sources with gcc and libc6-dev"
_ELF_HEAD_BYTES = 20
_MACHINES = {3: "i686", 21: "ppc64le", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}
"""ELF machine numbers and their names in `uname -m`; little-endian machines only."""


class NativeProgram:
    """The program for machines whose `uname -m` is `architecture`."""

    def __init__(self, path: bytes, architecture: str) -> None:
        self.path = path
        self.architecture = architecture
        self._content = b""

    async def place(self, host: Host) -> bytes:
        """Place it on a host for the length of the connection, and return its path there. May be called before every use.

        Raises HostLost, and ToolFailed if the host cannot run it or has no room for it.
        """
        facts = await host.identity()
        if facts.architecture != self.architecture:
            raise ToolFailed(
                f"{PROGRAM_NAME} is compiled for {self.architecture}, but host {host.name} is {facts.architecture}",
                cause="migrator was installed from a wheel of another architecture",
                hint=f"install migrator on a {facts.architecture} machine, or take the host out of site.toml",
            )
        if not self._content:  # read once: hosts compare it before every use
            self._content = await asyncio.to_thread(Path(os.fsdecode(self.path)).read_bytes)
        try:
            return await host.place(PROGRAM_NAME, self._content)
        except OSError as error:
            raise ToolFailed(
                f"{PROGRAM_NAME} cannot be placed on host {host.name}: {error.strerror}",
                cause="/run, /dev/shm, /var/tmp or /tmp is full there",
                hint="free some room there and run the same command again",
            ) from error


@cache
def native_program(directory: Path | None = None) -> NativeProgram:
    """The program that the build put next to this module (or into `directory`). Raises ToolFailed if it is not there."""
    path = os.fsencode((directory or Path(__file__).parent) / PROGRAM_NAME)
    try:
        with open(path, "rb") as file:
            head = file.read(_ELF_HEAD_BYTES)
    except OSError as error:
        raise ToolFailed(
            f"the compiled program {show(path)} cannot be read: {error.strerror}",
            cause="migrator runs from sources that were not built",
            hint=_INSTALL,
        ) from error
    if len(head) < _ELF_HEAD_BYTES or head[:4] != b"\x7fELF" or not os.access(path, os.X_OK):
        raise ToolFailed(f"{show(path)} is not a program", cause="the installation is damaged", hint=_INSTALL)
    (machine,) = struct.unpack_from("<H", head, 18)
    return NativeProgram(path, _MACHINES.get(machine, platform.machine()))


def malformed(what: str) -> MigratorError:
    """The error for the output of a walk that cannot be parsed."""
    return MigratorError(
        f"the output of a brick's walk cannot be parsed: {what}",
        cause="the connection was cut, or something else on that host writes to the same output (a login script)",
        hint="log in to the host by hand without a terminal and see whether anything but your command's output comes",
    )
