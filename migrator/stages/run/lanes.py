"""Lanes over hosts that are reached when they are needed. What a way is made of is given by the caller."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from migrator.ports.hosts import Host, Hosts
from migrator.ports.lanes import Lane, Way

_GRACE_S = 5.0

MakeWay = Callable[[Host, str | None], Awaitable[Way]]
"""The executor and the engines of a host for one brick (None: for the mount there). Raises ToolFailed, HostLost."""


class HostLane:
    """The `Lane` port over one host. Ways are made once for every connection; several callers share the making."""

    def __init__(self, host: str, *, jobs: int, reads_mount: bool, hosts: Hosts, make_way: MakeWay) -> None:
        self._host = host
        self._jobs = jobs
        self._reads_mount = reads_mount
        self._hosts = hosts
        self._make_way = make_way
        self._connection: tuple[int, int] | None = None
        self._ways: dict[str | None, Way] = {}
        self._making = asyncio.Lock()

    @property
    def host(self) -> str:
        """As in the ledger."""
        return self._host

    @property
    def jobs(self) -> int:
        """How many streams may run there at once."""
        return self._jobs

    @property
    def ends_by_lease(self) -> bool:
        """The far end on a host sees to it."""
        return True

    @property
    def reads_mount(self) -> bool:
        """Whether it reads the mount; if not it reads the bricks of its host."""
        return self._reads_mount

    def reads(self, brick: str) -> bool:
        """Bricks are named by their hosts."""
        return not self._reads_mount and brick.startswith(self._host + ":/")

    async def way(self, brick: str | None) -> Way:
        """How a chunk of this brick is read there. Raises HostLost, ToolFailed."""
        async with self._making:
            host = await self._hosts.reach(self._host)
            # Another connection: what was placed on the host is gone with the one before.
            connection = (id(host), (await host.identity()).process_id)
            if connection != self._connection:
                self._connection = connection
                self._ways.clear()
            if brick not in self._ways:
                self._ways[brick] = await self._make_way(host, brick)
            return self._ways[brick]

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """Reach the host, and end what attempts have left there. Raises HostLost."""
        host = await self._hosts.reach(self._host)
        return [token for token in tokens if not await host.processes.end(token, grace_s=_GRACE_S)]


class Movers(Hosts, Protocol):
    """Hosts that a batch system gives, which also knows what has become of them."""

    async def end_orphans(self, name: str, tokens: Sequence[str]) -> Sequence[str]:
        """The tokens of what cannot be ended on a host; asks for no host. Raises HostLost where it is not known."""


class MoverLane(HostLane):
    """A lane over a host that a batch system gives: what is left there when it is lost, the batch system says."""

    def __init__(self, host: str, *, jobs: int, movers: Movers, make_way: MakeWay) -> None:
        super().__init__(host, jobs=jobs, reads_mount=True, hosts=movers, make_way=make_way)
        self._movers = movers

    @property
    def ends_by_lease(self) -> bool:
        """The end of its job is told."""
        return False

    async def end_orphans(self, tokens: Sequence[str]) -> Sequence[str]:
        """The tokens of what cannot be ended there. Raises HostLost while the batch system does not say."""
        return await self._movers.end_orphans(self.host, tokens)


class LaneSet:
    """The `Lanes` port over lanes that are made already; the first reads the mount on this machine."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = tuple(lanes)

    @property
    def all(self) -> Sequence[Lane]:
        """In the order in which they are filled."""
        return self._lanes

    def of_host(self, host: str) -> Lane | None:
        """The lane of a host as the ledger names it."""
        return next((lane for lane in self._lanes if lane.host == host), None)
