"""Reading the bricks of a Gluster volume by themselves, each on the host that has it."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from migrator.domain.brick import Brick, VolumeState
from migrator.domain.errors import MigratorError
from migrator.domain.scan import ScanProblem


class BrickLost(MigratorError):
    """The walk of a brick came to no end: its program died, or what it sent cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickHello:
    """What a brick says of itself before its first row. `volume_id` is None where its root carries none, `root_gfid`
    empty. `pending_heals` counts what its index lists, also what is being written to just now; None: not known.
    `device` is that of its file system.
    """

    volume_id: str | None
    root_gfid: bytes
    pending_heals: int | None
    device: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrickTotals:
    """What a walk counted itself, to be compared with what arrived.

    `migrating` are files that carry the marks of a migration, `filling_links` link-to files that have content already:
    both mean that files move between bricks. `strange` have no gfid: they were put there past Gluster.
    """

    rows: int
    directories: int
    problems: int
    vanished: int = 0
    migrating: int = 0
    filling_links: int = 0
    ask_the_mount: int = 0
    strange: int = 0


class BrickListener(Protocol):
    """Takes what a walk finds, one call at a time; the walk waits for each, so memory stays flat."""

    async def hello(self, hello: BrickHello) -> None:
        """The first call. What it raises ends the walk."""

    async def rows(self, payload: memoryview) -> None:
        """A block of entries that are no directories, for the catalog to decode."""

    async def directories(self, payload: memoryview) -> None:
        """A block of directories, in the same form."""

    async def problems(
        self, problems: Sequence[ScanProblem], to_ask: Sequence[ScanProblem], strange: Sequence[ScanProblem]
    ) -> None:
        """What could not be read; paths without a row that only the mount can tell about, with the reason; and those that
        nobody may ask it for, because Gluster has given them no gfid (GlusterFS #3688).
        """


class BrickWalks(Protocol):
    """Walks of bricks on their hosts."""

    @property
    def hosts(self) -> Collection[str]:
        """The hosts that the site names, as in the brick list. Whether they are there shows when they are reached."""

    async def reach(self, host: str) -> None:
        """Connect to a host. Raises HostLost, and UsageError where the site does not name it."""

    async def walk(
        self,
        brick: Brick,
        *,
        trees: Sequence[bytes],
        only_trees: bool,
        times_from_mdata: bool,
        listener: BrickListener,
        own: bool = False,
    ) -> BrickTotals:
        """Walk a brick on its host, and return when everything has been handed out. With `only_trees` nothing outside
        the trees is looked at but the directories that lead to them; with `own` what this program keeps in the root is
        looked at, too, which no scan lists. On cancellation it is ended there first. Raises
        BrickLost, HostLost, UsageError, and what the listener raises.
        """


class BrickVolume(Protocol):
    """The volume that the bricks make up."""

    async def state_for_bricks(self, state: VolumeState | None = None) -> VolumeState:
        """The volume with its peers and with what waits to be healed; `state`, where it was just looked at, is
        completed. Raises ToolFailed.
        """
