"""What an addition needs of the volume and of the ledger. Times in seconds since the epoch."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from migrator.gluster.volume import VolumeCommands


class AdditionCommands(VolumeCommands, Protocol):
    """What an addition asks besides, and has glusterd do."""

    async def owners(self) -> Mapping[str, str]:
        """By brick name the volume that it belongs to, of every volume of the pool."""

    async def add(self, bricks: Sequence[str]) -> None:
        """Add bricks, as whole sets. Never by force."""

    async def replace(self, old: str, new: str) -> None:
        """Put a new brick in the place of one copy of a replica set; it is filled by healing."""

    async def take_offline(self, brick: str) -> None:
        """End the process of a brick of a replica set, so that its disk can be exchanged in its place. May be called again."""

    async def put_in(self, brick: str, *, marked: bool) -> None:
        """Take the empty file system that is mounted in the place of a brick that is offline into the volume; it is filled by healing.
        `marked`: an earlier call has begun to, and has left Gluster's marks there.
        """

    async def start_bricks(self) -> None:
        """Start every brick of the volume that is down, also one that was taken offline, with what it has. May be called again."""

    async def heal(self) -> None:
        """Have the self-heal daemons look now for what waits to be healed, and not when their next time comes. May be called again."""

    async def rebalance(self) -> str:
        """Begin to even out the bricks; returns the id of the task."""
