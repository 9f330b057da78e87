"""This machine as every host, for what works on hosts."""

from migrator.hosts.local import LocalHost
from migrator.hosts.ports import HostLost


class OneHost:
    """The `Hosts` port: this machine, by every name, or by these alone; no other one can be reached then."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._hosts: dict[str, LocalHost] = {}
        self.asked: list[str] = []
        self.closed = False

    async def reach(self, name: str) -> LocalHost:
        self.asked.append(name)
        if self._names and name not in self._names:
            raise HostLost(f"{name} cannot be reached over ssh: it refuses the key", cause="no key", hint="add the key")
        return self._hosts.setdefault(name, LocalHost(name=name))

    async def close(self) -> None:
        self.closed = True
        for host in self._hosts.values():
            await host.close()
