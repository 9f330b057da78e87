"""The ports of processes and hosts."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from migrator.core.errors import MigratorError
from migrator.core.paths import show
from migrator.hosts.model import HostRoots, ProcessIdentity

OnStart = Callable[[ProcessIdentity], None]
OnOutput = Callable[[bytes], "Awaitable[None] | None"]
"""Receives a piece of output, cut anywhere. If it returns an awaitable, nothing more is read until that is done: a slow
reader slows down a fast program, and memory stays bounded."""
_SAID_BYTES = 300


class Asked(Protocol):
    """An event, as asyncio has it."""

    def is_set(self) -> bool: ...

    async def wait(self) -> object: ...


More = Callable[[], Awaitable[bytes]]
"""Returns the next piece of standard input; empty at its end."""


class Command(Struct, frozen=True, kw_only=True):
    """One program to run. `timeout_s` None: no timeout (streams have a stall timer instead).

    `token` is set in the environment as `MIGRATOR_TOKEN`, so that the processes of an attempt can be found after a
    crash. `umask` None: that of the process that starts programs there. `asked`: the program starts at once, and gets `stdin`
    when this is set. `more`: what follows `stdin`, which is not empty then.
    """

    argv: tuple[bytes, ...]
    stdin: bytes = b""
    asked: Asked | None = None
    more: More | None = None
    environment: Mapping[str, str] = {}
    timeout_s: float | None = 60.0
    token: str | None = None
    umask: int | None = None


class Completed(Struct, frozen=True, kw_only=True):
    """How a program ended: after a signal, `exit_code` is minus its number."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool

    @property
    def failure(self) -> str:
        """Why the program failed, with the last line that it wrote; empty if it succeeded."""
        if self.timed_out:
            return "it gave no answer in time"
        printed = show(self.stderr.strip().rpartition(b"\n")[2][-_SAID_BYTES:])
        return f"it ended with code {self.exit_code}: {printed}".rstrip(": ") if self.exit_code else ""


class Processes(Protocol):
    """Starts processes in a session of their own and ends them: TERM, grace, KILL, reap."""

    async def run(self, command: Command) -> Completed:
        """Run a program to its end. On cancellation its process group is ended and reaped before the call returns.

        Raises ToolFailed if it cannot be started; a non-zero exit code is a value, not an error.
        """

    async def stream(
        self, command: Command, *, on_start: OnStart, on_stdout: OnOutput, on_stderr: OnOutput
    ) -> Completed:
        """As `run`, with the output passed on as it arrives (`stdout` and `stderr` of the result are empty). An
        exception of a callback ends the process and is raised.
        """

    def limit(self, token: str, bytes_per_s: int) -> None:
        """Give the running `migrator-native copy` or `digest` that was started with the token another limit (0: none). Other
        programs ignore it, and a message may get lost: repeat it.
        """

    async def survivors(self, tokens: Sequence[str]) -> Mapping[str, tuple[ProcessIdentity, ...]]:
        """The living processes of the machine with one of the tokens; tokens without any are left out."""

    async def end(self, token: str, *, grace_s: float) -> bool:
        """End every process that carries the token. False if one survives (in D state): then wait, never restart. May
        be called again.
        """


class Conversation(Protocol):
    """A program that keeps running and answers one question after another."""

    async def ask(self, question: bytes, *, until: Callable[[bytes], bool], timeout_s: float) -> bytes:
        """Write the question and return the output that follows, once `until` is true of all of it.

        One question at a time. Raises ConversationOver if the program has ended or did not answer in time. Then, and on
        cancellation, it is ended: later output could belong to either question.
        """

    def end(self) -> None:
        """End the program. May be called again, and without an event loop."""


class ConversationOver(Exception):
    """There will be no answer; the message has the reason."""


class HostFacts(Struct, frozen=True, kw_only=True):
    """A host as its far end describes it.

    `clock_offset_s` is its clock minus this machine's (both UTC), good to half of `round_trip_s`.
    """

    name: str
    node_name: str
    architecture: str
    kernel: str
    """The release of Linux, such as `4.18.0-553.el8_10.x86_64`."""
    python_version: tuple[int, int, int]
    effective_uid: int
    boot_id: str
    clock_offset_s: float
    round_trip_s: float
    python: bytes
    """The Python interpreter there."""
    process_id: int
    """The parent of the programs that are started there."""
    job: str = ""
    """The job of the batch system, if there is one."""


class HostLost(MigratorError):
    """A host cannot be reached, or its connection is lost. Its programs end when their lease expires. That is certain
    only when the host is reached again, so their work must not be given to others before.

    `in_doubt` False: the call that raises this started nothing there.
    """

    def __init__(self, message: str, *, cause: str = "", hint: str = "", in_doubt: bool = False) -> None:
        super().__init__(message, cause=cause, hint=hint)
        self.in_doubt = in_doubt


class Host(Protocol):
    """One machine that runs streams and walks. Every call raises HostLost if it cannot be reached."""

    @property
    def name(self) -> str:
        """The name in site.toml and in the ledger."""

    @property
    def processes(self) -> Processes:
        """Starts programs there. They end with this program, or when the lease expires without a heartbeat."""

    async def facts(self) -> HostFacts:
        """The current facts of the host."""

    async def identity(self) -> HostFacts:
        """As `facts`, but queried only once per connection (the clock may have drifted since)."""

    async def find(self, program: str) -> bytes | None:
        """The absolute path of a program on the host's PATH; None if it has none."""

    async def place(self, name: str, content: bytes) -> bytes:
        """Write an executable file that only root can change; returns its path there. It is removed when the connection
        ends. The same name and content may be placed again. Raises OSError.
        """

    async def files_of(self, program: bytes) -> tuple[bytes, ...]:
        """The files of a program there: itself, its loader, its libraries. Raises ToolFailed."""

    async def roots(self, target: bytes, brick: bytes) -> HostRoots:
        """The roots of the target and of a brick there (empty: not asked for). Raises ToolFailed if they do not answer."""

    async def activity(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """For every token with living processes there, a number that changes whenever they move bytes or use the
        processor, or when one of them starts or ends. A process that hangs in the kernel does not change it.
        """

    async def watch_sync(self, path: bytes) -> None:
        """From now on, `sync` of this path reports failed writes (syncfs reports errors since the descriptor was
        opened). Raises OSError.
        """

    async def sync(self, path: bytes) -> None:
        """Flush the file system of a directory to its disks (syncfs). Raises OSError, also for writes that failed since
        `watch_sync` or the last call.
        """

    async def close(self) -> None:
        """End this program's processes there, and the connection. May be called again."""


class Hosts(Protocol):
    """The hosts of a site, each connected at first use and then kept connected."""

    async def reach(self, name: str) -> Host:
        """Connect. Raises HostLost, and UsageError if site.toml does not name the host."""

    async def close(self) -> None:
        """Close all of them."""


Activity = Callable[[Sequence[str]], Mapping[str, int]]
"""As `Host.activity`: a silent stream is not taken for a stalled one."""
