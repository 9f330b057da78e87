"""Calling hooks as programs of this machine."""

import errno
import os

from migrator.adapters.hooks.directory import look_at_hooks
from migrator.decide.hooks import examine_hooks
from migrator.domain.errors import ToolFailed
from migrator.domain.hooks import OUTPUT_LIMIT_BYTES, HookCall, HookResult, HooksFound
from migrator.domain.transfer import ProcessIdentity
from migrator.ports.processes import Command, Processes

_GRACE_S = 5.0


class HookPrograms:
    """The `Hooks` port. No shell: a hook is started as it lies there, and the kernel reads its first line."""

    def __init__(self, processes: Processes, *, directory: bytes, site_file: bytes, timeout_s: float) -> None:
        self._processes = processes
        self._directory = directory
        self._site_file = site_file
        self._timeout_s = timeout_s

    @property
    def directory(self) -> bytes:
        """Where they are looked for."""
        return self._directory

    @property
    def site_file(self) -> bytes:
        """The site.toml that they belong to."""
        return self._site_file

    @property
    def timeout_s(self) -> float:
        """How long a call may take."""
        return self._timeout_s

    def find(self) -> HooksFound:
        """All hooks as they lie there now, and what speaks against them."""
        try:
            look = look_at_hooks(self._directory)
        except FileNotFoundError:  # something was removed between two looks
            look = look_at_hooks(self._directory)
        return examine_hooks(look, os.geteuid())

    async def call(self, call: HookCall) -> HookResult:
        """Call one, to its end or to its time limit. A hook that cannot be started is a value."""
        output = _End(OUTPUT_LIMIT_BYTES)
        command = Command(
            argv=(call.hook.path,),
            stdin=call.document,
            environment=dict(call.environment),
            timeout_s=self._timeout_s,
            token=call.token,
        )
        try:
            completed = await self._processes.stream(
                command, on_start=_nobody_asks, on_stdout=output.take, on_stderr=output.take
            )
        except ToolFailed as error:
            return HookResult(exit_code=None, output=output.content, problem=_why_not_started(error))
        return HookResult(exit_code=completed.exit_code, timed_out=completed.timed_out, output=output.content)

    async def end(self, token: str) -> bool:
        """End what is left of a call; False where something of it cannot be ended."""
        return await self._processes.end(token, grace_s=_GRACE_S)


class _End:
    """The end of what a program says, however much that is."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.content = b""

    def take(self, piece: bytes) -> None:
        self.content = (self.content + piece)[-self._limit_bytes :]


def _why_not_started(error: ToolFailed) -> str:
    cause = error.__cause__
    match cause.errno if isinstance(cause, OSError) else None:
        case errno.ENOENT:
            return "it could not be started: the program that its first line names is missing"
        case errno.ENOEXEC:
            return "it could not be started: its first line names no program (as #!/bin/sh does)"
        case errno.EACCES:
            return "it could not be started: permission denied (is its file system mounted noexec?)"
        case _:
            return error.message


def _nobody_asks(_: ProcessIdentity) -> None:
    """The token finds a hook again, and its pid nobody needs."""
