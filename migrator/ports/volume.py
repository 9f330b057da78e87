"""A Gluster volume as `brick list` asks for it, and what a catalog knows of its bricks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.brick import VolumeState
from migrator.domain.brick_list import BrickRoom, BrickUse
from migrator.domain.drain_preflight import BrickContent
from migrator.domain.volume_tasks import TaskProgress, VolumeTask


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeOverview:
    """One look at the volume. `tasks` are those that move files or wait for a commit, `progress` their counters by id (None
    where glusterd does not tell them); `rooms` by brick name. `version` is that of the host that answered.
    """

    state: VolumeState
    version: str | None
    rooms: Mapping[str, BrickRoom]
    tasks: tuple[VolumeTask, ...]
    progress: Mapping[str, TaskProgress | None]


class VolumeLook(Protocol):
    """Asks glusterd. Changes nothing."""

    async def overview(self) -> VolumeOverview:
        """Everything at once. Raises ToolFailed where the volume is not known or glusterd does not answer."""


class VolumeCommands(Protocol):
    """What every change of bricks asks glusterd, and has it do. All raise ToolFailed; a change whose answer is lost may have been
    made.
    """

    async def state_and_tasks(self) -> tuple[VolumeState, tuple[VolumeTask, ...]]:
        """The volume with its peers and heals, and every task that is listed."""

    async def rooms(self) -> Mapping[str, BrickRoom]:
        """By brick name the file system that it lies on."""

    async def option(self, name: str) -> str:
        """An option as it is in effect, set or not."""

    async def progress(self, task: VolumeTask) -> TaskProgress | None:
        """The counters of a task that is listed; None where there is none of its kind any more."""

    async def fix_layout(self) -> str:
        """Begin to put the layout of all directories right; returns the id of the task."""

    async def set_option(self, name: str, value: str | None) -> None:
        """Set an option of the volume, or (None) let its default hold again. May be called again."""


class DrainCommands(VolumeCommands, Protocol):
    """What a drain asks besides, and has glusterd do."""

    async def start(self, bricks: Sequence[str]) -> str:
        """Begin to drain bricks; returns the id of the task."""

    async def stop(self, bricks: Sequence[str]) -> TaskProgress:
        """Take a drain back; returns its last counters, which nothing else tells afterwards."""

    async def commit(self, bricks: Sequence[str]) -> None:
        """Take drained bricks out of the volume. Never by force."""


class BrickUsage(Protocol):
    """What catalogs know of bricks; out of core."""

    def uses(self, catalog: str) -> Mapping[str | None, tuple[BrickUse, ...]]:
        """By brick what each user has there, with most bytes first; under None what was read through the mount. A brick
        that was read and holds nothing has an empty tuple. Raises UsageError where there is no such catalog, Refused
        where it is half written or damaged.
        """


class BrickContents(Protocol):
    """What catalogs know of bricks that are to be drained; out of core."""

    def content(self, catalog: str, bricks: Sequence[str]) -> BrickContent | None:
        """What these bricks held when they were scanned; None where the catalog was not made from any of them. Raises
        UsageError where there is no such catalog, Refused where it is half written or damaged.
        """
