"""Directories of a brick with owner, mode and ACLs: the script runs on the brick's host over its connection."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from typing import Any

from migrator.domain.brick import Brick
from migrator.domain.directory_owners import DirectoryFacts
from migrator.domain.errors import ToolFailed
from migrator.domain.paths import show
from migrator.ports.hosts import Hosts
from migrator.ports.processes import Command

_SAID_BYTES = 300


@cache
def _script() -> bytes:
    return (resources.files(__package__) / "far_directories.py").read_bytes()


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
        host = await self._hosts.reach(brick.host)
        python = (await host.identity()).python
        question: dict[str, Any] = {"root": brick.path.decode("latin-1"), "volume_id": volume_id}
        if only is not None:
            question["only"] = [path.decode("latin-1") for path in only]
        lines, stderr = _Lines(brick.name, take), list[bytes]()
        completed = await host.processes.stream(
            Command(argv=(python, b"-I", b"-S", b"-c", _script()), stdin=json.dumps(question).encode(), timeout_s=None),
            on_start=lambda _identity: None,
            on_stdout=lines.take,
            on_stderr=stderr.append,
        )
        if completed.exit_code != 0 or lines.unseen is None:
            said = show(b"".join(stderr).strip()[-_SAID_BYTES:]) or f"exit code {completed.exit_code}"
            raise ToolFailed(f"the directories of {brick.name} cannot be seen: {said}")
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
