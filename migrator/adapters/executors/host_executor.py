"""Streams on any host, each confined to its tree."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from migrator.domain.errors import Refused, ToolFailed
from migrator.domain.paths import show
from migrator.domain.transfer import ProcessIdentity
from migrator.ports.hosts import Host, HostLost
from migrator.ports.processes import Command, Completed, OnOutput
from migrator.ports.streams import StreamView

PlaceCompiled = Callable[[], Awaitable[bytes]]
"""Gives the path of the compiled program on a host, placed anew where it is gone with a connection. Raises HostLost and
ToolFailed."""

_PROBE_TIMEOUT_S = 30.0
_CONFINED_VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")


class HostExecutor:
    """Runs streams of root in a namespace that holds one tree of each side (`native/src/confine.c`), on a host where
    both roots are paths: the source may be a mount or a brick. Programs are paths of that host as well.

    There is no way around the confinement: where it cannot be set up, the stream ends with `JAIL_FAILED`.
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

        Raises ToolFailed where the program, or what it is made of, cannot be found; HostLost, with
        `in_doubt` where something of it may run on.
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
        """End what is left of earlier attempts; returns the tokens of those that could not be ended. Raises HostLost:
        then they are in doubt.
        """
        alive = await self._host.processes.survivors(tokens)
        ended = await asyncio.gather(*(self._host.processes.end(token, grace_s=self._grace_s) for token in alive))
        return [token for token, gone in zip(alive, ended, strict=True) if not gone]

    async def sync(self) -> None:
        """Sync the target's file system on that host. Raises OSError, HostLost."""
        await self._host.sync(self._target_root)

    async def problem(self, program: bytes) -> str | None:
        """Why no stream of this program could be confined there; None where all is well. Raises HostLost."""
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
