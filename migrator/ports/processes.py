"""Starting other programs: an argv list, started in one place, with a timeout and a whole-process-group stop."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from migrator.domain.transfer import ProcessIdentity

OnOutput = Callable[[bytes], "Awaitable[None] | None"]
"""Takes a piece of output, cut anywhere. Where it returns something to await, nothing more is read before that is done:
so a slow reader holds a fast program, and memory stays flat.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One program to run. `timeout_s` None means: as long as it takes (streams have a stall timer instead).

    `token`, where set, is put into the environment as `MIGRATOR_TOKEN`, so that every process of an attempt can be
    found again after a crash.
    """

    argv: tuple[bytes, ...]
    stdin: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float | None = 60.0
    token: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """How a program ended: `exit_code` is minus the signal's number where a signal ended it."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool


class Processes(Protocol):
    """Starts processes in a session of their own and ends them: TERM, grace, KILL, reap."""

    async def run(self, command: Command) -> Completed:
        """Run to its end. On cancellation the whole process group is ended and reaped before the call returns.

        Raises ToolFailed where the program cannot be started; a non-zero exit code is a value, not an error.
        """

    async def stream(
        self,
        command: Command,
        *,
        on_start: Callable[[ProcessIdentity], None],
        on_stdout: OnOutput,
        on_stderr: OnOutput,
    ) -> Completed:
        """As `run`, with output handed out in pieces as it comes (`stdout` and `stderr` of the result are empty)."""

    async def survivors(self, tokens: Sequence[str]) -> Mapping[str, tuple[ProcessIdentity, ...]]:
        """Which living processes of that machine still carry one of the tokens; tokens without any are left out."""

    async def end(self, token: str, *, grace_s: float) -> bool:
        """End every process that carries the token; False where one is left (in D state): then wait, never restart."""


class Conversation(Protocol):
    """A program that stays and is asked one thing after another."""

    async def ask(self, question: bytes, *, until: Callable[[bytes], bool], timeout_s: float) -> bytes:
        """Write the question, and return what the program says, from then until that is true of all of it.

        One question at a time. Raises ConversationOver where the program has ended, was ended, or took too long: what
        an answer would belong to is not known any more then, so it is ended, and so it is on cancellation.
        """

    def end(self) -> None:
        """End the program. May be called again, and when no event loop runs."""


class ConversationOver(Exception):
    """No answer, and there will be none; the text says why."""


class Conversations(Protocol):
    """Starts programs that are spoken to."""

    def begin(self, command: Command) -> Conversation:
        """Start one, in the running event loop. Raises ToolFailed where it cannot be started."""
