"""A host at the other end of a connection: its programs, its files, what it says of itself."""

import asyncio
import logging
import secrets
import time
from collections.abc import Mapping, Sequence

from migrator.adapters.executors import far_wire as wire
from migrator.adapters.executors.connection import Connection
from migrator.adapters.executors.program_files import program_files
from migrator.adapters.executors.remote_processes import RemoteProcesses
from migrator.adapters.executors.transport import Transport
from migrator.domain.paths import show
from migrator.ports.hosts import HostFacts, HostLost

_log = logging.getLogger(__name__)

_OPEN_WITHIN_S = 30.0
_FIRST_BACKOFF_S = 1.0
_LARGEST_BACKOFF_S = 60.0
_CLOCK_LOOKS = 3


class RemoteHost:
    """The `Host` port over one connection, made at first use, once for all that wait for it, and made anew at the next
    use after it was lost. After a failure to connect the same answer is given until a while has passed.

    A new connection first ends what an earlier one of this object has left running there: whoever reaches the host
    after a loss knows that nothing goes on behind its back, except what cannot be ended (`Processes.end` tells).
    """

    def __init__(
        self,
        transport: Transport,
        *,
        lease_s: float = 30.0,
        grace_s: float = 5.0,
        open_within_s: float = _OPEN_WITHIN_S,
        output_limit_bytes: int = 256 << 20,
    ) -> None:
        self._transport = transport
        self._lease_s = lease_s
        self._grace_s = grace_s
        self._open_within_s = open_within_s
        self._key = f"migrator-far-end-{secrets.token_hex(12)}-"
        self._opened = 0
        self._identity: tuple[Connection, HostFacts] | None = None
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._failure: HostLost | None = None
        self._backoff_s = 0.0
        self._not_before_s = 0.0
        self._placed: dict[tuple[str, bytes], bytes] = {}
        self._watched: set[bytes] = set()
        self._unproven: set[bytes] = set()
        """Written to over a connection that was lost before a sync."""
        self._files: dict[bytes, tuple[bytes, ...]] = {}
        self._processes = RemoteProcesses(self.connected, grace_s=grace_s, output_limit_bytes=output_limit_bytes)

    @property
    def name(self) -> str:
        """As in site.toml."""
        return self._transport.host

    @property
    def processes(self) -> RemoteProcesses:
        """Programs there."""
        return self._processes

    async def connected(self) -> Connection:
        """The connection, made where there is none. Raises HostLost."""
        async with self._connecting:
            if self._connection is not None:
                if self._connection.lost is None:
                    return self._connection
                # What was placed there is gone, and so are the descriptors.
                self._connection = None
            now_s = asyncio.get_running_loop().time()
            if self._failure is not None and now_s < self._not_before_s:
                raise again(self._failure)
            try:
                self._connection = await self._connect()
            except HostLost as error:
                self._failure = error
                self._backoff_s = min(max(self._backoff_s * 2, _FIRST_BACKOFF_S), _LARGEST_BACKOFF_S)
                self._not_before_s = asyncio.get_running_loop().time() + self._backoff_s
                raise
            self._failure = None
            self._backoff_s = 0.0
            return self._connection

    async def facts(self) -> HostFacts:
        """What the host says of itself; the clock from the fastest of a few answers."""
        connection = await self.connected()
        best: tuple[float, float, wire.Fields] | None = None
        for _ in range(_CLOCK_LOOKS):
            before_ns, began_s = time.time_ns(), time.monotonic()
            fields, _more = await connection.call("facts")
            round_trip_s = time.monotonic() - began_s
            offset_s = (fields["time_ns"] - before_ns) / 1e9 - round_trip_s / 2
            if best is None or round_trip_s < best[0]:
                best = (round_trip_s, offset_s, fields)
        if best is None:
            raise HostLost(f"{self.name} did not answer")
        round_trip_s, offset_s, fields = best
        major, minor, micro = fields["python_version"]
        return HostFacts(
            name=self.name,
            node_name=fields["node_name"],
            architecture=fields["architecture"],
            python_version=(major, minor, micro),
            effective_uid=fields["effective_uid"],
            boot_id=fields["boot_id"],
            clock_offset_s=offset_s,
            round_trip_s=round_trip_s,
            python=wire.raw(fields["python"]),
            process_id=fields["process_id"],
        )

    async def identity(self) -> HostFacts:
        """As `facts`, asked once for each connection."""
        connection = await self.connected()
        if self._identity is None or self._identity[0] is not connection:
            self._identity = (connection, await self.facts())
        return self._identity[1]

    async def find(self, program: str) -> bytes | None:
        """The absolute path of a program on the host's PATH."""
        path = self._processes.environment["PATH"]
        connection = await self.connected()
        fields, _ = await connection.call("find", program=wire.text(program.encode()), path=wire.text(path.encode()))
        return None if fields["path"] is None else wire.raw(fields["path"])

    async def place(self, name: str, content: bytes) -> bytes:
        """Put an executable file there, in memory, for as long as the connection holds. Raises OSError too."""
        connection = await self.connected()
        key = (name, content)
        if key not in self._placed:
            fields, _ = await connection.call("place", content, name=name)
            self._placed[key] = wire.raw(fields["path"])
        return self._placed[key]

    async def files_of(self, program: bytes) -> tuple[bytes, ...]:
        """The files that a program there is made of. Raises ToolFailed."""
        await self.connected()
        if program not in self._files:
            found = await program_files(program, processes=self._processes, read_head=self._read_head)
            self._files[program] = found
        return self._files[program]

    async def activity(self, tokens: Sequence[str]) -> Mapping[str, int]:
        """For every token with living processes there, a number that changes whenever they do something."""
        connection = await self.connected()
        fields, _ = await connection.call("activity", tokens=list(tokens))
        return {str(token): int(value) for token, value in fields["activity"].items()}

    async def watch_sync(self, path: bytes) -> None:
        """From now on `sync` tells of writes that failed."""
        connection = await self.connected()
        if path not in self._watched:
            await connection.call("watch_sync", path=wire.text(path))
            self._watched.add(path)

    async def sync(self, path: bytes) -> None:
        """Sync its file system there. HostLost, once, also where a connection was lost since `watch_sync`: the host may
        have been down in between, and then nobody knows whether what was written before has reached the disks.
        """
        connection = await self.connected()
        if path in self._unproven:
            self._unproven.discard(path)
            await self.watch_sync(path)
            raise HostLost(
                f"the connection to {self.name} was lost before what was written there was known to be on the disks of"
                f" {show(path)}",
                hint="what was copied there since the last sync is copied again",
                in_doubt=True,
            )
        await connection.call("sync", path=wire.text(path))
        self._watched.add(path)

    async def close(self) -> None:
        """End everything that runs there for this program, and the connection."""
        async with self._connecting:
            if self._connection is not None:
                await self._connection.close()
                self._connection = None

    async def _connect(self) -> Connection:
        self._opened += 1
        own = f"{self._key}{self._opened}"
        connection = Connection(
            self._transport,
            key=own,
            lease_s=self._lease_s,
            grace_s=self._grace_s,
            open_within_s=self._open_within_s,
        )
        await connection.open()
        self._placed.clear()
        self._unproven |= self._watched
        self._watched.clear()
        self._files.clear()
        if self._opened > 1:
            ended = await connection.call(
                "end_predecessors", own=wire.text(own.encode()), prefix=self._key, grace_s=min(self._grace_s, 1.0)
            )
            if not ended[0]["ended"]:
                _log.error("a process of an earlier connection to %s cannot be ended", self.name)
        return connection

    async def _read_head(self, path: bytes, size_bytes: int) -> bytes:
        connection = await self.connected()
        _, content = await connection.call("head", path=wire.text(path), size_bytes=size_bytes)
        return content


def again(error: HostLost, *, in_doubt: bool = False) -> HostLost:
    """The same loss, told to somebody else."""
    return HostLost(error.message, cause=error.cause, hint=error.hint, in_doubt=in_doubt)
