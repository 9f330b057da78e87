"""Draining bricks of a Gluster volume: what glusterd is asked, and what it is told to do."""

from collections.abc import Sequence

from migrator.adapters.filesystems.gluster_tasks_xml import parse_progress, parse_task_id
from migrator.adapters.filesystems.gluster_volume import GlusterVolumeCommands
from migrator.domain.volume_tasks import TaskProgress


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
