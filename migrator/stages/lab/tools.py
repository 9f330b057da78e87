"""Running the programs that a lab is made with, so that everything they leave running is found again."""

import os
from collections.abc import Sequence

from migrator.domain.errors import ToolFailed
from migrator.domain.lab import LabHost
from migrator.domain.paths import show
from migrator.ports.processes import Command, Completed, Processes

_TIMEOUT_S = 120.0
_TAIL_BYTES = 2000


class LabTools:
    """Runs programs with the lab's token in their environment.

    The token is no token of the command itself: what a command leaves running (glusterd, bricks, the mount's client)
    shall stay when the command has ended, and is ended by `lab down`.
    """

    def __init__(self, processes: Processes, token: str) -> None:
        self._processes = processes
        self._environment = {"MIGRATOR_TOKEN": token}

    async def attempt(self, *argv: str | bytes, stdin: bytes = b"", timeout_s: float = _TIMEOUT_S) -> Completed:
        """Run to its end; how it ended is a value."""
        return await self._processes.run(
            Command(
                argv=tuple(os.fsencode(argument) for argument in argv),
                stdin=stdin,
                environment=self._environment,
                timeout_s=timeout_s,
            )
        )

    async def run(self, *argv: str | bytes, stdin: bytes = b"", timeout_s: float = _TIMEOUT_S) -> bytes:
        """Run to its end; returns its output. Raises ToolFailed with what it said."""
        completed = await self.attempt(*argv, stdin=stdin, timeout_s=timeout_s)
        if completed.exit_code or completed.timed_out:
            raise tool_failed(argv, completed)
        return completed.stdout

    async def on_host(self, host: LabHost, *argv: str | bytes) -> bytes:
        """As `run`, in the namespaces of a host."""
        return await self.run(*entering(host), *argv)

    async def attempt_on_host(self, host: LabHost, *argv: str | bytes) -> Completed:
        """As `attempt`, in the namespaces of a host."""
        return await self.attempt(*entering(host), *argv)


def entering(host: LabHost) -> tuple[str, ...]:
    """What stands before a command that shall run on a host."""
    return ("nsenter", "--target", str(host.holder_pid), "--net", "--mount", "--uts", "--")


def tool_failed(argv: Sequence[str | bytes], completed: Completed) -> ToolFailed:
    """The error of a program that did not do what it should."""
    shown = " ".join(show(os.fsencode(argument)) for argument in argv)
    said = show((completed.stderr + completed.stdout).strip()[-_TAIL_BYTES:])
    ended = "ran into its time limit" if completed.timed_out else f"ended with code {completed.exit_code}"
    return ToolFailed(f"{shown} {ended}: {said}" if said else f"{shown} {ended}")
