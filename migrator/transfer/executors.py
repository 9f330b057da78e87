"""Starting a stream confined, on this machine or another."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from migrator.core.errors import Refused, ToolFailed
from migrator.core.paths import show
from migrator.hosts import proc
from migrator.hosts.far_looks import activity
from migrator.hosts.local import LocalHost
from migrator.hosts.ports import Command, Completed, Host, HostLost, OnOutput, OnStart, Processes
from migrator.transfer.model import StreamView
from migrator.transfer.ports import DriverView

PlaceCompiled = Callable[[], Awaitable[bytes]]
"""Returns the path of the compiled program on a host. It places the program again after a new connection. Raises
HostLost and ToolFailed.
"""

_PROBE_TIMEOUT_S = 30.0

# The common parts of executors: the confinement, and the end of a process tree.


def _beneath(root: bytes, tree: bytes) -> bytes:
    return root.rstrip(b"/") + b"/" + tree if tree else root


def _jail(compiled: bytes, parent: int, *, roots: tuple[bytes, bytes], tree: bytes) -> tuple[bytes, ...]:
    """The beginning of a confined command; the visible files and `--` follow."""
    source_root, target_root = roots
    return (
        *(compiled, b"confine", b"--parent", b"%d" % parent),
        *(b"--source-root", source_root, b"--target-root", target_root, b"--tree", tree),
    )


def _shown(files: Sequence[bytes]) -> tuple[bytes, ...]:
    return (*(word for file in files for word in (b"--file", file)), b"--")


async def _end(processes: Processes, tokens: Sequence[str], grace_s: float) -> Sequence[str]:
    """End all processes with these tokens; returns the tokens of those that could not be ended. Raises HostLost."""
    alive = await processes.survivors(tokens) if tokens else ()
    ended = await asyncio.gather(*(processes.end(token, grace_s=grace_s) for token in alive))
    return [token for token, gone in zip(alive, ended, strict=True) if not gone]


# On any host, confined to one tree.


class HostExecutor:
    """Runs streams of root in a namespace that holds one tree of each side (`native/src/confine.c`), on a host where
    both roots are paths: the source may be a mount or a brick. Programs are paths of that host as well.

    Streams never run unconfined: if the confinement cannot be set up, the stream ends with `JAIL_FAILED`. Confined
    streams die with the process that starts programs there (locally with its main thread).
    """

    def __init__(
        self,
        host: Host,
        *,
        source_root: bytes,
        target_root: bytes,
        compiled: PlaceCompiled,
        grace_s: float = 5.0,
        confined: bool = True,
    ) -> None:
        """`compiled` places the program that confines streams. `confined` False is for a host without root."""
        self._host = host
        self.host = host.name
        self.confined = confined
        self._grace_s = grace_s
        self._roots = source_root, target_root
        self._compiled = compiled

    def view(self, tree: bytes) -> StreamView:
        """The location of a tree as a stream sees it."""
        if self.confined:
            return StreamView(source_tree=b"/source", target_tree=b"/target")
        source_root, target_root = self._roots
        return StreamView(source_tree=_beneath(source_root, tree), target_tree=_beneath(target_root, tree))

    async def execute(
        self,
        command: Command,
        *,
        program: bytes,
        tree: bytes,
        on_start: OnStart,
        on_stdout: OnOutput,
        on_stderr: OnOutput,
    ) -> Completed:
        """Run one stream to its end. All of its processes have ended when this returns, unless one hangs in the kernel.

        Raises ToolFailed if the program, or one of its libraries, is missing; HostLost, with `in_doubt` if a part of
        the stream may still run.
        """
        processes, (_, target_root) = self._host.processes, self._roots
        started = command
        if self.confined:
            started = replace(command, argv=(*await self._jailed(program, self._roots, tree), *command.argv))
        if target_root:
            # The confinement reports errors of the target, and `sync` raises them.
            with suppress(OSError):
                await self._host.watch_sync(target_root)
        completed = await processes.stream(started, on_start=on_start, on_stdout=on_stdout, on_stderr=on_stderr)
        try:
            await _end(processes, [command.token] if command.token is not None else (), self._grace_s)
        except HostLost as error:
            raise HostLost(error.message, cause=error.cause, hint=error.hint, in_doubt=True) from error
        return completed

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """End orphaned processes of earlier attempts; returns the tokens of those that could not be ended. Raises
        HostLost: then their state is unknown.
        """
        return await _end(self._host.processes, tokens, self._grace_s)

    async def sync(self) -> None:
        """Sync the target's file system on that host. Raises OSError, HostLost."""
        await self._host.sync(self._roots[1])

    async def problem(self, program: bytes) -> str | None:
        """Why no stream of this program can be confined there; None if one can. Raises HostLost."""
        if not self.confined:
            return None
        try:
            prefix = await self._jailed(program, (b"", b""), b"")
            completed = await self._host.processes.run(
                Command(argv=(*prefix, program, b"--version"), timeout_s=_PROBE_TIMEOUT_S)
            )
        except (ToolFailed, Refused) as error:
            return error.message
        if completed.exit_code != 0:
            return show(completed.stderr.strip()) or f"exit code {completed.exit_code}"
        return None

    async def _jailed(self, program: bytes, roots: tuple[bytes, bytes], tree: bytes) -> tuple[bytes, ...]:
        # Every stream needs a new query: after a loss, another process starts programs there.
        facts = await self._host.identity()
        if facts.effective_uid != 0:
            raise Refused(
                f"streams on {self.host} would not run as root",
                cause="root alone can read every user's files, and confine a stream to its tree",
                hint=f'let ssh log in as root: [source.hosts."{self.host}"] ssh = "root@{self.host}"',
            )
        files = await self._host.files_of(program)
        return (*_jail(await self._compiled(), facts.process_id, roots=roots, tree=tree), *_shown(files))


