"""Adding bricks to a Gluster volume: what glusterd is asked, and what it is told to do."""

from collections.abc import Mapping, Sequence

from migrator.adapters.filesystems.gluster_tasks_xml import parse_task_id
from migrator.adapters.filesystems.gluster_volume import GlusterVolumeCommands


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
