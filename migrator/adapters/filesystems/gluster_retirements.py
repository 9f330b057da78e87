"""Retiring a Gluster volume: what glusterd is asked, and what it is told to do."""

from collections.abc import Iterator
from dataclasses import replace
from xml.etree.ElementTree import Element

from migrator.adapters.filesystems.gluster import GlusterCommands
from migrator.domain.brick import VolumeState
from migrator.domain.errors import ToolFailed
from migrator.domain.retirement import ClientSeen
from migrator.domain.volume_tasks import VolumeTask


class GlusterRetirements:
    """The `RetirementCommands` port."""

    def __init__(self, commands: GlusterCommands, *, volume: str) -> None:
        self._commands = commands
        self._volume = volume

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        """The volume with its peers and heals, and every task that is listed. Raises ToolFailed."""
        state, tasks = await self._commands.state_and_tasks()
        if not state.started:
            return replace(state, peers_down=None, heals=None), tasks
        return await self._commands.state_for_bricks(state), tasks

    async def clients(self) -> tuple[ClientSeen, ...]:
        """Every client of every brick. Raises ToolFailed also where a brick does not tell."""
        return parse_clients(await self._commands.ask("status", self._volume, "clients"), self._volume)

    async def stop(self) -> None:
        """`volume stop`, never with `force`. Raises ToolFailed."""
        await self._commands.ask("stop", self._volume)


def parse_clients(answer: Element, volume: str) -> tuple[ClientSeen, ...]:
    """`volume status VOL clients`. Raises ToolFailed where a brick that is listed does not tell all of its clients: an answer
    without them looks like one of a volume that nobody uses.
    """
    return tuple(_clients(answer, volume))


def _clients(answer: Element, volume: str) -> Iterator[ClientSeen]:
    told = False
    for element in answer.iterfind("volStatus/volumes/volume"):
        if element.findtext("volName") != volume:
            continue
        for node in element.iterfind("node"):
            # Gluster's own daemons are nodes too, and have no clients.
            if not (node.findtext("path") or "").startswith("/"):
                continue
            told = True
            brick = f"{node.findtext('hostname')}:{node.findtext('path')}"
            addresses = [client.findtext("hostname") or "" for client in node.iterfind("clientsStatus/client")]
            if node.findtext("clientsStatus/clientCount") != str(len(addresses)) or not all(addresses):
                raise ToolFailed(f"gluster's answer does not tell the clients of brick {brick}")
            yield from (ClientSeen(brick=brick, address=address) for address in addresses)
    if not told:
        raise ToolFailed(f"gluster's answer does not tell the clients of volume {volume!r}")
