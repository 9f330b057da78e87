"""Starting a stream confined, on this machine or another."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from migrator.core.errors import Refused, ToolFailed
from migrator.core.paths import show
from migrator.hosts import proc
from migrator.hosts.local import LocalHost
from migrator.hosts.model import ProcessIdentity
from migrator.hosts.ports import Command, Completed, Host, HostLost, OnOutput, Processes
from migrator.transfer.ports import DriverView, StreamView

# On any host, confined to one tree.


PlaceCompiled = Callable[[], Awaitable[bytes]]
"""Returns the path of the compiled program on a host, and places it again after a new connection. Raises HostLost and
ToolFailed."""

_PROBE_TIMEOUT_S = 30.0
_CONFINED_VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")


class HostExecutor:
    """Runs streams of root in a namespace that holds one tree of each side (`native/src/confine.c`), on a host where
    both roots are paths: the source may be a mount or a brick. Programs are paths of that host as well.

    Streams never run unconfined: if the confinement cannot be set up, the stream ends with `JAIL_FAILED`.
    Confined streams die with the process that starts programs there (locally with its main thread).
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
        self._grace_s = grace_s
        self._confined = confined
        self._source_root = source_root
        self._target_root = target_root
        self._compiled = compiled

    @property
    def host(self) -> str:
        """The host's name."""
        return self._host.name

    @property
    def confined(self) -> bool:
        """Whether streams run in a namespace of their own."""
        return self._confined

    def view(self, tree: bytes) -> StreamView:
        """Where a stream sees a tree."""
        if self._confined:
            return _CONFINED_VIEW
        return StreamView(
            source_tree=_beneath(self._source_root, tree),
            target_tree=_beneath(self._target_root, tree),
        )

    async def execute(
        self,
        command: Command,
        *,
        program: bytes,
        tree: bytes,
        on_start: Callable[[ProcessIdentity], None],
        on_stdout: OnOutput,
        on_stderr: OnOutput,
    ) -> Completed:
        """Run one stream to its end. Nothing of it is left when this returns, unless it hangs in the kernel.

        Raises ToolFailed if the program, or a library of it, cannot be found; HostLost, with `in_doubt` if a part of it may
        still run.
        """
        processes = self._host.processes
        started = command
        if self._confined:
            prefix = await self._jailed(
                program, source_root=self._source_root, target_root=self._target_root, tree=tree
            )
            started = replace(command, argv=(*prefix, *command.argv))
        if self._target_root:
            await self._watch_target()
        completed = await processes.stream(started, on_start=on_start, on_stdout=on_stdout, on_stderr=on_stderr)
        try:
            if command.token is not None and await processes.survivors((command.token,)):
                await processes.end(command.token, grace_s=self._grace_s)
        except HostLost as error:
            raise HostLost(error.message, cause=error.cause, hint=error.hint, in_doubt=True) from error
        return completed

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """End orphaned processes of earlier attempts; returns the tokens of those that could not be ended. Raises HostLost:
        then they are in doubt.
        """
        alive = await self._host.processes.survivors(tokens)
        ended = await asyncio.gather(*(self._host.processes.end(token, grace_s=self._grace_s) for token in alive))
        return [token for token, gone in zip(alive, ended, strict=True) if not gone]

    async def sync(self) -> None:
        """Sync the target's file system on that host. Raises OSError, HostLost."""
        await self._host.sync(self._target_root)

    async def problem(self, program: bytes) -> str | None:
        """Why no stream of this program can be confined there; None if it can. Raises HostLost."""
        if not self._confined:
            return None
        try:
            prefix = await self._jailed(program, source_root=b"", target_root=b"", tree=b"")
            completed = await self._host.processes.run(
                Command(argv=(*prefix, program, b"--version"), timeout_s=_PROBE_TIMEOUT_S)
            )
        except (ToolFailed, Refused) as error:
            return error.message
        if completed.exit_code != 0:
            return show(completed.stderr.strip()) or f"exit code {completed.exit_code}"
        return None

    async def _watch_target(self) -> None:
        try:
            await self._host.watch_sync(self._target_root)
        except OSError:
            return  # the confinement says what is wrong with the target, and `sync` raises it

    async def _jailed(
        self, program: bytes, *, source_root: bytes, target_root: bytes, tree: bytes
    ) -> tuple[bytes, ...]:
        # Asked for every stream: the process that starts programs there is another one after a loss.
        facts = await self._host.identity()
        if facts.effective_uid != 0:
            raise Refused(
                f"streams on {self._host.name} would not run as root",
                cause="root alone can read every user's files, and confine a stream to its tree",
                hint=f'let ssh log in as root: [source.hosts."{self._host.name}"] ssh = "root@{self._host.name}"',
            )
        files = await self._host.files_of(program)
        return (
            await self._compiled(),
            b"confine",
            b"--parent",
            b"%d" % facts.process_id,
            b"--source-root",
            source_root,
            b"--target-root",
            target_root,
            b"--tree",
            tree,
            *(word for file in files for word in (b"--file", file)),
            b"--",
        )


def _beneath(root: bytes, tree: bytes) -> bytes:
    return root.rstrip(b"/") + b"/" + tree if tree else root


# On this machine, confined to one tree.


class LocalExecutor(HostExecutor):
    """The executor of this machine. Without root, streams cannot be confined and need not be: a stream can do no more than
    its user. Confined streams die with the thread that started them, so the event loop has to run in the main thread.
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
        confined: bool | None = None,
    ) -> None:
        """`confined` None: if this is root, whose streams are always confined."""
        if confined is False and os.geteuid() == 0:
            raise Refused("streams of root are confined to their trees, always")
        confining = os.geteuid() == 0 if confined is None else confined
        super().__init__(
            LocalHost(processes, name=host),
            # An rsync that confines itself compares resolved paths; the confinement resolves nothing below the roots.
            source_root=source_root if confining else os.path.realpath(source_root),
            target_root=target_root if confining else os.path.realpath(target_root),
            grace_s=grace_s,
            confined=confining,
            compiled=compiled,
        )

    async def close(self) -> None:
        """Close the target, which is held open so that a sync reports every error."""
        await self._host.close()


# Drivers on this machine: scripts with their own streams, confined to one tree and one work directory.


_SYSTEM_CONFINED_VIEW = DriverView(source_tree=b"/source", target_tree=b"/target", work=b"/work")
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
        confined: bool | None = None,
    ) -> None:
        """`compiled` is the program that confines. `confined` None: if this is root, whose drivers are always confined."""
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
            return _SYSTEM_CONFINED_VIEW
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
    """The `Activity` port for drivers. A driver's shell polls by starting a program several times a second, so it would never
    seem stalled: only the programs that crawl and copy count.
    """

    def of(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """A number for every token of living processes; it changes when a stream does something, starts or ends."""
        return {
            token: sum(proc.work_done(process.pid) + process.pid for process in processes if _is_stream(process.pid))
            for token, processes in proc.carriers(tokens).items()
        }


def _is_stream(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n") in _STREAMS
    except OSError:
        return False
