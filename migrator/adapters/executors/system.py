"""Drivers on this machine: scripts with streams of their own, confined to one tree and one directory of theirs."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from migrator.adapters.executors import proc
from migrator.domain.errors import Refused
from migrator.domain.transfer import ProcessIdentity
from migrator.ports.drivers import DriverView
from migrator.ports.processes import Command, Completed, Processes

_CONFINED_VIEW = DriverView(source_tree=b"/source", target_tree=b"/target", work=b"/work")
_VISIBLE = (b"/usr/", b"/bin/", b"/sbin/")
_STREAMS = (b"rsync", b"fpart")


class SystemExecutor:
    """Runs drivers as root in a namespace that holds one tree of each side, the installed programs, and the driver's
    own directory (`native/src/confine.c`). Without root nothing can be confined, and nothing needs to be.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        source_root: bytes,
        target_root: bytes,
        compiled: bytes,
        host: str = "localhost",
        grace_s: float = 5.0,
        confined: bool | None = None,
    ) -> None:
        """`compiled` is the program that confines. `confined` None: as the user demands. Root cannot do without."""
        if confined is False and os.geteuid() == 0:
            raise Refused("drivers of root are confined to their trees, always")
        self._processes = processes
        self._host = host
        self._grace_s = grace_s
        self._confined = os.geteuid() == 0 if confined is None else confined
        self._source_root = source_root
        self._target_root = target_root
        self._compiled = compiled

    @property
    def host(self) -> str:
        """The host's name."""
        return self._host

    @property
    def boot_id(self) -> str:
        """Which boot of the machine this is."""
        return proc.boot_id()

    @property
    def activity(self) -> "StreamActivity":
        """Whether the streams of a driver still do something."""
        return StreamActivity()

    def view(self, tree: bytes, directory: Path) -> DriverView:
        """Where a driver sees a tree, and its directory."""
        if self._confined:
            return _CONFINED_VIEW
        return DriverView(
            source_tree=self._source_root.rstrip(b"/") + b"/" + tree,
            target_tree=self._target_root.rstrip(b"/") + b"/" + tree,
            work=os.fsencode(directory),
        )

    async def execute(
        self,
        command: Command,
        *,
        files: Sequence[bytes],
        tree: bytes,
        directory: Path,
        on_start: Callable[[ProcessIdentity], None],
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
    ) -> Completed:
        """Run a driver to its end. Nothing of it is left when this returns, unless it hangs in the kernel."""
        started = command
        if self._confined:
            started = replace(command, argv=(*self._jailed(files, tree, directory), *command.argv))
        completed = await self._processes.stream(started, on_start=on_start, on_stdout=on_stdout, on_stderr=on_stderr)
        if command.token is not None and await self._processes.survivors((command.token,)):
            await self._processes.end(command.token, grace_s=self._grace_s)
        return completed

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """End what is left of earlier attempts; returns the tokens of those that could not be ended."""
        alive: Mapping[str, Sequence[ProcessIdentity]] = await self._processes.survivors(tokens)
        ended = await asyncio.gather(*(self._processes.end(token, grace_s=self._grace_s) for token in alive))
        return [token for token, gone in zip(alive, ended, strict=True) if not gone]

    def _jailed(self, files: Sequence[bytes], tree: bytes, directory: Path) -> tuple[bytes, ...]:
        elsewhere = [path for path in files if not path.startswith(_VISIBLE)]
        return (
            self._compiled,
            b"confine",
            b"--parent",
            b"%d" % os.getpid(),
            b"--source-root",
            self._source_root,
            b"--target-root",
            self._target_root,
            b"--tree",
            tree,
            b"--system",
            os.fsencode(directory),
            *(word for path in elsewhere for word in (b"--file", path)),
            b"--",
        )


class StreamActivity:
    """The `Activity` port for drivers. A driver's shell starts a program several times a second only to look around, so
    it would never seem to stand still: what counts are the programs that crawl and copy.
    """

    def of(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """A number for every token that living processes carry; it changes whenever a stream does something, or when
        one comes or goes.
        """
        return {
            token: sum(proc.work_done(process.pid) + process.pid for process in processes if _is_stream(process.pid))
            for token, processes in proc.carriers(tokens).items()
        }


def _is_stream(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n") in _STREAMS
    except OSError:
        return False
