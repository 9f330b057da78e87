"""Starting a stream confined, on this machine or another."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path

from msgspec.structs import replace

from migrator.core.errors import Refused, ToolFailed
from migrator.gluster.model import BrickRules
from migrator.hosts import proc
from migrator.hosts.far_procfs import activity
from migrator.hosts.local import LocalHost
from migrator.hosts.ports import Command, Completed, Host, HostFacts, HostLost, OnOutput, OnStart, Processes
from migrator.transfer.model import StreamView
from migrator.transfer.ports import DriverView

PlaceCompiled = Callable[[], Awaitable[bytes]]
"""Returns the path of the compiled program on a host. It places the program again after a new connection. Raises
HostLost and ToolFailed.
"""

_PROBE_TIMEOUT_S = 30.0
_GRACE_S = 5.0
_UMASK = 0
"""Streams give new entries their modes, and not all modes can be set later. On BeeGFS symlinks keep the mode that they were
made with, and with rsync 3.5, which is confined without /proc, sockets and devices do on every file system."""
_VISIBLE = (b"/usr/", b"/bin/", b"/sbin/")
_STREAMS = (b"rsync", b"fpart")


def _beneath(root: bytes, tree: bytes) -> bytes:
    return root.rstrip(b"/") + b"/" + tree if tree else root


def _connection(facts: HostFacts) -> tuple[str, int]:
    return facts.boot_id, facts.process_id


def _shown(files: Sequence[bytes]) -> tuple[bytes, ...]:
    return (*(word for file in files for word in (b"--file", file)), b"--")


# On any host, confined to one tree.


class Executor:
    """Runs streams of root in a namespace that holds one tree of each side (`native/src/confine.c`), on a host where
    both roots are paths: the source may be a mount or a brick. Programs are paths of that host as well.

    Streams never run unconfined: if the confinement cannot be set up, the stream ends with `JAIL_FAILED`. Confined
    streams die with the process that starts programs there (locally with its main thread).
    """

    connection: tuple[str, int] | None = None
    """Identifies the connection to another host."""

    def __init__(
        self,
        host: Host,
        *,
        source_root: bytes,
        target_root: bytes,
        compiled: PlaceCompiled,
        facts: HostFacts | None = None,
        confined: bool = True,
    ) -> None:
        """`compiled` places the program that confines streams; `facts` are those of the connection. `confined` False is
        for a host without root.
        """
        self._host = host
        if facts is not None:
            self.connection = _connection(facts)
        self.host = host.name
        self.confined = confined
        self._roots = source_root, target_root
        self._compiled = compiled

    def into(self, directory: bytes) -> "Executor":
        """This executor with a directory of the target, of root alone, instead of the target's root."""
        source_root, target_root = self._roots
        executor = copy(self)
        executor._roots = source_root, _beneath(target_root, directory)  # noqa: SLF001 (its own)
        return executor

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
        jail = await self._jailed(program, self._roots, tree) if self.confined else ()
        if target_root := self._roots[1]:
            # The confinement reports errors of the target, and `sync` raises them.
            with suppress(OSError):
                await self._host.watch_sync(target_root)
        jailed = replace(command, argv=(*jail, *command.argv), umask=_UMASK)
        completed = await self._host.processes.stream(
            jailed, on_start=on_start, on_stdout=on_stdout, on_stderr=on_stderr
        )
        await self._end_escaped(command, completed, jailed=bool(jail))
        return completed

    async def _end_escaped(self, command: Command, completed: Completed, *, jailed: bool) -> None:
        """End the processes of a command that outlasted it. Raises HostLost, in doubt."""
        # The first process of a confinement is its init: the kernel ends all others before its end can be seen. Only a signal
        # can end the program that waits for it earlier, which then also exits with 128 and its number.
        if command.token is None or (jailed and 0 <= completed.exit_code < 128):
            return
        try:
            await self.end_orphans([command.token])
        except HostLost as error:
            raise HostLost(error.message, cause=error.cause, hint=error.hint, in_doubt=True) from error

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """End orphaned processes of earlier attempts; returns the tokens of those that could not be ended. Raises
        HostLost: then their state is unknown.
        """
        processes = self._host.processes
        alive = await processes.survivors(tokens) if tokens else ()
        ended = await asyncio.gather(*(processes.end(token, grace_s=_GRACE_S) for token in alive))
        return [token for token, gone in zip(alive, ended, strict=True) if not gone]

    async def activity(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """See `Host.activity`."""
        return await self._host.activity(tokens)

    def limit(self, token: str, bytes_per_s: int | None) -> None:
        """See `Processes.limit`; None: no limit."""
        self._host.processes.limit(token, bytes_per_s or 0)

    async def digest(
        self,
        paths: Sequence[bytes],
        *,
        token: str,
        of_target: bool,
        brick: BrickRules | None,
        bwlimit_bytes_per_s: int | None,
        on_stdout: OnOutput,
    ) -> Completed:
        """Read the content of files on that host, and report a digest of each (`native/src/digest.c`). Paths are relative to the
        root of a side. `brick` has the rules if that is the source and a brick. It is not confined: it only reads, and follows no
        symlink. Raises ToolFailed, HostLost.
        """
        argv: tuple[bytes, ...] = (await self._compiled(), b"digest", b"--tree", self._roots[of_target])
        if of_target:
            argv += (b"--target",)
        if brick is not None:
            argv += (b"--brick", *((b"--times", b"mdata") if brick.times_from_mdata else ()))
        if bwlimit_bytes_per_s is not None:
            argv += (b"--bwlimit", b"%d" % bwlimit_bytes_per_s)
        return await self._host.processes.stream(
            Command(argv=argv, stdin=b"".join(b":" + path + b"\0" for path in paths), timeout_s=None, token=token),
            on_start=lambda _identity: None,
            on_stdout=on_stdout,
            on_stderr=lambda _piece: None,
        )

    async def compiled_program(self) -> bytes:
        """The path of the compiled program there. Raises ToolFailed, HostLost."""
        return await self._compiled()

    async def sync(self) -> None:
        """Sync the target's file system on that host. Raises OSError; HostLost, also if the host was connected anew since:
        it may have crashed, and earlier writes may not have reached the disks.
        """
        await self._host.sync(self._roots[1])
        if self.connection is not None and self.connection != _connection(await self._host.identity()):
            raise HostLost(
                f"the connection to {self.host} was lost before what was written there was known to be on the disks",
                hint="everything copied there since the last sync is copied again",
                in_doubt=True,
            )

    async def problem(self) -> str | None:
        """Why no stream can be confined there; None if one can. Raises HostLost."""
        if not self.confined:
            return None
        try:
            program = await self._compiled()
            prefix = await self._jailed(program, (b"", b""), b"")
            completed = await self._host.processes.run(
                Command(argv=(*prefix, program, b"--version"), timeout_s=_PROBE_TIMEOUT_S)
            )
        except (ToolFailed, Refused) as error:
            return error.message
        return completed.failure or None

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
        return (*await self._jail(facts.process_id, roots, tree), *_shown(files))

    async def _jail(self, parent: int, roots: tuple[bytes, bytes], tree: bytes) -> tuple[bytes, ...]:
        """The beginning of a confined command; the visible files and `--` follow."""
        source_root, target_root = roots
        return (
            *(await self._compiled(), b"confine", b"--parent", b"%d" % parent),
            *(b"--source-root", source_root, b"--target-root", target_root, b"--tree", tree),
        )


class LocalExecutor(Executor):
    """The executor of this machine. Without root, streams cannot be confined and need not be: a stream has only the
    rights of its user. Confined streams die with the thread that started them, so the event loop has to run in the main
    thread.

    It also runs drivers: scripts with their own streams, in a namespace that holds one tree of each side, the installed
    programs, and the driver's own directory (`native/src/confine.c`).
    """

    def __init__(
        self,
        processes: Processes,
        *,
        source_root: bytes,
        target_root: bytes,
        compiled: PlaceCompiled,
        host: str = "localhost",
    ) -> None:
        confined = os.geteuid() == 0
        super().__init__(
            LocalHost(processes, name=host),
            # An rsync that confines itself compares resolved paths. The confinement resolves nothing below the roots.
            source_root=source_root if confined else os.path.realpath(source_root),
            target_root=target_root if confined else os.path.realpath(target_root),
            confined=confined,
            compiled=compiled,
        )

    async def close(self) -> None:
        """Close the target. It is held open so that a sync reports every error."""
        await self._host.close()

    @property
    def boot_id(self) -> str:
        """Identifies the current boot of the machine."""
        return proc.boot_id()

    def driver_view(self, tree: bytes, directory: Path) -> DriverView:
        """The location of a tree, and of the driver's directory, as the driver sees them."""
        seen, work = self.view(tree), b"/work" if self.confined else os.fsencode(directory)
        return DriverView(source_tree=seen.source_tree, target_tree=seen.target_tree, work=work)

    async def drive(
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
        jail: tuple[bytes, ...] = ()
        if self.confined:
            shown = _shown([path for path in files if not path.startswith(_VISIBLE)])
            jail = (*await self._jail(os.getpid(), self._roots, tree), b"--system", os.fsencode(directory), *shown)
        jailed = replace(command, argv=(*jail, *command.argv), umask=_UMASK)
        completed = await self._host.processes.stream(
            jailed, on_start=on_start, on_stdout=on_stdout, on_stderr=on_stderr
        )
        await self._end_escaped(command, completed, jailed=bool(jail))
        return completed


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
