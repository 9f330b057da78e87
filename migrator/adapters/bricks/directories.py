"""Directories of a brick with owner, mode and ACLs: the script runs on the brick's host over its connection."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from migrator.adapters.bricks.asking import ask_brick
from migrator.domain.brick import Brick
from migrator.domain.directory_owners import DirectoryFacts
from migrator.domain.errors import ToolFailed
from migrator.ports.hosts import Hosts


class HostDirectories:
    """The `DirectoryWalks` port."""

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts

    async def walk(
        self,
        brick: Brick,
        *,
        volume_id: str,
        take: Callable[[Sequence[DirectoryFacts]], None],
        only: Sequence[bytes] | None = None,
    ) -> int:
        """Every directory of a brick, or these, as the port says."""
        question = {} if only is None else {"only": [path.decode("latin-1") for path in only]}
        lines = _Lines(brick.name, take)
        said = await ask_brick(self._hosts, brick, ("far_directories",), question, volume_id=volume_id, take=lines.take)
        if said is not None or lines.unseen is None:
            raise ToolFailed(f"the directories of {brick.name} cannot be seen: {said or 'the answer has no end'}")
        return lines.unseen


class _Lines:
    """The output of one walk, whole line by whole line."""

    def __init__(self, brick: str, take: Callable[[Sequence[DirectoryFacts]], None]) -> None:
        self._brick = brick
        self._take = take
        self._rest = b""
        self.unseen: int | None = None

    def take(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        try:
            told = [json.loads(line) for line in lines]
            if told and "unseen" in told[-1]:
                self.unseen = int(told.pop()["unseen"])
            found = [_facts(one) for one in told]
        except (ValueError, KeyError, TypeError) as error:
            raise ToolFailed(
                f"the directories of {self._brick} cannot be seen: an answer was not understood"
            ) from error
        if found:
            self._take(found)


def _facts(told: dict[str, Any]) -> DirectoryFacts:
    times = told["times"]
    return DirectoryFacts(
        path=told["path"].encode("latin-1"),
        gfid=bytes.fromhex(told["gfid"]),
        above=bytes.fromhex(told["above"]),
        mode=told["mode"],
        uid=told["uid"],
        gid=told["gid"],
        access=bytes.fromhex(told["access"]),
        default=bytes.fromhex(told["default"]),
        changed_ns=None if times is None else int(times[0]),
        modified_ns=None if times is None else int(times[1]),
    )
