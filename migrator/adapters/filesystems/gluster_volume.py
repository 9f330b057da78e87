"""What every change of a Gluster volume's bricks asks glusterd, and tells it to do."""

from collections.abc import Mapping

from migrator.adapters.filesystems.gluster import GlusterCommands
from migrator.adapters.filesystems.gluster_tasks_xml import parse_task_id
from migrator.domain.brick import VolumeState
from migrator.domain.brick_list import BrickRoom
from migrator.domain.volume_tasks import TaskProgress, VolumeTask


class GlusterVolumeCommands:
    """The `VolumeCommands` port."""

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

    async def option(self, name: str) -> str:
        """An option as it is in effect. Raises ToolFailed, also where there is no such option."""
        return await self._commands.option(name)

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        """The counters of a task that is listed. Raises ToolFailed."""
        return await self._commands.progress(task)

    async def fix_layout(self) -> str:
        """`rebalance VOL fix-layout start`. Raises ToolFailed."""
        return parse_task_id(await self._commands.ask("rebalance", self._volume, "fix-layout", "start"))

    async def set_option(self, name: str, value: str | None) -> None:
        """`volume set`, or `volume reset`. Raises ToolFailed."""
        if value is None:
            await self._commands.ask("reset", self._volume, name)
        else:
            await self._commands.ask("set", self._volume, name, value)
