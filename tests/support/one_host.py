"""This machine as every host, for what asks bricks on theirs."""

from migrator.hosts.local import LocalHost


class OneHost:
    """The `Hosts` port: this machine."""

    def __init__(self) -> None:
        self._host = LocalHost()

    async def reach(self, _: str) -> LocalHost:
        return self._host

    async def close(self) -> None:
        await self._host.close()
