"""The lab's hosts as the program's `Hosts`, entered by their namespaces: no connection, no daemon."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from migrator.hosts.local import LocalHost
from migrator.hosts.ports import Command, Completed, Host, HostLost, OnOutput, OnStart
from migrator.hosts.process import LocalProcesses
from migrator.lab.model import LabHost
from tests.support.cluster.handle import LabHandle
from tests.support.leftovers import remove_when_killed


class _Inside(LocalProcesses):
    """Programs inside a host's namespaces; they are seen from here as well, and end as others do."""

    def __init__(self, holder_pid: int) -> None:
        super().__init__()
        self._enter = (b"nsenter", b"-t", b"%d" % holder_pid, b"-m", b"-u", b"-n", b"--")

    async def run(self, command: Command) -> Completed:
        return await super().run(replace(command, argv=self._enter + command.argv))

    async def stream(
        self, command: Command, *, on_start: OnStart, on_stdout: OnOutput, on_stderr: OnOutput
    ) -> Completed:
        inside = replace(command, argv=self._enter + command.argv)
        return await super().stream(inside, on_start=on_start, on_stdout=on_stdout, on_stderr=on_stderr)


class _LabHost(LocalHost):
    """What is placed there lies where this machine and the hosts of a lab see it: each has a /run of its own."""

    async def place(self, name: str, content: bytes) -> bytes:
        if self._shared is None:
            self._shared = remove_when_killed(Path(tempfile.mkdtemp(prefix="migrator-test-", dir="/dev/shm")))
        path = self._shared / name
        with path.with_suffix(".new").open("wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o700)
        path.with_suffix(".new").rename(path)
        return os.fsencode(path)

    async def close(self) -> None:
        await super().close()
        if self._shared is not None:
            shutil.rmtree(self._shared)
            self._shared = None

    _shared: Path | None = None


class LabHosts:
    """The `Hosts` port over a lab. `absent` hosts cannot be reached; `inside`: other processes to enter."""

    def __init__(self, lab: LabHandle) -> None:
        self._by_name: Mapping[str, LabHost] = {host.address: host for host in lab.state.hosts}
        self._hosts: dict[str, LocalHost] = {}
        self.absent: set[str] = set()
        self.inside: Mapping[str, int] = {}

    @property
    def names(self) -> Sequence[str]:
        return tuple(self._by_name)

    async def reach(self, name: str) -> Host:
        if name in self.absent:
            raise HostLost(f"host {name} cannot be reached")
        if name not in self._hosts:
            holder_pid = self.inside.get(name, self._by_name[name].holder_pid)
            assert holder_pid is not None
            self._hosts[name] = _LabHost(_Inside(holder_pid), name=name)
        return self._hosts[name]

    async def close(self) -> None:
        await asyncio.gather(*(host.close() for host in self._hosts.values()))
        self._hosts.clear()
