"""What is left on drained bricks: the script runs on the brick's host over its connection."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from migrator.adapters.bricks.asking import ask_brick
from migrator.domain.brick import Brick
from migrator.domain.entry import EntryType
from migrator.domain.errors import ToolFailed
from migrator.domain.paths import show
from migrator.domain.recovery import BrickLeftovers, Leftover
from migrator.ports.hosts import Hosts
from migrator.ports.processes import OnOutput


class HostLeftovers:
    """The `LeftoverBricks` port."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self._volume_id = ""

    async def look(self, brick: Brick, *, volume_id: str, digests: bool) -> BrickLeftovers:
        """Everything that is left on a brick, as the port says."""
        self._volume_id = volume_id
        pieces: list[bytes] = []
        said = await self._ask(brick, {"what": "look", "digests": digests}, pieces.append)
        if said is not None:
            raise ToolFailed(f"what is left on {brick.name} cannot be seen: {said}")
        try:
            answer = json.loads(b"".join(pieces))
            return BrickLeftovers(
                brick=brick.name,
                found=tuple(_leftover(brick.name, one) for one in answer["found"]),
                unseen=tuple(answer["unseen"]),
                open_unknown=tuple(answer["open_unknown"]),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ToolFailed(f"what is left on {brick.name} cannot be seen: an answer was not understood") from error

    async def read(self, brick: Brick, leftover: Leftover, take: Callable[[bytes], Awaitable[None]]) -> None:
        """The content of a file, as the port says."""
        question = {
            "what": "read",
            "path": leftover.names[0].decode("latin-1"),
            "facts": [leftover.inode, leftover.size_bytes, leftover.mtime_ns, leftover.ctime_ns],
        }
        said = await self._ask(brick, question, take)
        if said is not None:
            raise ToolFailed(f"{show(leftover.names[0])} cannot be read on {brick.name}: {said}")

    async def _ask(self, brick: Brick, question: dict[str, Any], take: OnOutput) -> str | None:
        return await ask_brick(
            self._hosts, brick, ("far_open", "far_leftovers"), question, volume_id=self._volume_id, take=take
        )


def _leftover(brick: str, told: dict[str, Any]) -> Leftover:
    times = told.pop("own_times")
    return Leftover(
        brick=brick,
        names=tuple(sorted(name.encode("latin-1") for name in told.pop("names"))),
        type=EntryType.of_mode(told.pop("kind")),
        gfid=bytes.fromhex(told.pop("gfid")),
        own_times=None if times is None else (int(times[0]), int(times[1])),
        xattrs={key.encode("latin-1"): value.encode("latin-1") for key, value in told.pop("xattrs").items()},
        target=told.pop("target").encode("latin-1"),
        digest=bytes.fromhex(told.pop("digest")),
        pending=tuple(told.pop("pending")),
        **told,
    )
