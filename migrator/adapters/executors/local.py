"""Streams on this machine, each confined to its tree."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from migrator.adapters.executors import elf, jail
from migrator.domain.errors import Refused, ToolFailed
from migrator.domain.paths import show
from migrator.domain.transfer import ProcessIdentity
from migrator.ports.processes import Command, Completed, Processes
from migrator.ports.streams import StreamView

_HEAD_BYTES = 1 << 16
_LOADER_TIMEOUT_S = 30.0
_PROBE_TIMEOUT_S = 30.0
_LOADER_CACHE = b"/etc/ld.so.cache"
_CONFINED_VIEW = StreamView(source_tree=b"/source", target_tree=b"/target")


class LocalExecutor:
    """Runs streams as root in a namespace that holds one tree of each side (see `jail`).

    Without root nothing can be confined, and nothing needs to be: a stream can do no more than its user. As root
    there is no way around the confinement: where it cannot be set up, the stream ends with `jail.SET_UP_FAILED`.
    Confined streams die with the thread that started them: the event loop belongs into the main thread.
    """

    def __init__(
        self,
        processes: Processes,
        *,
        source_root: bytes,
        target_root: bytes,
        host: str = "localhost",
        grace_s: float = 5.0,
        confined: bool | None = None,
    ) -> None:
        """`confined` None: as the user demands. Root cannot do without."""
        if confined is False and os.geteuid() == 0:
            raise Refused("streams of root are confined to their trees, always")
        self._processes = processes
        self._host = host
        self._grace_s = grace_s
        self._confined = os.geteuid() == 0 if confined is None else confined
        # An rsync that confines itself compares resolved paths; the jail resolves nothing below the roots.
        self._source_root = source_root if self._confined else os.path.realpath(source_root)
        self._target_root = target_root if self._confined else os.path.realpath(target_root)
        self._files: dict[bytes, tuple[bytes, ...]] = {}
        self._finding_files = asyncio.Lock()

    @property
    def host(self) -> str:
        """The host's name."""
        return self._host

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
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
    ) -> Completed:
        """Run one stream to its end. Nothing of it is left when this returns, unless it hangs in the kernel.

        Raises ToolFailed where the program, or what it is made of, cannot be found.
        """
        started = command
        if self._confined:
            prefix = await self._jailed(
                program, source_root=self._source_root, target_root=self._target_root, tree=tree
            )
            started = _with_argv(command, (*prefix, *command.argv))
        completed = await self._processes.stream(started, on_start=on_start, on_stdout=on_stdout, on_stderr=on_stderr)
        if command.token is not None and self._processes.survivors((command.token,)):
            await self._processes.end(command.token, grace_s=self._grace_s)
        return completed

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """End what is left of earlier attempts; returns the tokens of those that could not be ended."""
        alive: Mapping[str, Sequence[ProcessIdentity]] = self._processes.survivors(tokens)
        ended = await asyncio.gather(*(self._processes.end(token, grace_s=self._grace_s) for token in alive))
        return [token for token, gone in zip(alive, ended, strict=True) if not gone]

    async def problem(self, program: bytes) -> str | None:
        """Why no stream of this program could be confined here; None where all is well."""
        if not self._confined:
            return None
        try:
            prefix = await self._jailed(program, source_root=b"", target_root=b"", tree=b"")
            completed = await self._processes.run(
                Command(argv=(*prefix, program, b"--version"), timeout_s=_PROBE_TIMEOUT_S)
            )
        except ToolFailed as error:
            return error.message
        if completed.exit_code != 0:
            return show(completed.stderr.strip()) or f"exit code {completed.exit_code}"
        return None

    async def _jailed(
        self, program: bytes, *, source_root: bytes, target_root: bytes, tree: bytes
    ) -> tuple[bytes, ...]:
        files = await self._files_of(program)
        return (
            os.fsencode(sys.executable),
            b"-I",
            b"-S",
            os.fsencode(jail.__file__),
            b"--parent",
            b"%d" % os.getpid(),
            b"--source-root",
            source_root,
            b"--target-root",
            target_root,
            b"--tree",
            tree,
            *(word for path in files for word in (b"--file", path)),
            b"--",
        )

    async def _files_of(self, program: bytes) -> tuple[bytes, ...]:
        async with self._finding_files:
            if program not in self._files:
                self._files[program] = await self._find_files(program)
            return self._files[program]

    async def _find_files(self, program: bytes) -> tuple[bytes, ...]:
        try:
            loader = elf.interpreter(_head(program))
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
        listing = await self._processes.run(Command(argv=(loader, b"--list", program), timeout_s=_LOADER_TIMEOUT_S))
        if listing.exit_code != 0:
            raise ToolFailed(f"the libraries of {show(program)} cannot be listed: {show(listing.stderr)}")
        try:
            libraries = elf.libraries(listing.stdout)
        except ValueError as error:
            raise ToolFailed(f"{show(program)} cannot run: {error}", hint="install the library") from error
        return tuple(dict.fromkeys((program, loader, *libraries, *_loader_cache())))


def _head(program: bytes) -> bytes:
    with open(program, "rb") as file:
        return file.read(_HEAD_BYTES)


def _loader_cache() -> tuple[bytes, ...]:
    """Where it exists, libraries in unusual places are found through it."""
    return (_LOADER_CACHE,) if Path(os.fsdecode(_LOADER_CACHE)).is_file() else ()


def _beneath(root: bytes, tree: bytes) -> bytes:
    return root.rstrip(b"/") + b"/" + tree if tree else root


def _with_argv(command: Command, argv: tuple[bytes, ...]) -> Command:
    return Command(
        argv=argv,
        stdin=command.stdin,
        environment=command.environment,
        timeout_s=command.timeout_s,
        token=command.token,
    )
