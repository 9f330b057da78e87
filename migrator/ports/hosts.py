"""Machines that run streams and walks: this one, a brick server over ssh, a node of a batch system."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.errors import MigratorError
from migrator.ports.processes import Processes


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