class LocalExecutor(HostExecutor):
    """The executor of this machine. Without root, streams cannot be confined and need not be: a stream has only the
    rights of its user. Confined streams die with the thread that started them, so the event loop has to run in the main
    thread.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        source_root: bytes,
        target_root: bytes,
        compiled: PlaceCompiled,
        host: str = "localhost",
        grace_s: float = 5.0,
    ) -> None:
        confined = os.geteuid() == 0
        super().__init__(
            LocalHost(processes, name=host),
            # An rsync that confines itself compares resolved paths. The confinement resolves nothing below the roots.
            source_root=source_root if confined else os.path.realpath(source_root),
            target_root=target_root if confined else os.path.realpath(target_root),
            grace_s=grace_s,
            confined=confined,
            compiled=compiled,
        )

    async def close(self) -> None:
        """Close the target. It is held open so that a sync reports every error."""
        await self._host.close()


# Drivers on this machine: scripts with their own streams, confined to one tree and one work directory.


_VISIBLE = (b"/usr/", b"/bin/", b"/sbin/")
_STREAMS = (b"rsync", b"fpart")


class SystemExecutor:
    """Runs drivers as root in a namespace that holds one tree of each side, the installed programs, and the driver's
    own directory (`native/src/confine.c`). Without root, drivers cannot be confined and need not be.
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
    ) -> None:
        """`compiled` is the path of the confining program."""
        self._processes = processes
        self.host = host
        self._grace_s = grace_s
        self._confined = os.geteuid() == 0
        self._roots = source_root, target_root
        self._compiled = compiled
        self.activity = stream_activity

    @property
    def boot_id(self) -> str:
        """Identifies the current boot of the machine."""
        return proc.boot_id()

    def view(self, tree: bytes, directory: Path) -> DriverView:
        """The location of a tree, and of the driver's directory, as the driver sees them."""
        if self._confined:
            return DriverView(source_tree=b"/source", target_tree=b"/target", work=b"/work")
        source_tree, target_tree = (_beneath(root, tree) for root in self._roots)
        return DriverView(source_tree=source_tree, target_tree=target_tree, work=os.fsencode(directory))

    async def execute(
        self,
        command: Command,
        *,
        files: Sequence[bytes],
        tree: bytes,
        directory: Path,
        on_start: OnStart,
        on_stdout: OnOutput,
        on_stderr: OnOutput,
    ) -> Completed:
        """Run a driver. All of its processes have ended when this returns, unless one hangs in the kernel."""
        started = command
        if self._confined:
            elsewhere = [path for path in files if not path.startswith(_VISIBLE)]
            jail = _jail(self._compiled, os.getpid(), roots=self._roots, tree=tree)
            prefix = (*jail, b"--system", os.fsencode(directory), *_shown(elsewhere))
            started = replace(command, argv=(*prefix, *command.argv))
        completed = await self._processes.stream(started, on_start=on_start, on_stdout=on_stdout, on_stderr=on_stderr)
        await self.end_orphans([command.token] if command.token is not None else ())
        return completed

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """End orphaned processes of earlier attempts; returns the tokens of those that could not be ended."""
        return await _end(self._processes, tokens, self._grace_s)


def stream_activity(tokens: Sequence[str]) -> Mapping[str, int]:
    """The `Activity` of drivers. Only the programs that crawl and copy count: a driver's shell polls by starting a
    program several times a second, so it would never seem stalled.
    """
    return activity(tokens, _is_stream)


def _is_stream(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n") in _STREAMS
    except OSError:
        return False
