"""The hosts of a site, each connected at first use, and the state of both file systems on them."""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import cycle

import msgspec
from msgspec import Struct

from migrator.core.errors import UsageError
from migrator.core.paths import percent_unescape, show
from migrator.core.tasks import drop_error
from migrator.fs.model import mount_of, parse_mountinfo
from migrator.hosts.far_source import ask_script, far_argv
from migrator.hosts.local import LocalHost
from migrator.hosts.model import SOURCE_HOSTS, HostRoom
from migrator.hosts.ports import Host, Processes
from migrator.hosts.remote import RemoteHost
from migrator.hosts.ssh import Ssh


class HostSpec(Struct, frozen=True, kw_only=True):
    """How to reach one host. `ssh` None: it is this machine. `python` is the interpreter there."""

    ssh: str | None = None
    options: tuple[str, ...] = ()
    python: str = "python3"


def expand(sections: Mapping[str, HostSpec], *, of: str = SOURCE_HOSTS) -> dict[str, HostSpec]:
    """One entry per host. A section may name several (`gl[1-4]`, `gl1,gl3`, `@bricks` of ClusterShell's groups); `%h`
    and `{host}` in `ssh` and `options` become the host's name. `of` is their place in site.toml. Raises UsageError.
    """
    hosts: dict[str, HostSpec] = {}
    for section, spec in sections.items():
        for name in names(section, of=of):
            if name in hosts:
                raise UsageError(
                    f"two sections of site.toml name the host {name}",
                    cause=f"[{of}.{section!r}] holds it too",
                    hint="leave it in one of them",
                )
            hosts[name] = HostSpec(
                ssh=None if spec.ssh is None else _named(spec.ssh, name),
                options=tuple(_named(option, name) for option in spec.options),
                python=spec.python,
            )
    return hosts


def names(section: str, *, of: str = SOURCE_HOSTS) -> tuple[str, ...]:
    """The hosts that a section names. Raises UsageError."""
    # Imported late: most sites have no such sections, and every run and scan would wait for the import.
    from ClusterShell.NodeSet import NodeSet, NodeSetException  # noqa: PLC0415

    try:
        found = tuple(str(name) for name in NodeSet(section))
    except NodeSetException as error:
        raise UsageError(
            f"the section [{of}.{section!r}] names no hosts: {error}",
            cause="it is not written as ClusterShell's node sets are",
            hint='write "gl[1-4]", "gl1,gl3", or a group of ClusterShell as "@bricks"',
        ) from error
    if not found:
        raise UsageError(
            f"the section [{of}.{section!r}] names no hosts",
            cause="the group is empty, or ClusterShell does not know it",
            hint="`nodeset -f " + shlex.quote(section) + "` shows what ClusterShell makes of it",
        )
    return found


def assign_writers(readers: Iterable[str], writers: Sequence[str]) -> dict[str, str]:
    """The host of the target that writes for each host that does not have it, by turns; empty if there is none."""
    return dict(zip(readers, cycle(writers), strict=False)) if writers else {}


class SiteHosts:
    """The `Hosts` port. A section without `ssh` is this machine."""

    def __init__(
        self, hosts: Mapping[str, HostSpec], *, lease_s: float = 30.0, writers: Mapping[str, HostSpec] | None = None
    ) -> None:
        """`hosts` and `writers`, the hosts of the target, are results of `expand`. `names` are those of `hosts`."""
        self._specs = {**(writers or {}), **hosts}
        self.names: Iterable[str] = hosts.keys()
        self._lease_s = lease_s
        self._hosts: dict[str, Host] = {}
        self._begun: dict[str, asyncio.Task[object]] = {}
        self._ahead: list[asyncio.Task[object]] = []

    async def reach(self, name: str) -> Host:
        """The host, connected. Raises HostLost, UsageError."""
        host = self.host(name)
        begun = self._begun.pop(name, None)
        # `begin` may have started this attempt: do not wait twice for a host that is down.
        await (begun or host.identity())
        return host

    def begin(self, names: Iterable[str], ahead: Callable[[Host], Awaitable[object]]) -> None:
        """Start to connect hosts in the running event loop; a later `reach` waits for the result. `ahead` is done on each
        as soon as it is connected, in the background: its errors are those of the later call that needs it.

        Raises UsageError. May be called again.
        """
        for name in names:
            if name not in self._begun:
                host = self.host(name)
                self._begun[name] = asyncio.ensure_future(host.identity())
                self._ahead.append(asyncio.ensure_future(_once_reached(self._begun[name], host, ahead)))
                for task in (self._begun[name], self._ahead[-1]):
                    task.add_done_callback(drop_error)

    def host(self, name: str) -> Host:
        """The host; it connects at its first use. Raises UsageError."""
        if name not in self._hosts:
            self._hosts[name] = self._make(name)
        return self._hosts[name]

    async def close(self) -> None:
        """Close all of them, at once. May be called again."""
        tasks = (*self._begun.values(), *self._ahead)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._begun.clear()
        self._ahead.clear()
        await asyncio.gather(*(host.close() for host in self._hosts.values()))

    def _make(self, name: str) -> Host:
        spec = self._specs.get(name)
        if spec is None:
            raise UsageError(
                f"site.toml does not define how to reach the host {name}",
                hint=f'add a section [source.hosts."{name}"] with ssh = "root@{name}"',
            )
        if spec.ssh is None:
            return LocalHost(name=name)
        transport = Ssh(
            host=name,
            destination=spec.ssh,
            options=spec.options,
            python=spec.python,
            lease_s=self._lease_s,
        )
        return RemoteHost(transport, lease_s=self._lease_s)


async def _once_reached(reaching: Awaitable[object], host: Host, ahead: Callable[[Host], Awaitable[object]]) -> None:
    await reaching
    await ahead(host)


def _named(text: str, host: str) -> str:
    return text.replace("%h", host).replace("{host}", host)


_ROOM_SCRIPT = b"""
import json, os, sys, urllib.parse
path = os.path.realpath(os.fsencode(sys.argv[1]))
room = os.statvfs(path)
with open("/proc/self/mountinfo", "rb") as file:
    mounts = file.read()
print(json.dumps({
    "path": urllib.parse.quote_from_bytes(path),
    "mounts": mounts.decode("latin-1"),
    "total_bytes": room.f_blocks * room.f_frsize,
    "free_bytes": room.f_bavail * room.f_frsize,
    "read_only": bool(room.f_flag & os.ST_RDONLY),
}))
"""


class _Room(msgspec.Struct, frozen=True):
    path: str
    mounts: str
    total_bytes: int
    free_bytes: int
    read_only: bool


async def probe_room(processes: Processes, *, python: bytes, path: bytes) -> HostRoom:
    """The file system at a path of a host. Raises HostLost, ToolFailed."""
    argv = far_argv(python, _ROOM_SCRIPT, path)
    found = await ask_script(processes, argv, _Room, otherwise=f"the room at {show(path)} is unknown: ")
    mount = mount_of(parse_mountinfo(found.mounts.encode("latin-1")), percent_unescape(found.path))
    return HostRoom(
        filesystem=mount.filesystem if mount else "",
        total_bytes=found.total_bytes,
        free_bytes=found.free_bytes,
        read_only=found.read_only,
    )
