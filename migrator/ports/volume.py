"""A Gluster volume as `brick list` asks for it, and what a catalog knows of its bricks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.brick import VolumeState
from migrator.domain.brick_list import BrickRoom, BrickUse
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


class BrickUsage(Protocol):
    """What catalogs know of bricks; out of core."""

    def uses(self, catalog: str) -> Mapping[str | None, tuple[BrickUse, ...]]:
        """By brick what each user has there, with most bytes first; under None what was read through the mount. A brick
        that was read and holds nothing has an empty tuple. Raises UsageError where there is no such catalog, Refused
        where it is half written or damaged.
        """
