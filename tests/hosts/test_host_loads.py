"""How much hosts have to do, asked of a real process and of hosts that are not there."""

import asyncio
import os

import pytest

from migrator.hosts.local import LocalHost, load_of
from migrator.hosts.ports import Host, HostLost


class OnlyOne:
    """The hosts of a site, of which `gl1` answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def reach(self, name: str) -> Host:
        self.asked.append(name)
        if name != "gl1":
            raise HostLost(f"host {name} does not answer")
        return LocalHost(name=name)

    async def close(self) -> None:
        return None


def test_a_host_that_is_reached_tells_its_load_and_one_that_is_not_tells_nothing() -> None:
    hosts = OnlyOne()

    async def work() -> list[float | None]:
        asked = ("localhost", "gl1", "gl2", "slurm-1")
        return [await load_of(name, hosts=hosts, names=("gl1", "gl2"), own=("localhost",)) for name in asked]

    own, there, lost, unknown = asyncio.run(work())
    assert own is not None
    assert there == pytest.approx(os.getloadavg()[0], abs=5.0)
    assert (lost, unknown) == (None, None)
    assert hosts.asked == ["gl1", "gl2"]
