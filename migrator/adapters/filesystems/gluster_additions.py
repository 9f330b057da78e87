"""Adding bricks to a Gluster volume: what glusterd is asked, and what it is told to do."""

from collections.abc import Mapping, Sequence

from migrator.adapters.filesystems.gluster import GlusterCommands
from migrator.adapters.filesystems.gluster_tasks_xml import parse_task_id
from migrator.domain.brick import VolumeState
from migrator.domain.brick_list import BrickRoom
from migrator.domain.volume_tasks import TaskProgress, VolumeTask


class GlusterAdditions:
    """The `AdditionCommands` port."""

    def __init__(self, commands: GlusterCommands, *, volume: str) -> None:
        self._commands = commands
        self._volume = volume

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        """The volume with its peers and heals, and every task that is listed. Raises ToolFailed."""
        state, tasks = await self._commands.state_and_tasks()
        return await self._commands.state_for_bricks(state), tasks

    async def rooms(self) -> Mapping[str, BrickRoom]:
        """By brick name the file system that it lies on. Raises ToolFailed."""
        return await self._commands.rooms()

    async def owners(self) -> Mapping[str, str]:
        """By brick name the volume that it belongs to, of every volume of the pool. Raises ToolFailed."""
        answer = await self._commands.ask("info", "all")
        return {
            brick.findtext("name") or "": volume.findtext("name") or ""
            for volume in answer.iterfind("volInfo/volumes/volume")
            for brick in volume.iterfind("bricks/brick")
        }

    async def option(self, name: str) -> str:
        """An option as it is in effect. Raises ToolFailed, also where there is no such option."""
        return await self._commands.option(name)

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        """The counters of a task that is listed. Raises ToolFailed."""
        return await self._commands.progress(task)

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

    async def fix_layout(self) -> str:
        """`rebalance VOL fix-layout start`. Raises ToolFailed."""
        return parse_task_id(await self._commands.ask("rebalance", self._volume, "fix-layout", "start"))

    async def rebalance(self) -> str:
        """`rebalance VOL start`: a move that would leave a brick with less free space than it had is skipped. Raises ToolFailed."""
        return parse_task_id(await self._commands.ask("rebalance", self._volume, "start"))

    async def set_option(self, name: str, value: str | None) -> None:
        """`volume set`, or `volume reset`. Raises ToolFailed."""
        if value is None:
            await self._commands.ask("reset", self._volume, name)
        else:
            await self._commands.ask("set", self._volume, name, value)
