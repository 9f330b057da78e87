"""The commands that change a volume: add-brick, remove-brick, rebalance, stop."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from xml.etree.ElementTree import Element

from migrator.bricks.retire.model import ClientSeen
from migrator.core.errors import ToolFailed
from migrator.gluster.model import TaskProgress, VolumeState, VolumeTask
from migrator.gluster.volume import GlusterCommands, GlusterVolumeCommands
from migrator.gluster.xml import parse_progress, parse_task_id

# ---
# Adding bricks to a Gluster volume: what glusterd is asked, and what it is told to do.


class GlusterAdditions(GlusterVolumeCommands):
    """The `AdditionCommands` port."""

    async def owners(self) -> Mapping[str, str]:
        """By brick name the volume that it belongs to, of every volume of the pool. Raises ToolFailed."""
        answer = await self._commands.ask("info", "all")
        return {
            brick.findtext("name") or "": volume.findtext("name") or ""
            for volume in answer.iterfind("volInfo/volumes/volume")
            for brick in volume.iterfind("bricks/brick")
        }

    async def add(self, bricks: Sequence[str]) -> None:
        """`add-brick`, never with `force`: glusterd itself refuses a brick that was one before. Raises ToolFailed."""
        await self._commands.ask("add-brick", self._volume, *bricks)

    async def replace(self, old: str, new: str) -> None:
        """`replace-brick ... commit force`, the only form that there is. Raises ToolFailed."""
        await self._commands.ask("replace-brick", self._volume, old, new, "commit", "force")

    async def take_offline(self, brick: str) -> None:
        """`reset-brick ... start`: Gluster ends the brick's process, and keeps it in the volume. Raises ToolFailed."""
        await self._commands.ask("reset-brick", self._volume, brick, "start")

    async def put_in(self, brick: str, *, marked: bool) -> None:
        """`reset-brick ... commit`. Without `force` glusterd itself refuses a place that has a brick's marks, that is a mount point, or
        that lies on the root file system; with it nothing is looked at. So `force` is only for a place that an earlier commit of the
        same brick has marked, and that was seen to hold nothing else. Raises ToolFailed.
        """
        await self._commands.ask("reset-brick", self._volume, brick, brick, "commit", *(["force"] if marked else []))

    async def start_bricks(self) -> None:
        """`volume start ... force`, which starts every brick that is down with what it has, as after a crash: what it has missed is
        healed. Raises ToolFailed.
        """
        await self._commands.ask("start", self._volume, "force")

    async def heal(self) -> None:
        """`heal VOL`, which goes through the lists of what waits. Daemons do by themselves when they reach a brick, and then every
        `cluster.heal-timeout` (10 min). Raises ToolFailed, also where a brick has not come up yet.
        """
        await self._commands.heal()

    async def rebalance(self) -> str:
        """`rebalance VOL start`: a move that would leave a brick with less free space than it had is skipped. Raises ToolFailed."""
        return parse_task_id(await self._commands.ask("rebalance", self._volume, "start"))


# ---
# Draining bricks of a Gluster volume: what glusterd is asked, and what it is told to do.


class GlusterDrains(GlusterVolumeCommands):
    """The `DrainCommands` port."""

    async def start(self, bricks: Sequence[str]) -> str:
        """`remove-brick ... start`. Raises ToolFailed."""
        return parse_task_id(await self._commands.ask("remove-brick", self._volume, *bricks, "start"))

    async def stop(self, bricks: Sequence[str]) -> TaskProgress:
        """`remove-brick ... stop`. Raises ToolFailed."""
        return parse_progress(await self._commands.ask("remove-brick", self._volume, *bricks, "stop"))

    async def commit(self, bricks: Sequence[str]) -> None:
        """`remove-brick ... commit`; it is the only form that this program knows. Raises ToolFailed."""
        await self._commands.ask("remove-brick", self._volume, *bricks, "commit")


# ---
# Retiring a Gluster volume: what glusterd is asked, and what it is told to do.


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
