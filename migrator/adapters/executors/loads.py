"""How much hosts have to do: their load averages, this machine's and, over the connection that is there anyway, others'."""

import os
from collections.abc import Collection

from migrator.domain.errors import MigratorError
from migrator.ports.hosts import Hosts
from migrator.ports.processes import Command

_TIMEOUT_S = 10.0


class HostLoads:
    """The `Loads` port. `hosts` reaches those of `names`; `own` are names of this machine; others are not known."""

    def __init__(self, hosts: Hosts, *, names: Collection[str], own: Collection[str]) -> None:
        self._hosts = hosts
        self._names = frozenset(names)
        self._own = frozenset(own)

    async def of(self, host: str) -> float | None:
        """The load average of one minute; None where it is not known."""
        if host in self._own:
            return os.getloadavg()[0]
        if host not in self._names:
            return None
        command = Command(argv=(b"cat", b"/proc/loadavg"), timeout_s=_TIMEOUT_S)
        try:
            reached = await self._hosts.reach(host)
            done = await reached.processes.run(command)
        except MigratorError:
            # A host that is lost is told by its streams.
            return None
        return first_figure(done.stdout) if done.exit_code == 0 and not done.timed_out else None


def first_figure(text: bytes) -> float | None:
    """The load average of one minute, from /proc/loadavg."""
    first = text.split(maxsplit=1)[:1]
    try:
        return float(first[0]) if first else None
    except ValueError:
        return None
