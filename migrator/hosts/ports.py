"""Hosts and processes as features see them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from migrator.core.errors import MigratorError
from migrator.hosts.model import ProcessIdentity

# ---
# Starting other programs: an argv list, started in one place, with a timeout and a whole-process-group stop.


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


# ---
# Machines that run streams and walks: this one, a brick server over ssh, a node of a batch system.


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a host says of itself when it is reached.

    `clock_offset_s` is its clock minus this machine's (both UTC), good to half of `round_trip_s`.
    """

    name: str
    node_name: str
    architecture: str
    python_version: tuple[int, int, int]
    effective_uid: int
    boot_id: str
    clock_offset_s: float
    round_trip_s: float
    python: bytes
    """The interpreter that runs there what is placed."""
    process_id: int
    """The parent of what is started there."""
    job: str = ""
    """The job of a batch system that the host is a part of; empty where there is none."""


class HostLost(MigratorError):
    """A host cannot be reached, or no longer. What ran there ends by itself when its lease runs out; until the host is
    reached again nobody knows whether it has: what it worked at must not be given out again before.

    `in_doubt` False: nothing was begun there by the call that raises this.
    """

    def __init__(self, message: str, *, cause: str = "", hint: str = "", in_doubt: bool = False) -> None:
        super().__init__(message, cause=cause, hint=hint)
        self.in_doubt = in_doubt


class Host(Protocol):
    """One machine. Every call raises HostLost where it cannot be reached, with the usual cause and the next step."""

    @property
    def name(self) -> str:
        """As in site.toml and in the ledger."""

    @property
    def processes(self) -> Processes:
        """Programs there. They end with this program, and when the host has not heard of it for as long as its lease."""

    async def facts(self) -> HostFacts:
        """What the host says of itself, asked anew."""

    async def identity(self) -> HostFacts:
        """As `facts`, asked once for each connection (the clock may have moved since)."""

    async def find(self, program: str) -> bytes | None:
        """The absolute path of a program on the host's PATH; None where it has none."""

    async def place(self, name: str, content: bytes) -> bytes:
        """Put an executable file where only root can change it; returns its path there. It is gone when the connection
        is. The same name and content may be placed again.
        """

    async def files_of(self, program: bytes) -> tuple[bytes, ...]:
        """The files that a program there is made of: itself, its loader, its libraries. Raises ToolFailed."""

    async def activity(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """For every token with living processes there, a number that changes whenever they move bytes or use the
        processor.
        """

    async def watch_sync(self, path: bytes) -> None:
        """From now on `sync` of this path tells of writes that failed (syncfs tells since a descriptor was opened).
        Raises OSError.
        """

    async def sync(self, path: bytes) -> None:
        """Return when all that was written to the file system of a directory has reached its disks (syncfs). Raises
        OSError, also for what failed to reach them since `watch_sync` or the last call.
        """

    async def close(self) -> None:
        """End everything that runs there for this program, and the connection. May be called again."""


class Hosts(Protocol):
    """The hosts of a site, each connected at first use and then kept."""

    async def reach(self, name: str) -> Host:
        """Raises HostLost where it cannot be reached, UsageError where site.toml does not name it."""

    async def close(self) -> None:
        """Close all of them."""


# ---
# Whether the processes of a stream still do something.


class Activity(Protocol):
    """Looks at processes from outside, so that a stream which says nothing for long is not taken for a stuck one."""

    def of(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """For every token with living processes, a number that changes whenever they move bytes or use the processor.

        A process that hangs in a system call does not change it.
        """


class Loads(Protocol):
    """How much hosts have to do."""

    async def of(self, host: str) -> float | None:
        """The load average of one minute; None where it is not known, which changes nothing. Raises nothing."""
