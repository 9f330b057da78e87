"""This machine as a host."""

import asyncio
import ctypes
import os
import platform
import shutil
import sys
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from migrator.adapters.executors import proc
from migrator.adapters.executors.activity import ProcActivity
from migrator.adapters.executors.process import BASE_ENVIRONMENT, LocalProcesses
from migrator.adapters.executors.program_files import program_files
from migrator.ports.hosts import HostFacts
from migrator.ports.processes import Processes

_libc = ctypes.CDLL(None, use_errno=True)
_IN_MEMORY = "/dev/shm"  # noqa: S108 - a directory of mode 0700 is made in it


class LocalHost:
    """The `Host` port for this machine: nothing is connected, and it is never lost."""

    def __init__(self, processes: Processes | None = None, *, name: str = "localhost") -> None:
        self._processes: Processes = processes or LocalProcesses()
        self._name = name
        self._private: Path | None = None
        self._files: dict[bytes, tuple[bytes, ...]] = {}
        self._finding_files = asyncio.Lock()
        self._opening = asyncio.Lock()
        self._sync_fds: dict[bytes, int] = {}
        # Who forgets to close it must not keep a file system from being unmounted.
        self._release = weakref.finalize(self, _close_all, self._sync_fds)

    @property
    def name(self) -> str:
        """As in site.toml."""
        return self._name

    @property
    def processes(self) -> Processes:
        """Programs of this machine."""
        return self._processes

    async def facts(self) -> HostFacts:
        """What this machine is."""
        return HostFacts(
            name=self._name,
            node_name=platform.node(),
            architecture=platform.machine(),
            python_version=(sys.version_info.major, sys.version_info.minor, sys.version_info.micro),
            effective_uid=os.geteuid(),
            boot_id=proc.boot_id(),
            clock_offset_s=0.0,
            round_trip_s=0.0,
            python=os.fsencode(sys.executable),
            process_id=os.getpid(),
        )

    async def identity(self) -> HostFacts:
        """The same."""
        return await self.facts()

    async def find(self, program: str) -> bytes | None:
        """The absolute path of a program on the PATH that programs are started with."""
        found = shutil.which(program, path=BASE_ENVIRONMENT["PATH"])
        return None if found is None else os.fsencode(found)

    async def place(self, name: str, content: bytes) -> bytes:
        """Put an executable file into a directory of mode 0700, in memory where that can be, until `close`."""
        if self._private is None:
            self._private = Path(tempfile.mkdtemp(prefix="migrator-", dir=_IN_MEMORY if _fits(_IN_MEMORY) else None))
        path = self._private / name
        if path.parent != self._private or name in ("", ".", ".."):
            raise ValueError("not a plain file name")
        temporary = path.with_name(name + ".new")
        temporary.write_bytes(content)
        temporary.chmod(0o700)
        temporary.rename(path)
        return os.fsencode(path)

    async def files_of(self, program: bytes) -> tuple[bytes, ...]:
        """The files that a program is made of. Raises ToolFailed."""
        async with self._finding_files:
            if program not in self._files:
                self._files[program] = await program_files(program, processes=self._processes, read_head=_read_head)
            return self._files[program]

    async def activity(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """For every token with living processes, a number that changes whenever they do something."""
        return await asyncio.to_thread(ProcActivity().of, tokens)

    async def watch_sync(self, path: bytes) -> None:
        """From now on `sync` tells of writes that failed."""
        async with self._opening:
            if path not in self._sync_fds:
                fd = await asyncio.to_thread(os.open, path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                self._sync_fds[path] = fd

    async def sync(self, path: bytes) -> None:
        """Sync its file system, in a thread. Raises OSError."""
        await self.watch_sync(path)
        await asyncio.to_thread(_sync, self._sync_fds[path], path)

    async def close(self) -> None:
        """Remove what was placed; programs end with those who wait for them."""
        _close_all(self._sync_fds)
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
            self._private = None


def _sync(fd: int, path: bytes) -> None:
    if _libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)


def _close_all(descriptors: dict[bytes, int]) -> None:
    while descriptors:
        os.close(descriptors.popitem()[1])


def _fits(place: str) -> bool:
    return Path(place).is_dir() and os.access(place, os.W_OK) and not os.statvfs(place).f_flag & os.ST_NOEXEC


async def _read_head(path: bytes, size_bytes: int) -> bytes:
    with open(path, "rb") as file:  # noqa: ASYNC230 - a few blocks of a program
        return file.read(size_bytes)
