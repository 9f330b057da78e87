"""The commands that change a volume: add-brick, remove-brick, rebalance, stop."""

from collections.abc import Mapping, Sequence
from xml.etree.ElementTree import Element

from migrator.core.errors import ToolFailed
from migrator.gluster.model import ClientSeen, TaskProgress, VolumeState, VolumeTask
from migrator.gluster.volume import GlusterCommands
from migrator.gluster.xml import node_name, of_volume, parse_progress, parse_task_id


class GlusterVolumeCommands:
    """The commands of drains, additions and retirements. All raise ToolFailed; a change whose answer is lost may have been
    made.

    `rooms`, `option` and `progress` are those of the volume's other commands.
    """

    def __init__(self, commands: GlusterCommands) -> None:
        self._commands = commands
        self._volume = commands.volume
        self.rooms, self.option, self.progress = commands.rooms, commands.option, commands.progress

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        """The volume with its peers and heals, and every listed task; neither of one that is not started."""
        state, tasks = await self._commands.state_and_tasks()
        return (await self._commands.state_for_bricks(state) if state.started else state), tasks

    async def fix_layout(self) -> str:
        """Start a fix-layout; returns the id of the task."""
        return parse_task_id(await self._commands.ask("rebalance", self._volume, "fix-layout", "start"))

    async def set_option(self, name: str, value: str | None) -> None:
        """Set an option of the volume, or (None) reset it to its default. May be called again."""
        if value is None:
            await self._commands.ask("reset", self._volume, name)
        else:
            await self._commands.ask("set", self._volume, name, value)

    async def owners(self) -> Mapping[str, str]:
        """The volume of each brick, by brick name, for every volume of the pool."""
        answer = await self._commands.ask("info", "all")
        return {
            brick.findtext("name") or "": volume.findtext("name") or ""
            for volume in answer.iterfind("volInfo/volumes/volume")
            for brick in volume.iterfind("bricks/brick")
        }

    async def add(self, bricks: Sequence[str]) -> None:
        """`add-brick`, never with `force`: so glusterd refuses a directory that was a brick before. Raises ToolFailed."""
        await self._commands.ask("add-brick", self._volume, *bricks)

    async def replace(self, old: str, new: str) -> None:
        """Replace one copy of a replica set with a new brick, which healing fills."""
        await self._commands.ask("replace-brick", self._volume, old, new, "commit", "force")

    async def take_offline(self, brick: str) -> None:
        """End the process of a brick of a replica set, so that its disk can be replaced. May be called again."""
        await self._commands.ask("reset-brick", self._volume, brick, "start")

    async def put_in(self, brick: str, *, marked: bool) -> None:
        """`reset-brick ... commit`. Without `force`, glusterd refuses a directory that has a brick's marks, is a mount
        point, or is on the root file system; with it, nothing is checked. So `force` is only for a directory that an
        earlier commit of the same brick has marked, and that is otherwise empty. Raises ToolFailed.
        """
        await self._commands.ask("reset-brick", self._volume, brick, brick, "commit", *(["force"] if marked else []))

    async def start_bricks(self) -> None:
        """`volume start ... force`: starts every brick that is down with its current content, as after a crash; missed
        changes are healed. Raises ToolFailed.
        """
        await self._commands.ask("start", self._volume, "force")

    async def heal(self) -> None:
        """`heal VOL`: heals all pending entries. The daemons also do that themselves when a brick comes up, and then
        every `cluster.heal-timeout` (10 min). Raises ToolFailed, also if a brick is not up yet.
        """
        await self._commands.heal()

    async def rebalance(self) -> str:
        """`rebalance VOL start`: skips moves to a brick with less free space than the present one. Raises ToolFailed."""
        return parse_task_id(await self._commands.ask("rebalance", self._volume, "start"))

    async def start(self, bricks: Sequence[str]) -> str:
        """Start to drain bricks; returns the id of the task."""
        return parse_task_id(await self._commands.ask("remove-brick", self._volume, *bricks, "start"))

    async def stop(self, bricks: Sequence[str]) -> TaskProgress:
        """Stop a drain; returns its last counters, which are not available afterwards."""
        return parse_progress(await self._commands.ask("remove-brick", self._volume, *bricks, "stop"))

    async def commit(self, bricks: Sequence[str]) -> None:
        """`remove-brick ... commit`, never with `force`. Raises ToolFailed."""
        await self._commands.ask("remove-brick", self._volume, *bricks, "commit")

    async def clients(self) -> tuple[ClientSeen, ...]:
        """Every client of every brick. Raises ToolFailed, also if the clients of a brick are not listed."""
        return parse_clients(await self._commands.ask("status", self._volume, "clients"), self._volume)

    async def stop_volume(self) -> None:
        """`volume stop`, never with `force`. Raises ToolFailed."""
        await self._commands.ask("stop", self._volume)


def parse_clients(answer: Element, volume: str) -> tuple[ClientSeen, ...]:
    """Parse `volume status VOL clients`. Raises ToolFailed if the clients of a listed brick are incomplete: an answer
    without clients would look like an unused volume.
    """
    found: list[ClientSeen] = []
    # Gluster's own daemons are nodes too, but have no clients.
    bricks = [node for node in of_volume(answer, volume, "node") if (node.findtext("path") or "").startswith("/")]
    for node in bricks:
        addresses = [client.findtext("hostname") or "" for client in node.iterfind("clientsStatus/client")]
        if node.findtext("clientsStatus/clientCount") != str(len(addresses)) or not all(addresses):
            raise ToolFailed(f"gluster's answer lacks the clients of brick {node_name(node)}")
        found += (ClientSeen(brick=node_name(node), address=address) for address in addresses)
    if not bricks:
        raise ToolFailed(f"gluster's answer lacks the clients of volume {volume!r}")
    return tuple(found)
