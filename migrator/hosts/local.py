"""This machine as a host, the files of a program, and the load of hosts."""

import asyncio
import os
import shutil
import struct
import weakref
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from migrator.core.errors import MigratorError, ToolFailed
from migrator.core.paths import show
from migrator.fs.model import SENTINEL_NAME
from migrator.hosts import far_procfs, far_wire
from migrator.hosts.far_end import PrivateDirectory, facts, sync_file_system
from migrator.hosts.model import HostRoots
from migrator.hosts.ports import Command, HostFacts, Hosts, Processes
from migrator.hosts.process import BASE_ENVIRONMENT, LocalProcesses

_ELF_64_LITTLE_ENDIAN = b"\x7fELF\x02\x01"
_PT_INTERP = 3


def interpreter(head: bytes) -> bytes | None:
    """The loader of an ELF program (PT_INTERP); None for a static one.

    `head` is the beginning of the file with its program headers (64 KiB are plenty). Raises ValueError if it is no ELF
    file.
    """
    if head[:6] != _ELF_64_LITTLE_ENDIAN or len(head) < 64:
        raise ValueError("not an ELF program of 64 bits in little-endian order")
    (table,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
    for number in range(count):
        try:
            kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", head, table + number * size)
        except (struct.error, OverflowError) as error:
            raise ValueError("program headers of an ELF program beyond the beginning of the file") from error
        if kind == _PT_INTERP:
            return head[offset : offset + length].rstrip(b"\0")
    return None


def libraries(listing: bytes) -> tuple[bytes, ...]:
    """The paths in the output of `LOADER --list PROGRAM` (`name => /path (0x...)`, or `/path (0x...)` for the loader).

    Raises ValueError if a library was not found.
    """
    paths: list[bytes] = []
    for line in listing.split(b"\n"):
        name, arrow, found = line.strip().partition(b" => ")
        place = (found if arrow else name).rpartition(b" (0x")[0]
        if arrow and not place.startswith(b"/"):
            raise ValueError(f"a library was not found: {name.decode('ascii', 'backslashreplace')}")
        if place.startswith(b"/"):
            paths.append(place)
    return tuple(dict.fromkeys(paths))


_HEAD_BYTES = 1 << 16
_LOADER_TIMEOUT_S = 30.0
_LOADER_CACHE = b"/etc/ld.so.cache"

ReadHead = Callable[[bytes, int], Awaitable[bytes]]


async def program_files(program: bytes, *, processes: Processes, read_head: ReadHead) -> tuple[bytes, ...]:
    """The program, its loader, its libraries, and the loader's cache; only the program if it is static.

    `read_head` reads the beginning of a file on that machine; it raises OSError. Raises ToolFailed.
    """
    try:
        loader = interpreter(await read_head(program, _HEAD_BYTES))
    except OSError as error:
        raise ToolFailed(
            f"{show(program)} cannot be read: {error.strerror}",
            cause="the program is not installed",
            hint="install it; `migrator doctor` lists what is needed",
        ) from error
    except ValueError as error:
        raise ToolFailed(f"{show(program)} cannot be confined: {error}", cause="it is a script") from error
    if loader is None:
        return (program,)
    listing = await processes.run(Command(argv=(loader, b"--list", program), timeout_s=_LOADER_TIMEOUT_S))
    if listing.exit_code != 0:
        raise ToolFailed(f"the libraries of {show(program)} cannot be listed: {show(listing.stderr)}")
    try:
        found = libraries(listing.stdout)
    except ValueError as error:
        raise ToolFailed(f"{show(program)} cannot run: {error}", hint="install the library") from error
    try:
        await read_head(_LOADER_CACHE, 1)
    except OSError:
        cache: tuple[bytes, ...] = ()
    else:
        cache = (_LOADER_CACHE,)  # libraries in unusual directories are found through it
    return tuple(dict.fromkeys((program, loader, *found, *cache)))


def facts_of(name: str, fields: Mapping[str, Any], *, offset_s: float = 0.0, round_trip_s: float = 0.0) -> HostFacts:
    """The facts of a host, from the result of `far_end.facts`. `offset_s`: its clock minus this machine's."""
    facts = {**fields, "python_version": tuple(fields["python_version"]), "python": far_wire.raw(fields["python"])}
    del facts["time_ns"]
    return HostFacts(name=name, clock_offset_s=offset_s, round_trip_s=round_trip_s, **facts)


ROOTS_TIMEOUT_S = 60.0
_IN_MEMORY = ("/dev/shm",)  # noqa: S108 - a directory of mode 0700 is made in it
"""Not /run: programs that are started in the namespaces of a lab's host see that host's own /run."""


class LocalHost:
    """The `Host` port for this machine, which is never lost."""

    def __init__(self, processes: Processes | None = None, *, name: str = "localhost") -> None:
        self.processes: Processes = processes or LocalProcesses()
        self.name = name
        self._private: PrivateDirectory | None = None
        self._files: dict[bytes, tuple[bytes, ...]] = {}
        self._finding_files = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._sync_fds: dict[bytes, int] = {}
        # An unclosed host must not keep a file system from being unmounted.
        self._release = weakref.finalize(self, _close_all, self._sync_fds)

    async def facts(self) -> HostFacts:
        return facts_of(self.name, facts())

    async def identity(self) -> HostFacts:
        return await self.facts()

    async def find(self, program: str) -> bytes | None:
        """As the port, on the PATH with which programs are started."""
        found = shutil.which(program, path=BASE_ENVIRONMENT["PATH"])
        return None if found is None else os.fsencode(found)

    async def place(self, name: str, content: bytes) -> bytes:
        if self._private is None:
            self._private = PrivateDirectory(_IN_MEMORY)
        return self._private.place(name, content)

    async def files_of(self, program: bytes) -> tuple[bytes, ...]:
        async with self._finding_files:
            if program not in self._files:
                self._files[program] = await program_files(program, processes=self.processes, read_head=_read_head)
            return self._files[program]

    async def roots(self, target: bytes, brick: bytes) -> HostRoots:
        with ToolFailed.of_files("the roots of this machine cannot be looked at"):
            look = asyncio.to_thread(far_procfs.roots, target, brick, SENTINEL_NAME)
            return HostRoots(**await asyncio.wait_for(look, ROOTS_TIMEOUT_S))

    async def activity(self, tokens: Sequence[str]) -> Mapping[str, int]:
        return await asyncio.to_thread(far_procfs.activity, tokens)

    async def watch_sync(self, path: bytes) -> None:
        async with self._opening:
            if path not in self._sync_fds:
                fd = await asyncio.to_thread(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._sync_fds[path] = fd

    async def sync(self, path: bytes) -> None:
        await self.watch_sync(path)
        await asyncio.to_thread(sync_file_system, self._sync_fds[path])

    async def close(self) -> None:
        """Remove placed files; programs end with the tasks that wait for them."""
        _close_all(self._sync_fds)
        if self._private is not None:
            self._private.remove()
            self._private = None


def _close_all(descriptors: dict[bytes, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])


async def _read_head(path: bytes, size_bytes: int) -> bytes:
    with open(path, "rb") as file:  # noqa: ASYNC230 - a few blocks of a program
        return file.read(size_bytes)


_TIMEOUT_S = 10.0


async def load_of(host: str, *, hosts: Hosts, names: Collection[str], own: Collection[str]) -> float | None:
    """The load average of one minute; None if unknown. `names` are reached through `hosts`; `own` are names of this
    machine; the load of other hosts is unknown. Never raises.
    """
    if host in own:
        return os.getloadavg()[0]
    if host not in names:
        return None
    try:
        processes = (await hosts.reach(host)).processes
        done = await processes.run(Command(argv=(b"cat", b"/proc/loadavg"), timeout_s=_TIMEOUT_S))
    except MigratorError:
        # The streams of a lost host report the loss.
        return None
    return None if done.failure else float(done.stdout.split()[0])
